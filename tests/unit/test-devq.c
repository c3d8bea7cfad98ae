/* SPDX-License-Identifier: BSD-3-Clause */
#include "ring/devq.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "devq_fixture.h"

#define N VRING_DESC_F_NEXT
#define W VRING_DESC_F_WRITE
#define I VRING_DESC_F_INDIRECT

/* A bad chain behind good ones: those are seen, taken and returned first. */
static void test_good_before_bad(void **state RF_UNUSED)
{
	const struct rf_chain *chains;
	struct devq_fixture f;
	uint32_t id, len;

	devq_fixture_start(&f, 8, 0);
	(void)devq_fixture_offer(&f, 2, 10, W);
	(void)devq_fixture_offer(&f, 5, 20, 0);
	fake_desc(&f.drv.desc[0], NOWHERE, 1, 0, 0);
	(void)fake_driver_offer(&f.drv, 0);
	(void)devq_fixture_offer(&f, 6, 20, 0);
	assert_int_equal(rf_devq_look(f.q, 8, &chains), 2);
	assert_int_equal(rf_devq_broken(f.q), RF_RING_DESC_ADDR);
	assert_int_equal(rf_devq_look(f.q, 8, &chains), 2);
	assert_int_equal(chains[0].head, 2);
	assert_int_equal(chains[1].head, 5);
	rf_devq_take(f.q, 1);
	rf_devq_push(f.q, &chains[0], 7);
	assert_true(rf_devq_publish(f.q));
	assert_true(fake_driver_get(&f.drv, &id, &len));
	assert_int_equal(id, 2);
	assert_int_equal(len, 7);
	assert_int_equal(rf_devq_look(f.q, 8, &chains), 1);
	assert_int_equal(chains[0].head, 5);
	rf_devq_take(f.q, 1);
	assert_int_equal(rf_devq_look(f.q, 8, &chains), -EPROTO);
	assert_int_equal(rf_devq_stop(f.q), 2);
	devq_fixture_fini(&f);
}

/* One chain may fill the arena alone; one piece more is too many. */
static void test_chain_pieces(void **state RF_UNUSED)
{
	const struct rf_chain *chains;
	struct devq_fixture f;

	devq_fixture_start(&f, 8, 0);
	rf_mem_set_max_piece(f.m.mem, 1);
	fake_desc(&f.drv.desc[0], BUF_GPA, RF_DEVQ_ARENA - 6, N, 1);
	fake_desc(&f.drv.desc[1], BUF_GPA, 6, W, 0);
	(void)devq_fixture_offer(&f, 2, 1, 0);
	(void)fake_driver_offer(&f.drv, 0);
	/* Beside another it waits, and is not bad. */
	assert_int_equal(rf_devq_look(f.q, 8, &chains), 1);
	assert_int_equal(rf_devq_look(f.q, 8, &chains), 1);
	assert_int_equal(rf_devq_broken(f.q), RF_RING_NONE);
	assert_true(rf_devq_arm(f.q));
	rf_devq_take(f.q, 1);
	assert_int_equal(rf_devq_look(f.q, 8, &chains), 1);
	assert_int_equal(chains[0].n_out, RF_DEVQ_ARENA - 6);
	assert_int_equal(chains[0].n_in, 6);
	assert_ptr_equal(rf_devq_in(f.q, &chains[0])[5].iov_base,
			 fake_mem_host(&f.m, BUF_GPA + 5, 1));
	rf_devq_take(f.q, 1);
	f.drv.desc[1].len++;
	(void)fake_driver_offer(&f.drv, 0);
	devq_fixture_check_broken(&f, "pieces", RF_RING_CHAIN_PIECES);
	devq_fixture_fini(&f);
}

/* Chains of growing size through a window that is never empty: the arena moves up again and again.
 */
