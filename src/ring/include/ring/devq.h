/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A virtqueue seen from the device: the half that consumes available buffers.
 *
 * DOC: Theory of operation. The ring is read through a window. rf_devq_look() parses chains that
 * the driver made available, each once, into private copies; they stay parsed until they are taken.
 * rf_devq_take() consumes the first k of them. rf_devq_push() returns a chain with the number of
 * bytes written to it, in any order; rf_devq_publish() makes all pushed chains visible and says
 * whether the driver wants a notification. Chains looked at and not taken are back-pressure: they
 * stay the driver's, and the index that rf_devq_stop() returns is that of the first chain not
 * taken.
 *
 * Every word of the driver is read once into private memory, acquire before the data it guards. A
 * driver that breaks a rule breaks its queue and nothing else: look() returns -EPROTO from then on,
 * rf_devq_broken() tells why, and only a new start heals it.
 *
 * Virtio 1.2 sections: 2.7 (split virtqueues), 2.7.7 and 2.7.10 (notification suppression).
 *
 * Context: everything here is for the owner's thread.
 */
#ifndef RF_RING_DEVQ_H
#define RF_RING_DEVQ_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "ring/layout.h"
#include "ring/mem.h"
#include "ring/reason.h"

struct rf_devq;

/* Chains that can be looked at and not yet taken. */
#define RF_DEVQ_WINDOW 256
/* Pieces that the chains in the window may have together; one chain may fill it alone. */
#define RF_DEVQ_ARENA 4096

/**
 * struct rf_chain - One available buffer, parsed and checked
 * @head:	Name under which it is pushed back. Keeping a copy of this structure and of the
 *		pieces is all it takes to hold a buffer across turns.
 * @n_out:	Device-readable pieces, first in the vector
 * @n_in:	Device-writable pieces, behind them
 * @first:	Index of the first piece in the arena (use rf_devq_out() and rf_devq_in())
 * @bytes_out:	Sum of the readable pieces
 * @bytes_in:	Sum of the writable pieces
 */
struct rf_chain {
	uint16_t head;
	uint16_t n_out;
	uint16_t n_in;
	uint32_t first;
	uint32_t bytes_out;
	uint32_t bytes_in;
};

/**
 * rf_devq_new() - Make a queue that is stopped
 * @mem:	Guest memory; must outlive the queue, and no region may be removed while it runs
 *		without rf_devq_forget() before and rf_devq_rebase() after
 *
 * Return: 0, or -ENOMEM.
 */
int rf_devq_new(struct rf_mem *mem, struct rf_devq **ret_q);

void rf_devq_free(struct rf_devq *q);

/**
 * rf_devq_start() - Begin to serve a ring
 *
 * The used index is read from the ring, and the first publish always notifies: what the driver last
 * saw is not known.
 *
 * Return: 0, or -EINVAL for a size, alignment or layout that is not allowed; the queue is then
 * stopped.
 */
int rf_devq_start(struct rf_devq *q, const struct rf_ring_config *config);

/**
 * rf_devq_stop() - Stop serving a ring
 *
 * Chains in the window are forgotten, they were never taken; chains that were pushed and not yet
 * published are published first (without notification).
 *
 * Return: index of the first available buffer that was not taken.
 */
uint16_t rf_devq_stop(struct rf_devq *q);

/* Does it serve a ring (broken or not)? */
bool rf_devq_running(const struct rf_devq *q);

/**
 * rf_devq_blank() - Does the ring look as if no driver had ever touched it?
 *
 * True while the first descriptor and the head of the driver area are zero: a driver that kicks and
 * yet leaves them so writes into memory that it does not share with us.
 */
bool rf_devq_blank(const struct rf_devq *q);

/* Why the ring was given up; RF_RING_NONE if it was not. */
enum rf_ring_reason rf_devq_broken(const struct rf_devq *q);

/**
 * rf_devq_break() - Give a ring up because of what its buffers held
 */
void rf_devq_break(struct rf_devq *q, enum rf_ring_reason reason);

/**
 * rf_devq_look() - Parse what is available
 * @q:		Queue
 * @want:	Chains wanted in the window, those already in it included; at most RF_DEVQ_WINDOW
 * @ret_chains:	The window's chains, oldest first. They and their pieces stay where they are until
 *		the next call to look(), forget() or stop(); taking does not move them.
 *
 * Return: number of chains in the window (may be more than @want if more were parsed before, and
 * fewer if not so many are available); -EPROTO if the ring is broken and the window is empty
 * (chains parsed before a bad one are still returned first); -ESHUTDOWN if the queue is stopped.
 */
int rf_devq_look(struct rf_devq *q, unsigned want, const struct rf_chain **ret_chains);

/* The device-readable pieces of a chain in the window: chain->n_out of them. */
const struct iovec *rf_devq_out(const struct rf_devq *q, const struct rf_chain *chain);

/* The device-writable pieces of a chain in the window: chain->n_in of them. */
const struct iovec *rf_devq_in(const struct rf_devq *q, const struct rf_chain *chain);

/**
 * rf_devq_take() - Consume the first chains of the window
 * @k:	Number, not more than look() returned
 */
void rf_devq_take(struct rf_devq *q, unsigned k);

/**
 * rf_devq_push() - Return a taken chain
 * @q:		Queue
 * @chain:	The chain or a copy of it
 * @written:	Bytes written, counted from the first writable byte
 *
 * Nothing is visible to the driver before rf_devq_publish().
 */
void rf_devq_push(struct rf_devq *q, const struct rf_chain *chain, uint32_t written);

/**
 * rf_devq_publish() - Make pushed chains visible
 * Return: true if the driver is to be notified (virtio 1.2 2.7.7.2: event index or flag).
 */
bool rf_devq_publish(struct rf_devq *q);

/**
 * rf_devq_arm() - Ask the driver to notify when it makes buffers available
 *
 * Contains the full barrier between asking and looking again.
 *
 * Return: true if buffers beyond those in the window are there already: look again, do not sleep.
 */
bool rf_devq_arm(struct rf_devq *q);

/* Are there buffers beyond those in the window? One load, to be called often. */
bool rf_devq_peek(const struct rf_devq *q);

/* Ask the driver not to notify: we are looking anyway. */
void rf_devq_disarm(struct rf_devq *q);

/**
 * rf_devq_forget() - Drop parsed chains that were not taken; they will be parsed again
 */
void rf_devq_forget(struct rf_devq *q);

/**
 * rf_devq_rebase() - The ring lies elsewhere in our address space now
 *
 * For a memory table that is replaced while the ring runs (vhost-user SET_MEM_TABLE). The window
 * must have been forgotten, and the addresses be aligned as rf_ring_extent_get() says: a front end
 * that moves a ring to an odd place is the caller's to refuse.
 */
void rf_devq_rebase(struct rf_devq *q, void *desc, void *driver, void *device);

#endif
