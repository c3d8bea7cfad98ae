/* SPDX-License-Identifier: BSD-3-Clause */
#include "serve.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/probe.h"
#include "guest.h"
#include "small.h"

/* Pauses between attempts to attach. */
#define RETRY_MIN_NS (10 * RF_NS_PER_MS)
#define RETRY_MAX_NS (1 * RF_NS_PER_SEC)
#define NEVER_NS     UINT64_MAX

/* The timer always runs: to move it takes no memory, which there may be none of in need. */
static void retry_at(struct rf_guest *guest, uint64_t deadline_ns)
{
	int r = rf_timer_start(guest->loop, &guest->retry_timer, deadline_ns);

	assert(r == 0);
}

/* The next attempt to attach: soon at first, then ever later. */
static void retry_later(struct rf_guest *guest)
{
	uint64_t pause_ns = guest->retry_ns;

	guest->retry_ns = rf_min_u64(2 * pause_ns, RETRY_MAX_NS);
	retry_at(guest, rf_clock_now() + pause_ns);
}

static void retry(struct rf_timer *timer)
{
	struct rf_guest *guest = RF_CONTAINER_OF(timer, struct rf_guest, retry_timer);
	struct rf_device *device;
	int r;

	retry_at(guest, NEVER_NS);
	r = rf_device_attach(&guest->device_options, &guest->counters, &guest->abort, &device);
	if (r == 0)
		r = rf_serve_device(guest, device);
	if (r < 0)
		retry_later(guest);
}

void rf_serve_broken(struct rf_guest *guest, const struct rf_drvq *q)
{
	rf_count(&guest->counters.rings_broken, 1);
	rf_serve_detach(guest, rf_ring_reason_text(rf_drvq_broken(q)));
}

static void rx_called(struct rf_watch *watch, uint32_t events RF_UNUSED)
{
	struct rf_guest *guest = RF_CONTAINER_OF(watch, struct rf_guest, call_watches[RF_GUEST_RX]);

	rf_count(&guest->counters.rx_calls, 1);
	RF_PROBE(rx_calls, guest->device, RF_GUEST_RX);
	rf_serve_rx_turn(guest);
}

/* Sockets that waited for room on the transmit ring try again; so do their senders. */
static void serve_waiting(struct rf_guest *guest, struct rf_device *device, unsigned n)
{
	while (n--) {
		struct rf_sock *sock = rf_tx_pop_waiting(&device->tx, &guest->todo);

		if (!sock)
			break;
		pthread_mutex_lock(&sock->mutex);
		sock->tx_waits = false;
		guest->todo |= rf_small_flush(sock);
		guest->todo |= rf_sock_settle(sock);
		pthread_mutex_unlock(&sock->mutex);
		rf_sock_unref(sock);
	}
}

void rf_serve_tx(struct rf_guest *guest)
{
	bool sound;
	unsigned n;

	if (!guest->device)
		return;
	sound = rf_tx_reap(&guest->device->tx, &n, &guest->todo);
	serve_waiting(guest, guest->device, n);
	if (!sound) {
		rf_serve_broken(guest, guest->device->tx.q);
		return;
	}
	rf_serve_rx_room(guest);
}

static void tx_called(struct rf_watch *watch, uint32_t events RF_UNUSED)
{
	struct rf_guest *guest = RF_CONTAINER_OF(watch, struct rf_guest, call_watches[RF_GUEST_TX]);

	rf_count(&guest->counters.tx_calls, 1);
	RF_PROBE(tx_calls, guest->device, RF_GUEST_TX);
	rf_serve_tx(guest);
}

/* Every connection ends; none says anything more. */
static void abandon_conns(struct rf_guest *guest)
{
	struct rf_vsock_conn *conn, *next;

	pthread_mutex_lock(&guest->table_mutex);
	for (conn = rf_vsock_table_next(&guest->conns, NULL); conn; conn = next) {
		struct rf_sock *sock = RF_CONTAINER_OF(conn, struct rf_sock, conn);
		bool dead;

		next = rf_vsock_table_next(&guest->conns, conn);
		pthread_mutex_lock(&sock->mutex);
		dead = conn->state == RF_VSOCK_DEAD;
		rf_vsock_conn_abandon(conn, RF_VSOCK_TRANSPORT_RESET);
		if (!dead)
			rf_sock_died(sock);
		rf_guest_unlist(guest, sock);
		guest->todo |= rf_sock_settle(sock);
		pthread_mutex_unlock(&sock->mutex);
		rf_sock_unref(sock);
	}
	pthread_mutex_unlock(&guest->table_mutex);
}

/* virtio 1.2 5.10.6.7: the CID may be another one now. */
static void transport_reset(struct rf_guest *guest)
{
	rf_count(&guest->counters.transport_resets, 1);
	rf_serve_rx_hold(guest);
	abandon_conns(guest);
	rf_serve_rx_go_on(guest);
	if (rf_device_read_cid(guest->device) < 0)
		rf_serve_detach(guest, "no CID after a transport reset");
	else
		atomic_store(&guest->cid, guest->device->cid);
}

