/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One end of the wire: sockets on the real core (connection, credit, table, scheduler), which they
 * use in the ways of the guest half (what is sent goes straight onto the wire) and of the host half
 * (it waits in a buffer, and dialling takes its time). Payload has no bytes, only positions.
 */
#ifndef END_H
#define END_H

#include "vsock/sched.h"
#include "vsock/table.h"
#include "wire.h"

#define END_SOCKS   64u
#define END_PORTS   4u
#define END_BUCKETS 16u

/* Ports that are listened on lie from here on. */
#define END_PORT_FIRST 100u

/**
 * struct end_sock - A socket
 * @used:	In use, by its program or by its connection
 * @use:	Number of its connection
 * @in_table:	Its connection can be found
 * @connecting:	Neither connected nor failed
 * @accepted:	Its program has it; @closed: no longer
 * @died:	Its end was noticed
 * @error:	Pending -errno
 * @dial_ns:	When a REQUEST is accepted, 0 if it was
 * @put, @out:	Bytes that send() has taken; of these, bytes on the wire
 * @in, @got:	Bytes that have come; of these, bytes read
 * @wants_credit: send() has found none
 * @shut_wr, @shut_rd: what its program has shut down
 * @pending:	The listener's
 */
struct end_sock {
	bool used;
	unsigned use;
	struct rf_vsock_conn conn;
	bool in_table, connecting, accepted, closed, died;
	int error;
	uint64_t dial_ns;
	uint64_t put, out, in, got;
	bool wants_credit, shut_wr, shut_rd;
	TAILQ_ENTRY(end_sock) pending;
};

TAILQ_HEAD(end_socks, end_sock);

struct end_listener {
	bool on;
	unsigned backlog, n_pending;
	struct end_socks pending;
};

/**
 * struct end - An end
 * @side:	0 the host, 1 the guest
 * @wire:	The link
 * @params:	What connections start with
 * @buffer:	Bytes that wait in a socket for credit; 0: what finds none is not taken
 * @dial_ns:	Time that accepting a REQUEST takes
 * @paused:	Takes no packets
 */
struct end {
	unsigned side;
	struct wire *wire;
	struct rf_vsock_params params;
	uint32_t buffer;
	uint64_t dial_ns;
	bool paused;
	struct rf_vsock_table table;
	struct rf_vsock_bucket buckets[END_BUCKETS];
	struct rf_vsock_sched sched;
	struct end_listener listeners[END_PORTS];
	struct end_sock socks[END_SOCKS];
};

void end_init(struct end *end, unsigned side, struct wire *wire, uint64_t seed);

void end_listen(struct end *end, uint32_t port, unsigned backlog);
void end_unlisten(struct end *end, uint32_t port);

/* Connect to a port, from a port or from any (0). Return: the socket, or NULL if in use. */
struct end_sock *end_connect(struct end *end, uint32_t from, uint32_t to, unsigned use);

/* Return: the connection that has waited longest, or NULL. */
struct end_sock *end_accept(struct end *end, uint32_t port);

/* As the calls of sockets that may not block. */
long end_send(struct end *end, struct end_sock *sock, uint32_t len);
long end_recv(struct end *end, struct end_sock *sock, uint32_t len, bool peek);
void end_shutdown(struct end *end, struct end_sock *sock, bool rd, bool wr);
void end_close(struct end *end, struct end_sock *sock);

/* What the time asks for; take and send packets. */
void end_turn(struct end *end);

/* All connections end: the transport was reset. */
void end_reset(struct end *end);

/* Nothing is owed, nor waits to be sent; and nothing is left at all. */
bool end_idle(struct end *end);
bool end_empty(struct end *end);

#endif
