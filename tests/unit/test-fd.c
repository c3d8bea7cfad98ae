/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/fd.h"
#include "open_fds.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* Every test must leave as many descriptors as it found. */
static int note_fds(void **state)
{
	*state = (void *)(uintptr_t)open_fds();
	return 0;
}

static int check_fds(void **state)
{
	return open_fds() == (uintptr_t)*state ? 0 : -1;
}

static void make_pair(int type, int pair[2])
{
	assert_int_equal(socketpair(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
}

static void close_pair(const int pair[2])
{
	rf_fd_close(pair[0]);
	rf_fd_close(pair[1]);
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static void test_close(void **state RF_UNUSED)
{
	int fd = rf_eventfd_new();

	errno = ENOENT;
	assert_int_equal(rf_fd_close(fd), -1);
	assert_false(is_open(fd));
	errno = ENOENT;
	assert_int_equal(rf_fd_close(fd), -1);
	assert_int_equal(rf_fd_close(-1), -1);
	assert_int_equal(rf_fd_close(-EINVAL), -1);
	assert_int_equal(errno, ENOENT);
}

static void test_auto(void **state RF_UNUSED)
{
	int closed, kept;

	{
		RF_AUTO_FD int a = rf_eventfd_new();
		RF_AUTO_FD int b = rf_eventfd_new();

		closed = a;
		kept = rf_fd_steal(&b);
		assert_int_equal(b, -1);
		assert_true(is_open(closed));
	}
	assert_false(is_open(closed));
	assert_true(is_open(kept));
	rf_fd_close(kept);
}

static void test_set_nonblock(void **state RF_UNUSED)
{
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	assert_int_equal(rf_fd_set_nonblock(pair[0]), 0);
	assert_true(fcntl(pair[0], F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(pair[0], F_GETFD) & FD_CLOEXEC);
	close_pair(pair);
	assert_int_equal(rf_fd_set_nonblock(pair[0]), -EBADF);
}

static void test_eventfd(void **state RF_UNUSED)
{
	int fd = rf_eventfd_new();
	uint64_t count = UINT64_MAX - 1;

	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
	assert_false(rf_eventfd_drain(fd));
	rf_eventfd_signal(fd);
	rf_eventfd_signal(fd);
	assert_true(rf_eventfd_drain(fd));
	assert_false(rf_eventfd_drain(fd));
	/* Full: neither blocks nor fails, and stays signalled. */
	assert_int_equal(write(fd, &count, sizeof(count)), sizeof(count));
	errno = ENOENT;
	rf_eventfd_signal(fd);
	assert_int_equal(errno, ENOENT);
	assert_true(rf_eventfd_drain(fd));
	rf_fd_close(fd);
}

/* A peer's eventfd that is full and blocks: anybody who waited would wait for ever. */
static void test_signal_peer(void **state RF_UNUSED)
{
	int fd = rf_eventfd_new(), pair[2];
	uint64_t count = UINT64_MAX - 1;
	char byte;

	fcntl(fd, F_SETFL, 0);
	/* More than there is room for results. */
	for (unsigned i = 0; i < 1000; i++)
		rf_eventfd_signal_peer(fd);
	assert_int_equal(read(fd, &count, sizeof(count)), sizeof(count));
	assert_int_equal(count, 1000);
	count = UINT64_MAX - 1;
	assert_int_equal(write(fd, &count, sizeof(count)), sizeof(count));
	alarm(10);
	errno = ENOENT;
	for (unsigned i = 0; i < 3; i++)
		rf_eventfd_signal_peer(fd);
	assert_int_equal(errno, ENOENT);
	assert_true(rf_eventfd_drain(fd));
	rf_fd_close(fd);

	/* No eventfd: no signal, and no waiting either. */
	make_pair(SOCK_STREAM, pair);
	rf_eventfd_signal_peer(pair[0]);
	rf_eventfd_signal_peer(-1);
	while (write(pair[0], &pair, sizeof(pair)) > 0)
		continue;
	fcntl(pair[0], F_SETFL, 0);
	rf_eventfd_signal_peer(pair[0]);
	alarm(0);
	assert_int_equal(read(pair[1], &byte, 1), 1);
	close_pair(pair);
}

static void *signal_often(void *arg)
{
	for (unsigned i = 0; i < 20000; i++)
		rf_eventfd_signal_peer(*(int *)arg);
	return NULL;
}

/* Threads share the results' room, and lose no signal over it. */
static void test_signal_peer_threads(void **state RF_UNUSED)
{
	int fd = rf_eventfd_new();
	pthread_t threads[4];
	uint64_t count, sum = 0;

	for (unsigned i = 0; i < RF_ARRAY_SIZE(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, signal_often, &fd), 0);
	for (unsigned i = 0; i < RF_ARRAY_SIZE(threads); i++)
		pthread_join(threads[i], NULL);
	/* Signals that meet each other may come a moment later, by another thread of the kernel. */
	while (sum < 4 * 20000) {
		struct pollfd poll_fd = { .fd = fd, .events = POLLIN };

		assert_int_equal(poll(&poll_fd, 1, 5000), 1);
		assert_int_equal(read(fd, &count, sizeof(count)), sizeof(count));
		sum += count;
	}
	assert_int_equal(sum, 4 * 20000);
	rf_fd_close(fd);
}

/* What a peer may send in place of an eventfd. */
static void test_no_eventfd(void **state RF_UNUSED)
{
	int pair[2], null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	char byte;

	assert_true(null >= 0);
	errno = ENOENT;
	rf_eventfd_signal(null);
	rf_eventfd_signal(-1);
	assert_int_equal(errno, ENOENT);
	assert_false(rf_eventfd_drain(null));
	assert_false(rf_eventfd_drain(-1));
	rf_fd_close(null);

	/* A socket that is full. */
	make_pair(SOCK_STREAM, pair);
	while (write(pair[0], &pair, sizeof(pair)) > 0)
		continue;
	rf_eventfd_signal(pair[0]);
	assert_int_equal(read(pair[1], &byte, 1), 1);
	close_pair(pair);
}

/* @send, @room: descriptors sent, and room for them; @result: of rf_fd_recv() */
static const struct pass_row {
	unsigned send, room;
	ssize_t result;
} pass_rows[] = {
	/* 0 */ { 0, 0, 5 },
	/* 1 */ { 0, 8, 5 },
	/* 2 */ { 1, 1, 5 },
	/* 3 */ { 8, 8, 5 },
	/* 4 */ { RF_FD_PASS_MAX, RF_FD_PASS_MAX, 5 },
	/* 5 */ { 1, 0, -EMSGSIZE },
	/* 6 */ { 9, 8, -EMSGSIZE },
	/* 7: two fit into the padding of the control message for one: the classic leak */
	/* 7 */ { 2, 1, -EMSGSIZE },
	/* 8 */ { RF_FD_PASS_MAX, 8, -EMSGSIZE },
};

static void test_pass(void **state RF_UNUSED)
{
	int fds[RF_FD_PASS_MAX], got[RF_FD_PASS_MAX], event = rf_eventfd_new();

	for (unsigned i = 0; i < RF_FD_PASS_MAX; i++)
		fds[i] = event;
	for (size_t i = 0; i < RF_ARRAY_SIZE(pass_rows); i++) {
		const struct pass_row *row = &pass_rows[i];
		unsigned before = open_fds(), n = 4711;
		char buf[8] = "";
		int pair[2];

		print_message("row %zu\n", i);
		got[0] = 4711;
		make_pair(SOCK_STREAM, pair);
		assert_int_equal(rf_fd_send(pair[0], "hello", 5, fds, row->send), 5);
		assert_int_equal(rf_fd_recv(pair[1], buf, sizeof(buf), got, row->room, &n),
				 row->result);
		if (row->result < 0) {
			assert_int_equal(n, 4711);
			assert_int_equal(got[0], 4711);
			n = 0;
		} else {
			assert_string_equal(buf, "hello");
			assert_int_equal(n, row->send);
		}
		for (unsigned k = 0; k < n; k++) {
			assert_true(fcntl(got[k], F_GETFD) & FD_CLOEXEC);
			rf_eventfd_signal(got[k]);
			assert_true(rf_eventfd_drain(event));
			rf_fd_close(got[k]);
		}
		close_pair(pair);
		assert_int_equal(open_fds(), before);
	}
	rf_fd_close(event);
}

/* The descriptors ride on the first byte, and a short read does not lose them. */
static void test_pass_order(void **state RF_UNUSED)
{
	int event = rf_eventfd_new(), got[2], pair[2];
	unsigned n;
	char buf[8];

	make_pair(SOCK_STREAM, pair);
	assert_int_equal(rf_fd_send(pair[0], "ab", 2, NULL, 0), 2);
	assert_int_equal(rf_fd_send(pair[0], "cdef", 4, &event, 1), 4);
	assert_int_equal(rf_fd_recv(pair[1], buf, 2, got, 2, &n), 2);
	assert_int_equal(n, 0);
	assert_int_equal(rf_fd_recv(pair[1], buf, 2, got, 2, &n), 2);
	assert_int_equal(n, 1);
	rf_fd_close(got[0]);
	assert_int_equal(rf_fd_recv(pair[1], buf, sizeof(buf), got, 2, &n), 2);
	assert_int_equal(n, 0);
	close_pair(pair);
	rf_fd_close(event);
}

static void test_recv_ends(void **state RF_UNUSED)
{
	int pair[2], got[1];
	unsigned n = 4711;
	char buf[8];

	make_pair(SOCK_STREAM, pair);
	assert_int_equal(rf_fd_recv(pair[1], buf, sizeof(buf), got, 1, &n), -EAGAIN);
	assert_int_equal(n, 4711);
	pair[0] = rf_fd_close(pair[0]);
	assert_int_equal(rf_fd_recv(pair[1], buf, sizeof(buf), got, 1, &n), 0);
	assert_int_equal(n, 0);
	/* SIGPIPE would end this program. */
	assert_int_equal(rf_fd_send(pair[1], "x", 1, NULL, 0), -EPIPE);
	close_pair(pair);
	assert_int_equal(rf_fd_recv(pair[1], buf, sizeof(buf), got, 1, &n), -EBADF);
}

/* The kernel drops descriptors silently when this process may not have more. */
static void test_recv_at_limit(void **state RF_UNUSED)
{
	struct rlimit old, low;
	int event = rf_eventfd_new(), fds[3] = { event, event, event }, got[8], pair[2];
	unsigned n = 4711, before;
	char buf[8];

	make_pair(SOCK_STREAM, pair);
	before = open_fds();
	assert_int_equal(rf_fd_send(pair[0], "x", 1, fds, 3), 1);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	/* The pair's descriptors are the highest, so one more is allowed. */
	low = (struct rlimit){ (rlim_t)pair[1] + 2, old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	assert_int_equal(rf_fd_recv(pair[1], buf, sizeof(buf), got, 8, &n), -EMSGSIZE);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(n, 4711);
	assert_int_equal(open_fds(), before);
	close_pair(pair);
	rf_fd_close(event);
}

static void test_raise_limit(void **state RF_UNUSED)
{
	struct rlimit old, now;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	now = (struct rlimit){ 64, old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
	assert_int_equal(rf_fd_raise_limit(32), 64);
	assert_int_equal(rf_fd_raise_limit(100), 100);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
	assert_int_equal(now.rlim_cur, 100);
	assert_int_equal(now.rlim_max, old.rlim_max);
	assert_int_equal(rf_fd_raise_limit(UINT64_MAX), rf_min_u64(old.rlim_max, INT64_MAX));
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, note_fds, check_fds)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_close),         TEST(test_auto),
		TEST(test_set_nonblock),  TEST(test_eventfd),
		TEST(test_no_eventfd),    TEST(test_pass),
		TEST(test_signal_peer),   TEST(test_signal_peer_threads),
		TEST(test_pass_order),    TEST(test_recv_ends),
		TEST(test_recv_at_limit), TEST(test_raise_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