static void event_called(struct rf_watch *watch, uint32_t events RF_UNUSED)
{
	struct rf_guest *guest =
		RF_CONTAINER_OF(watch, struct rf_guest, call_watches[RF_GUEST_EVENT]);
	struct rf_device *device = guest->device;
	bool reset = false;
	unsigned n = 0;

	while (n < RF_GUEST_EVENTS && rf_device_event(device, &reset))
		n++;
	/* There may be more: for the next turn. */
	if (n == RF_GUEST_EVENTS)
		rf_eventfd_signal_peer(device->call_fds[RF_GUEST_EVENT]);
	if (rf_drvq_broken(device->event_q) != RF_RING_NONE)
		rf_serve_broken(guest, device->event_q);
	else if (reset)
		transport_reset(guest);
}

static void ring_given_up(struct rf_watch *watch, uint32_t events RF_UNUSED)
{
	struct rf_guest *guest = RF_CONTAINER_OF(watch, struct rf_guest, err_watch);

	rf_serve_detach(guest, "it gave a ring up");
}

/* A back end says nothing unless it is asked. */
static void front_ready(struct rf_watch *watch, uint32_t events RF_UNUSED)
{
	struct rf_guest *guest = RF_CONTAINER_OF(watch, struct rf_guest, front_watch);
	char byte;
	ssize_t n = recv(watch->fd, &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT);

	if (n > 0)
		rf_serve_detach(guest, "it sent what nobody asked for");
	else if (n == 0 || errno != EAGAIN)
		rf_serve_detach(guest, "it closed the connection");
}

static void stop_watching(struct rf_guest *guest)
{
	rf_watch_remove(&guest->front_watch);
	rf_watch_remove(&guest->err_watch);
	for (unsigned i = 0; i < RF_GUEST_N_RINGS; i++)
		rf_watch_remove(&guest->call_watches[i]);
}

static int start_watching(struct rf_guest *guest, const struct rf_device *device)
{
	int fd = device->transport->fd;
	int r = 0;

	if (fd >= 0)
		r = rf_watch_add(guest->loop, &guest->front_watch, fd, EPOLLIN | EPOLLRDHUP);
	if (r == 0)
		r = rf_watch_add(guest->loop, &guest->err_watch, device->err_fd, EPOLLIN);
	/* Edge-triggered eventfds need not be read. */
	for (unsigned i = 0; r == 0 && i < device->n_rings; i++)
		r = rf_watch_add(guest->loop, &guest->call_watches[i], device->call_fds[i],
				 EPOLLIN | EPOLLET);
	if (r < 0)
		stop_watching(guest);
	return r;
}

int rf_serve_device(struct rf_guest *guest, struct rf_device *device)
{
	int r = start_watching(guest, device);

	if (r < 0) {
		rf_device_unref(device);
		return r;
	}
	guest->attached_ns = rf_clock_now();
	pthread_mutex_lock(&guest->table_mutex);
	guest->device = device;
	pthread_mutex_unlock(&guest->table_mutex);
	atomic_store(&guest->cid, device->cid);
	rf_serve_rx_begin(guest, device);
	rf_count(&guest->counters.attachments, 1);
	rf_log(guest->log, RF_LOG_INFO, "attached to %s as CID %u", guest->device_options.path,
	       device->cid);
	return 0;
}

void rf_serve_detach(struct rf_guest *guest, const char *why)
{
	struct rf_device *device = guest->device;
	uint64_t now_ns = rf_clock_now();
	unsigned n;

	if (!device)
		return;
	stop_watching(guest);
	rf_serve_rx_end(guest);
	pthread_mutex_lock(&guest->table_mutex);
	guest->device = NULL;
	pthread_mutex_unlock(&guest->table_mutex);
	atomic_store(&guest->cid, 0);
	rf_tx_stop(&device->tx, &n);
	abandon_conns(guest);
	serve_waiting(guest, device, n);
	guest->todo = 0;
	rf_device_detach(device);
	rf_device_unref(device);
	rf_count(&guest->counters.detachments, 1);
	if (!why)
		return;
	rf_log(guest->log, RF_LOG_WARNING, "back end %s is gone, connections end: %s",
	       guest->device_options.path, why);
	if (!guest->reconnect)
		return;
	if (now_ns - guest->attached_ns > RETRY_MAX_NS)
		guest->retry_ns = RETRY_MIN_NS;
	retry_later(guest);
}

int rf_serve_init(struct rf_guest *guest)
{
	guest->retry_ns = RETRY_MIN_NS;
	guest->retry_timer.expired = retry;
	guest->front_watch.ready = front_ready;
	guest->err_watch.ready = ring_given_up;
	guest->call_watches[RF_GUEST_RX].ready = rx_called;
	guest->call_watches[RF_GUEST_TX].ready = tx_called;
	guest->call_watches[RF_GUEST_EVENT].ready = event_called;
	return rf_timer_start(guest->loop, &guest->retry_timer, NEVER_NS);
}

void rf_serve_fini(struct rf_guest *guest)
{
	rf_timer_stop(&guest->retry_timer);
}
