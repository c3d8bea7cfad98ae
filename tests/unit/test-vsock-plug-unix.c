/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hybrid unix socket by itself: the device is played by the test.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "host/limits.h"
#include "host/vsock_plug.h"
#include "vsock/packet.h"
#include "vsock_rig.h"

#define DIAL_NS (2 * RF_NS_PER_SEC)
#define NOT_YET 1

/* A connection of the device. */
struct owner {
	struct rf_vsock_line *line;
	uint32_t port;
	int dialled;
	unsigned bits, n_ready;
};

/**
 * struct lab - A plug and what it told
 * @refuse:	What user->asked() returns
 * @owners:	Connections, in the order they began
 */
struct lab {
	struct rf_loop *loop;
	struct rf_log log;
	char text[2048];
	char dir[40], uds[60];
	struct rf_vsock_plug *plug;
	int refuse;
	struct owner owners[64];
	unsigned n_owners;
};

static const struct rf_vsock_plug_ops *const ops = &rf_vsock_plug_unix;

static int on_asked(void *device, struct rf_vsock_line *line, uint32_t port, void **ret_owner)
{
	struct lab *lab = device;
	struct owner *owner;

	if (lab->refuse)
		return lab->refuse;
	owner = &lab->owners[lab->n_owners++];
	*owner = (struct owner){ .line = line, .port = port };
	*ret_owner = owner;
	return 0;
}

static void on_dialled(void *ctx, int result)
{
	struct owner *owner = ctx;

	assert_int_equal(owner->dialled, NOT_YET);
	owner->dialled = result;
}

static void on_ready(void *ctx, unsigned bits)
{
	struct owner *owner = ctx;

	owner->bits |= bits;
	owner->n_ready++;
}

static const struct rf_vsock_plug_user user = {
	.asked = on_asked,
	.dialled = on_dialled,
	.ready = on_ready,
};

static void take_line(void *ctx, enum rf_log_level level RF_UNUSED, const char *name RF_UNUSED,
		      const char *line)
{
	struct lab *lab = ctx;
	size_t used = strlen(lab->text);

	snprintf(lab->text + used, sizeof(lab->text) - used, "%s\n", line);
}

static void lab_open(struct lab *lab, unsigned max_lines)
{
	const struct rf_vsock_plug_options options = {
		.loop = lab->loop,
		.log = &lab->log,
		.path = lab->uds,
		.mode = -1,
		.max_lines = max_lines,
		.dial_ns = DIAL_NS,
		.user = &user,
		.device = lab,
	};

	assert_int_equal(ops->open(&options, &lab->plug), 0);
}

static int setup(void **state)
{
	struct lab *lab = calloc(1, sizeof(*lab));

	assert_non_null(lab);
	assert_int_equal(rf_loop_new(&lab->loop), 0);
	lab->log = (struct rf_log){ .level = RF_LOG_INFO, .sink = take_line, .ctx = lab };
	strcpy(lab->dir, "/tmp/rf-plug-XXXXXX");
	assert_non_null(mkdtemp(lab->dir));
	snprintf(lab->uds, sizeof(lab->uds), "%s/uds", lab->dir);
	lab_open(lab, 16);
	*state = lab;
	return 0;
}

static int teardown(void **state)
{
	struct lab *lab = *state;

	if (lab->plug)
		ops->free(lab->plug);
	rf_loop_free(lab->loop);
	assert_int_equal(rmdir(lab->dir), 0);
	free(lab);
	return 0;
}

static void idle(struct lab *lab)
{
	fake_loop_idle(lab->loop);
}

static int new_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_true(fd >= 0);
	return fd;
}

static int program_connects(struct lab *lab)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = new_socket();

	memcpy(addr.sun_path, lab->uds, strlen(lab->uds));
	assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	return fd;
}

static void program_sends(struct lab *lab, int fd, const char *text)
{
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
	idle(lab);
}

/* A program whose connection the guest has accepted, with its OK read. */
static struct owner *open_asked(struct lab *lab, int *ret_fd)
{
	struct owner *owner = &lab->owners[lab->n_owners];
	char ok[32];

	*ret_fd = program_connects(lab);
	program_sends(lab, *ret_fd, "CONNECT 9\n");
	ops->established(owner->line);
	assert_int_equal(read(*ret_fd, ok, sizeof(ok)), 5);
	idle(lab);
	owner->bits = owner->n_ready = 0;
	return owner;
}

