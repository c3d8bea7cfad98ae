/* SPDX-License-Identifier: BSD-3-Clause */
#include "fault_wrap.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
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
#include "warp_clock.h"

/* A way to fail: an errno; negative: one that comes once at a time. SHORT: fewer bytes. */
#define SHORT    (-10000)
#define MAX_WAYS 6

/* Nothing under test makes so many calls in one plan, or in one turn of a loop. */
#define MANY_CALLS      1000000u
#define MANY_TURN_CALLS 20000u

/* Most objects of each kind that are there at once. */
#define MAX_OBJECTS 16384u

/* A sleep of so long at most is a pause. */
#define PAUSE_MS 200

/* Bytes that FAULT_SHORT lets pass, and what a socket is granted instead of a large buffer. */
#define SHORT_BYTES  3u
#define SNDBUF_BYTES 4096

struct call {
	const char *name;
	int ways[MAX_WAYS];
};

struct objects {
	const void *all[MAX_OBJECTS];
	unsigned n;
};

static struct {
	pthread_mutex_t mutex;
	enum fault_mode mode;
	atomic_bool on;
	bool hit, harmless;
	unsigned nth, points, calls, turn_calls;
	char text[64];
	struct objects allocations, mappings;
	void (*act)(void *ctx);
	void *ctx;
} plan = { .mutex = PTHREAD_MUTEX_INITIALIZER, .text = "none" };

/* How deep this thread is in code under test. */
static _Thread_local unsigned depth;

jmp_buf fault_escape;
bool fault_may_escape;

void fault_begin(enum fault_mode mode, unsigned nth)
{
	pthread_mutex_lock(&plan.mutex);
	plan.mode = mode;
	plan.nth = nth;
	plan.on = true;
	plan.hit = false;
	plan.harmless = true;
	plan.points = plan.calls = plan.turn_calls = 0;
	strcpy(plan.text, "none");
	pthread_mutex_unlock(&plan.mutex);
}

bool fault_end(void)
{
	bool hit;

	pthread_mutex_lock(&plan.mutex);
	plan.on = false;
	hit = plan.hit;
	pthread_mutex_unlock(&plan.mutex);
	return hit;
}

void fault_pause(bool pause)
{
	pthread_mutex_lock(&plan.mutex);
	plan.on = !pause;
	pthread_mutex_unlock(&plan.mutex);
}

bool fault_hit(void)
{
	bool hit;

	pthread_mutex_lock(&plan.mutex);
	hit = plan.hit;
	pthread_mutex_unlock(&plan.mutex);
	return hit;
}

bool fault_harmless(void)
{
	bool harmless;

	pthread_mutex_lock(&plan.mutex);
	harmless = plan.harmless;
	pthread_mutex_unlock(&plan.mutex);
	return harmless;
}

const char *fault_text(void)
{
	return plan.text;
}

void fault_turn(void)
{
	pthread_mutex_lock(&plan.mutex);
	plan.turn_calls = 0;
	pthread_mutex_unlock(&plan.mutex);
}

void fault_enter(void)
{
	depth++;
}

void fault_leave(void)
{
	depth--;
}

void fault_set_other_side(void (*act)(void *ctx), void *ctx)
{
	plan.act = act;
	plan.ctx = ctx;
}

_Noreturn static void spins(const char *what)
{
	fprintf(stderr, "too many calls in %s, the last one to %s; fault: %s\n",
		plan.turn_calls > MANY_TURN_CALLS ? "one turn" : "one plan", what, plan.text);
	abort();
}

/* Point by point: is one of this call's ways the one? For ever: the first lasting one. */
static int choose(const struct call *call)
{
	int lasting = 0;

	for (unsigned i = 0; i < MAX_WAYS && call->ways[i]; i++) {
		int way = call->ways[i];

		if (plan.mode == FAULT_EVER && way < 0)
			continue;
		if (!lasting)
			lasting = way;
		if (++plan.points != plan.nth)
			continue;
		plan.hit = true;
		plan.harmless = way == SHORT || way == -EINTR || way == -EAGAIN;
		snprintf(plan.text, sizeof(plan.text), "%s: %s%s", call->name,
			 way == SHORT ? "short" : strerror(abs(way)),
			 plan.mode == FAULT_EVER ? ", and all later ones" : "");
		return way;
	}
	return plan.hit && plan.mode == FAULT_EVER ? lasting : 0;
}

