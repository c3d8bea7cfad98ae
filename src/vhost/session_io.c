/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "session_priv.h"

void rf_vu_io_close_fds(struct rf_vu_message *msg)
{
	for (unsigned i = 0; i < msg->n_fds; i++)
		msg->fds[i] = rf_fd_close(msg->fds[i]);
	msg->n_fds = 0;
}

/* Why the session is over when a system call returned no byte, but this. */
static enum rf_vu_reason reason_of_result(ssize_t result)
{
	switch (result) {
	case 0:
	case -EPIPE:
	/* It closed with something of ours unread, which is how VMMs that are killed go. */
	case -ECONNRESET:
		return RF_VU_HANGUP;
	case -EMSGSIZE:
		return RF_VU_FDS;
	default:
		return RF_VU_IO;
	}
}

/*
 * Descriptors ride on the first byte of a message. The rest is read without room for any, so that
 * the kernel drops those that come at the wrong place.
 */
static ssize_t receive_some(struct rf_vu_session *s, size_t want)
{
	uint8_t *hdr = (uint8_t *)&s->in.hdr;
	uint8_t *to = s->in_bytes < RF_VU_HDR_BYTES
			      ? hdr + s->in_bytes
			      : s->in.payload.bytes + (s->in_bytes - RF_VU_HDR_BYTES);
	ssize_t n;

	if (!s->in_bytes)
		return rf_fd_recv(s->sock, to, want, s->in.fds, RF_VU_MAX_FDS, &s->in.n_fds);
	do
		n = recv(s->sock, to, want, 0);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

/* Receive until there are @until bytes of the message. Return: true if they are there. */
static bool receive_until(struct rf_vu_session *s, size_t until)
{
	while (s->in_bytes < until) {
		ssize_t n = receive_some(s, until - s->in_bytes);

		if (n == -EAGAIN) {
			if (s->in_bytes && !rf_timer_active(&s->deadline) &&
			    rf_timer_start(s->loop, &s->deadline,
					   rf_loop_now(s->loop) + RF_VU_MESSAGE_NS) < 0)
				rf_vu_session_break(s, RF_VU_IO);
			return false;
		}
		if (n <= 0) {
			rf_vu_session_break(s, reason_of_result(n));
			return false;
		}
		s->in_bytes += (size_t)n;
	}
	return true;
}

/* Return: true if a whole message is there. */
static bool receive_message(struct rf_vu_session *s)
{
	enum rf_vu_reason reason;

	if (!receive_until(s, RF_VU_HDR_BYTES))
		return false;
	reason = rf_vu_check_hdr(&s->in.hdr);
	if (reason) {
		rf_vu_session_log_refusal(s, &s->in.hdr, reason);
		rf_vu_session_break(s, reason);
		return false;
	}
	if (!receive_until(s, RF_VU_HDR_BYTES + s->in.hdr.size))
		return false;
	rf_timer_stop(&s->deadline);
	s->in_bytes = 0;
	return true;
}

static void watch_socket(struct rf_vu_session *s)
{
	int r = rf_watch_set(&s->watch, EPOLLIN | (s->out_bytes ? EPOLLOUT : 0));

	if (r < 0)
		rf_vu_session_break(s, RF_VU_IO);
}

static void flush(struct rf_vu_session *s)
{
	ssize_t n = rf_fd_send(s->sock, s->out, s->out_bytes, NULL, 0);

	if (n == -EAGAIN)
		n = 0;
	if (n < 0) {
		rf_vu_session_break(s, reason_of_result(n));
		return;
	}
	s->out_bytes -= (size_t)n;
	memmove(s->out, s->out + n, s->out_bytes);
	watch_socket(s);
}

void rf_vu_io_reply(struct rf_vu_session *s, const struct rf_vu_message *msg)
{
	struct rf_vu_hdr hdr = { .request = msg->hdr.request,
				 .flags = RF_VU_PROTOCOL_VERSION | RF_VU_FLAG_REPLY,
				 .size = msg->hdr.size };
	bool was_empty = !s->out_bytes;

	if (sizeof(hdr) + hdr.size > sizeof(s->out) - s->out_bytes) {
		rf_vu_session_break(s, RF_VU_IO);
		return;
	}
	memcpy(s->out + s->out_bytes, &hdr, sizeof(hdr));
	memcpy(s->out + s->out_bytes + sizeof(hdr), msg->payload.bytes, hdr.size);
	s->out_bytes += sizeof(hdr) + hdr.size;
	if (was_empty)
		flush(s);
}

void rf_vu_io_stalled(struct rf_timer *timer)
{
	struct rf_vu_session *s = RF_CONTAINER_OF(timer, struct rf_vu_session, deadline);

	rf_vu_session_break(s, RF_VU_STALLED);
}

/* Level-triggered: what a turn's budget leaves wakes us again after the others had theirs. */
void rf_vu_io_ready(struct rf_watch *watch, uint32_t events)
{
	struct rf_vu_session *s = RF_CONTAINER_OF(watch, struct rf_vu_session, watch);

	rf_vu_session_enter(s);
	if (events & EPOLLOUT && s->out_bytes)
		flush(s);
	for (unsigned i = 0; i < RF_VU_TURN_MESSAGES && !s->reason; i++) {
		if (!receive_message(s))
			break;
		rf_vu_session_dispatch(s);
	}
	rf_vu_session_leave(s);
}
