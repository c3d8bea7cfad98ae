/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The life of the device: front ends that come and go, limits, and that nothing is left of what is
 * over.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "host/limits.h"
#include "open_fds.h"
#include "vhost/message.h"
#include "vsock/limits.h"
#include "vsock_rig.h"

/* Front ends */

static void front_end_comes_and_goes(void **state)
{
	struct vsock_rig *rig = *state;

	rig_serve(rig);
	for (uint32_t i = 1; i <= 5; i++) {
		struct fake_conn c;
		int fd, fd_asked;

		rig_boot(rig);
		rig_new_works(rig, 1000);
		fd = rig_open_from_guest(rig, &c, 1000);
		rig_guest_send(&c, 0, 100);
		rig_idle(rig);
		fake_guest_hangup(&rig->guest);
		rig_idle(rig);
		rig_host_read(fd, 0, 100);
		rig_host_eof(fd);
		close(fd);
		fd_asked = rig_ask(rig, RIG_PORT);
		rig_host_eof(fd_asked);
		close(fd_asked);
		assert_int_equal(rig_count(rig, "host", "refused_no_guest"), i);
		assert_int_equal(rig_count(rig, "host", "front_ends"), i);
		assert_int_equal(rig_connections(rig), 0);
	}
	assert_int_equal(rig_count(rig, "vhost", "vu_sessions_broken"), 0);
}

