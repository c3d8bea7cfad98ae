/* SPDX-License-Identifier: BSD-3-Clause */
#include "host/listener.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "host/limits.h"
#include "warp_clock.h"

#define MAX_ACCEPTED 300

/**
 * struct lab - A listener in a directory of its own
 * @accepted:	Descriptors it gave us
 * @pause_at:	Pause it when so many were accepted; 0 for never
 */
struct lab {
	struct rf_listener listener;
	struct rf_loop *loop;
	struct rf_log log;
	char text[2048];
	char dir[40], path[60];
	int accepted[MAX_ACCEPTED];
	unsigned n_accepted, pause_at;
};

static void on_accepted(struct rf_listener *listener, int fd)
{
	struct lab *lab = RF_CONTAINER_OF(listener, struct lab, listener);

	assert_true(lab->n_accepted < MAX_ACCEPTED);
	assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	lab->accepted[lab->n_accepted++] = fd;
	if (lab->n_accepted == lab->pause_at)
		rf_listener_pause(listener);
}

static void take_line(void *ctx, enum rf_log_level level RF_UNUSED, const char *name RF_UNUSED,
		      const char *line)
{
	struct lab *lab = ctx;
	size_t used = strlen(lab->text);

	snprintf(lab->text + used, sizeof(lab->text) - used, "%s\n", line);
}

static int setup(void **state)
{
	struct lab *lab = calloc(1, sizeof(*lab));

	assert_non_null(lab);
	lab->listener.accepted = on_accepted;
	lab->log = (struct rf_log){ .level = RF_LOG_INFO, .sink = take_line, .ctx = lab };
	strcpy(lab->dir, "/tmp/rf-listener-XXXXXX");
	assert_non_null(mkdtemp(lab->dir));
	snprintf(lab->path, sizeof(lab->path), "%s/sock", lab->dir);
	assert_int_equal(rf_loop_new(&lab->loop), 0);
	*state = lab;
	return 0;
}

static int teardown(void **state)
{
	struct lab *lab = *state;

	rf_listener_close(&lab->listener);
	while (lab->n_accepted)
		close(lab->accepted[--lab->n_accepted]);
	rf_loop_free(lab->loop);
	unlink(lab->path);
	assert_int_equal(rmdir(lab->dir), 0);
	free(lab);
	return 0;
}

static const struct rf_listener_access any_access = {
	.mode = RF_LISTENER_MODE_DEFAULT,
	.uid = RF_LISTENER_OWNER_DEFAULT,
	.gid = RF_LISTENER_GROUP_DEFAULT,
};

static int lab_open(struct lab *lab)
{
	return rf_listener_open(&lab->listener, lab->loop, &lab->log, lab->path, &any_access);
}

static void lab_turn(struct lab *lab, unsigned turns)
{
	while (turns--)
		assert_int_equal(rf_loop_turn(lab->loop, 0), 0);
}

static struct sockaddr_un address(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };

	assert_true(strlen(path) < sizeof(addr.sun_path));
	memcpy(addr.sun_path, path, strlen(path));
	return addr;
}

/* Another program's socket at a path. */
static int other_socket(const char *path, int type, int backlog)
{
	struct sockaddr_un addr = address(path);
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	if (backlog >= 0)
		assert_int_equal(listen(fd, backlog), 0);
	return fd;
}

static int try_connect(const char *path)
{
	struct sockaddr_un addr = address(path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
		close(fd);
		return -errno;
	}
	return fd;
}

static unsigned lines(const struct lab *lab)
{
	unsigned n = 0;

	for (const char *p = lab->text; (p = strchr(p, '\n')); p++)
		n++;
	return n;
}

/* What is at the path */

static void assert_refused(struct lab *lab, int expected)
{
	assert_int_equal(lab_open(lab), expected);
	assert_int_equal(lines(lab), 1);
	assert_non_null(strstr(lab->text, lab->path));
	lab->text[0] = '\0';
}

static void nothing_there(void **state)
{
	struct lab *lab = *state;
	int fd;

	assert_int_equal(lab_open(lab), 0);
	/* Who comes early waits. */
	fd = try_connect(lab->path);
	assert_true(fd >= 0);
	lab_turn(lab, 3);
	assert_int_equal(lab->n_accepted, 0);
	assert_int_equal(rf_listener_resume(&lab->listener), 0);
	lab_turn(lab, 1);
	assert_int_equal(lab->n_accepted, 1);
	rf_listener_close(&lab->listener);
	assert_int_equal(access(lab->path, F_OK), -1);
	close(fd);
}

