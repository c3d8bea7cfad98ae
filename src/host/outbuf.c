/* SPDX-License-Identifier: BSD-3-Clause */
#include "outbuf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/iov.h"
#include "base/util.h"

#define FIRST_BYTES 4096u

static int grow(struct rf_outbuf *out, size_t need)
{
	size_t size = rf_max_size(out->size, FIRST_BYTES);
	struct iovec pieces[2];
	uint8_t *data;

	if (need <= out->size)
		return 0;
	while (size < need)
		size *= 2;
	data = malloc(size);
	if (!data)
		return -ENOMEM;
	rf_iov_copy_out(pieces, rf_outbuf_pieces(out, pieces), 0, data, out->used);
	free(out->data);
	out->data = data;
	out->size = size;
	out->first = 0;
	return 0;
}

ssize_t rf_outbuf_append(struct rf_outbuf *out, const struct iovec *iov, unsigned n, size_t offset)
{
	size_t len = rf_iov_bytes(iov, n) - offset;
	size_t end, until_wrap;

	if (len == 0)
		return 0;
	if (grow(out, out->used + len) < 0)
		return -ENOMEM;
	end = (out->first + out->used) & (out->size - 1);
	until_wrap = rf_min_size(len, out->size - end);
	rf_iov_copy_out(iov, n, offset, out->data + end, until_wrap);
	rf_iov_copy_out(iov, n, offset + until_wrap, out->data, len - until_wrap);
	out->used += len;
	return (ssize_t)len;
}

unsigned rf_outbuf_pieces(const struct rf_outbuf *out, struct iovec ret_iov[2])
{
	size_t until_wrap = rf_min_size(out->used, out->size - out->first);
	unsigned n = 0;

	if (until_wrap)
		ret_iov[n++] = (struct iovec){ out->data + out->first, until_wrap };
	if (out->used > until_wrap)
		ret_iov[n++] = (struct iovec){ out->data, out->used - until_wrap };
	return n;
}

void rf_outbuf_drop(struct rf_outbuf *out, size_t len)
{
	out->used -= len;
	if (out->used == 0)
		rf_outbuf_clear(out);
	else
		out->first = (out->first + len) & (out->size - 1);
}

void rf_outbuf_clear(struct rf_outbuf *out)
{
	free(out->data);
	*out = (struct rf_outbuf){ 0 };
}
