/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The guest's transmit ring: packets of every shape on their way to the host programs, and the
 * credit that the guest is given for it.
 */
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/limits.h"
#include "prng.h"
#include "vsock/limits.h"
#include "vsock_rig.h"

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

/* However much the guest has put onto its ring, others have their turn in between. */
static void turn_of_limited_bytes(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c[8];
	uint64_t before = 0, after;
	int fds[8];

	rig_start(rig);
	for (uint32_t i = 0; i < 8; i++)
		fds[i] = rig_open_from_guest(rig, &c[i], 1000 + i);
	for (uint32_t i = 0; i < 4; i++)
		for (unsigned k = 0; k < 8; k++)
			put(&c[k], 65536 * i, 65536, &fake_shape_two);
	fake_guest_kick(&rig->guest, FAKE_TX);
	for (unsigned turns = 0; before < 32 * 65536; turns++) {
		assert_true(turns < 10);
		assert_int_equal(rf_loop_turn(rig->loop, 0), 0);
		after = rig_count(rig, "host", "from_guest_bytes");
		assert_true(after - before < RF_HOST_TURN_BYTES + 65536);
		before = after;
	}
	for (unsigned k = 0; k < 8; k++) {
		rig_idle(rig);
		rig_host_read(fds[k], 0, 100000);
		close(fds[k]);
	}
}

/* A driver that waits for its buffers is notified, one that does not is left alone. */
static void used_is_notified(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_ring *ring = &rig->guest.rings[FAKE_TX];
	struct fake_conn c;
	int fd;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	(void)fake_guest_signalled(ring->call);
	for (uint32_t i = 0; i < 10; i++) {
		rig_guest_send(&c, 2 * i, 1);
		rig_idle(rig);
		assert_false(fake_guest_signalled(ring->call));
		assert_int_equal(fake_guest_unsent(&rig->guest), 0);
		assert_false(rf_drvq_arm(ring->drvq));
		rig_guest_send(&c, 2 * i + 1, 1);
		rig_idle(rig);
		assert_true(fake_guest_signalled(ring->call));
	}
	rig_host_read(fd, 0, 20);
	close(fd);
}

/* Readers, fast and slow */

/* What the guest is told of what was passed on. */
static uint32_t told_fwd_cnt(struct vsock_rig *rig, struct fake_conn *c)
{
	rig_skip_updates(rig, c);
	fake_conn_control(c, CREDIT_REQUEST, 0);
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
	while (sent < windows * RIG_WINDOW) {
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

static const struct CMUnitTest tests[] = {
	RIG_TEST(mixed_shapes_in_one_burst),
	RIG_TEST(extreme_packets),
	RIG_TEST(burst_of_many_pieces),
	RIG_TEST(burst_is_merged),
	RIG_TEST(merge_off),
	RIG_TEST(data_and_end_in_one_burst),
	RIG_TEST(turn_of_limited_bytes),
	RIG_TEST(used_is_notified),
	RIG_TEST(reader_keeps_up),
	RIG_TEST(slow_reader),
	RIG_TEST(stuck_reader),
	RIG_TEST(credit_overrun),
	RIG_TEST(few_credit_updates),
	RIG_TEST(eager_credit),
	RIG_TEST(data_carries_credit),
	RIG_TEST(credit_after_half_close),
};

int main(void)
{
	static struct rig_group group;

	rig_group_add_rows(&group, any_shape, fake_shapes, fake_n_shapes, sizeof(fake_shapes[0]));
	rig_group_add(&group, tests, RF_ARRAY_SIZE(tests));
	return rig_group_run(&group, "from-guest");
}
