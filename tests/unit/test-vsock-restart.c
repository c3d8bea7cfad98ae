/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rings that stop and start: a guest that was paused goes on, any other is another guest.
 */
#include <errno.h>
#include <linux/virtio_ring.h>
#include <unistd.h>

#include "base/fd.h"
#include "vhost/message.h"
#include "vsock/limits.h"
#include "vsock_rig.h"

/* Pause, or another guest */

struct restart_row {
	const char *name;
	unsigned first_stopped, first_started;
	bool blank[2];
};

static const struct restart_row restart_rows[] = {
	{ "pause, rings in order", 0, 0, { false, false } },
	{ "pause, stopped in order, started in reverse", 0, 1, { false, false } },
	{ "pause, stopped in reverse, started in order", 1, 0, { false, false } },
	{ "pause, rings in reverse", 1, 1, { false, false } },
	{ "reboot", 0, 0, { true, true } },
	{ "reboot, started in reverse", 0, 1, { true, true } },
	{ "receive ring anew", 0, 0, { true, false } },
	{ "receive ring anew, started last", 0, 1, { true, false } },
	{ "transmit ring anew", 0, 0, { false, true } },
	{ "transmit ring anew, started first", 1, 1, { false, true } },
};

/* The guest goes on where it was, and so does all that was under way. */
static void expect_paused(struct vsock_rig *rig, struct fake_conn *c, int fd, int fd_asked)
{
	struct fake_packet packet;
	unsigned requests = 0;

	rig_idle(rig);
	rig_host_read(fd, 0, 1100);
	while (fake_guest_recv(&rig->guest, &packet, NULL)) {
		if (packet.hdr.op == REQUEST) {
			requests++;
		} else {
			assert_int_equal(packet.hdr.op, RW);
			rig_check(packet.data, packet.hdr.len, c->rx_cnt);
			c->rx_cnt += packet.hdr.len;
		}
		rig_idle(rig);
	}
	assert_int_equal(c->rx_cnt, 5000);
	c->fwd_cnt = c->rx_cnt;
	assert_int_equal(requests, 1);
	rig_works(rig, c, fd, 5000);
	assert_int_equal(rig_count(rig, "host", "device_resets"), 0);
	rig_host_quiet(fd_asked);
	close(fd);
	close(fd_asked);
}

static void expect_rebooted(struct vsock_rig *rig, int fd, int fd_asked)
{
	/* What came in before is still delivered; what it wrote itself was lost, and it learns so.
	 */
	rig_idle(rig);
	rig_host_read(fd, 0, 1000);
	rig_host_reset(fd);
	rig_host_eof(fd_asked);
	assert_int_equal(rig_connections(rig), 0);
	assert_int_equal(rig_count(rig, "host", "device_resets"), 1);
	assert_int_equal(rig_count(rig, "ended", "transport_reset"), 2);
	close(fd);
	close(fd_asked);
	if (rig->guest.rings[FAKE_RX].added == 0)
		fake_guest_post(&rig->guest, 100, 4096, &fake_shape_one);
}

static void restart(void **state)
{
	const struct restart_row *row = *state;
	bool reboot = row->blank[0] || row->blank[1];
	struct vsock_rig *rig;
	struct fake_conn c;
	uint16_t base[2];
	int fd, fd_asked;

	rig_setup(state);
	rig = *state;
	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	rig_guest_send(&c, 0, 1000);
	rig_idle(rig);
	for (unsigned i = 0; i < 2; i++) {
		unsigned ring = row->first_stopped ^ i;

		base[ring] = fake_guest_stop(&rig->guest, ring);
		assert_int_not_equal(base[ring], 0);
	}
	/* Bytes of both sides, and a host program's wish, while nothing runs. */
	rig_host_write(rig, fd, 0, 5000);
	if (!row->blank[FAKE_TX])
		rig_guest_send(&c, 1000, 100);
	fd_asked = rig_ask(rig, RIG_PORT);
	for (unsigned i = 0; i < 2; i++) {
		unsigned ring = row->first_started ^ i;

		if (row->blank[ring])
			fake_guest_start_blank(&rig->guest, ring);
		else
			fake_guest_start_at(&rig->guest, ring, base[ring]);
	}
	if (reboot)
		expect_rebooted(rig, fd, fd_asked);
	else
		expect_paused(rig, &c, fd, fd_asked);
	rig_drop_packets(rig);
	rig_new_works(rig, 2000);
	rig_teardown(state);
}

