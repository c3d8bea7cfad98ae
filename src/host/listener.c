/* SPDX-License-Identifier: BSD-3-Clause */
#include "host/listener.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "host/limits.h"

/* Deep enough for a burst of host programs between two turns. */
#define BACKLOG 128

/* How often, and how long each time, to wait for another program that starts: half a second. */
#define LOCK_TRIES    50
#define LOCK_PAUSE_NS (10 * (long)RF_NS_PER_MS)

/* The timer always runs: to move it takes no memory, which there may be none of in need. */
#define NEVER_NS UINT64_MAX

bool rf_unix_path_fits(const char *path, size_t suffix_bytes)
{
	return strlen(path) + suffix_bytes < sizeof(((struct sockaddr_un *)0)->sun_path);
}

static int make_address(const char *path, struct sockaddr_un *addr)
{
	if (!rf_unix_path_fits(path, 0))
		return -ENAMETOOLONG;
	memset(addr, 0, sizeof(*addr));
	addr->sun_family = AF_UNIX;
	memcpy(addr->sun_path, path, strlen(path));
	return 0;
}

/*
 * Remove what a dead process left. Whoever answers connect(2), be it with a full backlog, is
 * alive, and its socket is never taken away.
 */
static int remove_stale(const char *path, const struct sockaddr_un *addr)
{
	RF_AUTO_FD int probe = -1;
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (probe < 0)
		return -errno;
	if (connect(probe, (const struct sockaddr *)addr, sizeof(*addr)) == 0 ||
	    errno != ECONNREFUSED)
		return -EADDRINUSE;
	return unlink(path) < 0 && errno != ENOENT ? -errno : 0;
}

/*
 * Others of us that start in the same directory wait for each other: a socket that is bound and
 * does not listen yet would look stale. A lock that is held for long is not ours to wait for.
 *
 * Return: a descriptor that holds the lock, or -1.
 */
static int lock_directory(const char *path)
{
	const struct timespec pause = { .tv_nsec = LOCK_PAUSE_NS };
	char dir[sizeof(((struct sockaddr_un *)0)->sun_path)];
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash + 1 - path) : 0;
	unsigned tries;
	int fd;

	memcpy(dir, path, len);
	dir[len] = '\0';
	fd = open(len ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (tries = 0; fd >= 0 && tries < LOCK_TRIES && flock(fd, LOCK_EX | LOCK_NB) < 0; tries++)
		nanosleep(&pause, NULL);
	return fd;
}

static int set_access(const char *path, const struct rf_listener_access *access)
{
	if ((access->uid != RF_LISTENER_OWNER_DEFAULT ||
	     access->gid != RF_LISTENER_GROUP_DEFAULT) &&
	    lchown(path, access->uid, access->gid) < 0)
		return -errno;
	return access->mode >= 0 && chmod(path, (mode_t)access->mode) < 0 ? -errno : 0;
}

static int bind_and_listen(int fd, const char *path, const struct sockaddr_un *addr,
			   const struct rf_listener_access *access)
{
	int r = remove_stale(path, addr);

	if (r < 0)
		return r;
	/* The mode of an unbound socket limits that of its file: never wider, not even for a
	 * moment. */
	if (access->mode >= 0 && fchmod(fd, (mode_t)access->mode) < 0)
		return -errno;
	if (bind(fd, (const struct sockaddr *)addr, sizeof(*addr)) < 0)
		return -errno;
	r = set_access(path, access);
	if (r == 0 && listen(fd, BACKLOG) < 0)
		r = -errno;
	if (r < 0)
		unlink(path);
	return r;
}

static int listen_at(int fd, const char *path, const struct rf_listener_access *access)
{
	struct sockaddr_un addr;
	int r = make_address(path, &addr);
	int lock;

	if (r < 0)
		return r;
	lock = lock_directory(path);
	r = bind_and_listen(fd, path, &addr, access);
	rf_fd_close(lock);
	return r;
}

static void retry_at(struct rf_listener *listener, uint64_t deadline_ns)
{
	int r = rf_timer_start(listener->loop, &listener->retry, deadline_ns);

	assert(r == 0);
	(void)r;
}

static void retry_later(struct rf_listener *listener)
{
	retry_at(listener, rf_loop_now(listener->loop) + RF_HOST_RETRY_LAST_NS);
}

