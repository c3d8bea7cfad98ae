/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "back_end.h"
#include "embed.h"

/* What is copied at once and then compared: it is still in the second-level cache. */
#define PIECE_BYTES (64u << 10)

static bool stopping(const struct rf_bench_embed *embed)
{
	return atomic_load_explicit(&embed->team->shared->stop, memory_order_relaxed);
}

static void count(_Atomic uint64_t *counter, uint64_t value)
{
	atomic_store_explicit(counter, value, memory_order_relaxed);
}

/* A connection begins with its stream's number: it is known when all of it is there. */
static size_t take_greeting(struct rf_bench_embed_stream *stream, const struct iovec *iov, int n)
{
	size_t left = sizeof(stream->greeting) - stream->greeted;
	size_t len = rf_host_copy_out(iov, n, 0, (char *)&stream->greeting + stream->greeted, left);

	stream->greeted += (unsigned)len;
	if (stream->greeted == sizeof(stream->greeting) &&
	    stream->greeting >= stream->embed->row->streams)
		rf_bench_team_fail(stream->embed->team, 0, "a connection's number");
	return len;
}

static ssize_t take(void *ctx, struct rf_host_conn *conn RF_UNUSED, const struct iovec *iov, int n)
{
	struct rf_bench_embed_stream *stream = ctx;
	struct rf_bench_embed *embed = stream->embed;
	size_t at = 0, len;
	uint64_t start;

	if (stream->greeted < sizeof(stream->greeting))
		at = take_greeting(stream, iov, n);
	if (stream->greeted < sizeof(stream->greeting))
		return (ssize_t)at;
	start = rf_bench_payload_start(stream->greeting);
	while ((len = rf_host_copy_out(iov, n, at, embed->buf, PIECE_BYTES)) > 0) {
		if (!rf_bench_payload_check(&embed->payload, start + stream->bytes, embed->buf,
					    len))
			rf_bench_team_fail(embed->team, 0, "a byte is not the one that was sent");
		at += len;
		stream->bytes += len;
	}
	count(&embed->team->shared->lanes[stream->greeting].received, stream->bytes);
	return (ssize_t)at;
}

/* One message at a time, or what there is room for: one packet each, if it is not longer. */
static ssize_t give(void *ctx, struct rf_host_conn *conn RF_UNUSED, const struct iovec *iov, int n)
{
	struct rf_bench_embed_stream *stream = ctx;
	struct rf_bench_embed *embed = stream->embed;
	size_t size = embed->row->size, len;
	uint64_t pos;

	if (stream->greeted < sizeof(stream->greeting)) {
		len = rf_host_copy_in(iov, n, 0, (char *)&stream->greeting + stream->greeted,
				      sizeof(stream->greeting) - stream->greeted);
		stream->greeted += (unsigned)len;
		return (ssize_t)len;
	}
	/* Only whole messages. */
	if (stopping(embed) && stream->bytes % size == 0) {
		atomic_store(&stream->state, RF_BENCH_EMBED_DONE);
		return 0;
	}
	pos = rf_bench_payload_start(stream->greeting) + stream->bytes;
	len = rf_host_copy_in(iov, n, 0, rf_bench_payload_at(&embed->payload, pos),
			      size - stream->bytes % size);
	stream->bytes += len;
	count(&embed->team->shared->lanes[stream->greeting].sent, stream->bytes);
	return (ssize_t)len;
}

static int accepted(void *ctx, struct rf_host_conn *conn RF_UNUSED, uint32_t guest_port RF_UNUSED,
		    void **ret_ctx)
{
	struct rf_bench_embed *embed = ctx;

	for (unsigned i = 0; i < embed->row->streams; i++) {
		struct rf_bench_embed_stream *stream = &embed->streams[i];

		if (atomic_load(&stream->state) != RF_BENCH_EMBED_NONE)
			continue;
		atomic_store(&stream->state, RF_BENCH_EMBED_OPEN);
		*ret_ctx = stream;
		return 0;
	}
	return -1;
}

static void connected(void *ctx, struct rf_host_conn *conn RF_UNUSED)
{
	struct rf_bench_embed_stream *stream = ctx;

	atomic_store(&stream->state, RF_BENCH_EMBED_OPEN);
}

static void shut(void *ctx, struct rf_host_conn *conn, int what)
{
	struct rf_bench_embed_stream *stream = ctx;

	if (what != RF_HOST_TAKE || stream->embed->row->dir != RF_BENCH_G2H)
		return;
	atomic_store(&stream->state, RF_BENCH_EMBED_DONE);
	rf_host_conn_shutdown(conn, RF_HOST_GIVE);
}

