/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The system says no: each allocation and each system call of the guest half in turn. Linked with
 * --wrap for all that stands in FAULTS.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "guest_rig.h"

#define WINDOW 262144u

/* This thread's next fault, counted down; 0 for none. */
static _Thread_local unsigned fault_at;
/* Threads that this thread starts are a guest's; is this one? */
static _Thread_local bool starts_guest, is_guest;
/* A guest's thread gets no memory. */
static atomic_bool no_memory;

static bool fault(void)
{
	return (fault_at && --fault_at == 0) || (is_guest && no_memory);
}

/* X(return type, name, failure, errno, parameters, arguments) */
#define FAULTS(X)                                                                           \
	X(int, eventfd, -1, EMFILE, (unsigned count, int flags), (count, flags))            \
	X(int, epoll_create1, -1, EMFILE, (int flags), (flags))                             \
	X(int, memfd_create, -1, EMFILE, (const char *name, unsigned flags), (name, flags)) \
	X(int, ftruncate64, -1, ENOSPC, (int fd, off_t len), (fd, len))                     \
	X(void *, mmap64, MAP_FAILED, ENOMEM,                                               \
	  (void *at, size_t len, int prot, int flags, int fd, off_t offset),                \
	  (at, len, prot, flags, fd, offset))                                               \
	X(int, socket, -1, EMFILE, (int domain, int type, int protocol), (domain, type, protocol))

#define X(type, name, failure, error, parameters, arguments) \
	type __real_##name parameters;                       \
	type __wrap_##name parameters;                       \
	type __wrap_##name parameters                        \
	{                                                    \
		if (!fault())                                \
			return __real_##name arguments;      \
		errno = error;                               \
		return failure;                              \
	}
FAULTS(X)
#undef X

int __real_epoll_ctl(int ep, int op, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int ep, int op, int fd, struct epoll_event *event);
void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__real_reallocarray(void *old, size_t n, size_t bytes);
void *__wrap_reallocarray(void *old, size_t n, size_t bytes);
char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
			  void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
			  void *arg);

/* Taking something off again never fails. */
int __wrap_epoll_ctl(int ep, int op, int fd, struct epoll_event *event)
{
	if (op == EPOLL_CTL_DEL || !fault())
		return __real_epoll_ctl(ep, op, fd, event);
	errno = ENOSPC;
	return -1;
}

void *__wrap_malloc(size_t bytes)
{
	return fault() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	return fault() ? NULL : __real_calloc(n, bytes);
}

void *__wrap_reallocarray(void *old, size_t n, size_t bytes)
{
	return fault() ? NULL : __real_reallocarray(old, n, bytes);
}

char *__wrap_strdup(const char *text)
{
	return fault() ? NULL : __real_strdup(text);
}

struct start {
	void *(*run)(void *);
	void *arg;
};

static void *guest_run(void *arg)
{
	struct start start = *(struct start *)arg;

	free(arg);
	is_guest = true;
	return start.run(start.arg);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
			  void *arg)
{
	struct start *start;

	if (fault())
		return EAGAIN;
	if (!starts_guest)
		return __real_pthread_create(thread, attr, run, arg);
	start = __real_malloc(sizeof(*start));
	assert_non_null(start);
	*start = (struct start){ run, arg };
	return __real_pthread_create(thread, attr, guest_run, start);
}

static void open_marked(struct rig *rig, uint32_t queue_size)
{
	struct rf_guest_options o;

	rig->fake = fake_new(&fake_manual);
	rf_guest_options_init(&o);
	o.socket_path = fake_path(rig->fake);
	o.queue_size = queue_size;
	o.rx_buf_bytes = 4096;
	starts_guest = true;
	assert_int_equal(rf_guest_open(&o, &rig->guest), 0);
	starts_guest = false;
	fake_wait_attached(rig->fake);
}

static void close_marked(struct rig *rig)
{
	rf_guest_close(rig->guest);
	fake_free(rig->fake);
}

/* Each step of opening fails once; nothing is left (rig_close() counts descriptors, ASan memory).
 */
static void opening_fails(void **state)
{
	struct rig *rig = *state;
	struct rf_guest_options o;
	struct rf_guest *guest;
	unsigned n;
	int r;

	rf_guest_close(rig->guest);
	rig->guest = NULL;
	rf_guest_options_init(&o);
	o.socket_path = fake_path(rig->fake);
	o.connect_timeout_ms = 0;
	for (n = 1;; n++) {
		/* The back end may still be busy with the guest before: then nothing was tried. */
		do {
			guest = NULL;
			fault_at = n;
			r = rf_guest_open(&o, &guest);
		} while (r < 0 && fault_at);
		if (fault_at)
			break;
		if (r == 0)
			fail_msg("step %u failed, and nobody cared", n);
		assert_null(guest);
	}
	fault_at = 0;
	rf_guest_close(guest);
	assert_in_range(n, 20, 60);
}

