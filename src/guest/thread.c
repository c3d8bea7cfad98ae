/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The guest's thread: what it does between sleeping and sleeping, and what other threads ask of it.
 */
#include "base/clock.h"
#include "base/fd.h"
#include "base/probe.h"
#include "guest.h"
#include "serve.h"

/* How long rf_guest_close() waits for the back end to take what is on the ring. */
#define DRAIN_NS (1 * RF_NS_PER_SEC)

/* Looks at the transmit ring in one turn, before timers and other rings have theirs. */
#define TX_LOOKS 8u

/* As debuggers and ps(1) show it. */
#define THREAD_NAME "rf-guest"

/* The guest whose thread this is. */
static _Thread_local const struct rf_guest *own;

static bool is_thread(const struct rf_guest *guest)
{
	return own == guest;
}

void rf_guest_do(struct rf_guest *guest, struct rf_device *device, unsigned todo)
{
	if (!todo)
		return;
	if (todo & RF_TX_KICK) {
		rf_count_shared(&guest->counters.tx_kicks, 1);
		RF_PROBE(tx_kicks, device, RF_GUEST_TX);
		rf_eventfd_signal_peer(device->kick_fds[RF_GUEST_TX]);
	}
	if (todo & RF_TX_WAKE && atomic_exchange(&guest->tx_watch, RF_TX_ASKED) == RF_TX_ASLEEP)
		rf_loop_wake(guest->loop);
}

void rf_guest_attend(struct rf_guest *guest, struct rf_sock *sock)
{
	bool first;

	if (sock->attention)
		return;
	sock->attention = true;
	rf_sock_ref(sock);
	pthread_mutex_lock(&guest->attention_mutex);
	first = TAILQ_EMPTY(&guest->attention);
	TAILQ_INSERT_TAIL(&guest->attention, sock, attention_link);
	pthread_mutex_unlock(&guest->attention_mutex);
	if (first && !is_thread(guest))
		rf_loop_wake(guest->loop);
}

void rf_guest_list(struct rf_guest *guest, struct rf_sock *sock)
{
	rf_vsock_table_insert(&guest->conns, &sock->conn);
	sock->listed = true;
	rf_sock_ref(sock);
}

void rf_guest_unlist(struct rf_guest *guest, struct rf_sock *sock)
{
	rf_vsock_table_remove(&guest->conns, &sock->conn);
	sock->listed = false;
}

struct rf_sock *rf_guest_find(struct rf_guest *guest, const struct rf_vsock_key *key)
{
	struct rf_vsock_conn *conn = rf_vsock_table_find(&guest->conns, key);
	struct rf_sock *sock;
	bool done;

	if (!conn)
		return NULL;
	sock = RF_CONTAINER_OF(conn, struct rf_sock, conn);
	pthread_mutex_lock(&sock->mutex);
	done = rf_vsock_conn_done(conn);
	if (done)
		rf_guest_unlist(guest, sock);
	else
		rf_sock_ref(sock);
	pthread_mutex_unlock(&sock->mutex);
	if (!done)
		return sock;
	rf_sock_unref(sock);
	return NULL;
}

static void conn_woken(struct rf_timer *timer)
{
	struct rf_sock *sock = RF_CONTAINER_OF(timer, struct rf_sock, timer);
	struct rf_guest *guest = sock->guest;

	pthread_mutex_lock(&sock->mutex);
	sock->timer_ns = 0;
	if (rf_vsock_conn_wake(&sock->conn, rf_loop_now(guest->loop)))
		rf_sock_died(sock);
	guest->todo |= rf_sock_settle(sock);
	pthread_mutex_unlock(&sock->mutex);
	rf_sock_unref(sock);
}

/* A timer that runs holds a reference. Return: references to let go of. */
static unsigned keep_timer(struct rf_guest *guest, struct rf_sock *sock)
{
	uint64_t wake_ns = sock->conn.wake_ns;
	bool ran = rf_timer_active(&sock->timer);

	if (wake_ns == sock->timer_ns)
		return 0;
	if (!wake_ns) {
		rf_timer_stop(&sock->timer);
		sock->timer_ns = 0;
		return ran;
	}
	sock->timer.expired = conn_woken;
	/* Out of memory: without its timer the connection cannot be left waiting. */
	if (rf_timer_start(guest->loop, &sock->timer, wake_ns) < 0) {
		rf_vsock_conn_reset(&sock->conn, RF_VSOCK_LOCAL_RESET);
		rf_sock_died(sock);
		guest->todo |= rf_sock_settle(sock);
		return 0;
	}
	sock->timer_ns = wake_ns;
	if (!ran)
		rf_sock_ref(sock);
	return 0;
}

static void look_after(struct rf_guest *guest, struct rf_sock *sock)
{
	unsigned refs = 1;

	pthread_mutex_lock(&guest->table_mutex);
	pthread_mutex_lock(&sock->mutex);
	sock->attention = false;
	if (sock->listed && rf_vsock_conn_done(&sock->conn)) {
		rf_guest_unlist(guest, sock);
		refs++;
	}
	refs += keep_timer(guest, sock);
	pthread_mutex_unlock(&sock->mutex);
	pthread_mutex_unlock(&guest->table_mutex);
	while (refs--)
		rf_sock_unref(sock);
}

