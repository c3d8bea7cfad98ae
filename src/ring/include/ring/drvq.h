/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A virtqueue seen from the driver: the half that makes buffers available.
 *
 * The device on the other side is not trusted: what it writes into the used ring is checked against
 * private records, and nothing that stands in shared memory is ever read back (descriptor links are
 * kept privately). A device that breaks a rule breaks the queue (rf_drvq_broken()).
 *
 * Context: one thread at a time; the owner serialises (guest/, "publishing").
 */
#ifndef RF_RING_DRVQ_H
#define RF_RING_DRVQ_H

#include <stdbool.h>
#include <stdint.h>

#include "ring/layout.h"
#include "ring/mem.h"
#include "ring/reason.h"

struct rf_drvq;

/**
 * struct rf_drvq_piece - One piece of a buffer
 * @gpa:	Guest-physical address
 * @len:	Bytes
 */
struct rf_drvq_piece {
	struct rf_gpa gpa;
	uint32_t len;
};

/**
 * rf_drvq_new() - Make a queue on areas in shared memory, which are set to their initial state
 * @config:	Ring; what is the device side's is not looked at
 * @ret_q:	The queue
 *
 * Return: 0, -EINVAL for a size, alignment or layout that is not allowed, or -ENOMEM.
 */
int rf_drvq_new(const struct rf_ring_config *config, struct rf_drvq **ret_q);

void rf_drvq_free(struct rf_drvq *q);

/**
 * rf_drvq_allow_any_len() - Let the device say it wrote more than it could
 *
 * Such a length then counts as that of the writable pieces, instead of breaking the queue. For
 * devices of good faith that are known to say so (Linux before 49d8c5ffad07, of transmit buffers).
 */
void rf_drvq_allow_any_len(struct rf_drvq *q);

/**
 * rf_drvq_add() - Put a buffer onto the ring, not yet visible
 * @q:		Queue
 * @pieces:	@n_out pieces that the device reads, then @n_in that it writes
 * @n_out:	Number of readable pieces
 * @n_in:	Number of writable pieces; at least one piece in all
 * @token:	The caller's name for the buffer, not NULL; comes back from rf_drvq_get()
 *
 * Return: 0, -ENOSPC if the ring has no room for it, -EPROTO if the queue is broken.
 */
int rf_drvq_add(struct rf_drvq *q, const struct rf_drvq_piece *pieces, unsigned n_out,
		unsigned n_in, void *token);

/**
 * rf_drvq_publish() - Make added buffers visible to the device
 * Return: true if the device is to be kicked.
 */
bool rf_drvq_publish(struct rf_drvq *q);

/**
 * rf_drvq_get() - Take back a buffer that the device has used
 * @q:		Queue
 * @ret_len:	Bytes the device says it wrote, never more than the writable pieces
 *
 * Return: the token, or NULL if none is there or the queue is broken.
 */
void *rf_drvq_get(struct rf_drvq *q, uint32_t *ret_len);

/**
 * rf_drvq_arm() - Ask the device to notify when it has used more buffers
 * Return: true if there are some already: take them, do not sleep.
 */
bool rf_drvq_arm(struct rf_drvq *q);

/**
 * rf_drvq_arm_after() - Ask the device to notify once it has used this many more buffers
 * @n:	Buffers, at least 1; without event index as rf_drvq_arm()
 * Return: true if so many are there already.
 */
bool rf_drvq_arm_after(struct rf_drvq *q, unsigned n);

/**
 * rf_drvq_peek() - Has the device used a buffer that was not taken back?
 *
 * Cheap: a load of one shared word. Nothing is taken.
 */
bool rf_drvq_peek(struct rf_drvq *q);

/*
 * Ask the device not to notify. One that is about to may still do so; with event index so may one
 * that has used 32,768 buffers since.
 */
void rf_drvq_disarm(struct rf_drvq *q);

/* Buffers the device has. */
unsigned rf_drvq_outstanding(const struct rf_drvq *q);

/**
 * rf_drvq_unused() - Buffers that were published and that the device has not used yet
 *
 * A hint, as both indices move and nothing of them is checked. Context: any thread.
 */
unsigned rf_drvq_unused(const struct rf_drvq *q);

enum rf_ring_reason rf_drvq_broken(const struct rf_drvq *q);

#endif
