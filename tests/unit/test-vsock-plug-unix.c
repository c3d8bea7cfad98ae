/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hybrid unix socket: dialling, I/O and ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "host/limits.h"
#include "plug_lab.h"
#include "vsock/packet.h"
#include "vsock_rig.h"

/* Dialling */

static struct plug_owner *dial(struct plug_lab *lab, uint32_t port)
{
	struct plug_owner *owner = &lab->owners[lab->n_owners++];

	*owner = (struct plug_owner){ .port = port, .dialled = PLUG_NOT_YET };
	assert_int_equal(plug_dial(lab, port, owner, &owner->line), 0);
	/* Never from within. */
	assert_int_equal(owner->dialled, PLUG_NOT_YET);
	return owner;
}

static int listen_at(const struct plug_lab *lab, uint32_t port, int backlog, char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = plug_new_socket();

	snprintf(path, sizeof(addr.sun_path), "%s_%u", lab->uds, port);
	memcpy(addr.sun_path, path, sizeof(addr.sun_path));
	assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(fd, backlog), 0);
	return fd;
}

static void dial_works(void **state)
{
	static const uint32_t ports[] = { 0, 1, 4294967294 };
	struct plug_lab *lab = *state;

	for (size_t i = 0; i < RF_ARRAY_SIZE(ports); i++) {
		char path[108], buf[10];
		int listener = listen_at(lab, ports[i], 1, path), fd;
		struct plug_owner *owner = dial(lab, ports[i]);
		struct iovec iov = { buf, sizeof(buf) };

		plug_idle(lab);
		assert_int_equal(owner->dialled, 0);
		fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
		assert_true(fd >= 0);
		/* No line comes before the data. */
		assert_int_equal(plug_device_sends(owner, "abc"), 3);
		assert_int_equal(read(fd, buf, sizeof(buf)), 3);
		assert_int_equal(write(fd, "de", 2), 2);
		plug_idle(lab);
		assert_true(owner->bits & RF_LINE_READABLE);
		assert_int_equal(plug_ops->recv(owner->line, &iov, 1), 2);
		plug_ops->close(owner->line, RF_VSOCK_CLOSED);
		assert_true(plug_is_closed(fd));
		close(fd);
		close(listener);
		unlink(path);
	}
}

static void dial_refused(void **state)
{
	struct plug_lab *lab = *state;
	struct plug_owner *absent, *stale, *file;
	char path[108];
	int fd;

	absent = dial(lab, 1);
	plug_idle(lab);
	assert_int_equal(absent->dialled, -ENOENT);
	plug_ops->close(absent->line, RF_VSOCK_LOCAL_RESET);

	close(listen_at(lab, 2, 1, path));
	stale = dial(lab, 2);
	plug_idle(lab);
	assert_int_equal(stale->dialled, -ECONNREFUSED);
	plug_ops->close(stale->line, RF_VSOCK_LOCAL_RESET);
	unlink(path);

	fd = creat(path, 0600);
	file = dial(lab, 2);
	plug_idle(lab);
	assert_int_equal(file->dialled, -ECONNREFUSED);
	plug_ops->close(file->line, RF_VSOCK_LOCAL_RESET);
	close(fd);
	unlink(path);
}