/* cloud-hypervisor #1083: what a process that was killed left is no reason not to start. */
static void stale_socket(void **state)
{
	struct lab *lab = *state;

	close(other_socket(lab->path, SOCK_STREAM, 1));
	assert_int_equal(lab_open(lab), 0);
	assert_int_equal(rf_listener_resume(&lab->listener), 0);
	close(try_connect(lab->path));
	lab_turn(lab, 1);
	assert_int_equal(lab->n_accepted, 1);
}

static void live_socket(void **state)
{
	struct lab *lab = *state;
	int other = other_socket(lab->path, SOCK_STREAM, 0), fds[2];

	assert_refused(lab, -EADDRINUSE);
	/* Alive, even if its backlog is full. */
	fds[0] = try_connect(lab->path);
	fds[1] = try_connect(lab->path);
	assert_int_equal(try_connect(lab->path), -EAGAIN);
	assert_refused(lab, -EADDRINUSE);
	assert_int_equal(access(lab->path, F_OK), 0);
	close(fds[0]);
	close(fds[1]);
	close(other);
}

static void live_datagram_socket(void **state)
{
	struct lab *lab = *state;
	int other = other_socket(lab->path, SOCK_DGRAM, -1);

	assert_refused(lab, -EADDRINUSE);
	assert_int_equal(access(lab->path, F_OK), 0);
	close(other);
}

/*
 * Another of us that is just starting: its socket is bound and does not listen yet, which looks
 * like a stale one.
 */
static void live_socket_that_starts(void **state)
{
	struct lab *lab = *state;
	int ready[2], status;
	char c;
	pid_t pid;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		int dir = open(lab->dir, O_RDONLY | O_DIRECTORY), fd;

		/* Should the test fail first. */
		alarm(10);
		if (flock(dir, LOCK_EX) < 0)
			_exit(1);
		fd = other_socket(lab->path, SOCK_STREAM, -1);
		(void)!write(ready[1], "x", 1);
		usleep(100000);
		listen(fd, 1);
		flock(dir, LOCK_UN);
		/* Until the test has seen it. */
		(void)!read(ready[0], &c, 1);
		_exit(0);
	}
	assert_int_equal(read(ready[0], &c, 1), 1);
	assert_refused(lab, -EADDRINUSE);
	assert_int_equal(write(ready[1], "x", 1), 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(ready[0]);
	close(ready[1]);
}

