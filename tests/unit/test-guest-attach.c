/* SPDX-License-Identifier: BSD-3-Clause */
/* Attaching, losing the back end, and back ends of bad faith: guest/guest.c, device.c, serve.c. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "guest_rig.h"
#include "open_fds.h"
#include "pattern.h"

#define WINDOW 262144u

static int open_guest(const char *path, int wait_ms)
{
	struct rf_guest_options o;
	struct rf_guest *guest = NULL;
	int r;

	rf_guest_options_init(&o);
	o.socket_path = path;
	o.connect_timeout_ms = wait_ms;
	r = rf_guest_open(&o, &guest);
	if (r == 0)
		rf_guest_close(guest);
	else
		assert_null(guest);
	return r;
}

static void options_that_are_not_allowed(void **state)
{
	static const struct {
		int row;
		const char *path;
		uint32_t queue_size, rx_buf_bytes;
		int timeout_ms, log_level;
		size_t size;
	} rows[] = {
		{ 1, NULL, 256, 65536, 0, 2, sizeof(struct rf_guest_options) },
		{ 2, "", 256, 65536, 0, 2, sizeof(struct rf_guest_options) },
		{ 3, "/x", 0, 65536, 0, 2, sizeof(struct rf_guest_options) },
		{ 4, "/x", 1, 65536, 0, 2, sizeof(struct rf_guest_options) },
		{ 5, "/x", 96, 65536, 0, 2, sizeof(struct rf_guest_options) },
		{ 6, "/x", 65536, 65536, 0, 2, sizeof(struct rf_guest_options) },
		{ 7, "/x", 256, 255, 0, 2, sizeof(struct rf_guest_options) },
		{ 8, "/x", 256, (1u << 20) + 1, 0, 2, sizeof(struct rf_guest_options) },
		{ 9, "/x", 256, 65536, -2, 2, sizeof(struct rf_guest_options) },
		{ 10, "/x", 256, 65536, 0, -1, sizeof(struct rf_guest_options) },
		{ 11, "/x", 256, 65536, 0, 4, sizeof(struct rf_guest_options) },
		{ 12, "/x", 256, 65536, 0, 2, sizeof(struct rf_guest_options) - 8 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rf_guest_options o;
		struct rf_guest *guest;

		rf_guest_options_init(&o);
		o.size = rows[i].size;
		o.socket_path = rows[i].path;
		o.queue_size = rows[i].queue_size;
		o.rx_buf_bytes = rows[i].rx_buf_bytes;
		o.connect_timeout_ms = rows[i].timeout_ms;
		o.log_level = rows[i].log_level;
		if (rf_guest_open(&o, &guest) != -EINVAL)
			fail_msg("row %d", rows[i].row);
	}
}

static void windows_not_allowed(void **state)
{
	static const uint32_t rows[] = { 0, 4095, (1u << 30) + 1, UINT32_MAX };

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rf_guest_options o;
		struct rf_guest *guest;

		rf_guest_options_init(&o);
		assert_int_equal(o.window_bytes, 1048576);
		o.socket_path = "/x";
		o.connect_timeout_ms = 0;
		o.window_bytes = rows[i];
		if (rf_guest_open(&o, &guest) != -EINVAL)
			fail_msg("row %zu", i);
	}
}

static void nobody_there(void **state)
{
	char longer[200];

	(void)state;
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	assert_int_equal(open_guest("/nonexistent/socket", 0), -ENOENT);
	assert_int_equal(open_guest("/nonexistent/socket", 50), -ETIMEDOUT);
	assert_int_equal(open_guest(longer, 50), -ENAMETOOLONG);
	rf_guest_close(NULL);
}

/* A socket file that nobody listens on; one where nobody accepts; one who accepts and hangs up. */
static void dead_sockets(void **state)
{
	char path[] = "/tmp/rf-dead-XXXXXX";
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)state;
	close(mkstemp(path));
	unlink(path);
	memcpy(addr.sun_path, path, sizeof(path));
	assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(open_guest(path, 0), -ECONNREFUSED);
	assert_int_equal(open_guest(path, 30), -ETIMEDOUT);
	close(fd);
	unlink(path);
}

