/* SPDX-License-Identifier: BSD-3-Clause */
#include "vsock_host.h"

#include <errno.h>
#include <stdlib.h>

#include "base/iov.h"

static void stream_expired(struct rf_timer *timer)
{
	struct rf_vsock_stream *stream = RF_CONTAINER_OF(timer, struct rf_vsock_stream, timer);

	rf_vsock_conn_wake(&stream->conn, rf_loop_now(stream->device->loop));
	rf_stream_settle(stream);
}

static struct rf_vsock_stream *stream_new(struct rf_vsock_device *device)
{
	struct rf_vsock_stream *stream;

	if (device->n_streams >= device->max_conns) {
		rf_count(&device->counters.refused_limit, 1);
		rf_log_limited(&device->log, &device->bad_limit, RF_LOG_WARNING,
			       "%u connections are open, no more are allowed; refused one",
			       device->n_streams);
		return NULL;
	}
	stream = calloc(1, sizeof(*stream));
	if (!stream)
		return NULL;
	stream->device = device;
	stream->timer.expired = stream_expired;
	stream->burst_first = stream->burst_last = NO_CHAIN;
	stream->expected = RF_HOST_CONN_BUDGET_BYTES;
	TAILQ_INSERT_TAIL(&device->streams, stream, link);
	device->n_streams++;
	return stream;
}

static void enter_table(struct rf_vsock_stream *stream)
{
	rf_vsock_sched_forget_resets(&stream->device->sched, &stream->conn.key);
	rf_vsock_table_insert(&stream->device->table, &stream->conn);
	stream->in_table = true;
}

static void leave_table(struct rf_vsock_stream *stream)
{
	if (!stream->in_table)
		return;
	rf_vsock_sched_remove(&stream->device->sched, &stream->conn);
	rf_vsock_table_remove(&stream->device->table, &stream->conn);
	stream->in_table = false;
}

static void forget_drain(struct rf_vsock_stream *stream)
{
	if (!stream->draining)
		return;
	stream->draining = false;
	TAILQ_REMOVE(&stream->device->draining, stream, drain_link);
}

static void close_line(struct rf_vsock_stream *stream)
{
	if (!stream->line)
		return;
	stream->ops->close(stream->line, stream->conn.reason);
	stream->line = NULL;
	stream->line_open = false;
	forget_drain(stream);
	rf_outbuf_clear(&stream->out);
}

static void end_stream(struct rf_vsock_stream *stream)
{
	struct rf_vsock_device *device = stream->device;

	rf_timer_stop(&stream->timer);
	TAILQ_REMOVE(&device->streams, stream, link);
	TAILQ_INSERT_TAIL(&device->ended, stream, link);
	rf_device_wake(device);
}

/* Return: false without memory for a timer. */
static bool sync_timer(struct rf_vsock_stream *stream)
{
	uint64_t deadline = stream->conn.wake_ns;

	if (!deadline)
		rf_timer_stop(&stream->timer);
	else if (!rf_timer_active(&stream->timer) || stream->timer.deadline_ns != deadline)
		return rf_timer_start(stream->device->loop, &stream->timer, deadline) == 0;
	return true;
}

/* The guest's end of file follows the last byte, not the last packet. */
static void finish_line(struct rf_vsock_stream *stream)
{
	if (!stream->finish || stream->finished || stream->out.used || !stream->line_open)
		return;
	stream->finished = true;
	stream->ops->shutdown(stream->line, RF_VSOCK_SHUT_SEND);
}

static void count_end(struct rf_vsock_stream *stream)
{
	const struct rf_vsock_conn *conn = &stream->conn;
	struct rf_vsock_device *device = stream->device;

	if (stream->counted)
		return;
	stream->counted = true;
	rf_count(&device->counters.ended[conn->reason], 1);
	rf_log_limited(&device->log, &device->ended_limit, RF_LOG_DEBUG,
		       "connection of guest port %u and host port %u ended: %s",
		       conn->key.peer_port, conn->key.local_port,
		       rf_vsock_reason_text(conn->reason));
}

