/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The guest's receive ring: host programs' bytes into receive buffers of every shape, within the
 * guest's credit, in fair turns, and rest when there is nothing to do.
 */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/limits.h"
#include "vsock/limits.h"
#include "vsock_rig.h"

/* Buffers */

struct buffer_row {
	const char *name;
	uint32_t bytes;
	struct fake_shape shape;
	uint32_t total;
};

static const struct buffer_row buffer_rows[] = {
	{ "45 bytes: one of payload", 45, { 0 }, 300 },
	{ "45 bytes in 45 pieces", 45, { .each = 1, .indirect = true }, 300 },
	{ "64 bytes", 64, { 0 }, 5000 },
	{ "4 KiB (Linux)", 4096, { 0 }, 200000 },
	{ "4 KiB and the header before it", 4140, { .cuts = { 44 } }, 200000 },
	{ "4 KiB, unaligned", 4096, { .lead = 21 }, 200000 },
	{ "header across regions", 4096, { .lead = FAKE_BORDER - 7 }, 200000 },
	{ "payload across regions", 8192, { 0 }, 200000 },
	{ "header in three pieces", 4096, { .cuts = { 10, 10, 24 } }, 200000 },
	{ "first byte of payload with the header", 4096, { .cuts = { 45 } }, 200000 },
	{ "64 KiB of payload", 65580, { 0 }, 250000 },
	{ "64 KiB of payload in pages", 65580, { .each = 4096, .indirect = true }, 250000 },
	{ "larger than a packet may be", 100000, { 0 }, 250000 },
	{ "pieces of 3", 2000, { .each = 3, .indirect = true }, 100000 },
};

static void any_buffer(void **state)
{
	const struct buffer_row *row = *state;
	struct vsock_rig *rig;
	struct fake_conn c;
	uint32_t read = 0;
	int fd;

	rig_setup(state);
	rig = *state;
	rig->guest.rx_bytes = row->bytes;
	rig->guest.rx_shape = row->shape;
	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	rig_host_write(rig, fd, 0, row->total);
	close(fd);
	while (read < row->total) {
		struct fake_packet packet;

		rig_idle(rig);
		assert_true(fake_conn_recv(&c, &packet));
		if (packet.hdr.op == CREDIT_REQUEST) {
			c.fwd_cnt = read;
			fake_conn_control(&c, CREDIT_UPDATE, 0);
			continue;
		}
		assert_int_equal(packet.hdr.op, RW);
		assert_true(packet.hdr.len <= RF_VSOCK_MAX_PAYLOAD);
		assert_true(packet.hdr.len <= packet.capacity - RF_VSOCK_HDR_BYTES);
		rig_check(packet.data, packet.hdr.len, read);
		read += packet.hdr.len;
	}
	rig_expect(rig, &c, SHUTDOWN);
	rig_teardown(state);
}

/* Buffers that hold no packet go back empty and hold up nothing. */
static void buffers_too_small(void **state)
{
	static const uint32_t sizes[] = { 1, 43, 44 };
	struct vsock_rig *rig = *state;
	struct fake_packet packet;
	struct fake_conn c;
	bool empty;
	int fd;

	rig->guest.auto_post = false;
	rig_start(rig);
	fake_guest_post(&rig->guest, 1, 4096, &fake_shape_one);
	fd = rig_open_from_guest(rig, &c, 1000);
	for (size_t i = 0; i < RF_ARRAY_SIZE(sizes); i++) {
		fake_guest_post(&rig->guest, 1, sizes[i], &fake_shape_one);
		fake_guest_post(&rig->guest, 1, sizes[i], &fake_shape_one);
		fake_guest_post(&rig->guest, 1, 54, &fake_shape_one);
		rig_host_write(rig, fd, 10 * i, 10);
		rig_idle(rig);
		for (unsigned k = 0; k < 2; k++) {
			assert_true(fake_guest_recv(&rig->guest, &packet, &empty));
			assert_true(empty);
		}
		rig_guest_read(rig, &c, (uint32_t)(10 * i), 10);
	}
	rig_expect_none(rig);
	assert_int_equal(rig_count(rig, "host", "bad_buffers"), 2 * RF_ARRAY_SIZE(sizes));
	close(fd);
}

