/* SPDX-License-Identifier: BSD-3-Clause */
#include "fault_wrap.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/util.h"
#include "fault_plan.h"
#include "warp_clock.h"

/* A sleep of so long at most is a pause. */
#define PAUSE_MS 200

/* What a socket is granted instead of a large buffer. */
#define SNDBUF_BYTES 4096

/* See fault_set_other_side(). */
static void (*other_side)(void *ctx);
static void *other_side_ctx;

void fault_set_other_side(void (*act)(void *ctx), void *ctx)
{
	other_side = act;
	other_side_ctx = ctx;
}

/* X(return type, name, parameters, arguments, ways...): calls that fail with -1. */
#define CALLS(X)                                                                                  \
	X(int, socket, (int domain, int type, int protocol), (domain, type, protocol), EMFILE,    \
	  ENFILE, ENOBUFS)                                                                        \
	X(int, bind, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n), ENOMEM, EACCES) \
	X(int, listen, (int fd, int backlog), (fd, backlog), ENOMEM)                              \
	X(int, accept4, (int fd, struct sockaddr *a, socklen_t *n, int flags), (fd, a, n, flags), \
	  EMFILE, ENFILE, ENOMEM, -EINTR, -ECONNABORTED)                                          \
	X(int, connect, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n), EAGAIN,      \
	  ENOMEM, ECONNREFUSED)                                                                   \
	X(int, getsockopt, (int fd, int level, int name, void *v, socklen_t *n),                  \
	  (fd, level, name, v, n), ENOBUFS)                                                       \
	X(int, getsockname, (int fd, struct sockaddr *a, socklen_t *n), (fd, a, n), ENOBUFS)      \
	X(int, epoll_create1, (int flags), (flags), EMFILE, ENFILE, ENOMEM)                       \
	X(int, eventfd, (unsigned n, int flags), (n, flags), EMFILE, ENFILE, ENOMEM)              \
	X(int, timerfd_create, (int clock, int flags), (clock, flags), EMFILE, ENFILE, ENOMEM)    \
	X(int, memfd_create, (const char *name, unsigned flags), (name, flags), EMFILE, ENOMEM)   \
	X(int, ftruncate64, (int fd, off_t n), (fd, n), ENOSPC)                                   \
	X(int, fstat64, (int fd, struct stat64 *st), (fd, st), ENOMEM)                            \
	X(int, fstatfs64, (int fd, struct statfs64 *st), (fd, st), ENOMEM, -EINTR)                \
	X(int, lstat64, (const char *path, struct stat64 *st), (path, st), EACCES)                \
	X(int, unlink, (const char *path), (path), EACCES)                                        \
	X(int, chmod, (const char *path, mode_t mode), (path, mode), EPERM)                       \
	X(int, fchmod, (int fd, mode_t mode), (fd, mode), EPERM)                                  \
	X(int, lchown, (const char *path, uid_t u, gid_t g), (path, u, g), EPERM)                 \
	X(int, flock, (int fd, int op), (fd, op), EWOULDBLOCK, ENOLCK, -EINTR)                    \
	X(ssize_t, getrandom, (void *buf, size_t n, unsigned flags), (buf, n, flags), ENOSYS)

#define X(type, name, parameters, arguments, ...)                                 \
	type __real_##name parameters;                                            \
	type __wrap_##name parameters;                                            \
	type __wrap_##name parameters                                             \
	{                                                                         \
		static const struct fault_call call = { #name, { __VA_ARGS__ } }; \
		int way = fault_decide(&call);                                    \
                                                                                  \
		if (!way)                                                         \
			return __real_##name arguments;                           \
		errno = way;                                                      \
		return -1;                                                        \
	}
CALLS(X)
#undef X

static const struct fault_call memory = { "memory", { ENOMEM } };

/* X(return type, name, parameters, arguments): calls that return memory. */
#define ALLOCATIONS(X)                                          \
	X(void *, malloc, (size_t bytes), (bytes))              \
	X(void *, calloc, (size_t n, size_t bytes), (n, bytes)) \
	X(char *, strdup, (const char *text), (text))

#define X(type, name, parameters, arguments)              \
	type __real_##name parameters;                    \
	type __wrap_##name parameters;                    \
	type __wrap_##name parameters                     \
	{                                                 \
		type at;                                  \
                                                          \
		if (fault_decide(&memory)) {              \
			errno = ENOMEM;                   \
			return NULL;                      \
		}                                         \
		at = __real_##name arguments;             \
		fault_object_add(&fault_allocations, at); \
		return at;                                \
	}
ALLOCATIONS(X)
#undef X

void *__real_reallocarray(void *old, size_t n, size_t bytes);
void *__wrap_reallocarray(void *old, size_t n, size_t bytes);
void __real_free(void *at);
void __wrap_free(void *at);
void *__real_mmap64(void *at, size_t bytes, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *at, size_t bytes, int prot, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t bytes);
int __wrap_munmap(void *at, size_t bytes);

void *__wrap_reallocarray(void *old, size_t n, size_t bytes)
{
	void *at;

	if (fault_decide(&memory)) {
		errno = ENOMEM;
		return NULL;
	}
	/* Before its address may be another's. */
	fault_object_remove(&fault_allocations, old);
	at = __real_reallocarray(old, n, bytes);
	fault_object_add(&fault_allocations, at);
	return at;
}

void __wrap_free(void *at)
{
	fault_object_remove(&fault_allocations, at);
	__real_free(at);
}

void *__wrap_mmap64(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	static const struct fault_call call = { "mmap", { ENOMEM, EAGAIN } };
	int way = fault_decide(&call);

	if (way) {
		errno = way;
		return MAP_FAILED;
	}
	at = __real_mmap64(at, bytes, prot, flags, fd, offset);
	if (at != MAP_FAILED)
		fault_object_add(&fault_mappings, at);
	return at;
}

int __wrap_munmap(void *at, size_t bytes)
{
	fault_object_remove(&fault_mappings, at);
	return __real_munmap(at, bytes);
}

/* Calls that move bytes. A unix socket has EAGAIN only when it has nothing to tell: never here. */
ssize_t __real_recv(int fd, void *buf, size_t n, int flags);
ssize_t __wrap_recv(int fd, void *buf, size_t n, int flags);
ssize_t __real_send(int fd, const void *buf, size_t n, int flags);
ssize_t __wrap_send(int fd, const void *buf, size_t n, int flags);
ssize_t __real_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __real_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);

