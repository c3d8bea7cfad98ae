/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bytes that a host program has not taken yet: a ring that grows up to a limit and vanishes when
 * empty.
 */
#ifndef RF_HOST_OUTBUF_H
#define RF_HOST_OUTBUF_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/**
 * struct rf_outbuf - Buffered bytes; zero-initialised is empty
 * @data:	Ring of @size bytes, NULL while empty
 * @size:	Its size, a power of two
 * @first:	Offset of the oldest byte
 * @used:	Bytes held
 */
struct rf_outbuf {
	uint8_t *data;
	size_t size;
	size_t first;
	size_t used;
};

/**
 * rf_outbuf_append() - Copy the part of a vector that starts at @offset to the end
 * Return: bytes copied, or -ENOMEM (nothing was copied).
 */
ssize_t rf_outbuf_append(struct rf_outbuf *out, const struct iovec *iov, unsigned n, size_t offset);

/* The bytes held, as at most two pieces. Return: number of pieces. */
unsigned rf_outbuf_pieces(const struct rf_outbuf *out, struct iovec ret_iov[2]);

/* The oldest @len bytes were taken; memory is freed when none is left. */
void rf_outbuf_drop(struct rf_outbuf *out, size_t len);

/* Drop all. */
void rf_outbuf_clear(struct rf_outbuf *out);

#endif
