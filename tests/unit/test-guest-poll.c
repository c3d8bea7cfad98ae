/* SPDX-License-Identifier: BSD-3-Clause */
/* rf_poll() and event fds: guest/poll.c, readiness in socket.c. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "guest_rig.h"

#define WINDOW 262144u
#define ALL    (RF_POLLIN | RF_POLLOUT | RF_POLLRDHUP)

/* What poll says now. */
static int now(struct rig *rig, int sock)
{
	struct rf_pollfd pfd = { .sock = sock, .events = ALL, .revents = -1 };
	int n = rf_poll(rig->guest, &pfd, 1, 0);

	assert_int_equal(n, pfd.revents != 0);
	return pfd.revents;
}

/* Wait until poll says exactly this. */
static void expect_events(struct rig *rig, int sock, int events)
{
	int found = -1;

	for (int i = 0; i < 5000; i++) {
		found = now(rig, sock);
		if (found == events)
			return;
		usleep(1000);
	}
	fail_msg("poll says %#x, not %#x", (unsigned)found, (unsigned)events);
}

static bool signalled(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	return poll(&pfd, 1, 0) == 1;
}

/* Wait for an event fd, and clear it. */
static void expect_signal(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	uint64_t count;

	assert_int_equal(poll(&pfd, 1, 5000), 1);
	assert_int_equal(read(fd, &count, sizeof(count)), sizeof(count));
}

static void events_of_a_life(void **state)
{
	struct rig *rig = *state;
	struct rf_sockaddr addr = { RF_CID_HOST, 1234 };
	int sock = rf_socket(rig->guest, RF_SOCK_STREAM | RF_SOCK_NONBLOCK);
	struct rf_vsock_hdr request;
	struct rig_conn c = { .sock = sock };
	char buf[16];

	assert_int_equal(now(rig, sock), RF_POLLOUT);
	assert_int_equal(rf_connect(rig->guest, sock, &addr), -EINPROGRESS);
	assert_int_equal(now(rig, sock), 0);
	request = fake_expect(rig->fake, VIRTIO_VSOCK_OP_REQUEST);
	c.host = fake_answer(&request, VIRTIO_VSOCK_OP_RESPONSE);
	c.host.buf_alloc = 100;
	fake_send(rig->fake, &c.host, NULL);
	expect_events(rig, sock, RF_POLLOUT);
	assert_int_equal(rf_send(rig->guest, sock, "0123456789", 10, 0), 10);
	c.host.buf_alloc = 10;
	rig_send(rig, &c, "data", 4);
	expect_events(rig, sock, RF_POLLIN);
	c.host.fwd_cnt = 10;
	rig_send_op(rig, &c, VIRTIO_VSOCK_OP_CREDIT_UPDATE, 0);
	expect_events(rig, sock, RF_POLLIN | RF_POLLOUT);
	assert_int_equal(rf_recv(rig->guest, sock, buf, sizeof(buf), 0), 4);
	expect_events(rig, sock, RF_POLLOUT);
	rig_send_op(rig, &c, VIRTIO_VSOCK_OP_SHUTDOWN, RF_VSOCK_SHUT_SEND);
	expect_events(rig, sock, RF_POLLIN | RF_POLLOUT | RF_POLLRDHUP);
	assert_int_equal(rf_shutdown(rig->guest, sock, RF_SHUT_WR), 0);
	expect_events(rig, sock, RF_POLLIN | RF_POLLOUT | RF_POLLRDHUP | RF_POLLHUP);
	rig_send_op(rig, &c, VIRTIO_VSOCK_OP_RST, 0);
	expect_events(rig, sock, ALL | RF_POLLHUP | RF_POLLERR);
	assert_int_equal(rf_close(rig->guest, sock), 0);
	assert_int_equal(now(rig, sock), RF_POLLNVAL);
}

static void events_of_a_listener(void **state)
{
	struct rig *rig = *state;
	int listener = rig_listen(rig, 700, 5);
	struct rf_vsock_hdr hdr = fake_hdr(VIRTIO_VSOCK_OP_REQUEST, 1, 700);

	assert_int_equal(now(rig, listener), 0);
	fake_send(rig->fake, &hdr, NULL);
	expect_events(rig, listener, RF_POLLIN);
	assert_true(rf_accept(rig->guest, listener, NULL, 0) > 0);
	assert_int_equal(now(rig, listener), 0);
}

