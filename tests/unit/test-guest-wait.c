/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * guest/wait.c, serve_rx.c: callers that poll the receive ring, and what happens when they stop.
 *
 * The other tests of the guest's sockets run with polling, too (tests/unit/meson.build).
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "guest_rig.h"
#include "pattern.h"

#define WINDOW  262144u
#define WAIT_MS 5000

static const struct rig_options polling = { .poll_us = 1000 };

/* Messages to and from the echo service, each waited for. */
static void ping_pong(const struct rig_options *options, unsigned n, struct rig *ret_rig)
{
	struct rig_options o = *options;
	struct rf_sockaddr addr = { RF_CID_HOST, FAKE_ECHO };
	int sock;

	o.fake = &fake_automatic;
	rig_open(ret_rig, &o);
	sock = rf_socket(ret_rig->guest, RF_SOCK_STREAM);
	assert_int_equal(rf_connect(ret_rig->guest, sock, &addr), 0);
	for (unsigned i = 0; i < n; i++) {
		unsigned got = 0;

		assert_int_equal(rf_send(ret_rig->guest, sock, &i, sizeof(i), 0), sizeof(i));
		assert_int_equal(rf_recv(ret_rig->guest, sock, &got, sizeof(got), RF_MSG_WAITALL),
				 sizeof(got));
		assert_int_equal(got, i);
	}
	rf_close(ret_rig->guest, sock);
}

/* Who waits takes packets off the ring itself. How many depends on what else the machine does. */
static void callers_serve_themselves(void **state)
{
	struct rig rig;

	(void)state;
	ping_pong(&polling, 1000, &rig);
	assert_true(rig_counter(&rig, "rx_polls") > 0);
	assert_true(rig_counter(&rig, "rx_poll_hits") > 0);
	assert_true(rig_counter(&rig, "rx_polled_packets") > 0);
	assert_int_equal(rig_counter(&rig, "loop_polls"), 0);
	rig_close(&rig);
}

static void the_thread_polls(void **state)
{
	static const struct rig_options worker = { .poll_us = 1000, .tune = "poll-by=worker" };
	struct rig rig;

	(void)state;
	ping_pong(&worker, 1000, &rig);
	assert_int_equal(rig_counter(&rig, "rx_polls"), 0);
	assert_int_equal(rig_counter(&rig, "rx_polled_packets"), 0);
	assert_int_equal(rig_counter(&rig, "rx_grace_ticks"), 0);
	assert_true(rig_counter(&rig, "loop_polls") > 0);
	rig_close(&rig);
}

/* Off is off. */
static void nobody_polls(void **state)
{
	static const struct rig_options off = { .tune = "poll-by=caller" };
	struct rig rig;
	struct rig_conn c;
	char byte;

	(void)state;
	rig_open(&rig, &off);
	c = rig_connect(&rig, 1, WINDOW);
	assert_int_equal(rf_recv(rig.guest, c.sock, &byte, 1, RF_MSG_DONTWAIT), -EAGAIN);
	rig_send(&rig, &c, "x", 1);
	assert_int_equal(rf_recv(rig.guest, c.sock, &byte, 1, 0), 1);
	if (!getenv("RIG_POLL_US")) {
		assert_int_equal(rig_counter(&rig, "rx_polls"), 0);
		assert_int_equal(rig_counter(&rig, "rx_polled_packets"), 0);
		assert_int_equal(rig_counter(&rig, "rx_grace_ticks"), 0);
	}
	rig_close(&rig);
}

