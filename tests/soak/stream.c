/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "soak.h"

#define BUF_BYTES   (256u << 10)
#define POLL_MS     1000
#define LATE_NS     (SOAK_NS_PER_SEC * 3 / 10)
#define NO_EVENT_MS 1

/**
 * struct stream - One side of a connection at work
 * @peer, @plan, @end: As given
 * @side:	What this side says
 * @other:	What the other one says
 * @sending:	More is to be sent
 * @receiving:	More is to be received
 * @tx_key, @rx_key: Of what is sent and received
 * @prng:	Random numbers
 * @buf:	For what is sent and received
 */
struct stream {
	struct soak_peer *peer;
	const struct soak_plan *plan;
	struct soak_side *side;
	const struct soak_side *other;
	const struct soak_end *end;
	uint64_t tx_key, rx_key;
	uint64_t prng;
	bool sending, receiving;
	uint8_t *buf;
};

static enum soak_who me(const struct stream *stream)
{
	return stream->peer->who;
}

static bool acts(const struct stream *stream, enum soak_kind kind)
{
	return stream->plan->kind == kind && stream->plan->actor == me(stream);
}

static size_t some_bytes(struct stream *stream)
{
	return 1 + prng_below(&stream->prng, stream->plan->chunk[me(stream)]);
}

static void finish_sending(struct stream *stream)
{
	stream->sending = false;
	if (!acts(stream, SOAK_CLOSES))
		soak_end_shutdown(stream->end, SHUT_WR);
}

/* Return: whether anything happened. */
static bool send_some(struct stream *stream)
{
	struct soak_side *side = stream->side;
	uint64_t left = stream->plan->bytes[me(stream)] - side->sent;
	size_t len = some_bytes(stream);
	ssize_t n;

	if (len > left)
		len = (size_t)left;
	if (!len) {
		finish_sending(stream);
		return true;
	}
	soak_pattern_fill(stream->tx_key, side->sent, stream->buf, len);
	side->offered = side->sent + len;
	n = soak_end_send(stream->end, stream->buf, len, false);
	if (n == -EAGAIN)
		return false;
	if (n < 0) {
		side->send_error = (int)-n;
		stream->sending = false;
	} else {
		side->sent += (uint64_t)n;
	}
	return true;
}

static void finish_receiving(struct stream *stream)
{
	const struct soak_plan *plan = stream->plan;

	if (!stream->receiving || plan->kind == SOAK_ORDERLY || plan->actor != me(stream) ||
	    stream->side->received < plan->stop_after)
		return;
	if (plan->kind == SOAK_DEAF)
		soak_end_shutdown(stream->end, SHUT_RD);
	else if (stream->sending)
		return;
	stream->receiving = false;
}

/* Return: whether anything happened. */
static bool recv_some(struct stream *stream)
{
	struct soak_side *side = stream->side;
	ssize_t n = soak_end_recv(stream->end, stream->buf, some_bytes(stream));
	size_t good;

	if (n == -EAGAIN)
		return false;
	if (n > 0) {
		good = soak_pattern_check(stream->rx_key, side->received, stream->buf, (size_t)n);
		side->received += good;
		if (good < (size_t)n) {
			side->bad_at = side->received;
			stream->receiving = false;
		}
		return true;
	}
	/*
	 * A unix socket whose peer closed it with unread data says so once, before the data that it
	 * still has.
	 */
	if (n == -ECONNRESET && !stream->end->guest && !side->recv_error) {
		side->recv_error = ECONNRESET;
		return true;
	}
	if (n < 0)
		side->recv_error = (int)-n;
	else
		side->eof = true;
	stream->receiving = false;
	return true;
}

static void maybe_pause(struct stream *stream)
{
	enum soak_who who = me(stream);

	if (stream->plan->pause_every[who] &&
	    prng_below(&stream->prng, stream->plan->pause_every[who]) == 0)
		soak_sleep_ms(prng_below(&stream->prng, stream->plan->pause_ms[who] + 1));
}

/* Return: whether the wait ended by itself, not by the clock. */
static bool wait_for_more(struct stream *stream)
{
	short events = (short)((stream->sending ? POLLOUT : 0) | (stream->receiving ? POLLIN : 0));

	return soak_end_poll(stream->end, events, POLL_MS) != 0;
}

/*
 * The clock ended the wait, and yet there was something. If the other side has not done anything
 * for long, either, that was there before, and we should have been told.
 */
static void count_late(struct stream *stream, bool sent, bool received)
{
	uint64_t idle_ns = stream->side->moved_ns - stream->other->moved_ns;

	if (stream->side->moved_ns < stream->other->moved_ns + LATE_NS)
		return;
	stream->peer->device->late_wakeups++;
	fprintf(stderr,
		"late: cid %u: the %s, key %" PRIx64
		", noticed by the clock that it can%s%s, %.3f s "
		"after the other side's last move; %s\n",
		stream->peer->device->cid, me(stream) == SOAK_HOST ? "host" : "guest",
		stream->tx_key, sent ? " send" : "", received ? " receive" : "",
		(double)idle_ns * 1e-9, stream->end->by_event_fds ? "event fds" : "poll");
}

static void move_all(struct stream *stream)
{
	bool waited = false, woken = false;

	while ((stream->sending || stream->receiving) && !stream->peer->stop) {
		bool sent = stream->sending && send_some(stream);
		bool received = stream->receiving && recv_some(stream);

		finish_receiving(stream);
		if (sent || received) {
			stream->side->moved_ns = soak_now_ns();
			if (waited && !woken)
				count_late(stream, sent, received);
			waited = false;
			maybe_pause(stream);
			continue;
		}
		/* An event that is none for us, such as a hang-up before the last data. */
		if (waited && woken)
			soak_sleep_ms(NO_EVENT_MS);
		woken = wait_for_more(stream);
		waited = true;
	}
}

void soak_stream_run(struct soak_peer *peer, struct soak_slot *slot, const struct soak_end *end,
		     uint64_t key)
{
	struct stream stream = {
		.peer = peer,
		.plan = &slot->plan,
		.side = &slot->side[peer->who],
		.other = &slot->side[!peer->who],
		.end = end,
		.tx_key = peer->who == SOAK_HOST ? key : ~key,
		.rx_key = peer->who == SOAK_HOST ? ~key : key,
		.prng = key + peer->who,
		.sending = true,
		.receiving = true,
		.buf = malloc(BUF_BYTES),
	};

	if (!stream.buf)
		abort();
	move_all(&stream);
	/* With the process about to stop, data in flight meets a guest that goes away. */
	if (!peer->stop)
		soak_end_close(end);
	free(stream.buf);
}
