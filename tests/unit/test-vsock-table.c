/* SPDX-License-Identifier: BSD-3-Clause */
#include "vsock/table.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "vsock/limits.h"

#define N_BUCKETS 64
#define N_CONNS   2048

static struct rf_vsock_bucket buckets[N_BUCKETS];
static struct rf_vsock_table table;
static struct rf_vsock_conn conns[N_CONNS];

static int setup(void **state RF_UNUSED)
{
	memset(conns, 0, sizeof(conns));
	rf_vsock_table_init(&table, buckets, N_BUCKETS, UINT64_C(0x123456789abcdef0));
	return 0;
}

static struct rf_vsock_key key_of(uint32_t local_port, uint64_t peer_cid, uint32_t peer_port)
{
	return (struct rf_vsock_key){
		.local_cid = 2,
		.peer_cid = peer_cid,
		.local_port = local_port,
		.peer_port = peer_port,
	};
}

static struct rf_vsock_conn *find(uint32_t local_port, uint64_t peer_cid, uint32_t peer_port)
{
	struct rf_vsock_key key = key_of(local_port, peer_cid, peer_port);

	return rf_vsock_table_find(&table, &key);
}

static void check_find(void)
{
	struct rf_vsock_key elsewhere = key_of(80, 3, 1024);

	assert_null(find(80, 3, 1024));
	conns[0].key = key_of(80, 3, 1024);
	conns[1].key = key_of(1024, 3, 80);
	conns[2].key = key_of(80, 3 + (UINT64_C(1) << 32), 1024);
	for (unsigned i = 0; i < 3; i++)
		rf_vsock_table_insert(&table, &conns[i]);
	assert_int_equal(table.n_conns, 3);
	assert_ptr_equal(find(80, 3, 1024), &conns[0]);
	assert_ptr_equal(find(1024, 3, 80), &conns[1]);
	assert_ptr_equal(find(80, 3 + (UINT64_C(1) << 32), 1024), &conns[2]);
	assert_null(find(81, 3, 1024));
	assert_null(find(80, 4, 1024));
	assert_null(find(80, 3, 1025));
	/* As in Linux the local CID does not count. */
	elsewhere.local_cid = 7;
	assert_ptr_equal(rf_vsock_table_find(&table, &elsewhere), &conns[0]);

	/* The name is free again at once. */
	rf_vsock_table_remove(&table, &conns[0]);
	assert_null(find(80, 3, 1024));
	conns[3].key = key_of(80, 3, 1024);
	rf_vsock_table_insert(&table, &conns[3]);
	assert_ptr_equal(find(80, 3, 1024), &conns[3]);
	assert_int_equal(table.n_conns, 3);
}

static void test_find(void **state)
{
	check_find();
	/* All in one bucket: only the comparison tells them apart. */
	setup(state);
	rf_vsock_table_init(&table, buckets, 1, 0);
	check_find();
}

static void test_walk(void **state RF_UNUSED)
{
	struct rf_vsock_conn *conn, *next;
	unsigned n = 0;

	assert_null(rf_vsock_table_next(&table, NULL));
	for (uint32_t i = 0; i < N_CONNS; i++) {
		conns[i].key = key_of(i, 3, 80);
		rf_vsock_table_insert(&table, &conns[i]);
	}
	for (conn = NULL; (conn = rf_vsock_table_next(&table, conn)); n++)
		conn->owed++;
	assert_int_equal(n, N_CONNS);
	for (uint32_t i = 0; i < N_CONNS; i++)
		assert_int_equal(conns[i].owed, 1);

	/* Removing the one at hand after having got the next one. */
	for (conn = rf_vsock_table_next(&table, NULL); conn; conn = next) {
		next = rf_vsock_table_next(&table, conn);
		if (conn->key.local_port % 2)
			rf_vsock_table_remove(&table, conn);
	}
	assert_int_equal(table.n_conns, N_CONNS / 2);
	for (uint32_t i = 0; i < N_CONNS; i++)
		assert_ptr_equal(find(i, 3, 80), i % 2 ? NULL : &conns[i]);
}

static unsigned longest_bucket(void)
{
	unsigned longest = 0;

	for (unsigned i = 0; i < N_BUCKETS; i++) {
		struct rf_vsock_conn *conn;
		unsigned n = 0;

		LIST_FOREACH (conn, &buckets[i], table_link)
			n++;
		longest = n > longest ? n : longest;
	}
	return longest;
}

