/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <ringferry/client.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "soak.h"

#define HELLO_MS    10000
#define ACCEPT_MS   200
#define IDLE_MS     2
#define WATCH_MS    20
#define ATTACH_MS   30000
#define REFUSED_MS  20
#define BETWEEN_MS  40
#define STACK_BYTES (512u << 10)
#define AWAY_MS     700

struct worker {
	struct soak_peer *peer;
	unsigned slot;
};

struct accepted {
	struct soak_peer *peer;
	struct soak_end end;
};

static _Noreturn void die(const char *what, int r)
{
	fprintf(stderr, "soak: %s: %s\n", what, strerror(-r));
	exit(1);
}

static void start_thread(pthread_t *ret_thread, void *(*run)(void *), void *arg, bool detached)
{
	pthread_attr_t attr;
	int r;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	if (detached)
		pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	r = pthread_create(ret_thread, &attr, run, arg);
	if (r)
		die("thread", -r);
	pthread_attr_destroy(&attr);
}

static uint64_t key_of(const struct soak_peer *peer, unsigned slot, uint64_t number)
{
	return soak_mix(peer->shared->seed, peer->device->cid, slot, number);
}

static void side_begin(struct soak_side *side, uint64_t word, uint64_t epoch)
{
	side->begin = epoch;
	side->end = epoch;
	side->refused = side->send_error = side->recv_error = 0;
	side->eof = false;
	side->offered = side->sent = side->received = 0;
	side->bad_at = SOAK_NOT_BAD;
	side->moved_ns = soak_now_ns();
	side->word = word;
}

static void side_end(struct soak_peer *peer, struct soak_side *side)
{
	side->end = peer->device->epoch;
	side->moved_ns = soak_now_ns();
	side->word = SOAK_WORD(SOAK_NUMBER(side->word), SOAK_DONE);
}

static int connect_guest(struct soak_peer *peer)
{
	const struct rf_sockaddr addr = { RF_CID_HOST, SOAK_HOST_PORT };
	int sock = rf_socket(peer->guest, RF_SOCK_STREAM);
	int r;

	if (sock < 0)
		return sock;
	rf_setsockopt(peer->guest, sock, RF_SO_CONNECT_TIMEOUT_MS, SOAK_HANDSHAKE_S * 1000);
	r = rf_connect(peer->guest, sock, &addr);
	if (r == 0)
		return sock;
	rf_close(peer->guest, sock);
	return r;
}

static int connect_to_peer(struct soak_peer *peer)
{
	return peer->guest ? connect_guest(peer)
			   : rf_client_connect(peer->device->uds, SOAK_GUEST_PORT, 0);
}

/* One connection, from its plan to its end. Return: false if it was refused. */
static bool run_connection(struct soak_peer *peer, unsigned index)
{
	struct soak_slot *slot = &peer->device->slots[index];
	struct soak_side *mine = &slot->side[peer->who], *other = &slot->side[!peer->who];
	uint64_t number = SOAK_NUMBER(mine->word) + 1, epoch = peer->device->epoch;
	struct soak_hello hello = { peer->device->cid, index, number };
	uint64_t waiting = SOAK_WORD(number, SOAK_WAITING);
	struct soak_end end = { .guest = peer->guest };
	ssize_t n;

	soak_plan_make(key_of(peer, index, number), &slot->plan);
	side_begin(other, waiting, epoch);
	side_begin(mine, SOAK_WORD(number, SOAK_RUNNING), epoch);
	end.fd = connect_to_peer(peer);
	end.by_event_fds = peer->guest && slot->plan.by_event_fds;
	if (end.fd < 0) {
		mine->refused = -end.fd;
		atomic_compare_exchange_strong(&other->word, &waiting,
					       SOAK_WORD(number, SOAK_DONE));
		side_end(peer, mine);
		return false;
	}
	n = soak_end_send(&end, &hello, sizeof(hello), true);
	if (n == sizeof(hello)) {
		soak_stream_run(peer, slot, &end, key_of(peer, index, number));
	} else {
		mine->send_error = n < 0 ? (int)-n : EIO;
		soak_end_close(&end);
	}
	side_end(peer, mine);
	return true;
}