/* A turn ends, however many of them there are. */
static void flood_of_small_buffers(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	uint64_t before = 0, after;

	rig->guest.num = 4096;
	rig->options.queue_size = 4096;
	rig->guest.auto_post = false;
	rig_start(rig);
	fake_guest_post(&rig->guest, 4095, 44, &fake_shape_one);
	fake_guest_post(&rig->guest, 1, 4096, &fake_shape_one);
	fake_conn_init(&c, &rig->guest, 1000, RIG_PORT);
	fake_conn_control(&c, REQUEST, 0);
	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(rf_loop_turn(rig->loop, 0), 0);
		after = rig_count(rig, "host", "bad_buffers");
		assert_true(after - before <= RF_HOST_TURN_PACKETS);
		before = after;
	}
	assert_int_equal(before, 4095);
	for (unsigned i = 0; i < 4095; i++) {
		struct fake_packet packet;
		bool empty;

		assert_true(fake_guest_recv(&rig->guest, &packet, &empty));
		assert_true(empty);
	}
	rig_expect(rig, &c, RST);
}

/* One system call fills the buffers that stand ready. */
static void one_read_for_many_buffers(void **state)
{
	struct vsock_rig *rig = *state;
	uint64_t reads;
	struct fake_conn c;
	int fd;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	reads = rig_count(rig, "host", "to_guest_reads");
	rig_host_write(rig, fd, 0, 25 * 4052);
	rig_idle(rig);
	/* One that filled them, and one that found no more. */
	assert_in_range(rig_count(rig, "host", "to_guest_reads") - reads, 1, 2);
	assert_int_equal(rig_count(rig, "host", "to_guest_data_packets"), 25);
	assert_int_equal(rig_count(rig, "host", "to_guest_bytes"), 25 * 4052);
	close(fd);
}

/* split=off: as many reads as packets, none larger than a buffer, and one that finds no more. */
static void one_packet_per_read(void **state)
{
	struct vsock_rig *rig = *state;
	uint64_t reads;
	struct fake_conn c;
	int fd;

	rig->options.switches.split = false;
	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	reads = rig_count(rig, "host", "to_guest_reads");
	rig_host_write(rig, fd, 0, 25 * 4052);
	rig_guest_read(rig, &c, 0, 25 * 4052);
	assert_int_equal(rig_count(rig, "host", "to_guest_data_packets"), 25);
	assert_in_range(rig_count(rig, "host", "to_guest_reads") - reads, 25, 26);
	close(fd);
}

/* Reads for the guest that it takes to pass so many bytes on, those that find nothing included. */
static uint64_t reads_for(struct vsock_rig *rig, struct fake_conn *c, int fd, uint32_t at,
			  uint32_t bytes)
{
	uint64_t before = rig_count(rig, "host", "to_guest_reads");

	rig_host_write(rig, fd, at, bytes);
	rig_guest_read(rig, c, at, bytes);
	fake_conn_control(c, CREDIT_UPDATE, 0);
	rig_idle(rig);
	return rig_count(rig, "host", "to_guest_reads") - before;
}

/* After small messages, buffers are laid out for small ones; as soon as more comes, for more. */
static void room_follows_what_comes(void **state)
{
	static const struct {
		uint32_t bytes;
		unsigned reads;
	} rows[] = {
		/* One that gets all, and one that finds no more. */
		{ 100000, 2 }, { 48, 2 }, { 48, 2 }, { 100000, 4 }, { 100000, 3 },
		{ 100000, 2 }, { 1, 2 },  { 1, 2 },  { 16384, 2 },
	};
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	uint32_t at = 0;
	int fd;

	rig->guest.rx_bytes = 4096 + 44;
	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	for (size_t i = 0; i < RF_ARRAY_SIZE(rows); i++) {
		assert_int_equal(reads_for(rig, &c, fd, at, rows[i].bytes), rows[i].reads);
		at += rows[i].bytes;
	}
	close(fd);
}

