/* SPDX-License-Identifier: BSD-3-Clause */
#include "rx.h"

#include <errno.h>
#include <stdlib.h>

/* Buffers that give pages back between one rf_rx_publish() and the next: a system call each. */
#define TRIMS 8u

/* Least memory of a chunk of our own: small packets then share one. */
#define CHUNK_MIN 4096u

static int chunks_init(struct rf_rx *rx)
{
	const struct rf_guest_mem *mem = rx->mem;

	rx->chunks = calloc(mem->n_rx, sizeof(*rx->chunks));
	if (!rx->chunks)
		return -ENOMEM;
	for (uint32_t i = 0; i < mem->n_rx; i++) {
		struct rf_chunk *chunk = &rx->chunks[i];
		uint8_t *at = mem->base + mem->rx + i * mem->rx_stride;

		chunk->rx = rx;
		chunk->wire = at + RF_GUEST_HDR_AT;
		chunk->data = at + RF_GUEST_PAYLOAD_AT;
		TAILQ_INSERT_TAIL(&rx->free, chunk, link);
	}
	return 0;
}

int rf_rx_init(struct rf_rx *rx, const struct rf_guest_mem *mem, int rule, bool event_idx,
	       struct rf_guest_counters *counters)
{
	const struct rf_ring_config ring = rf_guest_mem_ring(mem, RF_GUEST_RX, event_idx);
	int r;

	*rx = (struct rf_rx){ .mem = mem, .counters = counters, .trims = TRIMS };
	rf_rx_size_init(&rx->size, rule, mem->rx_payload);
	TAILQ_INIT(&rx->free);
	TAILQ_INIT(&rx->returned);
	pthread_mutex_init(&rx->mutex, NULL);
	r = chunks_init(rx);
	if (r == 0)
		r = rf_drvq_new(&ring, &rx->q);
	if (r < 0) {
		rf_rx_fini(rx);
		return r;
	}
	for (uint32_t i = 0; i < mem->num[RF_GUEST_RX]; i++)
		rf_rx_refill(rx, NULL);
	rf_rx_publish(rx);
	rf_drvq_arm(rx->q);
	return 0;
}

void rf_rx_fini(struct rf_rx *rx)
{
	rf_drvq_free(rx->q);
	free(rx->chunks);
	pthread_mutex_destroy(&rx->mutex);
	*rx = (struct rf_rx){ 0 };
}

struct rf_chunk *rf_rx_get(struct rf_rx *rx, uint32_t *ret_used)
{
	struct rf_chunk *chunk = rf_drvq_get(rx->q, ret_used);
	uint32_t payload;

	if (!chunk)
		return NULL;
	payload = *ret_used > RF_VSOCK_HDR_BYTES ? *ret_used - RF_VSOCK_HDR_BYTES : 0;
	if (payload > chunk->touched)
		chunk->touched = payload;
	rf_rx_size_came(&rx->size, payload, chunk->room);
	rf_count(&rx->counters->rx_filled, payload == chunk->room);
	return chunk;
}

/* Where the pages end that the first @payload bytes of a buffer are in. */
static size_t pages_end(uint32_t payload)
{
	return rf_align_up(RF_GUEST_PAYLOAD_AT + payload, RF_GUEST_PAGE);
}

/*
 * Give back the pages of a free buffer behind its first @room bytes. A size that goes up and down
 * costs nothing: they stay unless it becomes the smallest, or far less than what they hold.
 */
static void trim(struct rf_rx *rx, struct rf_chunk *chunk, uint32_t room)
{
	size_t from = pages_end(room), to = pages_end(chunk->touched);

	if (from >= to || !rx->trims || (room != rx->size.page && chunk->touched / 16 <= room))
		return;
	rx->trims--;
	if (rf_guest_mem_give_back(rx->mem, chunk->data - RF_GUEST_PAYLOAD_AT + from, to - from) <
	    0)
		return;
	chunk->touched = room;
	rf_count(&rx->counters->rx_pages_given_back, (to - from) / RF_GUEST_PAGE);
	/* There may be more such ones where nobody takes them. */
	rx->sweep = rx->mem->n_rx;
}

