/* SPDX-License-Identifier: BSD-3-Clause */
#include "drvq_priv.h"

static void split_init(struct rf_drvq *q, void *desc, void *driver, void *device)
{
	q->split.desc_ring = desc;
	q->split.avail_ring = driver;
	q->split.used_ring = device;
	q->split.mask = (uint16_t)(q->num - 1);
}

static void split_add(struct rf_drvq *q, uint16_t head, const struct rf_drvq_piece *pieces,
		      unsigned n_out, unsigned n_in)
{
	struct rf_drvq_split *s = &q->split;
	uint16_t at = head;

	for (unsigned i = 0; i < n_out + n_in; i++) {
		bool more = i + 1 < n_out + n_in;
		unsigned flags =
			(i >= n_out ? VRING_DESC_F_WRITE : 0) | (more ? VRING_DESC_F_NEXT : 0);
		struct ring_desc desc = { .addr = pieces[i].gpa.v,
					  .len = pieces[i].len,
					  .flags = (uint16_t)flags,
					  .next = more ? q->slots[at].next : 0 };

		ring_store_desc(&s->desc_ring[at], &desc);
		at = q->slots[at].next;
	}
	ring_store_u16(&s->avail_ring->ring[s->added & s->mask], head);
	s->added++;
}

static bool split_publish(struct rf_drvq *q)
{
	struct rf_drvq_split *s = &q->split;
	const uint16_t *avail_event = (const void *)&s->used_ring->ring[q->num];
	uint16_t old = s->published;

	ring_store_release_u16(&s->avail_ring->idx, s->added);
	s->published = s->added;
	ring_fence_store_load();
	if (q->event_idx)
		return vring_need_event(ring_load_u16(avail_event), s->added, old);
	return !(ring_load_u16(&s->used_ring->flags) & VRING_USED_F_NO_NOTIFY);
}

/* Has the device used a buffer that was not taken back? */
static bool split_used(struct rf_drvq *q)
{
	struct rf_drvq_split *s = &q->split;
	uint16_t used;

	if (s->used != s->taken)
		return true;
	used = ring_load_acquire_u16(&s->used_ring->idx);
	if ((uint16_t)(used - s->taken) > q->n_published)
		return rf_drvq_fail(q, RF_RING_USED_JUMP);
	s->used = used;
	return used != s->taken;
}

static bool split_get(struct rf_drvq *q, uint16_t *ret_id, uint32_t *ret_len)
{
	struct rf_drvq_split *s = &q->split;
	const struct vring_used_elem *elem;
	uint32_t id, len;

	if (!split_used(q))
		return false;
	elem = &s->used_ring->ring[s->taken & s->mask];
	id = ring_load_u32(&elem->id);
	len = ring_load_u32(&elem->len);
	/* A buffer of the batch to come is not the device's yet. */
	if (id >= q->num || !q->slots[id].token || q->slots[id].batch == q->batch)
		return rf_drvq_fail(q, RF_RING_USED_ID);
	if (len > q->slots[id].bytes_in) {
		if (!q->any_len)
			return rf_drvq_fail(q, RF_RING_USED_LEN);
		len = q->slots[id].bytes_in;
	}
	s->taken++;
	*ret_id = (uint16_t)id;
	*ret_len = len;
	return true;
}

static bool split_arm_after(struct rf_drvq *q, unsigned n)
{
	struct rf_drvq_split *s = &q->split;

	if (q->event_idx) {
		ring_store_u16(&s->avail_ring->ring[q->num], (uint16_t)(s->taken + n - 1));
	} else {
		n = 1;
		if (s->avail_flags)
			ring_store_u16(&s->avail_ring->flags, s->avail_flags = 0);
	}
	ring_fence_store_load();
	return (uint16_t)(ring_load_u16(&s->used_ring->idx) - s->taken) >= n;
}

static void split_disarm(struct rf_drvq *q)
{
	struct rf_drvq_split *s = &q->split;

	/* With an event index: a moment that is as far off as can be. */
	if (q->event_idx)
		ring_store_u16(&s->avail_ring->ring[q->num], (uint16_t)(s->taken + 0x7fff));
	else if (!s->avail_flags)
		ring_store_u16(&s->avail_ring->flags, s->avail_flags = VRING_AVAIL_F_NO_INTERRUPT);
}

static unsigned split_unused(const struct rf_drvq *q)
{
	const struct rf_drvq_split *s = &q->split;

	return (uint16_t)(ring_load_u16(&s->avail_ring->idx) - ring_load_u16(&s->used_ring->idx));
}

const struct rf_drvq_ops rf_drvq_split_ops = {
	.init = split_init,
	.add = split_add,
	.publish = split_publish,
	.peek = split_used,
	.get = split_get,
	.arm_after = split_arm_after,
	.disarm = split_disarm,
	.unused = split_unused,
};