static void no_buffers(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	uint64_t turns;
	int fd;

	rig->guest.auto_post = false;
	rig_start(rig);
	fake_guest_post(&rig->guest, 1, 4096, &fake_shape_one);
	fd = rig_open_from_guest(rig, &c, 1000);
	turns = rig_count(rig, "host", "turns");
	for (unsigned i = 0; i < 100; i++) {
		rig_host_write(rig, fd, i * 10, 10);
		rig_idle(rig);
	}
	assert_true(rig_count(rig, "host", "turns") - turns <= 100);
	assert_true(rig_count(rig, "host", "to_guest_full") > 0);
	/* One for one. */
	for (unsigned i = 0; i < 20; i++) {
		fake_guest_post(&rig->guest, 1, 44 + 10, &fake_shape_one);
		rig_guest_read(rig, &c, 10 * i, 10);
		rig_expect_none(rig);
	}
	fake_guest_post(&rig->guest, 1, 4096, &fake_shape_one);
	rig_guest_read(rig, &c, 200, 800);
	close(fd);
}

/* Credit */

static void credit_is_kept(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	uint32_t at = 0;
	int fd, listener;

	rig->options.switches.packets = false;
	rig_start(rig);
	listener = rig_listen(rig, RIG_PORT, 1);
	fake_conn_init(&c, &rig->guest, 1000, RIG_PORT);
	/* hermit PR 2254: it counts from the REQUEST on. */
	c.buf_alloc = 10;
	fake_conn_control(&c, REQUEST, 0);
	rig_expect(rig, &c, RESPONSE);
	fd = rig_accept(listener);
	rig_host_write(rig, fd, 0, 100000);
	while (at < 50000) {
		rig_guest_read(rig, &c, at, c.buf_alloc);
		rig_expect_none(rig);
		at += c.buf_alloc;
		c.buf_alloc = (c.buf_alloc * 7 + 1) % 9000 + 1;
		fake_conn_control(&c, CREDIT_UPDATE, 0);
	}
	close(fd);
	close(listener);
}

/* CVE-2026-23069: less than is under way makes no credit of 4 GiB. */
static void peer_shrinks_its_buffer(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_packet packet;
	struct fake_conn c;
	uint32_t got = 0;
	int fd;

	rig->options.switches.packets = false;
	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	rig_host_write(rig, fd, 0, 200000);
	rig_idle(rig);
	while (fake_conn_recv(&c, &packet)) {
		got += packet.hdr.len;
		rig_idle(rig);
	}
	assert_int_equal(got, 200000);
	/* None of it is consumed. */
	c.buf_alloc = 1000;
	fake_conn_control(&c, CREDIT_UPDATE, 0);
	rig_host_write(rig, fd, got, 5000);
	rig_expect_none(rig);
	c.fwd_cnt = 199000;
	fake_conn_control(&c, CREDIT_UPDATE, 0);
	rig_expect_none(rig);
	c.fwd_cnt = 199001;
	fake_conn_control(&c, CREDIT_UPDATE, 0);
	rig_guest_read(rig, &c, got, 1);
	rig_expect_none(rig);
	c.fwd_cnt = got + 1;
	fake_conn_control(&c, CREDIT_UPDATE, 0);
	rig_guest_read(rig, &c, got + 1, 1000);
	rig_expect_none(rig);
	close(fd);
}