static ssize_t device_sends(struct owner *owner, const char *text)
{
	char buf[100];

	strcpy(buf, text);
	return ops->send(owner->line, &(struct iovec){ buf, strlen(text) }, 1);
}

static bool is_closed(int fd)
{
	char c;
	ssize_t n = read(fd, &c, 1);

	assert_true(n <= 0);
	return n == 0 || errno == ECONNRESET;
}

/* The CONNECT line */

struct line_row {
	const char *name;
	const char *pieces[4];
	/* 0: closed. */
	uint32_t port;
	const char *behind;
};

#define BLANKS_48 "                                                "

static const struct line_row line_rows[] = {
	{ "whole", { "CONNECT 1234\n" }, 1234, "" },
	{ "lower case, CRLF", { "connect 52\r\n" }, 52, "" },
	{ "in pieces (cloud-hypervisor PR 6091)", { "CONNECT ", "1234\n" }, 1234, "" },
	{ "CRLF in pieces", { "CONNECT 1234\r", "\n" }, 1234, "" },
	{ "data behind it", { "CONNECT 1234\nhello\nworld" }, 1234, "hello\nworld" },
	{ "data behind it, in pieces", { "CONN", "ECT 1234\nhel", "lo" }, 1234, "hello" },
	{ "another line behind it", { "CONNECT 1\nCONNECT 2\n" }, 1, "CONNECT 2\n" },
	{ "as long as a line may be", { "CONNECT" BLANKS_48 "12345678\n" }, 12345678, "" },
	{ "as long as a line may be, in pieces",
	  { "CONNECT" BLANKS_48, "1234567", "8", "\n!" },
	  12345678,
	  "!" },
	{ "one byte longer", { "CONNECT" BLANKS_48 " 12345678\n" }, 0, "" },
	{ "no end of line", { "CONNECT" BLANKS_48 "123456789" }, 0, "" },
	{ "garbage", { "GET / HTTP/1.1\r\n" }, 0, "" },
	{ "shorter than a line can be (vhost-device #307)", { "connect\n" }, 0, "" },
	{ "empty line", { "\n" }, 0, "" },
	{ "port that is none", { "CONNECT 4294967295\n" }, 0, "" },
};

static void connect_line(void **state)
{
	const struct line_row *row = *state;
	struct lab *lab;
	int fd;

	setup(state);
	lab = *state;
	fd = program_connects(lab);
	for (unsigned i = 0; i < RF_ARRAY_SIZE(row->pieces) && row->pieces[i]; i++)
		program_sends(lab, fd, row->pieces[i]);
	if (row->port) {
		struct owner *owner = &lab->owners[0];
		char expected[32], reply[32] = "", behind[100] = "";
		struct iovec iov = { behind, sizeof(behind) };

		assert_int_equal(lab->n_owners, 1);
		assert_int_equal(owner->port, row->port);
		/* Nothing is said before the guest has accepted. */
		assert_int_equal(read(fd, reply, sizeof(reply)), -1);
		assert_int_equal(errno, EAGAIN);
		ops->established(owner->line);
		snprintf(expected, sizeof(expected), "OK %u\n", row->port);
		assert_int_equal(read(fd, reply, sizeof(reply)), strlen(expected));
		assert_string_equal(reply, expected);
		if (*row->behind)
			assert_int_equal(ops->recv(owner->line, &iov, 1), strlen(row->behind));
		assert_string_equal(behind, row->behind);
		assert_int_equal(ops->recv(owner->line, &iov, 1), -EAGAIN);
		ops->close(owner->line, false);
	} else {
		assert_int_equal(lab->n_owners, 0);
		assert_non_null(strstr(lab->text, "no valid \"CONNECT <port>\" line"));
	}
	assert_true(is_closed(fd));
	close(fd);
	teardown(state);
}

/* cloud-hypervisor #7195. */
static void line_byte_by_byte(void **state)
{
	struct lab *lab = *state;
	int fd = program_connects(lab);

	for (const char *p = "CONNECT 4294967294\r\n"; *p; p++) {
		char byte[2] = { *p, '\0' };

		assert_int_equal(lab->n_owners, 0);
		program_sends(lab, fd, byte);
	}
	assert_int_equal(lab->n_owners, 1);
	assert_int_equal(lab->owners[0].port, 4294967294);
	close(fd);
}

