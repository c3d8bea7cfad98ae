/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The guest's transmit ring: packets of every shape, right and wrong, their way to the host
 * programs, and the credit that the guest is given for it.
 */
#include <assert.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "prng.h"
#include "vsock/limits.h"
#include "vsock_rig.h"

#define REQUEST       VIRTIO_VSOCK_OP_REQUEST
#define RESPONSE      VIRTIO_VSOCK_OP_RESPONSE
#define RST           VIRTIO_VSOCK_OP_RST
#define SHUTDOWN      VIRTIO_VSOCK_OP_SHUTDOWN
#define RW            VIRTIO_VSOCK_OP_RW
#define CREDIT_UPDATE VIRTIO_VSOCK_OP_CREDIT_UPDATE

/* Shapes of packets */

static void put(struct fake_conn *c, uint64_t offset, uint32_t bytes,
		const struct fake_shape *shape)
{
	static uint8_t buf[FAKE_SLOT_BYTES];

	rig_fill(buf, bytes, offset);
	fake_conn_put(c, buf, bytes, shape);
}

/*
 * libkrun #535 and #674, cloud-hypervisor #7672, vhost-device #934, vm-virtio #204: sizes around
 * those at which Linux begins to split, headers with and without payload in their descriptor.
 */
static void any_shape(void **state)
{
	static const uint32_t sizes[] = { 1, 43, 44, 45, 4052, 4096, 32767, 32768, 32769, 65536 };
	const struct fake_shape *shape = *state;
	struct vsock_rig *rig;
	struct fake_conn c;
	uint64_t offset = 0;
	int fd;

	rig_setup(state);
	rig = *state;
	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	for (size_t i = 0; i < RF_ARRAY_SIZE(sizes); i++) {
		put(&c, offset, sizes[i], shape);
		fake_guest_kick(&rig->guest, FAKE_TX);
		rig_skip_updates(rig, &c);
		rig_host_read(fd, offset, sizes[i]);
		offset += sizes[i];
	}
	assert_int_equal(rig_count(rig, "host", "bounced_bytes"), 0);
	assert_int_equal(rig_count(rig, "host", "from_guest_bytes"), offset);
	close(fd);
	rig_teardown(state);
}

static void mixed_shapes_in_one_burst(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	uint64_t seed = 1, read = 0;
	int fd;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	for (unsigned round = 0; round < 200; round++) {
		uint64_t sent = read;

		for (unsigned i = 0; i < 8; i++) {
			uint32_t bytes = 1 + prng_below(&seed, 2000);

			put(&c, sent, bytes, &fake_shapes[prng_below(&seed, fake_n_shapes)]);
			sent += bytes;
		}
		fake_guest_kick(&rig->guest, FAKE_TX);
		rig_skip_updates(rig, &c);
		rig_host_read(fd, read, sent - read);
		read = sent;
	}
	close(fd);
}

/* Every piece of a packet in a piece of its own, and a packet larger than Linux ever sends. */
static void extreme_packets(void **state)
{
	static const struct fake_shape bytes = { .each = 1 };
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fd;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	put(&c, 0, 80, &bytes);
	put(&c, 80, 98305, &fake_shape_two);
	put(&c, 98385, 10, &fake_shape_one);
	fake_guest_kick(&rig->guest, FAKE_TX);
	rig_skip_updates(rig, &c);
	rig_host_read(fd, 0, 98395);
	close(fd);
}

/* More pieces in one burst than one system call takes. */
static void burst_of_many_pieces(void **state)
{
	static const struct fake_shape shape = { .each = 37, .indirect = true };
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fd;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	for (unsigned i = 0; i < 64; i++)
		put(&c, i * 3000u, 3000, &shape);
	fake_guest_kick(&rig->guest, FAKE_TX);
	rig_skip_updates(rig, &c);
	rig_host_read(fd, 0, 64 * 3000u);
	assert_int_equal(rig_count(rig, "host", "from_guest_sent_packets"), 64);
	close(fd);
}

