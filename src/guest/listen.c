/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>

#include "guest.h"
#include "wait.h"

/* Context: table_mutex and the socket's mutex held. */
static int bind_locked(struct rf_guest *guest, struct rf_sock *sock, const struct rf_sockaddr *addr)
{
	int r;

	if (sock->closed)
		return -EBADF;
	if (sock->bound || sock->state != RF_SOCK_STATE_NEW)
		return -EINVAL;
	if (addr->cid != RF_CID_ANY && addr->cid != atomic_load(&guest->cid))
		return -EADDRNOTAVAIL;
	r = rf_ports_bind(&guest->ports, sock, addr->port);
	if (r == 0)
		sock->local.cid = addr->cid;
	return r;
}

int rf_bind(struct rf_guest *guest, int fd, const struct rf_sockaddr *addr)
{
	struct rf_sock *sock = rf_sock_get(guest, fd);
	int r;

	if (!sock)
		return -EBADF;
	pthread_mutex_lock(&guest->table_mutex);
	pthread_mutex_lock(&sock->mutex);
	r = bind_locked(guest, sock, addr);
	pthread_mutex_unlock(&sock->mutex);
	pthread_mutex_unlock(&guest->table_mutex);
	rf_sock_unref(sock);
	return r;
}

static int listen_locked(struct rf_sock *sock, int backlog)
{
	if (sock->closed)
		return -EBADF;
	if (!sock->bound ||
	    (sock->state != RF_SOCK_STATE_NEW && sock->state != RF_SOCK_STATE_LISTENING))
		return -EINVAL;
	sock->state = RF_SOCK_STATE_LISTENING;
	sock->backlog = backlog > 0 ? (unsigned)backlog : 0;
	rf_sock_changed(sock);
	return 0;
}

int rf_listen(struct rf_guest *guest, int fd, int backlog)
{
	struct rf_sock *sock = rf_sock_get(guest, fd);
	int r;

	if (!sock)
		return -EBADF;
	pthread_mutex_lock(&sock->mutex);
	r = listen_locked(sock, backlog);
	pthread_mutex_unlock(&sock->mutex);
	rf_sock_unref(sock);
	return r;
}

/* Wait for a connection and take it off the listener. */
static int take_pending(struct rf_wait *wait, struct rf_sock **ret_sock)
{
	struct rf_sock *listener = wait->sock;
	struct rf_sock *sock;

	for (;;) {
		if (listener->closed)
			return -EBADF;
		if (listener->state != RF_SOCK_STATE_LISTENING)
			return -EINVAL;
		sock = TAILQ_FIRST(&listener->pending);
		if (sock)
			break;
		if (!rf_wait(wait, &listener->in_cond, NULL, !listener->nonblock))
			return -EAGAIN;
	}
	TAILQ_REMOVE(&listener->pending, sock, pending_link);
	listener->n_pending--;
	rf_sock_changed(listener);
	*ret_sock = sock;
	return 0;
}

int rf_accept(struct rf_guest *guest, int fd, struct rf_sockaddr *ret_peer, int flags)
{
	struct rf_sock *listener, *sock;
	struct rf_wait wait = { 0 };
	int r;

	if (flags & ~RF_SOCK_NONBLOCK)
		return -EINVAL;
	listener = rf_sock_get(guest, fd);
	if (!listener)
		return -EBADF;
	wait.sock = listener;
	pthread_mutex_lock(&listener->mutex);
	r = take_pending(&wait, &sock);
	pthread_mutex_unlock(&listener->mutex);
	rf_wait_end(&wait);
	rf_sock_unref(listener);
	if (r < 0)
		return r;
	pthread_mutex_lock(&sock->mutex);
	sock->nonblock = flags & RF_SOCK_NONBLOCK;
	if (ret_peer)
		*ret_peer = (struct rf_sockaddr){ (uint32_t)sock->conn.key.peer_cid,
						  sock->conn.key.peer_port };
	r = rf_sock_open(sock);
	pthread_mutex_unlock(&sock->mutex);
	return r;
}