static void test_arena_moves(void **state RF_UNUSED)
{
	const struct rf_chain *chains;
	struct devq_fixture f;
	uint16_t offered = 0, taken = 0;

	devq_fixture_start(&f, 8, 0);
	rf_mem_set_max_piece(f.m.mem, 1);
	while (taken < 2000) {
		unsigned keep = taken % 3 + 1;
		int n;

		while ((uint16_t)(offered - taken) < 8) {
			(void)devq_fixture_offer(&f, offered % 8, 1 + offered * 37 % 1100,
						 offered & 1 ? W : 0);
			offered++;
		}
		n = rf_devq_look(f.q, 8, &chains);
		assert_true(n > 0);
		for (int i = 0; i < n; i++) {
			uint16_t k = (uint16_t)(taken + i);
			struct range want[2] = { { BUF_GPA + k % 8 * 0x100u, 1 + k * 37 % 1100 } };

			assert_int_equal(chains[i].head, k % 8);
			devq_fixture_check_pieces(&f, "out", rf_devq_out(f.q, &chains[i]),
						  chains[i].n_out, k & 1 ? &want[1] : want);
			devq_fixture_check_pieces(&f, "in", rf_devq_in(f.q, &chains[i]),
						  chains[i].n_in, k & 1 ? want : &want[1]);
		}
		while (n > (int)keep) {
			/* Taking moves nothing. */
			const struct rf_chain copy = *chains;

			rf_devq_take(f.q, 1);
			assert_memory_equal(chains, &copy, sizeof(copy));
			rf_devq_push(f.q, chains++, 0);
			taken++;
			n--;
		}
		(void)rf_devq_publish(f.q);
	}
	assert_int_equal(rf_devq_broken(f.q), RF_RING_NONE);
	devq_fixture_fini(&f);
}

/* The window: what it was asked for, what is there, back-pressure, forgetting. */
static void test_window(void **state RF_UNUSED)
{
	const struct rf_chain *chains;
	struct devq_fixture f;

	devq_fixture_init(&f, 8, 3);
	assert_int_equal(rf_devq_look(f.q, 1, &chains), -ESHUTDOWN);
	assert_false(rf_devq_running(f.q));
	assert_false(rf_devq_publish(f.q));
	assert_false(rf_devq_arm(f.q));
	assert_int_equal(rf_devq_start(f.q, &f.config), 0);
	assert_int_equal(rf_devq_look(f.q, 8, &chains), 0);
	for (uint16_t i = 0; i < 6; i++)
		(void)devq_fixture_offer(&f, i, i + 1, 0);
	assert_int_equal(rf_devq_look(f.q, 0, &chains), 0);
	assert_int_equal(rf_devq_look(f.q, 2, &chains), 2);
	assert_int_equal(rf_devq_look(f.q, 1, &chains), 2);
	/* Parsed once: what the driver changes then has no effect (DPDK 134228ca). */
	f.drv.desc[0].len = 99;
	assert_int_equal(rf_devq_look(f.q, 5, &chains), 5);
	assert_int_equal(chains[0].bytes_out, 1);
	assert_int_equal(chains[4].head, 4);
	rf_devq_take(f.q, 2);
	assert_int_equal(rf_devq_look(f.q, 8, &chains), 4);
	assert_int_equal(chains[0].head, 2);
	rf_devq_forget(f.q);
	f.drv.desc[2].len = 77;
	assert_int_equal(rf_devq_look(f.q, 1, &chains), 1);
	assert_int_equal(chains[0].head, 2);
	assert_int_equal(chains[0].bytes_out, 77);
	/* Neither what is in the window nor what is behind it was taken. */
	assert_int_equal(rf_devq_stop(f.q), 5);
	assert_int_equal(rf_devq_stop(f.q), 5);
	assert_int_equal(rf_devq_look(f.q, 1, &chains), -ESHUTDOWN);
	devq_fixture_fini(&f);
}

/* Chains come back in any order, pushed but not published ones at the stop. */
static void test_stop_publishes(void **state RF_UNUSED)
{
	const struct rf_chain *chains;
	struct rf_chain held[2];
	struct devq_fixture f;
	uint32_t id, len;

	devq_fixture_start(&f, 4, 0xfffe);
	for (uint16_t i = 0; i < 4; i++)
		(void)devq_fixture_offer(&f, i, 10, W);
	assert_int_equal(rf_devq_look(f.q, 4, &chains), 4);
	memcpy(held, chains, sizeof(held));
	rf_devq_take(f.q, 2);
	rf_devq_push(f.q, &held[1], 3);
	assert_false(fake_driver_get(&f.drv, &id, &len));
	rf_devq_push(f.q, &held[0], 10);
	assert_int_equal(rf_devq_stop(f.q), 0);
	assert_true(fake_driver_get(&f.drv, &id, &len));
	assert_int_equal(id, 1);
	assert_int_equal(len, 3);
	assert_true(fake_driver_get(&f.drv, &id, &len));
	assert_int_equal(id, 0);
	assert_int_equal(len, 10);
	assert_false(fake_driver_get(&f.drv, &id, &len));
	devq_fixture_fini(&f);
}

