/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The inside of a device-side virtqueue: what all ring layouts share (devq.c: window, arena,
 * reason) and what one layout adds (devq_split.c). A layout is one ops table, listed in devq.c.
 */
#ifndef RF_RING_DEVQ_PRIV_H
#define RF_RING_DEVQ_PRIV_H

#include <linux/virtio_ring.h>

#include "ring/devq.h"

#include "mem_priv.h"
#include "ring_word.h"

/* Twice the window: what remains in it moves to the front once in a window's worth of chains. */
#define RF_DEVQ_CHAIN_SLOTS (2 * RF_DEVQ_WINDOW)

/**
 * struct rf_devq_ops - What differs between ring layouts
 * @extent:	As rf_ring_extent_get(), which see
 * @start:	Take q->config over; it is checked
 * @look:	Append up to so many chains to the window; break the queue at a bad one
 * @take:	So many chains at the front of the window are consumed
 * @push:	Write a used element
 * @publish:	As rf_devq_publish(), with elements pushed since the last one
 * @arm:	As rf_devq_arm()
 * @peek:	As rf_devq_peek()
 * @disarm:	As rf_devq_disarm()
 * @base:	Index of the first buffer not taken
 * @rebase:	Take the addresses in q->config over
 */
struct rf_devq_ops {
	int (*extent)(uint32_t num, struct rf_ring_extent *ret_extent);
	void (*start)(struct rf_devq *q);
	void (*look)(struct rf_devq *q, unsigned n);
	void (*take)(struct rf_devq *q, unsigned k);
	void (*push)(struct rf_devq *q, uint16_t head, uint32_t written);
	bool (*publish)(struct rf_devq *q);
	bool (*arm)(struct rf_devq *q);
	bool (*peek)(const struct rf_devq *q);
	void (*disarm)(struct rf_devq *q);
	uint16_t (*base)(const struct rf_devq *q);
	void (*rebase)(struct rf_devq *q);
};

extern const struct rf_devq_ops rf_devq_split_ops;

/**
 * struct rf_devq_split - State of a split ring; indices run freely and are masked on access
 * @mask:	Ring size - 1
 * @taken:	Index of the first available buffer that was not taken
 * @avail:	The driver's index as last read
 * @used:	Our index, pushed elements included
 * @published:	Our index as the driver sees it
 * @used_flags:	What we wrote to used->flags
 */
struct rf_devq_split {
	struct vring_desc *desc_ring;
	struct vring_avail *avail_ring;
	struct vring_used *used_ring;
	uint16_t mask;
	uint16_t taken;
	uint16_t avail;
	uint16_t used;
	uint16_t published;
	uint16_t used_flags;
};

/**
 * struct rf_devq - A queue
 * @ops:	Its layout; NULL while stopped
 * @base:	While stopped: what rf_devq_stop() returned
 * @first:	The window begins at this chain slot
 * @n:		Chains in the window
 * @n_pieces:	End of what is used in the arena; the chains lie there in order
 * @n_held:	Chains taken and not pushed
 * @notified:	The driver was notified since the start, so its event index can be trusted
 * @last_hit:	The region that the last address lay in
 * @table:	Private copy of an indirect table
 */
struct rf_devq {
	const struct rf_devq_ops *ops;
	struct rf_mem *mem;
	struct rf_ring_config config;
	enum rf_ring_reason reason;
	uint16_t base;
	unsigned first, n;
	unsigned n_pieces;
	unsigned n_held;
	bool notified;
	struct rf_mem_span last_hit;
	struct rf_devq_split split;
	struct rf_chain chains[RF_DEVQ_CHAIN_SLOTS];
	struct iovec arena[RF_DEVQ_ARENA];
	struct vring_desc table[RF_DEVQ_ARENA];
};

/* Outcome of parsing one chain. */
enum rf_parse {
	RF_PARSE_OK,
	/* It does not fit beside the others in the window: later. */
	RF_PARSE_LATER,
	/* The queue is broken. */
	RF_PARSE_BAD,
};

/**
 * struct rf_walk - A chain that is being parsed into the slot behind the window
 * @chain:	The slot
 * @in_begun:	A device-writable descriptor was met, perhaps an empty one
 */
struct rf_walk {
	struct rf_devq *q;
	struct rf_chain *chain;
	bool in_begun;
};

/**
 * rf_walk_add() - Check one buffer descriptor and append its pieces to the chain
 */
enum rf_parse rf_walk_add(struct rf_walk *walk, const struct ring_desc *desc);

/**
 * rf_devq_fail() - Break the queue from within a walk
 * Return: RF_PARSE_BAD.
 */
enum rf_parse RF_COLD rf_devq_fail(struct rf_devq *q, enum rf_ring_reason reason);

#endif
