/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>

#include "devq_priv.h"

/* Descriptors are prefetched this many chains ahead. */
#define SPLIT_PREFETCH 4

static int split_extent(uint32_t num, struct rf_ring_extent *ret_extent)
{
	if (!rf_is_power_of_2(num) || num > RF_RING_MAX_NUM)
		return -EINVAL;
	*ret_extent = (struct rf_ring_extent){
		.desc_bytes = sizeof(struct vring_desc) * (uint64_t)num,
		.desc_align = VRING_DESC_ALIGN_SIZE,
		.driver_bytes = sizeof(struct vring_avail) + 2 * ((uint64_t)num + 1),
		.driver_align = VRING_AVAIL_ALIGN_SIZE,
		.device_bytes = sizeof(struct vring_used) +
				sizeof(struct vring_used_elem) * (uint64_t)num + 2,
		.device_align = VRING_USED_ALIGN_SIZE,
	};
	return 0;
}

static void split_rebase(struct rf_devq *q)
{
	q->split.desc_ring = q->config.desc;
	q->split.avail_ring = q->config.driver;
	q->split.used_ring = q->config.device;
}

static uint16_t *avail_event(const struct rf_devq *q)
{
	return (uint16_t *)(void *)&q->split.used_ring->ring[q->config.num];
}

static uint16_t *used_event(const struct rf_devq *q)
{
	return &q->split.avail_ring->ring[q->config.num];
}

/* Index of the first buffer that was not parsed. */
static uint16_t split_next(const struct rf_devq *q)
{
	return (uint16_t)(q->split.taken + q->n);
}

static void split_ask(struct rf_devq *q)
{
	if (q->config.event_idx)
		ring_store_u16(avail_event(q), split_next(q));
	else if (q->split.used_flags)
		ring_store_u16(&q->split.used_ring->flags, q->split.used_flags = 0);
}

static void split_start(struct rf_devq *q)
{
	struct rf_devq_split *s = &q->split;

	split_rebase(q);
	s->mask = (uint16_t)(q->config.num - 1);
	s->taken = s->avail = q->config.base;
	s->used = s->published = ring_load_u16(&s->used_ring->idx);
	/* What an earlier device left there could keep the driver from ever kicking us. */
	s->used_flags = 0;
	ring_store_u16(&s->used_ring->flags, 0);
	split_ask(q);
}

/* Chains that the driver made available and that were not parsed. */
static unsigned split_available(struct rf_devq *q, unsigned want)
{
	struct rf_devq_split *s = &q->split;
	uint16_t known = (uint16_t)(s->avail - split_next(q));
	uint16_t avail;

	if (known >= want)
		return want;
	avail = ring_load_acquire_u16(&s->avail_ring->idx);
	/* Together with what was known: an index that goes back is as wrong as one that jumps. */
	if ((uint32_t)(uint16_t)(avail - s->avail) + (uint16_t)(s->avail - s->taken) >
	    q->config.num) {
		(void)rf_devq_fail(q, RF_RING_AVAIL_JUMP);
		return 0;
	}
	s->avail = avail;
	return rf_min_u32(want, (uint16_t)(avail - split_next(q)));
}

static enum rf_parse split_walk_table(struct rf_walk *walk, const struct ring_desc *indirect)
{
	struct rf_devq *q = walk->q;
	unsigned n = indirect->len / sizeof(struct vring_desc);
	unsigned at = 0;

	if (!n || indirect->len % sizeof(struct vring_desc) || n > RF_DEVQ_ARENA)
		return rf_devq_fail(q, RF_RING_INDIRECT_SIZE);
	if (rf_mem_read(q->mem, indirect->addr, q->table, indirect->len) < 0)
		return rf_devq_fail(q, RF_RING_DESC_ADDR);
	for (unsigned met = 0; met < n; met++) {
		struct ring_desc desc = ring_load_desc(&q->table[at]);
		enum rf_parse parse;

		if (desc.flags & VRING_DESC_F_INDIRECT)
			return rf_devq_fail(q, RF_RING_INDIRECT_NESTED);
		parse = rf_walk_add(walk, &desc);
		if (parse != RF_PARSE_OK || !(desc.flags & VRING_DESC_F_NEXT))
			return parse;
		if (desc.next >= n)
			return rf_devq_fail(q, RF_RING_NEXT_RANGE);
		at = desc.next;
	}
	return rf_devq_fail(q, RF_RING_CHAIN_LOOP);
}