/* Bursts */

static void burst_is_merged(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn a, b;
	int fd_a, fd_b;

	rig_start(rig);
	fd_a = rig_open_from_guest(rig, &a, 1000);
	fd_b = rig_open_from_guest(rig, &b, 1001);
	/* Of two connections, in turns. */
	for (unsigned i = 0; i < 40; i++) {
		put(&a, i * 64u, 64, &fake_shape_one);
		put(&b, i * 64u, 64, &fake_shape_two);
	}
	fake_guest_kick(&rig->guest, FAKE_TX);
	rig_idle(rig);
	rig_host_read(fd_a, 0, 40 * 64);
	rig_host_read(fd_b, 0, 40 * 64);
	assert_int_equal(rig_count(rig, "host", "from_guest_sent_packets"), 80);
	assert_int_equal(rig_count(rig, "host", "from_guest_sends"), 2);
	close(fd_a);
	close(fd_b);
}

static void merge_off(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fd;

	rig->options.switches.merge = false;
	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	for (unsigned i = 0; i < 100; i++)
		put(&c, i * 64u, 64, &fake_shape_one);
	fake_guest_kick(&rig->guest, FAKE_TX);
	rig_idle(rig);
	rig_host_read(fd, 0, 100 * 64);
	assert_int_equal(rig_count(rig, "host", "from_guest_sent_packets"), 100);
	assert_int_equal(rig_count(rig, "host", "from_guest_sends"), 100);
	close(fd);
}

/* What comes before an end in the same burst is delivered before it. */
static void data_and_end_in_one_burst(void **state)
{
	static const struct {
		uint16_t op;
		uint32_t flags;
	} ends[] = {
		{ SHUTDOWN, RF_VSOCK_SHUT_SEND },
		{ SHUTDOWN, RF_VSOCK_SHUT_BOTH },
		{ RST, 0 },
		/* Breaks a rule. */
		{ RESPONSE, 0 },
	};
	struct vsock_rig *rig = *state;

	rig_start(rig);
	for (uint32_t i = 0; i < RF_ARRAY_SIZE(ends); i++) {
		struct rf_vsock_hdr hdr;
		struct fake_conn c;
		int fd = rig_open_from_guest(rig, &c, 1000 + i);

		put(&c, 0, 1000, &fake_shape_one);
		put(&c, 1000, 1000, &fake_shape_one);
		hdr = fake_conn_hdr(&c, ends[i].op, 0);
		hdr.flags = ends[i].flags;
		fake_guest_put(&rig->guest, &hdr, NULL, 0, &fake_shape_one);
		fake_guest_kick(&rig->guest, FAKE_TX);
		rig_idle(rig);
		rig_host_read(fd, 0, 2000);
		rig_host_eof(fd);
		close(fd);
		rig_idle(rig);
		if (ends[i].flags == RF_VSOCK_SHUT_SEND) {
			rig_expect(rig, &c, SHUTDOWN);
			fake_conn_control(&c, RST, 0);
		} else if (ends[i].op != RST) {
			rig_expect(rig, &c, RST);
		}
	}
	rig_expect_none(rig);
	assert_int_equal(rig_connections(rig), 0);
}

/* Readers, fast and slow */

/* What the guest is told of what was passed on. */
static uint32_t told_fwd_cnt(struct vsock_rig *rig, struct fake_conn *c)
{
	rig_skip_updates(rig, c);
	fake_conn_control(c, VIRTIO_VSOCK_OP_CREDIT_REQUEST, 0);
	return rig_expect_hdr(rig, c, CREDIT_UPDATE).fwd_cnt;
}

static uint32_t waiting_in(int fd)
{
	int n;

	assert_int_equal(ioctl(fd, FIONREAD, &n), 0);
	return (uint32_t)n;
}