void rf_stream_settle(struct rf_vsock_stream *stream)
{
	struct rf_vsock_device *device = stream->device;
	struct rf_vsock_conn *conn = &stream->conn;

	if (!stream->line && !stream->in_table)
		return;
	finish_line(stream);
	if (stream->readable && rf_vsock_conn_wait(conn, rf_loop_now(device->loop)))
		rf_count(&device->counters.packet_waits, 1);
	/* Without its timer it might wait for ever. */
	if (!sync_timer(stream))
		rf_vsock_conn_reset(conn, RF_VSOCK_LOCAL_RESET);
	if (conn->state == RF_VSOCK_DEAD) {
		count_end(stream);
		if (!stream->out.used)
			close_line(stream);
		if (rf_vsock_conn_done(conn))
			leave_table(stream);
		if (!stream->line && !stream->in_table) {
			end_stream(stream);
			return;
		}
	}
	if (!stream->in_table)
		return;
	rf_vsock_sched_control(&device->sched, conn);
	if (stream->readable && rf_vsock_conn_data(conn) > 0)
		rf_vsock_sched_data(&device->sched, conn);
	if (rf_vsock_conn_owes(conn) || stream->readable)
		rf_device_wake(device);
}

static void close_conn(struct rf_vsock_stream *stream)
{
	struct rf_vsock_device *device = stream->device;

	if (stream->conn.state != RF_VSOCK_DEAD && stream->conn.state != RF_VSOCK_CLOSING)
		rf_vsock_conn_close(&stream->conn, &device->params, rf_loop_now(device->loop));
}

void rf_stream_eof(struct rf_vsock_stream *stream)
{
	stream->readable = false;
	stream->eof = true;
	if (stream->hangup || stream->discard)
		close_conn(stream);
	else
		rf_vsock_conn_shutdown(&stream->conn, RF_VSOCK_SHUT_SEND);
	rf_stream_settle(stream);
}

/*
 * The host program does not receive any more. What it sent before is still on its way to the guest,
 * so this is no reset.
 */
static void stop_receiving(struct rf_vsock_stream *stream)
{
	struct rf_host_counters *counters = &stream->device->counters;

	stream->discard = true;
	rf_count(&counters->discarded_bytes, stream->out.used);
	rf_vsock_conn_consumed(&stream->conn, (uint32_t)stream->out.used);
	rf_outbuf_clear(&stream->out);
	if (stream->eof)
		close_conn(stream);
	else
		rf_vsock_conn_shutdown(&stream->conn, RF_VSOCK_SHUT_RCV);
}

/* Bytes were lost on the way to the host program: none behind them may come. */
static void break_stream(struct rf_vsock_stream *stream)
{
	stream->discard = true;
	rf_count(&stream->device->counters.discarded_bytes, stream->out.used);
	rf_outbuf_clear(&stream->out);
	rf_vsock_conn_reset(&stream->conn, RF_VSOCK_LOCAL_RESET);
}

/*
 * @sent: what send() returned. Return: bytes the line took; what it did not take has to wait or is
 * discarded.
 */
static size_t line_took(struct rf_vsock_stream *stream, ssize_t sent)
{
	if (sent >= 0)
		return (size_t)sent;
	if (sent == -EFAULT)
		stream->device->faulted = true;
	if (sent == -EPIPE)
		stop_receiving(stream);
	else if (sent != -EAGAIN)
		break_stream(stream);
	return 0;
}

/* Zeros stand where guest memory vanished: the host program is not to take them for data. */
static void check_memory(struct rf_vsock_stream *stream)
{
	struct rf_vsock_device *device = stream->device;

	if (!rf_mem_faulted(rf_vu_session_mem(device->session)))
		return;
	device->faulted = true;
	stream->discard = true;
	rf_outbuf_clear(&stream->out);
}

bool rf_stream_may_send(struct rf_vsock_stream *stream)
{
	check_memory(stream);
	return !stream->discard && !stream->out.used;
}

/* The line took @sent bytes. */
static void keep_rest(struct rf_vsock_stream *stream, const struct iovec *iov, unsigned n,
		      size_t sent)
{
	struct rf_host_counters *counters = &stream->device->counters;
	size_t len = rf_iov_bytes(iov, n);

	if (stream->discard) {
		rf_count(&counters->discarded_bytes, len - sent);
		sent = len;
	} else if (sent < len) {
		if (rf_outbuf_append(&stream->out, iov, n, sent) < 0)
			break_stream(stream);
		else
			rf_count(&counters->bounced_bytes, len - sent);
		check_memory(stream);
	}
	rf_vsock_conn_consumed(&stream->conn, (uint32_t)sent);
}

