/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/iov.h"

#include <stdbool.h>
#include <string.h>

#include "base/util.h"

size_t rf_iov_bytes(const struct iovec *iov, unsigned n)
{
	size_t sum = 0;

	for (unsigned i = 0; i < n; i++)
		sum += iov[i].iov_len;
	return sum;
}

/* A walk over the pieces of a slice. */
struct cursor {
	const struct iovec *iov;
	unsigned n;
	size_t offset;
	size_t len;
};

static bool next_piece(struct cursor *c, struct iovec *ret_piece)
{
	while (c->n && c->len) {
		const struct iovec *v = c->iov++;

		c->n--;
		if (c->offset >= v->iov_len) {
			c->offset -= v->iov_len;
			continue;
		}
		ret_piece->iov_base = (char *)v->iov_base + c->offset;
		ret_piece->iov_len = rf_min_size(v->iov_len - c->offset, c->len);
		c->offset = 0;
		c->len -= ret_piece->iov_len;
		return true;
	}
	return false;
}

/* NOLINTNEXTLINE(readability-function-size): each vector is two parameters */
unsigned rf_iov_slice(const struct iovec *iov, unsigned n, size_t offset, size_t len,
		      struct iovec *out, unsigned max_out, size_t *ret_len)
{
	struct cursor c = { iov, n, offset, len };
	unsigned stored = 0;
	size_t covered = 0;

	while (stored < max_out && next_piece(&c, &out[stored]))
		covered += out[stored++].iov_len;
	if (ret_len)
		*ret_len = covered;
	return stored;
}

size_t rf_iov_copy_out(const struct iovec *iov, unsigned n, size_t offset, void *buf, size_t len)
{
	struct cursor c = { iov, n, offset, len };
	struct iovec piece;
	size_t done = 0;

	while (next_piece(&c, &piece)) {
		memcpy((char *)buf + done, piece.iov_base, piece.iov_len);
		done += piece.iov_len;
	}
	return done;
}

size_t rf_iov_copy_in(const struct iovec *iov, unsigned n, size_t offset, const void *buf,
		      size_t len)
{
	struct cursor c = { iov, n, offset, len };
	struct iovec piece;
	size_t done = 0;

	while (next_piece(&c, &piece)) {
		memcpy(piece.iov_base, (const char *)buf + done, piece.iov_len);
		done += piece.iov_len;
	}
	return done;
}
