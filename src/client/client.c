/* SPDX-License-Identifier: BSD-3-Clause */
#include "ringferry/client.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/util.h"

/* "OK 4294967295\n" has 14 bytes; whatever answers more than this is no hybrid vsock back end. */
#define OK_LINE_MAX 32

#define TRY_NS         (15 * RF_NS_PER_SEC)
#define BACKOFF_MIN_MS 10
#define BACKOFF_MAX_MS 200

#define LOCK_TRIES    100
#define LOCK_PAUSE_MS 10

/* Milliseconds until @deadline_ns, rounded up so that a wait for so long reaches it. */
static int ms_left(uint64_t deadline_ns)
{
	uint64_t now = rf_clock_now();
	uint64_t left_ns = now < deadline_ns ? deadline_ns - now : 0;

	if (left_ns / RF_NS_PER_MS >= INT_MAX)
		return INT_MAX;
	return (int)((left_ns + RF_NS_PER_MS - 1) / RF_NS_PER_MS);
}

static int addr_set(struct sockaddr_un *addr, const char *path)
{
	size_t len = strlen(path);

	if (!len)
		return -ENOENT;
	if (len >= sizeof(addr->sun_path))
		return -ENAMETOOLONG;
	*addr = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(addr->sun_path, path, len);
	return 0;
}

/* A blocking connect(2) to a unix socket waits for room in the backlog, as long as SO_SNDTIMEO. */
static int socket_connect(int fd, const struct sockaddr_un *addr)
{
	const struct timeval limit = { .tv_sec = TRY_NS / RF_NS_PER_SEC };

	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0)
		return -errno;
	while (connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) < 0) {
		if (errno == EAGAIN)
			return -ETIMEDOUT;
		if (errno != EINTR)
			return -errno;
	}
	return 0;
}

static int request_send(int fd, uint32_t port)
{
	const struct timeval none = { 0 };
	char line[32];
	int len = snprintf(line, sizeof(line), "CONNECT %u\n", port);
	ssize_t sent;

	/* The first bytes in an empty socket buffer: they fit, so this neither blocks nor splits.
	 */
	do
		sent = send(fd, line, (size_t)len, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	if (sent < 0)
		return errno == EPIPE || errno == ECONNRESET ? -ECONNREFUSED : -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof(none)) < 0)
		return -errno;
	return 0;
}

/*
 * Take what has arrived, but nothing behind a newline. Return: bytes stored, 0 if there were none
 * yet, or -errno.
 */
static ssize_t line_take(int fd, char *buf, size_t room)
{
	ssize_t n = recv(fd, buf, room, MSG_PEEK | MSG_DONTWAIT);
	const char *newline;

	if (n > 0) {
		newline = memchr(buf, '\n', (size_t)n);
		n = recv(fd, buf, newline ? (size_t)(newline - buf + 1) : (size_t)n, MSG_DONTWAIT);
	}
	if (n == 0)
		return -ECONNREFUSED;
	if (n > 0)
		return n;
	if (errno == EAGAIN || errno == EINTR)
		return 0;
	return errno == ECONNRESET ? -ECONNREFUSED : -errno;
}

/* Return: length of the line with its newline, or -errno. */
static ssize_t line_read(int fd, char line[OK_LINE_MAX], uint64_t deadline_ns)
{
	size_t len = 0;

	do {
		struct pollfd pfd = { .fd = fd, .events = POLLIN };
		ssize_t n;
		int r;

		if (len == OK_LINE_MAX)
			return -EPROTO;
		r = poll(&pfd, 1, ms_left(deadline_ns));
		if (r == 0)
			return -ETIMEDOUT;
		if (r < 0 && errno != EINTR)
			return -errno;
		n = line_take(fd, line + len, OK_LINE_MAX - len);
		if (n < 0)
			return n;
		len += (size_t)n;
	} while (!len || line[len - 1] != '\n');
	return (ssize_t)len;
}

static bool line_is_ok(const char *line, size_t len)
{
	static const char ok[] = "OK ";
	uint64_t port = 0;
	size_t i = sizeof(ok) - 1;

	if (len < sizeof(ok) + 1 || memcmp(line, ok, sizeof(ok) - 1) != 0)
		return false;
	for (; i < len - 1; i++) {
		if (line[i] < '0' || line[i] > '9')
			return false;
		port = port * 10 + (uint64_t)(line[i] - '0');
		if (port > UINT32_MAX)
			return false;
	}
	return true;
}

static int connect_once(const struct sockaddr_un *addr, uint32_t port)
{
	uint64_t deadline_ns = rf_clock_now() + TRY_NS;
	RF_AUTO_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char line[OK_LINE_MAX] = { 0 };
	ssize_t len;
	int r;

	if (fd < 0)
		return -errno;
	r = socket_connect(fd, addr);
	if (r == 0)
		r = request_send(fd, port);
	if (r < 0)
		return r;
	len = line_read(fd, line, deadline_ns);
	if (len < 0)
		return (int)len;
	if (!line_is_ok(line, (size_t)len))
		return -EPROTO;
	return rf_fd_steal(&fd);
}

