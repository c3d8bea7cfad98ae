/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * src/bench/plot.c and plot_svg.c: fixed rows give fixed panels, series and drawing.
 */
#include "plot.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"

/* The sizes are out of order, and one row has no figure. */
static const struct {
	const char *bench, *via, *dir;
	int size, streams;
	const char *variant, *figure;
	double value;
} rows_of_test[] = {
	{ "stream", "unix", "g2h", 4096, 1, "a<b", "gbps", 2.0 },
	{ "stream", "unix", "g2h", 64, 1, "a<b", "gbps", 0.5 },
	{ "stream", "unix", "g2h", 512, 1, "a<b", "gbps", 1.0 },
	{ "stream", "unix", "g2h", 64, 2, "a<b", "gbps", 0.25 },
	{ "stream", "unix", "h2g", 64, 1, "other", "gbps", 1.0 },
	{ "stream", "embed", "h2g", 64, 1, "other", "gbps", 4.0 },
	{ "stream", "unix", "h2g", 64, 1, "none", "else", 1.0 },
	{ "pingpong", "unix", "g2h", 512, 1, "a<b", "p50_ns", 30000 },
};

static json_t *rows_new(void)
{
	json_t *rows = json_array();

	for (size_t i = 0; i < RF_ARRAY_SIZE(rows_of_test); i++)
		json_array_append_new(
			rows,
			json_pack("{s:s, s:s, s:s, s:i, s:i, s:s, s:f}", "bench",
				  rows_of_test[i].bench, "via", rows_of_test[i].via, "dir",
				  rows_of_test[i].dir, "size", rows_of_test[i].size, "streams",
				  rows_of_test[i].streams, "variant", rows_of_test[i].variant,
				  rows_of_test[i].figure, rows_of_test[i].value));
	assert_int_equal(json_array_size(rows), RF_ARRAY_SIZE(rows_of_test));
	return rows;
}

static char *draw(const struct rf_bench_plot *plot)
{
	char *text = NULL;
	size_t bytes;
	FILE *file = open_memstream(&text, &bytes);

	assert_non_null(file);
	rf_bench_plot_draw(plot, file);
	assert_int_equal(fclose(file), 0);
	return text;
}

static void test_panels(void **state RF_UNUSED)
{
	static const struct {
		const char *title;
		bool bars;
		size_t n;
		const char *labels[2];
	} expected[] = {
		{ "Throughput, guest to host, via unix",
		  false,
		  2,
		  { "1 stream, a<b", "2 streams, a<b" } },
		{ "Throughput, host to guest", false, 2, { "unix, other", "embed, other" } },
		{ "Round trip, guest to host, via unix", true, 1, { "a<b" } },
	};
	json_t *rows = rows_new();
	struct rf_bench_plot *plot;

	assert_int_equal(rf_bench_plot_read(rows, &plot), 0);
	assert_int_equal(plot->n, RF_ARRAY_SIZE(expected));
	for (size_t i = 0; i < plot->n; i++) {
		assert_string_equal(plot->panels[i].title, expected[i].title);
		assert_int_equal(plot->panels[i].bars, expected[i].bars);
		assert_int_equal(plot->panels[i].n, expected[i].n);
		for (size_t s = 0; s < expected[i].n; s++)
			assert_string_equal(plot->panels[i].series[s].label, expected[i].labels[s]);
	}
	free(plot);
	json_decref(rows);
}

static void test_points_in_order(void **state RF_UNUSED)
{
	static const struct rf_bench_plot_point expected[] = { { 64, 0.5 },
							       { 512, 1 },
							       { 4096, 2 } };
	json_t *rows = rows_new();
	struct rf_bench_plot *plot;

	assert_int_equal(rf_bench_plot_read(rows, &plot), 0);
	assert_int_equal(plot->panels[0].series[0].n, RF_ARRAY_SIZE(expected));
	assert_memory_equal(plot->panels[0].series[0].points, expected, sizeof(expected));
	assert_true(plot->panels[2].series[0].points[0].value == 30);
	free(plot);
	json_decref(rows);
}