static enum rf_parse split_walk_indirect(struct rf_walk *walk, const struct ring_desc *desc)
{
	if (!walk->q->config.indirect)
		return rf_devq_fail(walk->q, RF_RING_INDIRECT_FEATURE);
	if (desc->flags & VRING_DESC_F_NEXT)
		return rf_devq_fail(walk->q, RF_RING_INDIRECT_NEXT);
	/* Its WRITE flag says nothing (virtio 1.2 2.7.5.3.2). */
	return split_walk_table(walk, desc);
}

static enum rf_parse split_walk(struct rf_walk *walk, uint16_t head)
{
	struct rf_devq *q = walk->q;
	uint16_t at = head;

	if (head >= q->config.num)
		return rf_devq_fail(q, RF_RING_HEAD_RANGE);
	for (unsigned met = 0; met < q->config.num; met++) {
		struct ring_desc desc = ring_load_desc(&q->split.desc_ring[at]);
		enum rf_parse parse;

		if (desc.flags & VRING_DESC_F_INDIRECT)
			return split_walk_indirect(walk, &desc);
		parse = rf_walk_add(walk, &desc);
		if (parse != RF_PARSE_OK || !(desc.flags & VRING_DESC_F_NEXT))
			return parse;
		if (desc.next >= q->config.num)
			return rf_devq_fail(q, RF_RING_NEXT_RANGE);
		at = desc.next;
	}
	return rf_devq_fail(q, RF_RING_CHAIN_LOOP);
}

/* Parse the chain at @head into the slot behind the window; false ends the batch. */
static bool split_parse(struct rf_devq *q, uint16_t head)
{
	struct rf_walk walk = { .q = q, .chain = &q->chains[q->first + q->n] };

	*walk.chain = (struct rf_chain){ .head = head, .first = q->n_pieces };
	if (split_walk(&walk, head) != RF_PARSE_OK) {
		q->n_pieces = walk.chain->first;
		return false;
	}
	q->n++;
	return true;
}

static void split_look(struct rf_devq *q, unsigned want)
{
	struct rf_devq_split *s = &q->split;
	unsigned n = split_available(q, want);
	uint16_t next = split_next(q);
	uint16_t heads[RF_DEVQ_WINDOW];

	for (unsigned i = 0; i < n; i++)
		heads[i] = ring_load_u16(&s->avail_ring->ring[(uint16_t)(next + i) & s->mask]);
	for (unsigned i = 0; i < n; i++) {
		if (i + SPLIT_PREFETCH < n)
			__builtin_prefetch(&s->desc_ring[heads[i + SPLIT_PREFETCH] & s->mask]);
		if (!split_parse(q, heads[i]))
			return;
	}
}

static void split_take(struct rf_devq *q, unsigned k)
{
	q->split.taken = (uint16_t)(q->split.taken + k);
}

static void split_push(struct rf_devq *q, uint16_t head, uint32_t written)
{
	struct vring_used_elem *elem = &q->split.used_ring->ring[q->split.used & q->split.mask];

	ring_store_u32(&elem->id, head);
	ring_store_u32(&elem->len, written);
	q->split.used++;
}

static bool split_publish(struct rf_devq *q)
{
	struct rf_devq_split *s = &q->split;
	uint16_t old = s->published;

	if (s->used == old)
		return false;
	ring_store_release_u16(&s->used_ring->idx, s->used);
	s->published = s->used;
	ring_fence_store_load();
	if (!q->notified) {
		q->notified = true;
		return true;
	}
	if (q->config.event_idx)
		return vring_need_event(ring_load_u16(used_event(q)), s->used, old);
	return !(ring_load_u16(&s->avail_ring->flags) & VRING_AVAIL_F_NO_INTERRUPT);
}

static bool split_peek(const struct rf_devq *q)
{
	return ring_load_u16(&q->split.avail_ring->idx) != split_next(q);
}

static bool split_arm(struct rf_devq *q)
{
	split_ask(q);
	ring_fence_store_load();
	return split_peek(q);
}

static void split_disarm(struct rf_devq *q)
{
	/* With an event index nothing is needed: it falls behind by itself. */
	if (!q->config.event_idx && !q->split.used_flags)
		ring_store_u16(&q->split.used_ring->flags,
			       q->split.used_flags = VRING_USED_F_NO_NOTIFY);
}

static uint16_t split_base(const struct rf_devq *q)
{
	return q->split.taken;
}

const struct rf_devq_ops rf_devq_split_ops = {
	.extent = split_extent,
	.start = split_start,
	.look = split_look,
	.take = split_take,
	.push = split_push,
	.publish = split_publish,
	.arm = split_arm,
	.peek = split_peek,
	.disarm = split_disarm,
	.base = split_base,
	.rebase = split_rebase,
};
