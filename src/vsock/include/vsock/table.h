/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections by name, the check of a packet before it reaches one, and the ports we allocate.
 *
 * Fixed buckets chosen at init and a keyed hash: a peer that picks its ports can neither grow the
 * table nor pile its connections into one bucket.
 *
 * Context: exclusive access.
 */
#ifndef RF_VSOCK_TABLE_H
#define RF_VSOCK_TABLE_H

#include <stdint.h>
#include <sys/queue.h>

#include "vsock/conn.h"

LIST_HEAD(rf_vsock_bucket, rf_vsock_conn);

/**
 * struct rf_vsock_table - Connections by (local port, peer CID, peer port)
 * @buckets:	Heads, a power of two of them; memory of the owner
 * @mask:	Number of buckets less one
 * @seed:	Secret of the hash
 * @n_conns:	Connections in the table
 * @next_port:	Where the search for a free local port goes on
 */
struct rf_vsock_table {
	struct rf_vsock_bucket *buckets;
	uint32_t mask;
	uint64_t seed;
	uint32_t n_conns;
	uint32_t next_port;
};

/**
 * rf_vsock_table_init() - Empty table
 * @table:	Table
 * @buckets:	Memory for @n_buckets heads, of any content but best zeros
 * @n_buckets:	A power of two
 * @seed:	Random number: key of the hash and start of the port search
 */
void rf_vsock_table_init(struct rf_vsock_table *table, struct rf_vsock_bucket *buckets,
			 uint32_t n_buckets, uint64_t seed);

/* The connection with this name (the local CID is not compared, as in Linux), or NULL. */
struct rf_vsock_conn *rf_vsock_table_find(const struct rf_vsock_table *table,
					  const struct rf_vsock_key *key);

/* Put a connection in; no other may have its name. */
void rf_vsock_table_insert(struct rf_vsock_table *table, struct rf_vsock_conn *conn);

void rf_vsock_table_remove(struct rf_vsock_table *table, struct rf_vsock_conn *conn);

/**
 * rf_vsock_table_pick_port() - A local port for a new connection to a peer's port
 * @key:	Peer's CID and port are read, the local port is set
 *
 * Ports rotate, so that a port is not used again soon, and lie in [RF_VSOCK_PORT_FIRST, 2^32 - 2].
 *
 * Return: 0, or -EADDRNOTAVAIL if 1024 ports in a row are taken.
 */
int rf_vsock_table_pick_port(struct rf_vsock_table *table, struct rf_vsock_key *key);

/**
 * rf_vsock_table_next() - Walk the table
 * @prev:	NULL, or the connection returned last, which may not have been removed: when
 *		removing, get the next one first
 */
struct rf_vsock_conn *rf_vsock_table_next(const struct rf_vsock_table *table,
					  struct rf_vsock_conn *prev);

/* What to do with a packet before a connection is looked up. */
enum rf_vsock_route {
	/*
	 * Its source is not who sent it, or its destination is not us: drop it silently, as Linux
	 * does. So is an RST of an unknown type.
	 */
	RF_VSOCK_ROUTE_DROP,
	/* No such socket type here: answer with RST. */
	RF_VSOCK_ROUTE_RESET,
	/* Look the connection up: to it, to a listener (REQUEST), or RST. */
	RF_VSOCK_ROUTE_DELIVER,
};

/**
 * rf_vsock_route() - Check the addresses and type of a received packet
 * @hdr:	Header
 * @peer_cid:	The only CID that may be its source
 * @local_cid:	The only CID that may be its destination
 * @ret_key:	RF_VSOCK_ROUTE_DELIVER: name of the connection that it is for, seen from this side
 */
enum rf_vsock_route rf_vsock_route(const struct rf_vsock_hdr *hdr, uint64_t peer_cid,
				   uint64_t local_cid, struct rf_vsock_key *ret_key);

#endif