static void test_drawing(void **state RF_UNUSED)
{
	static const char *const expected[] = {
		/* 572 columns for a factor of 64, 290 rows for 2.5 GB/s. */
		"<polyline points=\"88.0,278.0 374.0,220.0 660.0,104.0\" fill=\"none\"",
		">bytes per message</text>",
		">GB/s</text>",
		">1 stream, a&lt;b</text>",
		">4K</text>",
		">median round trip, µs</text>",
		">30.0</text>",
	};
	json_t *rows = rows_new();
	char *first, *second;
	struct rf_bench_plot *plot;

	assert_int_equal(rf_bench_plot_read(rows, &plot), 0);
	first = draw(plot);
	second = draw(plot);
	assert_string_equal(first, second);
	for (size_t i = 0; i < RF_ARRAY_SIZE(expected); i++)
		if (!strstr(first, expected[i]))
			fail_msg("row %zu, %s, is not in: %s", i, expected[i], first);
	free(first);
	free(second);
	free(plot);
	json_decref(rows);
}

/* Rates that lie far apart make a logarithmic axis; its lines are at 1, 2 and 5. */
static void test_logarithmic(void **state RF_UNUSED)
{
	json_t *rows = json_pack("[{s:i, s:f}, {s:i, s:f}]", "size", 64, "gbps", 0.03, "size",
				 65536, "gbps", 6.0);
	struct rf_bench_plot *plot;
	char *text;

	assert_int_equal(rf_bench_plot_read(rows, &plot), 0);
	text = draw(plot);
	assert_non_null(strstr(text, ">GB/s (logarithmic)</text>"));
	assert_non_null(strstr(text, ">0.02</text>"));
	assert_non_null(strstr(text, ">10</text>"));
	assert_null(strstr(text, ">0.01</text>"));
	free(text);
	free(plot);
	json_decref(rows);
}

static json_t *many(const char *key, size_t n)
{
	json_t *rows = json_array();

	for (size_t i = 0; i < n; i++) {
		json_t *row = json_pack("{s:s,s:i,s:s,s:f}", "bench", "stream", "size", 64,
					"variant", "a", "gbps", 1.0);
		char text[32];

		snprintf(text, sizeof(text), "%zu", i);
		if (!strcmp(key, "size"))
			json_object_set_new(row, key, json_integer((json_int_t)i + 1));
		else
			json_object_set_new(row, key, json_string(text));
		json_array_append_new(rows, row);
	}
	return rows;
}

static void test_too_much(void **state RF_UNUSED)
{
	static const struct {
		const char *key;
		size_t n;
		int expected;
	} cases[] = {
		{ "size", 0, -ENODATA },
		{ "size", RF_BENCH_PLOT_POINTS, 0 },
		{ "size", RF_BENCH_PLOT_POINTS + 1, -E2BIG },
		{ "variant", RF_BENCH_PLOT_SERIES, 0 },
		{ "variant", RF_BENCH_PLOT_SERIES + 1, -E2BIG },
		{ "dir", RF_BENCH_PLOT_PANELS, 0 },
		{ "dir", RF_BENCH_PLOT_PANELS + 1, -E2BIG },
	};

	for (size_t i = 0; i < RF_ARRAY_SIZE(cases); i++) {
		json_t *rows = many(cases[i].key, cases[i].n);
		struct rf_bench_plot *plot = NULL;
		int r = rf_bench_plot_read(rows, &plot);

		if (r != cases[i].expected)
			fail_msg("row %zu: %d", i, r);
		if (plot)
			free(draw(plot));
		free(plot);
		json_decref(rows);
	}
}

static void test_sizes(void **state RF_UNUSED)
{
	static const struct {
		double bytes;
		const char *expected;
	} cases[] = { { 64, "64" },       { 1024, "1K" },    { 1500, "1500" },
		      { 131072, "128K" }, { 1048576, "1M" }, { 1536, "1536" } };
	char text[32];

	for (size_t i = 0; i < RF_ARRAY_SIZE(cases); i++)
		assert_string_equal(rf_bench_plot_size(cases[i].bytes, text, sizeof(text)),
				    cases[i].expected);
}

static void test_file(void **state RF_UNUSED)
{
	json_t *rows = rows_new();

	assert_int_equal(rf_bench_plot_file(rows, "/nonexistent/plot.svg"), -ENOENT);
	assert_int_equal(rf_bench_plot_file(rows, "/dev/null"), 0);
	assert_int_equal(rf_bench_plot_file(rows, "/dev/full"), -ENOSPC);
	json_decref(rows);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_panels),   cmocka_unit_test(test_points_in_order),
		cmocka_unit_test(test_drawing),  cmocka_unit_test(test_logarithmic),
		cmocka_unit_test(test_too_much), cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