static void accept_batch(struct rf_listener *listener)
{
	unsigned i;

	for (i = 0; i < RF_HOST_ACCEPT_BATCH && rf_watch_active(&listener->watch); i++) {
		int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			listener->accepted(listener, fd);
			continue;
		}
		if (errno == EINTR || errno == ECONNABORTED)
			continue;
		if (errno != EAGAIN) {
			/* EMFILE, ENFILE, ENOMEM: the descriptor stays ready, so wait instead of
			 * spinning. */
			rf_log_limited(listener->log, &listener->limit, RF_LOG_WARNING,
				       "cannot accept a connection: %s; waiting", strerror(errno));
			rf_listener_pause(listener);
			retry_later(listener);
		}
		return;
	}
}

static void listener_ready(struct rf_watch *watch, uint32_t events RF_UNUSED)
{
	accept_batch(RF_CONTAINER_OF(watch, struct rf_listener, watch));
}

static void listener_retry(struct rf_timer *timer)
{
	(void)rf_listener_resume(RF_CONTAINER_OF(timer, struct rf_listener, retry));
}

static void listener_init(struct rf_listener *listener, struct rf_loop *loop,
			  const struct rf_log *log)
{
	listener->loop = loop;
	listener->log = log;
	listener->watch = (struct rf_watch){ .ready = listener_ready };
	listener->retry = (struct rf_timer){ .expired = listener_retry };
	listener->limit = (struct rf_log_limit){ 0 };
	listener->fd = -1;
	listener->path = NULL;
}

static const char *open_error(int r, const struct rf_listener_access *access)
{
	switch (r) {
	case -EPERM:
		return access->uid != RF_LISTENER_OWNER_DEFAULT
			       ? "giving it to that owner needs privileges"
			       : strerror(EPERM);
	case -ENOENT:
		return "no such directory";
	case -EADDRINUSE:
		return "another program listens there; stop it or choose another path";
	case -EEXIST:
		return "exists and is no socket; remove it or choose another path";
	case -ENAMETOOLONG:
		return "too long for a unix socket (107 bytes)";
	default:
		return strerror(-r);
	}
}

/* Remember which file is ours; one that cannot be remembered is removed at once. */
static int own_file(struct rf_listener *listener, const char *path)
{
	struct stat st;
	int r = lstat(path, &st) < 0 ? -errno : 0;

	listener->path = r == 0 ? strdup(path) : NULL;
	if (!listener->path) {
		unlink(path);
		return r < 0 ? r : -ENOMEM;
	}
	listener->dev = st.st_dev;
	listener->ino = st.st_ino;
	return 0;
}

int rf_listener_open(struct rf_listener *listener, struct rf_loop *loop, const struct rf_log *log,
		     const char *path, const struct rf_listener_access *access)
{
	RF_AUTO_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int r = fd < 0 ? -errno : 0;

	listener_init(listener, loop, log);
	if (r == 0)
		r = rf_timer_start(loop, &listener->retry, NEVER_NS);
	if (r == 0)
		r = listen_at(fd, path, access);
	if (r == 0)
		r = own_file(listener, path);
	if (r < 0) {
		rf_timer_stop(&listener->retry);
		rf_log(log, RF_LOG_ERROR, "cannot listen on %s: %s", path, open_error(r, access));
		return r;
	}
	listener->fd = rf_fd_steal(&fd);
	return 0;
}

int rf_listener_adopt(struct rf_listener *listener, struct rf_loop *loop, const struct rf_log *log,
		      int fd)
{
	int r = rf_fd_set_nonblock(fd);

	listener_init(listener, loop, log);
	if (r == 0)
		r = rf_timer_start(loop, &listener->retry, NEVER_NS);
	if (r < 0) {
		rf_fd_close(fd);
		return r;
	}
	listener->fd = fd;
	return 0;
}

int rf_listener_resume(struct rf_listener *listener)
{
	int r;

	retry_at(listener, NEVER_NS);
	if (rf_watch_active(&listener->watch))
		return 0;
	r = rf_watch_add(listener->loop, &listener->watch, listener->fd, EPOLLIN);
	if (r < 0)
		retry_later(listener);
	return r;
}

void rf_listener_pause(struct rf_listener *listener)
{
	retry_at(listener, NEVER_NS);
	rf_watch_remove(&listener->watch);
}

void rf_listener_close(struct rf_listener *listener)
{
	struct stat st;

	if (!listener->loop || listener->fd < 0)
		return;
	rf_watch_remove(&listener->watch);
	rf_timer_stop(&listener->retry);
	/* Before it is closed: until then nobody takes the path over, and no file has our inode. */
	if (listener->path && lstat(listener->path, &st) == 0 && st.st_dev == listener->dev &&
	    st.st_ino == listener->ino)
		unlink(listener->path);
	listener->fd = rf_fd_close(listener->fd);
	free(listener->path);
	listener->path = NULL;
}