/* A lock that somebody holds for other purposes delays the start; it does not prevent it. */
static void directory_locked_for_long(void **state)
{
	struct lab *lab = *state;
	int dir = open(lab->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_int_equal(flock(dir, LOCK_EX), 0);
	assert_int_equal(lab_open(lab), 0);
	close(dir);
}

static void regular_file(void **state)
{
	struct lab *lab = *state;

	close(open(lab->path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	assert_refused(lab, -EEXIST);
	assert_int_equal(access(lab->path, F_OK), 0);
}

static void symbolic_link(void **state)
{
	struct lab *lab = *state;
	struct stat st;

	assert_int_equal(symlink("/nonexistent", lab->path), 0);
	assert_refused(lab, -EEXIST);
	assert_int_equal(lstat(lab->path, &st), 0);
}

static void no_directory(void **state)
{
	struct lab *lab = *state;

	snprintf(lab->path, sizeof(lab->path), "%s/no/sock", lab->dir);
	assert_refused(lab, -ENOENT);
}

static void path_length(void **state)
{
	struct lab *lab = *state;
	char path[200];
	size_t max = sizeof(((struct sockaddr_un *)0)->sun_path) - 1;

	memset(path, 'a', sizeof(path));
	memcpy(path, lab->dir, strlen(lab->dir));
	path[strlen(lab->dir)] = '/';
	path[max + 1] = '\0';
	assert_false(rf_unix_path_fits(path, 0));
	assert_int_equal(rf_listener_open(&lab->listener, lab->loop, &lab->log, path, &any_access),
			 -ENAMETOOLONG);
	assert_int_equal(lines(lab), 1);
	path[max] = '\0';
	assert_true(rf_unix_path_fits(path, 0));
	assert_false(rf_unix_path_fits(path, 1));
	assert_int_equal(rf_listener_open(&lab->listener, lab->loop, &lab->log, path, &any_access),
			 0);
	rf_listener_close(&lab->listener);
	assert_int_equal(access(path, F_OK), -1);
	path[max - 11] = '\0';
	assert_true(rf_unix_path_fits(path, strlen("_4294967295")));
}

static const struct mode_row {
	int mode;
	mode_t umask;
	mode_t expected;
} mode_rows[] = {
	/* 0 */ { RF_LISTENER_MODE_DEFAULT, 022, 0755 },
	/* 1 */ { RF_LISTENER_MODE_DEFAULT, 077, 0700 },
	/* 2 narrower than the umask */ { 0600, 0, 0600 },
	/* 3 wider than the umask */ { 0666, 077, 0666 },
	/* 4 */ { 0660, 022, 0660 },
	/* 5 */ { 0, 022, 0 },
};

static void modes(void **state)
{
	struct lab *lab = *state;

	for (size_t i = 0; i < RF_ARRAY_SIZE(mode_rows); i++) {
		const struct rf_listener_access access = {
			.mode = mode_rows[i].mode,
			.uid = RF_LISTENER_OWNER_DEFAULT,
			.gid = RF_LISTENER_GROUP_DEFAULT,
		};
		mode_t old = umask(mode_rows[i].umask);
		struct stat st;

		assert_int_equal(
			rf_listener_open(&lab->listener, lab->loop, &lab->log, lab->path, &access),
			0);
		umask(old);
		assert_int_equal(lstat(lab->path, &st), 0);
		if ((st.st_mode & 0777) != mode_rows[i].expected)
			fail_msg("row %zu: mode %o", i, st.st_mode & 0777u);
		rf_listener_close(&lab->listener);
	}
}

static void owners(void **state)
{
	const struct rf_listener_access theirs = { .mode = 0600, .uid = 12345, .gid = 23456 };
	const struct rf_listener_access group = {
		.mode = 0660,
		.uid = RF_LISTENER_OWNER_DEFAULT,
		.gid = getegid(),
	};
	struct lab *lab = *state;
	struct stat st;
	int r;

	assert_int_equal(rf_listener_open(&lab->listener, lab->loop, &lab->log, lab->path, &group),
			 0);
	assert_int_equal(lstat(lab->path, &st), 0);
	assert_int_equal(st.st_uid, geteuid());
	assert_int_equal(st.st_gid, getegid());
	rf_listener_close(&lab->listener);

	r = rf_listener_open(&lab->listener, lab->loop, &lab->log, lab->path, &theirs);
	if (geteuid() != 0) {
		assert_int_equal(r, -EPERM);
		assert_non_null(strstr(lab->text, "that owner needs privileges"));
		assert_int_equal(lstat(lab->path, &st), -1);
		return;
	}
	assert_int_equal(r, 0);
	assert_int_equal(lstat(lab->path, &st), 0);
	assert_int_equal(st.st_uid, 12345);
	assert_int_equal(st.st_gid, 23456);
	assert_int_equal(st.st_mode & 0777, 0600);
	rf_listener_close(&lab->listener);
}

/* Closing */

static void replaced_by_another_socket(void **state)
{
	struct lab *lab = *state;
	int other;

	assert_int_equal(lab_open(lab), 0);
	unlink(lab->path);
	other = other_socket(lab->path, SOCK_STREAM, 1);
	rf_listener_close(&lab->listener);
	assert_int_equal(access(lab->path, F_OK), 0);
	close(other);
}

static void replaced_by_a_file(void **state)
{
	struct lab *lab = *state;

	assert_int_equal(lab_open(lab), 0);
	unlink(lab->path);
	close(open(lab->path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	rf_listener_close(&lab->listener);
	assert_int_equal(access(lab->path, F_OK), 0);
}

static void removed_by_somebody(void **state)
{
	struct lab *lab = *state;

	assert_int_equal(lab_open(lab), 0);
	unlink(lab->path);
	rf_listener_close(&lab->listener);
	/* Twice, and one that was never opened. */
	rf_listener_close(&lab->listener);
	rf_listener_close(&(struct rf_listener){ 0 });
}

static void adopted(void **state)
{
	struct lab *lab = *state;
	int other = other_socket(lab->path, SOCK_STREAM, 5), fd;

	assert_int_equal(rf_listener_adopt(&lab->listener, lab->loop, &lab->log, other), 0);
	assert_int_equal(rf_listener_resume(&lab->listener), 0);
	fd = try_connect(lab->path);
	lab_turn(lab, 2);
	assert_int_equal(lab->n_accepted, 1);
	rf_listener_close(&lab->listener);
	assert_int_equal(access(lab->path, F_OK), 0);
	close(fd);
}

/* Accepting */

static void in_batches(void **state)
{
	struct lab *lab = *state;
	int fds[100];

	assert_int_equal(lab_open(lab), 0);
	for (unsigned i = 0; i < RF_ARRAY_SIZE(fds); i++)
		fds[i] = try_connect(lab->path);
	assert_int_equal(rf_listener_resume(&lab->listener), 0);
	lab_turn(lab, 1);
	assert_int_equal(lab->n_accepted, RF_HOST_ACCEPT_BATCH);
	lab_turn(lab, 1);
	assert_int_equal(lab->n_accepted, RF_ARRAY_SIZE(fds));
	for (unsigned i = 0; i < RF_ARRAY_SIZE(fds); i++)
		close(fds[i]);
}

static void paused_from_within(void **state)
{
	struct lab *lab = *state;
	int fds[3];

	lab->pause_at = 1;
	assert_int_equal(lab_open(lab), 0);
	for (unsigned i = 0; i < RF_ARRAY_SIZE(fds); i++)
		fds[i] = try_connect(lab->path);
	assert_int_equal(rf_listener_resume(&lab->listener), 0);
	assert_int_equal(rf_listener_resume(&lab->listener), 0);
	lab_turn(lab, 5);
	assert_int_equal(lab->n_accepted, 1);
	assert_int_equal(rf_listener_resume(&lab->listener), 0);
	lab_turn(lab, 5);
	assert_int_equal(lab->n_accepted, 3);
	for (unsigned i = 0; i < RF_ARRAY_SIZE(fds); i++)
		close(fds[i]);
}

/* Without descriptors it waits, and does not spin. */
static void no_descriptors(void **state)
{
	struct lab *lab = *state;
	const struct rf_loop_counters *counters = rf_loop_counters(lab->loop);
	struct rlimit limit, low;
	uint64_t events;
	int fd;

	assert_int_equal(lab_open(lab), 0);
	assert_int_equal(rf_listener_resume(&lab->listener), 0);
	fd = try_connect(lab->path);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	low = limit;
	/* @fd is the highest: its successor is too high. */
	low.rlim_cur = (rlim_t)fd + 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	events = rf_counter_read(&counters->loop_events);
	lab_turn(lab, 100);
	for (unsigned i = 0; i < 10; i++) {
		warp_clock(RF_HOST_RETRY_LAST_NS);
		lab_turn(lab, 10);
	}
	assert_true(rf_counter_read(&counters->loop_events) - events <= 20);
	assert_int_equal(lab->n_accepted, 0);
	assert_in_range(lines(lab), 1, 6);
	assert_non_null(strstr(lab->text, "cannot accept a connection: Too many open files"));
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	warp_clock(RF_HOST_RETRY_LAST_NS);
	lab_turn(lab, 3);
	assert_int_equal(lab->n_accepted, 1);
	/* Closed while it waits. */
	close(lab->accepted[--lab->n_accepted]);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	close(fd);
	fd = try_connect(lab->path);
	lab_turn(lab, 1);
	rf_listener_close(&lab->listener);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	close(fd);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(nothing_there),
		TEST(stale_socket),
		TEST(live_socket),
		TEST(live_datagram_socket),
		TEST(live_socket_that_starts),
		TEST(directory_locked_for_long),
		TEST(regular_file),
		TEST(symbolic_link),
		TEST(no_directory),
		TEST(path_length),
		TEST(modes),
		TEST(owners),
		TEST(replaced_by_another_socket),
		TEST(replaced_by_a_file),
		TEST(removed_by_somebody),
		TEST(adopted),
		TEST(in_batches),
		TEST(paused_from_within),
		TEST(no_descriptors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