/* Ports that share their low bits spread over the buckets, over others with another seed. */
static void test_spread(void **state RF_UNUSED)
{
	unsigned differ = 0;

	for (uint32_t i = 0; i < N_CONNS; i++) {
		conns[i].key = key_of(80, 3, i << 16);
		rf_vsock_table_insert(&table, &conns[i]);
	}
	assert_true(longest_bucket() < 3 * N_CONNS / N_BUCKETS);

	for (uint64_t seed = 0; seed < 64; seed++) {
		bool same = LIST_FIRST(&buckets[0]) == &conns[0];

		rf_vsock_table_init(&table, buckets, N_BUCKETS, seed);
		rf_vsock_table_insert(&table, &conns[0]);
		differ += same != (LIST_FIRST(&buckets[0]) == &conns[0]);
	}
	assert_true(differ > 0);
}

static const struct start_row {
	uint64_t seed;
	uint32_t port;
} start_rows[] = {
	/* 0 */ { 0, RF_VSOCK_PORT_FIRST },
	/* 1 */ { 1, RF_VSOCK_PORT_FIRST + 1 },
	/* 2: the last one */ { UINT64_C(3) * (1u << 30) - 2, UINT32_MAX - 1 },
	/* 3: 2^32 - 1 is no port */ { UINT64_C(3) * (1u << 30) - 1, RF_VSOCK_PORT_FIRST },
};

/* The first port is random, so that a restart meets no old connection (superfly/firecracker PR 7).
 */
static void test_port_start(void **state RF_UNUSED)
{
	for (size_t i = 0; i < RF_ARRAY_SIZE(start_rows); i++) {
		struct rf_vsock_key key = key_of(0, 3, 80);

		print_message("# row %zu\n", i);
		rf_vsock_table_init(&table, buckets, N_BUCKETS, start_rows[i].seed);
		assert_int_equal(rf_vsock_table_pick_port(&table, &key), 0);
		assert_int_equal(key.local_port, start_rows[i].port);
		assert_int_equal(key.peer_port, 80);
	}
}

/* Ports rotate: one that became free is not used again soon (hyperkit PR 33). */
static void test_port_rotates(void **state RF_UNUSED)
{
	struct rf_vsock_key key = key_of(0, 3, 80), first;

	rf_vsock_table_init(&table, buckets, N_BUCKETS, UINT64_C(3) * (1u << 30) - 4);
	assert_int_equal(rf_vsock_table_pick_port(&table, &key), 0);
	first = key;
	for (uint32_t i = 1; i < 1000; i++) {
		assert_int_equal(rf_vsock_table_pick_port(&table, &key), 0);
		assert_int_not_equal(key.local_port, first.local_port);
		assert_true(key.local_port >= RF_VSOCK_PORT_FIRST);
		assert_int_not_equal(key.local_port, RF_VSOCK_PORT_ANY);
	}
}

/*
 * A connection of the guest to one of our ports does not free that port or have it handed out twice
 * (cloud-hypervisor PR 8612).
 */
static void test_port_taken(void **state RF_UNUSED)
{
	struct rf_vsock_key key = key_of(0, 3, 80);

	rf_vsock_table_init(&table, buckets, N_BUCKETS, 0);
	conns[0].key = key_of(RF_VSOCK_PORT_FIRST, 3, 80);
	conns[1].key = key_of(RF_VSOCK_PORT_FIRST + 1, 3, 80);
	/* Another port of the peer: no conflict. */
	conns[2].key = key_of(RF_VSOCK_PORT_FIRST + 2, 3, 81);
	for (unsigned i = 0; i < 3; i++)
		rf_vsock_table_insert(&table, &conns[i]);
	assert_int_equal(rf_vsock_table_pick_port(&table, &key), 0);
	assert_int_equal(key.local_port, RF_VSOCK_PORT_FIRST + 2);
}

