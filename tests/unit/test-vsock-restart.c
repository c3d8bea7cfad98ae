/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rings that stop and start: a guest that was paused goes on, any other is another guest.
 */
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
	RIG_TEST(memory_table_again),
};

int main(void)
{
	static struct rig_group group;

	rig_group_add_rows(&group, restart, restart_rows, RF_ARRAY_SIZE(restart_rows),
			   sizeof(restart_rows[0]));
	rig_group_add(&group, tests, RF_ARRAY_SIZE(tests));
	return rig_group_run(&group, "vsock-restart");
}