/* A line counts from when it began: bytes now and then do not keep it open. */
static void silence(void **state)
{
	struct lab *lab = *state;
	int silent = program_connects(lab), slow = program_connects(lab);

	idle(lab);
	for (unsigned i = 0; i < 9; i++) {
		program_sends(lab, slow, " ");
		warp_clock(RF_NS_PER_SEC);
		idle(lab);
	}
	assert_false(is_closed(silent));
	assert_false(is_closed(slow));
	warp_clock(RF_NS_PER_SEC + RF_NS_PER_MS);
	idle(lab);
	assert_true(is_closed(silent));
	assert_true(is_closed(slow));
	close(silent);
	close(slow);
}

/* The time for the line is over when the line is there; the guest's answer takes its own. */
static void line_time_ends_with_the_line(void **state)
{
	struct lab *lab = *state;
	int fd = program_connects(lab);

	program_sends(lab, fd, "CONNECT 1\n");
	warp_clock(100 * RF_NS_PER_SEC);
	idle(lab);
	assert_false(is_closed(fd));
	ops->established(lab->owners[0].line);
	close(fd);
}

static void program_goes_before_its_line(void **state)
{
	struct lab *lab = *state;
	unsigned before;
	int fd = program_connects(lab);

	idle(lab);
	before = rig_open_fds();
	program_sends(lab, fd, "CONNECT 12");
	close(fd);
	idle(lab);
	assert_int_equal(lab->n_owners, 0);
	/* Its end and ours. */
	assert_int_equal(rig_open_fds(), before - 2);
}

static void device_refuses(void **state)
{
	struct lab *lab = *state;
	int fd = program_connects(lab);

	lab->refuse = -ENOTCONN;
	program_sends(lab, fd, "CONNECT 1\n");
	assert_true(is_closed(fd));
	close(fd);
}

static void limit_of_lines(void **state)
{
	struct lab *lab = *state;
	struct rf_vsock_line *line;
	int fds[16], more;

	for (unsigned i = 0; i < 16; i++)
		fds[i] = program_connects(lab);
	idle(lab);
	more = program_connects(lab);
	idle(lab);
	assert_true(is_closed(more));
	close(more);
	assert_int_equal(ops->dial(lab->plug, 1, &lab->owners[0], &line), -ENOSPC);
	close(fds[0]);
	idle(lab);
	more = program_connects(lab);
	idle(lab);
	assert_false(is_closed(more));
	close(more);
	for (unsigned i = 1; i < 16; i++)
		close(fds[i]);
}

/* Dialling */

static struct owner *dial(struct lab *lab, uint32_t port)
{
	struct owner *owner = &lab->owners[lab->n_owners++];

	*owner = (struct owner){ .port = port, .dialled = NOT_YET };
	assert_int_equal(ops->dial(lab->plug, port, owner, &owner->line), 0);
	/* Never from within. */
	assert_int_equal(owner->dialled, NOT_YET);
	return owner;
}

static int listen_at(const struct lab *lab, uint32_t port, int backlog, char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = new_socket();

	snprintf(path, sizeof(addr.sun_path), "%s_%u", lab->uds, port);
	memcpy(addr.sun_path, path, sizeof(addr.sun_path));
	assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(fd, backlog), 0);
	return fd;
}

static void dial_works(void **state)
{
	static const uint32_t ports[] = { 0, 1, 4294967294 };
	struct lab *lab = *state;

	for (size_t i = 0; i < RF_ARRAY_SIZE(ports); i++) {
		char path[108], buf[10];
		int listener = listen_at(lab, ports[i], 1, path), fd;
		struct owner *owner = dial(lab, ports[i]);
		struct iovec iov = { buf, sizeof(buf) };

		idle(lab);
		assert_int_equal(owner->dialled, 0);
		fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
		assert_true(fd >= 0);
		/* No line comes before the data. */
		assert_int_equal(device_sends(owner, "abc"), 3);
		assert_int_equal(read(fd, buf, sizeof(buf)), 3);
		assert_int_equal(write(fd, "de", 2), 2);
		idle(lab);
		assert_true(owner->bits & RF_LINE_READABLE);
		assert_int_equal(ops->recv(owner->line, &iov, 1), 2);
		ops->close(owner->line, false);
		assert_true(is_closed(fd));
		close(fd);
		close(listener);
		unlink(path);
	}
}

