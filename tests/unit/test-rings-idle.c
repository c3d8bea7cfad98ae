/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include <linux/virtio_ring.h>

#include "vhost/message.h"
#include "vsock_rig.h"

#define POLL_US 200u

/* A turn that may sleep: it polls, if the one before has left something to look at. */
static void turn(struct vsock_rig *rig)
{
	assert_int_equal(rf_loop_turn(rig->loop, 1), 0);
}

static uint64_t kicks(const struct vsock_rig *rig)
{
	return rig_count(rig, "vhost", "vu_kicks");
}

static uint64_t polls(const struct vsock_rig *rig)
{
	return rf_counter_read(&rf_loop_counters(rig->loop)->loop_polls);
}

/* The device has nothing left to do and was asked to kick. */
static void rest(struct vsock_rig *rig)
{
	do
		turn(rig);
	while (rf_loop_deadline(rig->loop) == 0);
}

/* A connection, and a device that polls. */
static int start(struct vsock_rig *rig, struct fake_conn *c)
{
	int fd;

	rig_start(rig);
	fd = rig_open_from_guest(rig, c, 1000);
	rf_loop_set_poll(rig->loop, POLL_US);
	return fd;
}

/* The guest kicks once, and not again before the device has waited in vain. */
static void no_kicks(void **state, bool event_idx)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	uint64_t before, polled;
	int fd;

	if (!event_idx)
		rig->guest.features &= ~(UINT64_C(1) << VIRTIO_RING_F_EVENT_IDX);
	fd = start(rig, &c);
	for (unsigned burst = 0; burst < 3; burst++) {
		before = kicks(rig);
		for (unsigned i = 0; i < 10; i++) {
			rig_guest_send(&c, (burst * 10 + i) * 1000, 1000);
			turn(rig);
			rig_host_read(fd, (burst * 10 + i) * 1000, 1000);
			assert_int_equal(rf_loop_deadline(rig->loop), 0);
		}
		assert_int_equal(kicks(rig), before + 1);
		polled = polls(rig);
		rest(rig);
		assert_int_equal(polls(rig), polled + 1);
		/* Then it rests. */
		turn(rig);
		assert_int_equal(polls(rig), polled + 1);
	}
	close(fd);
}

static void no_kicks_event_idx(void **state)
{
	no_kicks(state, true);
}

static void no_kicks_flags(void **state)
{
	no_kicks(state, false);
}

/* What comes in the very moment in which the guest is asked to kick is seen. */
static void no_gap(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fd = start(rig, &c);

	for (unsigned i = 0; i < 100; i++) {
		rig_guest_send(&c, i * 1000, 1000);
		turn(rig);
		rig_host_read(fd, i * 1000, 1000);
		/* No time to poll: it is asked at once. */
		rf_loop_set_poll(rig->loop, i % 2 ? 0 : POLL_US);
		if (i % 4 >= 2)
			assert_int_equal(rf_loop_turn(rig->loop, 0), 0);
	}
	close(fd);
}

/* Receive buffers are waited for in the same way. */
static void no_buffers(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	uint64_t before;
	int fd;

	rig->guest.auto_post = false;
	rig_serve(rig);
	rig_boot(rig);
	fake_guest_post(&rig->guest, 1, 4096, &fake_shape_one);
	fd = rig_open_from_guest(rig, &c, 1000);
	rf_loop_set_poll(rig->loop, POLL_US);
	rig_host_write(rig, fd, 0, 10 * 4052);
	assert_true(rig_count(rig, "host", "to_guest_full") > 0);
	before = kicks(rig);
	for (unsigned i = 0; i < 9; i++) {
		struct fake_packet packet;

		fake_guest_post(&rig->guest, 1, 4096, &fake_shape_one);
		turn(rig);
		assert_true(fake_guest_recv(&rig->guest, &packet, NULL));
		assert_int_equal(packet.hdr.op, RW);
		rig_check(packet.data, packet.hdr.len, i * 4052);
		assert_int_equal(packet.hdr.len, 4052);
	}
	assert_int_equal(kicks(rig), before + 1);
	rest(rig);
	fake_guest_post(&rig->guest, 1, 4096, &fake_shape_one);
	rest(rig);
	assert_int_equal(kicks(rig), before + 2);
	close(fd);
}

/* Rings that are looked at may be stopped, vanish with their front end, or with the device. */
static void ends(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fd = start(rig, &c);

	for (unsigned row = 0; row < 3; row++) {
		rig_guest_send(&c, 0, 1000);
		turn(rig);
		rig_host_read(fd, 0, 1000);
		assert_int_equal(rf_loop_deadline(rig->loop), 0);
		if (row == 0) {
			fake_guest_message_state(&rig->guest, RF_VU_GET_VRING_BASE, FAKE_TX, 0);
			turn(rig);
			fake_guest_hangup(&rig->guest);
		} else if (row == 1) {
			fake_guest_hangup(&rig->guest);
		} else {
			break;
		}
		close(fd);
		rest(rig);
		fake_guest_fini(&rig->guest);
		fake_guest_init(&rig->guest, rig->loop);
		rig_boot(rig);
		rf_loop_set_poll(rig->loop, 0);
		fd = rig_open_from_guest(rig, &c, 1000);
		rf_loop_set_poll(rig->loop, POLL_US);
	}
	rf_vsock_device_free(rig->device);
	rig->device = NULL;
	assert_int_equal(rf_loop_deadline(rig->loop), UINT64_MAX);
	close(fd);
}

/* An index that jumps is seen by a look, breaks the ring, and is not looked at again. */
static void broken(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	uint64_t turns;
	int fd = start(rig, &c);

	rig_guest_send(&c, 0, 1000);
	turn(rig);
	rig_host_read(fd, 0, 1000);
	*fake_guest_avail(&rig->guest, FAKE_TX) ^= 0x4000;
	turn(rig);
	assert_int_equal(rig_count(rig, "vhost", "vu_rings_broken"), 1);
	turns = rig_count(rig, "host", "turns");
	rest(rig);
	assert_int_equal(rig_count(rig, "host", "turns"), turns);
	close(fd);
}

/* A loop that is always busy never asks the guest. */
static void busy(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	uint64_t before;
	int fd;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	rf_loop_set_poll(rig->loop, RF_LOOP_POLL_BUSY);
	before = kicks(rig);
	for (unsigned i = 0; i < 100; i++) {
		rig_guest_send(&c, i * 1000, 1000);
		for (unsigned k = 0; k < 2 * RF_LOOP_BUSY_TURNS; k++)
			turn(rig);
		rig_host_read(fd, i * 1000, 1000);
		rig_host_write(rig, fd, i * 1000, 1000);
		for (unsigned k = 0; k < 2 * RF_LOOP_BUSY_TURNS; k++)
			turn(rig);
		rig_guest_read(rig, &c, i * 1000, 1000);
	}
	assert_in_range(kicks(rig), before, before + 1);
	assert_int_equal(polls(rig), 0);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_TEST(no_kicks_event_idx),
		RIG_TEST(no_kicks_flags),
		RIG_TEST(no_gap),
		RIG_TEST(no_buffers),
		RIG_TEST(ends),
		RIG_TEST(broken),
		RIG_TEST(busy),
	};

	return cmocka_run_group_tests_name("rings-idle", tests, NULL, NULL);
}
