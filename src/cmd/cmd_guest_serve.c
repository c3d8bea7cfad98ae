/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The services of "ringferry guest": one loop, one thread, edge-triggered event fds. A connection
 * that is ready works until it would block or its budget is used up, then others have their turn.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd_guest.h"

#define BUFFER_BYTES 262144u
#define BUDGET_BYTES 1048576u
/* Whatever comes while this thread is held up, growing the descriptor table for example. */
#define BACKLOG 1024

/**
 * struct conn - A connection
 * @in_watch, @out_watch: Its event fds
 * @work:	Another turn after its budget
 * @peer:	Peer
 * @sha256:	Sink and source: digest of what went through
 * @seeded:	Source: what comes next
 * @bytes:	Payload that went through
 * @buf:	Bytes [@sent, @len) of it are still to be sent
 */
struct conn {
	struct rf_watch in_watch, out_watch;
	struct rf_work work;
	struct rf_guest_server *server;
	const struct rf_guest_service *service;
	LIST_ENTRY(conn) link;
	int sock;
	struct rf_sockaddr peer;
	EVP_MD_CTX *sha256;
	struct rf_guest_seeded seeded;
	uint64_t bytes;
	size_t sent, len;
	uint8_t buf[BUFFER_BYTES];
};

struct port {
	struct rf_watch watch;
	struct rf_guest_server *server;
	const struct rf_guest_service *service;
	int sock;
};

struct rf_guest_server {
	struct rf_loop *loop;
	struct rf_guest *guest;
	uint64_t seed;
	LIST_HEAD(, conn) conns;
	unsigned n_ports;
	struct port ports[RF_GUEST_MAX_SERVICES];
};

static void conn_free(struct conn *conn)
{
	rf_watch_remove(&conn->in_watch);
	rf_watch_remove(&conn->out_watch);
	rf_work_cancel(&conn->work);
	rf_close(conn->server->guest, conn->sock);
	LIST_REMOVE(conn, link);
	EVP_MD_CTX_free(conn->sha256);
	free(conn);
}

/* One line per connection of a sink or source; @r is why it ended early, as -errno, or 0. */
static void conn_print(struct conn *conn, int r)
{
	static const char *const names[] = { "echo", "sink", "source" };
	char digest[RF_GUEST_DIGEST_CHARS];

	rf_guest_digest_text(conn->sha256, digest);
	printf("%s port=%" PRIu32 " peer=%" PRIu32 ":%" PRIu32 " bytes=%" PRIu64 " sha256=%s",
	       names[conn->service->kind], conn->service->port, conn->peer.cid, conn->peer.port,
	       conn->bytes, digest);
	if (r < 0)
		printf(" error=%s", strerrorname_np(-r));
	printf("\n");
	fflush(stdout);
}

static void conn_finish(struct conn *conn, int r)
{
	if (conn->service->kind != RF_GUEST_ECHO)
		conn_print(conn, r);
	conn_free(conn);
}

/* Bytes went through a sink or source. */
static void conn_count(struct conn *conn, const uint8_t *bytes, size_t n)
{
	EVP_DigestUpdate(conn->sha256, bytes, n);
	conn->bytes += n;
}

/* Read into the buffer. Return: bytes, 0 at the end of file, or -errno. */
static ssize_t conn_read(struct conn *conn)
{
	ssize_t n = rf_recv(conn->server->guest, conn->sock, conn->buf, BUFFER_BYTES, 0);

	conn->sent = 0;
	conn->len = n > 0 ? (size_t)n : 0;
	return n;
}

/* Send what is in the buffer. Return: bytes sent, 0 if there is nothing, or -errno. */
static ssize_t conn_write(struct conn *conn)
{
	ssize_t n;

	if (conn->sent == conn->len)
		return 0;
	n = rf_send(conn->server->guest, conn->sock, conn->buf + conn->sent, conn->len - conn->sent,
		    0);
	if (n > 0)
		conn->sent += (size_t)n;
	return n;
}

/* The steps of the services. Return: bytes moved, 0 when done, or -errno. */

static ssize_t echo_step(struct conn *conn)
{
	return conn->sent < conn->len ? conn_write(conn) : conn_read(conn);
}

static ssize_t sink_step(struct conn *conn)
{
	ssize_t n = conn_read(conn);

	if (n > 0)
		conn_count(conn, conn->buf, (size_t)n);
	return n;
}

static ssize_t source_step(struct conn *conn)
{
	ssize_t n;

	if (conn->sent == conn->len) {
		conn->sent = 0;
		conn->len =
			(size_t)rf_min_u64(BUFFER_BYTES, conn->service->bytes - conn->seeded.at);
		rf_guest_seeded_fill(&conn->seeded, conn->buf, conn->len);
	}
	n = conn_write(conn);
	if (n > 0)
		conn_count(conn, conn->buf + conn->sent - n, (size_t)n);
	return n;
}

static ssize_t conn_step(struct conn *conn)
{
	switch (conn->service->kind) {
	case RF_GUEST_ECHO:
		return echo_step(conn);
	case RF_GUEST_SINK:
		return sink_step(conn);
	case RF_GUEST_SOURCE:
		return source_step(conn);
	}
	return 0;
}