static struct rf_sock *attention_pop(struct rf_guest *guest)
{
	struct rf_sock *sock;

	pthread_mutex_lock(&guest->attention_mutex);
	sock = TAILQ_FIRST(&guest->attention);
	if (sock)
		TAILQ_REMOVE(&guest->attention, sock, attention_link);
	pthread_mutex_unlock(&guest->attention_mutex);
	return sock;
}

static void look_after_all(struct rf_guest *guest)
{
	struct rf_sock *sock;

	while ((sock = attention_pop(guest)))
		look_after(guest, sock);
}

static void kick(struct rf_guest *guest)
{
	if (guest->todo & RF_TX_KICK && guest->device) {
		rf_count_shared(&guest->counters.tx_kicks, 1);
		RF_PROBE(tx_kicks, guest->device, RF_GUEST_TX);
		rf_eventfd_signal_peer(guest->device->kick_fds[RF_GUEST_TX]);
	}
	guest->todo &= ~(unsigned)RF_TX_KICK;
}

/* Was the thread asked to look at the transmit ring, by others or by itself? */
static bool tx_asked(struct rf_guest *guest)
{
	if (!(guest->todo & RF_TX_WAKE) && atomic_load(&guest->tx_watch) != RF_TX_ASKED)
		return false;
	guest->todo &= ~(unsigned)RF_TX_WAKE;
	/* Whoever asks from now on asks for another look. */
	atomic_exchange(&guest->tx_watch, RF_TX_AWAKE);
	return true;
}

/* From now on whoever asks has to wake the thread. Return: false if somebody has asked before. */
static bool tx_sleep(struct rf_guest *guest)
{
	int watch = RF_TX_AWAKE;

	if (guest->todo & RF_TX_WAKE)
		return false;
	return atomic_compare_exchange_strong(&guest->tx_watch, &watch, RF_TX_ASLEEP) ||
	       watch == RF_TX_ASLEEP;
}

static bool tx_peek(struct rf_idle *idle)
{
	struct rf_guest *guest = RF_CONTAINER_OF(idle, struct rf_guest, tx_idle);

	if (atomic_load_explicit(&guest->tx_watch, memory_order_relaxed) != RF_TX_ASKED)
		return false;
	rf_work_queue(guest->loop, &guest->tx_work);
	return true;
}

static bool tx_arm(struct rf_idle *idle)
{
	struct rf_guest *guest = RF_CONTAINER_OF(idle, struct rf_guest, tx_idle);

	if (tx_sleep(guest))
		return false;
	rf_work_queue(guest->loop, &guest->tx_work);
	return true;
}

/* The turn's end looks at the transmit ring again: it only has to come. */
static void tx_again(struct rf_work *work RF_UNUSED)
{
}

/* All that a turn of the loop leaves behind; sleeping is allowed then. */
static void finish_turn(struct rf_guest *guest)
{
	look_after_all(guest);
	for (unsigned n = 0; n < TX_LOOKS && tx_asked(guest); n++) {
		rf_serve_tx(guest);
		look_after_all(guest);
		kick(guest);
	}
	kick(guest);
	/* Again, then, but not before others have had their turn; or, if it polls, for a while. */
	if (guest->todo & RF_TX_WAKE)
		rf_work_queue(guest->loop, &guest->tx_work);
	else if (atomic_load(&guest->tx_watch) != RF_TX_ASLEEP)
		rf_idle_queue(guest->loop, &guest->tx_idle);
}

/* Closing: what was handed over is the back end's to take, for a while. */
static void drain(struct rf_guest *guest)
{
	uint64_t now_ns = rf_clock_now();
	uint64_t end_ns = now_ns + DRAIN_NS;

	while (guest->device && now_ns < end_ns) {
		bool idle = rf_tx_idle(&guest->device->tx, &guest->todo);

		finish_turn(guest);
		if (idle)
			break;
		rf_loop_turn(guest->loop, (int)((end_ns - now_ns) / RF_NS_PER_MS + 1));
		now_ns = rf_clock_now();
	}
}

void *rf_guest_run(void *arg)
{
	struct rf_guest *guest = arg;

	own = guest;
	pthread_setname_np(pthread_self(), THREAD_NAME);
	guest->tx_work.run = tx_again;
	guest->tx_idle.peek = tx_peek;
	guest->tx_idle.arm = tx_arm;
	while (!atomic_load(&guest->closing)) {
		if (rf_loop_turn(guest->loop, -1) < 0)
			break;
		finish_turn(guest);
	}
	drain(guest);
	rf_serve_detach(guest, NULL);
	finish_turn(guest);
	rf_work_cancel(&guest->tx_work);
	rf_idle_cancel(&guest->tx_idle);
	return NULL;
}
