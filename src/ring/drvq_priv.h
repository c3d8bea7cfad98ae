/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The inside of a driver-side virtqueue: the private records that all ring layouts share (drvq.c)
 * and what one layout adds (drvq_split.c).
 */
#ifndef RF_RING_DRVQ_PRIV_H
#define RF_RING_DRVQ_PRIV_H

#include "ring/drvq.h"

#include "ring_word.h"

/**
 * struct rf_drvq_ops - What differs between ring layouts
 *
 * Each does what the function of its name in ring/drvq.h says; the queue is not broken.
 * @peek:	Also false if the queue broke
 * @get:	Checked used id in @ret_id; false if there is none or the queue broke
 */
struct rf_drvq_ops {
	void (*init)(struct rf_drvq *q, void *desc, void *driver, void *device);
	void (*add)(struct rf_drvq *q, uint16_t head, const struct rf_drvq_piece *pieces,
		    unsigned n_out, unsigned n_in);
	bool (*publish)(struct rf_drvq *q);
	bool (*peek)(struct rf_drvq *q);
	bool (*get)(struct rf_drvq *q, uint16_t *ret_id, uint32_t *ret_len);
	bool (*arm_after)(struct rf_drvq *q, unsigned n);
	void (*disarm)(struct rf_drvq *q);
	unsigned (*unused)(const struct rf_drvq *q);
};

extern const struct rf_drvq_ops rf_drvq_split_ops;

/**
 * struct rf_drvq_slot - Record of one descriptor, and of the buffer that begins with it
 * @token:	The buffer's; NULL if none begins here
 * @batch:	Publication that the buffer belongs to
 * @bytes_in:	What the device may write to the buffer
 * @n:		Descriptors of the buffer
 * @last:	Its last descriptor
 * @next:	Next descriptor of the buffer, or of the free list
 */
struct rf_drvq_slot {
	void *token;
	uint64_t batch;
	uint32_t bytes_in;
	uint16_t n;
	uint16_t last;
	uint16_t next;
};

/**
 * struct rf_drvq_split - State of a split ring; indices run freely and are masked on access
 * @added:	Our index, buffers included that were not published
 * @published:	Our index as the device sees it
 * @taken:	Index of the first used element that was not taken
 * @used:	The device's index as last read
 * @avail_flags: What we wrote to avail->flags
 */
struct rf_drvq_split {
	struct vring_desc *desc_ring;
	struct vring_avail *avail_ring;
	struct vring_used *used_ring;
	uint16_t mask;
	uint16_t added;
	uint16_t published;
	uint16_t taken;
	uint16_t used;
	uint16_t avail_flags;
};

/**
 * struct rf_drvq - A queue
 * @any_len:	See rf_drvq_allow_any_len()
 * @batch:	Number of the next publication
 * @free_head:	First free descriptor, if @n_free
 * @n_outstanding: Buffers added and not taken back
 * @n_published: Those of them that the device may know
 */
struct rf_drvq {
	const struct rf_drvq_ops *ops;
	uint32_t num;
	bool event_idx;
	bool any_len;
	enum rf_ring_reason reason;
	uint64_t batch;
	uint16_t free_head;
	unsigned n_free;
	unsigned n_outstanding;
	unsigned n_published;
	struct rf_drvq_split split;
	struct rf_drvq_slot slots[];
};

/**
 * rf_drvq_fail() - Break the queue
 * Return: false.
 */
bool RF_COLD rf_drvq_fail(struct rf_drvq *q, enum rf_ring_reason reason);

#endif