static void reader_keeps_up(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	uint32_t sent = 0, read = 0;
	int fd;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	while (read < (16u << 20)) {
		while (fake_conn_space(&c) >= 65536) {
			rig_guest_send(&c, sent, 65536);
			sent += 65536;
		}
		rig_skip_updates(rig, &c);
		rig_host_read(fd, read, sent - read);
		read = sent;
	}
	assert_int_equal(rig_count(rig, "host", "bounced_bytes"), 0);
	close(fd);
}

/* libkrun #772: 2 MiB and more to a reader that pauses: buffered, not lost, told when written. */
static void slow_reader(void **state)
{
	static const uint32_t window = 3u << 20;
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	uint32_t sent = 0, read = 0, most = 0;
	uint64_t seed = 7;
	int fd;

	rig->options.window = window;
	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	while (read < 4 * window) {
		uint32_t want = 1 + prng_below(&seed, 200000), there;

		for (;;) {
			uint32_t bytes = 1 + prng_below(&seed, 60000);

			if (fake_conn_space(&c) < bytes)
				break;
			rig_guest_send(&c, sent, bytes);
			sent += bytes;
			rig_skip_updates(rig, &c);
		}
		there = waiting_in(fd);
		assert_int_equal(told_fwd_cnt(rig, &c), read + there);
		most = there > most ? there : most;
		want = want < there ? want : there;
		rig_host_read(fd, read, want);
		read += want;
		rig_skip_updates(rig, &c);
	}
	/* It did have to wait, and the socket did not hold the whole window. */
	assert_true(rig_count(rig, "host", "bounced_bytes") > window);
	assert_true(most < window);
	close(fd);
}

/* One that does not read holds up its own connection alone. */
static void stuck_reader(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn stuck, c;
	int fd_stuck, fd;

	rig_start(rig);
	fd_stuck = rig_open_from_guest(rig, &stuck, 1000);
	fd = rig_open_from_guest(rig, &c, 1001);
	while (fake_conn_space(&stuck)) {
		rig_guest_send(&stuck, 0, rf_min_u32(fake_conn_space(&stuck), 65536));
		rig_skip_updates(rig, &stuck);
	}
	for (uint32_t at = 0; at < 1000000; at += 50000) {
		rig_guest_send(&c, at, 50000);
		rig_skip_updates(rig, &c);
		rig_host_read(fd, at, 50000);
	}
	close(fd);
	close(fd_stuck);
}

/* Credit */

static void credit_overrun(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c, bystander;
	int fd, other;

	rig->options.window = RF_VSOCK_WINDOW_MIN;
	rig_start(rig);
	other = rig_open_from_guest(rig, &bystander, 999);
	fd = rig_open_from_guest(rig, &c, 1000);
	/* Exactly all of it is right, and given back. */
	rig_guest_send(&c, 0, RF_VSOCK_WINDOW_MIN);
	rig_expect(rig, &c, CREDIT_UPDATE);
	rig_guest_send(&c, RF_VSOCK_WINDOW_MIN, RF_VSOCK_WINDOW_MIN + 1);
	rig_expect(rig, &c, RST);
	assert_int_equal(rig_count(rig, "ended", "credit_overrun"), 1);
	rig_host_read(fd, 0, RF_VSOCK_WINDOW_MIN);
	rig_host_eof(fd);
	rig_guest_send(&bystander, 0, 100);
	rig_idle(rig);
	rig_host_read(other, 0, 100);
	close(fd);
	close(other);
}

/* vhost-device #317: a few updates per window, however small the packets are. */
static void few_credit_updates(void **state)
{
	struct vsock_rig *rig = *state;
	uint32_t sent = 0, windows = 20, updates = 0;
	struct fake_conn c;
	int fd;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	while (sent < windows * RF_VSOCK_WINDOW_DEFAULT) {
		uint32_t bytes = 1000;

		assert_true(fake_conn_space(&c) >= bytes);
		rig_guest_send(&c, sent, bytes);
		updates += rig_skip_updates(rig, &c);
		rig_host_read(fd, sent, bytes);
		sent += bytes;
	}
	assert_in_range(updates, windows, 4 * windows);
	assert_int_equal(rig_count(rig, "host", "credit_updates"), updates);
	close(fd);
}

