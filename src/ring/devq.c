/* SPDX-License-Identifier: BSD-3-Clause */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "devq_priv.h"

static const struct rf_devq_ops *const layouts[] = {
	[RF_RING_SPLIT] = &rf_devq_split_ops,
};

static const struct rf_devq_ops *layout_ops(enum rf_ring_layout layout)
{
	return (unsigned)layout < RF_ARRAY_SIZE(layouts) ? layouts[layout] : NULL;
}

int rf_ring_extent_get(enum rf_ring_layout layout, uint32_t num, struct rf_ring_extent *ret_extent)
{
	const struct rf_devq_ops *ops = layout_ops(layout);

	return ops ? ops->extent(num, ret_extent) : -EINVAL;
}

int rf_devq_new(struct rf_mem *mem, struct rf_devq **ret_q)
{
	struct rf_devq *q = calloc(1, sizeof(*q));

	assert(mem);
	if (!q)
		return -ENOMEM;
	q->mem = mem;
	*ret_q = q;
	return 0;
}

void rf_devq_free(struct rf_devq *q)
{
	free(q);
}

static bool config_is_sound(const struct rf_ring_config *config)
{
	struct rf_ring_extent extent;

	return ring_config_is_sound(config, &extent);
}

static void window_reset(struct rf_devq *q)
{
	q->first = 0;
	q->n = 0;
	q->n_pieces = 0;
	q->last_hit.bytes = 0;
}

int rf_devq_start(struct rf_devq *q, const struct rf_ring_config *config)
{
	if (rf_devq_running(q))
		(void)rf_devq_stop(q);
	if (!config_is_sound(config))
		return -EINVAL;
	q->ops = layout_ops(config->layout);
	q->config = *config;
	q->reason = RF_RING_NONE;
	q->notified = false;
	q->n_held = 0;
	window_reset(q);
	q->ops->start(q);
	return 0;
}

uint16_t rf_devq_stop(struct rf_devq *q)
{
	if (!q->ops)
		return q->base;
	(void)q->ops->publish(q);
	window_reset(q);
	q->base = q->ops->base(q);
	q->ops = NULL;
	return q->base;
}

bool rf_devq_running(const struct rf_devq *q)
{
	return q->ops != NULL;
}

bool rf_devq_blank(const struct rf_devq *q)
{
	const uint16_t *desc = q->config.desc;
	const uint16_t *driver = q->config.driver;
	uint16_t seen = 0;

	if (!q->ops)
		return false;
	for (size_t i = 0; i < sizeof(struct vring_desc) / sizeof(*desc); i++)
		seen |= ring_load_u16(&desc[i]);
	return !(seen | ring_load_u16(&driver[0]) | ring_load_u16(&driver[1]));
}

enum rf_ring_reason rf_devq_broken(const struct rf_devq *q)
{
	return q->reason;
}

void rf_devq_break(struct rf_devq *q, enum rf_ring_reason reason)
{
	assert(reason != RF_RING_NONE);
	/* The first reason is the cause of the others. */
	if (q->reason == RF_RING_NONE)
		q->reason = reason;
}

enum rf_parse rf_devq_fail(struct rf_devq *q, enum rf_ring_reason reason)
{
	/* Where memory vanished we read zeros, which are no fault of their own. */
	rf_devq_break(q, rf_mem_faulted(q->mem) ? RF_RING_MEM_FAULT : reason);
	return RF_PARSE_BAD;
}

/* Make room for @want chains behind the window. */
static void window_move_up(struct rf_devq *q, unsigned want)
{
	if (!q->n) {
		q->first = 0;
		q->n_pieces = 0;
	} else if (q->first + want > RF_DEVQ_CHAIN_SLOTS) {
		memmove(&q->chains[0], &q->chains[q->first], q->n * sizeof(q->chains[0]));
		q->first = 0;
	}
}

int rf_devq_look(struct rf_devq *q, unsigned want, const struct rf_chain **ret_chains)
{
	unsigned before = q->n;

	assert(want <= RF_DEVQ_WINDOW);
	if (!q->ops)
		return -ESHUTDOWN;
	if (want > before && q->reason == RF_RING_NONE) {
		window_move_up(q, want);
		q->ops->look(q, want - before);
		if (rf_mem_faulted(q->mem)) {
			/* What was parsed now may be made of the zeros that were put there. */
			q->n = before;
			rf_devq_break(q, RF_RING_MEM_FAULT);
		}
	}
	if (!q->n && q->reason != RF_RING_NONE)
		return -EPROTO;
	*ret_chains = &q->chains[q->first];
	return (int)q->n;
}

/*
 * Move what is alive in the arena to its front: the pieces from the window's first chain on, or
 * those of the chain in the walk alone.
 *
 * Return: false if it is there already.
 */