/* CVE-2026-23086: a guest that offers 4 GiB and does not read gets a limited amount. */
static void peer_offers_too_much(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_packet packet;
	struct fake_conn c;
	uint32_t got = 0;
	int fd;

	rig->guest.rx_bytes = 65580;
	rig->options.switches.packets = false;
	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	c.buf_alloc = UINT32_MAX;
	fake_conn_control(&c, CREDIT_UPDATE, 0);
	for (uint32_t i = 0; i < 200; i++) {
		uint8_t buf[32768] = { 0 };
		ssize_t n = send(fd, buf, sizeof(buf), MSG_NOSIGNAL);

		rig_idle(rig);
		while (fake_conn_recv(&c, &packet)) {
			got += packet.hdr.len;
			rig_idle(rig);
		}
		if (n < 0)
			break;
	}
	assert_int_equal(got, RF_VSOCK_TX_LIMIT_DEFAULT);
	close(fd);
}

/* A count beyond what was sent, and one that goes back, are no credit. */
static void peer_lies_about_credit(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fd;

	rig->options.switches.packets = false;
	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	rig_host_write(rig, fd, 0, 300000);
	rig_guest_read(rig, &c, 0, 262144);
	rig_expect_none(rig);
	c.fwd_cnt = 262145;
	fake_conn_control(&c, CREDIT_UPDATE, 0);
	c.fwd_cnt = UINT32_MAX;
	fake_conn_control(&c, CREDIT_UPDATE, 0);
	rig_expect_none(rig);
	c.fwd_cnt = 262144;
	fake_conn_control(&c, CREDIT_UPDATE, 0);
	rig_guest_read(rig, &c, 262144, 300000 - 262144);
	close(fd);
}

/* A window that is exactly full when the program closes. */
static void end_behind_a_full_window(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fd;

	rig->options.switches.packets = false;
	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	rig_host_write(rig, fd, 0, 262144);
	close(fd);
	rig_guest_read(rig, &c, 0, 262144);
	rig_idle(rig);
	fake_conn_control(&c, CREDIT_UPDATE, 0);
	rig_expect(rig, &c, SHUTDOWN);
}

/* Packets */

#define SLOW_BYTES 400000u
#define SLOW_QUEUE 4096u

/* A guest that reads slowly, tells as Linux 6.1 does, and counts packets as Linux of 2026. */
struct slow_guest {
	struct fake_conn c;
	uint32_t lens[SLOW_QUEUE];
	unsigned first, n;
	uint32_t told, requests;
	bool dropped, reset; /* what the first, the second form would have done */
};

static void slow_tell(struct slow_guest *g)
{
	g->told = g->c.fwd_cnt;
	fake_conn_control(&g->c, CREDIT_UPDATE, 0);
}

static void slow_take(struct vsock_rig *rig, struct slow_guest *g)
{
	struct fake_packet packet;
	uint64_t cost;

	rig_idle(rig);
	while (fake_conn_recv(&g->c, &packet)) {
		if (packet.hdr.op == CREDIT_REQUEST) {
			g->requests++;
			slow_tell(g);
		} else {
			assert_int_equal(packet.hdr.op, RW);
			rig_check(packet.data, packet.hdr.len, g->c.rx_cnt - packet.hdr.len);
			cost = UINT64_C(576) * (g->n + 1);
			g->reset |= cost > g->c.buf_alloc;
			g->dropped |= cost + g->c.rx_cnt - g->c.fwd_cnt > g->c.buf_alloc;
			assert_true(g->n < SLOW_QUEUE);
			g->lens[(g->first + g->n++) % SLOW_QUEUE] = packet.hdr.len;
		}
		rig_idle(rig);
	}
}

static void slow_read(struct slow_guest *g)
{
	if (!g->n)
		return;
	g->c.fwd_cnt += g->lens[g->first];
	g->first = (g->first + 1) % SLOW_QUEUE;
	g->n--;
	if (g->c.buf_alloc - (g->c.fwd_cnt - g->told) < 65536)
		slow_tell(g);
}

