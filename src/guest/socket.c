/* SPDX-License-Identifier: BSD-3-Clause */
#include "socket.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "guest.h"
#include "poll.h"
#include "small.h"
#include "vsock/limits.h"

/* Bits of a socket's life: references, open, generation. */
#define LIFE_REF              UINT64_C(1)
#define LIFE_REFS             ((UINT64_C(1) << 31) - 1)
#define LIFE_OPEN             (UINT64_C(1) << 31)
#define LIFE_GENERATION(life) ((uint32_t)((life) >> 32))

void rf_sock_slots_init(struct rf_sock_slots *slots)
{
	pthread_mutex_init(&slots->mutex, NULL);
}

static void sock_free(struct rf_sock *sock)
{
	assert(!(atomic_load(&sock->life) & (LIFE_OPEN | LIFE_REFS)));
	pthread_cond_destroy(&sock->out_cond);
	pthread_cond_destroy(&sock->in_cond);
	pthread_mutex_destroy(&sock->mutex);
	pthread_mutex_destroy(&sock->recv_mutex);
	pthread_mutex_destroy(&sock->send_mutex);
	free(sock);
}

void rf_sock_slots_fini(struct rf_sock_slots *slots)
{
	for (uint32_t i = 0; i < slots->n_used; i++)
		sock_free(atomic_load(&slots->all[i]));
	pthread_mutex_destroy(&slots->mutex);
}

static struct rf_sock *sock_alloc(struct rf_guest *guest, uint32_t slot)
{
	struct rf_sock *sock = calloc(1, sizeof(*sock));

	if (!sock)
		return NULL;
	sock->guest = guest;
	sock->slot = slot;
	sock->life = UINT64_C(1) << 32;
	pthread_mutex_init(&sock->send_mutex, NULL);
	pthread_mutex_init(&sock->recv_mutex, NULL);
	pthread_mutex_init(&sock->mutex, NULL);
	pthread_cond_init(&sock->in_cond, NULL);
	pthread_cond_init(&sock->out_cond, NULL);
	return sock;
}

/* The longest empty slot is used anew, once enough are empty. */
static int slot_take(struct rf_guest *guest, struct rf_sock **ret_sock)
{
	struct rf_sock_slots *slots = &guest->slots;
	struct rf_sock *sock = NULL;
	int r = 0;

	pthread_mutex_lock(&slots->mutex);
	if (slots->n_free > (slots->n_used < RF_SOCK_SLOTS ? RF_SOCK_STALE_SLOTS : 0)) {
		sock = atomic_load(&slots->all[slots->free[slots->first_free]]);
		slots->first_free = (slots->first_free + 1) % RF_SOCK_SLOTS;
		slots->n_free--;
	} else if (slots->n_used < RF_SOCK_SLOTS) {
		sock = sock_alloc(guest, slots->n_used);
		if (sock)
			atomic_store_explicit(&slots->all[slots->n_used++], sock,
					      memory_order_release);
		else
			r = -ENOMEM;
	} else {
		r = -EMFILE;
	}
	pthread_mutex_unlock(&slots->mutex);
	if (r == 0)
		*ret_sock = sock;
	return r;
}

static void slot_give(struct rf_sock_slots *slots, uint32_t slot)
{
	pthread_mutex_lock(&slots->mutex);
	slots->free[(slots->first_free + slots->n_free) % RF_SOCK_SLOTS] = (uint16_t)slot;
	slots->n_free++;
	pthread_mutex_unlock(&slots->mutex);
}

int rf_sock_new(struct rf_guest *guest, struct rf_sock **ret_sock)
{
	struct rf_sock *sock;
	int r = slot_take(guest, &sock);

	if (r < 0)
		return r;
	memset(&sock->state, 0, sizeof(*sock) - offsetof(struct rf_sock, state));
	sock->sizes = (struct rf_sock_sizes){
		.window = guest->window,
		.window_min = RF_VSOCK_WINDOW_MIN,
		.window_max = guest->window,
		.connect_timeout_ms = RF_VSOCK_HANDSHAKE_NS / RF_NS_PER_MS,
	};
	sock->local = (struct rf_sockaddr){ .cid = RF_CID_ANY, .port = RF_PORT_ANY };
	rf_poll_auto_init(&sock->poll_auto);
	TAILQ_INIT(&sock->received);
	TAILQ_INIT(&sock->pending);
	LIST_INIT(&sock->polls);
	sock->last_events = rf_sock_events(sock);
	rf_sock_ref(sock);
	*ret_sock = sock;
	return 0;
}

int rf_sock_fd(const struct rf_sock *sock)
{
	uint64_t life = atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)&sock->life,
					     memory_order_relaxed);

	return (int)(LIFE_GENERATION(life) << RF_SOCK_SLOT_BITS | sock->slot);
}

