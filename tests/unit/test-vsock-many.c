/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Many connections of one guest: as many as descriptors allow, up to 10,000, each of which keeps
 * its own bytes while traffic goes round all of them; and the table grows with what may be open.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fd.h"
#include "host/limits.h"
#include "vsock_host.h"
#include "vsock_rig.h"

#define MANY       10000u
#define FEW        1000u
#define OTHER_FDS  100u
#define MSG_BYTES  48u
#define FIRST_PORT 1000u
#define ROUNDS     2u

/* Both ends of each connection are ours. */
static unsigned how_many(void)
{
	int64_t fds = rf_fd_raise_limit(2 * MANY + OTHER_FDS);

	if (fds < 2 * FEW + OTHER_FDS) {
		print_message("%lld descriptors are too few\n", (long long)fds);
		skip();
	}
	return rf_min_u32(MANY, (uint32_t)(fds - OTHER_FDS) / 2);
}

static int open_conn(struct vsock_rig *rig, int listener, struct fake_conn *c, uint32_t port)
{
	int fd;

	fake_conn_init(c, &rig->guest, port, RIG_PORT);
	fake_conn_control(c, REQUEST, 0);
	rig_idle(rig);
	fd = rig_accept(listener);
	rig_expect(rig, c, RESPONSE);
	return fd;
}

static void each_keeps_its_bytes(void **state)
{
	unsigned n = how_many();
	struct fake_conn *conns = calloc(n, sizeof(*conns));
	int *fds = calloc(n, sizeof(*fds));
	struct vsock_rig *rig;
	int listener;

	rig_setup(state);
	rig = *state;
	assert_true(conns && fds);
	rig->options.max_conns = n;
	rig_start(rig);
	listener = rig_listen(rig, RIG_PORT, 1);
	for (unsigned i = 0; i < n; i++)
		fds[i] = open_conn(rig, listener, &conns[i], FIRST_PORT + i);
	assert_int_equal(rig_connections(rig), n);
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < n; i++) {
			uint64_t at = (uint64_t)i * MSG_BYTES;

			rig_guest_send(&conns[i], at, MSG_BYTES);
			rig_host_write(rig, fds[i], at, MSG_BYTES);
			rig_idle(rig);
			rig_host_read(fds[i], at, MSG_BYTES);
			rig_guest_read(rig, &conns[i], at, MSG_BYTES);
		}
	}
	for (unsigned i = 0; i < n; i++) {
		close(fds[i]);
		rig_expect(rig, &conns[i], SHUTDOWN);
		fake_conn_control(&conns[i], RST, 0);
	}
	rig_idle(rig);
	assert_int_equal(rig_connections(rig), 0);
	close(listener);
	free(conns);
	free(fds);
	rig_teardown(state);
}

static const struct {
	unsigned max_conns;
	uint32_t buckets;
} table_rows[] = {
	{ 1, 64 }, { 64, 64 }, { 65, 128 }, { 1024, 1024 }, { 10000, 16384 }, { 65536, 65536 },
};

static void the_table_is_as_large_as_needed(void **state)
{
	(void)state;
	for (size_t i = 0; i < RF_ARRAY_SIZE(table_rows); i++) {
		struct vsock_rig *rig;
		void *own;

		rig_setup(&own);
		rig = own;
		rig->options.max_conns = table_rows[i].max_conns;
		rig_serve(rig);
		assert_int_equal(rig->device->table.mask + 1, table_rows[i].buckets);
		rig_teardown(&own);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_keeps_its_bytes),
		cmocka_unit_test(the_table_is_as_large_as_needed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
