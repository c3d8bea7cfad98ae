/* SPDX-License-Identifier: BSD-3-Clause */
#include "ringferry/client.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/util.h"

#define MAX_PIECES 20

static char dir[64];

static void path_set(char path[128], const char *name)
{
	snprintf(path, 128, "%s/%s", dir, name);
}

static uint64_t ms_since(uint64_t start_ns)
{
	return (rf_clock_now() - start_ns) / RF_NS_PER_MS;
}

static struct sockaddr_un addr_of(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	size_t len = strlen(path);

	assert_true(len < sizeof(addr.sun_path));
	memcpy(addr.sun_path, path, len);
	return addr;
}

static int socket_at(const char *path, int type)
{
	struct sockaddr_un addr = addr_of(path);
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	unlink(path);
	assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	return fd;
}

static int listener_at(const char *path, int backlog)
{
	int fd = socket_at(path, SOCK_STREAM);

	assert_int_equal(listen(fd, backlog), 0);
	return fd;
}

static int connect_to(const char *path)
{
	struct sockaddr_un addr = addr_of(path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_true(fd >= 0);
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0)
		return fd;
	close(fd);
	return -errno;
}

/* A back end that serves connections one after the other. */
struct server {
	const char *path;
	/* The socket appears so late. */
	int start_ms;
	/* So many connections are closed without an answer before one is served. */
	atomic_int n_refused;
	/* Not even the request. */
	bool read_nothing;
	const char *pieces[MAX_PIECES];
	atomic_int n_accepted;
	char request[64];
	pthread_t thread;
	int listener;
};

static void request_read(struct server *s, int conn)
{
	size_t len = 0;

	while (len < sizeof(s->request) - 1 && !memchr(s->request, '\n', len)) {
		ssize_t n = read(conn, s->request + len, sizeof(s->request) - 1 - len);

		if (n <= 0)
			break;
		len += (size_t)n;
	}
	s->request[len] = '\0';
}

static void *server_run(void *arg)
{
	struct server *s = arg;

	if (s->listener < 0) {
		usleep((useconds_t)s->start_ms * 1000);
		s->listener = listener_at(s->path, 5);
	}
	for (;;) {
		int conn = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC);
		bool refuse = s->n_accepted++ < s->n_refused;

		if (!s->read_nothing)
			request_read(s, conn);
		for (int i = 0; !refuse && i < MAX_PIECES && s->pieces[i]; i++) {
			if (i)
				usleep(5000);
			/* The client may be gone already: its business. */
			send(conn, s->pieces[i], strlen(s->pieces[i]), MSG_NOSIGNAL);
		}
		close(conn);
		if (!refuse)
			return NULL;
	}
}

static void server_start(struct server *s, const char *path)
{
	s->path = path;
	s->listener = s->start_ms ? -1 : listener_at(path, 5);
	assert_int_equal(pthread_create(&s->thread, NULL, server_run, s), 0);
}

static void server_join(struct server *s)
{
	assert_int_equal(pthread_join(s->thread, NULL), 0);
	close(s->listener);
	unlink(s->path);
}

static void read_all(int fd, char *buf, size_t buf_bytes)
{
	size_t len = 0;
	ssize_t n;

	while ((n = read(fd, buf + len, buf_bytes - 1 - len)) > 0)
		len += (size_t)n;
	assert_int_equal(n, 0);
	buf[len] = '\0';
}

static bool plain_blocking(int fd)
{
	struct timeval send_limit, recv_limit;
	socklen_t len = sizeof(send_limit);

	getsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &send_limit, &len);
	getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &recv_limit, &len);
	return !(fcntl(fd, F_GETFL) & O_NONBLOCK) && fcntl(fd, F_GETFD) == FD_CLOEXEC &&
	       !timerisset(&send_limit) && !timerisset(&recv_limit);
}

