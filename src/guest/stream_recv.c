/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "guest.h"
#include "wait.h"

/*
 * What there is to read at once, at most @len bytes; while there are fewer than @least, and more
 * may come and fit the window, nothing. Context: the socket's mutex held. Return: bytes; 0 at end
 * of file; -EAGAIN if there is nothing yet; or another -errno.
 */
static ssize_t available(const struct rf_sock *sock, size_t len, size_t least)
{
	size_t wanted = rf_min_size(least, (size_t)sock->sizes.window);

	if (sock->closed)
		return -EBADF;
	if (sock->state != RF_SOCK_STATE_CONNECTED)
		return -ENOTCONN;
	if (sock->shut_rd || !len)
		return 0;
	if (sock->unread && (sock->unread >= wanted || rf_sock_at_eof(sock)))
		return (ssize_t)rf_min_size(len, (size_t)sock->unread);
	/* The peer's end of file stays one, however the connection ends. */
	if (sock->error && !(sock->conn.peer_shut & RF_VSOCK_SHUT_SEND))
		return -sock->error;
	return rf_sock_at_eof(sock) ? 0 : -EAGAIN;
}

/*
 * Wait, if that is allowed, until there is something; nobody else reads while we hold recv_mutex,
 * which we let go of while waiting. Return: as available(); the socket's mutex is held then.
 */
static ssize_t available_or_wait(struct rf_wait *wait, size_t len, size_t least, bool blocks)
{
	struct rf_sock *sock = wait->sock;
	ssize_t n;

	pthread_mutex_lock(&sock->mutex);
	while ((n = available(sock, len, least)) == -EAGAIN &&
	       rf_wait(wait, &sock->in_cond, &sock->recv_mutex, blocks && !sock->nonblock))
		continue;
	return n;
}

/* Take chunks of at least @len bytes, which are there, off the socket. */
static void take_out(struct rf_sock *sock, size_t len, struct rf_chunks *ret_chunks)
{
	while (len) {
		struct rf_chunk *chunk = TAILQ_FIRST(&sock->received);

		TAILQ_REMOVE(&sock->received, chunk, link);
		TAILQ_INSERT_TAIL(ret_chunks, chunk, link);
		len -= rf_min_size(len, chunk->end - chunk->begin);
	}
}

static void copy(const struct rf_chunks *chunks, uint8_t *buf, size_t len)
{
	const struct rf_chunk *chunk;

	TAILQ_FOREACH (chunk, chunks, link) {
		size_t n = rf_min_size(len, chunk->end - chunk->begin);

		memcpy(buf, chunk->data + chunk->begin, n);
		buf += n;
		len -= n;
	}
}

/*
 * The first @len bytes of the chunks were read: put back what is left of them, unless nobody is to
 * read it any more. Context: the socket's mutex held. Return: RF_TX_* bits.
 */
static unsigned put_back(struct rf_sock *sock, struct rf_chunks *chunks, size_t len,
			 struct rf_chunks *ret_done)
{
	bool drop = sock->closed || sock->shut_rd;
	uint32_t gone = 0;
	struct rf_chunk *chunk;

	while ((chunk = TAILQ_FIRST(chunks))) {
		uint32_t n = chunk->end - chunk->begin;

		if (!drop)
			n = (uint32_t)rf_min_size(n, len - gone);
		chunk->begin += n;
		gone += n;
		if (chunk->begin < chunk->end)
			break;
		TAILQ_REMOVE(chunks, chunk, link);
		TAILQ_INSERT_TAIL(ret_done, chunk, link);
	}
	TAILQ_CONCAT(chunks, &sock->received, link);
	TAILQ_CONCAT(&sock->received, chunks, link);
	sock->unread -= gone;
	rf_sock_consumed(sock, gone);
	return rf_sock_settle(sock);
}

/* Read what there is, at most @len bytes; wait for something if that is allowed. */
static ssize_t recv_some(struct rf_sock *sock, uint8_t *buf, size_t len, size_t least, int flags)
{
	struct rf_chunks chunks = TAILQ_HEAD_INITIALIZER(chunks);
	struct rf_chunks done = TAILQ_HEAD_INITIALIZER(done);
	struct rf_wait wait = { .sock = sock };
	unsigned todo = 0;
	ssize_t n;

	pthread_mutex_lock(&sock->recv_mutex);
	n = available_or_wait(&wait, len, least, !(flags & RF_MSG_DONTWAIT));
	if (n > 0) {
		take_out(sock, (size_t)n, &chunks);
		pthread_mutex_unlock(&sock->mutex);
		copy(&chunks, buf, (size_t)n);
		pthread_mutex_lock(&sock->mutex);
		todo = put_back(sock, &chunks, flags & RF_MSG_PEEK ? 0 : (size_t)n, &done);
	}
	rf_sock_unlock(sock, todo);
	pthread_mutex_unlock(&sock->recv_mutex);
	rf_chunks_free(&done);
	rf_wait_end(&wait);
	return n;
}

static ssize_t recv_all(struct rf_sock *sock, uint8_t *buf, size_t len, int flags)
{
	size_t got = 0;
	ssize_t n;

	do {
		n = recv_some(sock, buf + got, len - got, 1, flags);
		if (n <= 0)
			break;
		got += (size_t)n;
	} while (got < len && flags & RF_MSG_WAITALL);
	return got ? (ssize_t)got : n;
}

ssize_t rf_recv(struct rf_guest *guest, int fd, void *buf, size_t len, int flags)
{
	struct rf_sock *sock;
	ssize_t n;

	if (flags & ~(RF_MSG_DONTWAIT | RF_MSG_PEEK | RF_MSG_WAITALL) || len > SSIZE_MAX)
		return -EINVAL;
	sock = rf_sock_get(guest, fd);
	if (!sock)
		return -EBADF;
	/* Peeking takes nothing: to wait for all is to wait until all is there. */
	if (flags & RF_MSG_PEEK && flags & RF_MSG_WAITALL)
		n = recv_some(sock, buf, len, len, flags);
	else
		n = recv_all(sock, buf, len, flags);
	if (n < 0)
		n = rf_sock_report(sock, (int)n);
	rf_sock_unref(sock);
	return n;
}