static bool arena_compact(struct rf_devq *q, struct rf_chain *walked)
{
	uint32_t dead = q->n ? q->chains[q->first].first : walked->first;

	if (!dead)
		return false;
	memmove(&q->arena[0], &q->arena[dead], (q->n_pieces - dead) * sizeof(q->arena[0]));
	q->n_pieces -= dead;
	for (unsigned i = 0; i < q->n; i++)
		q->chains[q->first + i].first -= dead;
	walked->first -= dead;
	return true;
}

/* Translate a range that is not simply a part of the last region met. */
static enum rf_parse walk_map(struct rf_walk *walk, const struct ring_desc *desc)
{
	struct rf_devq *q = walk->q;
	int r;

	do {
		r = rf_mem_map(q->mem, (struct rf_gpa){ desc->addr }, desc->len,
			       &q->arena[q->n_pieces], RF_DEVQ_ARENA - q->n_pieces);
	} while (r == -E2BIG && arena_compact(q, walk->chain));
	if (r == -E2BIG)
		return q->n ? RF_PARSE_LATER : rf_devq_fail(q, RF_RING_CHAIN_PIECES);
	if (r < 0)
		return rf_devq_fail(q, RF_RING_DESC_ADDR);
	q->last_hit = *rf_mem_find(q->mem, desc->addr);
	q->n_pieces += (unsigned)r;
	return RF_PARSE_OK;
}

static inline enum rf_parse walk_translate(struct rf_walk *walk, const struct ring_desc *desc)
{
	struct rf_devq *q = walk->q;
	uint64_t offset = desc->addr - q->last_hit.gpa;

	if (offset >= q->last_hit.bytes || desc->len > q->last_hit.bytes - offset || !desc->len ||
	    desc->len > q->mem->max_piece || q->n_pieces == RF_DEVQ_ARENA)
		return walk_map(walk, desc);
	q->arena[q->n_pieces++] = (struct iovec){ q->last_hit.host + offset, desc->len };
	return RF_PARSE_OK;
}

enum rf_parse rf_walk_add(struct rf_walk *walk, const struct ring_desc *desc)
{
	struct rf_devq *q = walk->q;
	struct rf_chain *chain = walk->chain;
	bool in = desc->flags & VRING_DESC_F_WRITE;
	enum rf_parse parse;

	if (walk->in_begun && !in)
		return rf_devq_fail(q, RF_RING_READ_AFTER_WRITE);
	if (desc->len > UINT32_MAX - chain->bytes_out - chain->bytes_in)
		return rf_devq_fail(q, RF_RING_CHAIN_BYTES);
	parse = walk_translate(walk, desc);
	if (parse != RF_PARSE_OK)
		return parse;
	walk->in_begun = in;
	if (in) {
		chain->n_in = (uint16_t)(q->n_pieces - chain->first - chain->n_out);
		chain->bytes_in += desc->len;
	} else {
		chain->n_out = (uint16_t)(q->n_pieces - chain->first);
		chain->bytes_out += desc->len;
	}
	return RF_PARSE_OK;
}

const struct iovec *rf_devq_out(const struct rf_devq *q, const struct rf_chain *chain)
{
	return &q->arena[chain->first];
}

const struct iovec *rf_devq_in(const struct rf_devq *q, const struct rf_chain *chain)
{
	return &q->arena[chain->first + chain->n_out];
}

void rf_devq_take(struct rf_devq *q, unsigned k)
{
	assert(k <= q->n);
	if (!k)
		return;
	q->ops->take(q, k);
	q->first += k;
	q->n -= k;
	q->n_held += k;
}

void rf_devq_push(struct rf_devq *q, const struct rf_chain *chain, uint32_t written)
{
	assert(q->ops && q->n_held);
	assert(chain->head < q->config.num && written <= chain->bytes_in);
	q->n_held--;
	q->ops->push(q, chain->head, written);
}

bool rf_devq_publish(struct rf_devq *q)
{
	return q->ops && q->ops->publish(q);
}

bool rf_devq_arm(struct rf_devq *q)
{
	return q->ops && q->reason == RF_RING_NONE && q->ops->arm(q);
}

bool rf_devq_peek(const struct rf_devq *q)
{
	return q->ops && q->reason == RF_RING_NONE && q->ops->peek(q);
}

void rf_devq_disarm(struct rf_devq *q)
{
	if (q->ops)
		q->ops->disarm(q);
}

void rf_devq_forget(struct rf_devq *q)
{
	window_reset(q);
}

void rf_devq_rebase(struct rf_devq *q, void *desc, void *driver, void *device)
{
	assert(q->ops && !q->n);
	q->config.desc = desc;
	q->config.driver = driver;
	q->config.device = device;
	assert(config_is_sound(&q->config));
	q->ops->rebase(q);
}