/* Connections come and go whatever the rule makes of it. */
static void automatic(void **state)
{
	static const struct rig_options rows[] = {
		{ .poll_us = RF_POLL_AUTO },
		{ .poll_us = RF_POLL_AUTO, .tune = "poll-by=worker" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rig rig;

		ping_pong(&rows[i], 2000, &rig);
		rig_close(&rig);
	}
}

/* A call that does not block looks once. */
static void looks_once(void **state)
{
	uint64_t calls;
	struct rig rig;
	struct rig_conn c;
	uint8_t got = 0;

	(void)state;
	rig_open(&rig, &polling);
	c = rig_connect(&rig, 1, WINDOW);
	calls = rig_counter(&rig, "rx_calls");
	for (unsigned i = 0; i < 200; i++) {
		uint8_t sent = (uint8_t)i;
		ssize_t n;

		assert_int_equal(rf_recv(rig.guest, c.sock, &got, 1, RF_MSG_DONTWAIT), -EAGAIN);
		rig_send(&rig, &c, &sent, 1);
		do {
			n = rf_recv(rig.guest, c.sock, &got, 1, RF_MSG_DONTWAIT);
		} while (n == -EAGAIN);
		assert_int_equal(n, 1);
		assert_int_equal(got, sent);
	}
	assert_int_equal(rig_counter(&rig, "rx_polls"), 0);
	assert_true(rig_counter(&rig, "rx_polled_packets") > 0);
	assert_true(rig_counter(&rig, "rx_calls") - calls < 200);
	rig_close(&rig);
}

static void wait_unread(struct rig *rig, int sock, uint64_t bytes)
{
	for (int i = 0; i < WAIT_MS && rig_option(rig, sock, RF_SO_INQ) != bytes; i++)
		usleep(1000);
	assert_int_equal(rig_option(rig, sock, RF_SO_INQ), bytes);
}

/* Whoever polled has gone: the guest's thread looks after the ring. */
static void served_within_the_grace(void **state)
{
	struct rig rig;
	struct rig_conn c;
	uint8_t bytes[50];
	char byte;

	(void)state;
	rig_open(&rig, &polling);
	c = rig_connect(&rig, 1, WINDOW);
	for (unsigned i = 1; i <= 20; i++) {
		assert_int_equal(rf_recv(rig.guest, c.sock, &byte, 1, RF_MSG_DONTWAIT), -EAGAIN);
		rig_send(&rig, &c, "x", 1);
		wait_unread(&rig, c.sock, 1);
		assert_int_equal(rf_recv(rig.guest, c.sock, bytes, sizeof(bytes), 0), 1);
	}
	assert_true(rig_counter(&rig, "rx_grace_ticks") > 0);
	rig_close(&rig);
}

/* When nobody polls, nobody wakes up, and the ring is armed. */
static void idle_is_idle(void **state)
{
	uint64_t ticks, wakeups, calls;
	struct rig rig;
	struct rig_conn c;
	char byte;

	(void)state;
	rig_open(&rig, &polling);
	c = rig_connect(&rig, 1, WINDOW);
	assert_int_equal(rf_recv(rig.guest, c.sock, &byte, 1, RF_MSG_DONTWAIT), -EAGAIN);
	usleep(100000);
	ticks = rig_counter(&rig, "rx_grace_ticks");
	wakeups = rig_counter(&rig, "loop_wakeups");
	calls = rig_counter(&rig, "rx_calls");
	assert_true(ticks >= 1);
	usleep(200000);
	assert_int_equal(rig_counter(&rig, "rx_grace_ticks"), ticks);
	assert_int_equal(rig_counter(&rig, "loop_wakeups"), wakeups);
	rig_send(&rig, &c, "x", 1);
	wait_unread(&rig, c.sock, 1);
	assert_int_equal(rig_counter(&rig, "rx_calls"), calls + 1);
	rig_close(&rig);
}

/* A reader in a thread. */
struct reader {
	struct rig *rig;
	int sock;
	ssize_t result;
	pthread_t thread;
};

static void *reader_run(void *arg)
{
	struct reader *r = arg;
	char byte;

	r->result = rf_recv(r->rig->guest, r->sock, &byte, 1, 0);
	return NULL;
}

static void reader_start(struct reader *r, struct rig *rig, int sock)
{
	*r = (struct reader){ .rig = rig, .sock = sock };
	assert_int_equal(pthread_create(&r->thread, NULL, reader_run, r), 0);
}

static ssize_t reader_join(struct reader *r)
{
	pthread_join(r->thread, NULL);
	return r->result;
}

/* It sleeps; somebody else polls, and stops: the sleeper's packet is notified. */
static void sleepers_are_notified(void **state)
{
	struct rig rig;
	struct rig_conn c, other;
	uint64_t calls;
	char byte;

	(void)state;
	rig_open(&rig, &polling);
	c = rig_connect(&rig, 1, WINDOW);
	other = rig_connect(&rig, 2, WINDOW);
	usleep(50000);
	calls = rig_counter(&rig, "rx_calls");
	for (unsigned i = 0; i < 20; i++) {
		struct reader reader;

		reader_start(&reader, &rig, c.sock);
		usleep(5000);
		assert_int_equal(rf_recv(rig.guest, other.sock, &byte, 1, RF_MSG_DONTWAIT),
				 -EAGAIN);
		rig_send(&rig, &c, "x", 1);
		assert_int_equal(reader_join(&reader), 1);
	}
	assert_true(rig_counter(&rig, "rx_calls") - calls >= 10);
	rig_close(&rig);
}

/* So is one that watches an event fd. */
static void event_fds_are_notified(void **state)
{
	struct rig rig;
	struct rig_conn c;
	struct pollfd pfd = { .events = POLLIN };
	uint64_t calls, count;
	char byte;

	(void)state;
	rig_open(&rig, &polling);
	c = rig_connect(&rig, 1, WINDOW);
	pfd.fd = rf_event_fd(rig.guest, c.sock, RF_POLLIN);
	assert_true(pfd.fd >= 0);
	usleep(50000);
	calls = rig_counter(&rig, "rx_calls");
	for (unsigned i = 1; i <= 20; i++) {
		assert_int_equal(rf_recv(rig.guest, c.sock, &byte, 1, RF_MSG_DONTWAIT), -EAGAIN);
		rig_send(&rig, &c, "x", 1);
		assert_int_equal(poll(&pfd, 1, WAIT_MS), 1);
		assert_int_equal(read(pfd.fd, &count, sizeof(count)), sizeof(count));
		assert_int_equal(rf_recv(rig.guest, c.sock, &byte, 1, RF_MSG_DONTWAIT), 1);
	}
	assert_true(rig_counter(&rig, "rx_calls") - calls >= 10);
	rig_close(&rig);
}

/* Closing ends a poll as it ends a sleep. */
static void closing_ends_a_poll(void **state)
{
	struct rig rig;

	(void)state;
	rig_open(&rig, &polling);
	for (unsigned i = 0; i < 100; i++) {
		struct rig_conn c = rig_connect(&rig, 100 + i, WINDOW);
		struct reader reader;

		reader_start(&reader, &rig, c.sock);
		usleep(i * 20);
		assert_int_equal(rf_close(rig.guest, c.sock), 0);
		assert_int_equal(reader_join(&reader), -EBADF);
		fake_expect(rig.fake, VIRTIO_VSOCK_OP_SHUTDOWN);
		rig_send_op(&rig, &c, VIRTIO_VSOCK_OP_RST, 0);
	}
	rig_close(&rig);
}

/* A ring that a caller finds broken is the guest's thread's to give up. */
static void broken_while_polled(void **state)
{
	struct rig rig;
	struct rig_conn c;
	ssize_t n;
	char byte;

	(void)state;
	rig_open(&rig, &polling);
	c = rig_connect(&rig, 1, WINDOW);
	assert_int_equal(rf_recv(rig.guest, c.sock, &byte, 1, RF_MSG_DONTWAIT), -EAGAIN);
	fake_break_ring(rig.fake, 0);
	do {
		n = rf_recv(rig.guest, c.sock, &byte, 1, RF_MSG_DONTWAIT);
	} while (n == -EAGAIN);
	assert_int_equal(n, -ECONNRESET);
	rig_wait_counter(&rig, "detachments", 1);
	assert_int_equal(rig_counter(&rig, "rings_broken"), 1);
	rig_close(&rig);
}

/* rf_poll() on several sockets. */
static void poll_serves(void **state)
{
	struct rig rig;
	struct rig_conn c[3];
	struct rf_pollfd fds[3];

	(void)state;
	rig_open(&rig, &polling);
	for (unsigned i = 0; i < 3; i++) {
		c[i] = rig_connect(&rig, 1 + i, WINDOW);
		fds[i] = (struct rf_pollfd){ .sock = c[i].sock, .events = RF_POLLIN };
	}
	for (unsigned i = 0; i < 60; i++) {
		char byte;

		assert_int_equal(rf_poll(rig.guest, fds, 3, 0), 0);
		assert_int_equal(rf_poll(rig.guest, fds, 3, 1), 0);
		rig_send(&rig, &c[i % 3], "x", 1);
		assert_int_equal(rf_poll(rig.guest, fds, 3, i % 2 ? -1 : WAIT_MS), 1);
		assert_int_equal(fds[i % 3].revents, RF_POLLIN);
		assert_int_equal(rf_recv(rig.guest, fds[i % 3].sock, &byte, 1, 0), 1);
	}
	assert_true(rig_counter(&rig, "rx_polls") >= 60);
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(callers_serve_themselves),
		cmocka_unit_test(the_thread_polls),
		cmocka_unit_test(nobody_polls),
		cmocka_unit_test(automatic),
		cmocka_unit_test(looks_once),
		cmocka_unit_test(served_within_the_grace),
		cmocka_unit_test(idle_is_idle),
		cmocka_unit_test(sleepers_are_notified),
		cmocka_unit_test(event_fds_are_notified),
		cmocka_unit_test(closing_ends_a_poll),
		cmocka_unit_test(broken_while_polled),
		cmocka_unit_test(poll_serves),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
