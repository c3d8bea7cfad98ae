/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <limits.h>

#include "guest.h"
#include "vsock/limits.h"

/* As Linux: raised to the smallest allowed, then cut to the largest (so never above it). */
static void clamp_window(struct rf_sock_sizes *sizes)
{
	if (sizes->window < sizes->window_min)
		sizes->window = sizes->window_min;
	if (sizes->window > sizes->window_max)
		sizes->window = sizes->window_max;
}

static int set_window(struct rf_sock *sock, uint64_t *size, uint64_t value)
{
	if (sock->state == RF_SOCK_STATE_CONNECTING || sock->state == RF_SOCK_STATE_CONNECTED)
		return -EINVAL;
	if (value < RF_VSOCK_WINDOW_MIN || value > RF_VSOCK_WINDOW_MAX)
		return -ERANGE;
	*size = value;
	clamp_window(&sock->sizes);
	return 0;
}

static int set_timeout(struct rf_sock *sock, uint64_t value)
{
	if (value > INT_MAX)
		return -ERANGE;
	sock->sizes.connect_timeout_ms = value ? value : RF_VSOCK_HANDSHAKE_NS / RF_NS_PER_MS;
	return 0;
}

static int set_nonblock(struct rf_sock *sock, uint64_t value)
{
	if (value > 1)
		return -EINVAL;
	sock->nonblock = value;
	return 0;
}

static int set(struct rf_sock *sock, enum rf_sockopt opt, uint64_t value)
{
	if (sock->closed)
		return -EBADF;
	switch (opt) {
	case RF_SO_BUFFER_SIZE:
		return set_window(sock, &sock->sizes.window, value);
	case RF_SO_BUFFER_MIN_SIZE:
		return set_window(sock, &sock->sizes.window_min, value);
	case RF_SO_BUFFER_MAX_SIZE:
		return set_window(sock, &sock->sizes.window_max, value);
	case RF_SO_CONNECT_TIMEOUT_MS:
		return set_timeout(sock, value);
	case RF_SO_NONBLOCK:
		return set_nonblock(sock, value);
	case RF_SO_ERROR:
	case RF_SO_INQ:
	case RF_SO_OUTQ:
		break;
	}
	return -ENOPROTOOPT;
}

static int get(struct rf_sock *sock, enum rf_sockopt opt, uint64_t *ret_value)
{
	if (sock->closed)
		return -EBADF;
	switch (opt) {
	case RF_SO_BUFFER_SIZE:
		*ret_value = sock->sizes.window;
		return 0;
	case RF_SO_BUFFER_MIN_SIZE:
		*ret_value = sock->sizes.window_min;
		return 0;
	case RF_SO_BUFFER_MAX_SIZE:
		*ret_value = sock->sizes.window_max;
		return 0;
	case RF_SO_CONNECT_TIMEOUT_MS:
		*ret_value = sock->sizes.connect_timeout_ms;
		return 0;
	case RF_SO_ERROR:
		*ret_value = (uint64_t)-rf_sock_take_error(sock);
		return 0;
	case RF_SO_NONBLOCK:
		*ret_value = sock->nonblock;
		return 0;
	case RF_SO_INQ:
		*ret_value = sock->unread;
		return 0;
	case RF_SO_OUTQ:
		*ret_value = rf_vsock_credit_in_flight(&sock->conn.credit);
		return 0;
	}
	return -ENOPROTOOPT;
}

int rf_setsockopt(struct rf_guest *guest, int fd, enum rf_sockopt opt, uint64_t value)
{
	struct rf_sock *sock = rf_sock_get(guest, fd);
	int r;

	if (!sock)
		return -EBADF;
	pthread_mutex_lock(&sock->mutex);
	r = set(sock, opt, value);
	pthread_mutex_unlock(&sock->mutex);
	rf_sock_unref(sock);
	return r;
}

int rf_getsockopt(struct rf_guest *guest, int fd, enum rf_sockopt opt, uint64_t *ret_value)
{
	struct rf_sock *sock = rf_sock_get(guest, fd);
	int r;

	if (!sock)
		return -EBADF;
	pthread_mutex_lock(&sock->mutex);
	r = get(sock, opt, ret_value);
	pthread_mutex_unlock(&sock->mutex);
	rf_sock_unref(sock);
	return r;
}

int rf_getsockname(struct rf_guest *guest, int fd, struct rf_sockaddr *ret_addr)
{
	struct rf_sock *sock = rf_sock_get(guest, fd);

	if (!sock)
		return -EBADF;
	pthread_mutex_lock(&sock->mutex);
	*ret_addr = sock->local;
	if (sock->state == RF_SOCK_STATE_CONNECTED)
		ret_addr->cid = (uint32_t)sock->conn.key.local_cid;
	pthread_mutex_unlock(&sock->mutex);
	rf_sock_unref(sock);
	return 0;
}

int rf_getpeername(struct rf_guest *guest, int fd, struct rf_sockaddr *ret_addr)
{
	struct rf_sock *sock = rf_sock_get(guest, fd);
	int r = -ENOTCONN;

	if (!sock)
		return -EBADF;
	pthread_mutex_lock(&sock->mutex);
	if (sock->state == RF_SOCK_STATE_CONNECTED) {
		*ret_addr = (struct rf_sockaddr){ (uint32_t)sock->conn.key.peer_cid,
						  sock->conn.key.peer_port };
		r = 0;
	}
	pthread_mutex_unlock(&sock->mutex);
	rf_sock_unref(sock);
	return r;
}