ssize_t __wrap_recv(int fd, void *buf, size_t n, int flags)
{
	static const struct fault_call call = { "recv",
						{ ENOMEM, -EINTR, -ECONNRESET, FAULT_SHORTER } };
	int way = fault_decide(&call);

	if (!way || way == FAULT_SHORTER)
		return __real_recv(fd, buf, fault_allowed(way, n), flags);
	errno = way;
	return -1;
}

ssize_t __wrap_send(int fd, const void *buf, size_t n, int flags)
{
	static const struct fault_call call = { "send", { ENOBUFS, EPIPE, -EINTR } };
	int way = fault_decide(&call);

	if (!way)
		return __real_send(fd, buf, n, flags);
	errno = way;
	return -1;
}

/* The first bytes of a message; there is at least one. */
static struct iovec first_bytes(const struct msghdr *msg, size_t n)
{
	struct iovec iov = { NULL, 0 };

	for (size_t i = 0; i < msg->msg_iovlen && !iov.iov_len; i++)
		iov = msg->msg_iov[i];
	iov.iov_len = rf_min_size(iov.iov_len, n);
	return iov;
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags)
{
	static const struct fault_call call = { "recvmsg",
						{ ENOMEM, -EINTR, -ECONNRESET, FAULT_SHORTER } };
	int way = fault_decide(&call);
	struct msghdr some = *msg;
	struct iovec iov;
	ssize_t n;

	if (way && way != FAULT_SHORTER) {
		errno = way;
		return -1;
	}
	if (fault_allowed(way, SIZE_MAX) == SIZE_MAX)
		return __real_recvmsg(fd, msg, flags);
	iov = first_bytes(msg, fault_allowed(way, SIZE_MAX));
	some.msg_iov = &iov;
	some.msg_iovlen = 1;
	n = __real_recvmsg(fd, &some, flags);
	some.msg_iov = msg->msg_iov;
	some.msg_iovlen = msg->msg_iovlen;
	*msg = some;
	return n;
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	static const struct fault_call call = {
		"sendmsg", { ENOBUFS, EPIPE, -EAGAIN, -EINTR, FAULT_SHORTER }
	};
	int way = fault_decide(&call);
	struct msghdr some = *msg;
	struct iovec iov;

	if (way && way != FAULT_SHORTER) {
		errno = way;
		return -1;
	}
	if (fault_allowed(way, SIZE_MAX) == SIZE_MAX)
		return __real_sendmsg(fd, msg, flags);
	iov = first_bytes(msg, fault_allowed(way, SIZE_MAX));
	some.msg_iov = &iov;
	some.msg_iovlen = 1;
	return __real_sendmsg(fd, &some, flags);
}

/* Calls with a rule of their own. */
int __real_epoll_ctl(int ep, int op, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int ep, int op, int fd, struct epoll_event *event);
int __real_setsockopt(int fd, int level, int name, const void *value, socklen_t n);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t n);
int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __real_fcntl64(int fd, int command, ...);
int __wrap_fcntl64(int fd, int command, ...);

/* Taking something off never fails. */
int __wrap_epoll_ctl(int ep, int op, int fd, struct epoll_event *event)
{
	static const struct fault_call call = { "epoll_ctl", { ENOMEM, ENOSPC } };
	int way = op == EPOLL_CTL_DEL ? 0 : fault_decide(&call);

	if (!way)
		return __real_epoll_ctl(ep, op, fd, event);
	errno = way;
	return -1;
}

