/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that cannot be had: each allocation of a device fails once. Then it goes on, and nothing
 * is left behind.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "open_fds.h"
#include "vsock_rig.h"

/* Allocations that still succeed; negative: all do. */
static int left = -1;

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__real_reallocarray(void *p, size_t n, size_t size);
void *__wrap_reallocarray(void *p, size_t n, size_t size);
char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);

static bool fails(void)
{
	return left >= 0 && left-- == 0;
}

void *__wrap_malloc(size_t size)
{
	return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_reallocarray(void *p, size_t n, size_t size)
{
	return fails() ? NULL : __real_reallocarray(p, n, size);
}

char *__wrap_strdup(const char *text)
{
	return fails() ? NULL : __real_strdup(text);
}

/* Let the device run, its allocation number @n failing, counted from the last call on. */
static void idle_failing(struct vsock_rig *rig, int *n)
{
	left = *n;
	rig_idle(rig);
	*n = left;
	left = -1;
}

static int try_accept(int listener)
{
	return accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

/* Both kinds of connections, and bytes that have to wait. Return: did allocation @n fail? */
static bool run_failing(struct vsock_rig *rig, int n)
{
	struct fake_conn c, asked;
	struct fake_packet packet;
	int listener = rig_listen(rig, RIG_PORT, 1), fds[2];

	fake_conn_init(&c, &rig->guest, 1000, RIG_PORT);
	fake_conn_control(&c, REQUEST, 0);
	idle_failing(rig, &n);
	fds[0] = try_accept(listener);
	close(listener);
	for (unsigned i = 0; i < 60 && fds[0] >= 0; i++) {
		rig_guest_send(&c, 65536 * i, 65536);
		idle_failing(rig, &n);
	}
	fds[1] = rig_connect(rig);
	idle_failing(rig, &n);
	(void)!send(fds[1], "CONNECT 7\n", 10, MSG_NOSIGNAL);
	idle_failing(rig, &n);
	while (fake_guest_recv(&rig->guest, &packet, NULL)) {
		if (packet.hdr.op != REQUEST)
			continue;
		fake_conn_init(&asked, &rig->guest, 7, packet.hdr.src_port);
		fake_conn_control(&asked, RESPONSE, 0);
	}
	idle_failing(rig, &n);
	close(fds[0]);
	close(fds[1]);
	rig_drop_packets(rig);
	return n < 0;
}

static void connections(void **state)
{
	struct vsock_rig *rig = *state;
	int n = 0;

	rig->options.window = 8u << 20;
	rig_start(rig);
	while (run_failing(rig, n++)) {
		fake_guest_hangup(&rig->guest);
		rig_idle(rig);
		assert_int_equal(rig_connections(rig), 0);
		rig_boot(rig);
		rig_new_works(rig, 2000);
	}
	/* Two lines, two streams, and the growing buffer. */
	assert_in_range(n, 6, 30);
}

static void opening(void **state)
{
	struct vsock_rig *rig = *state;
	struct rf_vsock_device *device;
	unsigned fds = open_fds();
	int n, r;

	for (n = 0;; n++) {
		left = n;
		r = rf_vsock_device_new(rig->loop, &rig->options, &device);
		if (left >= 0)
			break;
		assert_int_equal(r, -ENOMEM);
		assert_int_equal(open_fds(), fds);
		assert_int_equal(access(rig->front, F_OK), -1);
		assert_int_equal(access(rig->uds, F_OK), -1);
	}
	left = -1;
	assert_int_equal(r, 0);
	assert_in_range(n, 4, 20);
	rf_vsock_device_free(device);
}

/* A front end that cannot be served is told so by being closed; the next may have more luck. */
static void front_end(void **state)
{
	struct vsock_rig *rig = *state;
	bool failed = true;
	int n;

	rig_serve(rig);
	for (n = 0; failed; n++) {
		int left_over = n;
		char c;

		fake_guest_connect(&rig->guest, rig->front);
		idle_failing(rig, &left_over);
		failed = left_over < 0;
		if (failed)
			assert_int_equal(recv(rig->guest.sock, &c, 1, MSG_DONTWAIT), 0);
		fake_guest_hangup(&rig->guest);
		rig_idle(rig);
	}
	assert_in_range(n, 2, 30);
	rig_boot(rig);
	rig_new_works(rig, 1000);
}

static const struct CMUnitTest tests[] = {
	RIG_TEST(connections),
	RIG_TEST(opening),
	RIG_TEST(front_end),
};

int main(void)
{
	static struct rig_group group;

	rig_group_add(&group, tests, RF_ARRAY_SIZE(tests));
	return rig_group_run(&group, "vsock-nomem");
}
