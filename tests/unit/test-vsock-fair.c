/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sixteen streams that all have more than can be served: after any number of turns, none has got
 * more than one budget ahead of another. Counted in turns and bytes; nothing depends on time.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/limits.h"
#include "vsock_rig.h"

#define N_STREAMS    16u
#define FIRST_PORT   1000u
#define ROUNDS       600u
#define WINDOW       (2u << 20)
#define PACKET_BYTES 65536u
#define RING         128u

/**
 * struct fair - Streams and what each got
 */
struct fair {
	struct vsock_rig *rig;
	struct fake_conn conns[N_STREAMS];
	int fds[N_STREAMS];
	uint64_t got[N_STREAMS];
};

static uint64_t least(const struct fair *f)
{
	uint64_t bytes = f->got[0];

	for (unsigned i = 1; i < N_STREAMS; i++)
		bytes = rf_min_u64(bytes, f->got[i]);
	return bytes;
}

static void check_spread(const struct fair *f, unsigned round)
{
	uint64_t from = least(f);

	for (unsigned i = 0; i < N_STREAMS; i++)
		if (f->got[i] - from > RF_HOST_CONN_BUDGET_BYTES)
			fail_msg("turn %u: stream %u is %llu bytes ahead of another", round, i,
				 (unsigned long long)(f->got[i] - from));
}

static void begin(struct fair *f, struct vsock_rig *rig, uint32_t rx_bytes)
{
	static const int sndbuf = 1 << 20;

	*f = (struct fair){ .rig = rig };
	rig->options.window = WINDOW;
	rig->guest.rx_bytes = rx_bytes + 44;
	rig->guest.num = RING;
	rig_start(rig);
	for (unsigned i = 0; i < N_STREAMS; i++) {
		f->fds[i] = rig_open_from_guest(rig, &f->conns[i], FIRST_PORT + i);
		/* More than its share of a turn; any host grants so much. */
		assert_int_equal(
			setsockopt(f->fds[i], SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof(sndbuf)), 0);
	}
}

static void end(struct fair *f)
{
	for (unsigned i = 0; i < N_STREAMS; i++)
		close(f->fds[i]);
}

static void host_fills(const struct fair *f)
{
	static const uint8_t zeros[PACKET_BYTES];

	for (unsigned i = 0; i < N_STREAMS; i++)
		while (send(f->fds[i], zeros, sizeof(zeros), MSG_NOSIGNAL) > 0)
			;
}

/* @rx_bytes: payload room of each of the guest's receive buffers. */
static void to_guest(struct vsock_rig *rig, uint32_t rx_bytes)
{
	static struct fair f;

	begin(&f, rig, rx_bytes);
	for (unsigned i = 0; i < N_STREAMS; i++) {
		f.conns[i].buf_alloc = UINT32_MAX;
		fake_conn_control(&f.conns[i], CREDIT_UPDATE, 0);
	}
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct fake_packet packet;

		host_fills(&f);
		assert_int_equal(rf_loop_turn(rig->loop, 0), 0);
		while (fake_guest_recv(&rig->guest, &packet, NULL)) {
			unsigned i = packet.hdr.dst_port - FIRST_PORT;

			f.got[i] += packet.hdr.len;
			f.conns[i].fwd_cnt += packet.hdr.len;
			fake_conn_control(&f.conns[i], CREDIT_UPDATE, 0);
		}
		check_spread(&f, round);
	}
	assert_true(least(&f) > 4 * RF_HOST_CONN_BUDGET_BYTES);
	end(&f);
}

/* They are two streams' share, but for a few: the second of two would always get less. */
static void to_guest_small_buffers(void **state)
{
	to_guest(*state, 4096);
}

static void to_guest_large_buffers(void **state)
{
	to_guest(*state, PACKET_BYTES);
}

static void to_guest_in_batches(void **state)
{
	struct vsock_rig *rig = *state;

	rig->options.switches.io = RF_HOST_IO_URING;
	to_guest(rig, 4096);
}

static void take_updates(struct fair *f)
{
	struct fake_packet packet;

	while (fake_guest_recv(&f->rig->guest, &packet, NULL)) {
		struct fake_conn *c = &f->conns[packet.hdr.dst_port - FIRST_PORT];

		c->peer_buf_alloc = packet.hdr.buf_alloc;
		c->peer_fwd_cnt = packet.hdr.fwd_cnt;
	}
}

/* The guest keeps its ring full, from all in turn, and what waits for the host programs, too. */
static void guest_fills(struct fair *f)
{
	bool any = true;

	while (any) {
		any = false;
		for (unsigned i = 0; i < N_STREAMS; i++) {
			if (fake_guest_unsent(&f->rig->guest) == RING)
				return;
			if (fake_conn_space(&f->conns[i]) < PACKET_BYTES)
				continue;
			rig_guest_send(&f->conns[i], 0, PACKET_BYTES);
			any = true;
		}
	}
}

static void from_guest(void **state)
{
	static uint8_t buf[4u << 20];
	static struct fair f;

	begin(&f, *state, PACKET_BYTES);
	/* First, all that can wait for the host programs does. */
	for (unsigned i = 0; i < 2 * N_STREAMS * WINDOW / PACKET_BYTES / RING; i++) {
		guest_fills(&f);
		rig_idle(f.rig);
	}
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < N_STREAMS; i++) {
			ssize_t n = recv(f.fds[i], buf, sizeof(buf), MSG_DONTWAIT);

			f.got[i] += n > 0 ? (uint64_t)n : 0;
		}
		check_spread(&f, round);
		assert_int_equal(rf_loop_turn(f.rig->loop, 0), 0);
		take_updates(&f);
		guest_fills(&f);
	}
	assert_true(least(&f) > 4 * RF_HOST_CONN_BUDGET_BYTES);
	end(&f);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		RIG_TEST(to_guest_small_buffers),
		RIG_TEST(to_guest_large_buffers),
		RIG_TEST(to_guest_in_batches),
		RIG_TEST(from_guest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