/* Return: 0, SHORT, or the errno with which the call is to fail. */
static int decide(const struct call *call)
{
	int way = 0;

	if (!depth)
		return 0;
	pthread_mutex_lock(&plan.mutex);
	if (plan.on) {
		if (++plan.calls > MANY_CALLS || ++plan.turn_calls > MANY_TURN_CALLS)
			spins(call->name);
		if (plan.mode != FAULT_SHORT)
			way = choose(call);
	}
	pthread_mutex_unlock(&plan.mutex);
	return way == SHORT ? SHORT : abs(way);
}

/* Bytes that a call may move. */
static size_t allowed(int way, size_t bytes)
{
	if (way == SHORT)
		return bytes ? 1 : 0;
	if (depth && plan.on && plan.mode == FAULT_SHORT)
		return rf_min_size(bytes, SHORT_BYTES);
	return bytes;
}

static void object_add(struct objects *objects, const void *at)
{
	if (!depth || !at)
		return;
	pthread_mutex_lock(&plan.mutex);
	if (objects->n == MAX_OBJECTS)
		abort();
	objects->all[objects->n++] = at;
	pthread_mutex_unlock(&plan.mutex);
}

static void object_remove(struct objects *objects, const void *at)
{
	if (!at)
		return;
	pthread_mutex_lock(&plan.mutex);
	for (unsigned i = objects->n; i-- > 0;) {
		if (objects->all[i] != at)
			continue;
		objects->all[i] = objects->all[--objects->n];
		break;
	}
	pthread_mutex_unlock(&plan.mutex);
}

unsigned fault_live_allocations(void)
{
	return plan.allocations.n;
}