void rf_stream_sent(struct rf_vsock_stream *stream, const struct iovec *iov, unsigned n,
		    unsigned n_pkts, ssize_t result)
{
	struct rf_host_counters *counters = &stream->device->counters;
	size_t sent;

	rf_count(&counters->from_guest_sends, 1);
	rf_count(&counters->from_guest_sent_packets, n_pkts);
	sent = line_took(stream, result);
	check_memory(stream);
	keep_rest(stream, iov, n, sent);
}

void rf_stream_deliver(struct rf_vsock_stream *stream, const struct iovec *iov, unsigned n,
		       unsigned n_pkts)
{
	if (rf_stream_may_send(stream))
		rf_stream_sent(stream, iov, n, n_pkts, stream->ops->send(stream->line, iov, n));
	else
		keep_rest(stream, iov, n, 0);
}

static void queue_drain(struct rf_vsock_stream *stream)
{
	struct rf_vsock_device *device = stream->device;

	if (stream->draining || !stream->out.used)
		return;
	stream->draining = true;
	TAILQ_INSERT_TAIL(&device->draining, stream, drain_link);
	rf_device_wake(device);
}

/*
 * Offer the line some of what waits for it; all that it takes is followed by more in its turn.
 * Return: bytes it took.
 */
static size_t drain(struct rf_vsock_stream *stream)
{
	struct iovec pieces[2], turn[2];
	unsigned n = rf_outbuf_pieces(&stream->out, pieces);
	size_t len, sent;

	n = rf_iov_slice(pieces, n, 0, RF_HOST_CONN_BUDGET_BYTES, turn, RF_ARRAY_SIZE(turn), &len);
	sent = n ? line_took(stream, stream->ops->send(stream->line, turn, n)) : 0;
	if (!sent)
		return 0;
	rf_outbuf_drop(&stream->out, sent);
	rf_vsock_conn_consumed(&stream->conn, (uint32_t)sent);
	if (sent == len)
		queue_drain(stream);
	return sent;
}

void rf_streams_drain_turn(struct rf_vsock_device *device)
{
	struct rf_vsock_stream *stream;
	size_t bytes = 0;

	while (bytes < RF_HOST_TURN_BYTES && (stream = TAILQ_FIRST(&device->draining))) {
		forget_drain(stream);
		bytes += drain(stream);
		rf_stream_settle(stream);
	}
}

/* The guest does not receive any more. */
static void stop_reading(struct rf_vsock_stream *stream)
{
	stream->ops->shutdown(stream->line, RF_VSOCK_SHUT_RCV);
	stream->readable = false;
	if (stream->hangup)
		close_conn(stream);
}

void rf_stream_events(struct rf_vsock_stream *stream, unsigned events)
{
	if (events & RF_VSOCK_EV_CONNECTED) {
		stream->ops->established(stream->line, stream->conn.key.local_port);
		stream->line_open = true;
		stream->readable = true;
	}
	if (events & RF_VSOCK_EV_SHUT_SEND)
		stream->finish = true;
	/* After a reset, too: what the guest sent before may wait for the host program for long. */
	if (events & RF_VSOCK_EV_DEAD && !(stream->conn.peer_shut & RF_VSOCK_SHUT_RCV))
		events |= RF_VSOCK_EV_SHUT_RCV;
	if ((events & RF_VSOCK_EV_SHUT_RCV) && stream->line_open)
		stop_reading(stream);
	rf_stream_settle(stream);
}

void rf_stream_request(struct rf_vsock_device *device, const struct rf_vsock_hdr *hdr)
{
	struct rf_vsock_stream *stream = stream_new(device);
	int r;

	if (!stream) {
		rf_vsock_sched_reset(&device->sched, hdr);
		return;
	}
	rf_count(&device->counters.guest_connects, 1);
	rf_vsock_conn_request(&stream->conn, hdr, &device->params, rf_loop_now(device->loop));
	enter_table(stream);
	r = rf_plugs_dial(stream);
	if (r == -ENOENT)
		rf_count(&device->counters.refused_host, 1);
	/* Host programs that have not said CONNECT count for the plug, too. */
	if (r == -ENOSPC)
		rf_count(&device->counters.refused_limit, 1);
	if (r < 0)
		rf_vsock_conn_reset(&stream->conn, RF_VSOCK_LOCAL_RESET);
	rf_stream_settle(stream);
}

