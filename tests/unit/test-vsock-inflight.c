/* SPDX-License-Identifier: BSD-3-Clause */
#include "vsock/inflight.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/util.h"
#include "prng.h"

#define RUNS RF_VSOCK_INFLIGHT_RUNS

/* @n packets of @len bytes go out from @base on, in runs of @run_pkts; the peer reports @consumed.
 */
static const struct row {
	const char *what;
	uint32_t base, n, len, run_pkts, consumed, left;
} rows[] = {
	/* 0 */ { "nothing sent", 0, 0, 1, 1, 0, 0 },
	/* 1 */ { "nothing consumed", 0, 10, 100, 1, 0, 10 },
	/* 2 */ { "all consumed", 0, 10, 100, 1, 1000, 0 },
	/* 3 */ { "one consumed", 0, 10, 100, 1, 100, 9 },
	/* 4 */ { "one byte short of it", 0, 10, 100, 1, 99, 10 },
	/* 5 */ { "and one more", 0, 10, 100, 1, 101, 9 },
	/* 6 */ { "a run counts until its end", 0, 10, 100, 5, 499, 10 },
	/* 7 */ { "at its end it is gone", 0, 10, 100, 5, 500, 5 },
	/* 8 */ { "every run in use", 0, RUNS, 100, 1, 100, RUNS - 1 },
	/* 9: the newest takes all */
	{ "more than there are runs for", 0, 100, 100, 1, 100 * (RUNS - 1), 100 - (RUNS - 1) },
	/* 10 */ { "it counts until its end", 0, 100, 100, 1, 9999, 100 - (RUNS - 1) },
	/* 11 */ { "and is gone then", 0, 100, 100, 1, 10000, 0 },
	/* 12: of a tiny window */ { "runs of no packet have one", 0, 3, 10, 0, 10, 2 },
	/* 13 */ { "wrap", UINT32_MAX - 149, 3, 100, 1, 200, 1 },
	/* 14 */ { "wrap, just at 2^32", UINT32_MAX - 199, 3, 100, 1, 200, 1 },
	/* 15 */ { "wrap, nothing consumed", UINT32_MAX - 149, 3, 100, 1, 0, 3 },
	/* 16 */ { "largest window", 7, 3, 1u << 30, 1, 1u << 30, 2 },
};

static void test_rows(void **state RF_UNUSED)
{
	for (size_t i = 0; i < RF_ARRAY_SIZE(rows); i++) {
		const struct row *row = &rows[i];
		struct rf_vsock_inflight inflight = { 0 };
		uint32_t end = row->base;

		print_message("# row %zu: %s\n", i, row->what);
		for (uint32_t k = 0; k < row->n; k++) {
			end += row->len;
			rf_vsock_inflight_sent(&inflight, end, row->run_pkts);
		}
		assert_int_equal(inflight.n_pkts, row->n);
		rf_vsock_inflight_consumed(&inflight, end, row->base + row->consumed);
		assert_int_equal(inflight.n_pkts, row->left);
		/* The rest goes, too. */
		rf_vsock_inflight_consumed(&inflight, end, end);
		assert_int_equal(inflight.n_pkts, 0);
		assert_int_equal(inflight.n_runs, 0);
	}
}

/* Never fewer than there are, and not more than a run too many. */
static void test_against_a_list(void **state RF_UNUSED)
{
	static uint32_t ends[1u << 16];
	struct rf_vsock_inflight inflight = { 0 };
	uint32_t first = 0, n = 0, tx = UINT32_MAX - 100000, fwd = tx;
	uint64_t seed = 7;

	while (n < RF_ARRAY_SIZE(ends)) {
		uint32_t run = 1 + (n - first) / 8;

		if (prng_below(&seed, 2)) {
			tx += 1 + (uint32_t)prng_below(&seed, 300);
			ends[n++] = tx;
			rf_vsock_inflight_sent(&inflight, tx, 25);
		} else {
			fwd += (uint32_t)prng_below(&seed, tx - fwd + 1);
			rf_vsock_inflight_consumed(&inflight, tx, fwd);
		}
		while (first < n && tx - ends[first] >= tx - fwd)
			first++;
		assert_true(inflight.n_pkts >= n - first);
		assert_true(inflight.n_pkts <= n - first + 24 + run);
		assert_true(inflight.n_runs <= RUNS);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_against_a_list),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