unsigned fault_live_mappings(void)
{
	return plan.mappings.n;
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

#define X(type, name, parameters, arguments, ...)                           \
	type __real_##name parameters;                                      \
	type __wrap_##name parameters;                                      \
	type __wrap_##name parameters                                       \
	{                                                                   \
		static const struct call call = { #name, { __VA_ARGS__ } }; \
		int way = decide(&call);                                    \
                                                                            \
		if (!way)                                                   \
			return __real_##name arguments;                     \
		errno = way;                                                \
		return -1;                                                  \
	}
CALLS(X)
#undef X

static const struct call memory = { "memory", { ENOMEM } };

/* X(return type, name, parameters, arguments): calls that return memory. */
#define ALLOCATIONS(X)                                          \
	X(void *, malloc, (size_t bytes), (bytes))              \
	X(void *, calloc, (size_t n, size_t bytes), (n, bytes)) \
	X(char *, strdup, (const char *text), (text))

#define X(type, name, parameters, arguments)       \
	type __real_##name parameters;             \
	type __wrap_##name parameters;             \
	type __wrap_##name parameters              \
	{                                          \
		type at;                           \
                                                   \
		if (decide(&memory)) {             \
			errno = ENOMEM;            \
			return NULL;               \
		}                                  \
		at = __real_##name arguments;      \
		object_add(&plan.allocations, at); \
		return at;                         \
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

	if (decide(&memory)) {
		errno = ENOMEM;
		return NULL;
	}
	/* Before its address may be another's. */
	object_remove(&plan.allocations, old);
	at = __real_reallocarray(old, n, bytes);
	object_add(&plan.allocations, at);
	return at;
}

void __wrap_free(void *at)
{
	object_remove(&plan.allocations, at);
	__real_free(at);
}

void *__wrap_mmap64(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	static const struct call call = { "mmap", { ENOMEM, EAGAIN } };
	int way = decide(&call);

	if (way) {
		errno = way;
		return MAP_FAILED;
	}
	at = __real_mmap64(at, bytes, prot, flags, fd, offset);
	if (at != MAP_FAILED)
		object_add(&plan.mappings, at);
	return at;
}

int __wrap_munmap(void *at, size_t bytes)
{
	object_remove(&plan.mappings, at);
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
	static const struct call call = { "recv", { ENOMEM, -EINTR, -ECONNRESET, SHORT } };
	int way = decide(&call);

	if (!way || way == SHORT)
		return __real_recv(fd, buf, allowed(way, n), flags);
	errno = way;
	return -1;
}

ssize_t __wrap_send(int fd, const void *buf, size_t n, int flags)
{
	static const struct call call = { "send", { ENOBUFS, EPIPE, -EINTR } };
	int way = decide(&call);

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
	static const struct call call = { "recvmsg", { ENOMEM, -EINTR, -ECONNRESET, SHORT } };
	int way = decide(&call);
	struct msghdr some = *msg;
	struct iovec iov;
	ssize_t n;

	if (way && way != SHORT) {
		errno = way;
		return -1;
	}
	if (allowed(way, SIZE_MAX) == SIZE_MAX)
		return __real_recvmsg(fd, msg, flags);
	iov = first_bytes(msg, allowed(way, SIZE_MAX));
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
	static const struct call call = { "sendmsg", { ENOBUFS, EPIPE, -EAGAIN, -EINTR, SHORT } };
	int way = decide(&call);
	struct msghdr some = *msg;
	struct iovec iov;

	if (way && way != SHORT) {
		errno = way;
		return -1;
	}
	if (allowed(way, SIZE_MAX) == SIZE_MAX)
		return __real_sendmsg(fd, msg, flags);
	iov = first_bytes(msg, allowed(way, SIZE_MAX));
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
	static const struct call call = { "epoll_ctl", { ENOMEM, ENOSPC } };
	int way = op == EPOLL_CTL_DEL ? 0 : decide(&call);

	if (!way)
		return __real_epoll_ctl(ep, op, fd, event);
	errno = way;
	return -1;
}

/* The buffers that are granted are small: few bytes make a sender wait. */
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t n)
{
	static const struct call call = { "setsockopt", { ENOMEM } };
	static const int sndbuf = SNDBUF_BYTES;
	int way = decide(&call);

	if (!way && depth && name == SO_SNDBUF)
		value = &sndbuf;
	if (!way)
		return __real_setsockopt(fd, level, name, value, n);
	errno = way;
	return -1;
}

/* No code of ours makes files: there is no mode. */
int __wrap_open64(const char *path, int flags, ...)
{
	static const struct call call = { "open", { EMFILE, ENFILE, EACCES } };
	int way = decide(&call);

	if (!way)
		return __real_open64(path, flags);
	errno = way;
	return -1;
}

/* A descriptor made with O_PATH, which a front end may pass, has no flags to be set. */
int __wrap_fcntl64(int fd, int command, ...)
{
	static const struct call call = { "fcntl", { EBADF } };
	int way = decide(&call);
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
	if (!depth)
		return __real_nanosleep(time, left);
	warp_clock(ns_of(time));
	return 0;
}

/* Short sleeps are pauses between tries; the long ones are timeouts, and run in earnest. */
int __wrap_epoll_wait(int ep, struct epoll_event *events, int n, int ms)
{
	static const struct call call = { "epoll_wait", { -EINTR } };
	int way = decide(&call);
	bool pause = depth && ms > 1 && ms <= PAUSE_MS;
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
	unsigned was = depth;
	int r;

	depth = 0;
	if (plan.act)
		plan.act(plan.ctx);
	r = __real_poll(fds, n, 0);
	if (r == 0)
		warp_clock(ns);
	depth = was;
	return r;
}

int __wrap_poll(struct pollfd *fds, nfds_t n, int ms)
{
	static const struct call call = { "poll", { ENOMEM, -EINTR } };
	/* Sleeping takes no memory. */
	int way = n ? decide(&call) : 0;

	if (way) {
		errno = way;
		return -1;
	}
	if (!depth || (n && !plan.act))
		return __real_poll(fds, n, ms);
	return wait_other_side(fds, n, (uint64_t)ms * RF_NS_PER_MS);
}

int __wrap_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *time, const sigset_t *mask)
{
	static const struct call call = { "ppoll", { ENOMEM, -EINTR } };
	int way = decide(&call);

	if (way) {
		errno = way;
		return -1;
	}
	if (!depth || !plan.act)
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
	depth = 1;
	return start.run(start.arg);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
			  void *arg)
{
	static const struct call call = { "pthread_create", { EAGAIN } };
	int way = decide(&call);
	struct start *start;

	if (way || !depth)
		return way ? way : __real_pthread_create(thread, attr, run, arg);
	start = __real_malloc(sizeof(*start));
	if (!start)
		abort();
	*start = (struct start){ run, arg };
	return __real_pthread_create(thread, attr, thread_run, start);
}
