/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The Nth system call of the client library and of the event loop's making fail. The back end is
 * played while the client waits; time passes on the warped clock only.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/loop.h"
#include "fault_loop.h"
#include "ringferry/client.h"

#define PORT    7u
#define WAIT_MS 3000

/**
 * struct back_end - The hybrid socket and what has come to it
 * @dir, @uds:	Directory and socket
 * @listener, @fd: Sockets; @fd -1 if nobody has connected
 * @text:	The CONNECT line
 */
static struct back_end {
	char dir[32], uds[48];
	int listener, fd;
	char text[32];
	size_t got;
} end;

static struct sockaddr_un address(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	return addr;
}

static void end_open(void)
{
	struct sockaddr_un addr = address(end.uds);

	end.fd = -1;
	end.got = 0;
	end.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_true(end.listener >= 0);
	assert_int_equal(bind(end.listener, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(end.listener, 8), 0);
}

static void end_close(void)
{
	rf_fd_close(end.fd);
	rf_fd_close(end.listener);
	unlink(end.uds);
}

/* What the back end does while the client waits. Each try of the client's is a connection. */
static void end_act(void *ctx)
{
	ssize_t n;
	int fd;

	(void)ctx;
	while ((fd = accept4(end.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
		rf_fd_close(end.fd);
		end.fd = fd;
		end.got = 0;
	}
	n = recv(end.fd, end.text + end.got, sizeof(end.text) - end.got, 0);
	if (n > 0)
		end.got += (size_t)n;
	if (end.got && end.text[end.got - 1] == '\n') {
		assert_memory_equal(end.text, "CONNECT 7\n", 10);
		assert_int_equal(send(end.fd, "OK 7\nhello", 10, MSG_NOSIGNAL), 10);
		end.got = 0;
	}
}

static void check_hello(int fd)
{
	char buf[16];

	assert_int_equal(recv(fd, buf, sizeof(buf), MSG_DONTWAIT), 5);
	assert_memory_equal(buf, "hello", 5);
	close(fd);
}

static void connecting(void)
{
	int r;

	end_open();
	fault_set_other_side(end_act, NULL);
	r = FAULT_RUN(rf_client_connect(end.uds, PORT, WAIT_MS));
	if (r >= 0) {
		check_hello(r);
	} else if (!fault_end() || fault_harmless()) {
		FAULT_FAIL("connecting returned %d", r);
	} else {
		r = FAULT_RUN(rf_client_connect(end.uds, PORT, WAIT_MS));
		assert_true(r >= 0);
		check_hello(r);
	}
	end_close();
}

static void check_guest_connects(int listener, const char *path)
{
	struct sockaddr_un addr = address(path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), accepted;

	assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	accepted = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	assert_true(accepted >= 0);
	close(accepted);
	close(fd);
}

/* Twice, so that the second finds what a dead program left. */
static void listening(void)
{
	struct stat before, after;
	char path[64];
	int fd, stale;

	fault_set_other_side(NULL, NULL);
	snprintf(path, sizeof(path), "%s_%u", end.uds, PORT);
	fault_pause(true);
	stale = rf_client_listen(end.uds, PORT, 1);
	assert_true(stale >= 0);
	close(stale);
	assert_int_equal(lstat(path, &before), 0);
	fault_pause(false);
	fd = FAULT_RUN(rf_client_listen(end.uds, PORT, 1));
	if (fd < 0) {
		if (!fault_end() || fault_harmless())
			FAULT_FAIL("listening returned %d", fd);
		if (lstat(path, &after) == 0 && !strstr(fault_text(), "all later") &&
		    (after.st_ino != before.st_ino ||
		     after.st_ctim.tv_nsec != before.st_ctim.tv_nsec))
			FAULT_FAIL("a new socket file is left");
		fd = FAULT_RUN(rf_client_listen(end.uds, PORT, 1));
		assert_true(fd >= 0);
	}
	check_guest_connects(fd, path);
	fault_enter();
	rf_client_unlisten(fd, end.uds, PORT);
	fault_leave();
	/* One that could not be told apart or removed is left for the next to replace. */
	if (access(path, F_OK) == 0 && fault_harmless())
		FAULT_FAIL("the socket file is left");
	unlink(path);
}

static void count_one(struct rf_timer *timer)
{
	(void)timer;
}

static void looping(void)
{
	struct rf_timer timers[20] = { 0 };
	struct rf_loop *loop = NULL;
	int r = FAULT_RUN(rf_loop_new(&loop));

	if (r < 0) {
		if (!fault_end() || loop)
			FAULT_FAIL("a loop could not be made: %d", r);
		assert_int_equal(rf_loop_new(&loop), 0);
	}
	for (unsigned i = 0; i < 20; i++) {
		timers[i].expired = count_one;
		r = FAULT_RUN(rf_timer_start(loop, &timers[i], i));
		if (r < 0 && (!fault_hit() || rf_timer_active(&timers[i])))
			FAULT_FAIL("timer %u: %d", i, r);
	}
	assert_int_equal(FAULT_RUN(rf_loop_turn(loop, 0)), 0);
	assert_int_equal(rf_loop_turn(loop, 0), 0);
	for (unsigned i = 0; i < 20; i++)
		assert_false(rf_timer_active(&timers[i]));
	rf_loop_free(loop);
}

static void client_connect(void **state)
{
	(void)state;
	fault_loop("connecting", connecting);
}

static void client_listen(void **state)
{
	(void)state;
	fault_loop("listening", listening);
}

static void event_loop(void **state)
{
	(void)state;
	fault_loop("a loop", looping);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FAULT_TEST(client_connect),
		FAULT_TEST(client_listen),
		FAULT_TEST(event_loop),
	};
	int r;

	alarm(500);
	strcpy(end.dir, "/tmp/rf-faults-XXXXXX");
	if (!mkdtemp(end.dir))
		return 1;
	snprintf(end.uds, sizeof(end.uds), "%s/uds", end.dir);
	r = cmocka_run_group_tests(tests, NULL, NULL);
	rmdir(end.dir);
	return r;
}