static void dial_full_backlog(void **state)
{
	struct plug_lab *lab = *state;
	const struct rf_loop_counters *counters = rf_loop_counters(lab->loop);
	char path[108];
	int listener = listen_at(lab, 1, 0, path), fds[2];
	struct plug_owner *first = dial(lab, 1), *second, *third;
	uint64_t tries;

	plug_idle(lab);
	assert_int_equal(first->dialled, 0);
	second = dial(lab, 1);
	plug_idle(lab);
	tries = rf_counter_read(&counters->loop_timers);
	for (unsigned i = 0; i < 1000; i++) {
		warp_clock(RF_NS_PER_MS);
		plug_idle(lab);
	}
	/* A doubling pause: 2, 4, ... 64, 64 ms. */
	assert_in_range(rf_counter_read(&counters->loop_timers) - tries, 10, 25);
	assert_int_equal(second->dialled, PLUG_NOT_YET);
	fds[0] = accept(listener, NULL, NULL);
	warp_clock(RF_HOST_RETRY_LAST_NS);
	plug_idle(lab);
	assert_int_equal(second->dialled, 0);

	/* This one is never served: an error in time, not an eternal wait. */
	third = dial(lab, 1);
	plug_idle(lab);
	warp_clock(PLUG_DIAL_NS - RF_NS_PER_SEC);
	plug_idle(lab);
	assert_int_equal(third->dialled, PLUG_NOT_YET);
	warp_clock(RF_NS_PER_SEC);
	plug_idle(lab);
	assert_int_equal(third->dialled, -EAGAIN);
	plug_ops->close(third->line, RF_VSOCK_LOCAL_RESET);

	/* One that is given up meanwhile. */
	third = dial(lab, 1);
	plug_idle(lab);
	plug_ops->close(third->line, RF_VSOCK_LOCAL_RESET);
	warp_clock(PLUG_DIAL_NS);
	plug_idle(lab);
	assert_int_equal(third->dialled, PLUG_NOT_YET);

	fds[1] = accept(listener, NULL, NULL);
	close(fds[0]);
	close(fds[1]);
	close(listener);
	unlink(path);
}

static void dial_without_descriptors(void **state)
{
	struct plug_lab *lab = *state;
	struct rlimit limit, low;
	struct plug_owner *owner;
	char path[108];
	int listener = listen_at(lab, 1, 1, path);

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	low = limit;
	low.rlim_cur = (rlim_t)listener + 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	owner = dial(lab, 1);
	plug_idle(lab);
	warp_clock(RF_NS_PER_SEC);
	plug_idle(lab);
	assert_int_equal(owner->dialled, PLUG_NOT_YET);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	warp_clock(RF_HOST_RETRY_LAST_NS);
	plug_idle(lab);
	assert_int_equal(owner->dialled, 0);
	close(listener);
	unlink(path);
}

/* I/O */

static void readable_is_told_again(void **state)
{
	struct plug_lab *lab = *state;
	char buf[10];
	struct iovec iov = { buf, sizeof(buf) };
	struct plug_owner *owner;
	int fd;

	owner = plug_open_asked(lab, &fd);
	for (unsigned i = 1; i < 5; i++) {
		plug_program_sends(lab, fd, "hello, world");
		assert_int_equal(owner->bits, RF_LINE_READABLE);
		assert_int_equal(owner->n_ready, i);
		assert_int_equal(plug_ops->recv(owner->line, &iov, 1), 10);
		assert_int_equal(plug_ops->recv(owner->line, &iov, 1), 2);
		assert_int_equal(plug_ops->recv(owner->line, &iov, 1), -EAGAIN);
		plug_idle(lab);
	}
	shutdown(fd, SHUT_WR);
	plug_idle(lab);
	assert_int_equal(owner->bits, RF_LINE_READABLE);
	assert_int_equal(owner->n_ready, 5);
	assert_int_equal(plug_ops->recv(owner->line, &iov, 1), 0);
	close(fd);
}

/* vhost-device PR 800: a program that reads what never was too much wakes nobody. */
static void expect_quiet_reader(struct plug_lab *lab, struct plug_owner *owner, int fd)
{
	const struct rf_loop_counters *counters = rf_loop_counters(lab->loop);
	uint64_t events = rf_counter_read(&counters->loop_events);
	unsigned n_ready = owner->n_ready;
	char back[100];

	for (unsigned i = 0; i < 10; i++) {
		assert_int_equal(plug_device_sends(owner, "hello"), 5);
		assert_int_equal(read(fd, back, sizeof(back)), 5);
		plug_idle(lab);
	}
	assert_int_equal(rf_counter_read(&counters->loop_events), events);
	assert_int_equal(owner->n_ready, n_ready);
}