static void polls_many(void **state)
{
	struct rig *rig = *state;
	struct rf_pollfd pfds[21];
	struct rig_conn c[20];

	for (unsigned i = 0; i < 20; i++) {
		c[i] = rig_connect(rig, i, 0);
		pfds[i] = (struct rf_pollfd){ c[i].sock, RF_POLLIN, 0 };
	}
	pfds[20] = (struct rf_pollfd){ -1, RF_POLLIN, 99 };
	assert_int_equal(rf_poll(rig->guest, pfds, 21, 10), 0);
	assert_int_equal(pfds[20].revents, 0);
	rig_send(rig, &c[13], "x", 1);
	assert_int_equal(rf_poll(rig->guest, pfds, 21, 5000), 1);
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(pfds[i].revents, i == 13 ? RF_POLLIN : 0);
	/* The same socket twice counts twice; a stale one is reported. */
	pfds[4].sock = c[13].sock;
	pfds[5].sock = c[5].sock + 100;
	assert_int_equal(rf_poll(rig->guest, pfds, 21, 5000), 3);
	assert_int_equal(pfds[5].revents, RF_POLLNVAL);
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void poll_without_sockets(void **state)
{
	struct rig *rig = *state;
	uint64_t start = now_ms();

	assert_int_equal(rf_poll(rig->guest, NULL, 0, 30), 0);
	assert_in_range(now_ms() - start, 29, 2000);
	assert_int_equal(rf_poll(rig->guest, NULL, 0, -2), -EINVAL);
	assert_int_equal(rf_poll(rig->guest, NULL, 100000, 0), -EINVAL);
}

struct poller {
	struct rig *rig;
	struct rf_pollfd pfd;
	pthread_t thread;
	int result;
};

static void *poller_run(void *arg)
{
	struct poller *p = arg;

	p->result = rf_poll(p->rig->guest, &p->pfd, 1, 5000);
	return NULL;
}

/* Many threads wait on one socket; closing it wakes them all. */
static void close_wakes_pollers(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1, WINDOW);
	struct poller p[8];

	for (unsigned i = 0; i < 8; i++) {
		p[i] = (struct poller){ .rig = rig, .pfd = { c.sock, RF_POLLIN, 0 } };
		assert_int_equal(pthread_create(&p[i].thread, NULL, poller_run, &p[i]), 0);
	}
	usleep(10000);
	assert_int_equal(rf_close(rig->guest, c.sock), 0);
	for (unsigned i = 0; i < 8; i++) {
		pthread_join(p[i].thread, NULL);
		assert_int_equal(p[i].result, 1);
		assert_int_equal(p[i].pfd.revents, RF_POLLNVAL);
	}
}

static void event_fd_for_in(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1, WINDOW);
	int fd = rf_event_fd(rig->guest, c.sock, RF_POLLIN);
	char buf[16];

	assert_true(fd >= 0);
	assert_int_equal(rf_event_fd(rig->guest, c.sock, RF_POLLIN), fd);
	assert_false(signalled(fd));
	rig_send(rig, &c, "one", 3);
	expect_signal(fd);
	/* Already ready: no news. */
	rig_send(rig, &c, "two", 3);
	rig_wait_counter(rig, "rx_packets", 3);
	assert_false(signalled(fd));
	/* Read to the last byte, not to -EAGAIN: what comes next is news all the same. */
	assert_int_equal(rf_recv(rig->guest, c.sock, buf, 6, RF_MSG_WAITALL), 6);
	rig_send(rig, &c, "six", 3);
	expect_signal(fd);
	assert_int_equal(rf_recv(rig->guest, c.sock, buf, 3, 0), 3);
	rig_send_op(rig, &c, VIRTIO_VSOCK_OP_SHUTDOWN, RF_VSOCK_SHUT_SEND);
	expect_signal(fd);
	rig_send_op(rig, &c, VIRTIO_VSOCK_OP_RST, 0);
	expect_signal(fd);
}