static void back_ends_that_will_not_do(void **state)
{
	static const struct {
		int row;
		struct fake_options fake;
		int result;
	} rows[] = {
		{ 1, { .cid = 3, .queue_num = 3, .no_version_1 = true }, -ENOTSUP },
		{ 2, { .cid = 3, .queue_num = 3, .no_config = true }, -ENOTSUP },
		{ 3, { .cid = 3, .queue_num = 1 }, -ENOTSUP },
		{ 4, { .cid = 2, .queue_num = 3 }, -EPROTO },
		{ 5, { .cid = 0, .queue_num = 3 }, -EPROTO },
		{ 6, { .cid = UINT32_MAX, .queue_num = 3 }, -EPROTO },
		{ 7, { .cid = UINT64_C(1) << 32 | 3, .queue_num = 3 }, -EPROTO },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct fake_backend *fake = fake_new(&rows[i].fake);
		int r = open_guest(fake_path(fake), 20);

		if (r != rows[i].result)
			fail_msg("row %d: %d", rows[i].row, r);
		fake_free(fake);
	}
}

static void back_ends_that_will_do(void **state)
{
	static const struct fake_options rows[] = {
		{ .automatic = true, .cid = 3 },                 /* no MQ: two rings */
		{ .automatic = true, .cid = 3, .queue_num = 2 }, /* no event ring */
		{ .automatic = true, .cid = 3, .queue_num = 8 },
		{ .automatic = true, .cid = 3, .queue_num = 3, .no_event_idx = true },
		{ .automatic = true, .cid = UINT32_MAX - 1, .queue_num = 3 },
	};
	static char in[400000], out[400000];

	(void)state;
	pattern_fill(in, 0, sizeof(in));
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct rig_options options = { .fake = &rows[i] };
		struct rf_sockaddr addr = { RF_CID_HOST, FAKE_SOURCE };
		struct rig rig;
		int sock;

		rig_open(&rig, &options);
		assert_int_equal(rf_guest_cid(rig.guest), rows[i].cid);
		sock = rf_socket(rig.guest, RF_SOCK_STREAM);
		assert_int_equal(rf_connect(rig.guest, sock, &addr), 0);
		assert_int_equal(rf_recv(rig.guest, sock, out, sizeof(out), RF_MSG_WAITALL),
				 sizeof(out));
		assert_memory_equal(in, out, sizeof(in));
		rig_close(&rig);
	}
}

/* Back-end restart: what was connected is reset, behind its data; listeners stay; a new CID. */
static void back_end_comes_back(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1, WINDOW), d;
	struct rf_sockaddr addr = { RF_CID_HOST, 1 };
	int listener = rig_listen(rig, 700, 5), sock;
	struct rf_vsock_hdr hdr;
	char buf[16];

	rig_send(rig, &c, "last", 4);
	rig_wait_counter(rig, "rx_packets", 2);
	fake_down(rig->fake);
	assert_int_equal(rf_recv(rig->guest, c.sock, buf, 2, 0), 2);
	rig_wait_counter(rig, "detachments", 1);
	assert_int_equal(rf_guest_cid(rig->guest), 0);
	assert_int_equal(rf_recv(rig->guest, c.sock, buf, 16, RF_MSG_WAITALL), 2);
	assert_int_equal(rf_recv(rig->guest, c.sock, buf, 16, 0), -ECONNRESET);
	assert_int_equal(rf_recv(rig->guest, c.sock, buf, 16, 0), 0);
	sock = rf_socket(rig->guest, RF_SOCK_STREAM | RF_SOCK_NONBLOCK);
	assert_int_equal(rf_connect(rig->guest, sock, &addr), -ENODEV);
	assert_int_equal(rig_counter(rig, "ended_transport_reset"), 1);

	fake_up(rig->fake, 77);
	fake_wait_attached(rig->fake);
	rig_wait_counter(rig, "attachments", 2);
	for (int i = 0; i < 1000 && !rf_guest_cid(rig->guest); i++)
		usleep(1000);
	assert_int_equal(rf_guest_cid(rig->guest), 77);
	assert_int_equal(rf_connect(rig->guest, sock, &addr), -EINPROGRESS);
	hdr = fake_expect(rig->fake, VIRTIO_VSOCK_OP_REQUEST);
	assert_int_equal(hdr.src_cid, 77);
	hdr = fake_hdr(VIRTIO_VSOCK_OP_REQUEST, 9, 700);
	hdr.dst_cid = 77;
	fake_send(rig->fake, &hdr, NULL);
	fake_expect(rig->fake, VIRTIO_VSOCK_OP_RESPONSE);
	d.sock = rf_accept(rig->guest, listener, NULL, 0);
	assert_true(d.sock > 0);
}

static void connecting_when_the_back_end_goes(void **state)
{
	struct rig *rig = *state;
	struct rf_sockaddr addr = { RF_CID_HOST, 1 };
	int sock = rf_socket(rig->guest, RF_SOCK_STREAM | RF_SOCK_NONBLOCK);

	assert_int_equal(rf_connect(rig->guest, sock, &addr), -EINPROGRESS);
	fake_expect(rig->fake, VIRTIO_VSOCK_OP_REQUEST);
	fake_hang_up(rig->fake);
	assert_int_equal(rig_poll(rig, sock, RF_POLLOUT), RF_POLLOUT | RF_POLLERR);
	assert_int_equal(rig_option(rig, sock, RF_SO_ERROR), ECONNRESET);
	rig_wait_counter(rig, "attachments", 2);
}