static void dial_refused(void **state)
{
	struct lab *lab = *state;
	struct owner *absent, *stale, *file;
	char path[108];
	int fd;

	absent = dial(lab, 1);
	idle(lab);
	assert_int_equal(absent->dialled, -ENOENT);
	ops->close(absent->line, true);

	close(listen_at(lab, 2, 1, path));
	stale = dial(lab, 2);
	idle(lab);
	assert_int_equal(stale->dialled, -ECONNREFUSED);
	ops->close(stale->line, true);
	unlink(path);

	fd = creat(path, 0600);
	file = dial(lab, 2);
	idle(lab);
	assert_int_equal(file->dialled, -ECONNREFUSED);
	ops->close(file->line, true);
	close(fd);
	unlink(path);
}

static void dial_full_backlog(void **state)
{
	struct lab *lab = *state;
	const struct rf_loop_counters *counters = rf_loop_counters(lab->loop);
	char path[108];
	int listener = listen_at(lab, 1, 0, path), fds[2];
	struct owner *first = dial(lab, 1), *second, *third;
	uint64_t tries;

	idle(lab);
	assert_int_equal(first->dialled, 0);
	second = dial(lab, 1);
	idle(lab);
	tries = rf_counter_read(&counters->loop_timers);
	for (unsigned i = 0; i < 1000; i++) {
		warp_clock(RF_NS_PER_MS);
		idle(lab);
	}
	/* A doubling pause: 2, 4, ... 64, 64 ms. */
	assert_in_range(rf_counter_read(&counters->loop_timers) - tries, 10, 25);
	assert_int_equal(second->dialled, NOT_YET);
	fds[0] = accept(listener, NULL, NULL);
	warp_clock(RF_HOST_RETRY_LAST_NS);
	idle(lab);
	assert_int_equal(second->dialled, 0);

	/* This one is never served: an error in time, not an eternal wait. */
	third = dial(lab, 1);
	warp_clock(1);
	idle(lab);
	warp_clock(DIAL_NS - RF_NS_PER_MS);
	idle(lab);
	assert_int_equal(third->dialled, NOT_YET);
	warp_clock(RF_NS_PER_MS);
	idle(lab);
	assert_int_equal(third->dialled, -EAGAIN);
	ops->close(third->line, true);

	/* One that is given up meanwhile. */
	third = dial(lab, 1);
	idle(lab);
	ops->close(third->line, true);
	warp_clock(DIAL_NS);
	idle(lab);
	assert_int_equal(third->dialled, NOT_YET);

	fds[1] = accept(listener, NULL, NULL);
	close(fds[0]);
	close(fds[1]);
	close(listener);
	unlink(path);
}

static void dial_without_descriptors(void **state)
{
	struct lab *lab = *state;
	struct rlimit limit, low;
	struct owner *owner;
	char path[108];
	int listener = listen_at(lab, 1, 1, path);

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	low = limit;
	low.rlim_cur = (rlim_t)listener + 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	owner = dial(lab, 1);
	idle(lab);
	warp_clock(RF_NS_PER_SEC);
	idle(lab);
	assert_int_equal(owner->dialled, NOT_YET);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	warp_clock(RF_HOST_RETRY_LAST_NS);
	idle(lab);
	assert_int_equal(owner->dialled, 0);
	close(listener);
	unlink(path);
}

/* I/O */

static void readable_is_told_again(void **state)
{
	struct lab *lab = *state;
	char buf[10];
	struct iovec iov = { buf, sizeof(buf) };
	struct owner *owner;
	int fd;

	owner = open_asked(lab, &fd);
	for (unsigned i = 1; i < 5; i++) {
		program_sends(lab, fd, "hello, world");
		assert_int_equal(owner->bits, RF_LINE_READABLE);
		assert_int_equal(owner->n_ready, i);
		assert_int_equal(ops->recv(owner->line, &iov, 1), 10);
		assert_int_equal(ops->recv(owner->line, &iov, 1), 2);
		assert_int_equal(ops->recv(owner->line, &iov, 1), -EAGAIN);
		idle(lab);
	}
	shutdown(fd, SHUT_WR);
	idle(lab);
	assert_int_equal(owner->bits, RF_LINE_READABLE);
	assert_int_equal(owner->n_ready, 5);
	assert_int_equal(ops->recv(owner->line, &iov, 1), 0);
	close(fd);
}

