/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A device that ends with its front end: what the guest sent before is delivered first.
 */
#include "vsock_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/limits.h"

#define WINDOW 262144u

/* As the program does: the device is freed when it is told. */
struct last {
	struct vsock_rig *rig;
	unsigned n_left;
	bool orderly;
};

static void left(void *ctx, bool orderly)
{
	struct last *last = ctx;

	last->n_left++;
	last->orderly = orderly;
	rf_vsock_device_free(last->rig->device);
	last->rig->device = NULL;
}

/* Return: a host program's descriptor; the bytes it was sent do not all fit into its socket. */
static int begin(struct vsock_rig *rig, struct last *last, bool connected, uint32_t *ret_bytes)
{
	struct fake_conn c;
	int fds[2], fd;
	uint32_t at = 0;

	*last = (struct last){ .rig = rig };
	rig->options.left = left;
	rig->options.ctx = last;
	rig->options.last_front = !connected;
	if (connected) {
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
		rig->options.socket_path = NULL;
		rig->options.socket_fd = fds[0];
		rig_serve(rig);
		fake_guest_attach(&rig->guest, fds[1]);
		fake_guest_boot(&rig->guest);
	} else {
		rig_start(rig);
	}
	fd = rig_open_from_guest(rig, &c, 1000);
	while (fake_conn_space(&c)) {
		uint32_t len = rf_min_u32(fake_conn_space(&c), 65536);

		rig_guest_send(&c, at, len);
		at += len;
		rig_skip_updates(rig, &c);
	}
	assert_in_range(rig_count(rig, "host", "bounced_bytes"), WINDOW / 2, WINDOW);
	*ret_bytes = at;
	return fd;
}

static void all_is_delivered(struct vsock_rig *rig, bool connected)
{
	uint32_t bytes, at = 0;
	struct last last;
	int fd = begin(rig, &last, connected, &bytes);

	fake_guest_hangup(&rig->guest);
	rig_idle(rig);
	/* Nobody else is served meanwhile. */
	assert_int_equal(last.n_left, 0);
	assert_int_not_equal(access(rig->front, F_OK), 0);
	while (at < bytes) {
		uint32_t len = rf_min_u32(bytes - at, 50000);

		rig_host_read(fd, at, len);
		at += len;
		/* However slow it is. */
		rig_warp(rig, RF_HOST_LINGER_NS - RF_NS_PER_SEC);
	}
	rig_host_eof(fd);
	assert_int_equal(last.n_left, 1);
	assert_true(last.orderly);
	close(fd);
}

static void slow_reader(void **state)
{
	all_is_delivered(*state, false);
}

static void slow_reader_connected_fd(void **state)
{
	all_is_delivered(*state, true);
}

/* It is not waited for without end. */
static void stuck_reader(void **state)
{
	struct vsock_rig *rig = *state;
	struct last last;
	uint32_t bytes;
	int fd = begin(rig, &last, false, &bytes);

	fake_guest_hangup(&rig->guest);
	rig_idle(rig);
	rig_warp(rig, RF_HOST_LINGER_NS - RF_NS_PER_SEC);
	assert_int_equal(last.n_left, 0);
	rig_warp(rig, RF_NS_PER_SEC);
	assert_int_equal(last.n_left, 1);
	assert_int_equal(rig_logged(rig, "bytes that the guest sent are lost"), 1);
	close(fd);
}

/* Closed meanwhile: by the host program, or the whole device. */
static void reader_leaves(void **state)
{
	struct vsock_rig *rig = *state;
	struct last last;
	uint32_t bytes;
	int fd = begin(rig, &last, false, &bytes);

	fake_guest_hangup(&rig->guest);
	rig_idle(rig);
	close(fd);
	rig_idle(rig);
	assert_int_equal(last.n_left, 1);
}

static void freed_meanwhile(void **state)
{
	struct vsock_rig *rig = *state;
	struct last last;
	uint32_t bytes;
	int fd = begin(rig, &last, false, &bytes);

	fake_guest_hangup(&rig->guest);
	rig_idle(rig);
	rf_vsock_device_free(rig->device);
	rig->device = NULL;
	rig_warp(rig, 2 * RF_HOST_LINGER_NS);
	assert_int_equal(last.n_left, 0);
	close(fd);
}

static void nothing_to_deliver(void **state)
{
	struct vsock_rig *rig = *state;
	struct last last = { .rig = rig };
	struct fake_conn c;
	int fd;

	rig->options.left = left;
	rig->options.ctx = &last;
	rig->options.last_front = true;
	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	fake_guest_hangup(&rig->guest);
	rig_idle(rig);
	assert_int_equal(last.n_left, 1);
	rig_host_eof(fd);
	close(fd);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		RIG_TEST(slow_reader),     RIG_TEST(slow_reader_connected_fd),
		RIG_TEST(stuck_reader),    RIG_TEST(reader_leaves),
		RIG_TEST(freed_meanwhile), RIG_TEST(nothing_to_deliver),
	};
	static struct rig_group group;

	rig_group_add(&group, tests, RF_ARRAY_SIZE(tests));
	return rig_group_run(&group, "last-front");
}
