/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The guest's transmit ring: packets that are wrong, and more than can be answered.
 */
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "vsock/limits.h"
#include "vsock_rig.h"

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
	{ "CREDIT_REQUEST for nobody", FAKE_CID, 2, 0, 0, STREAM, CREDIT_REQUEST, true, "resets" },
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

/* For a connection that exists: dropped, and it goes on (faults.md V31). */
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

/* CVE-2026-53132: packets without payload take no room, however many there are. */
static void empty_data(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fd;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	for (unsigned i = 0; i < 1000; i++) {
		fake_conn_put(&c, "", 0, &fake_shape_one);
		fake_guest_kick(&rig->guest, FAKE_TX);
		if (i % 100 == 99)
			rig_expect_none(rig);
	}
	rig_host_quiet(fd);
	assert_int_equal(rig_count(rig, "host", "from_guest_sends"), 0);
	rig_works(rig, &c, fd, 0);
	close(fd);
}

/* SHUTDOWN of nothing, or of what has no meaning. */
static void empty_shutdown(void **state)
{
	static const uint32_t flags[] = { 0, 4, UINT32_MAX - 3 };
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fd;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	for (uint32_t i = 0; i < RF_ARRAY_SIZE(flags); i++) {
		fake_conn_control(&c, SHUTDOWN, flags[i]);
		rig_works(rig, &c, fd, 100 * i);
	}
	/* Hints stay: one bit at a time makes both. */
	fake_conn_control(&c, SHUTDOWN, RF_VSOCK_SHUT_SEND);
	rig_expect_none(rig);
	fake_conn_control(&c, SHUTDOWN, RF_VSOCK_SHUT_RCV);
	rig_expect(rig, &c, RST);
	rig_host_eof(fd);
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

static const struct CMUnitTest tests[] = {
	RIG_TEST(lie_about_length),
	RIG_TEST(bytes_behind_the_packet),
	RIG_TEST(empty_data),
	RIG_TEST(empty_shutdown),
	RIG_TEST(shorter_than_a_header),
	RIG_TEST(log_is_limited),
	RIG_TEST(flood_without_buffers),
	RIG_TEST(requests_without_buffers),
	RIG_TEST(without_event_idx),
};

int main(void)
{
	static struct rig_group group;

	rig_group_add_rows(&group, wrong_packet, wrong_rows, RF_ARRAY_SIZE(wrong_rows),
			   sizeof(wrong_rows[0]));
	rig_group_add(&group, tests, RF_ARRAY_SIZE(tests));
	return rig_group_run(&group, "from-guest-wrong");
}
