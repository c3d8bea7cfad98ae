/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "guest.h"
#include "small.h"
#include "wait.h"

/* What keeps a socket from sending for good, as -errno; 0 if nothing does. */
static int obstacle(const struct rf_sock *sock)
{
	if (sock->closed)
		return -EBADF;
	if (sock->state != RF_SOCK_STATE_CONNECTED)
		return -ENOTCONN;
	if (sock->error)
		return -sock->error;
	return rf_sock_cannot_send(sock) ? -EPIPE : 0;
}

/*
 * Find out how much can be sent now, and get a slot for it. Context: the socket's mutex held.
 * Return: bytes; -EAGAIN if there is no credit or no slot; or why it never will be.
 */
static ssize_t grant(struct rf_sock *sock, size_t len, struct rf_tx_slot **ret_slot)
{
	uint32_t credit;
	unsigned todo = 0;
	int r = obstacle(sock);

	if (r < 0)
		return r;
	/* Who waits for room keeps none: others may wait for the same. */
	todo = rf_small_flush(sock);
	credit = rf_vsock_conn_data(&sock->conn);
	*ret_slot = NULL;
	if (credit) {
		*ret_slot = rf_tx_take(&sock->device->tx, sock, &todo);
	} else {
		rf_count_shared(&sock->guest->counters.credit_waits, 1);
		sock->wants_credit = true;
		todo |= rf_sock_settle(sock);
	}
	rf_guest_do(sock->guest, sock->device, todo);
	if (!*ret_slot)
		return -EAGAIN;
	return (ssize_t)rf_min_size(len, rf_min_u32(credit, rf_guest_max_payload(sock->guest)));
}

/*
 * Wait, if that is allowed, until a packet can be sent; nobody else sends while we hold send_mutex,
 * which we let go of while waiting. Return: as grant().
 */
static ssize_t grant_or_wait(struct rf_wait *wait, size_t len, bool blocks,
			     struct rf_tx_slot **ret_slot)
{
	struct rf_sock *sock = wait->sock;
	ssize_t n;

	pthread_mutex_lock(&sock->mutex);
	while ((n = grant(sock, len, ret_slot)) == -EAGAIN) {
		rf_sock_changed(sock);
		if (!rf_wait(wait, &sock->out_cond, &sock->send_mutex, blocks && !sock->nonblock))
			break;
	}
	if (n < 0)
		rf_sock_changed(sock);
	pthread_mutex_unlock(&sock->mutex);
	return n;
}

/* Publish the packet whose payload is in the slot, unless the connection ended meanwhile. */
static int publish(struct rf_sock *sock, struct rf_tx_slot *slot, uint32_t len)
{
	struct rf_tx *tx = &sock->device->tx;
	unsigned todo;
	int r;

	pthread_mutex_lock(&sock->mutex);
	r = obstacle(sock);
	/* The peer may have taken credit back. */
	if (r == 0 && rf_vsock_conn_data(&sock->conn) < len)
		r = -EAGAIN;
	if (r == 0) {
		todo = rf_small_flush(sock);
		sock->wants_credit = !rf_vsock_conn_rw(&sock->conn, len, &slot->hdr);
		todo |= rf_tx_data(tx, sock, slot);
	} else {
		sock->wants_credit = !rf_vsock_conn_data(&sock->conn);
		todo = rf_tx_return(tx, slot);
	}
	if (sock->wants_credit || rf_vsock_conn_owes(&sock->conn))
		todo |= rf_sock_settle(sock);
	rf_sock_unlock(sock, todo);
	return r;
}

/* Have the kernel bring the bytes, which may take long, while nobody waits for us. */
static void touch(const uint8_t *buf, size_t len)
{
	(void)*(const volatile uint8_t *)buf;
	(void)*(const volatile uint8_t *)(buf + len - 1);
}

/* Return: true if the bytes are sent. */
static bool send_small(struct rf_sock *sock, const uint8_t *buf, size_t len)
{
	unsigned todo = 0;
	bool sent;

	touch(buf, len);
	pthread_mutex_lock(&sock->mutex);
	sent = !obstacle(sock) && rf_small_send(sock, buf, (uint32_t)len, &todo);
	rf_sock_unlock(sock, todo);
	return sent;
}

/* Send one packet of at most @len bytes. Return: bytes, or -errno. */
static ssize_t send_packet(struct rf_sock *sock, const uint8_t *buf, size_t len, bool blocks)
{
	struct rf_wait wait = { .sock = sock };
	struct rf_tx_slot *slot;
	ssize_t n;
	int r;

	pthread_mutex_lock(&sock->send_mutex);
	if (len <= RF_SMALL_MAX && send_small(sock, buf, len)) {
		pthread_mutex_unlock(&sock->send_mutex);
		return (ssize_t)len;
	}
	do {
		r = 0;
		n = grant_or_wait(&wait, len, blocks, &slot);
		if (n > 0) {
			memcpy(slot->payload, buf, (size_t)n);
			r = publish(sock, slot, (uint32_t)n);
		}
	} while (r == -EAGAIN);
	pthread_mutex_unlock(&sock->send_mutex);
	rf_wait_end(&wait);
	return r < 0 ? r : n;
}

static ssize_t send_all(struct rf_sock *sock, const uint8_t *buf, size_t len, bool wait)
{
	size_t sent = 0;
	ssize_t n;

	while (sent < len) {
		n = send_packet(sock, buf + sent, len - sent, wait);
		if (n < 0)
			return sent ? (ssize_t)sent : rf_sock_report(sock, (int)n);
		sent += (size_t)n;
	}
	return (ssize_t)sent;
}

/* Nothing is sent, but whether anything could be is reported. */
static int send_nothing(struct rf_sock *sock)
{
	int r;

	pthread_mutex_lock(&sock->mutex);
	r = obstacle(sock);
	pthread_mutex_unlock(&sock->mutex);
	return r < 0 ? rf_sock_report(sock, r) : 0;
}

ssize_t rf_send(struct rf_guest *guest, int fd, const void *buf, size_t len, int flags)
{
	struct rf_sock *sock;
	ssize_t n;

	if (flags & ~RF_MSG_DONTWAIT || len > SSIZE_MAX)
		return -EINVAL;
	sock = rf_sock_get(guest, fd);
	if (!sock)
		return -EBADF;
	n = len ? send_all(sock, buf, len, !(flags & RF_MSG_DONTWAIT)) : send_nothing(sock);
	rf_sock_unref(sock);
	return n;
}
