/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>

#include "base/clock.h"
#include "guest.h"
#include "wait.h"

/*
 * The connection of an earlier attempt that failed: make room for another. The peer may still
 * answer one that timed out, so its port, if we chose it, is not used for the next.
 */
static void forget_attempt(struct rf_guest *guest, struct rf_sock *sock)
{
	if (sock->port_chosen && sock->conn.reason == RF_VSOCK_HANDSHAKE_TIMEOUT)
		rf_ports_unbind(sock);
	if (sock->listed) {
		rf_guest_unlist(guest, sock);
		/* The caller has a reference, so this is not the last. */
		rf_sock_unref(sock);
	}
	rf_device_unref(sock->device);
	sock->device = NULL;
}

/* May this socket connect to there now? */
static int check(const struct rf_guest *guest, const struct rf_sock *sock,
		 const struct rf_sockaddr *addr)
{
	if (sock->closed)
		return -EBADF;
	switch (sock->state) {
	case RF_SOCK_STATE_LISTENING:
		return -EINVAL;
	case RF_SOCK_STATE_CONNECTING:
		return -EALREADY;
	case RF_SOCK_STATE_CONNECTED:
		return -EISCONN;
	case RF_SOCK_STATE_NEW:
		break;
	}
	if (addr->port == RF_PORT_ANY)
		return -EINVAL;
	if (addr->cid != RF_CID_HOST)
		return -ENETUNREACH;
	/* The peer of an attempt that failed is to hear of that first: the ring had no room yet. */
	if (sock->listed && !rf_vsock_conn_done(&sock->conn))
		return -EADDRINUSE;
	return guest->device ? 0 : -ENODEV;
}

/*
 * Give the connection a name that no other has: a bound socket's port may still be in use by a
 * connection that is saying good-bye, then the address is in use; a port of our choice is chosen
 * again. Context: table_mutex held.
 */
static int name_conn(struct rf_guest *guest, struct rf_sock *sock, const struct rf_sockaddr *addr,
		     struct rf_vsock_key *ret_key)
{
	bool may_choose = !sock->bound || sock->port_chosen;
	struct rf_sock *other;

	for (;;) {
		if (!sock->bound) {
			pthread_mutex_lock(&sock->mutex);
			rf_ports_bind(&guest->ports, sock, RF_PORT_ANY);
			sock->port_chosen = true;
			pthread_mutex_unlock(&sock->mutex);
		}
		*ret_key = (struct rf_vsock_key){
			.local_cid = guest->device->cid,
			.peer_cid = addr->cid,
			.local_port = sock->local.port,
			.peer_port = addr->port,
		};
		other = rf_guest_find(guest, ret_key);
		if (!other)
			return 0;
		rf_sock_unref(other);
		if (!may_choose)
			return -EADDRINUSE;
		pthread_mutex_lock(&sock->mutex);
		rf_ports_unbind(sock);
		pthread_mutex_unlock(&sock->mutex);
	}
}

/* Context: table_mutex and the socket's mutex held. Return: RF_TX_* bits. */
static unsigned begin(struct rf_guest *guest, struct rf_sock *sock, const struct rf_vsock_key *key)
{
	struct rf_vsock_params params;

	rf_count_shared(&guest->counters.connects, 1);
	sock->state = RF_SOCK_STATE_CONNECTING;
	sock->error = 0;
	sock->device = guest->device;
	rf_device_ref(sock->device);
	rf_sock_params(sock, &params);
	rf_vsock_conn_connect(&sock->conn, key, &params, rf_clock_now());
	rf_guest_list(guest, sock);
	return rf_sock_settle(sock);
}

static int start(struct rf_guest *guest, struct rf_sock *sock, const struct rf_sockaddr *addr)
{
	struct rf_device *device = NULL;
	struct rf_vsock_key key;
	unsigned todo = 0;
	int r;

	pthread_mutex_lock(&guest->table_mutex);
	pthread_mutex_lock(&sock->mutex);
	r = check(guest, sock, addr);
	if (r == 0)
		forget_attempt(guest, sock);
	pthread_mutex_unlock(&sock->mutex);
	if (r == 0)
		r = name_conn(guest, sock, addr, &key);
	if (r == 0) {
		pthread_mutex_lock(&sock->mutex);
		/* It may listen by now. */
		r = check(guest, sock, addr);
		if (r == 0)
			todo = begin(guest, sock, &key);
		pthread_mutex_unlock(&sock->mutex);
	}
	if (r == 0) {
		device = guest->device;
		rf_device_ref(device);
	}
	pthread_mutex_unlock(&guest->table_mutex);
	rf_guest_do(guest, device, todo);
	rf_device_unref(device);
	return r;
}

static int failure(struct rf_sock *sock)
{
	int r = rf_sock_take_error(sock);

	/* Somebody else has read the error by RF_SO_ERROR. */
	return r < 0 ? r : -ECONNRESET;
}

static int finish(struct rf_sock *sock)
{
	struct rf_wait wait = { .sock = sock };
	int r;

	pthread_mutex_lock(&sock->mutex);
	while (sock->state == RF_SOCK_STATE_CONNECTING && !sock->closed && !sock->nonblock)
		rf_wait(&wait, &sock->out_cond, NULL, true);
	if (sock->closed)
		r = -EBADF;
	else if (sock->state == RF_SOCK_STATE_CONNECTING)
		r = -EINPROGRESS;
	else if (sock->state == RF_SOCK_STATE_CONNECTED)
		r = 0;
	else
		r = failure(sock);
	pthread_mutex_unlock(&sock->mutex);
	rf_wait_end(&wait);
	return r;
}

int rf_connect(struct rf_guest *guest, int fd, const struct rf_sockaddr *addr)
{
	struct rf_sock *sock = rf_sock_get(guest, fd);
	int r;

	if (!sock)
		return -EBADF;
	r = start(guest, sock, addr);
	if (r == 0)
		r = finish(sock);
	rf_sock_unref(sock);
	return r;
}