/* Each fault ends the attachment, and nothing else; a new one heals it. */
static void back_ends_of_bad_faith(void **state)
{
	struct rig *rig = *state;

	for (uint64_t fault = 0; fault < 6; fault++) {
		struct rig_conn c = rig_connect(rig, 1, WINDOW);
		char byte;

		switch (fault) {
		case 0:
		case 1:
		case 2:
			/* The next packet taken would put it right. */
			fake_hold_tx(rig->fake, true);
			fake_break_ring(rig->fake, (unsigned)fault);
			break;
		case 3:
			fake_signal_error(rig->fake);
			break;
		case 4:
			fake_chatter(rig->fake);
			break;
		case 5:
			fake_hang_up(rig->fake);
			break;
		}
		/* Nobody looks at the transmit ring before somebody sends. */
		while (fault == 1 && rf_send(rig->guest, c.sock, "x", 1, 0) == 1)
			;
		rig_wait_counter(rig, "detachments", fault + 1);
		assert_int_equal(rf_recv(rig->guest, c.sock, &byte, 1, 0),
				 fault == 1 ? 0 : -ECONNRESET);
		assert_int_equal(rf_close(rig->guest, c.sock), 0);
		rig_wait_counter(rig, "attachments", fault + 2);
		fake_wait_attached(rig->fake);
		fake_hold_tx(rig->fake, false);
		fake_forget(rig->fake);
	}
	assert_int_equal(rig_counter(rig, "rings_broken"), 3);
}

/* virtio 1.2 5.10.6.7. An event of another length, or another event, is none (Linux). */
static void transport_reset(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1, WINDOW);
	int listener = rig_listen(rig, 700, 5);
	struct rf_vsock_hdr hdr = fake_hdr(VIRTIO_VSOCK_OP_REQUEST, 9, 700);
	char byte;

	fake_event(rig->fake, 0, 3);
	fake_event(rig->fake, 1, 4);
	usleep(10000);
	assert_int_equal(rig_counter(rig, "transport_resets"), 0);
	/* A reset counts whatever comes with it. */
	fake_two_events(rig->fake, VIRTIO_VSOCK_EVENT_TRANSPORT_RESET, 1);
	rig_wait_counter(rig, "transport_resets", 1);
	for (uint64_t i = 2; i <= 20; i++) {
		fake_event(rig->fake, VIRTIO_VSOCK_EVENT_TRANSPORT_RESET, 4);
		rig_wait_counter(rig, "transport_resets", i);
	}
	assert_int_equal(rf_recv(rig->guest, c.sock, &byte, 1, 0), -ECONNRESET);
	assert_int_equal(rf_send(rig->guest, c.sock, "x", 1, 0), -EPIPE);
	/* No RST: the other side has forgotten the connection. */
	fake_expect_none(rig->fake, 10);
	fake_send(rig->fake, &hdr, NULL);
	fake_expect(rig->fake, VIRTIO_VSOCK_OP_RESPONSE);
	assert_true(rf_accept(rig->guest, listener, NULL, 0) > 0);
	assert_int_equal(rig_counter(rig, "attachments"), 1);
}

/* What a reader holds of an earlier attachment stays what it was. */
static void data_outlives_its_device(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1, WINDOW);
	static uint8_t in[60000], out[60000];

	pattern_fill(in, 0, sizeof(in));
	rig_send(rig, &c, in, sizeof(in));
	rig_wait_counter(rig, "rx_packets", 2);
	for (uint64_t i = 1; i <= 3; i++) {
		fake_hang_up(rig->fake);
		rig_wait_counter(rig, "attachments", i + 1);
		fake_wait_attached(rig->fake);
	}
	assert_int_equal(rf_recv(rig->guest, c.sock, out, sizeof(out), 0), sizeof(out));
	assert_memory_equal(in, out, sizeof(in));
}

static void no_reconnect_if_not_wanted(void **state)
{
	struct fake_backend *fake = fake_new(&fake_manual);
	struct rf_guest_options o;
	struct rig rig = { .fake = fake };

	(void)state;
	rf_guest_options_init(&o);
	o.socket_path = fake_path(fake);
	o.reconnect = 0;
	assert_int_equal(rf_guest_open(&o, &rig.guest), 0);
	fake_wait_attached(fake);
	fake_hang_up(fake);
	rig_wait_counter(&rig, "detachments", 1);
	usleep(50000);
	assert_int_equal(rig_counter(&rig, "attachments"), 1);
	rf_guest_close(rig.guest);
	fake_free(fake);
}