/* Firecracker #5969: a packet that was put onto the ring before it was started is taken. */
static void started_with_packets(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;

	rig_start(rig);
	(void)fake_guest_stop(&rig->guest, FAKE_TX);
	fake_conn_init(&c, &rig->guest, 1000, RIG_PORT);
	fake_conn_control(&c, REQUEST, 0);
	(void)fake_guest_signalled(rig->guest.rings[FAKE_TX].kick);
	fake_guest_start_at(&rig->guest, FAKE_TX, rig->guest.rings[FAKE_TX].base);
	rig_expect(rig, &c, RST);
}

/* Time goes on while the guest is paused. */
static void timeouts_while_paused(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fd, fd_asked;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	(void)fake_guest_stop(&rig->guest, FAKE_RX);
	(void)fake_guest_stop(&rig->guest, FAKE_TX);
	fd_asked = rig_ask(rig, RIG_PORT);
	rig_warp(rig, RF_VSOCK_HANDSHAKE_NS + RF_NS_PER_MS);
	rig_host_eof(fd_asked);
	rig_host_quiet(fd);
	assert_int_equal(rig_connections(rig), 1);
	fake_guest_start_at(&rig->guest, FAKE_RX, rig->guest.rings[FAKE_RX].base);
	fake_guest_start_at(&rig->guest, FAKE_TX, rig->guest.rings[FAKE_TX].base);
	rig_works(rig, &c, fd, 0);
	close(fd);
	close(fd_asked);
}

/* cloud-hypervisor pauses its guest by disabling the rings, and stops none. */
static void paused_by_disabling(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fd;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	for (uint32_t i = 0; i < 5; i++) {
		fake_guest_message_state(&rig->guest, RF_VU_SET_VRING_ENABLE, i % 2, 0);
		fake_guest_message_state(&rig->guest, RF_VU_SET_VRING_ENABLE, !(i % 2), 0);
		rig_idle(rig);
		rig_guest_send(&c, 1000 * i, 1000);
		rig_host_write(rig, fd, 1000 * i, 1000);
		rig_expect_none(rig);
		rig_host_quiet(fd);
		fake_guest_message_state(&rig->guest, RF_VU_SET_VRING_ENABLE, 0, 1);
		fake_guest_message_state(&rig->guest, RF_VU_SET_VRING_ENABLE, 1, 1);
		rig_idle(rig);
		rig_host_read(fd, 1000 * i, 1000);
		rig_guest_read(rig, &c, 1000 * i, 1000);
	}
	assert_int_equal(rig_count(rig, "host", "device_resets"), 0);
	close(fd);
}

/*
 * A pause in the middle of a burst, in every way and order that front ends have: descriptors are
 * left on the transmit ring that nobody will kick for again (Firecracker #5969), bytes wait on both
 * sides, and nothing of it is lost or told twice.
 */
enum stop_how {
	STOP_BASE,    /* GET_VRING_BASE alone (QEMU's network device) */
	STOP_DISABLE, /* SET_VRING_ENABLE 0 alone (cloud-hypervisor) */
	STOP_BOTH,    /* one after the other (QEMU's vsock device, crosvm) */
};

struct load_row {
	const char *name;
	enum stop_how how;
	unsigned first_stopped, first_started;
	bool event_idx;
};

static const struct load_row load_rows[] = {
	{ "load: base, 0 then 1, 0 then 1", STOP_BASE, 0, 0, true },
	{ "load: base, 0 then 1, 1 then 0", STOP_BASE, 0, 1, true },
	{ "load: base, 1 then 0, 0 then 1", STOP_BASE, 1, 0, true },
	{ "load: base, 1 then 0, 1 then 0", STOP_BASE, 1, 1, true },
	{ "load: disable, 0 then 1, 0 then 1", STOP_DISABLE, 0, 0, true },
	{ "load: disable, 0 then 1, 1 then 0", STOP_DISABLE, 0, 1, true },
	{ "load: disable, 1 then 0, 0 then 1", STOP_DISABLE, 1, 0, true },
	{ "load: disable, 1 then 0, 1 then 0", STOP_DISABLE, 1, 1, true },
	{ "load: both, 0 then 1, 0 then 1", STOP_BOTH, 0, 0, true },
	{ "load: both, 0 then 1, 1 then 0", STOP_BOTH, 0, 1, true },
	{ "load: both, 1 then 0, 0 then 1", STOP_BOTH, 1, 0, true },
	{ "load: both, 1 then 0, 1 then 0", STOP_BOTH, 1, 1, true },
	{ "load: base, without event index", STOP_BASE, 0, 0, false },
	{ "load: disable, without event index", STOP_DISABLE, 0, 0, false },
};