/* Before the guest listens, it refuses; that is tried again. */
static void ended(void *ctx, struct rf_host_conn *conn RF_UNUSED, int how)
{
	struct rf_bench_embed_stream *stream = ctx;
	int state = atomic_load(&stream->state);

	if (state == RF_BENCH_EMBED_DONE)
		atomic_store(&stream->state, RF_BENCH_EMBED_OVER);
	else if (state == RF_BENCH_EMBED_ASKED && (how == -ECONNREFUSED || how == -ENOTCONN))
		atomic_store(&stream->state, RF_BENCH_EMBED_NONE);
	else
		rf_bench_team_fail(stream->embed->team, how < 0 ? -how : 0, "a connection ended");
}

/* To the host: what is not given waits for the end. */
static ssize_t give_nothing(void *ctx RF_UNUSED, struct rf_host_conn *conn RF_UNUSED,
			    const struct iovec *iov RF_UNUSED, int n RF_UNUSED)
{
	return -EAGAIN;
}

static const struct rf_host_stream_ops to_host = {
	.size = sizeof(to_host),
	.accept = accepted,
	.take = take,
	.give = give_nothing,
	.shut = shut,
	.ended = ended,
};

/* The guest says nothing, but where streams end. */
static ssize_t take_nothing(void *ctx RF_UNUSED, struct rf_host_conn *conn RF_UNUSED,
			    const struct iovec *iov RF_UNUSED, int n RF_UNUSED)
{
	return -EPROTO;
}

static const struct rf_host_stream_ops to_guest = {
	.size = sizeof(to_guest),
	.connected = connected,
	.take = take_nothing,
	.give = give,
	.ended = ended,
};

void rf_bench_embed_connect(struct rf_bench_embed *embed)
{
	for (unsigned i = 0; embed->row->dir == RF_BENCH_H2G && i < embed->row->streams; i++) {
		struct rf_bench_embed_stream *stream = &embed->streams[i];
		int none = RF_BENCH_EMBED_NONE, r;
		struct rf_host_conn *conn;

		if (!atomic_compare_exchange_strong(&stream->state, &none, RF_BENCH_EMBED_ASKED))
			continue;
		r = rf_host_connect(embed->device, RF_BENCH_PORT, &to_guest, stream, &conn);
		if (r < 0)
			rf_bench_team_fail(embed->team, -r, "connect");
	}
}

bool rf_bench_embed_reached(const struct rf_bench_embed *embed, enum rf_bench_embed_state state)
{
	for (unsigned i = 0; i < embed->row->streams; i++)
		if (atomic_load(&embed->streams[i].state) < (int)state)
			return false;
	return true;
}

static int add_device(struct rf_bench_embed *embed, int socket_fd)
{
	const struct rf_bench_variant *variant = embed->team->variant;
	uint32_t queue_size = variant->queue_size;
	struct rf_host_vsock_options options;

	rf_host_vsock_options_init(&options);
	options.guest_cid = RF_BENCH_GUEST_CID;
	if (socket_fd >= 0)
		options.socket_fd = socket_fd;
	else
		options.socket_path = embed->team->bench->socket;
	if (!queue_size)
		queue_size = embed->team->bench->options->queue_size;
	if (queue_size > options.queue_size)
		options.queue_size = queue_size;
	if (variant->window)
		options.window_bytes = variant->window;
	options.tune = variant->host_tune;
	return rf_host_add_vsock(embed->host, &options, &embed->device);
}

void rf_bench_embed_init(struct rf_bench_embed *embed, struct rf_bench_team *team,
			 const struct rf_bench_row *row, int socket_fd, int poll_us)
{
	struct rf_host_options options;
	int r;

	*embed = (struct rf_bench_embed){ .team = team, .row = row };
	embed->streams = calloc(row->streams, sizeof(*embed->streams));
	embed->buf = aligned_alloc(64, PIECE_BYTES);
	if (!embed->streams || !embed->buf || rf_bench_payload_init(&embed->payload, row->size) < 0)
		rf_bench_team_fail(team, ENOMEM, "streams");
	for (unsigned i = 0; i < row->streams; i++) {
		embed->streams[i].embed = embed;
		embed->streams[i].greeting = i;
	}
	rf_host_options_init(&options);
	options.poll_us = poll_us;
	r = rf_host_new(&options, &embed->host);
	if (r == 0)
		r = add_device(embed, socket_fd);
	if (r == 0 && row->dir == RF_BENCH_G2H)
		r = rf_host_listen(embed->device, RF_BENCH_PORT, &to_host, embed);
	if (r < 0)
		rf_bench_team_fail(team, -r, "the host half");
}