static void collect_returned(struct rf_rx *rx)
{
	pthread_mutex_lock(&rx->mutex);
	TAILQ_CONCAT(&rx->free, &rx->returned, link);
	pthread_mutex_unlock(&rx->mutex);
}

/* Look at the free buffers that were used least recently, each once. */
static void sweep(struct rf_rx *rx)
{
	uint32_t room = rf_rx_size_next(&rx->size);

	collect_returned(rx);
	for (unsigned n = 0; n < TRIMS && rx->trims && rx->sweep; n++) {
		struct rf_chunk *chunk = TAILQ_LAST(&rx->free, rf_chunks);

		rx->sweep--;
		if (!chunk)
			break;
		TAILQ_REMOVE(&rx->free, chunk, link);
		TAILQ_INSERT_HEAD(&rx->free, chunk, link);
		trim(rx, chunk, room);
	}
}

bool rf_rx_publish(struct rf_rx *rx)
{
	if (rx->sweep)
		sweep(rx);
	rx->trims = TRIMS;
	return rf_drvq_publish(rx->q);
}

bool rf_rx_can_hold(struct rf_rx *rx)
{
	if (TAILQ_EMPTY(&rx->free))
		collect_returned(rx);
	return !TAILQ_EMPTY(&rx->free);
}

static void count_posted(struct rf_rx *rx, uint32_t room)
{
	struct rf_guest_counters *counters = rx->counters;

	if (room == rx->size.page)
		rf_count(&counters->rx_posted_page, 1);
	else if (room == rx->size.largest)
		rf_count(&counters->rx_posted_largest, 1);
	else
		rf_count(&counters->rx_posted_middle, 1);
}

void rf_rx_refill(struct rf_rx *rx, struct rf_chunk *chunk)
{
	uint32_t room = rf_rx_size_next(&rx->size);
	struct rf_drvq_piece piece = { .len = RF_VSOCK_HDR_BYTES + room };

	if (!chunk) {
		chunk = TAILQ_FIRST(&rx->free);
		TAILQ_REMOVE(&rx->free, chunk, link);
	}
	/* Packets may have been joined to the one that it held. */
	if (chunk->end > chunk->touched)
		chunk->touched = chunk->end;
	if (chunk->touched > room)
		trim(rx, chunk, room);
	chunk->begin = chunk->end = 0;
	chunk->room = room;
	count_posted(rx, room);
	piece.gpa = rf_guest_mem_gpa(rx->mem, chunk->wire);
	/* Fails only on a broken ring, which is given up with all its buffers. */
	(void)rf_drvq_add(rx->q, &piece, 0, 1, chunk);
}

struct rf_chunk *rf_chunk_new(size_t bytes)
{
	size_t room = rf_max_size(bytes, CHUNK_MIN);
	struct rf_chunk *chunk = malloc(sizeof(*chunk) + room);

	if (!chunk)
		return NULL;
	*chunk = (struct rf_chunk){ .data = (uint8_t *)(chunk + 1), .room = (uint32_t)room };
	return chunk;
}

/* Receive buffers go back in one section: all of a socket's chunks are of the same ring. */
void rf_chunks_free(struct rf_chunks *chunks)
{
	struct rf_chunks buffers = TAILQ_HEAD_INITIALIZER(buffers);
	struct rf_rx *rx = NULL;
	struct rf_chunk *chunk;

	while ((chunk = TAILQ_FIRST(chunks))) {
		TAILQ_REMOVE(chunks, chunk, link);
		if (!chunk->rx) {
			free(chunk);
			continue;
		}
		rx = chunk->rx;
		TAILQ_INSERT_TAIL(&buffers, chunk, link);
	}
	if (!rx)
		return;
	/* In front: those used last are posted first, while they are in the cache. */
	pthread_mutex_lock(&rx->mutex);
	TAILQ_CONCAT(&buffers, &rx->returned, link);
	TAILQ_CONCAT(&rx->returned, &buffers, link);
	pthread_mutex_unlock(&rx->mutex);
}
