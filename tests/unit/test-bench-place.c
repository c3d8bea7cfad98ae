/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "round.h"

#define ANY RF_BENCH_ANY_CORE

static const struct row {
	const char *text;
	int r;
	bool best;
	int guest, back_end, host;
} rows[] = {
	/* 0 */ { "best", 0, true, 0, 0, 0 },
	/* 1 */ { "free", 0, false, ANY, ANY, ANY },
	/* 2 */ { "one", 0, false, 0, 0, 0 },
	/* 3 */ { "0:0:0", 0, false, 0, 0, 0 },
	/* 4 */ { "0:any:0", 0, false, 0, ANY, 0 },
	/* 5 */ { "any:any:any", 0, false, ANY, ANY, ANY },
	/* 6 */ { "", -EINVAL, false, 0, 0, 0 },
	/* 7 */ { "0:0", -EINVAL, false, 0, 0, 0 },
	/* 8 */ { "0:0:0:0", -EINVAL, false, 0, 0, 0 },
	/* 9 */ { "0:0:-1", -EINVAL, false, 0, 0, 0 },
	/* 10 */ { "0:0:9999", -EINVAL, false, 0, 0, 0 },
	/* 11 */ { "worst", -EINVAL, false, 0, 0, 0 },
};

static void test_parse(void **state RF_UNUSED)
{
	for (size_t i = 0; i < RF_ARRAY_SIZE(rows); i++) {
		const struct row *row = &rows[i];
		struct rf_bench_place place = { "", 0, 0, 0, 0 };
		char wrong[RF_BENCH_WRONG_BYTES];
		bool best = true;

		assert_int_equal(rf_bench_place_parse(row->text, &place, &best, wrong), row->r);
		if (row->r < 0)
			continue;
		assert_int_equal(best, row->best);
		assert_int_equal(place.guest, row->guest);
		assert_int_equal(place.back_end, row->back_end);
		assert_int_equal(place.host, row->host);
	}
}

static void test_candidates(void **state RF_UNUSED)
{
	struct rf_bench_place places[RF_BENCH_MAX_PLACES];
	struct rf_bench_options options;
	struct rf_bench_variant variant;
	unsigned n, n_default;
	int wanted = 0;

	rf_bench_options_init(&options);
	rf_bench_variant_init(&variant, "raw", RF_BENCH_RAW);
	n_default = rf_bench_places(&options, &variant, places);
	assert_in_range(n_default, 1, RF_BENCH_MAX_PLACES);
	for (unsigned i = 0; i < n_default; i++)
		assert_int_equal(places[i].sndbuf, 0);

	/* The same ones, each with several buffers. */
	rf_bench_variant_init(&variant, "raw-best", RF_BENCH_RAW_BEST);
	n = rf_bench_places(&options, &variant, places);
	assert_in_range(n, n_default + 1, RF_BENCH_MAX_PLACES);
	for (unsigned i = 0; i < n; i++)
		wanted |= places[i].sndbuf;
	assert_true(wanted & 1 << 20);

	/* The one that is asked for, but a plain socket still tries buffers. */
	options.best_place = false;
	n = rf_bench_places(&options, &variant, places);
	assert_in_range(n, 2, RF_BENCH_MAX_PLACES);
	rf_bench_variant_init(&variant, "x", RF_BENCH_OURS);
	assert_int_equal(rf_bench_places(&options, &variant, places), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse),
		cmocka_unit_test(test_candidates),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
