/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams that are served in one system call (switch io) are served as one by one: the same
 * packets, the same bytes, the same ends.
 */
#include <liburing.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "vsock_rig.h"

#define N_STREAMS  12u
#define FIRST_PORT 1000u
#define PIECE      3000u
#define FULL_BYTES 200000u

/* What is special about a stream. */
enum {
	STREAM_SHUT_WR = 1,   /* its host program sends, and no more */
	STREAM_CLOSED = 3,    /* its host program closes before the guest sends */
	STREAM_FULL = 4,      /* its host program reads late: little fits into its socket */
	STREAM_SHUT_RD = 5,   /* its host program reads no more */
	STREAM_QUIET = 6,     /* its host program sends nothing */
	STREAM_ENDS = 7,      /* its host program sends, and closes */
	STREAM_BULK = 8,      /* its host program sends more than a buffer holds */
	STREAM_GUEST_END = 9, /* the guest sends, and no more */
};

/**
 * struct scene - One run
 * @rig:	With a device whose switch io is set
 * @conns, @fds: Streams; -1 once closed
 * @seen:	Per stream: operation, flags and, but for data, length of the packets to the guest
 * @to_guest, @to_host: Bytes that have come
 */
struct scene {
	struct vsock_rig *rig;
	struct fake_conn conns[N_STREAMS];
	int fds[N_STREAMS];
	char seen[N_STREAMS][256];
	uint32_t to_guest[N_STREAMS], to_host[N_STREAMS];
};

static void guest_takes(struct scene *s)
{
	struct fake_packet packet;

	rig_idle(s->rig);
	while (fake_guest_recv(&s->rig->guest, &packet, NULL)) {
		unsigned i = packet.hdr.dst_port - FIRST_PORT;
		size_t len = strlen(s->seen[i]);

		assert_true(i < N_STREAMS);
		rig_check(packet.data, packet.hdr.len, s->to_guest[i]);
		s->to_guest[i] += packet.hdr.len;
		s->conns[i].fwd_cnt += packet.hdr.len;
		s->conns[i].peer_fwd_cnt = packet.hdr.fwd_cnt;
		if (packet.hdr.op == SHUTDOWN || packet.hdr.op == RST)
			snprintf(s->seen[i] + len, sizeof(s->seen[i]) - len, "%u/%u at %u, ",
				 packet.hdr.op, packet.hdr.flags, s->to_guest[i]);
		rig_idle(s->rig);
	}
}

static void host_takes(struct scene *s, unsigned i)
{
	uint8_t buf[65536];
	ssize_t n;

	while (s->fds[i] >= 0 && (n = recv(s->fds[i], buf, sizeof(buf), MSG_DONTWAIT)) > 0) {
		rig_check(buf, (size_t)n, s->to_host[i]);
		s->to_host[i] += (uint32_t)n;
		rig_idle(s->rig);
	}
}

static void hosts_take(struct scene *s)
{
	for (unsigned i = 0; i < N_STREAMS; i++)
		if (i != STREAM_FULL && i != STREAM_SHUT_RD)
			host_takes(s, i);
}

static void host_sends(const struct scene *s, unsigned i, uint32_t at, uint32_t bytes)
{
	static uint8_t buf[FULL_BYTES];

	rig_fill(buf, bytes, at);
	assert_int_equal(send(s->fds[i], buf, bytes, MSG_NOSIGNAL | MSG_DONTWAIT), bytes);
}

static void begin(struct scene *s)
{
	for (unsigned i = 0; i < N_STREAMS; i++)
		s->fds[i] = rig_open_from_guest(s->rig, &s->conns[i], FIRST_PORT + i);
	/* They have read something small: they are the ones that are read together. */
	for (unsigned i = 0; i < N_STREAMS; i++)
		host_sends(s, i, 0, 10);
	guest_takes(s);
	close(s->fds[STREAM_CLOSED]);
	s->fds[STREAM_CLOSED] = -1;
	shutdown(s->fds[STREAM_SHUT_RD], SHUT_RD);
	rig_idle(s->rig);
}

