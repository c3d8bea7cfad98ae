/* SPDX-License-Identifier: BSD-3-Clause */
#include "ports.h"

#include <assert.h>
#include <errno.h>

/* Ports that we choose lie in [FIRST, RF_PORT_ANY - 1]. */
#define FIRST 1024u

void rf_ports_init(struct rf_ports *ports, uint32_t start)
{
	ports->next = FIRST + start % (RF_PORT_ANY - FIRST);
}

struct rf_sock *rf_ports_find(const struct rf_ports *ports, uint32_t port)
{
	struct rf_sock *sock;

	LIST_FOREACH (sock, &ports->buckets[port % RF_PORTS_BUCKETS], port_link) {
		if (sock->local.port == port)
			return sock;
	}
	return NULL;
}

/* Ends: there are fewer sockets than ports. */
static uint32_t pick(struct rf_ports *ports)
{
	uint32_t port;

	do {
		port = ports->next++;
		if (ports->next == RF_PORT_ANY)
			ports->next = FIRST;
	} while (rf_ports_find(ports, port));
	return port;
}

int rf_ports_bind(struct rf_ports *ports, struct rf_sock *sock, uint32_t port)
{
	assert(!sock->bound);
	if (port == RF_PORT_ANY)
		port = pick(ports);
	else if (rf_ports_find(ports, port))
		return -EADDRINUSE;
	sock->local.port = port;
	sock->bound = true;
	LIST_INSERT_HEAD(&ports->buckets[port % RF_PORTS_BUCKETS], sock, port_link);
	return 0;
}

void rf_ports_unbind(struct rf_sock *sock)
{
	if (sock->bound)
		LIST_REMOVE(sock, port_link);
	sock->bound = false;
}
