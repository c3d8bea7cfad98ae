/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Many threads do everything at once, to the same sockets: nothing crashes, hangs or leaks, and
 * what is not broken by it is right. Meant for the thread and address sanitizers.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "guest_rig.h"
#include "pattern.h"
#include "prng.h"

#define THREADS  6
#define SHARED   16
#define ROUNDS   1500
#define LISTENER 700
#define PINGS    1500

static const struct rig_options automatic = {
	.fake = &fake_automatic,
	.queue_size = 32,
	.tune = "join=on",
};
/* Every packet is queued. */
static const struct rig_options queued = {
	.fake = &fake_automatic,
	.queue_size = 32,
	.tune = "direct-tx=off,join=on",
};

struct shared {
	struct rig rig;
	_Atomic int socks[SHARED];
	int listener;
	atomic_bool stop;
};

struct worker {
	struct shared *shared;
	uint64_t seed;
	pthread_t thread;
	uint8_t buf[70000];
};

static void connect_somewhere(struct worker *w, int sock)
{
	static const uint32_t ports[] = { FAKE_ECHO, FAKE_SINK, FAKE_SOURCE, 12345, FAKE_SILENT };
	struct rf_guest *guest = w->shared->rig.guest;
	struct rf_sockaddr addr = { RF_CID_HOST, ports[prng_below(&w->seed, 5)] };

	rf_setsockopt(guest, sock, RF_SO_CONNECT_TIMEOUT_MS, 20);
	rf_connect(guest, sock, &addr);
}

/* Put a new socket in the place of another, which is closed. */
static void renew(struct worker *w, unsigned place)
{
	struct rf_guest *guest = w->shared->rig.guest;
	int flags = prng_below(&w->seed, 2) ? RF_SOCK_NONBLOCK : 0;
	int sock;

	if (prng_below(&w->seed, 8) == 0)
		sock = rf_accept(guest, w->shared->listener, NULL, flags);
	else
		sock = rf_socket(guest, RF_SOCK_STREAM | flags);
	sock = atomic_exchange(&w->shared->socks[place], sock);
	rf_close(guest, sock);
	connect_somewhere(w, w->shared->socks[place]);
}

static void poll_some(struct worker *w)
{
	struct rf_pollfd pfds[SHARED];

	for (unsigned i = 0; i < SHARED; i++)
		pfds[i] = (struct rf_pollfd){ w->shared->socks[i], RF_POLLIN | RF_POLLOUT, 0 };
	rf_poll(w->shared->rig.guest, pfds, SHARED, 1);
}

static void do_something(struct worker *w)
{
	static const enum rf_sockopt opts[] = { RF_SO_ERROR, RF_SO_INQ, RF_SO_OUTQ };
	struct rf_guest *guest = w->shared->rig.guest;
	unsigned place = prng_below(&w->seed, SHARED);
	int sock = w->shared->socks[place];
	size_t len = prng_below(&w->seed, sizeof(w->buf));
	struct rf_sockaddr addr;
	uint64_t value;

	switch (prng_below(&w->seed, 16)) {
	case 0:
	case 1:
		renew(w, place);
		break;
	case 2:
	case 3:
	case 4:
		rf_send(guest, sock, w->buf, len, RF_MSG_DONTWAIT);
		break;
	case 5:
		rf_send(guest, sock, w->buf, prng_below(&w->seed, 100), 0);
		break;
	case 6:
	case 7:
	case 8:
		rf_recv(guest, sock, w->buf, len, RF_MSG_DONTWAIT);
		break;
	case 9:
		rf_recv(guest, sock, w->buf, len,
			RF_MSG_DONTWAIT | RF_MSG_PEEK | (len % 2 ? RF_MSG_WAITALL : 0));
		break;
	case 10:
		rf_shutdown(guest, sock, (int)prng_below(&w->seed, 3));
		break;
	case 11:
		poll_some(w);
		break;
	case 12:
		rf_event_fd(guest, sock, prng_below(&w->seed, 2) ? RF_POLLIN : RF_POLLOUT);
		break;
	case 13:
		rf_getsockopt(guest, sock, opts[prng_below(&w->seed, 3)], &value);
		rf_setsockopt(guest, sock, RF_SO_BUFFER_SIZE, 4096 + len);
		rf_getpeername(guest, sock, &addr);
		rf_getsockname(guest, sock, &addr);
		break;
	case 14:
		connect_somewhere(w, sock);
		break;
	case 15:
		free(rf_guest_counters_json(guest));
		rf_bind(guest, sock, &(struct rf_sockaddr){ RF_CID_ANY, RF_PORT_ANY });
		break;
	}
}