/* android-cuttlefish PR 3198: who only looks whether the socket is there does no harm. */
static void probes(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_guest probe;
	struct fake_conn c;
	int fd;

	rig_serve(rig);
	fake_guest_init(&probe, rig->loop);
	for (unsigned i = 0; i < 20; i++) {
		fake_guest_connect(&probe, rig->front);
		if (i % 2)
			rig_idle(rig);
		fake_guest_hangup(&probe);
	}
	rig_boot(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	for (uint32_t i = 0; i < 20; i++) {
		fake_guest_connect(&probe, rig->front);
		fake_guest_hangup(&probe);
		rig_works(rig, &c, fd, 100 * i);
	}
	close(fd);
	fake_guest_fini(&probe);
}

static void second_front_end_waits(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_guest *second = &rig->guest;
	struct fake_guest first;
	struct fake_conn c;

	rig_serve(rig);
	fake_guest_init(&first, rig->loop);
	fake_guest_connect(&first, rig->front);
	fake_guest_boot(&first);
	fake_guest_connect(second, rig->front);
	fake_guest_boot(second);
	fake_conn_init(&c, second, 1000, RIG_PORT);
	fake_conn_control(&c, REQUEST, 0);
	rig_expect_none(rig);
	fake_conn_init(&c, &first, 1000, RIG_PORT);
	fake_conn_control(&c, REQUEST, 0);
	rig_expect(rig, &c, RST);
	fake_guest_fini(&first);
	fake_conn_init(&c, second, 1000, RIG_PORT);
	rig_expect(rig, &c, RST);
	rig_new_works(rig, 2000);
}

static bool turned_away(const struct fake_guest *guest)
{
	char byte;

	return recv(guest->sock, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* One that never says a word keeps nobody out; one that has spoken is not disturbed. */
static void silent_front_end_gives_way(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_guest silent, late;
	struct fake_conn c;
	int fd;

	rig_serve(rig);
	fake_guest_init(&silent, rig->loop);
	fake_guest_init(&late, rig->loop);
	fake_guest_connect(&silent, rig->front);
	rig_idle(rig);
	/* Nobody waits: it may take its time. */
	rig_warp(rig, 100 * RF_NS_PER_SEC);
	assert_false(turned_away(&silent));
	fake_guest_connect(&rig->guest, rig->front);
	rig_idle(rig);
	rig_warp(rig, RF_HOST_SILENCE_NS - RF_NS_PER_SEC);
	assert_false(turned_away(&silent));
	rig_warp(rig, RF_NS_PER_SEC);
	assert_true(turned_away(&silent));
	fake_guest_boot(&rig->guest);
	fd = rig_open_from_guest(rig, &c, 1000);
	fake_guest_connect(&late, rig->front);
	rig_warp(rig, 100 * RF_NS_PER_SEC);
	rig_works(rig, &c, fd, 1);
	close(fd);
	fake_guest_fini(&silent);
	fake_guest_fini(&late);
}

/* It said something in the last moment. */
static void slow_front_end_stays(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_guest second;

	rig_serve(rig);
	fake_guest_init(&second, rig->loop);
	fake_guest_connect(&rig->guest, rig->front);
	rig_idle(rig);
	fake_guest_connect(&second, rig->front);
	rig_idle(rig);
	rig_warp(rig, RF_HOST_SILENCE_NS - RF_NS_PER_SEC);
	fake_guest_boot(&rig->guest);
	rig_warp(rig, 100 * RF_NS_PER_SEC);
	rig_new_works(rig, 1000);
	fake_guest_fini(&second);
}

static void count_left(void *ctx, bool orderly)
{
	*(unsigned *)ctx += orderly ? 1 : 100;
}

static void connected_fd(void **state)
{
	struct vsock_rig *rig = *state;
	unsigned left = 0;
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	rig->options.socket_path = NULL;
	rig->options.socket_fd = fds[0];
	rig->options.left = count_left;
	rig->options.ctx = &left;
	rig_serve(rig);
	fake_guest_attach(&rig->guest, fds[1]);
	fake_guest_boot(&rig->guest);
	rig_new_works(rig, 1000);
	assert_int_equal(left, 0);
	fake_guest_hangup(&rig->guest);
	rig_idle(rig);
	assert_int_equal(left, 1);
}

/* One that listens has the next front end's turn; who serves it hears how the last one ended. */
static void left_in_disorder(void **state)
{
	static const char garbage[12] = "no message";
	struct vsock_rig *rig = *state;
	unsigned left = 0;

	rig->options.left = count_left;
	rig->options.ctx = &left;
	rig_start(rig);
	assert_int_equal(send(rig->guest.sock, garbage, sizeof(garbage), 0), sizeof(garbage));
	rig_idle(rig);
	assert_int_equal(left, 100);
}

/* However fast they come: it was 1 MB of log in a second. */
static void log_of_front_ends_is_limited(void **state)
{
	static const char garbage[12] = "no message";
	struct vsock_rig *rig = *state;

	rig_serve(rig);
	for (unsigned i = 0; i < 30; i++) {
		fake_guest_connect(&rig->guest, rig->front);
		assert_int_equal(send(rig->guest.sock, garbage, sizeof(garbage), 0),
				 sizeof(garbage));
		rig_idle(rig);
		fake_guest_hangup(&rig->guest);
	}
	assert_in_range(rig_logged(rig, "the front end"), 2, 20);
}

/* android-cuttlefish PR 3198: who only looks whether the socket is there is no front end. */
static void probe_has_not_left(void **state)
{
	struct vsock_rig *rig = *state;
	unsigned left = 0;

	rig->options.left = count_left;
	rig->options.ctx = &left;
	rig_serve(rig);
	fake_guest_connect(&rig->guest, rig->front);
	fake_guest_hangup(&rig->guest);
	rig_idle(rig);
	assert_int_equal(left, 0);
	fake_guest_connect(&rig->guest, rig->front);
	fake_guest_boot(&rig->guest);
	fake_guest_hangup(&rig->guest);
	rig_idle(rig);
	assert_int_equal(left, 1);
}

static void listening_fd(void **state)
{
	struct vsock_rig *rig = *state;
	/* Its file is not ours. */
	int fd = rig_listen(rig, 1, 5);
	char path[100];

	snprintf(path, sizeof(path), "%s_1", rig->uds);
	rig->options.socket_path = NULL;
	rig->options.socket_fd = fd;
	rig_serve(rig);
	for (unsigned i = 0; i < 3; i++) {
		fake_guest_connect(&rig->guest, path);
		fake_guest_boot(&rig->guest);
		rig_new_works(rig, 1000);
		fake_guest_hangup(&rig->guest);
		rig_idle(rig);
	}
	rf_vsock_device_free(rig->device);
	rig->device = NULL;
	assert_int_equal(access(path, F_OK), 0);
}

/* crosvm passes the event queue on, QEMU keeps it (vhost-device #408). */
static void three_rings(void **state)
{
	struct vsock_rig *rig = *state;

	rig->guest.n_rings = 3;
	rig_start(rig);
	rig_new_works(rig, 1000);
	rf_eventfd_signal(rig->guest.rings[FAKE_EVENT].kick);
	rig_idle(rig);
	(void)fake_guest_stop(&rig->guest, FAKE_EVENT);
	rig_new_works(rig, 1000);
}

static void ring_too_large(void **state)
{
	struct vsock_rig *rig = *state;

	rig->options.queue_size = 64;
	rig_serve(rig);
	fake_guest_connect(&rig->guest, rig->front);
	fake_guest_handshake(&rig->guest);
	fake_guest_message_state(&rig->guest, RF_VU_SET_VRING_NUM, 0, 64);
	rig_idle(rig);
	assert_int_equal(rig_count(rig, "vhost", "vu_sessions_broken"), 0);
	fake_guest_message_state(&rig->guest, RF_VU_SET_VRING_NUM, 0, 128);
	rig_idle(rig);
	assert_int_equal(rig_count(rig, "vhost", "vu_sessions_broken"), 1);
	fake_guest_hangup(&rig->guest);
	rig->guest.num = 64;
	fake_guest_fini(&rig->guest);
	fake_guest_init(&rig->guest, rig->loop);
	rig->guest.num = 64;
	rig_boot(rig);
	rig_new_works(rig, 1000);
}

static void config_space(void **state)
{
	struct vsock_rig *rig = *state;
	struct {
		uint32_t offset, size, flags;
		uint8_t data[8];
	} config = { .size = 8 };
	struct {
		struct rf_vu_hdr hdr;
		uint32_t offset, size, flags;
		uint8_t data[8];
	} reply;

	static_assert(sizeof(reply) == 32, "as on the wire");
	rig->options.guest_cid = 0xfffffffe;
	rig_serve(rig);
	fake_guest_connect(&rig->guest, rig->front);
	fake_guest_message_u64(&rig->guest, RF_VU_SET_PROTOCOL_FEATURES,
			       UINT64_C(1) << RF_VU_PF_CONFIG);
	fake_guest_message(&rig->guest, RF_VU_GET_CONFIG, &config, sizeof(config), -1);
	rig_idle(rig);
	assert_int_equal(recv(rig->guest.sock, &reply, sizeof(reply), MSG_DONTWAIT), sizeof(reply));
	assert_int_equal(reply.size, 8);
	assert_memory_equal(reply.data, "\xfe\xff\xff\xff\0\0\0\0", 8);
	config.offset = config.size = 4;
	fake_guest_message(&rig->guest, RF_VU_GET_CONFIG, &config, sizeof(config) - 4, -1);
	rig_idle(rig);
	assert_int_equal(recv(rig->guest.sock, &reply, sizeof(reply), MSG_DONTWAIT),
			 sizeof(reply) - 4);
	assert_memory_equal(reply.data, "\0\0\0\0", 4);
}

/* Limits */

static void guest_connections_are_limited(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c[5], more;
	int fds[5], fd;

	rig->options.max_conns = 5;
	rig_start(rig);
	for (uint32_t i = 0; i < 5; i++)
		fds[i] = rig_open_from_guest(rig, &c[i], 1000 + i);
	fake_conn_init(&more, &rig->guest, 1005, RIG_PORT);
	fake_conn_control(&more, REQUEST, 0);
	rig_expect(rig, &more, RST);
	assert_int_equal(rig_count(rig, "host", "refused_limit"), 1);
	fd = rig_ask(rig, RIG_PORT);
	rig_host_reset(fd);
	close(fd);
	close(fds[0]);
	rig_expect(rig, &c[0], SHUTDOWN);
	fake_conn_control(&c[0], RST, 0);
	rig_idle(rig);
	rig_new_works(rig, 1006);
	for (unsigned i = 1; i < 5; i++)
		close(fds[i]);
}

/* Host programs that have not said what they want count as well, but keep nobody out. */
static void silent_programs_are_limited(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fds[5], fd;

	rig->options.max_conns = 5;
	rig_start(rig);
	for (unsigned i = 0; i < 5; i++)
		fds[i] = rig_connect(rig);
	rig_idle(rig);
	/* One more takes the oldest's place, and so do those that speak and the guest's own. */
	fd = rig_open_from_host(rig, &c);
	rig_host_eof(fds[0]);
	rig_works(rig, &c, fd, 1);
	rig_new_works(rig, 1000);
	rig_host_eof(fds[1]);
	rig_host_quiet(fds[2]);
	rig_warp(rig, RF_HOST_LINE_NS + RF_NS_PER_MS);
	for (unsigned i = 0; i < 5; i++) {
		rig_host_eof(fds[i]);
		close(fds[i]);
	}
	assert_int_equal(rig_count(rig, "host", "refused_limit"), 2);
	assert_int_equal(rig_count(rig, "host", "refused_line"), 3);
	rig_new_works(rig, 1001);
	close(fd);
	/* So is one that says something else. */
	fd = rig_connect(rig);
	assert_int_equal(write(fd, "HELO 1\n", 7), 7);
	rig_idle(rig);
	assert_int_equal(rig_count(rig, "host", "refused_line"), 4);
	close(fd);
}

static void many_connections(void **state)
{
	static struct fake_conn c[RF_HOST_MAX_CONNS];
	static int fds[RF_HOST_MAX_CONNS];
	struct vsock_rig *rig = *state;
	struct fake_conn more;

	/* Both ends are in this process. */
	if (rf_fd_raise_limit(2 * RF_HOST_MAX_CONNS + 200) < 2 * RF_HOST_MAX_CONNS + 200)
		skip();
	rig_start(rig);
	for (uint32_t i = 0; i < RF_HOST_MAX_CONNS; i++)
		fds[i] = i % 2 ? rig_open_from_guest(rig, &c[i], 10000 + i)
			       : rig_open_from_host(rig, &c[i]);
	assert_int_equal(rig_connections(rig), RF_HOST_MAX_CONNS);
	fake_conn_init(&more, &rig->guest, 1, RIG_PORT);
	fake_conn_control(&more, REQUEST, 0);
	rig_expect(rig, &more, RST);
	for (uint32_t i = 0; i < RF_HOST_MAX_CONNS; i++)
		rig_works(rig, &c[i], fds[i], i);
	for (uint32_t i = 0; i < RF_HOST_MAX_CONNS; i++) {
		close(fds[i]);
		rig_expect(rig, &c[i], SHUTDOWN);
		fake_conn_control(&c[i], RST, 0);
	}
	rig_idle(rig);
	assert_int_equal(rig_connections(rig), 0);
}

/* libkrun #116, lima #5329: descriptors are back where they were after many connections of all
 * kinds. Memory is the sanitizer's to tell. */
static void nothing_is_left(void **state)
{
	struct vsock_rig *rig = *state;
	unsigned fds;

	rig_start(rig);
	fds = open_fds();
	for (uint32_t i = 0; i < 500; i++) {
		struct fake_packet packet;
		struct fake_conn c;
		int fd;

		rig_new_works(rig, 1000);
		fake_conn_init(&c, &rig->guest, 1000, 99);
		fake_conn_control(&c, REQUEST, 0);
		rig_expect(rig, &c, RST);
		fd = rig_ask(rig, 77);
		assert_true(fake_guest_recv(&rig->guest, &packet, NULL));
		fake_conn_init(&c, &rig->guest, 77, packet.hdr.src_port);
		fake_conn_control(&c, RST, 0);
		rig_idle(rig);
		close(fd);
		assert_int_equal(open_fds(), fds);
	}
	assert_int_equal(rig_connections(rig), 0);
	assert_int_equal(rig_count(rig, "ended", "closed"), 1000);
}

/* Freed with connections in every state. */
static void freed_in_the_middle(void **state)
{
	struct vsock_rig *rig = *state;
	int fds[5], full;
	struct fake_conn c;

	rig_start(rig);
	full = rig_listen(rig, RIG_PORT + 1, 0);
	fds[0] = rig_open_from_guest(rig, &c, 1000);
	for (unsigned i = 0; i < 4; i++)
		rig_guest_send(&c, 0, 65536);
	rig_skip_updates(rig, &c);
	fds[1] = rig_open_from_host(rig, &c);
	fds[2] = rig_connect(rig);
	fds[3] = rig_ask(rig, RIG_PORT);
	for (uint32_t i = 0; i < 3; i++) {
		fake_conn_init(&c, &rig->guest, 2000 + i, RIG_PORT + 1);
		fake_conn_control(&c, REQUEST, 0);
	}
	rig_drop_packets(rig);
	fds[4] = rig_open_from_guest(rig, &c, 1001);
	rig_host_write(rig, fds[4], 0, 1000);
	close(fds[4]);
	rf_vsock_device_free(rig->device);
	rig->device = NULL;
	for (unsigned i = 2; i < 4; i++)
		rig_host_eof(fds[i]);
	for (unsigned i = 0; i < 4; i++)
		close(fds[i]);
	close(full);
}

/* Options */

static void options_refused(void **state)
{
	struct vsock_rig *rig = *state;
	struct rf_vsock_device_options good = rig->options, bad[12];
	unsigned n = 0;
	int fds[2];

	bad[n] = good, bad[n++].guest_cid = 2;
	bad[n] = good, bad[n++].guest_cid = UINT32_MAX;
	bad[n] = good, bad[n++].guest_cid = UINT64_C(1) << 32;
	bad[n] = good, bad[n++].max_conns = 0;
	bad[n] = good, bad[n++].handshake_ns = 0;
	bad[n] = good, bad[n++].shutdown_ns = 0;
	bad[n] = good, bad[n++].line_ns = 0;
	bad[n] = good, bad[n++].socket_path = NULL;
	bad[n] = good, bad[n++].window = RF_VSOCK_WINDOW_MIN - 1;
	bad[n] = good, bad[n++].window = RF_VSOCK_WINDOW_MAX + 1;
	bad[n] = good, bad[n++].queue_size = 1;
	bad[n] = good, bad[n++].queue_size = RF_VSOCK_QUEUE_MAX + 1;
	for (unsigned i = 0; i < n; i++) {
		struct rf_vsock_device *device;

		/* Taken over, also on failure. */
		if (bad[i].socket_path) {
			assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
			bad[i].socket_path = NULL;
			bad[i].socket_fd = fds[0];
			close(fds[1]);
		}
		assert_int_equal(rf_vsock_device_new(rig->loop, &bad[i], &device), -EINVAL);
		assert_int_equal(open_fds(), rig->n_fds + 2);
	}
}

/* What cannot be opened is told in one line, and the descriptor is closed all the same. */
static void cannot_be_opened(void **state)
{
	struct vsock_rig *rig = *state;
	struct rf_vsock_device_options options = rig->options;
	struct rf_vsock_device *device;
	unsigned fds = open_fds();

	options.socket_path = NULL;
	options.socket_fd = memfd_create("no-socket", MFD_CLOEXEC);
	assert_int_equal(rf_vsock_device_new(rig->loop, &options, &device), -ENOTSOCK);
	assert_int_equal(open_fds(), fds);
	assert_int_equal(rig_logged(rig, "\n"), 1);

	rig->text[0] = '\0';
	options = rig->options;
	options.socket_path = "/proc/no/such/directory";
	assert_int_equal(rf_vsock_device_new(rig->loop, &options, &device), -ENOENT);
	assert_int_equal(rig_logged(rig, "\n"), 1);
	assert_int_equal(open_fds(), fds);

	rig->text[0] = '\0';
	options = rig->options;
	options.plug_path = rig->front;
	assert_int_equal(rf_vsock_device_new(rig->loop, &options, &device), -EADDRINUSE);
	assert_int_equal(rig_logged(rig, "\n"), 1);
	assert_int_equal(open_fds(), fds);
}

/* A device without a log is silent. */
static void without_a_log(void **state)
{
	struct vsock_rig *rig = *state;
	struct rf_vsock_device_options options = rig->options;
	struct rf_vsock_device *device;

	options.log = NULL;
	options.socket_path = "/proc/no/such/directory";
	assert_int_equal(rf_vsock_device_new(rig->loop, &options, &device), -ENOENT);
	rig->options.log = NULL;
	rig_start(rig);
	rig_new_works(rig, 1000);
}

static const struct CMUnitTest tests[] = {
	RIG_TEST(front_end_comes_and_goes),
	RIG_TEST(probes),
	RIG_TEST(second_front_end_waits),
	RIG_TEST(silent_front_end_gives_way),
	RIG_TEST(slow_front_end_stays),
	RIG_TEST(connected_fd),
	RIG_TEST(left_in_disorder),
	RIG_TEST(probe_has_not_left),
	RIG_TEST(log_of_front_ends_is_limited),
	RIG_TEST(listening_fd),
	RIG_TEST(three_rings),
	RIG_TEST(ring_too_large),
	RIG_TEST(config_space),
	RIG_TEST(guest_connections_are_limited),
	RIG_TEST(silent_programs_are_limited),
	RIG_TEST(many_connections),
	RIG_TEST(nothing_is_left),
	RIG_TEST(freed_in_the_middle),
	RIG_TEST(options_refused),
	RIG_TEST(cannot_be_opened),
	RIG_TEST(without_a_log),
};

int main(void)
{
	static struct rig_group group;

	rig_group_add(&group, tests, RF_ARRAY_SIZE(tests));
	return rig_group_run(&group, "vsock-device");
}