int rf_client_connect(const char *uds_path, uint32_t port, int wait_ms)
{
	uint64_t deadline_ns = UINT64_MAX;
	int pause_ms = BACKOFF_MIN_MS;
	struct sockaddr_un addr;
	int r;

	if (wait_ms >= 0)
		deadline_ns = rf_clock_now() + (uint64_t)wait_ms * RF_NS_PER_MS;
	r = addr_set(&addr, uds_path);
	if (r < 0)
		return r;
	for (;;) {
		int left_ms;

		r = connect_once(&addr, port);
		left_ms = ms_left(deadline_ns);
		if ((r != -ENOENT && r != -ECONNREFUSED) || !left_ms)
			return r;
		poll(NULL, 0, pause_ms < left_ms ? pause_ms : left_ms);
		pause_ms = pause_ms * 2 < BACKOFF_MAX_MS ? pause_ms * 2 : BACKOFF_MAX_MS;
	}
}

static int listener_addr_set(struct sockaddr_un *addr, const char *uds_path, uint32_t port)
{
	char path[sizeof(addr->sun_path)];

	if (!*uds_path)
		return -ENOENT;
	if ((size_t)snprintf(path, sizeof(path), "%s_%u", uds_path, port) >= sizeof(path))
		return -ENAMETOOLONG;
	return addr_set(addr, path);
}

/*
 * Keep others who come through here away from the directory while a socket file is made or
 * replaced in it: two that find the same stale file would otherwise both remove it, the later one
 * with the earlier one's new socket. Whoever else holds such a lock delays us for a second at most.
 *
 * Return: a descriptor to close, or negative if there is no lock to be had.
 */
static int directory_lock(const struct sockaddr_un *addr)
{
	char dir[sizeof(addr->sun_path)];
	char *slash;
	int fd;

	memcpy(dir, addr->sun_path, sizeof(dir));
	slash = strrchr(dir, '/');
	if (slash)
		slash[1] = '\0';
	fd = open(slash ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; fd >= 0 && i < LOCK_TRIES; i++) {
		if (flock(fd, LOCK_EX | LOCK_NB) == 0)
			break;
		poll(NULL, 0, LOCK_PAUSE_MS);
	}
	return fd;
}

/* Whether the file is a socket that nobody listens on. */
static bool socket_is_stale(const struct sockaddr_un *addr)
{
	RF_AUTO_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct stat st;

	/* connect(2) says ECONNREFUSED to a file that is no socket, too. */
	return fd >= 0 && lstat(addr->sun_path, &st) == 0 && S_ISSOCK(st.st_mode) &&
	       connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) < 0 &&
	       errno == ECONNREFUSED;
}

static int socket_bind(int fd, const struct sockaddr_un *addr)
{
	if (bind(fd, (const struct sockaddr *)addr, sizeof(*addr)) == 0)
		return 0;
	if (errno != EADDRINUSE)
		return -errno;
	if (!socket_is_stale(addr))
		return -EADDRINUSE;
	if (unlink(addr->sun_path) < 0 && errno != ENOENT)
		return -errno;
	return bind(fd, (const struct sockaddr *)addr, sizeof(*addr)) < 0 ? -errno : 0;
}

static int listener_open(const struct sockaddr_un *addr, int backlog)
{
	RF_AUTO_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int r;

	if (fd < 0)
		return -errno;
	r = socket_bind(fd, addr);
	if (r < 0)
		return r;
	if (listen(fd, backlog) < 0) {
		r = -errno;
		unlink(addr->sun_path);
		return r;
	}
	return rf_fd_steal(&fd);
}

int rf_client_listen(const char *uds_path, uint32_t port, int backlog)
{
	struct sockaddr_un addr;
	int lock, r;

	r = listener_addr_set(&addr, uds_path, port);
	if (r < 0)
		return r;
	lock = directory_lock(&addr);
	r = listener_open(&addr, backlog);
	rf_fd_close(lock);
	return r;
}

/* Take waiting connections until one comes from @name. */
static bool accept_from(int fd, const struct sockaddr_un *name, socklen_t name_len)
{
	struct sockaddr_un peer;
	bool found = false;

	while (!found) {
		socklen_t len = sizeof(peer);
		int conn = accept4(fd, (struct sockaddr *)&peer, &len, SOCK_CLOEXEC);

		if (conn < 0 && errno == EINTR)
			continue;
		if (conn < 0)
			break;
		rf_fd_close(conn);
		found = len == name_len && !memcmp(&peer, name, len);
	}
	return found;
}

/*
 * Whether the socket file leads to the listener @fd: a connection made through the file, from an
 * address that the kernel chose as unique, arrives there. (A bound socket does not tell which file
 * it made.) Connections that wait on @fd are lost, as they are when it is closed.
 */
static bool listener_owns_file(int fd, const struct sockaddr_un *addr)
{
	RF_AUTO_FD int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(name);

	if (probe < 0 || rf_fd_set_nonblock(fd) < 0 ||
	    bind(probe, (const struct sockaddr *)&name, sizeof(name.sun_family)) < 0 ||
	    getsockname(probe, (struct sockaddr *)&name, &len) < 0)
		return false;
	for (int i = 0; i < 2; i++) {
		int r = connect(probe, (const struct sockaddr *)addr, sizeof(*addr));

		if (r < 0 && errno != EAGAIN)
			return false;
		/* A full backlog (EAGAIN) is emptied here for the second try. */
		if (accept_from(fd, &name, len))
			return true;
		if (r == 0)
			return false;
	}
	return false;
}

void rf_client_unlisten(int fd, const char *uds_path, uint32_t port)
{
	struct sockaddr_un addr;

	if (listener_addr_set(&addr, uds_path, port) == 0 && listener_owns_file(fd, &addr))
		unlink(addr.sun_path);
	rf_fd_close(fd);
}