/* A program writes a chunk at a time, each a packet while nothing holds them up. Return: reads. */
static unsigned slow_transfer(struct vsock_rig *rig, struct slow_guest *g, int fd)
{
	unsigned reads = 0;
	uint32_t sent = 0;

	for (unsigned i = 0; g->c.fwd_cnt < SLOW_BYTES; i++) {
		uint8_t chunk[450];
		uint32_t len = rf_min_u32(100 + i * 37 % 351, SLOW_BYTES - sent);

		rig_fill(chunk, len, sent);
		if (len && send(fd, chunk, len, MSG_NOSIGNAL) > 0)
			sent += len;
		slow_take(rig, g);
		if (i % 4 == 0 || sent == SLOW_BYTES) {
			slow_read(g);
			reads++;
		}
		rig_warp(rig, RF_NS_PER_MS);
		assert_true(i < 100000);
	}
	return reads;
}

/* libkrun#795: a bulk stream in chunks of 100 to 450 bytes, and a guest that reads slowly. */
static void slow_guest(void **state)
{
	struct vsock_rig *rig = *state;
	static struct slow_guest g;
	int fd;

	memset(&g, 0, sizeof(g));
	rig_start(rig);
	fd = rig_open_from_guest(rig, &g.c, 1000);
	/* What waits goes out in full buffers: fewer packets than chunks. */
	assert_true(slow_transfer(rig, &g, fd) < SLOW_BYTES / 275);
	assert_false(g.dropped || g.reset);
	assert_true(g.requests > 0);
	assert_int_equal(rig_count(rig, "host", "credit_requests"), g.requests);
	assert_true(rig_count(rig, "host", "packet_waits") > 0);
	assert_true(rig_count(rig, "host", "to_guest_data_packets") < SLOW_BYTES / 275 / 2);
	close(fd);
}

/* The same without the bound: both forms of new Linux find too much. */
static void slow_guest_unbounded(void **state)
{
	struct vsock_rig *rig = *state;
	static struct slow_guest g;
	int fd;

	memset(&g, 0, sizeof(g));
	rig->options.switches.packets = false;
	rig_start(rig);
	fd = rig_open_from_guest(rig, &g.c, 1000);
	slow_transfer(rig, &g, fd);
	assert_true(g.dropped && g.reset);
	close(fd);
}

/* A guest that answers nothing, or nothing new, is asked 5 times a second, and costs no more. */
static void silent_guest(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_packet packet;
	struct fake_conn c;
	unsigned asked = 0;
	uint64_t turns;
	int fd;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	for (unsigned i = 0; i < 400; i++) {
		rig_host_write(rig, fd, i * 100, 100);
		rig_idle(rig);
		while (fake_conn_recv(&c, &packet))
			rig_idle(rig);
	}
	turns = rig_count(rig, "host", "turns");
	for (unsigned i = 0; i < 10000; i++) {
		rig_warp(rig, RF_NS_PER_MS);
		while (fake_conn_recv(&c, &packet)) {
			assert_int_equal(packet.hdr.op, CREDIT_REQUEST);
			/* Every other one is answered. */
			if (asked++ % 2)
				fake_conn_control(&c, CREDIT_UPDATE, 0);
			rig_idle(rig);
		}
	}
	/* 2, 4, ... 128 ms, then every 200. */
	assert_in_range(asked, 7 + 47, 7 + 50);
	assert_true(rig_count(rig, "host", "turns") - turns <= 4 * asked);
	assert_int_equal(rig_count(rig, "host", "packet_waits"), 1);
	/* A half-closed one is told, too; a closed one asks nothing. */
	fake_conn_control(&c, SHUTDOWN, RF_VSOCK_SHUT_RCV);
	rig_warp(rig, RF_NS_PER_SEC);
	rig_expect_none(rig);
	fake_conn_control(&c, CREDIT_REQUEST, 0);
	rig_expect(rig, &c, CREDIT_UPDATE);
	rig_expect_none(rig);
	assert_int_equal(rig_count(rig, "host", "credit_requests_answered"), 1);
	close(fd);
}

/* Turns */

