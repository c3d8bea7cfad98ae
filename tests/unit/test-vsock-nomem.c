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
#include "vsock_embed.h"
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

/* Callbacks of one connection: each begins and ends, or neither. */
struct program {
	unsigned n_accepted, n_ended, n_asked;
};

static int on_accept(void *ctx, struct rf_host_conn *conn RF_UNUSED, uint32_t guest_port RF_UNUSED,
		     void **ret_ctx RF_UNUSED)
{
	((struct program *)ctx)->n_accepted++;
	return 0;
}

static ssize_t on_take(void *ctx RF_UNUSED, struct rf_host_conn *conn RF_UNUSED,
		       const struct iovec *iov RF_UNUSED, int n RF_UNUSED)
{
	return -EAGAIN;
}

static void on_ended(void *ctx, struct rf_host_conn *conn RF_UNUSED, int how RF_UNUSED)
{
	((struct program *)ctx)->n_ended++;
}

static const struct rf_host_stream_ops program_ops = {
	.size = sizeof(program_ops),
	.accept = on_accept,
	.take = on_take,
	.ended = on_ended,
};

/* A port that the program serves, a connection it asks for, and bytes that it leaves. */
static bool run_embed_failing(struct vsock_rig *rig, int n)
{
	struct rf_vsock_plug *plug = rf_vsock_device_plug(rig->device, &rf_vsock_plug_embed);
	struct program program = { 0 };
	struct rf_host_conn *conn;
	struct fake_conn c;
	bool listens;

	left = n;
	listens = rf_embed_listen(plug, RIG_PORT, &program_ops, &program) == 0;
	program.n_asked = rf_embed_connect(plug, 9, &program_ops, &program, &conn) == 0;
	n = left;
	left = -1;
	fake_conn_init(&c, &rig->guest, 1000, RIG_PORT);
	fake_conn_control(&c, REQUEST, 0);
	idle_failing(rig, &n);
	if (program.n_accepted)
		rig_guest_send(&c, 0, 65536);
	idle_failing(rig, &n);
	rig_drop_packets(rig);
	fake_guest_hangup(&rig->guest);
	rig_idle(rig);
	assert_int_equal(rf_embed_unlisten(plug, RIG_PORT), listens ? 0 : -ENOENT);
	/* What take() has left would wait for it. */
	rf_vsock_device_free(rig->device);
	assert_int_equal(program.n_ended, program.n_accepted + program.n_asked);
	rig_serve(rig);
	rig_boot(rig);
	return n < 0;
}

static void own_connections(void **state)
{
	struct vsock_rig *rig = *state;
	bool failed = true;
	int n;

	rig_start(rig);
	for (n = 0; failed; n++)
		failed = run_embed_failing(rig, n);
	/* A port, two lines, two streams, and the buffer. */
	assert_in_range(n, 7, 12);
	rig_new_works(rig, 2000);
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
	RIG_TEST(own_connections),
	RIG_TEST(opening),
	RIG_TEST(front_end),
};

int main(void)
{
	static struct rig_group group;

	rig_group_add(&group, tests, RF_ARRAY_SIZE(tests));
	return rig_group_run(&group, "vsock-nomem");
}