static void eager_credit(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fd;

	rig->options.switches.credit = 1;
	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	for (uint32_t i = 0; i < 50; i++) {
		rig_guest_send(&c, i, 1);
		assert_int_equal(rig_expect_hdr(rig, &c, CREDIT_UPDATE).fwd_cnt, i + 1);
		rig_expect_none(rig);
	}
	rig_host_read(fd, 0, 50);
	close(fd);
}

/* What is told with data need not be told again. */
static void data_carries_credit(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fd;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	for (uint32_t at = 0; at < 2000000; at += 40000) {
		rig_guest_send(&c, at, 40000);
		rig_skip_updates(rig, &c);
		rig_host_read(fd, at, 40000);
		rig_host_write(rig, fd, at / 40000, 1);
		rig_guest_read(rig, &c, at / 40000, 1);
		assert_int_equal(c.peer_fwd_cnt, at + 40000);
	}
	assert_int_equal(rig_count(rig, "host", "credit_updates"), 0);
	close(fd);
}

/* hyperkit PR 28: a connection that is half closed still tells of credit. */
static void credit_after_half_close(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	uint32_t updates = 0;
	int fd;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	shutdown(fd, SHUT_WR);
	rig_expect(rig, &c, SHUTDOWN);
	for (uint32_t at = 0; at < 1000000; at += 50000) {
		assert_true(fake_conn_space(&c) >= 50000);
		rig_guest_send(&c, at, 50000);
		updates += rig_skip_updates(rig, &c);
		rig_host_read(fd, at, 50000);
	}
	assert_true(updates > 0);
	close(fd);
}

/* Packets that are wrong */

struct wrong_row {
	const char *name;
	uint64_t src, dst;
	uint32_t len;
	uint32_t bytes;
	uint16_t type, op;
	bool reset;
	const char *counter;
};

#define STREAM VIRTIO_VSOCK_TYPE_STREAM
#define HIGH   (UINT64_C(1) << 32)

static const struct wrong_row wrong_rows[] = {
	{ "spoofed source", FAKE_CID + 1, 2, 0, 0, STREAM, REQUEST, false, "foreign_packets" },
	{ "source of more than 32 bits", FAKE_CID + HIGH, 2, 0, 0, STREAM, REQUEST, false,
	  "foreign_packets" },
	{ "another guest", FAKE_CID, 5, 0, 0, STREAM, REQUEST, false, "foreign_packets" },
	{ "to itself", FAKE_CID, FAKE_CID, 0, 0, STREAM, RW, false, "foreign_packets" },
	{ "destination of more than 32 bits", FAKE_CID, 2 + HIGH, 0, 0, STREAM, REQUEST, false,
	  "foreign_packets" },
	{ "hypervisor", FAKE_CID, 0, 0, 0, STREAM, REQUEST, false, "foreign_packets" },
	{ "any", FAKE_CID, UINT32_MAX, 0, 0, STREAM, REQUEST, false, "foreign_packets" },
	{ "SEQPACKET", FAKE_CID, 2, 0, 0, VIRTIO_VSOCK_TYPE_SEQPACKET, REQUEST, true, "resets" },
	{ "type 0", FAKE_CID, 2, 0, 0, 0, REQUEST, true, "resets" },
	{ "unknown type, data", FAKE_CID, 2, 10, 10, 77, RW, true, "resets" },
	{ "unknown type, RST", FAKE_CID, 2, 0, 0, 77, RST, false, "foreign_packets" },
	{ "data for nobody", FAKE_CID, 2, 10, 10, STREAM, RW, true, "resets" },
	{ "RESPONSE for nobody", FAKE_CID, 2, 0, 0, STREAM, RESPONSE, true, "resets" },
	{ "SHUTDOWN for nobody", FAKE_CID, 2, 0, 0, STREAM, SHUTDOWN, true, "resets" },
	{ "CREDIT_UPDATE for nobody", FAKE_CID, 2, 0, 0, STREAM, CREDIT_UPDATE, true, "resets" },
	{ "CREDIT_REQUEST for nobody", FAKE_CID, 2, 0, 0, STREAM, VIRTIO_VSOCK_OP_CREDIT_REQUEST,
	  true, "resets" },
	{ "unknown operation for nobody", FAKE_CID, 2, 0, 0, STREAM, 99, true, "resets" },
	{ "RST for nobody", FAKE_CID, 2, 0, 0, STREAM, RST, false, NULL },
	{ "longer than its buffer (CVE-2025-39718)", FAKE_CID, 2, 11, 10, STREAM, RW, false,
	  "bad_packets" },
	{ "longer than anything", FAKE_CID, 2, UINT32_MAX, 10, STREAM, RW, false, "bad_packets" },
	{ "control packet that claims a payload", FAKE_CID, 2, 1, 0, STREAM, REQUEST, false,
	  "bad_packets" },
};