/* No byte behind the OK line is lost, whichever port it names and however it comes in. */
static void ok_lines(void **state)
{
	static const struct {
		int row;
		uint32_t port;
		const char *request;
		const char *pieces[MAX_PIECES];
		const char *data;
	} rows[] = {
		{ 1, 1234, "CONNECT 1234\n", { "OK 1234\n" }, "" },
		/* Firecracker, cloud-hypervisor: a host port of 10 digits. */
		{ 2, 52, "CONNECT 52\n", { "OK 1073741824\n" }, "" },
		{ 3, 4294967294, "CONNECT 4294967294\n", { "OK 4294967295\n" }, "" },
		{ 4, 0, "CONNECT 0\n", { "OK 0\n" }, "" },
		{ 5, 5, "CONNECT 5\n", { "O", "K", " ", "1", "2", "\n" }, "" },
		{ 6, 5, "CONNECT 5\n", { "OK 5\nhello" }, "hello" },
		{ 7, 5, "CONNECT 5\n", { "OK", " 5\nhello", "\nagain" }, "hello\nagain" },
		{ 8, 5, "CONNECT 5\n", { "OK 5\n\n\nOK 6\n" }, "\n\nOK 6\n" },
		{ 9,
		  5,
		  "CONNECT 5\n",
		  { "OK 1073741824\n0123456789012345678901234567890123" },
		  "0123456789012345678901234567890123" },
		{ 10, 5, "CONNECT 5\n", { "OK 5", "\nx" }, "x" },
	};
	char path[128];

	(void)state;
	path_set(path, "uds");
	for (size_t i = 0; i < RF_ARRAY_SIZE(rows); i++) {
		struct server s = { 0 };
		char data[128];
		int fd;

		memcpy(s.pieces, rows[i].pieces, sizeof(s.pieces));
		server_start(&s, path);
		fd = rf_client_connect(path, rows[i].port, 0);
		if (fd < 0)
			fail_msg("row %d: %d", rows[i].row, fd);
		read_all(fd, data, sizeof(data));
		server_join(&s);
		if (strcmp(data, rows[i].data) != 0)
			fail_msg("row %d: got \"%s\"", rows[i].row, data);
		if (strcmp(s.request, rows[i].request) != 0)
			fail_msg("row %d: asked \"%s\"", rows[i].row, s.request);
		if (!plain_blocking(fd))
			fail_msg("row %d: not blocking, or not close-on-exec", rows[i].row);
		close(fd);
	}
}

static void wrong_answers(void **state)
{
	static const struct {
		int row;
		int r;
		const char *pieces[MAX_PIECES];
	} rows[] = {
		{ 1, -ECONNREFUSED, { NULL } },
		{ 2, -ECONNREFUSED, { "OK 12" } },
		{ 3, -ECONNREFUSED, { "O" } },
		{ 4, -EPROTO, { "ok 5\n" } },
		{ 5, -EPROTO, { "ERR refused\n" } },
		{ 6, -EPROTO, { "OK\n" } },
		{ 7, -EPROTO, { "OK \n" } },
		{ 8, -EPROTO, { "OK 12a\n" } },
		{ 9, -EPROTO, { "OK 4294967296\n" } },
		{ 10, -EPROTO, { "OK 18446744073709551617\n" } },
		{ 11, -EPROTO, { "OK  5\n" } },
		{ 12, -EPROTO, { "OK 5\r\n" } },
		{ 13, -EPROTO, { "OK -5\n" } },
		{ 14, -EPROTO, { "\n" } },
		{ 15, -EPROTO, { "OK5\n" } },
		{ 16, -EPROTO, { "HTTP/1.1 400 Bad Request and no newline at all" } },
		{ 17, -EPROTO, { "OK 000000000000", "00000000000000000005\n" } },
	};
	char path[128];

	(void)state;
	path_set(path, "uds");
	for (size_t i = 0; i < RF_ARRAY_SIZE(rows); i++) {
		uint64_t start = rf_clock_now();
		struct server s = { 0 };
		int r;

		memcpy(s.pieces, rows[i].pieces, sizeof(s.pieces));
		server_start(&s, path);
		/* An answer that is wrong will be wrong again: only refusals are retried. */
		r = rf_client_connect(path, 5, rows[i].r == -EPROTO ? 10000 : 0);
		server_join(&s);
		if (r != rows[i].r || ms_since(start) > 8000)
			fail_msg("row %d: %d after %d ms", rows[i].row, r, (int)ms_since(start));
	}
}

/* A back end that closes with the request unread: the kernel says ECONNRESET, the guest refused. */
static void closed_with_request_unread(void **state)
{
	char path[128];

	(void)state;
	path_set(path, "uds");
	for (int i = 0; i < 20; i++) {
		struct server s = { .read_nothing = true };

		server_start(&s, path);
		assert_int_equal(rf_client_connect(path, 5, 0), -ECONNREFUSED);
		server_join(&s);
	}
}