static const struct config_row {
	uint32_t num;
	unsigned desc, driver, device; /* added to the addresses; 99 is no address */
	int layout;
	int expected;
} config_rows[] = {
	/* 0 */ { 1, 0, 0, 0, RF_RING_SPLIT, 0 },
	/* 1 */ { 32768, 0, 0, 0, RF_RING_SPLIT, 0 },
	/* 2 mvm PR 1861 */ { 0, 0, 0, 0, RF_RING_SPLIT, -EINVAL },
	/* 3 */ { 3, 0, 0, 0, RF_RING_SPLIT, -EINVAL },
	/* 4 */ { 65536, 0, 0, 0, RF_RING_SPLIT, -EINVAL },
	/* 5 */ { 0x80000000, 0, 0, 0, RF_RING_SPLIT, -EINVAL },
	/* 6 */ { 8, 8, 0, 0, RF_RING_SPLIT, -EINVAL },
	/* 7 */ { 8, 16, 2, 4, RF_RING_SPLIT, 0 },
	/* 8 */ { 8, 0, 1, 0, RF_RING_SPLIT, -EINVAL },
	/* 9 */ { 8, 0, 0, 2, RF_RING_SPLIT, -EINVAL },
	/* 10 */ { 8, 99, 0, 0, RF_RING_SPLIT, -EINVAL },
	/* 11 */ { 8, 0, 99, 0, RF_RING_SPLIT, -EINVAL },
	/* 12 */ { 8, 0, 0, 99, RF_RING_SPLIT, -EINVAL },
	/* 13 */ { 8, 0, 0, 0, RF_RING_SPLIT + 1, -EINVAL },
	/* 14 */ { 8, 0, 0, 0, -1, -EINVAL },
};

static void *moved(void *area, unsigned by)
{
	return by == 99 ? NULL : (uint8_t *)area + by;
}

static void test_config(void **state RF_UNUSED)
{
	struct devq_fixture f;

	devq_fixture_start(&f, 32768, 0);
	for (size_t i = 0; i < RF_ARRAY_SIZE(config_rows); i++) {
		const struct config_row *row = &config_rows[i];
		struct rf_ring_config config = {
			.layout = (enum rf_ring_layout)row->layout,
			.num = row->num,
			.desc = moved(f.config.desc, row->desc),
			.driver = moved(f.config.driver, row->driver),
			.device = moved(f.config.device, row->device),
		};
		int r = rf_devq_start(f.q, &config);

		if (r != row->expected || rf_devq_running(f.q) != (r == 0))
			fail_msg("row %zu: %d", i, r);
	}
	devq_fixture_fini(&f);
}

/* A memory table is replaced while the ring runs: same guest addresses, another mapping. */
static void test_rebase(void **state RF_UNUSED)
{
	struct rf_mem_region region = fake_mem_region(&devq_fixture_regions[0]);
	struct rf_mem_region alias = region;
	const struct rf_chain *chains;
	struct rf_chain held;
	struct devq_fixture f;
	void *before;
	uint32_t id, len;

	devq_fixture_start(&f, 8, 0);
	for (uint16_t i = 0; i < 3; i++)
		(void)devq_fixture_offer(&f, i, 10, W);
	assert_int_equal(rf_devq_look(f.q, 2, &chains), 2);
	held = chains[0];
	rf_devq_take(f.q, 1);
	before = rf_devq_in(f.q, &chains[1])->iov_base;
	rf_devq_forget(f.q);
	assert_int_equal(rf_mem_remove(f.m.mem, &region), 0);
	/* Something else takes its place, so that it comes back elsewhere. */
	alias.gpa.v = alias.uva.v = UINT64_C(1) << 40;
	assert_int_equal(rf_mem_add(f.m.mem, &alias, f.m.fd), 0);
	assert_int_equal(rf_mem_add(f.m.mem, &region, f.m.fd), 0);
	assert_ptr_not_equal(fake_mem_host(&f.m, BUF_GPA + 0x100, 10), before);
	rf_devq_rebase(f.q, fake_mem_host(&f.m, DESC_GPA, 1), fake_mem_host(&f.m, DRV_GPA, 1),
		       fake_mem_host(&f.m, DEV_GPA, 1));
	assert_int_equal(rf_devq_look(f.q, 8, &chains), 2);
	assert_int_equal(chains[0].head, 1);
	assert_ptr_equal(rf_devq_in(f.q, &chains[0])->iov_base,
			 fake_mem_host(&f.m, BUF_GPA + 0x100, 10));
	rf_devq_push(f.q, &held, 5);
	assert_true(rf_devq_publish(f.q));
	assert_true(fake_driver_get(&f.drv, &id, &len));
	assert_int_equal(id, 0);
	assert_int_equal(len, 5);
	devq_fixture_fini(&f);
}

