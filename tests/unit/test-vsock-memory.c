/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Guests with more memory regions than a memory table holds, which come and go while rings run.
 */
#include <unistd.h>

#include "vsock_host.h"
#include "vsock_rig.h"

#define NUM 32u

static unsigned n_regions(const struct vsock_rig *rig)
{
	return rf_mem_n_regions(rf_vu_session_mem(rig->device->session));
}

static void start(struct vsock_rig *rig)
{
	rig->guest.plugged = true;
	rig->guest.num = NUM;
	rig->guest.rx_bytes = 9000;
	rig_start(rig);
}

/* Put packets onto the ring, each in a buffer of its own, without telling the device. */
static uint32_t put_packets(struct fake_conn *c, uint32_t at, unsigned n,
			    const struct fake_shape *shape)
{
	static uint8_t data[7000];

	while (n--) {
		rig_fill(data, sizeof(data), at);
		fake_conn_put(c, data, sizeof(data), shape);
		at += (uint32_t)sizeof(data);
	}
	return at;
}

static void host_reads(struct vsock_rig *rig, int fd, uint32_t from, uint32_t to)
{
	while (from < to) {
		uint32_t n = rf_min_u32(to - from, 7000);

		rig_idle(rig);
		rig_host_read(fd, from, n);
		from += n;
	}
}

/* CVE-2019-18960 was a buffer across two regions; here every one is, and few are in the first 8. */
static void many_regions(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	uint32_t sent = 0;
	int fd;

	start(rig);
	assert_int_equal(n_regions(rig), 1 + 3 * NUM);
	fd = rig_open_from_guest(rig, &c, 1000);
	for (uint32_t i = 0; i < 12; i++) {
		uint32_t before = sent;

		sent = put_packets(&c, sent, 15, i % 2 ? &fake_shape_one : &fake_shape_two);
		fake_guest_kick(&rig->guest, FAKE_TX);
		host_reads(rig, fd, before, sent);
		rig_skip_updates(rig, &c);
		rig_host_write(rig, fd, 100000 * i, 100000);
		rig_guest_read(rig, &c, 100000 * i, 100000);
		fake_conn_control(&c, CREDIT_UPDATE, 0);
	}
	close(fd);
}

/* Regions that no buffer lies in come and go in the middle of everything. */
static void comes_and_goes(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	uint32_t sent = 0, before;
	int fd;

	start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	for (unsigned i = 0; i < 20; i++) {
		unsigned slot = 16 + i % 8;

		before = sent;
		sent = put_packets(&c, sent, 10, &fake_shape_one);
		fake_guest_kick(&rig->guest, FAKE_TX);
		fake_guest_unplug(&rig->guest, FAKE_TX, slot);
		if (i % 2)
			assert_int_equal(rf_loop_turn(rig->loop, 0), 0);
		/* As QEMU does with several queue pairs: the same one once more. */
		fake_guest_plug(&rig->guest, FAKE_TX, slot);
		fake_guest_plug(&rig->guest, FAKE_TX, slot);
		host_reads(rig, fd, before, sent);
		rig_skip_updates(rig, &c);
	}
	assert_int_equal(n_regions(rig), 1 + 3 * NUM);
	/* Plugged in late, and used at once. */
	for (unsigned slot = 1; slot < NUM; slot++)
		fake_guest_unplug(&rig->guest, FAKE_TX, slot);
	rig_idle(rig);
	for (unsigned slot = 1; slot < NUM; slot++) {
		fake_guest_plug(&rig->guest, FAKE_TX, slot);
		rig_idle(rig);
	}
	before = sent;
	sent = put_packets(&c, sent, 20, &fake_shape_one);
	fake_guest_kick(&rig->guest, FAKE_TX);
	host_reads(rig, fd, before, sent);
	close(fd);
}

/* A guest that uses what it has given away loses the ring until it starts it again, and no byte. */
static void used_after_it_went(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	uint32_t sent;
	int fd;

	start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	fake_guest_unplug(&rig->guest, FAKE_TX, 10);
	rig_idle(rig);
	sent = put_packets(&c, 0, 20, &fake_shape_one);
	fake_guest_kick(&rig->guest, FAKE_TX);
	host_reads(rig, fd, 0, 10 * 7000);
	rig_host_quiet(fd);
	assert_int_equal(rig_count(rig, "vhost", "vu_rings_broken"), 1);
	assert_int_equal(rig_count(rig, "vhost", "vu_sessions_broken"), 0);
	assert_true(fake_guest_signalled(rig->guest.rings[FAKE_TX].err));
	fake_guest_plug(&rig->guest, FAKE_TX, 10);
	fake_guest_start_at(&rig->guest, FAKE_TX, fake_guest_stop(&rig->guest, FAKE_TX));
	host_reads(rig, fd, 10 * 7000, sent);
	rig_works(rig, &c, fd, sent);
	close(fd);
}

static const struct CMUnitTest tests[] = {
	RIG_TEST(many_regions),
	RIG_TEST(comes_and_goes),
	RIG_TEST(used_after_it_went),
};

int main(void)
{
	static struct rig_group group;

	rig_group_add(&group, tests, RF_ARRAY_SIZE(tests));
	return rig_group_run(&group, "vsock-memory");
}