static void bad_paths(void **state)
{
	char path[128], longest[200], too_long[208];
	uint64_t start = rf_clock_now();
	struct server s = { .pieces = { "OK 1\n" } };
	int fd;

	(void)state;
	path_set(path, "none");
	assert_int_equal(rf_client_connect(path, 1, 0), -ENOENT);
	assert_int_equal(rf_client_connect("", 1, 0), -ENOENT);
	close(listener_at(path, 1));
	assert_int_equal(rf_client_connect(path, 1, 0), -ECONNREFUSED);
	unlink(path);

	snprintf(longest, sizeof(longest), "%s/%0*d", dir, 106 - (int)strlen(dir), 0);
	snprintf(too_long, sizeof(too_long), "%s0", longest);
	assert_int_equal(strlen(longest), 107);
	assert_int_equal(rf_client_connect(too_long, 1, 10000), -ENAMETOOLONG);
	server_start(&s, longest);
	fd = rf_client_connect(longest, 1, 0);
	server_join(&s);
	assert_true(fd >= 0);
	close(fd);
	assert_true(ms_since(start) < 5000);
}

static void waits(void **state)
{
	static const struct {
		int row;
		int wait_ms;
		int start_ms;
		int n_refused;
	} rows[] = {
		{ 1, 10000, 300, 0 },
		{ 2, 10000, 0, 6 },
		{ 3, -1, 200, 3 },
	};
	char path[128];
	uint64_t start;

	(void)state;
	path_set(path, "uds");
	for (size_t i = 0; i < RF_ARRAY_SIZE(rows); i++) {
		struct server s = {
			.start_ms = rows[i].start_ms,
			.n_refused = rows[i].n_refused,
			.pieces = { "OK 1\n" },
		};
		int fd;

		start = rf_clock_now();
		server_start(&s, path);
		fd = rf_client_connect(path, 1, rows[i].wait_ms);
		if (fd < 0)
			fail_msg("row %d: %d", rows[i].row, fd);
		close(fd);
		server_join(&s);
		if (s.n_accepted != rows[i].n_refused + 1 || ms_since(start) > 8000)
			fail_msg("row %d: %d tries in %d ms", rows[i].row, s.n_accepted,
				 (int)ms_since(start));
	}

	start = rf_clock_now();
	assert_int_equal(rf_client_connect(path, 1, 300), -ENOENT);
	assert_in_range(ms_since(start), 300, 10000);
}

/* Tries come 10, 20, 40, 80, 160, 200, 200 ... ms after each other. */
static void waits_back_off(void **state)
{
	struct server s = { .n_refused = 1000, .pieces = { "OK 1\n" } };
	char path[128];

	(void)state;
	path_set(path, "uds");
	server_start(&s, path);
	assert_int_equal(rf_client_connect(path, 1, 1000), -ECONNREFUSED);
	assert_in_range(s.n_accepted, 3, 10);
	s.n_refused = 0;
	close(rf_client_connect(path, 1, 0));
	server_join(&s);
}

/* Slow to prove, so they run beside the other tests: nobody answers, nobody accepts. */
struct silence {
	char path[128];
	int listener;
	pthread_t thread;
	int r;
	uint64_t ms;
};

static struct silence silent, full;

static void *silence_run(void *arg)
{
	struct silence *s = arg;
	uint64_t start = rf_clock_now();

	s->r = rf_client_connect(s->path, 1, 1);
	s->ms = ms_since(start);
	return NULL;
}

static void silence_start(struct silence *s, const char *name, int backlog, bool fill)
{
	path_set(s->path, name);
	s->listener = listener_at(s->path, backlog);
	while (fill && connect_to(s->path) >= 0)
		;
	assert_int_equal(pthread_create(&s->thread, NULL, silence_run, s), 0);
}

static void silence_join(struct silence *s)
{
	pthread_join(s->thread, NULL);
	close(s->listener);
	assert_int_equal(s->r, -ETIMEDOUT);
	assert_in_range(s->ms, 14900, 30000);
}

static void silence_ends(void **state)
{
	(void)state;
	silence_join(&silent);
	silence_join(&full);
}

static void listener_serves(void **state)
{
	char uds[128], path[128];
	int fd, conn, peer;

	(void)state;
	path_set(uds, "uds");
	path_set(path, "uds_4294967294");
	fd = rf_client_listen(uds, 4294967294, 1);
	assert_true(fd >= 0);
	assert_true(plain_blocking(fd));
	conn = connect_to(path);
	assert_true(conn >= 0);
	peer = accept(fd, NULL, NULL);
	assert_true(peer >= 0);
	assert_int_equal(write(conn, "x", 1), 1);
	close(conn);
	close(peer);
	rf_client_unlisten(fd, uds, 4294967294);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
}