static void load_stop(struct vsock_rig *rig, enum stop_how how, unsigned ring)
{
	if (how != STOP_BASE)
		fake_guest_message_state(&rig->guest, RF_VU_SET_VRING_ENABLE, ring, 0);
	if (how != STOP_DISABLE)
		(void)fake_guest_stop(&rig->guest, ring);
}

static void load_start(struct vsock_rig *rig, enum stop_how how, unsigned ring)
{
	if (how != STOP_DISABLE)
		fake_guest_start_at(&rig->guest, ring, rig->guest.rings[ring].base);
	if (how != STOP_BASE)
		fake_guest_message_state(&rig->guest, RF_VU_SET_VRING_ENABLE, ring, 1);
}

/* One burst with a pause in it. Return: false if nothing was left to take when it paused. */
static bool load_round(struct vsock_rig *rig, const struct load_row *row, struct fake_conn *c,
		       int fd, uint32_t at)
{
	static uint8_t data[1000];
	unsigned unsent;

	for (uint32_t i = 0; i < 100; i++) {
		rig_fill(data, sizeof(data), at + 1000 * i);
		fake_conn_put(c, data, sizeof(data), &fake_shape_one);
	}
	fake_guest_kick(&rig->guest, FAKE_TX);
	rig_host_write(rig, fd, at, 50000);
	/* With every second one, a part of the burst is taken first. */
	if (at / 100000 % 2)
		assert_int_equal(rf_loop_turn(rig->loop, 0), 0);
	fake_guest_kick(&rig->guest, FAKE_TX);
	load_stop(rig, row->how, row->first_stopped);
	load_stop(rig, row->how, !row->first_stopped);
	rig_idle(rig);
	unsent = fake_guest_unsent(&rig->guest);
	load_start(rig, row->how, row->first_started);
	load_start(rig, row->how, !row->first_started);
	for (uint32_t i = 0; i < 100; i++) {
		rig_idle(rig);
		rig_host_read(fd, at + 1000 * i, 1000);
	}
	rig_guest_read(rig, c, at, 50000);
	fake_conn_control(c, CREDIT_UPDATE, 0);
	rig_idle(rig);
	assert_int_equal(fake_guest_unsent(&rig->guest), 0);
	return unsent > 0;
}

static void paused_under_load(void **state)
{
	const struct load_row *row = *state;
	struct vsock_rig *rig;
	struct fake_conn c;
	unsigned left = 0;
	int fd;

	rig_setup(state);
	rig = *state;
	if (!row->event_idx)
		rig->guest.features &= ~(UINT64_C(1) << VIRTIO_RING_F_EVENT_IDX);
	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	for (uint32_t i = 0; i < 8; i++)
		left += load_round(rig, row, &c, fd, 100000 * i);
	assert_true(left > 0);
	rig_works(rig, &c, fd, 800000);
	assert_int_equal(rig_count(rig, "host", "device_resets"), 0);
	close(fd);
	rig_drop_packets(rig);
	rig_new_works(rig, 2000);
	rig_teardown(state);
}

/* Any other index is another guest: the VMM has served the ring by itself for a while. */
static void other_index(void **state)
{
	struct vsock_rig *rig = *state;

	rig_start(rig);
	for (unsigned ring = 0; ring < 2; ring++) {
		struct fake_conn c;
		uint16_t base;
		int fd = rig_open_from_guest(rig, &c, 1000 + ring);

		base = fake_guest_stop(&rig->guest, ring);
		if (ring == FAKE_TX)
			fake_conn_control(&c, CREDIT_UPDATE, 0);
		fake_guest_start_at(&rig->guest, ring, (uint16_t)(base + 1));
		rig_idle(rig);
		rig_host_eof(fd);
		assert_int_equal(rig_connections(rig), 0);
		assert_int_equal(rig_count(rig, "host", "device_resets"), ring + 1);
		close(fd);
	}
}