/* vsock gitlab issue 1: a bulk stream does not hold up another's few bytes. */
static void small_message_beside_bulk(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn bulk, small;
	struct fake_packet packet;
	uint32_t before = 0, at = 0;
	int fd_bulk, fd_small, size = 1 << 20;

	rig->guest.auto_post = false;
	rig_start(rig);
	fake_guest_post(&rig->guest, 2, 65580, &fake_shape_one);
	fd_bulk = rig_open_from_guest(rig, &bulk, 1000);
	fd_small = rig_open_from_guest(rig, &small, 1001);
	bulk.buf_alloc = UINT32_MAX;
	fake_conn_control(&bulk, CREDIT_UPDATE, 0);
	rig_idle(rig);
	/* More than its share of a turn; any host grants so much. */
	assert_int_equal(setsockopt(fd_bulk, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
	for (unsigned i = 0; i < 4; i++) {
		rig_host_write(rig, fd_bulk, at, 5 * 65536);
		rig_host_write(rig, fd_small, 0, 10);
		at += 5 * 65536;
		/* While both wait for buffers they take turns: now the one, now the other. */
		for (unsigned k = 0; k < i; k++) {
			fake_conn_control(&small, CREDIT_UPDATE, 0);
			rig_idle(rig);
		}
		fake_guest_post(&rig->guest, 6, 65580, &fake_shape_one);
		rig_idle(rig);
		for (uint32_t got = 0; got < 5 * 65536 + 10; got += packet.hdr.len) {
			assert_true(fake_guest_recv(&rig->guest, &packet, NULL));
			if (packet.hdr.dst_port == small.port) {
				assert_true(got <= RF_HOST_CONN_BUDGET_BYTES);
				before += got;
			}
		}
		bulk.fwd_cnt = at;
		fake_conn_control(&bulk, CREDIT_UPDATE, 0);
		rig_idle(rig);
	}
	assert_true(before > 0);
	close(fd_bulk);
	close(fd_small);
}

/* Equal shares for equal senders. */
static void equal_turns(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn conns[4];
	uint32_t got[4] = { 0 };
	int fds[4];

	rig->guest.rx_bytes = 65580;
	rig->guest.num = 32;
	rig_start(rig);
	for (uint32_t i = 0; i < 4; i++) {
		fds[i] = rig_open_from_guest(rig, &conns[i], 1000 + i);
		conns[i].buf_alloc = UINT32_MAX;
		fake_conn_control(&conns[i], CREDIT_UPDATE, 0);
	}
	for (unsigned round = 0; round < 100; round++) {
		struct fake_packet packet;

		for (unsigned i = 0; i < 4; i++) {
			static const uint8_t zeros[65536];

			while (send(fds[i], zeros, sizeof(zeros), MSG_NOSIGNAL) > 0)
				;
		}
		assert_int_equal(rf_loop_turn(rig->loop, 0), 0);
		while (fake_guest_recv(&rig->guest, &packet, NULL)) {
			struct fake_conn *c = &conns[packet.hdr.dst_port - 1000];

			got[packet.hdr.dst_port - 1000] += packet.hdr.len;
			c->fwd_cnt += packet.hdr.len;
			fake_conn_control(c, CREDIT_UPDATE, 0);
		}
	}
	for (unsigned i = 0; i < 4; i++) {
		assert_true(got[i] > 1000000);
		assert_in_range(got[i], got[0] - 2 * RF_HOST_CONN_BUDGET_BYTES,
				got[0] + 2 * RF_HOST_CONN_BUDGET_BYTES);
		close(fds[i]);
	}
}

static void control_before_data(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn bulk, other;
	int fd;

	rig->guest.auto_post = false;
	rig_start(rig);
	fake_guest_post(&rig->guest, 1, 4096, &fake_shape_one);
	fd = rig_open_from_guest(rig, &bulk, 1000);
	rig_host_write(rig, fd, 0, 100000);
	rig_idle(rig);
	fake_conn_init(&other, &rig->guest, 1001, 99);
	fake_conn_control(&other, REQUEST, 0);
	rig_idle(rig);
	fake_guest_post(&rig->guest, 2, 4096, &fake_shape_one);
	rig_expect(rig, &other, RST);
	rig_guest_read(rig, &bulk, 0, 4052);
	close(fd);
}

/* Rest */

/* vhost-device PR 800: connections that have nothing to say cost nothing, whatever their state. */
static void idle_is_idle(void **state)
{
	struct vsock_rig *rig = *state;
	const struct rf_loop_counters *loop = rf_loop_counters(rig->loop);
	struct fake_conn c[6];
	struct fake_packet packet;
	uint64_t turns, events, timers, wakeups;
	int fds[6];

	rig_start(rig);
	for (uint32_t i = 0; i < 6; i++)
		fds[i] = rig_open_from_guest(rig, &c[i], 1000 + i);
	/* 0: nothing. 1: half closed by its program; 2: by the guest; 3: the program does not read;
	 * 4: the guest does not; 5: the program has not been read to its end. */
	shutdown(fds[1], SHUT_WR);
	fake_conn_control(&c[2], SHUTDOWN, RF_VSOCK_SHUT_SEND);
	for (unsigned i = 0; i < 4; i++)
		rig_guest_send(&c[3], 0, 65536);
	rig_host_write(rig, fds[4], 0, 262144);
	rig_idle(rig);
	rig_host_write(rig, fds[4], 262144, 100000);
	/* It would be asked now and then, if it had not said that it has no room. */
	c[4].buf_alloc = 0;
	fake_conn_control(&c[4], CREDIT_UPDATE, 0);
	c[5].buf_alloc = 0;
	fake_conn_control(&c[5], CREDIT_UPDATE, 0);
	rig_idle(rig);
	rig_host_write(rig, fds[5], 0, 10);
	close(fds[5]);
	rig_idle(rig);
	rig_warp(rig, 2 * RF_NS_PER_SEC);
	while (fake_guest_recv(&rig->guest, &packet, NULL))
		rig_idle(rig);

	turns = rig_count(rig, "host", "turns");
	events = rf_counter_read(&loop->loop_events);
	timers = rf_counter_read(&loop->loop_timers);
	wakeups = rf_counter_read(&loop->loop_wakeups);
	/* The one that wakes up is the end of this wait. */
	assert_int_equal(rf_loop_turn(rig->loop, 200), 0);
	assert_int_equal(rf_counter_read(&loop->loop_wakeups), wakeups + 1);
	/* Nor will they ever. */
	rig_warp(rig, 3600 * RF_NS_PER_SEC);
	assert_int_equal(rig_count(rig, "host", "turns"), turns);
	assert_int_equal(rf_counter_read(&loop->loop_events), events);
	/* One look at the guest's memory, a second after its start. */
	assert_in_range(rf_counter_read(&loop->loop_timers), timers, timers + 1);
	assert_int_equal(rig_connections(rig), 6);
	for (unsigned i = 0; i < 5; i++)
		close(fds[i]);
}

static const struct CMUnitTest tests[] = {
	RIG_TEST(buffers_too_small),
	RIG_TEST(flood_of_small_buffers),
	RIG_TEST(one_read_for_many_buffers),
	RIG_TEST(one_packet_per_read),
	RIG_TEST(room_follows_what_comes),
	RIG_TEST(no_buffers),
	RIG_TEST(credit_is_kept),
	RIG_TEST(peer_shrinks_its_buffer),
	RIG_TEST(peer_offers_too_much),
	RIG_TEST(peer_lies_about_credit),
	RIG_TEST(end_behind_a_full_window),
	RIG_TEST(slow_guest),
	RIG_TEST(slow_guest_unbounded),
	RIG_TEST(silent_guest),
	RIG_TEST(small_message_beside_bulk),
	RIG_TEST(equal_turns),
	RIG_TEST(control_before_data),
	RIG_TEST(idle_is_idle),
};

int main(void)
{
	static struct rig_group group;

	rig_group_add_rows(&group, any_buffer, buffer_rows, RF_ARRAY_SIZE(buffer_rows),
			   sizeof(buffer_rows[0]));
	rig_group_add(&group, tests, RF_ARRAY_SIZE(tests));
	return rig_group_run(&group, "to-guest");
}