static int connect_to(const struct fake_backend *fake)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", fake_path(fake));
	assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	return fd;
}

/* There is one attachment over it, and no other later. */
static void a_socket_that_was_given(void **state)
{
	struct fake_backend *fake = fake_new(&fake_manual);
	unsigned fds_before = open_fds();
	struct rf_guest_options o;
	struct rig rig = { .fake = fake };

	(void)state;
	rf_guest_options_init(&o);
	o.socket_fd = connect_to(fake);
	assert_int_equal(rf_guest_open(&o, &rig.guest), 0);
	fake_wait_attached(fake);
	fake_hang_up(fake);
	rig_wait_counter(&rig, "detachments", 1);
	usleep(50000);
	assert_int_equal(rig_counter(&rig, "attachments"), 1);
	rf_guest_close(rig.guest);
	assert_int_equal(open_fds(), fds_before);
	fake_free(fake);
}

/* It belongs to the guest, also if that comes to nothing; nobody waits for another back end. */
static void a_socket_given_in_vain(void **state)
{
	unsigned fds_before = open_fds();
	struct rf_guest_options o;
	struct rf_guest *guest;
	int pair[2];

	(void)state;
	rf_guest_options_init(&o);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	close(pair[0]);
	o.socket_fd = pair[1];
	o.connect_timeout_ms = -1;
	assert_int_equal(rf_guest_open(&o, &guest), -EPROTO);
	assert_int_equal(open_fds(), fds_before);
	o.socket_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	o.socket_path = "/x";
	assert_int_equal(rf_guest_open(&o, &guest), -EINVAL);
	assert_int_equal(open_fds(), fds_before);
}

/* Closing while the back end does not answer an attempt to attach: at once, not after 5 seconds. */
static void close_while_attaching(void **state)
{
	struct fake_backend *fake = fake_new(&fake_manual);
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	struct rf_guest_options o;
	struct rig rig = { .fake = fake };
	int mute;

	(void)state;
	rf_guest_options_init(&o);
	o.socket_path = fake_path(fake);
	assert_int_equal(rf_guest_open(&o, &rig.guest), 0);
	fake_wait_attached(fake);
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", fake_path(fake));
	fake_down(fake);
	mute = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(mute, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(mute, 5), 0);
	usleep(100000);
	alarm(3);
	rf_guest_close(rig.guest);
	alarm(0);
	close(mute);
	unlink(addr.sun_path);
	fake_free(fake);
}

struct lines {
	atomic_uint n;
	atomic_int worst;
};

static void log_line(void *ctx, int level, const char *line)
{
	struct lines *lines = ctx;

	assert_true(line[0] != '\0');
	lines->n++;
	if (level < lines->worst)
		lines->worst = level;
}

static void log_lines(void **state)
{
	struct lines lines = { .worst = RF_GUEST_LOG_DEBUG };
	struct fake_backend *fake = fake_new(&fake_manual);
	struct rf_guest_options o;
	struct rig rig = { .fake = fake };

	(void)state;
	rf_guest_options_init(&o);
	o.socket_path = fake_path(fake);
	o.log = log_line;
	o.log_ctx = &lines;
	assert_int_equal(rf_guest_open(&o, &rig.guest), 0);
	assert_int_equal(lines.n, 1);
	assert_int_equal(lines.worst, RF_GUEST_LOG_INFO);
	fake_wait_attached(fake);
	fake_hang_up(fake);
	rig_wait_counter(&rig, "attachments", 2);
	rf_guest_close(rig.guest);
	assert_true(lines.n >= 3);
	assert_int_equal(lines.worst, RF_GUEST_LOG_WARNING);
	fake_free(fake);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_that_are_not_allowed),
		cmocka_unit_test(windows_not_allowed),
		cmocka_unit_test(nobody_there),
		cmocka_unit_test(dead_sockets),
		cmocka_unit_test(back_ends_that_will_not_do),
		cmocka_unit_test(back_ends_that_will_do),
		RIG_CASE(back_end_comes_back),
		RIG_CASE(connecting_when_the_back_end_goes),
		RIG_CASE(back_ends_of_bad_faith),
		RIG_CASE(transport_reset),
		RIG_CASE(data_outlives_its_device),
		cmocka_unit_test(no_reconnect_if_not_wanted),
		cmocka_unit_test(a_socket_that_was_given),
		cmocka_unit_test(a_socket_given_in_vain),
		cmocka_unit_test(close_while_attaching),
		cmocka_unit_test(log_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
