/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>

#include "base/clock.h"
#include "base/fd.h"
#include "close.h"
#include "guest.h"

static int shutdown_locked(struct rf_sock *sock, int how, unsigned *ret_todo)
{
	uint32_t flags = 0;

	if (sock->closed)
		return -EBADF;
	if (sock->state != RF_SOCK_STATE_CONNECTED)
		return -ENOTCONN;
	if (how != RF_SHUT_WR) {
		flags |= RF_VSOCK_SHUT_RCV;
		sock->shut_rd = true;
		rf_sock_drop_received(sock);
	}
	if (how != RF_SHUT_RD)
		flags |= RF_VSOCK_SHUT_SEND;
	rf_vsock_conn_shutdown(&sock->conn, flags);
	*ret_todo = rf_sock_settle(sock);
	return 0;
}

int rf_shutdown(struct rf_guest *guest, int fd, int how)
{
	struct rf_sock *sock;
	unsigned todo = 0;
	int r;

	if (how != RF_SHUT_RD && how != RF_SHUT_WR && how != RF_SHUT_RDWR)
		return -EINVAL;
	sock = rf_sock_get(guest, fd);
	if (!sock)
		return -EBADF;
	pthread_mutex_lock(&sock->mutex);
	r = shutdown_locked(sock, how, &todo);
	rf_sock_unlock(sock, todo);
	rf_sock_unref(sock);
	return r;
}

/* Say good-bye to the peer: in good order, or with RST for a connection nobody accepted. */
static unsigned end_conn(struct rf_sock *sock, bool reset)
{
	struct rf_vsock_params params;
	bool was_dead;

	if (sock->state != RF_SOCK_STATE_CONNECTED && sock->state != RF_SOCK_STATE_CONNECTING)
		return 0;
	was_dead = sock->conn.state == RF_VSOCK_DEAD;
	rf_sock_params(sock, &params);
	if (reset)
		rf_vsock_conn_reset(&sock->conn, RF_VSOCK_LOCAL_RESET);
	else
		rf_vsock_conn_close(&sock->conn, &params, rf_clock_now());
	if (!was_dead && sock->conn.state == RF_VSOCK_DEAD)
		rf_sock_died(sock);
	return rf_sock_settle(sock);
}

static void end_sock(struct rf_sock *sock, bool reset)
{
	unsigned todo;

	pthread_mutex_lock(&sock->mutex);
	sock->closed = true;
	rf_sock_drop_received(sock);
	todo = end_conn(sock, reset);
	rf_sock_changed(sock);
	for (unsigned i = 0; i < 2; i++) {
		if (!sock->event_fds[i])
			continue;
		rf_fd_close(sock->event_fds[i] - 1);
		rf_serve_rx_rouse(sock->guest);
		sock->event_fds[i] = 0;
	}
	rf_sock_unlock(sock, todo);
}

static struct rf_sock *pop_pending(struct rf_sock *listener)
{
	struct rf_sock *sock;

	pthread_mutex_lock(&listener->mutex);
	sock = TAILQ_FIRST(&listener->pending);
	if (sock) {
		TAILQ_REMOVE(&listener->pending, sock, pending_link);
		listener->n_pending--;
	}
	pthread_mutex_unlock(&listener->mutex);
	return sock;
}

void rf_sock_close(struct rf_guest *guest, struct rf_sock *sock)
{
	struct rf_sock *child;

	/* From here on no connection finds a listener, and nothing else begins. */
	pthread_mutex_lock(&guest->table_mutex);
	pthread_mutex_lock(&sock->mutex);
	sock->closed = true;
	rf_ports_unbind(sock);
	pthread_mutex_unlock(&sock->mutex);
	pthread_mutex_unlock(&guest->table_mutex);
	end_sock(sock, false);
	while ((child = pop_pending(sock))) {
		end_sock(child, true);
		rf_sock_unref(child);
	}
	rf_sock_unref(sock);
}

int rf_close(struct rf_guest *guest, int fd)
{
	struct rf_sock *sock = rf_sock_get_to_close(guest, fd);

	if (!sock)
		return -EBADF;
	rf_sock_close(guest, sock);
	return 0;
}