static void event_fd_for_out(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1, 5);
	int fd = rf_event_fd(rig->guest, c.sock, RF_POLLOUT);

	/* Ready when it is made. */
	expect_signal(fd);
	/* All credit used, to the last byte. */
	assert_int_equal(rf_send(rig->guest, c.sock, "01234", 5, RF_MSG_DONTWAIT), 5);
	assert_false(signalled(fd));
	c.host.fwd_cnt = 5;
	rig_send_op(rig, &c, VIRTIO_VSOCK_OP_CREDIT_UPDATE, 0);
	expect_signal(fd);
	/* No room on the ring is news when there is some again. */
	c.host.buf_alloc = UINT32_MAX;
	rig_send_op(rig, &c, VIRTIO_VSOCK_OP_CREDIT_UPDATE, 0);
	rig_wait_counter(rig, "rx_packets", 3);
	fake_hold_tx(rig->fake, true);
	while (rf_send(rig->guest, c.sock, "x", 1, RF_MSG_DONTWAIT) == 1)
		;
	assert_false(signalled(fd));
	fake_hold_tx(rig->fake, false);
	expect_signal(fd);
}

static void event_fd_of_connect_and_listen(void **state)
{
	struct rig *rig = *state;
	struct rf_sockaddr addr = { RF_CID_HOST, 1234 };
	int sock = rf_socket(rig->guest, RF_SOCK_STREAM | RF_SOCK_NONBLOCK);
	int out = rf_event_fd(rig->guest, sock, RF_POLLOUT);
	int listener = rig_listen(rig, 700, 5);
	int in = rf_event_fd(rig->guest, listener, RF_POLLIN);
	struct rf_vsock_hdr hdr;

	expect_signal(out);
	assert_int_equal(rf_connect(rig->guest, sock, &addr), -EINPROGRESS);
	hdr = fake_expect(rig->fake, VIRTIO_VSOCK_OP_REQUEST);
	assert_false(signalled(out));
	hdr = fake_answer(&hdr, VIRTIO_VSOCK_OP_RST);
	fake_send(rig->fake, &hdr, NULL);
	expect_signal(out);

	assert_false(signalled(in));
	hdr = fake_hdr(VIRTIO_VSOCK_OP_REQUEST, 1, 700);
	fake_send(rig->fake, &hdr, NULL);
	expect_signal(in);
}

static void event_fd_that_cannot_be(void **state)
{
	struct rig *rig = *state;
	int sock = rf_socket(rig->guest, RF_SOCK_STREAM);
	int fd = rf_event_fd(rig->guest, sock, RF_POLLIN);

	assert_int_equal(rf_event_fd(rig->guest, sock, RF_POLLHUP), -EINVAL);
	assert_int_equal(rf_event_fd(rig->guest, sock, RF_POLLIN | RF_POLLOUT), -EINVAL);
	assert_int_equal(rf_event_fd(rig->guest, sock + 100, RF_POLLIN), -EBADF);
	/* It goes with its socket. */
	assert_int_equal(rf_close(rig->guest, sock), 0);
	assert_int_equal(write(fd, "12345678", 8), -1);
}

/* An idle guest does not wake up; nor does it for data that its reader fetches by itself. */
static void idle_guest_sleeps(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1, WINDOW);
	uint64_t before;

	assert_int_equal(rf_send(rig->guest, c.sock, "hello", 5, 0), 5);
	fake_expect(rig->fake, VIRTIO_VSOCK_OP_RW);
	usleep(20000);
	before = rig_counter(rig, "loop_wakeups");
	/* Longer than the handshake would have been allowed to take. */
	usleep(2200000);
	assert_int_equal(rig_counter(rig, "loop_wakeups"), before);
	for (unsigned i = 0; i < 50; i++)
		assert_int_equal(rf_send(rig->guest, c.sock, "hello", 5, 0), 5);
	for (unsigned i = 0; i < 50; i++)
		fake_expect(rig->fake, VIRTIO_VSOCK_OP_RW);
	assert_int_equal(rig_counter(rig, "loop_wakeups"), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_CASE(events_of_a_life),
		RIG_CASE(events_of_a_listener),
		RIG_CASE(polls_many),
		RIG_CASE(poll_without_sockets),
		RIG_CASE(close_wakes_pollers),
		RIG_CASE(event_fd_for_in),
		RIG_CASE(event_fd_for_out),
		RIG_CASE(event_fd_of_connect_and_listen),
		RIG_CASE(event_fd_that_cannot_be),
		RIG_CASE(idle_guest_sleeps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
