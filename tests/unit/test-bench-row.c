/* SPDX-License-Identifier: BSD-3-Clause */
#include "row.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"

static struct rf_bench_row row, raw;

static int setup(void **state RF_UNUSED)
{
	static const double ours[] = { 4, 6, 20 }, plain[] = { 2, 6, 4 };

	memset(&row, 0, sizeof(row));
	row.bench = raw.bench = "stream";
	row.via = raw.via = "unix";
	row.dir = RF_BENCH_G2H;
	row.size = 4096;
	row.streams = 2;
	strcpy(row.variant, "x");
	raw = row;
	for (unsigned i = 0; i < 3; i++) {
		row.samples[i] = (struct rf_bench_sample){
			.gbps = ours[i],
			.slowest = 1,
			.fastest = 2 * (i + 1),
			.bytes = 1e9,
			.cpu_s = 0.5,
			.disturbed = i == 1,
			.rtt_before = i == 2 ? 500 : 120,
			.rtt_after = 110,
			.host = json_pack("{s:i, s:i, s:i, s:i, s:i, s:i}", "from_guest_bytes",
					  1 << 20, "from_guest_sends", 8, "uring_ops", 5,
					  "uring_batches", 1, "vu_calls", 1, "bounced_bytes", 300),
			.guest = json_pack("{s:i, s:i, s:i}", "tx_bytes", 1 << 20, "tx_kicks", 2,
					   "rx_kicks", 1),
		};
		raw.samples[i].gbps = plain[i];
	}
	row.n_samples = raw.n_samples = 3;
	return 0;
}

static int teardown(void **state RF_UNUSED)
{
	rf_bench_row_fini(&row);
	return 0;
}

/* Within each round: 2, 1, 5. The ratio of the medians would be 1.5. */
static void test_ratio(void **state RF_UNUSED)
{
	struct rf_bench_stat ratio = rf_bench_row_ratio(&row, &raw);

	assert_true(ratio.median == 2 && ratio.min == 1 && ratio.max == 5);
}

static void test_costs(void **state RF_UNUSED)
{
	struct rf_bench_costs costs = rf_bench_row_costs(&row);

	assert_true(costs.known);
	assert_true(costs.bytes_per_syscall == 262144);
	assert_true(costs.bounced_bytes == 300);
	assert_true(costs.notifications_per_mib == 4);
	assert_true(rf_bench_row_cpu_s_per_gb(&row) == 0.5);
	assert_false(rf_bench_row_costs(&raw).known);
}

static double real_at(const json_t *json, const char *name)
{
	const json_t *value = json_object_get(json, name);

	assert_true(json_is_number(value));
	return json_number_value(value);
}

static void test_json_rate(void **state RF_UNUSED)
{
	json_t *json = rf_bench_row_json(&row, &raw);
	const json_t *spread = json_object_get(json, "spread");
	const json_t *counters = json_object_get(json, "counters");

	assert_string_equal(json_string_value(json_object_get(json, "dir")), "g2h");
	assert_string_equal(json_string_value(json_object_get(json, "variant")), "x");
	assert_true(real_at(json, "size") == 4096);
	assert_true(real_at(json, "streams") == 2);
	assert_true(real_at(json, "gbps") == 6);
	assert_true(real_at(json, "cpu_s_per_gb") == 0.5);
	assert_null(json_object_get(json, "p50_ns"));
	assert_true(real_at(spread, "min") == 4 && real_at(spread, "max") == 20);
	assert_true(real_at(spread, "disturbed") == 1);
	assert_true(real_at(spread, "moved") == 1);
	assert_true(real_at(spread, "slowest_to_fastest") == 0.25);
	assert_true(json_number_value(json_array_get(json_object_get(spread, "to_raw"), 1)) == 2);
	assert_true(real_at(json_object_get(counters, "host"), "from_guest_sends") == 24);
	json_decref(json);
}

static void test_json_latency(void **state RF_UNUSED)
{
	json_t *json;

	row.latency = true;
	for (unsigned i = 0; i < 3; i++)
		row.samples[i].latency =
			(struct rf_bench_latency){ 10 + i, 20 - i, 30 + i, 40 + i };
	json = rf_bench_row_json(&row, NULL);
	assert_null(json_object_get(json, "gbps"));
	assert_true(real_at(json, "p1_ns") == 11);
	assert_true(real_at(json, "mean_ns") == 19);
	assert_true(real_at(json, "p50_ns") == 31);
	assert_true(real_at(json, "p99_ns") == 41);
	assert_true(real_at(json_object_get(json, "spread"), "max") == 32);
	json_decref(json);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_ratio, setup, teardown),
		cmocka_unit_test_setup_teardown(test_costs, setup, teardown),
		cmocka_unit_test_setup_teardown(test_json_rate, setup, teardown),
		cmocka_unit_test_setup_teardown(test_json_latency, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
