/* SPDX-License-Identifier: BSD-3-Clause */
#include "poll.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/fd.h"
#include "guest.h"

/* Reported whether asked for or not. */
#define ALWAYS (RF_POLLERR | RF_POLLHUP | RF_POLLNVAL)

/* As many as there can be descriptors, and each one twice. */
#define MAX_FDS ((size_t)2 * RF_SOCK_SLOTS)

/**
 * struct rf_poller - A thread in rf_poll()
 * @mutex:	Protects @told against changes; comes after a socket's
 * @cond:	@told became 1
 * @told:	One of the sockets has something; 0 or 1
 */
struct rf_poller {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	atomic_uint told;
};

/* One socket of a poller; @sock is NULL if there is none to wait for. */
struct polled {
	struct rf_sock *sock;
	struct rf_poll_entry entry;
};

void rf_polls_tell(struct rf_sock *sock, int events)
{
	struct rf_poll_entry *entry;

	LIST_FOREACH (entry, &sock->polls, link) {
		struct rf_poller *poller = entry->poller;

		if (!(events & entry->events))
			continue;
		pthread_mutex_lock(&poller->mutex);
		atomic_store(&poller->told, 1);
		pthread_cond_signal(&poller->cond);
		pthread_mutex_unlock(&poller->mutex);
	}
}

static void poller_init(struct rf_poller *poller)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&poller->cond, &attr);
	pthread_condattr_destroy(&attr);
	pthread_mutex_init(&poller->mutex, NULL);
	atomic_init(&poller->told, 0);
}

static void poller_fini(struct rf_poller *poller)
{
	pthread_cond_destroy(&poller->cond);
	pthread_mutex_destroy(&poller->mutex);
}

/* Wait until told or until @deadline_ns (0: for ever). Return: false if time ran out. */
static bool poller_wait(struct rf_poller *poller, uint64_t deadline_ns)
{
	const struct timespec until = {
		.tv_sec = (time_t)(deadline_ns / RF_NS_PER_SEC),
		.tv_nsec = (long)(deadline_ns % RF_NS_PER_SEC),
	};
	bool told;
	int r = 0;

	pthread_mutex_lock(&poller->mutex);
	while (!atomic_load(&poller->told) && r == 0)
		r = deadline_ns ? pthread_cond_timedwait(&poller->cond, &poller->mutex, &until)
				: pthread_cond_wait(&poller->cond, &poller->mutex);
	told = atomic_exchange(&poller->told, 0);
	pthread_mutex_unlock(&poller->mutex);
	return told;
}

/* Look each socket up once and join its list, so that nothing is missed from here on. */
static void join(struct rf_guest *guest, struct rf_pollfd *fds, struct polled *polled, size_t n,
		 struct rf_poller *poller)
{
	for (size_t i = 0; i < n; i++) {
		struct rf_sock *sock = rf_sock_get(guest, fds[i].sock);

		polled[i].sock = sock;
		if (!sock)
			continue;
		polled[i].entry.poller = poller;
		polled[i].entry.events = fds[i].events | ALWAYS;
		pthread_mutex_lock(&sock->mutex);
		LIST_INSERT_HEAD(&sock->polls, &polled[i].entry, link);
		pthread_mutex_unlock(&sock->mutex);
	}
}

static void leave(struct polled *polled, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct rf_sock *sock = polled[i].sock;

		if (!sock)
			continue;
		pthread_mutex_lock(&sock->mutex);
		LIST_REMOVE(&polled[i].entry, link);
		pthread_mutex_unlock(&sock->mutex);
		rf_sock_unref(sock);
	}
}

static int look(struct rf_pollfd *fds, const struct polled *polled, size_t n)
{
	int found = 0;

	for (size_t i = 0; i < n; i++) {
		struct rf_sock *sock = polled[i].sock;
		int events = 0;

		if (sock) {
			pthread_mutex_lock(&sock->mutex);
			events = rf_sock_events(sock) & polled[i].entry.events;
			pthread_mutex_unlock(&sock->mutex);
		} else if (fds[i].sock >= 0) {
			events = RF_POLLNVAL;
		}
		fds[i].revents = (short)events;
		found += events != 0;
	}
	return found;
}

/* For how long it may poll now, ns. */
static uint64_t poll_limit(struct rf_guest *guest)
{
	struct rf_serve_rx *rx = &guest->rx;
	uint64_t limit_ns = rx->poll_ns;

	if (limit_ns != RF_SERVE_RX_AUTO)
		return limit_ns;
	pthread_mutex_lock(&rx->mutex);
	limit_ns = rf_poll_auto_limit(&rx->poll_auto);
	pthread_mutex_unlock(&rx->mutex);
	return limit_ns;
}