static void writable_is_told_after_refusal(void **state)
{
	static uint8_t bytes[1 << 16], back[1 << 16];
	struct iovec iov = { bytes, sizeof(bytes) };
	struct lab *lab = *state;
	struct owner *owner;
	size_t sent = 0, read_back = 0;
	ssize_t n;
	int fd;

	owner = open_asked(lab, &fd);
	/* A program that reads makes nothing writable that was never full (vhost-device PR 800). */
	assert_int_equal(ops->send(owner->line, &(struct iovec){ bytes, 100 }, 1), 100);
	assert_int_equal(read(fd, back, sizeof(back)), 100);
	idle(lab);
	assert_int_equal(owner->n_ready, 0);
	while ((n = ops->send(owner->line, &iov, 1)) > 0)
		sent += (size_t)n;
	assert_int_equal(n, -EAGAIN);
	idle(lab);
	assert_int_equal(owner->n_ready, 0);
	while ((n = read(fd, back, sizeof(back))) > 0)
		read_back += (size_t)n;
	assert_int_equal(read_back, sent);
	idle(lab);
	assert_int_equal(owner->bits, RF_LINE_WRITABLE);
	assert_int_equal(owner->n_ready, 1);
	assert_true(ops->send(owner->line, &iov, 1) > 0);
	close(fd);
}

/* Firecracker #2464: no SIGPIPE, and the three ways in which a program stops reading. */
static void program_stops_reading(void **state)
{
	struct lab *lab = *state;
	struct owner *owner;
	char buf[10];
	struct iovec iov = { buf, sizeof(buf) };
	int fd;

	owner = open_asked(lab, &fd);
	shutdown(fd, SHUT_RD);
	idle(lab);
	assert_int_equal(device_sends(owner, "x"), -EPIPE);
	assert_int_equal(write(fd, "last", 4), 4);
	assert_int_equal(ops->recv(owner->line, &iov, 1), 4);
	close(fd);
	idle(lab);
	assert_true(owner->bits & RF_LINE_HANGUP);

	/* Gone, with nothing unread. */
	owner = open_asked(lab, &fd);
	assert_int_equal(write(fd, "last", 4), 4);
	close(fd);
	idle(lab);
	assert_true(owner->bits & RF_LINE_HANGUP);
	assert_int_equal(device_sends(owner, "x"), -EPIPE);
	assert_int_equal(ops->recv(owner->line, &iov, 1), 4);
	assert_int_equal(ops->recv(owner->line, &iov, 1), 0);

	/* Gone, with something unread: what it wrote can still be read, up to its end. */
	owner = open_asked(lab, &fd);
	assert_int_equal(device_sends(owner, "x"), 1);
	assert_int_equal(write(fd, "last", 4), 4);
	close(fd);
	idle(lab);
	assert_true(owner->bits & RF_LINE_HANGUP);
	assert_int_equal(ops->recv(owner->line, &iov, 1), 4);
	assert_int_equal(ops->recv(owner->line, &iov, 1), 0);
	assert_int_equal(device_sends(owner, "x"), -EPIPE);
}

/* Whoever waits to write learns of the hang-up as well. */
static void hangup_while_full(void **state)
{
	static uint8_t bytes[1 << 16];
	struct iovec iov = { bytes, sizeof(bytes) };
	struct lab *lab = *state;
	struct owner *owner;
	int fd;

	owner = open_asked(lab, &fd);
	while (ops->send(owner->line, &iov, 1) > 0)
		;
	close(fd);
	idle(lab);
	assert_int_equal(owner->bits, RF_LINE_READABLE | RF_LINE_WRITABLE | RF_LINE_HANGUP);
	assert_true(ops->send(owner->line, &iov, 1) < 0);
	assert_int_equal(ops->recv(owner->line, &iov, 1), 0);
}