static void writable_is_told_after_refusal(void **state)
{
	static uint8_t bytes[1 << 16], back[1 << 16];
	struct iovec iov = { bytes, sizeof(bytes) };
	struct plug_lab *lab = *state;
	struct plug_owner *owner;
	size_t sent = 0, read_back = 0;
	ssize_t n;
	int fd;

	owner = plug_open_asked(lab, &fd);
	expect_quiet_reader(lab, owner, fd);
	while ((n = plug_ops->send(owner->line, &iov, 1)) > 0)
		sent += (size_t)n;
	assert_int_equal(n, -EAGAIN);
	plug_idle(lab);
	assert_int_equal(owner->n_ready, 0);
	while ((n = read(fd, back, sizeof(back))) > 0)
		read_back += (size_t)n;
	assert_int_equal(read_back, sent);
	plug_idle(lab);
	assert_int_equal(owner->bits, RF_LINE_WRITABLE);
	assert_int_equal(owner->n_ready, 1);
	expect_quiet_reader(lab, owner, fd);
	close(fd);
}

/* Firecracker #2464: no SIGPIPE, and the three ways in which a program stops reading. */
static void program_stops_reading(void **state)
{
	struct plug_lab *lab = *state;
	struct plug_owner *owner;
	char buf[10];
	struct iovec iov = { buf, sizeof(buf) };
	int fd;

	owner = plug_open_asked(lab, &fd);
	shutdown(fd, SHUT_RD);
	plug_idle(lab);
	assert_int_equal(plug_device_sends(owner, "x"), -EPIPE);
	assert_int_equal(write(fd, "last", 4), 4);
	assert_int_equal(plug_ops->recv(owner->line, &iov, 1), 4);
	close(fd);
	plug_idle(lab);
	assert_true(owner->bits & RF_LINE_HANGUP);

	/* Gone, with nothing unread. */
	owner = plug_open_asked(lab, &fd);
	assert_int_equal(write(fd, "last", 4), 4);
	close(fd);
	plug_idle(lab);
	assert_true(owner->bits & RF_LINE_HANGUP);
	assert_int_equal(plug_device_sends(owner, "x"), -EPIPE);
	assert_int_equal(plug_ops->recv(owner->line, &iov, 1), 4);
	assert_int_equal(plug_ops->recv(owner->line, &iov, 1), 0);

	/* Gone, with something unread: what it wrote can still be read, up to its end. */
	owner = plug_open_asked(lab, &fd);
	assert_int_equal(plug_device_sends(owner, "x"), 1);
	assert_int_equal(write(fd, "last", 4), 4);
	close(fd);
	plug_idle(lab);
	assert_true(owner->bits & RF_LINE_HANGUP);
	assert_int_equal(plug_ops->recv(owner->line, &iov, 1), 4);
	assert_int_equal(plug_ops->recv(owner->line, &iov, 1), 0);
	assert_int_equal(plug_device_sends(owner, "x"), -EPIPE);
}

/* Whoever waits to write learns of the hang-up as well. */
static void hangup_while_full(void **state)
{
	static uint8_t bytes[1 << 16];
	struct iovec iov = { bytes, sizeof(bytes) };
	struct plug_lab *lab = *state;
	struct plug_owner *owner;
	int fd;

	owner = plug_open_asked(lab, &fd);
	while (plug_ops->send(owner->line, &iov, 1) > 0)
		;
	close(fd);
	plug_idle(lab);
	assert_int_equal(owner->bits, RF_LINE_READABLE | RF_LINE_WRITABLE | RF_LINE_HANGUP);
	assert_true(plug_ops->send(owner->line, &iov, 1) < 0);
	assert_int_equal(plug_ops->recv(owner->line, &iov, 1), 0);
}