static void file_make(const char *path)
{
	close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
}

/* What stands where a listener is to be. */
enum obstacle { STALE, LIVE, LIVE_FULL, LIVE_DGRAM, STALE_DGRAM, REGULAR, SYMLINK };

/* Return: the socket of a live one, else -1. */
static int obstacle_make(enum obstacle what, const char *path)
{
	int fd = -1;

	switch (what) {
	case STALE:
		close(listener_at(path, 1));
		break;
	case LIVE:
		return listener_at(path, 5);
	case LIVE_FULL:
		fd = listener_at(path, 0);
		while (connect_to(path) >= 0)
			;
		return fd;
	case LIVE_DGRAM:
		return socket_at(path, SOCK_DGRAM);
	case STALE_DGRAM:
		close(socket_at(path, SOCK_DGRAM));
		break;
	case REGULAR:
		unlink(path);
		file_make(path);
		break;
	case SYMLINK:
		assert_int_equal(symlink("nowhere", path), 0);
		break;
	}
	return fd;
}

/* A socket that nobody listens on is replaced; nothing else is. */
static void listener_replaces_stale_only(void **state)
{
	static const struct {
		int row;
		enum obstacle what;
		int r;
	} rows[] = {
		{ 1, STALE, 0 },
		{ 2, LIVE, -EADDRINUSE },
		{ 3, LIVE_FULL, -EADDRINUSE },
		{ 4, LIVE_DGRAM, -EADDRINUSE },
		{ 5, STALE_DGRAM, 0 },
		{ 6, REGULAR, -EADDRINUSE },
		{ 7, SYMLINK, -EADDRINUSE },
	};
	char uds[128], path[128];

	(void)state;
	path_set(uds, "uds");
	path_set(path, "uds_7");
	for (size_t i = 0; i < RF_ARRAY_SIZE(rows); i++) {
		int other = obstacle_make(rows[i].what, path);
		struct stat before, after;
		int fd;

		assert_int_equal(lstat(path, &before), 0);
		fd = rf_client_listen(uds, 7, 1);
		if (rows[i].r ? fd != rows[i].r : fd < 0)
			fail_msg("row %d: %d", rows[i].row, fd);
		assert_int_equal(lstat(path, &after), 0);
		if (rows[i].r && (before.st_ino != after.st_ino ||
				  before.st_ctim.tv_nsec != after.st_ctim.tv_nsec))
			fail_msg("row %d: the file was touched", rows[i].row);
		if (fd >= 0)
			rf_client_unlisten(fd, uds, 7);
		rf_fd_close(other);
		unlink(path);
	}
}

static void listener_bad_paths(void **state)
{
	char uds[200], path[220];
	int fd;

	(void)state;
	path_set(uds, "missing/uds");
	assert_int_equal(rf_client_listen(uds, 1, 1), -ENOENT);
	assert_int_equal(rf_client_listen("", 1, 1), -ENOENT);

	/* With "_4294967294" behind it, 107 bytes are the most. */
	snprintf(uds, sizeof(uds), "%s/%0*d", dir, 107 - 11 - 1 - (int)strlen(dir), 0);
	snprintf(path, sizeof(path), "%s_4294967294", uds);
	assert_int_equal(strlen(path), 107);
	fd = rf_client_listen(uds, 4294967294, 1);
	assert_true(fd >= 0);
	rf_client_unlisten(fd, uds, 4294967294);
	assert_int_equal(access(path, F_OK), -1);
	snprintf(path, sizeof(path), "%s0", uds);
	assert_int_equal(rf_client_listen(path, 4294967294, 1), -ENAMETOOLONG);
}

/* The file of a listener is removed while it is its own. */
static void unlisten_removes_its_own(void **state)
{
	char uds[128], path[128];

	(void)state;
	path_set(uds, "uds");
	path_set(path, "uds_8");
	/* Connections that wait do not hinder it, nor does a full backlog, nor a missing file. */
	for (int n_waiting = 0; n_waiting < 6; n_waiting++) {
		int fd = rf_client_listen(uds, 8, 3);

		assert_true(fd >= 0);
		for (int i = 0; i < n_waiting; i++)
			connect_to(path);
		rf_client_unlisten(fd, uds, 8);
		assert_int_equal(access(path, F_OK), -1);
		fd = rf_client_listen(uds, 8, 3);
		unlink(path);
		rf_client_unlisten(fd, uds, 8);
		assert_int_equal(access(path, F_OK), -1);
	}
}

