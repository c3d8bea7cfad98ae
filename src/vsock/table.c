/* SPDX-License-Identifier: BSD-3-Clause */
#include "vsock/table.h"

#include <assert.h>
#include <errno.h>
#include <xxhash.h>

#include "base/util.h"
#include "vsock/limits.h"

/* Ports that we allocate, and how many taken ones in a row end the search. */
#define PORTS      (RF_VSOCK_PORT_ANY - RF_VSOCK_PORT_FIRST)
#define PORT_TRIES 1024

void rf_vsock_table_init(struct rf_vsock_table *table, struct rf_vsock_bucket *buckets,
			 uint32_t n_buckets, uint64_t seed)
{
	assert(rf_is_power_of_2(n_buckets));
	*table = (struct rf_vsock_table){
		.buckets = buckets,
		.mask = n_buckets - 1,
		.seed = seed,
		.next_port = RF_VSOCK_PORT_FIRST + (uint32_t)(seed % PORTS),
	};
	/* Memory that was never written stays so: it may not be there yet. */
	for (uint32_t i = 0; i < n_buckets; i++)
		if (!LIST_EMPTY(&buckets[i]))
			LIST_INIT(&buckets[i]);
}

static uint32_t bucket_of(const struct rf_vsock_table *table, const struct rf_vsock_key *key)
{
	const struct {
		uint64_t peer_cid;
		uint32_t peer_port;
		uint32_t local_port;
	} name = { key->peer_cid, key->peer_port, key->local_port };

	static_assert(sizeof(name) == 16, "no padding is hashed");
	return (uint32_t)XXH3_64bits_withSeed(&name, sizeof(name), table->seed) & table->mask;
}

static bool same_name(const struct rf_vsock_key *a, const struct rf_vsock_key *b)
{
	return a->local_port == b->local_port && a->peer_cid == b->peer_cid &&
	       a->peer_port == b->peer_port;
}

struct rf_vsock_conn *rf_vsock_table_find(const struct rf_vsock_table *table,
					  const struct rf_vsock_key *key)
{
	struct rf_vsock_conn *conn;

	LIST_FOREACH (conn, &table->buckets[bucket_of(table, key)], table_link) {
		if (same_name(&conn->key, key))
			return conn;
	}
	return NULL;
}

void rf_vsock_table_insert(struct rf_vsock_table *table, struct rf_vsock_conn *conn)
{
	assert(!rf_vsock_table_find(table, &conn->key));
	LIST_INSERT_HEAD(&table->buckets[bucket_of(table, &conn->key)], conn, table_link);
	table->n_conns++;
}

void rf_vsock_table_remove(struct rf_vsock_table *table, struct rf_vsock_conn *conn)
{
	assert(table->n_conns > 0);
	LIST_REMOVE(conn, table_link);
	table->n_conns--;
}

int rf_vsock_table_pick_port(struct rf_vsock_table *table, struct rf_vsock_key *key)
{
	struct rf_vsock_key name = *key;

	for (unsigned i = 0; i < PORT_TRIES; i++) {
		name.local_port = table->next_port++;
		if (table->next_port == RF_VSOCK_PORT_ANY)
			table->next_port = RF_VSOCK_PORT_FIRST;
		if (!rf_vsock_table_find(table, &name)) {
			key->local_port = name.local_port;
			return 0;
		}
	}
	return -EADDRNOTAVAIL;
}

struct rf_vsock_conn *rf_vsock_table_next(const struct rf_vsock_table *table,
					  struct rf_vsock_conn *prev)
{
	struct rf_vsock_conn *conn = prev ? LIST_NEXT(prev, table_link) : NULL;
	uint32_t i = prev ? bucket_of(table, &prev->key) + 1 : 0;

	for (; !conn && i <= table->mask; i++)
		conn = LIST_FIRST(&table->buckets[i]);
	return conn;
}

enum rf_vsock_route rf_vsock_route(const struct rf_vsock_hdr *hdr, uint64_t peer_cid,
				   uint64_t local_cid, struct rf_vsock_key *ret_key)
{
	if (hdr->src_cid != peer_cid || hdr->dst_cid != local_cid)
		return RF_VSOCK_ROUTE_DROP;
	if (hdr->type != VIRTIO_VSOCK_TYPE_STREAM)
		return hdr->op == VIRTIO_VSOCK_OP_RST ? RF_VSOCK_ROUTE_DROP : RF_VSOCK_ROUTE_RESET;
	*ret_key = (struct rf_vsock_key){
		.local_cid = hdr->dst_cid,
		.peer_cid = hdr->src_cid,
		.local_port = hdr->dst_port,
		.peer_port = hdr->src_port,
	};
	return RF_VSOCK_ROUTE_DELIVER;
}
