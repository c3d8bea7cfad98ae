/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bound sockets by port.
 *
 * A port belongs to the socket that was bound to it, by rf_bind() or by connecting, until that is
 * closed. Accepted sockets share their listener's port and are not in here.
 *
 * Context: table_mutex held.
 */
#ifndef RF_GUEST_PORTS_H
#define RF_GUEST_PORTS_H

#include <stdint.h>
#include <sys/queue.h>

#include "socket.h"
#include "vsock/table.h"

#define RF_PORTS_BUCKETS 4096u

LIST_HEAD(rf_port_bucket, rf_sock);

/**
 * struct rf_ports - Table of bound ports
 * @buckets:	Sockets by the lowest bits of their port
 * @next:	Where the search for a free port goes on
 */
struct rf_ports {
	struct rf_port_bucket buckets[RF_PORTS_BUCKETS];
	uint32_t next;
};

/* @ports is all zeros; @start: where the search for free ports begins, a random number. */
void rf_ports_init(struct rf_ports *ports, uint32_t start);

/* The socket bound to a port, or NULL. No reference is taken. */
struct rf_sock *rf_ports_find(const struct rf_ports *ports, uint32_t port);

/**
 * rf_ports_bind() - Bind a socket; its mutex is held, too
 * @port:	Port, or RF_PORT_ANY for a free one above 1023
 * Return: 0, or -EADDRINUSE.
 */
int rf_ports_bind(struct rf_ports *ports, struct rf_sock *sock, uint32_t port);

/* Let a socket's port go, if it has one; its mutex is held, too. */
void rf_ports_unbind(struct rf_sock *sock);

#endif