static void calls_fail(void **state)
{
	struct rig *rig = *state;
	int sock = rf_socket(rig->guest, RF_SOCK_STREAM);
	struct rf_pollfd pfd = { sock, RF_POLLIN, 0 };

	fault_at = 1;
	assert_int_equal(rf_socket(rig->guest, RF_SOCK_STREAM), -ENOMEM);
	fault_at = 1;
	assert_int_equal(rf_poll(rig->guest, &pfd, 1, 0), -ENOMEM);
	fault_at = 1;
	assert_int_equal(rf_event_fd(rig->guest, sock, RF_POLLIN), -EMFILE);
	fault_at = 0;
	assert_true(rf_event_fd(rig->guest, sock, RF_POLLIN) >= 0);
	assert_true(rf_socket(rig->guest, RF_SOCK_STREAM) > 0);
}

/* What was admitted and cannot be kept ends its connection, and no other. */
static void no_memory_for_payload(void **state)
{
	struct rig_conn a, b;
	uint8_t bytes[4096] = { 1 };
	struct rig rig;
	uint64_t got = 0;
	ssize_t n;

	(void)state;
	open_marked(&rig, 2);
	a = rig_connect(&rig, 1, WINDOW);
	b = rig_connect(&rig, 2, WINDOW);
	rig_send(&rig, &a, bytes, 4096);
	rig_send(&rig, &a, bytes, 4096);
	rig_wait_counter(&rig, "rx_packets", 4);
	atomic_store(&no_memory, true);
	rig_send(&rig, &a, bytes, 4096);
	assert_int_equal(fake_expect(rig.fake, VIRTIO_VSOCK_OP_RST).dst_port, 1);
	atomic_store(&no_memory, false);
	while ((n = rf_recv(rig.guest, a.sock, bytes, sizeof(bytes), 0)) > 0)
		got += (uint64_t)n;
	assert_int_equal(n, -ECONNRESET);
	assert_int_equal(got, 8192);
	rig_send(&rig, &b, "fine", 4);
	assert_int_equal(rf_recv(rig.guest, b.sock, bytes, 4, RF_MSG_WAITALL), 4);
	close_marked(&rig);
}

/* A request that no socket can be had for is refused; an attempt without a timer ends at once. */
static void no_memory_for_connections(void **state)
{
	struct rf_vsock_hdr hdr = fake_hdr(VIRTIO_VSOCK_OP_REQUEST, 5, 700);
	struct rf_sockaddr addr = { RF_CID_HOST, 1 };
	struct rig rig;
	int sock;

	(void)state;
	open_marked(&rig, 256);
	rig_listen(&rig, 700, 5);
	sock = rf_socket(rig.guest, RF_SOCK_STREAM);
	for (int i = 0; i < 2; i++) {
		atomic_store(&no_memory, i == 0);
		fake_send(rig.fake, &hdr, NULL);
		fake_expect(rig.fake, i ? VIRTIO_VSOCK_OP_RESPONSE : VIRTIO_VSOCK_OP_RST);
	}
	/* There is room for 16 timers, one of them the guest's own. */
	for (unsigned i = 0; i < 15; i++) {
		int other = rf_socket(rig.guest, RF_SOCK_STREAM | RF_SOCK_NONBLOCK);

		assert_int_equal(rf_setsockopt(rig.guest, other, RF_SO_CONNECT_TIMEOUT_MS, 1000000),
				 0);
		assert_int_equal(rf_connect(rig.guest, other, &addr), -EINPROGRESS);
		fake_expect(rig.fake, VIRTIO_VSOCK_OP_REQUEST);
	}
	/* The guest's thread has seen to them all. */
	usleep(20000);
	atomic_store(&no_memory, true);
	assert_int_equal(rf_connect(rig.guest, sock, &addr), -ECONNRESET);
	atomic_store(&no_memory, false);
	fake_expect(rig.fake, VIRTIO_VSOCK_OP_REQUEST);
	fake_expect(rig.fake, VIRTIO_VSOCK_OP_RST);
	assert_int_equal(rf_setsockopt(rig.guest, sock, RF_SO_CONNECT_TIMEOUT_MS, 20), 0);
	assert_int_equal(rf_connect(rig.guest, sock, &addr), -ETIMEDOUT);
	close_marked(&rig);
}

/* Attaching again fails for want of memory, and is tried again. */
static void no_memory_for_attaching(void **state)
{
	struct rig rig;

	(void)state;
	open_marked(&rig, 256);
	atomic_store(&no_memory, true);
	fake_hang_up(rig.fake);
	rig_wait_counter(&rig, "detachments", 1);
	usleep(50000);
	assert_int_equal(rig_counter(&rig, "attachments"), 1);
	atomic_store(&no_memory, false);
	rig_wait_counter(&rig, "attachments", 2);
	close_marked(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_CASE(opening_fails),
		RIG_CASE(calls_fail),
		cmocka_unit_test(no_memory_for_payload),
		cmocka_unit_test(no_memory_for_connections),
		cmocka_unit_test(no_memory_for_attaching),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