static void learn_polled(struct rf_guest *guest, enum rf_polled polled, uint64_t begin_ns)
{
	struct rf_serve_rx *rx = &guest->rx;
	uint64_t now_ns;

	if (rx->poll_ns != RF_SERVE_RX_AUTO || polled == RF_POLLED_AT_ONCE)
		return;
	now_ns = rf_clock_now();
	pthread_mutex_lock(&rx->mutex);
	rf_poll_auto_polled(&rx->poll_auto, polled == RF_POLLED_CHANGE, now_ns - begin_ns, now_ns);
	pthread_mutex_unlock(&rx->mutex);
}

/* What was waited for has come. */
static void learn_slept(struct rf_guest *guest, uint64_t begin_ns)
{
	struct rf_serve_rx *rx = &guest->rx;
	uint64_t now_ns;

	if (rx->poll_ns != RF_SERVE_RX_AUTO)
		return;
	now_ns = rf_clock_now();
	pthread_mutex_lock(&rx->mutex);
	rf_poll_auto_slept(&rx->poll_auto, now_ns - begin_ns, now_ns);
	pthread_mutex_unlock(&rx->mutex);
}

/* Look at the receive ring for a while, at most until @deadline_ns (0: for ever). */
static void poll_ring(struct rf_guest *guest, struct rf_poller *poller, uint64_t deadline_ns)
{
	uint64_t limit_ns = poll_limit(guest), begin_ns = rf_clock_now();
	uint64_t until_ns = begin_ns + limit_ns;
	enum rf_polled polled;

	if (!limit_ns)
		return;
	if (deadline_ns)
		until_ns = rf_min_u64(until_ns, deadline_ns);
	polled = rf_serve_rx_poll(guest, &poller->told, 0, until_ns);
	rf_count_shared(&guest->counters.rx_polls, 1);
	rf_count_shared(&guest->counters.rx_poll_hits, polled != RF_POLLED_NOTHING);
	learn_polled(guest, polled, begin_ns);
}

/* Wait for one that has something; nothing was found before. Return: what is found. */
static int wait_for_any(struct rf_guest *guest, struct rf_pollfd *fds, struct polled *polled,
			size_t n, struct rf_poller *poller, uint64_t deadline_ns)
{
	bool polls = rf_serve_rx_polled(&guest->rx);
	uint64_t begin_ns = 0;
	int found = 0;

	if (polls) {
		poll_ring(guest, poller, deadline_ns);
		found = look(fds, polled, n);
		if (found)
			return found;
		rf_serve_rx_doze(guest);
		begin_ns = rf_clock_now();
	}
	while (!found && poller_wait(poller, deadline_ns))
		found = look(fds, polled, n);
	if (polls) {
		rf_serve_rx_rouse(guest);
		if (found)
			learn_slept(guest, begin_ns);
	}
	return found;
}

int rf_poll(struct rf_guest *guest, struct rf_pollfd *fds, size_t n, int timeout_ms)
{
	uint64_t deadline_ns = 0;
	struct rf_poller poller;
	struct polled *polled;
	int found;

	if (n > MAX_FDS || timeout_ms < -1)
		return -EINVAL;
	polled = calloc(n ? n : 1, sizeof(*polled));
	if (!polled)
		return -ENOMEM;
	if (timeout_ms >= 0)
		deadline_ns = rf_clock_now() + (uint64_t)timeout_ms * RF_NS_PER_MS;
	poller_init(&poller);
	join(guest, fds, polled, n, &poller);
	found = look(fds, polled, n);
	if (!found && timeout_ms) {
		found = wait_for_any(guest, fds, polled, n, &poller, deadline_ns);
	} else if (!found && rf_serve_rx_polled(&guest->rx)) {
		rf_serve_rx_look(guest);
		found = look(fds, polled, n);
	}
	leave(polled, n);
	rf_serve_rx_leave(guest);
	poller_fini(&poller);
	free(polled);
	return found;
}

static int event_fd_make(struct rf_sock *sock, unsigned direction, int event)
{
	int fd;

	if (sock->closed)
		return -EBADF;
	if (sock->event_fds[direction])
		return sock->event_fds[direction] - 1;
	fd = rf_eventfd_new();
	if (fd < 0)
		return fd;
	/* Whoever watches it relies on notifications. */
	rf_serve_rx_relied_on(sock->guest);
	sock->event_fds[direction] = fd + 1;
	if (sock->last_events & (event | ALWAYS))
		rf_eventfd_signal(fd);
	return fd;
}

int rf_event_fd(struct rf_guest *guest, int fd, int event)
{
	struct rf_sock *sock;
	int r;

	if (event != RF_POLLIN && event != RF_POLLOUT)
		return -EINVAL;
	sock = rf_sock_get(guest, fd);
	if (!sock)
		return -EBADF;
	pthread_mutex_lock(&sock->mutex);
	r = event_fd_make(sock, event == RF_POLLOUT, event);
	pthread_mutex_unlock(&sock->mutex);
	rf_serve_rx_leave(guest);
	rf_sock_unref(sock);
	return r;
}