/* What came into its place is not. */
static void unlisten_leaves_others(void **state)
{
	static const struct {
		int row;
		enum obstacle what;
	} rows[] = {
		{ 1, LIVE }, { 2, LIVE_FULL }, { 3, STALE }, { 4, REGULAR }, { 5, LIVE_DGRAM },
	};
	char uds[128], path[128];

	(void)state;
	path_set(uds, "uds");
	path_set(path, "uds_8");
	for (size_t i = 0; i < RF_ARRAY_SIZE(rows); i++) {
		int fd = rf_client_listen(uds, 8, 3);
		int other;

		assert_true(fd >= 0);
		other = obstacle_make(rows[i].what, path);
		rf_client_unlisten(fd, uds, 8);
		if (access(path, F_OK) < 0)
			fail_msg("row %d: the file is gone", rows[i].row);
		rf_fd_close(other);
		unlink(path);
	}
}

#define CROWD 3

/* Shared by the processes of a crowd. */
struct crowd {
	atomic_int go;
	atomic_int n_tried;
	atomic_int n_listening;
};

/* Keeps its listener until all have tried, so that nobody finds another stale file. */
static void crowd_child(const char *uds, struct crowd *crowd)
{
	while (!crowd->go)
		sched_yield();
	if (rf_client_listen(uds, 9, 1) >= 0)
		crowd->n_listening++;
	crowd->n_tried++;
	while (crowd->n_tried < CROWD)
		usleep(1000);
	_exit(0);
}

/* Several that find the same stale file at the same moment: one becomes the listener. */
static void one_of_a_crowd_listens(void **state)
{
	char uds[128], path[128];
	struct crowd *crowd = mmap(NULL, sizeof(*crowd), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	(void)state;
	assert_true(crowd != MAP_FAILED);
	path_set(uds, "uds");
	path_set(path, "uds_9");
	for (int round = 0; round < 20; round++) {
		close(listener_at(path, 1));
		crowd->go = crowd->n_tried = crowd->n_listening = 0;
		for (int i = 0; i < CROWD; i++)
			if (fork() == 0)
				crowd_child(uds, crowd);
		usleep(5000);
		crowd->go = 1;
		for (int i = 0; i < CROWD; i++)
			assert_true(wait(NULL) > 0);
		assert_int_equal(crowd->n_listening, 1);
	}
	unlink(path);
	munmap(crowd, sizeof(*crowd));
}

/* Somebody who keeps the directory locked delays a listener, but does not stop it. */
static void lock_holder_is_outwaited(void **state)
{
	uint64_t start = rf_clock_now();
	int holder = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char uds[128];
	int fd;

	(void)state;
	assert_int_equal(flock(holder, LOCK_EX), 0);
	path_set(uds, "uds");
	fd = rf_client_listen(uds, 10, 1);
	assert_true(fd >= 0);
	assert_in_range(ms_since(start), 900, 10000);
	rf_client_unlisten(fd, uds, 10);
	close(holder);
}

static int group_setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/rf-test-client-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	silence_start(&silent, "silent", 5, false);
	silence_start(&full, "full", 0, true);
	return 0;
}

static int group_teardown(void **state)
{
	(void)state;
	unlink(silent.path);
	unlink(full.path);
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ok_lines),
		cmocka_unit_test(wrong_answers),
		cmocka_unit_test(closed_with_request_unread),
		cmocka_unit_test(bad_paths),
		cmocka_unit_test(waits),
		cmocka_unit_test(waits_back_off),
		cmocka_unit_test(listener_serves),
		cmocka_unit_test(listener_replaces_stale_only),
		cmocka_unit_test(listener_bad_paths),
		cmocka_unit_test(unlisten_removes_its_own),
		cmocka_unit_test(unlisten_leaves_others),
		cmocka_unit_test(one_of_a_crowd_listens),
		cmocka_unit_test(lock_holder_is_outwaited),
		cmocka_unit_test(silence_ends),
	};

	return cmocka_run_group_tests_name("client", tests, group_setup, group_teardown);
}