int rf_sock_open(struct rf_sock *sock)
{
	atomic_fetch_or(&sock->life, LIFE_OPEN);
	return rf_sock_fd(sock);
}

/* Look a descriptor up and change its socket's life by @change, which never fails otherwise. */
static struct rf_sock *lookup(struct rf_guest *guest, int fd, uint64_t change)
{
	struct rf_sock *sock;
	uint64_t life;

	if (fd <= 0)
		return NULL;
	sock = atomic_load_explicit(&guest->slots.all[(uint32_t)fd % RF_SOCK_SLOTS],
				    memory_order_acquire);
	if (!sock)
		return NULL;
	life = atomic_load_explicit(&sock->life, memory_order_relaxed);
	do {
		if (!(life & LIFE_OPEN) ||
		    LIFE_GENERATION(life) != (uint32_t)fd >> RF_SOCK_SLOT_BITS)
			return NULL;
	} while (!atomic_compare_exchange_weak_explicit(
		&sock->life, &life, life + change, memory_order_acq_rel, memory_order_relaxed));
	return sock;
}

struct rf_sock *rf_sock_get(struct rf_guest *guest, int fd)
{
	return lookup(guest, fd, LIFE_REF);
}

struct rf_sock *rf_sock_get_to_close(struct rf_guest *guest, int fd)
{
	return lookup(guest, fd, -LIFE_OPEN);
}

void rf_sock_ref(struct rf_sock *sock)
{
	atomic_fetch_add_explicit(&sock->life, LIFE_REF, memory_order_relaxed);
}

/* Nobody has the socket any more: a new generation begins with the next use of its slot. */
static void sock_empty(struct rf_sock *sock, uint32_t generation)
{
	assert(!sock->bound && !sock->listed && !sock->unread && !sock->tx_queued && !sock->open &&
	       !sock->attention && !rf_timer_active(&sock->timer));
	rf_strict_fini(&sock->strict);
	rf_device_unref(sock->device);
	generation = generation % RF_SOCK_MAX_GENERATION + 1;
	atomic_store_explicit(&sock->life, (uint64_t)generation << 32, memory_order_release);
	slot_give(&sock->guest->slots, sock->slot);
}

void rf_sock_unref(struct rf_sock *sock)
{
	uint64_t life = atomic_fetch_sub_explicit(&sock->life, LIFE_REF, memory_order_acq_rel);

	if ((life & LIFE_REFS) == LIFE_REF)
		sock_empty(sock, LIFE_GENERATION(life));
}

bool rf_sock_at_eof(const struct rf_sock *sock)
{
	return sock->shut_rd || sock->conn.state == RF_VSOCK_DEAD ||
	       sock->conn.peer_shut & RF_VSOCK_SHUT_SEND;
}

bool rf_sock_cannot_send(const struct rf_sock *sock)
{
	return sock->conn.state != RF_VSOCK_ESTABLISHED ||
	       sock->conn.local_shut & RF_VSOCK_SHUT_SEND ||
	       sock->conn.peer_shut & RF_VSOCK_SHUT_RCV;
}

static int connected_events(const struct rf_sock *sock)
{
	const struct rf_vsock_conn *conn = &sock->conn;
	int events = 0;

	if (rf_sock_at_eof(sock))
		events |= RF_POLLIN | RF_POLLRDHUP;
	if (sock->unread)
		events |= RF_POLLIN;
	if (rf_sock_cannot_send(sock) || (rf_vsock_conn_data(conn) && !sock->tx_waits))
		events |= RF_POLLOUT;
	/* As Linux: both directions shut by this side, or sending over on both. */
	if (conn->state == RF_VSOCK_DEAD || conn->local_shut == RF_VSOCK_SHUT_BOTH ||
	    conn->local_shut & conn->peer_shut & RF_VSOCK_SHUT_SEND)
		events |= RF_POLLHUP;
	return events;
}

int rf_sock_events(const struct rf_sock *sock)
{
	int events = sock->error ? RF_POLLERR : 0;

	if (sock->closed)
		return RF_POLLNVAL;
	switch (sock->state) {
	case RF_SOCK_STATE_NEW:
		return events | RF_POLLOUT;
	case RF_SOCK_STATE_LISTENING:
		return events | (sock->n_pending ? RF_POLLIN : 0);
	case RF_SOCK_STATE_CONNECTING:
		return events;
	case RF_SOCK_STATE_CONNECTED:
		return events | connected_events(sock);
	}
	return events;
}