static void shut_down(void **state)
{
	struct plug_lab *lab = *state;
	struct plug_owner *owner;
	char c;
	int fd;

	owner = plug_open_asked(lab, &fd);
	plug_ops->shutdown(owner->line, RF_VSOCK_SHUT_SEND);
	assert_int_equal(read(fd, &c, 1), 0);
	assert_int_equal(write(fd, "x", 1), 1);
	plug_ops->shutdown(owner->line, RF_VSOCK_SHUT_RCV);
	assert_int_equal(send(fd, "x", 1, MSG_NOSIGNAL), -1);
	assert_int_equal(errno, EPIPE);
	close(fd);
}

static void many_pieces(void **state)
{
	static uint8_t bytes[1024 * 3], back[sizeof(bytes)];
	static struct iovec iov[1024];
	struct plug_lab *lab = *state;
	struct plug_owner *owner;
	int fd;

	owner = plug_open_asked(lab, &fd);
	rig_fill(bytes, sizeof(bytes), 0);
	for (unsigned i = 0; i < 1024; i++)
		iov[i] = (struct iovec){ bytes + (size_t)3 * i, 3 };
	assert_int_equal(plug_ops->send(owner->line, iov, 1024), sizeof(bytes));
	assert_int_equal(read(fd, back, sizeof(back)), sizeof(back));
	rig_check(back, sizeof(back), 0);
	memset(bytes, 0, sizeof(bytes));
	assert_int_equal(write(fd, back, sizeof(back)), sizeof(back));
	assert_int_equal(plug_ops->recv(owner->line, iov, 1024), sizeof(bytes));
	rig_check(bytes, sizeof(bytes), 0);
	close(fd);
}

/* A wrong address is the guest's, and told as such. */
static void bad_address(void **state)
{
	struct iovec iov = { (void *)16, 100 };
	struct plug_lab *lab = *state;
	struct plug_owner *owner;
	int fd;

	owner = plug_open_asked(lab, &fd);
	assert_int_equal(plug_ops->send(owner->line, &iov, 1), -EFAULT);
	plug_program_sends(lab, fd, "x");
	assert_int_equal(plug_ops->recv(owner->line, &iov, 1), -EFAULT);
	close(fd);
}

/* The plug itself */

static void freed_with_lines(void **state)
{
	struct plug_lab *lab = *state;
	struct stat st;
	int silent = plug_connect(lab), asked = plug_connect(lab), fd;

	plug_program_sends(lab, asked, "CONNECT 1\n");
	(void)plug_open_asked(lab, &fd);
	dial(lab, 5);
	plug_ops->free(lab->plug);
	lab->plug = NULL;
	assert_true(plug_is_closed(silent) && plug_is_closed(asked) && plug_is_closed(fd));
	assert_int_equal(stat(lab->uds, &st), -1);
	close(silent);
	close(asked);
	close(fd);
}

static void path_in_use(void **state)
{
	struct plug_lab *lab = *state;
	const struct rf_vsock_plug_options options = {
		.loop = lab->loop,
		.log = &lab->log,
		.path = lab->uds,
		.access = { -1, (uid_t)-1, (gid_t)-1 },
		.max_lines = 1,
	};
	struct rf_vsock_plug *other;

	assert_int_equal(plug_ops->open(&options, &other), -EADDRINUSE);
	assert_non_null(strstr(lab->text, lab->uds));
}

static const struct CMUnitTest tests[] = {
	PLUG_TEST(dial_works),
	PLUG_TEST(dial_refused),
	PLUG_TEST(dial_full_backlog),
	PLUG_TEST(dial_without_descriptors),
	PLUG_TEST(readable_is_told_again),
	PLUG_TEST(writable_is_told_after_refusal),
	PLUG_TEST(program_stops_reading),
	PLUG_TEST(hangup_while_full),
	PLUG_TEST(shut_down),
	PLUG_TEST(many_pieces),
	PLUG_TEST(bad_address),
	PLUG_TEST(freed_with_lines),
	PLUG_TEST(path_in_use),
};

int main(void)
{
	static struct rig_group group;

	rig_group_add(&group, tests, RF_ARRAY_SIZE(tests));
	return rig_group_run(&group, "vsock-plug-unix");
}