/* The buffers that are granted are small: few bytes make a sender wait. */
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t n)
{
	static const struct fault_call call = { "setsockopt", { ENOMEM } };
	static const int sndbuf = SNDBUF_BYTES;
	int way = fault_decide(&call);

	if (!way && fault_depth && name == SO_SNDBUF)
		value = &sndbuf;
	if (!way)
		return __real_setsockopt(fd, level, name, value, n);
	errno = way;
	return -1;
}

/* No code of ours makes files: there is no mode. */
int __wrap_open64(const char *path, int flags, ...)
{
	static const struct fault_call call = { "open", { EMFILE, ENFILE, EACCES } };
	int way = fault_decide(&call);

	if (!way)
		return __real_open64(path, flags);
	errno = way;
	return -1;
}

/* A descriptor made with O_PATH, which a front end may pass, has no flags to be set. */
int __wrap_fcntl64(int fd, int command, ...)
{
	static const struct fault_call call = { "fcntl", { EBADF } };
	int way = fault_decide(&call);
	va_list args;
	long arg;

	va_start(args, command);
	arg = command == F_GETFL || command == F_GETFD ? 0 : va_arg(args, int);
	va_end(args);
	if (!way)
		return __real_fcntl64(fd, command, arg);
	errno = way;
	return -1;
}

/* Sleeping. */
int __real_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);
int __real_epoll_wait(int ep, struct epoll_event *events, int n, int ms);
int __wrap_epoll_wait(int ep, struct epoll_event *events, int n, int ms);
int __real_poll(struct pollfd *fds, nfds_t n, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int ms);
int __real_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *time, const sigset_t *mask);
int __wrap_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *time, const sigset_t *mask);

static uint64_t ns_of(const struct timespec *time)
{
	return (uint64_t)time->tv_sec * RF_NS_PER_SEC + (uint64_t)time->tv_nsec;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
	if (!fault_depth)
		return __real_nanosleep(time, left);
	warp_clock(ns_of(time));
	return 0;
}

/* Short sleeps are pauses between tries; the long ones are timeouts, and run in earnest. */
int __wrap_epoll_wait(int ep, struct epoll_event *events, int n, int ms)
{
	static const struct fault_call call = { "epoll_wait", { -EINTR } };
	int way = fault_decide(&call);
	bool pause = fault_depth && ms > 1 && ms <= PAUSE_MS;
	int r;

	if (way) {
		errno = way;
		return -1;
	}
	r = __real_epoll_wait(ep, events, n, pause ? 1 : ms);
	if (r == 0 && pause)
		warp_clock((uint64_t)ms * RF_NS_PER_MS);
	return r;
}

static int wait_other_side(struct pollfd *fds, nfds_t n, uint64_t ns)
{
	unsigned was = fault_depth;
	int r;

	fault_depth = 0;
	if (other_side)
		other_side(other_side_ctx);
	r = __real_poll(fds, n, 0);
	if (r == 0)
		warp_clock(ns);
	fault_depth = was;
	return r;
}

int __wrap_poll(struct pollfd *fds, nfds_t n, int ms)
{
	static const struct fault_call call = { "poll", { ENOMEM, -EINTR } };
	/* Sleeping takes no memory. */
	int way = n ? fault_decide(&call) : 0;

	if (way) {
		errno = way;
		return -1;
	}
	if (!fault_depth || (n && !other_side))
		return __real_poll(fds, n, ms);
	return wait_other_side(fds, n, (uint64_t)ms * RF_NS_PER_MS);
}

int __wrap_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *time, const sigset_t *mask)
{
	static const struct fault_call call = { "ppoll", { ENOMEM, -EINTR } };
	int way = fault_decide(&call);

	if (way) {
		errno = way;
		return -1;
	}
	if (!fault_depth || !other_side)
		return __real_ppoll(fds, n, time, mask);
	return wait_other_side(fds, n, ns_of(time));
}

/* Threads of the code under test are code under test. */
struct start {
	void *(*run)(void *);
	void *arg;
};

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
			  void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
			  void *arg);

static void *thread_run(void *arg)
{
	struct start start = *(struct start *)arg;

	__real_free(arg);
	fault_depth = 1;
	return start.run(start.arg);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
			  void *arg)
{
	static const struct fault_call call = { "pthread_create", { EAGAIN } };
	int way = fault_decide(&call);
	struct start *start;

	if (way || !fault_depth)
		return way ? way : __real_pthread_create(thread, attr, run, arg);
	start = __real_malloc(sizeof(*start));
	if (!start)
		abort();
	*start = (struct start){ run, arg };
	return __real_pthread_create(thread, attr, thread_run, start);
}