static void wrong_packet(void **state)
{
	const struct wrong_row *row = *state;
	struct rf_vsock_hdr hdr = {
		.src_cid = row->src,
		.dst_cid = row->dst,
		.src_port = 1,
		.dst_port = 2,
		.len = row->len,
		.type = row->type,
		.op = row->op,
		.buf_alloc = 4096,
	};
	struct vsock_rig *rig;
	struct fake_packet packet;
	uint8_t data[16] = { 0 };

	rig_setup(state);
	rig = *state;
	rig_start(rig);
	fake_guest_send(&rig->guest, &hdr, data, row->bytes, &fake_shape_one);
	rig_idle(rig);
	if (row->reset) {
		assert_true(fake_guest_recv(&rig->guest, &packet, NULL));
		assert_int_equal(packet.hdr.op, RST);
		assert_int_equal(packet.hdr.src_cid, row->dst);
		assert_int_equal(packet.hdr.dst_cid, row->src);
		assert_int_equal(packet.hdr.src_port, 2);
		assert_int_equal(packet.hdr.dst_port, 1);
		assert_int_equal(packet.hdr.type, row->type);
	}
	rig_expect_none(rig);
	if (row->counter)
		assert_int_equal(rig_count(rig, "host", row->counter), 1);
	assert_int_equal(fake_guest_unsent(&rig->guest), 0);
	assert_int_equal(rig_connections(rig), 0);
	rig_teardown(state);
}

/* For a connection that exists: dropped, and it goes on (vsock.md: socket state unchanged). */
static void lie_about_length(void **state)
{
	struct vsock_rig *rig = *state;
	struct rf_vsock_hdr hdr;
	struct fake_conn c;
	int fd;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	rig_guest_send(&c, 0, 100);
	hdr = fake_conn_hdr(&c, RW, 101);
	fake_guest_send(&rig->guest, &hdr, "x", 1, &fake_shape_one);
	rig_guest_send(&c, 100, 100);
	rig_expect_none(rig);
	rig_host_read(fd, 0, 200);
	assert_int_equal(rig_count(rig, "host", "bad_packets"), 1);
	close(fd);
}

/* Bytes of a buffer beyond the packet mean nothing (virtio 1.2 5.10.6). */
static void bytes_behind_the_packet(void **state)
{
	struct vsock_rig *rig = *state;
	struct rf_vsock_hdr hdr;
	struct fake_conn c;
	uint8_t data[200];
	int fd;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	for (size_t i = 0; i < fake_n_shapes; i++) {
		rig_fill(data, sizeof(data), i * 100);
		hdr = fake_conn_hdr(&c, RW, 100);
		c.tx_cnt += 100;
		fake_guest_send(&rig->guest, &hdr, data, sizeof(data), &fake_shapes[i]);
		rig_expect_none(rig);
		rig_host_read(fd, i * 100, 100);
	}
	close(fd);
}