static void guest_sends_to_all(struct scene *s)
{
	for (uint32_t at = 0; at < 4 * PIECE; at += PIECE)
		for (unsigned i = 0; i < N_STREAMS; i++)
			rig_guest_send(&s->conns[i], at, PIECE);
	fake_conn_control(&s->conns[STREAM_GUEST_END], SHUTDOWN, RF_VSOCK_SHUT_SEND);
	rig_idle(s->rig);
	hosts_take(s);
	guest_takes(s);
}

/* What does not fit waits, and keeps its place. */
static void guest_fills_one(struct scene *s)
{
	uint32_t at = 4 * PIECE;

	for (unsigned k = 0; k < 60; k++, at += PIECE) {
		rig_guest_send(&s->conns[STREAM_FULL], at, PIECE);
		for (unsigned i = 0; i < 3; i++)
			rig_guest_send(&s->conns[i], at, PIECE);
		rig_idle(s->rig);
		hosts_take(s);
	}
	guest_takes(s);
	host_takes(s, STREAM_FULL);
	host_takes(s, STREAM_FULL);
}

static void hosts_send(struct scene *s)
{
	for (unsigned i = 0; i < N_STREAMS; i++) {
		if (i == STREAM_CLOSED || i == STREAM_QUIET)
			continue;
		host_sends(s, i, 10, i == STREAM_BULK ? FULL_BYTES / 2 : 100 + i);
		if (i == STREAM_ENDS) {
			close(s->fds[i]);
			s->fds[i] = -1;
		}
	}
	guest_takes(s);
	/* All are read in one turn; one of the first has nothing but an end. */
	shutdown(s->fds[STREAM_SHUT_WR], SHUT_WR);
	for (unsigned i = 0; i < N_STREAMS; i++)
		if (i != STREAM_SHUT_WR && s->fds[i] >= 0 && i != STREAM_QUIET && i != STREAM_BULK)
			host_sends(s, i, 110 + i, 50);
	guest_takes(s);
}

static void play(void **state, int io, struct scene *s)
{
	rig_setup(state);
	*s = (struct scene){ .rig = *state };
	s->rig->options.switches.io = io;
	s->rig->guest.rx_bytes = 4096;
	rig_start(s->rig);
	begin(s);
	guest_sends_to_all(s);
	guest_fills_one(s);
	hosts_send(s);
}

static void finish(void **state, struct scene *s)
{
	for (unsigned i = 0; i < N_STREAMS; i++)
		if (s->fds[i] >= 0)
			close(s->fds[i]);
	rig_teardown(state);
}

static bool have_io_uring(void)
{
	struct io_uring ring;

	if (io_uring_queue_init(1, &ring, 0) < 0)
		return false;
	io_uring_queue_exit(&ring);
	return true;
}

static uint64_t count(const struct scene *s, const char *name)
{
	return rig_count(s->rig, "host", name);
}

static void same_in_any_way(void **state)
{
	static const int ways[] = { RF_HOST_IO_AUTO, RF_HOST_IO_URING };
	static struct scene plain, other;
	uint64_t sends;

	play(state, RF_HOST_IO_SYSCALLS, &plain);
	assert_int_equal(count(&plain, "uring_batches"), 0);
	sends = count(&plain, "from_guest_sends");
	finish(state, &plain);
	assert_int_equal(plain.to_host[0], 64 * PIECE);
	assert_int_equal(plain.to_host[STREAM_FULL], 64 * PIECE);
	assert_int_equal(plain.to_guest[STREAM_BULK], 10 + FULL_BYTES / 2);
	for (size_t way = 0; way < RF_ARRAY_SIZE(ways); way++) {
		play(state, ways[way], &other);
		for (unsigned i = 0; i < N_STREAMS; i++) {
			assert_string_equal(other.seen[i], plain.seen[i]);
			assert_int_equal(other.to_guest[i], plain.to_guest[i]);
			assert_int_equal(other.to_host[i], plain.to_host[i]);
		}
		assert_int_equal(count(&other, "from_guest_sends"), sends);
		if (have_io_uring()) {
			assert_true(count(&other, "uring_batches") > 2);
			assert_true(count(&other, "uring_ops") > 2 * N_STREAMS);
			assert_true(count(&other, "to_guest_moved_bytes") > 0);
		}
		finish(state, &other);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(same_in_any_way),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