void rf_sock_changed(struct rf_sock *sock)
{
	static const int also = RF_POLLERR | RF_POLLHUP | RF_POLLNVAL;
	static const int directions[2] = { RF_POLLIN, RF_POLLOUT };
	int events = rf_sock_events(sock);
	int news = events & ~sock->last_events;

	sock->last_events = events;
	atomic_store_explicit(&sock->changes,
			      atomic_load_explicit(&sock->changes, memory_order_relaxed) + 1,
			      memory_order_release);
	if (events & (RF_POLLIN | also))
		pthread_cond_broadcast(&sock->in_cond);
	if (events & (RF_POLLOUT | also))
		pthread_cond_broadcast(&sock->out_cond);
	for (unsigned i = 0; i < 2; i++) {
		if (sock->event_fds[i] && news & (directions[i] | also))
			rf_eventfd_signal(sock->event_fds[i] - 1);
	}
	rf_polls_tell(sock, events);
}

/* A sender found no credit: while that is so, the peer may have to be asked. */
static void wait_for_credit(struct rf_sock *sock)
{
	sock->wants_credit = !rf_vsock_conn_data(&sock->conn);
	if (sock->wants_credit && rf_vsock_conn_wait(&sock->conn, rf_clock_now()))
		rf_count_shared(&sock->guest->counters.packet_waits, 1);
}

unsigned rf_sock_settle(struct rf_sock *sock)
{
	struct rf_vsock_conn *conn = &sock->conn;
	unsigned todo = 0;

	if (sock->wants_credit)
		wait_for_credit(sock);
	/* In the order in which the connection made them. */
	if (sock->open && (rf_vsock_conn_owes(conn) || conn->state == RF_VSOCK_DEAD))
		todo = rf_small_flush(sock);
	if (rf_vsock_conn_owes(conn))
		todo |= rf_tx_control(&sock->device->tx, sock);
	if (conn->wake_ns != sock->timer_ns || (sock->listed && rf_vsock_conn_done(conn)))
		rf_guest_attend(sock->guest, sock);
	rf_sock_changed(sock);
	return todo;
}

void rf_sock_unlock(struct rf_sock *sock, unsigned todo)
{
	struct rf_device *device = sock->device;

	pthread_mutex_unlock(&sock->mutex);
	rf_guest_do(sock->guest, device, todo);
}

void rf_sock_died(struct rf_sock *sock)
{
	enum rf_vsock_reason reason = sock->conn.reason;

	rf_count_shared(&sock->guest->counters.ended[reason], 1);
	if (sock->state == RF_SOCK_STATE_CONNECTING) {
		sock->state = RF_SOCK_STATE_NEW;
		sock->error = reason == RF_VSOCK_HANDSHAKE_TIMEOUT ? ETIMEDOUT : ECONNRESET;
	} else if (reason != RF_VSOCK_CLOSED) {
		sock->error = ECONNRESET;
	}
}

void rf_sock_consumed(struct rf_sock *sock, uint32_t bytes)
{
	rf_vsock_conn_consumed(&sock->conn, rf_strict_read(&sock->strict, bytes));
}

void rf_sock_drop_received(struct rf_sock *sock)
{
	/* What a reader has taken out it will count and give back itself. */
	struct rf_chunk *chunk;
	uint32_t bytes = 0;

	TAILQ_FOREACH (chunk, &sock->received, link)
		bytes += chunk->end - chunk->begin;
	rf_chunks_free(&sock->received);
	sock->unread -= bytes;
	rf_sock_consumed(sock, bytes);
}

int rf_sock_take_error(struct rf_sock *sock)
{
	int error = sock->error;

	sock->error = 0;
	rf_sock_changed(sock);
	return -error;
}

int rf_sock_report(struct rf_sock *sock, int r)
{
	pthread_mutex_lock(&sock->mutex);
	if (r == -sock->error)
		rf_sock_take_error(sock);
	pthread_mutex_unlock(&sock->mutex);
	return r;
}

void rf_sock_params(const struct rf_sock *sock, struct rf_vsock_params *ret_params)
{
	rf_vsock_params_default(ret_params);
	ret_params->window = (uint32_t)sock->sizes.window;
	ret_params->tell = (enum rf_vsock_tell)sock->guest->switches.credit;
	ret_params->handshake_ns = sock->sizes.connect_timeout_ms * RF_NS_PER_MS;
}

int rf_socket(struct rf_guest *guest, int type)
{
	struct rf_sock *sock;
	int r;

	if ((type & ~RF_SOCK_NONBLOCK) != RF_SOCK_STREAM)
		return -ESOCKTNOSUPPORT;
	r = rf_sock_new(guest, &sock);
	if (r < 0)
		return r;
	sock->nonblock = type & RF_SOCK_NONBLOCK;
	return rf_sock_open(sock);
}