static int user_asked(void *ctx, struct rf_vsock_line *line, uint32_t port, void **ret_owner)
{
	const struct rf_plugged *plugged = ctx;
	struct rf_vsock_device *device = plugged->device;
	struct rf_vsock_key key = {
		.local_cid = RF_VSOCK_CID_HOST,
		.peer_cid = device->cid,
		.peer_port = port,
	};
	struct rf_vsock_stream *stream;

	/* A guest that was paused may go on within the handshake time; one that never ran will not.
	 */
	if (!device->session || !device->was_started) {
		rf_count(&device->counters.refused_no_guest, 1);
		return -ENOTCONN;
	}
	if (rf_vsock_table_pick_port(&device->table, &key) < 0)
		return -EADDRNOTAVAIL;
	stream = stream_new(device);
	if (!stream)
		return -ENOSPC;
	rf_count(&device->counters.host_connects, 1);
	rf_vsock_conn_connect(&stream->conn, &key, &device->params, rf_loop_now(device->loop));
	stream->ops = plugged->ops;
	stream->line = line;
	enter_table(stream);
	/* Without its timer settling would close the line: the plug is to do that. */
	if (!sync_timer(stream)) {
		leave_table(stream);
		stream->line = NULL;
		end_stream(stream);
		return -ENOMEM;
	}
	rf_stream_settle(stream);
	*ret_owner = stream;
	return 0;
}

static void user_dialled(void *owner, int result)
{
	struct rf_vsock_stream *stream = owner;

	if (result == 0) {
		rf_vsock_conn_accept(&stream->conn);
		stream->line_open = true;
		stream->readable = true;
		if (stream->conn.peer_shut & RF_VSOCK_SHUT_RCV)
			stop_reading(stream);
	} else {
		rf_count(&stream->device->counters.refused_host, 1);
		rf_vsock_conn_reset(&stream->conn, RF_VSOCK_LOCAL_RESET);
	}
	rf_stream_settle(stream);
}

static void user_ready(void *owner, unsigned bits)
{
	struct rf_vsock_stream *stream = owner;
	struct rf_vsock_conn *conn = &stream->conn;

	if (bits & RF_LINE_DRY)
		stream->eof = true, stream->readable = false;
	if (bits & RF_LINE_READABLE)
		stream->readable = !stream->eof && !(conn->peer_shut & RF_VSOCK_SHUT_RCV);
	if (bits & RF_LINE_WRITABLE)
		queue_drain(stream);
	if (bits & RF_LINE_HANGUP)
		stream->hangup = true;
	/*
	 * After a hang-up only what the program sent before matters, if anybody still wants it;
	 * also before the guest has accepted, as with TCP.
	 */
	if (stream->hangup && !stream->readable)
		close_conn(stream);
	rf_stream_settle(stream);
}

static void user_turned_away(void *ctx, int why)
{
	struct rf_host_counters *counters = &((struct rf_plugged *)ctx)->device->counters;

	rf_count(why == -ENOSPC ? &counters->refused_limit : &counters->refused_line, 1);
}

static void user_wake(void *ctx)
{
	rf_device_wake(((struct rf_plugged *)ctx)->device);
}

const struct rf_vsock_plug_user rf_stream_plug_user = {
	.asked = user_asked,
	.dialled = user_dialled,
	.ready = user_ready,
	.turned_away = user_turned_away,
	.wake = user_wake,
};

void rf_streams_reset(struct rf_vsock_device *device)
{
	struct rf_vsock_stream *stream, *next;

	if (!TAILQ_EMPTY(&device->streams))
		rf_count(&device->counters.device_resets, 1);
	for (stream = TAILQ_FIRST(&device->streams); stream; stream = next) {
		next = TAILQ_NEXT(stream, link);
		rf_vsock_conn_abandon(&stream->conn, RF_VSOCK_TRANSPORT_RESET);
		rf_stream_settle(stream);
	}
	rf_vsock_sched_init(&device->sched);
}

uint64_t rf_streams_drain(struct rf_vsock_device *device)
{
	struct rf_vsock_stream *stream, *next;
	uint64_t bytes = 0;

	for (stream = TAILQ_FIRST(&device->streams); stream; stream = next) {
		next = TAILQ_NEXT(stream, link);
		(void)drain(stream);
		bytes += stream->out.used;
		rf_stream_settle(stream);
	}
	return bytes;
}

void rf_streams_reap(struct rf_vsock_device *device)
{
	struct rf_vsock_stream *stream;

	while ((stream = TAILQ_FIRST(&device->ended))) {
		TAILQ_REMOVE(&device->ended, stream, link);
		device->n_streams--;
		rf_outbuf_clear(&stream->out);
		free(stream);
	}
}