/* The owner gives the ring up because of what a buffer held; the first reason stays. */
static void test_break(void **state RF_UNUSED)
{
	const struct rf_chain *chains;
	struct devq_fixture f;

	devq_fixture_start(&f, 8, 0);
	(void)devq_fixture_offer(&f, 0, 10, W);
	assert_int_equal(rf_devq_look(f.q, 1, &chains), 1);
	rf_devq_break(f.q, RF_RING_MEM_FAULT);
	rf_devq_break(f.q, RF_RING_DESC_ADDR);
	assert_int_equal(rf_devq_look(f.q, 1, &chains), 1);
	rf_devq_take(f.q, 1);
	(void)devq_fixture_offer(&f, 1, 10, W);
	devq_fixture_check_broken(&f, "by the owner", RF_RING_MEM_FAULT);
	devq_fixture_fini(&f);
}

/* The file behind the ring is truncated: zeros are no index and no chain of the driver's. */
static void test_mem_fault(void **state RF_UNUSED)
{
	const struct rf_chain *chains;
	struct devq_fixture f;

	fake_mem_guard();
	/* A ring index of zero would be a jump. */
	devq_fixture_start(&f, 8, 300);
	(void)devq_fixture_offer(&f, 0, 10, W);
	(void)devq_fixture_offer(&f, 1, 10, W);
	assert_int_equal(rf_devq_look(f.q, 1, &chains), 1);
	assert_int_equal(ftruncate(f.m.fd, 0), 0);
	assert_int_equal(rf_devq_look(f.q, 8, &chains), 1);
	assert_int_equal(rf_devq_broken(f.q), RF_RING_MEM_FAULT);
	rf_devq_take(f.q, 1);
	rf_devq_push(f.q, chains, 1);
	(void)rf_devq_publish(f.q);
	assert_int_equal(rf_devq_look(f.q, 8, &chains), -EPROTO);
	assert_int_equal(rf_devq_stop(f.q), 301);
	devq_fixture_fini(&f);
}

/* Zeros that make a fine chain, without a byte at address 0, are not the driver's either. */
static void test_mem_fault_chain(void **state RF_UNUSED)
{
	static const struct fake_region zero = { 0, 0x1000, 0 };
	struct rf_mem_region region = fake_mem_region(&zero);
	const struct rf_chain *chains;
	struct devq_fixture f;

	fake_mem_guard();
	devq_fixture_start(&f, 8, 0xffff);
	assert_int_equal(rf_mem_add(f.m.mem, &region, f.m.fd), 0);
	(void)devq_fixture_offer(&f, 0, 10, W);
	assert_int_equal(ftruncate(f.m.fd, 0), 0);
	assert_int_equal(rf_devq_look(f.q, 8, &chains), -EPROTO);
	assert_int_equal(rf_devq_broken(f.q), RF_RING_MEM_FAULT);
	devq_fixture_fini(&f);
}

/* A chain that had to wait leaves nothing in the arena. */
static void test_arena_later(void **state RF_UNUSED)
{
	const struct rf_chain *chains;
	struct devq_fixture f;

	devq_fixture_start(&f, 8, 0);
	rf_mem_set_max_piece(f.m.mem, 1);
	(void)devq_fixture_offer(&f, 0, 100, 0);
	(void)devq_fixture_offer(&f, 1, 2000, 0);
	fake_desc(&f.drv.desc[2], BUF_GPA, 1045, N, 3);
	fake_desc(&f.drv.desc[3], BUF_GPA, 1045, W, 0);
	(void)fake_driver_offer(&f.drv, 2);
	assert_int_equal(rf_devq_look(f.q, 8, &chains), 2);
	rf_devq_take(f.q, 1);
	assert_int_equal(rf_devq_look(f.q, 8, &chains), 2);
	assert_int_equal(chains[1].n_in, 1045);
	devq_fixture_fini(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good_before_bad), cmocka_unit_test(test_chain_pieces),
		cmocka_unit_test(test_arena_moves),     cmocka_unit_test(test_window),
		cmocka_unit_test(test_stop_publishes),  cmocka_unit_test(test_config),
		cmocka_unit_test(test_rebase),          cmocka_unit_test(test_break),
		cmocka_unit_test(test_mem_fault),       cmocka_unit_test(test_mem_fault_chain),
		cmocka_unit_test(test_arena_later),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
