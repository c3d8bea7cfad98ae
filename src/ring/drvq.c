/* SPDX-License-Identifier: BSD-3-Clause */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "drvq_priv.h"

static const struct rf_drvq_ops *const layouts[] = {
	[RF_RING_SPLIT] = &rf_drvq_split_ops,
};

int rf_drvq_new(const struct rf_ring_config *config, struct rf_drvq **ret_q)
{
	struct rf_ring_extent extent;
	struct rf_drvq *q;

	if (!ring_config_is_sound(config, &extent))
		return -EINVAL;
	q = calloc(1, sizeof(*q) + config->num * sizeof(q->slots[0]));
	if (!q)
		return -ENOMEM;
	q->ops = layouts[config->layout];
	q->num = config->num;
	q->event_idx = config->event_idx;
	q->n_free = config->num;
	for (uint32_t i = 0; i < config->num; i++)
		q->slots[i].next = (uint16_t)(i + 1);
	ring_zero(config->desc, extent.desc_bytes);
	ring_zero(config->driver, extent.driver_bytes);
	ring_zero(config->device, extent.device_bytes);
	q->ops->init(q, config->desc, config->driver, config->device);
	*ret_q = q;
	return 0;
}

void rf_drvq_free(struct rf_drvq *q)
{
	free(q);
}

void rf_drvq_allow_any_len(struct rf_drvq *q)
{
	q->any_len = true;
}

unsigned rf_drvq_outstanding(const struct rf_drvq *q)
{
	return q->n_outstanding;
}

unsigned rf_drvq_unused(const struct rf_drvq *q)
{
	return q->ops->unused(q);
}

enum rf_ring_reason rf_drvq_broken(const struct rf_drvq *q)
{
	return q->reason;
}

bool rf_drvq_fail(struct rf_drvq *q, enum rf_ring_reason reason)
{
	q->reason = reason;
	return false;
}

/* Take descriptors off the free list for a buffer; they stay linked. */
static uint16_t slots_take(struct rf_drvq *q, const struct rf_drvq_piece *pieces, unsigned n_out,
			   unsigned n_in, void *token)
{
	uint16_t head = q->free_head;
	struct rf_drvq_slot *slot = &q->slots[head];
	unsigned n = n_out + n_in;
	uint64_t bytes_in = 0;
	uint16_t last = head;

	for (unsigned i = 1; i < n; i++)
		last = q->slots[last].next;
	for (unsigned i = n_out; i < n; i++)
		bytes_in += pieces[i].len;
	/* virtio 1.2 2.7.5: no chain of more than 2^32 bytes. */
	assert(bytes_in <= UINT32_MAX);
	slot->token = token;
	slot->batch = q->batch;
	slot->bytes_in = (uint32_t)bytes_in;
	slot->n = (uint16_t)n;
	slot->last = last;
	q->free_head = q->slots[last].next;
	q->n_free -= n;
	q->n_outstanding++;
	return head;
}

/* Give a buffer's descriptors back; returns its token. */
static void *slots_release(struct rf_drvq *q, uint16_t head)
{
	struct rf_drvq_slot *slot = &q->slots[head];
	void *token = slot->token;

	q->slots[slot->last].next = q->free_head;
	q->free_head = head;
	q->n_free += slot->n;
	q->n_outstanding--;
	if (slot->batch != q->batch)
		q->n_published--;
	slot->token = NULL;
	return token;
}

int rf_drvq_add(struct rf_drvq *q, const struct rf_drvq_piece *pieces, unsigned n_out,
		unsigned n_in, void *token)
{
	uint16_t head;

	assert(token && n_out + n_in);
	if (q->reason != RF_RING_NONE)
		return -EPROTO;
	if (n_out + n_in > q->n_free)
		return -ENOSPC;
	head = slots_take(q, pieces, n_out, n_in, token);
	q->ops->add(q, head, pieces, n_out, n_in);
	return 0;
}

bool rf_drvq_publish(struct rf_drvq *q)
{
	if (q->reason != RF_RING_NONE || q->n_published == q->n_outstanding)
		return false;
	q->n_published = q->n_outstanding;
	q->batch++;
	return q->ops->publish(q);
}

void *rf_drvq_get(struct rf_drvq *q, uint32_t *ret_len)
{
	uint32_t len;
	uint16_t id;

	if (q->reason != RF_RING_NONE || !q->ops->get(q, &id, &len))
		return NULL;
	*ret_len = len;
	return slots_release(q, id);
}

bool rf_drvq_arm(struct rf_drvq *q)
{
	return rf_drvq_arm_after(q, 1);
}

bool rf_drvq_arm_after(struct rf_drvq *q, unsigned n)
{
	assert(n >= 1 && n <= q->num);
	return q->reason == RF_RING_NONE && q->ops->arm_after(q, n);
}

bool rf_drvq_peek(struct rf_drvq *q)
{
	return q->reason == RF_RING_NONE && q->ops->peek(q);
}

void rf_drvq_disarm(struct rf_drvq *q)
{
	if (q->reason == RF_RING_NONE)
		q->ops->disarm(q);
}