/* passt 6fae899: front ends die in the middle of a burst; the next guest finds nothing of it. */
static void dies_in_a_burst(void **state)
{
	struct vsock_rig *rig = *state;
	static uint8_t data[3000];

	rig_serve(rig);
	for (unsigned turns = 0; turns < 6; turns++) {
		struct fake_conn c;
		uint8_t buf[65536];
		uint32_t got = 0;
		ssize_t n;
		int fd;

		rig_boot(rig);
		fd = rig_open_from_guest(rig, &c, 1000);
		for (uint32_t i = 0; i < 60; i++) {
			rig_fill(data, sizeof(data), sizeof(data) * i);
			fake_conn_put(&c, data, sizeof(data), &fake_shape_two);
			if (i == 30)
				fake_guest_kick(&rig->guest, FAKE_TX);
		}
		fake_guest_kick(&rig->guest, FAKE_TX);
		rig_host_write(rig, fd, 0, 100000);
		for (unsigned i = 0; i < turns; i++)
			assert_int_equal(rf_loop_turn(rig->loop, 0), 0);
		fake_guest_fini(&rig->guest);
		fake_loop_idle(rig->loop);
		while ((n = read(fd, buf, sizeof(buf))) > 0) {
			rig_check(buf, (size_t)n, got);
			got += (uint32_t)n;
			fake_loop_idle(rig->loop);
		}
		/* The end, told as a reset if something of its own was not read. */
		assert_true(n == 0 || errno == ECONNRESET);
		assert_int_equal(got % sizeof(data), 0);
		assert_int_equal(rig_connections(rig), 0);
		close(fd);
		fake_guest_init(&rig->guest, rig->loop);
	}
	rig_boot(rig);
	rig_new_works(rig, 1000);
	assert_int_equal(rig_count(rig, "vhost", "vu_sessions_broken"), 0);
}

/*
 * A front end that comes back (QEMU's reconnect=, cloud-hypervisor) has lost what GET_VRING_BASE
 * would have told, and starts at the used index. Its guest's connections have ended; its rings go
 * on, with the buffers that were on them.
 */
static void comes_back_at_used_index(void **state)
{
	struct vsock_rig *rig = *state;

	rig_start(rig);
	for (uint32_t round = 0; round < 5; round++) {
		struct fake_conn c;
		int fd = rig_open_from_guest(rig, &c, 1000 + round);

		rig_works(rig, &c, fd, 0);
		/* This one is on the ring when it goes. */
		fake_conn_put(&c, "x", 1, &fake_shape_one);
		fake_guest_hangup(&rig->guest);
		fake_guest_kick(&rig->guest, FAKE_TX);
		rig_idle(rig);
		rig_host_eof(fd);
		close(fd);
		fake_guest_connect(&rig->guest, rig->front);
		fake_guest_handshake(&rig->guest);
		for (unsigned ring = 0; ring < 2; ring++)
			fake_guest_start_at(&rig->guest, ring, fake_guest_used(&rig->guest, ring));
		rig_expect(rig, &c, RST);
		assert_int_equal(fake_guest_unsent(&rig->guest), 0);
		rig_new_works(rig, 2000 + round);
	}
}

static void device_reset(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fd;

	rig_start(rig);
	fake_guest_message_u64(&rig->guest, RF_VU_SET_PROTOCOL_FEATURES,
			       UINT64_C(1) << RF_VU_PF_RESET_DEVICE);
	fd = rig_open_from_guest(rig, &c, 1000);
	fake_guest_message(&rig->guest, RF_VU_RESET_DEVICE, "", 0, -1);
	rig_idle(rig);
	rig_host_eof(fd);
	close(fd);
	/* Until it is up again, host programs are turned away. */
	fd = rig_ask(rig, RIG_PORT);
	rig_host_eof(fd);
	close(fd);
	(void)fake_guest_stop(&rig->guest, FAKE_RX);
	(void)fake_guest_stop(&rig->guest, FAKE_TX);
	fake_guest_boot(&rig->guest);
	rig_new_works(rig, 1000);
}

static void memory_table_again(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fd;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	for (uint32_t i = 0; i < 50; i++) {
		rig_guest_send(&c, 1000 * i, 1000);
		fake_guest_share(&rig->guest);
		rig_idle(rig);
		rig_host_read(fd, 1000 * i, 1000);
		rig_host_write(rig, fd, 1000 * i, 1000);
		rig_guest_read(rig, &c, 1000 * i, 1000);
	}
	close(fd);
}

static const struct CMUnitTest tests[] = {
	RIG_TEST(started_with_packets), RIG_TEST(timeouts_while_paused),
	RIG_TEST(paused_by_disabling),  RIG_TEST(device_reset),
	RIG_TEST(memory_table_again),   RIG_TEST(other_index),
	RIG_TEST(dies_in_a_burst),      RIG_TEST(comes_back_at_used_index),
};

int main(void)
{
	static struct rig_group group;

	rig_group_add_rows(&group, restart, restart_rows, RF_ARRAY_SIZE(restart_rows),
			   sizeof(restart_rows[0]));
	rig_group_add_rows(&group, paused_under_load, load_rows, RF_ARRAY_SIZE(load_rows),
			   sizeof(load_rows[0]));
	rig_group_add(&group, tests, RF_ARRAY_SIZE(tests));
	return rig_group_run(&group, "vsock-restart");
}