static void test_port_none(void **state RF_UNUSED)
{
	struct rf_vsock_key key = key_of(12345, 3, 80);

	rf_vsock_table_init(&table, buckets, N_BUCKETS, 0);
	for (uint32_t i = 0; i < 1025; i++) {
		conns[i].key = key_of(RF_VSOCK_PORT_FIRST + i, 3, 80);
		rf_vsock_table_insert(&table, &conns[i]);
	}
	/* The search is bounded, and goes on behind the ports that it saw. */
	assert_int_equal(rf_vsock_table_pick_port(&table, &key), -EADDRNOTAVAIL);
	assert_int_equal(key.local_port, 12345);
	assert_int_equal(rf_vsock_table_pick_port(&table, &key), 0);
	assert_int_equal(key.local_port, RF_VSOCK_PORT_FIRST + 1025);
}

#define HIGH (UINT64_C(1) << 32)

/* We are the host (CID 2), the peer is guest 3. */
static const struct route_row {
	const char *what;
	uint64_t src_cid, dst_cid;
	uint16_t type, op;
	enum rf_vsock_route route;
} route_rows[] = {
	/* 0 */ { "ours", 3, 2, 1, VIRTIO_VSOCK_OP_RW, RF_VSOCK_ROUTE_DELIVER },
	/* 1 */ { "ours, RST", 3, 2, 1, VIRTIO_VSOCK_OP_RST, RF_VSOCK_ROUTE_DELIVER },
	/* 2 */ { "ours, unknown op", 3, 2, 1, 99, RF_VSOCK_ROUTE_DELIVER },
	/* 3 */ { "other source", 4, 2, 1, VIRTIO_VSOCK_OP_RW, RF_VSOCK_ROUTE_DROP },
	/* 4 */
	{ "other source above 32 bits", 3 + HIGH, 2, 1, VIRTIO_VSOCK_OP_RW, RF_VSOCK_ROUTE_DROP },
	/* 5 */ { "other destination", 3, 3, 1, VIRTIO_VSOCK_OP_REQUEST, RF_VSOCK_ROUTE_DROP },
	/* 6 */
	{ "other destination above 32 bits", 3, 2 + HIGH, 1, VIRTIO_VSOCK_OP_REQUEST,
	  RF_VSOCK_ROUTE_DROP },
	/* 7 */ { "addresses swapped", 2, 3, 1, VIRTIO_VSOCK_OP_RW, RF_VSOCK_ROUTE_DROP },
	/* 8 */ { "type 0", 3, 2, 0, VIRTIO_VSOCK_OP_REQUEST, RF_VSOCK_ROUTE_RESET },
	/* 9 */ { "seqpacket", 3, 2, 2, VIRTIO_VSOCK_OP_REQUEST, RF_VSOCK_ROUTE_RESET },
	/* 10 */ { "unknown type", 3, 2, 0x0101, VIRTIO_VSOCK_OP_RW, RF_VSOCK_ROUTE_RESET },
	/* 11 */ { "unknown type, RST", 3, 2, 3, VIRTIO_VSOCK_OP_RST, RF_VSOCK_ROUTE_DROP },
	/* 12 */ { "unknown type, other source", 4, 2, 3, VIRTIO_VSOCK_OP_RW, RF_VSOCK_ROUTE_DROP },
};

static void test_route(void **state RF_UNUSED)
{
	for (size_t i = 0; i < RF_ARRAY_SIZE(route_rows); i++) {
		const struct route_row *row = &route_rows[i];
		const struct rf_vsock_hdr hdr = {
			.src_cid = row->src_cid,
			.dst_cid = row->dst_cid,
			.src_port = 1024,
			.dst_port = 80,
			.type = row->type,
			.op = row->op,
		};
		struct rf_vsock_key key = { 0 };

		print_message("# row %zu: %s\n", i, row->what);
		assert_int_equal(rf_vsock_route(&hdr, 3, 2, &key), row->route);
		if (row->route != RF_VSOCK_ROUTE_DELIVER)
			continue;
		assert_true(key.local_cid == 2 && key.peer_cid == 3);
		assert_int_equal(key.local_port, 80);
		assert_int_equal(key.peer_port, 1024);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_find, setup),
		cmocka_unit_test_setup(test_walk, setup),
		cmocka_unit_test_setup(test_spread, setup),
		cmocka_unit_test_setup(test_port_start, setup),
		cmocka_unit_test_setup(test_port_rotates, setup),
		cmocka_unit_test_setup(test_port_taken, setup),
		cmocka_unit_test_setup(test_port_none, setup),
		cmocka_unit_test_setup(test_route, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
