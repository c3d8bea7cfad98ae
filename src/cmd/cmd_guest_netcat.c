/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * "ringferry guest connect" and "listen": a thread per direction, because standard input and output
 * may be files, and must stay blocking. They can be cancelled while they read or write those,
 * and nowhere else.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd_guest.h"

#define BUFFER_BYTES 262144u

/**
 * struct rf_guest_netcat - One connection on standard input and output
 * @addr:	Where to
 * @listener:	Listening socket, or -1
 * @sock:	Connection; -1 before there is one
 * @receiver:	Makes the connection, carries what comes, and tells @loop when all is over
 * @sender:	Carries standard input
 * @sending:	@sender was started
 * @mutex:	Protects what follows
 * @what:	What went wrong first, NULL if nothing did; and why, as -errno
 * @connected:	There was a connection before something went wrong
 * @ended:	Told to end: nothing that fails from here on is an error
 */
struct rf_guest_netcat {
	struct rf_loop *loop;
	struct rf_guest *guest;
	struct rf_sockaddr addr;
	int listener;
	_Atomic int sock;
	pthread_t receiver, sender;
	bool sending;
	pthread_mutex_t mutex;
	const char *what;
	int error;
	bool connected;
	bool ended;
	uint8_t in_buf[BUFFER_BYTES], out_buf[BUFFER_BYTES];
};

static void failed(struct rf_guest_netcat *nc, const char *what, int error)
{
	pthread_mutex_lock(&nc->mutex);
	if (!nc->what && !nc->ended) {
		nc->what = what;
		nc->error = error;
	}
	pthread_mutex_unlock(&nc->mutex);
}

static void no_cancel(void)
{
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
}

static ssize_t in_read(struct rf_guest_netcat *nc)
{
	ssize_t n;

	do {
		pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
		n = read(STDIN_FILENO, nc->in_buf, BUFFER_BYTES);
		no_cancel();
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static int out_write(struct rf_guest_netcat *nc, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n;

		pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
		n = write(STDOUT_FILENO, nc->out_buf + done, len - done);
		no_cancel();
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0)
			done += (size_t)n;
	}
	return 0;
}

static void *send_run(void *arg)
{
	struct rf_guest_netcat *nc = arg;
	ssize_t n, sent;

	no_cancel();
	while ((n = in_read(nc)) > 0) {
		sent = rf_send(nc->guest, nc->sock, nc->in_buf, (size_t)n, 0);
		if (sent < n) {
			failed(nc, "connection", sent < 0 ? (int)sent : -EPIPE);
			return NULL;
		}
	}
	if (n < 0)
		failed(nc, "standard input", (int)n);
	rf_shutdown(nc->guest, nc->sock, RF_SHUT_WR);
	return NULL;
}

/* Standard input may be quiet for ever: the connection's end is the end, too. */
static void wait_for_end(struct rf_guest_netcat *nc)
{
	struct rf_pollfd pfd = { .sock = nc->sock };

	rf_poll(nc->guest, &pfd, 1, -1);
}

static void receive(struct rf_guest_netcat *nc)
{
	ssize_t n;
	int r;

	while ((n = rf_recv(nc->guest, nc->sock, nc->out_buf, BUFFER_BYTES, 0)) > 0) {
		r = out_write(nc, (size_t)n);
		if (r < 0) {
			failed(nc, "standard output", r);
			return;
		}
	}
	if (n < 0)
		failed(nc, "connection", (int)n);
	else
		wait_for_end(nc);
}

static int make_connection(struct rf_guest_netcat *nc)
{
	int r;

	if (nc->listener < 0)
		return rf_connect(nc->guest, nc->sock, &nc->addr);
	r = rf_accept(nc->guest, nc->listener, NULL, 0);
	if (r < 0)
		return r;
	nc->sock = r;
	/* One connection only: others are refused. */
	rf_close(nc->guest, nc->listener);
	return 0;
}

static void *receive_run(void *arg)
{
	struct rf_guest_netcat *nc = arg;
	int r;

	no_cancel();
	r = make_connection(nc);
	if (r == 0) {
		r = -pthread_create(&nc->sender, NULL, send_run, nc);
		nc->sending = r == 0;
		nc->connected = true;
	}
	if (r == 0)
		receive(nc);
	else
		failed(nc, "connection", r);
	rf_loop_quit(nc->loop);
	return NULL;
}

/* The socket that is connected, or the one that listens. */
static int open_socket(struct rf_guest_netcat *nc, bool listen)
{
	const struct rf_sockaddr addr = { .cid = RF_CID_ANY, .port = nc->addr.port };
	int sock = rf_socket(nc->guest, RF_SOCK_STREAM);
	int r;

	if (sock < 0)
		return sock;
	if (!listen) {
		nc->sock = sock;
		return 0;
	}
	nc->listener = sock;
	r = rf_bind(nc->guest, sock, &addr);
	return r < 0 ? r : rf_listen(nc->guest, sock, 0);
}

int rf_guest_netcat_new(struct rf_loop *loop, struct rf_guest *guest, bool listen,
			const struct rf_sockaddr *addr, struct rf_guest_netcat **ret_netcat)
{
	struct rf_guest_netcat *nc = calloc(1, sizeof(*nc));
	int r;

	if (!nc)
		return -ENOMEM;
	nc->loop = loop;
	nc->guest = guest;
	nc->addr = *addr;
	nc->listener = -1;
	nc->sock = -1;
	pthread_mutex_init(&nc->mutex, NULL);
	r = open_socket(nc, listen);
	if (r == 0)
		r = -pthread_create(&nc->receiver, NULL, receive_run, nc);
	if (r < 0) {
		rf_close(guest, nc->listener);
		rf_close(guest, nc->sock);
		pthread_mutex_destroy(&nc->mutex);
		free(nc);
		return r;
	}
	*ret_netcat = nc;
	return 0;
}

static const char *error_text(const struct rf_guest_netcat *nc)
{
	if (nc->connected)
		return strerror(-nc->error);
	switch (nc->error) {
	case -ECONNRESET:
		return "refused: does the peer listen on that port?";
	case -ENETUNREACH:
		return "the back end does not serve that CID; 2 is the host's";
	default:
		return strerror(-nc->error);
	}
}

int rf_guest_netcat_free(struct rf_guest_netcat *nc)
{
	int status = 0;

	pthread_mutex_lock(&nc->mutex);
	nc->ended = true;
	pthread_mutex_unlock(&nc->mutex);
	/* Whoever waits on a socket returns now; whoever waits elsewhere is cancelled. */
	rf_close(nc->guest, nc->listener);
	rf_close(nc->guest, nc->sock);
	pthread_cancel(nc->receiver);
	pthread_join(nc->receiver, NULL);
	if (nc->sending) {
		pthread_cancel(nc->sender);
		pthread_join(nc->sender, NULL);
	}
	/* Accepted in the last moment. */
	rf_close(nc->guest, nc->sock);
	if (nc->what) {
		fprintf(stderr, "ringferry guest: %s: %s\n", nc->what, error_text(nc));
		status = 1;
	}
	pthread_mutex_destroy(&nc->mutex);
	free(nc);
	return status;
}
