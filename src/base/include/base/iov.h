/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Vectors of memory pieces.
 *
 * The copies here load and store the pieces with plain memcpy(): for memory of a peer that may
 * shrink under us they are safe only while ring/mem.h guards the mapping (SIGBUS).
 */
#ifndef RF_BASE_IOV_H
#define RF_BASE_IOV_H

#include <stddef.h>
#include <sys/uio.h>

/* As many pieces as one system call takes (IOV_MAX on Linux). */
#define RF_IOV_MAX 1024

/**
 * rf_iov_bytes() - Sum of the lengths
 */
size_t rf_iov_bytes(const struct iovec *iov, unsigned n);

/**
 * rf_iov_slice() - The part of a vector that starts at @offset and is at most @len bytes long
 * @iov:	Source pieces
 * @n:		Their number
 * @offset:	Bytes to leave out at the front
 * @len:	Bytes wanted after that
 * @out:	Where the pieces of the slice go
 * @max_out:	Room in @out
 * @ret_len:	Bytes the slice covers: less than @len if @iov ends or @out is full; may be NULL
 *
 * Pieces of length zero are left out.
 * Return: number of pieces stored.
 */
unsigned rf_iov_slice(const struct iovec *iov, unsigned n, size_t offset, size_t len,
		      struct iovec *out, unsigned max_out, size_t *ret_len);

/**
 * rf_iov_copy_out() - Copy from a vector into a buffer
 * @iov:	Source pieces
 * @n:		Their number
 * @offset:	Where in @iov to begin, in bytes
 * @buf:	Destination
 * @len:	Bytes wanted
 *
 * Return: bytes copied, less than @len only if @iov ends.
 */
size_t rf_iov_copy_out(const struct iovec *iov, unsigned n, size_t offset, void *buf, size_t len);

/**
 * rf_iov_copy_in() - Copy from a buffer into a vector
 * Return: bytes copied, less than @len only if @iov ends.
 */
size_t rf_iov_copy_in(const struct iovec *iov, unsigned n, size_t offset, const void *buf,
		      size_t len);

#endif
