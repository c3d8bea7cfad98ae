/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The receive ring and its buffers.
 *
 * DOC: Theory of operation. The ring is always full: a buffer that the back end has used stays with
 * a socket, payload and all, only if a free one can be posted in its place (rf_rx_can_hold()). Else
 * its payload is copied to memory of the socket's own, which the connection's window bounds. So
 * a reader that does not read costs memory, and never another connection's packets.
 *
 * How much of a buffer is posted is rx_size.h's to say. When that becomes less, the pages above it
 * that were written to are given back: of a buffer that is posted again, and of those that lie
 * free; some at a time, and never of one that the back end or a reader has.
 *
 * Context: the guest's thread, except rf_chunks_free().
 */
#ifndef RF_GUEST_RX_H
#define RF_GUEST_RX_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "counters.h"
#include "memory.h"
#include "ring/drvq.h"
#include "rx_size.h"

struct rf_rx;

/**
 * struct rf_chunk - Received bytes: a receive buffer, or memory from malloc()
 * @rx:		Whose buffer it is; NULL if it is from malloc()
 * @wire:	The packet's header (receive buffers only)
 * @data:	Memory for @room bytes: of a receive buffer, what was posted of it
 * @begin, @end: The bytes in it that were not read yet
 * @touched:	Bytes that were written to since pages were given back (receive buffers only)
 */
struct rf_chunk {
	TAILQ_ENTRY(rf_chunk) link;
	struct rf_rx *rx;
	uint8_t *wire;
	uint8_t *data;
	uint32_t room, begin, end, touched;
};

TAILQ_HEAD(rf_chunks, rf_chunk);

/**
 * struct rf_rx - The receive ring
 * @q:		Ring
 * @size:	How large buffers are to be
 * @trims:	Buffers that may give pages back before the next rf_rx_publish()
 * @sweep:	Free buffers that are to be looked at for pages to give back
 * @chunks:	All receive buffers
 * @free:	Free ones, the thread's
 * @mutex:	Protects @returned
 * @returned:	Free ones, given back by readers
 */
struct rf_rx {
	const struct rf_guest_mem *mem;
	struct rf_guest_counters *counters;
	struct rf_drvq *q;
	struct rf_rx_size size;
	unsigned trims;
	uint32_t sweep;
	struct rf_chunk *chunks;
	struct rf_chunks free;
	pthread_mutex_t mutex;
	struct rf_chunks returned;
};

/**
 * rf_rx_init() - Make the receive ring of an attachment, filled and published
 * @rule:	RF_GUEST_RX_BUF_*
 * Return: 0, or -errno; nothing is left then.
 */
int rf_rx_init(struct rf_rx *rx, const struct rf_guest_mem *mem, int rule, bool event_idx,
	       struct rf_guest_counters *counters);

/* A zero-initialised ring may be given. */
void rf_rx_fini(struct rf_rx *rx);

/**
 * rf_rx_get() - Take a used buffer
 * @ret_used:	Bytes the back end says it wrote, header included; not more than there is room for
 * Return: the buffer, or NULL.
 */
struct rf_chunk *rf_rx_get(struct rf_rx *rx, uint32_t *ret_used);

/* May a socket keep the buffer that was taken? */
bool rf_rx_can_hold(struct rf_rx *rx);

/**
 * rf_rx_refill() - Post a buffer for the one that was taken; not published
 * @chunk:	That one, or NULL if a socket keeps it
 */
void rf_rx_refill(struct rf_rx *rx, struct rf_chunk *chunk);

/* Publish what was posted. Return: true if the back end is to be kicked. */
bool rf_rx_publish(struct rf_rx *rx);

/* Memory of one's own for at least @bytes. Return: the chunk, or NULL when out of memory. */
struct rf_chunk *rf_chunk_new(size_t bytes);

/**
 * rf_chunks_free() - Give chunks back to where they come from; the list is empty then
 * Context: any thread that keeps their receive ring alive.
 */
void rf_chunks_free(struct rf_chunks *chunks);

#endif