static void *connect_again_and_again(void *arg)
{
	struct worker *worker = arg;
	struct soak_peer *peer = worker->peer;
	const struct soak_slot *slot = &peer->device->slots[worker->slot];
	uint64_t prng = key_of(peer, worker->slot, soak_now_ns());

	while (!peer->stop) {
		if (peer->shared->quiet || slot->judged != SOAK_NUMBER(slot->side[peer->who].word))
			soak_sleep_ms(IDLE_MS);
		else if (!run_connection(peer, worker->slot))
			soak_sleep_ms(REFUSED_MS);
		else
			soak_sleep_ms(prng_below(&prng, BETWEEN_MS));
	}
	return NULL;
}

/* Return: whether the greeting came, and for this device. */
static bool hear_hello(struct soak_peer *peer, const struct soak_end *end,
		       struct soak_hello *ret_hello)
{
	uint64_t until = soak_now_ns() + HELLO_MS * UINT64_C(1000000);
	size_t got = 0;

	while (got < sizeof(*ret_hello) && !peer->stop && soak_now_ns() < until) {
		ssize_t n =
			soak_end_recv(end, (uint8_t *)ret_hello + got, sizeof(*ret_hello) - got);

		if (n == -EAGAIN)
			soak_end_poll(end, POLLIN, ACCEPT_MS);
		else if (n > 0)
			got += (size_t)n;
		else if (n != -ECONNRESET || end->guest)
			return false;
	}
	return got == sizeof(*ret_hello);
}

static void *serve(void *arg)
{
	struct accepted accepted = *(struct accepted *)arg;
	struct soak_peer *peer = accepted.peer;
	struct soak_hello hello;
	uint64_t waiting, epoch;
	struct soak_slot *slot;

	free(arg);
	if (!hear_hello(peer, &accepted.end, &hello)) {
		soak_end_close(&accepted.end);
		goto out;
	}
	if (hello.cid != peer->device->cid || hello.slot >= SOAK_SLOTS ||
	    hello.slot / SOAK_STREAMS == (unsigned)peer->who)
		die("a greeting that is wrong, or for another device", -EPROTO);
	slot = &peer->device->slots[hello.slot];
	waiting = SOAK_WORD(hello.number, SOAK_WAITING);
	epoch = peer->device->epoch;
	if (atomic_compare_exchange_strong(&slot->side[peer->who].word, &waiting,
					   SOAK_WORD(hello.number, SOAK_RUNNING))) {
		accepted.end.by_event_fds = peer->guest && slot->plan.by_event_fds;
		slot->side[peer->who].begin = epoch;
		slot->side[peer->who].moved_ns = soak_now_ns();
		soak_stream_run(peer, slot, &accepted.end, key_of(peer, hello.slot, hello.number));
		side_end(peer, &slot->side[peer->who]);
	} else {
		/* Whoever connected was killed long ago. */
		soak_end_close(&accepted.end);
	}
out:
	peer->n_accepted--;
	return NULL;
}

static void *accept_all(void *arg)
{
	struct soak_peer *peer = arg;
	const struct soak_end listener = { .guest = peer->guest, .fd = peer->listener };

	while (!peer->stop) {
		struct accepted *accepted;
		pthread_t thread;
		int fd;

		if (soak_end_poll(&listener, POLLIN, ACCEPT_MS) <= 0)
			continue;
		fd = peer->guest ? rf_accept(peer->guest, peer->listener, NULL, 0)
				 : accept4(peer->listener, NULL, NULL, SOCK_CLOEXEC);
		if (fd == -EAGAIN)
			continue;
		if (fd < 0)
			die("accept", peer->guest ? fd : -errno);
		accepted = malloc(sizeof(*accepted));
		if (!accepted)
			abort();
		*accepted = (struct accepted){ peer, { .guest = peer->guest, .fd = fd } };
		peer->n_accepted++;
		start_thread(&thread, serve, accepted, true);
	}
	return NULL;
}