/* CVE-2022-2132 is the like for a network back end. */
static void shorter_than_a_header(void **state)
{
	static const uint32_t lengths[] = { 1, 20, 43 };
	static const uint8_t zeros[64];
	struct vsock_rig *rig = *state;

	rig_start(rig);
	for (size_t i = 0; i < RF_ARRAY_SIZE(lengths); i++) {
		fake_guest_put_raw(&rig->guest, zeros, lengths[i], &fake_shape_one);
		fake_guest_kick(&rig->guest, FAKE_TX);
		rig_expect_none(rig);
		assert_int_equal(rig_count(rig, "host", "bad_packets"), i + 1);
		assert_int_equal(fake_guest_unsent(&rig->guest), 0);
	}
	assert_non_null(strstr(rig->text, "shorter than its header"));
}

/* A guest cannot flood the log. */
static void log_is_limited(void **state)
{
	static const uint8_t zeros[64];
	struct vsock_rig *rig = *state;
	unsigned lines = 0;

	rig_start(rig);
	for (unsigned i = 0; i < 1000; i++) {
		fake_guest_put_raw(&rig->guest, zeros, 10, &fake_shape_one);
		fake_guest_kick(&rig->guest, FAKE_TX);
		if (i % 100 == 99)
			rig_idle(rig);
	}
	assert_int_equal(rig_count(rig, "host", "bad_packets"), 1000);
	for (const char *p = rig->text; (p = strchr(p, '\n')); p++)
		lines++;
	assert_in_range(lines, 1, 10);
}

/* Back-pressure */

#define FLOOD 1000

/* The RSTs of a flood, numbered by port: all of them, in order. */
static void expect_resets(struct vsock_rig *rig, uint32_t *next, uint32_t n)
{
	struct fake_packet packet;

	rig_idle(rig);
	for (; n; n--) {
		assert_true(fake_guest_recv(&rig->guest, &packet, NULL));
		assert_int_equal(packet.hdr.op, RST);
		assert_int_equal(packet.hdr.dst_port, (*next)++);
	}
	rig_expect_none(rig);
}

static void flood_without_buffers(void **state)
{
	struct vsock_rig *rig = *state;
	uint32_t next = 0;
	uint64_t turns;

	rig->guest.num = 1024;
	rig->guest.auto_post = false;
	rig_start(rig);
	for (uint32_t i = 0; i < FLOOD; i++) {
		struct fake_conn c;

		fake_conn_init(&c, &rig->guest, i, 99);
		fake_conn_put(&c, "", 1, &fake_shape_one);
	}
	fake_guest_kick(&rig->guest, FAKE_TX);
	rig_idle(rig);
	assert_int_equal(fake_guest_unsent(&rig->guest), FLOOD - RF_VSOCK_RESETS);
	/* It sleeps now, and a kick does not change that. */
	turns = rig_count(rig, "host", "turns");
	for (unsigned i = 0; i < 20; i++) {
		rf_eventfd_signal(rig->guest.rings[FAKE_TX].kick);
		rig_idle(rig);
	}
	assert_in_range(rig_count(rig, "host", "turns") - turns, 1, 20);
	assert_true(rig_count(rig, "host", "back_pressure") > 0);
	/* As many as there are buffers for. */
	fake_guest_post(&rig->guest, 10, 4096, &fake_shape_one);
	expect_resets(rig, &next, 10);
	assert_int_equal(fake_guest_unsent(&rig->guest), FLOOD - RF_VSOCK_RESETS - 10);
	fake_guest_post(&rig->guest, 1, 4096, &fake_shape_one);
	expect_resets(rig, &next, 1);
	fake_guest_post(&rig->guest, 1000, 4096, &fake_shape_one);
	expect_resets(rig, &next, FLOOD - 11);
	assert_int_equal(fake_guest_unsent(&rig->guest), 0);
}

