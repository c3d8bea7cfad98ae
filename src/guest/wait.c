/* SPDX-License-Identifier: BSD-3-Clause */
#include "wait.h"

#include "base/clock.h"
#include "guest.h"

static void release(struct rf_sock *sock, pthread_mutex_t *outer)
{
	pthread_mutex_unlock(&sock->mutex);
	if (outer)
		pthread_mutex_unlock(outer);
}

static void regain(struct rf_sock *sock, pthread_mutex_t *outer)
{
	if (outer)
		pthread_mutex_lock(outer);
	pthread_mutex_lock(&sock->mutex);
}

static void sleep_on(struct rf_sock *sock, pthread_cond_t *cond, pthread_mutex_t *outer)
{
	if (!outer) {
		pthread_cond_wait(cond, &sock->mutex);
		return;
	}
	pthread_mutex_unlock(outer);
	pthread_cond_wait(cond, &sock->mutex);
	pthread_mutex_unlock(&sock->mutex);
	pthread_mutex_lock(outer);
	pthread_mutex_lock(&sock->mutex);
}

/* For how long to poll, ns. Who waits for a slot waits for the guest's thread. */
static uint64_t limit(const struct rf_sock *sock)
{
	uint64_t poll_ns = sock->guest->rx.poll_ns;

	if (sock->tx_waits)
		return 0;
	return poll_ns == RF_SERVE_RX_AUTO ? rf_poll_auto_limit(&sock->poll_auto) : poll_ns;
}

/* The call's polling is over. Context: the socket's mutex held. */
static void polled(struct rf_wait *wait)
{
	struct rf_guest *guest = wait->sock->guest;
	bool hit = wait->polled != RF_POLLED_NOTHING;
	uint64_t now_ns;

	rf_count_shared(&guest->counters.rx_polls, 1);
	rf_count_shared(&guest->counters.rx_poll_hits, hit);
	if (guest->rx.poll_ns != RF_SERVE_RX_AUTO || wait->polled == RF_POLLED_AT_ONCE)
		return;
	now_ns = rf_clock_now();
	rf_poll_auto_polled(&wait->sock->poll_auto, wait->polled == RF_POLLED_CHANGE,
			    now_ns - wait->begin_ns, now_ns);
}

static void start_polling(struct rf_wait *wait)
{
	wait->stage = limit(wait->sock) ? RF_WAIT_POLLS : RF_WAIT_POLLED;
	wait->begin_ns = rf_clock_now();
}

static void poll_on(struct rf_wait *wait, pthread_mutex_t *outer)
{
	struct rf_sock *sock = wait->sock;
	unsigned seen = atomic_load_explicit(&sock->changes, memory_order_relaxed);
	uint64_t until_ns = wait->begin_ns + limit(sock);

	release(sock, outer);
	wait->polled = rf_serve_rx_poll(sock->guest, &sock->changes, seen, until_ns);
	regain(sock, outer);
	if (wait->polled != RF_POLLED_NOTHING)
		return;
	polled(wait);
	wait->stage = RF_WAIT_POLLED;
}

static void look_once(struct rf_wait *wait, pthread_mutex_t *outer)
{
	struct rf_sock *sock = wait->sock;

	wait->stage = RF_WAIT_LOOKED;
	release(sock, outer);
	rf_serve_rx_look(sock->guest);
	regain(sock, outer);
}

/* Before it sleeps, what may have come has to be seen. */
static void fall_asleep(struct rf_wait *wait, pthread_mutex_t *outer)
{
	struct rf_sock *sock = wait->sock;

	wait->stage = RF_WAIT_SLEEPS;
	release(sock, outer);
	rf_serve_rx_doze(sock->guest);
	wait->begin_ns = rf_clock_now();
	regain(sock, outer);
}

bool rf_wait(struct rf_wait *wait, pthread_cond_t *cond, pthread_mutex_t *outer, bool blocks)
{
	bool polls = rf_serve_rx_polled(&wait->sock->guest->rx);

	if (!blocks && (!polls || wait->stage != RF_WAIT_FRESH))
		return false;
	if (!polls) {
		sleep_on(wait->sock, cond, outer);
		return true;
	}
	if (!blocks) {
		look_once(wait, outer);
		return true;
	}
	if (wait->stage <= RF_WAIT_LOOKED)
		start_polling(wait);
	if (wait->stage == RF_WAIT_POLLS)
		poll_on(wait, outer);
	else if (wait->stage == RF_WAIT_POLLED)
		fall_asleep(wait, outer);
	else
		sleep_on(wait->sock, cond, outer);
	return true;
}

static void slept(struct rf_wait *wait)
{
	uint64_t now_ns = rf_clock_now();

	rf_poll_auto_slept(&wait->sock->poll_auto, now_ns - wait->begin_ns, now_ns);
}

void rf_wait_ended(struct rf_wait *wait)
{
	struct rf_sock *sock = wait->sock;
	struct rf_guest *guest = sock->guest;
	bool learns = guest->rx.poll_ns == RF_SERVE_RX_AUTO;

	if (wait->stage == RF_WAIT_POLLS || (wait->stage == RF_WAIT_SLEEPS && learns)) {
		pthread_mutex_lock(&sock->mutex);
		if (wait->stage == RF_WAIT_POLLS)
			polled(wait);
		else
			slept(wait);
		pthread_mutex_unlock(&sock->mutex);
	}
	if (wait->stage == RF_WAIT_SLEEPS)
		rf_serve_rx_rouse(guest);
	rf_serve_rx_leave(guest);
	wait->stage = RF_WAIT_FRESH;
}