static bool asked_to_detach(const struct soak_peer *peer)
{
	return peer->guest && peer->device->detach_asked != peer->device->detach_done;
}

/* What the main thread does while the others work. Return: when they are to stop. */
static void watch(struct soak_peer *peer)
{
	while (!peer->shared->stop && !asked_to_detach(peer)) {
		char *json = peer->guest ? rf_guest_counters_json(peer->guest) : NULL;
		const char *count = json ? strstr(json, "\"attachments\":") : NULL;

		if (count)
			peer->device->attachments =
				(unsigned)strtoul(strchr(count, ':') + 1, NULL, 10);
		free(json);
		soak_sleep_ms(WATCH_MS);
	}
}

static void work(struct soak_peer *peer)
{
	unsigned first = peer->who == SOAK_HOST ? 0 : SOAK_STREAMS;
	struct worker workers[SOAK_STREAMS];
	pthread_t threads[SOAK_STREAMS + 1];

	start_thread(&threads[SOAK_STREAMS], accept_all, peer, false);
	for (unsigned i = 0; i < SOAK_STREAMS; i++) {
		workers[i] = (struct worker){ peer, first + i };
		start_thread(&threads[i], connect_again_and_again, &workers[i], false);
	}
	if (peer->guest)
		peer->device->ready = true;
	watch(peer);
	peer->stop = true;
	for (unsigned i = 0; i < SOAK_STREAMS + 1; i++)
		pthread_join(threads[i], NULL);
	while (peer->n_accepted)
		soak_sleep_ms(IDLE_MS);
}

int soak_host_main(struct soak_shared *shared, struct soak_device *device)
{
	struct soak_peer peer = { .shared = shared, .device = device, .who = SOAK_HOST };

	peer.listener = rf_client_listen(device->uds, SOAK_HOST_PORT, SOAK_BACKLOG);
	if (peer.listener < 0)
		die("listen", peer.listener);
	work(&peer);
	rf_client_unlisten(peer.listener, device->uds, SOAK_HOST_PORT);
	return 0;
}

static void open_guest(struct soak_peer *peer)
{
	struct rf_guest_options options;
	int r;

	rf_guest_options_init(&options);
	options.socket_path = peer->device->socket;
	options.connect_timeout_ms = ATTACH_MS;
	r = rf_guest_open(&options, &peer->guest);
	if (r < 0)
		die("guest", r);
	peer->listener = rf_socket(peer->guest, RF_SOCK_STREAM | RF_SOCK_NONBLOCK);
	r = rf_bind(peer->guest, peer->listener,
		    &(struct rf_sockaddr){ RF_CID_ANY, SOAK_GUEST_PORT });
	if (r == 0)
		r = rf_listen(peer->guest, peer->listener, SOAK_BACKLOG);
	if (r < 0)
		die("guest's listener", r);
}

/* A guest that is closed leaves nothing open. */
static void check_fds(long *first)
{
	long now = soak_count_fds(getpid());

	if (!*first)
		*first = now;
	if (now > *first) {
		fprintf(stderr, "soak: the guest has left descriptors open: %ld, %ld before\n", now,
			*first);
		exit(1);
	}
}

int soak_guest_main(struct soak_shared *shared, struct soak_device *device)
{
	long first_fds = 0;

	while (!shared->stop) {
		struct soak_peer peer = { .shared = shared, .device = device, .who = SOAK_GUEST };

		open_guest(&peer);
		device->detach_done = device->detach_asked;
		work(&peer);
		device->ready = false;
		rf_guest_close(peer.guest);
		check_fds(&first_fds);
		if (!shared->stop)
			soak_sleep_ms((unsigned)soak_now_ns() % AWAY_MS);
	}
	return 0;
}
