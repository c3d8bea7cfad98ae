/* SPDX-License-Identifier: BSD-3-Clause */
#include "rx.h"

#include <errno.h>
#include <stdlib.h>

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
		chunk->room = mem->rx_payload;
		TAILQ_INSERT_TAIL(&rx->free, chunk, link);
	}
	return 0;
}

int rf_rx_init(struct rf_rx *rx, const struct rf_guest_mem *mem, bool event_idx)
{
	const struct rf_ring_config ring = rf_guest_mem_ring(mem, RF_GUEST_RX, event_idx);
	int r;

	*rx = (struct rf_rx){ .mem = mem };
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
	rf_drvq_publish(rx->q);
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
	return rf_drvq_get(rx->q, ret_used);
}

static void collect_returned(struct rf_rx *rx)
{
	pthread_mutex_lock(&rx->mutex);
	TAILQ_CONCAT(&rx->free, &rx->returned, link);
	pthread_mutex_unlock(&rx->mutex);
}

bool rf_rx_can_hold(struct rf_rx *rx)
{
	if (TAILQ_EMPTY(&rx->free))
		collect_returned(rx);
	return !TAILQ_EMPTY(&rx->free);
}

void rf_rx_refill(struct rf_rx *rx, struct rf_chunk *chunk)
{
	struct rf_drvq_piece piece = { .len = RF_VSOCK_HDR_BYTES + rx->mem->rx_payload };

	if (!chunk) {
		chunk = TAILQ_FIRST(&rx->free);
		TAILQ_REMOVE(&rx->free, chunk, link);
	}
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