/* Nor do refused connections pile up: each is a connection until its RST is sent. */
static void requests_without_buffers(void **state)
{
	struct vsock_rig *rig = *state;
	uint32_t next = 0;

	rig->guest.num = 1024;
	rig->guest.auto_post = false;
	rig->options.max_conns = 100;
	rig_start(rig);
	for (uint32_t i = 0; i < FLOOD; i++) {
		struct fake_conn c;
		struct rf_vsock_hdr hdr;

		fake_conn_init(&c, &rig->guest, i, 99);
		hdr = fake_conn_hdr(&c, REQUEST, 0);
		fake_guest_put(&rig->guest, &hdr, NULL, 0, &fake_shape_one);
	}
	fake_guest_kick(&rig->guest, FAKE_TX);
	rig_idle(rig);
	assert_int_equal(rig_connections(rig), 100);
	assert_int_equal(fake_guest_unsent(&rig->guest), FLOOD - 100 - RF_VSOCK_RESETS);
	fake_guest_post(&rig->guest, 1024, 4096, &fake_shape_one);
	for (next = 0; next < FLOOD; next++) {
		struct fake_packet packet;

		rig_idle(rig);
		assert_true(fake_guest_recv(&rig->guest, &packet, NULL));
		assert_int_equal(packet.hdr.op, RST);
	}
	assert_int_equal(rig_connections(rig), 0);
	assert_int_equal(fake_guest_unsent(&rig->guest), 0);
}

/* Without event index, kicks are suppressed by a flag instead. */
static void without_event_idx(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fd;

	rig->guest.features = UINT64_C(1) << 32;
	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	for (uint32_t at = 0; at < 3000000; at += 30000) {
		rig_guest_send(&c, at, 30000);
		rig_skip_updates(rig, &c);
		rig_host_read(fd, at, 30000);
		rig_host_write(rig, fd, at, 20000);
		rig_guest_read(rig, &c, at, 20000);
		fake_conn_control(&c, CREDIT_UPDATE, 0);
	}
	close(fd);
}

#define TEST(name)                                         \
	{                                                  \
#name, name, rig_setup, rig_teardown, NULL \
	}

static const struct CMUnitTest tests[] = {
	TEST(mixed_shapes_in_one_burst),
	TEST(extreme_packets),
	TEST(burst_of_many_pieces),
	TEST(burst_is_merged),
	TEST(merge_off),
	TEST(data_and_end_in_one_burst),
	TEST(reader_keeps_up),
	TEST(slow_reader),
	TEST(stuck_reader),
	TEST(credit_overrun),
	TEST(few_credit_updates),
	TEST(eager_credit),
	TEST(data_carries_credit),
	TEST(credit_after_half_close),
	TEST(lie_about_length),
	TEST(bytes_behind_the_packet),
	TEST(shorter_than_a_header),
	TEST(log_is_limited),
	TEST(flood_without_buffers),
	TEST(requests_without_buffers),
	TEST(without_event_idx),
};

int main(void)
{
	struct CMUnitTest all[128];
	size_t n = 0;

	assert(RF_ARRAY_SIZE(tests) + fake_n_shapes + RF_ARRAY_SIZE(wrong_rows) <=
	       RF_ARRAY_SIZE(all));
	for (size_t i = 0; i < fake_n_shapes; i++)
		all[n++] = (struct CMUnitTest){ fake_shapes[i].name, any_shape, NULL, NULL,
						(void *)(uintptr_t)&fake_shapes[i] };
	for (size_t i = 0; i < RF_ARRAY_SIZE(tests); i++)
		all[n++] = tests[i];
	for (size_t i = 0; i < RF_ARRAY_SIZE(wrong_rows); i++)
		all[n++] = (struct CMUnitTest){ wrong_rows[i].name, wrong_packet, NULL, NULL,
						(void *)(uintptr_t)&wrong_rows[i] };
	return _cmocka_run_group_tests("from-guest", all, n, NULL, NULL);
}