static void shut_down(void **state)
{
	struct lab *lab = *state;
	struct owner *owner;
	char c;
	int fd;

	owner = open_asked(lab, &fd);
	ops->shutdown(owner->line, RF_VSOCK_SHUT_SEND);
	assert_int_equal(read(fd, &c, 1), 0);
	assert_int_equal(write(fd, "x", 1), 1);
	ops->shutdown(owner->line, RF_VSOCK_SHUT_RCV);
	assert_int_equal(send(fd, "x", 1, MSG_NOSIGNAL), -1);
	assert_int_equal(errno, EPIPE);
	close(fd);
}

static void many_pieces(void **state)
{
	static uint8_t bytes[1024 * 3], back[sizeof(bytes)];
	static struct iovec iov[1024];
	struct lab *lab = *state;
	struct owner *owner;
	int fd;

	owner = open_asked(lab, &fd);
	rig_fill(bytes, sizeof(bytes), 0);
	for (unsigned i = 0; i < 1024; i++)
		iov[i] = (struct iovec){ bytes + (size_t)3 * i, 3 };
	assert_int_equal(ops->send(owner->line, iov, 1024), sizeof(bytes));
	assert_int_equal(read(fd, back, sizeof(back)), sizeof(back));
	rig_check(back, sizeof(back), 0);
	memset(bytes, 0, sizeof(bytes));
	assert_int_equal(write(fd, back, sizeof(back)), sizeof(back));
	assert_int_equal(ops->recv(owner->line, iov, 1024), sizeof(bytes));
	rig_check(bytes, sizeof(bytes), 0);
	close(fd);
}

/* A wrong address is the guest's, and told as such. */
static void bad_address(void **state)
{
	struct iovec iov = { (void *)16, 100 };
	struct lab *lab = *state;
	struct owner *owner;
	int fd;

	owner = open_asked(lab, &fd);
	assert_int_equal(ops->send(owner->line, &iov, 1), -EFAULT);
	program_sends(lab, fd, "x");
	assert_int_equal(ops->recv(owner->line, &iov, 1), -EFAULT);
	close(fd);
}

/* The plug itself */

static void freed_with_lines(void **state)
{
	struct lab *lab = *state;
	struct stat st;
	int silent = program_connects(lab), asked = program_connects(lab), fd;

	program_sends(lab, asked, "CONNECT 1\n");
	(void)open_asked(lab, &fd);
	dial(lab, 5);
	ops->free(lab->plug);
	lab->plug = NULL;
	assert_true(is_closed(silent) && is_closed(asked) && is_closed(fd));
	assert_int_equal(stat(lab->uds, &st), -1);
	close(silent);
	close(asked);
	close(fd);
}

static void path_in_use(void **state)
{
	struct lab *lab = *state;
	const struct rf_vsock_plug_options options = {
		.loop = lab->loop,
		.log = &lab->log,
		.path = lab->uds,
		.mode = -1,
		.max_lines = 1,
		.user = &user,
	};
	struct rf_vsock_plug *other;

	assert_int_equal(ops->open(&options, &other), -EADDRINUSE);
	assert_non_null(strstr(lab->text, lab->uds));
}

#define TEST(name)                                 \
	{                                          \
#name, name, setup, teardown, NULL \
	}

static const struct CMUnitTest tests[] = {
	TEST(line_byte_by_byte),
	TEST(silence),
	TEST(line_time_ends_with_the_line),
	TEST(program_goes_before_its_line),
	TEST(device_refuses),
	TEST(limit_of_lines),
	TEST(dial_works),
	TEST(dial_refused),
	TEST(dial_full_backlog),
	TEST(dial_without_descriptors),
	TEST(readable_is_told_again),
	TEST(writable_is_told_after_refusal),
	TEST(program_stops_reading),
	TEST(hangup_while_full),
	TEST(shut_down),
	TEST(many_pieces),
	TEST(bad_address),
	TEST(freed_with_lines),
	TEST(path_in_use),
};

int main(void)
{
	struct CMUnitTest all[RF_ARRAY_SIZE(tests) + RF_ARRAY_SIZE(line_rows)];
	size_t n = 0;

	for (size_t i = 0; i < RF_ARRAY_SIZE(line_rows); i++)
		all[n++] = (struct CMUnitTest){ line_rows[i].name, connect_line, NULL, NULL,
						(void *)(uintptr_t)&line_rows[i] };
	for (size_t i = 0; i < RF_ARRAY_SIZE(tests); i++)
		all[n++] = tests[i];
	return _cmocka_run_group_tests("vsock-plug-unix", all, n, NULL, NULL);
}
