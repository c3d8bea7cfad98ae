/* SPDX-License-Identifier: BSD-3-Clause */
#include "stat.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/util.h"

static const struct stat_row {
	size_t n;
	double values[5];
	double median, min, max;
} stat_rows[] = {
	/* 0 */ { 0, { 0 }, 0, 0, 0 },
	/* 1 */ { 1, { 7 }, 7, 7, 7 },
	/* 2 */ { 2, { 4, 2 }, 3, 2, 4 },
	/* 3 */ { 3, { 9, 1, 5 }, 5, 1, 9 },
	/* 4 */ { 4, { 4, 1, 3, 2 }, 2.5, 1, 4 },
	/* 5 */ { 5, { -1, 5, 5, 100, 0 }, 5, -1, 100 },
};

static void test_stat(void **state RF_UNUSED)
{
	for (size_t i = 0; i < RF_ARRAY_SIZE(stat_rows); i++) {
		struct stat_row row = stat_rows[i];
		struct rf_bench_stat stat = rf_bench_stat(row.values, row.n);

		assert_true(stat.median == row.median);
		assert_true(stat.min == row.min);
		assert_true(stat.max == row.max);
	}
}

static void test_latency(void **state RF_UNUSED)
{
	static uint32_t times[1000];
	struct rf_bench_latency latency = rf_bench_latency(times, 0);

	assert_true(latency.p1 == 0 && latency.mean == 0 && latency.p50 == 0 && latency.p99 == 0);

	/* 1000, 999, ... 1 */
	for (uint32_t i = 0; i < RF_ARRAY_SIZE(times); i++)
		times[i] = 1000 - i;
	latency = rf_bench_latency(times, RF_ARRAY_SIZE(times));
	assert_true(latency.p1 == 10);
	assert_true(latency.mean == 500.5);
	assert_true(latency.p50 == 500);
	assert_true(latency.p99 == 990);

	latency = rf_bench_latency(times, 1);
	assert_true(latency.p1 == 1 && latency.mean == 1 && latency.p50 == 1 && latency.p99 == 1);
}

static void test_moved(void **state RF_UNUSED)
{
	assert_false(rf_bench_moved(0, 0));
	assert_false(rf_bench_moved(140, 140));
	assert_false(rf_bench_moved(140, 210));
	assert_true(rf_bench_moved(140, 211));
	assert_true(rf_bench_moved(140, 600));
	/* One core: there is nothing to be known. */
	assert_false(rf_bench_moved(0, 600));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stat),
		cmocka_unit_test(test_latency),
		cmocka_unit_test(test_moved),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