static void *work(void *arg)
{
	struct worker *w = arg;

	for (unsigned i = 0; i < ROUNDS; i++)
		do_something(w);
	return NULL;
}

/* Threads that block in calls are let go by closing what they wait on. */
static void *close_all(void *arg)
{
	struct shared *shared = arg;
	uint64_t seed = 99;

	while (!atomic_load(&shared->stop)) {
		unsigned place = prng_below(&seed, SHARED);

		rf_close(shared->rig.guest, atomic_exchange(&shared->socks[place], -1));
		usleep(500);
	}
	return NULL;
}

static void everything_at_once(const struct rig_options *options, bool hang_up)
{
	static struct shared shared;
	static struct worker workers[THREADS];
	pthread_t closer;

	memset(&shared, 0, sizeof(shared));
	rig_open(&shared.rig, options);
	shared.listener = rig_listen(&shared.rig, LISTENER, 3);
	assert_int_equal(rf_setsockopt(shared.rig.guest, shared.listener, RF_SO_NONBLOCK, 1), 0);
	for (unsigned i = 0; i < SHARED; i++)
		shared.socks[i] = -1;
	assert_int_equal(pthread_create(&closer, NULL, close_all, &shared), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		workers[i].shared = &shared;
		workers[i].seed = i + 1;
		assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (unsigned i = 0; i < 40; i++) {
		if (hang_up && i % 5 == 4)
			fake_hang_up(shared.rig.fake);
		else
			fake_connect(shared.rig.fake, LISTENER);
		usleep(5000);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(workers[i].thread, NULL);
	atomic_store(&shared.stop, true);
	pthread_join(closer, NULL);
	assert_int_equal(rig_counter(&shared.rig, "rings_broken"), 0);
	assert_int_equal(rig_counter(&shared.rig, "ended_credit_overrun"), 0);
	assert_int_equal(rig_counter(&shared.rig, "ended_bad_state"), 0);
	rig_close(&shared.rig);
}

static void races_with_close(void **state)
{
	(void)state;
	everything_at_once(&automatic, false);
}

static void races_with_close_queued(void **state)
{
	(void)state;
	everything_at_once(&queued, false);
}

static void races_with_hang_up(void **state)
{
	(void)state;
	everything_at_once(&automatic, true);
}

static void races_with_hang_up_queued(void **state)
{
	(void)state;
	everything_at_once(&queued, true);
}

/* A connection of its own: what is sent comes back, whatever others do. */
struct echoer {
	struct rf_guest *guest;
	unsigned index;
	pthread_t thread;
	size_t got;
	bool equal;
	int sock;
};

#define ECHO_BYTES (2u << 20)

static uint8_t echo_byte(unsigned index, size_t i)
{
	return pattern_byte(i + index);
}

static void *echo_send(void *arg)
{
	struct echoer *e = arg;
	uint64_t seed = e->index;
	size_t sent = 0;
	static _Thread_local uint8_t buf[90000];

	while (sent < ECHO_BYTES) {
		size_t len = 1 + prng_below(&seed, sizeof(buf));

		if (len > ECHO_BYTES - sent)
			len = ECHO_BYTES - sent;
		for (size_t i = 0; i < len; i++)
			buf[i] = echo_byte(e->index, sent + i);
		if (rf_send(e->guest, e->sock, buf, len, 0) != (ssize_t)len)
			break;
		sent += len;
	}
	rf_shutdown(e->guest, e->sock, RF_SHUT_WR);
	return NULL;
}

static void *echo_run(void *arg)
{
	struct echoer *e = arg;
	struct rf_sockaddr addr = { RF_CID_HOST, FAKE_ECHO };
	static _Thread_local uint8_t buf[50000];
	pthread_t sender;
	ssize_t n;

	e->sock = rf_socket(e->guest, RF_SOCK_STREAM);
	if (rf_connect(e->guest, e->sock, &addr) < 0 || pthread_create(&sender, NULL, echo_send, e))
		return NULL;
	e->equal = true;
	while ((n = rf_recv(e->guest, e->sock, buf, sizeof(buf), 0)) > 0) {
		for (ssize_t i = 0; i < n; i++)
			e->equal = e->equal && buf[i] == echo_byte(e->index, e->got + (size_t)i);
		e->got += (size_t)n;
	}
	pthread_join(sender, NULL);
	rf_close(e->guest, e->sock);
	return NULL;
}

/* Whichever way packets went, each is counted once. */
static void check_ways(struct rig *rig)
{
	static const char *const ways[] = { "tx_direct", "tx_queued_busy", "tx_queued_full",
					    "tx_queued_earlier", "tx_queued_off" };
	uint64_t sum = 0;

	for (unsigned i = 0; i < 5; i++)
		sum += rig_counter(rig, ways[i]);
	assert_int_equal(sum, rig_counter(rig, "tx_packets"));
}

static void echo_all(const struct rig_options *options)
{
	struct echoer echoers[12];
	struct rig rig;

	rig_open(&rig, options);
	for (unsigned i = 0; i < 12; i++) {
		echoers[i] = (struct echoer){ .guest = rig.guest, .index = i };
		assert_int_equal(pthread_create(&echoers[i].thread, NULL, echo_run, &echoers[i]),
				 0);
	}
	for (unsigned i = 0; i < 12; i++) {
		pthread_join(echoers[i].thread, NULL);
		assert_int_equal(echoers[i].got, ECHO_BYTES);
		assert_true(echoers[i].equal);
	}
	rig_wait_counter(&rig, "ended_closed", 12);
	assert_int_equal(rig_counter(&rig, "ended_closed"), 12);
	check_ways(&rig);
	rig_close(&rig);
}

static void many_connections(void **state)
{
	(void)state;
	echo_all(&automatic);
}

static void many_connections_queued(void **state)
{
	(void)state;
	echo_all(&queued);
}

/* Sends one byte, and waits for it before it sends the next one. */
static void *ping(void *arg)
{
	struct echoer *e = arg;
	struct rf_sockaddr addr = { RF_CID_HOST, FAKE_ECHO };

	e->sock = rf_socket(e->guest, RF_SOCK_STREAM);
	if (rf_connect(e->guest, e->sock, &addr) < 0)
		return NULL;
	for (; e->got < PINGS; e->got++) {
		uint8_t out = echo_byte(e->index, e->got), in;

		if (rf_send(e->guest, e->sock, &out, 1, 0) != 1 ||
		    rf_recv(e->guest, e->sock, &in, 1, 0) != 1 || in != out)
			break;
	}
	rf_close(e->guest, e->sock);
	return NULL;
}

/* No packet is left behind when nobody sends another one: there is one of each at a time. */
static void ping_all(const struct rig_options *options)
{
	struct echoer echoers[12];
	struct rig rig;

	rig_open(&rig, options);
	for (unsigned i = 0; i < 12; i++) {
		echoers[i] = (struct echoer){ .guest = rig.guest, .index = i };
		assert_int_equal(pthread_create(&echoers[i].thread, NULL, ping, &echoers[i]), 0);
	}
	for (unsigned i = 0; i < 12; i++) {
		pthread_join(echoers[i].thread, NULL);
		assert_int_equal(echoers[i].got, PINGS);
	}
	rig_wait_counter(&rig, "ended_closed", 12);
	check_ways(&rig);
	rig_close(&rig);
}

static void ping_pong(void **state)
{
	(void)state;
	ping_all(&automatic);
}

static void ping_pong_queued(void **state)
{
	(void)state;
	ping_all(&queued);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_connections),   cmocka_unit_test(many_connections_queued),
		cmocka_unit_test(ping_pong),          cmocka_unit_test(ping_pong_queued),
		cmocka_unit_test(races_with_close),   cmocka_unit_test(races_with_close_queued),
		cmocka_unit_test(races_with_hang_up), cmocka_unit_test(races_with_hang_up_queued),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