static void conn_turn(struct conn *conn)
{
	size_t done = 0;

	while (done < BUDGET_BYTES) {
		ssize_t n = conn_step(conn);

		if (n == -EAGAIN)
			return;
		if (n <= 0) {
			conn_finish(conn, (int)n);
			return;
		}
		done += (size_t)n;
	}
	rf_work_queue(conn->server->loop, &conn->work);
}

static void in_ready(struct rf_watch *watch, uint32_t events RF_UNUSED)
{
	conn_turn(RF_CONTAINER_OF(watch, struct conn, in_watch));
}

static void out_ready(struct rf_watch *watch, uint32_t events RF_UNUSED)
{
	conn_turn(RF_CONTAINER_OF(watch, struct conn, out_watch));
}

static void conn_again(struct rf_work *work)
{
	conn_turn(RF_CONTAINER_OF(work, struct conn, work));
}

static int watch_event(struct rf_guest_server *server, struct rf_watch *watch, int sock, int event)
{
	int fd = rf_event_fd(server->guest, sock, event);

	if (fd < 0)
		return fd;
	return rf_watch_add(server->loop, watch, fd, EPOLLIN | EPOLLET);
}

/* Which directions a service waits for is fixed: a source does not read, a sink does not send. */
static int conn_watch(struct conn *conn)
{
	int r = 0;

	if (conn->service->kind != RF_GUEST_SOURCE)
		r = watch_event(conn->server, &conn->in_watch, conn->sock, RF_POLLIN);
	if (r == 0 && conn->service->kind != RF_GUEST_SINK)
		r = watch_event(conn->server, &conn->out_watch, conn->sock, RF_POLLOUT);
	return r;
}

static void conn_new(struct port *port, int sock, const struct rf_sockaddr *peer)
{
	struct conn *conn = malloc(sizeof(*conn));

	if (!conn) {
		rf_close(port->server->guest, sock);
		return;
	}
	memset(conn, 0, offsetof(struct conn, buf));
	conn->in_watch.ready = in_ready;
	conn->out_watch.ready = out_ready;
	conn->work.run = conn_again;
	conn->server = port->server;
	conn->service = port->service;
	conn->sock = sock;
	conn->peer = *peer;
	conn->seeded.seed = port->server->seed;
	LIST_INSERT_HEAD(&port->server->conns, conn, link);
	conn->sha256 = EVP_MD_CTX_new();
	if (!conn->sha256 || !EVP_DigestInit_ex(conn->sha256, EVP_sha256(), NULL) ||
	    conn_watch(conn) < 0) {
		fprintf(stderr, "ringferry guest: port %" PRIu32 ": no room for a connection\n",
			conn->service->port);
		conn_free(conn);
		return;
	}
	/* What there is to do at once needs no event. */
	rf_work_queue(conn->server->loop, &conn->work);
}

static void port_ready(struct rf_watch *watch, uint32_t events RF_UNUSED)
{
	struct port *port = RF_CONTAINER_OF(watch, struct port, watch);
	struct rf_sockaddr peer;
	int sock;

	while ((sock = rf_accept(port->server->guest, port->sock, &peer, RF_SOCK_NONBLOCK)) > 0)
		conn_new(port, sock, &peer);
}

static int port_open(struct rf_guest_server *server, const struct rf_guest_service *service)
{
	struct port *port = &server->ports[server->n_ports];
	const struct rf_sockaddr addr = { .cid = RF_CID_ANY, .port = service->port };
	int r;

	port->watch.ready = port_ready;
	port->server = server;
	port->service = service;
	port->sock = rf_socket(server->guest, RF_SOCK_STREAM | RF_SOCK_NONBLOCK);
	if (port->sock < 0)
		return port->sock;
	server->n_ports++;
	r = rf_bind(server->guest, port->sock, &addr);
	if (r == 0)
		r = rf_listen(server->guest, port->sock, BACKLOG);
	if (r == 0)
		r = watch_event(server, &port->watch, port->sock, RF_POLLIN);
	return r;
}

int rf_guest_serve_new(struct rf_loop *loop, struct rf_guest *guest,
		       const struct rf_guest_services *services,
		       struct rf_guest_server **ret_server, uint32_t *ret_port)
{
	struct rf_guest_server *server = calloc(1, sizeof(*server));
	int r = 0;

	if (!server)
		return -ENOMEM;
	server->loop = loop;
	server->guest = guest;
	server->seed = services->seed;
	for (unsigned i = 0; r == 0 && i < services->n; i++) {
		r = port_open(server, &services->list[i]);
		*ret_port = services->list[i].port;
	}
	if (r < 0) {
		rf_guest_serve_free(server);
		return r;
	}
	*ret_server = server;
	return 0;
}

void rf_guest_serve_free(struct rf_guest_server *server)
{
	struct conn *conn;

	if (!server)
		return;
	while ((conn = LIST_FIRST(&server->conns)))
		conn_free(conn);
	for (unsigned i = 0; i < server->n_ports; i++) {
		rf_watch_remove(&server->ports[i].watch);
		rf_close(server->guest, server->ports[i].sock);
	}
	free(server);
}
