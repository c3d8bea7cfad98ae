/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * src/bench/published.c and preset.c: the tables hold together, and are printed beside rows.
 */
#include "published.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "row.h"

/* Each step can be measured: its switches exist. Names are those of no other step of the table. */
static void test_steps(void **state RF_UNUSED)
{
	for (size_t i = 0; i < rf_bench_n_published; i++) {
		const struct rf_bench_published *table = &rf_bench_published[i];
		struct rf_bench_variant variants[RF_BENCH_PUBLISHED_STEPS];
		char wrong[RF_BENCH_WRONG_BYTES];

		assert_in_range(table->n_steps, 2, RF_BENCH_PUBLISHED_STEPS);
		for (size_t s = 0; s < table->n_steps; s++) {
			if (rf_bench_variant_parse(table->steps[s].variant, &variants[s], wrong) <
			    0)
				fail_msg("%s, step %zu: %s", table->title, s, wrong);
			assert_int_equal(variants[s].kind, RF_BENCH_OURS);
			for (size_t other = 0; other < s; other++)
				assert_string_not_equal(variants[s].name, variants[other].name);
		}
	}
}

/*
 * Lines of as many streams stand together, in the order of their sizes; all that was told is > 0.
 */
static void test_lines(void **state RF_UNUSED)
{
	for (size_t i = 0; i < rf_bench_n_published; i++) {
		const struct rf_bench_published *table = &rf_bench_published[i];

		assert_in_range(table->n_lines, 1, RF_BENCH_MAX_SIZES);
		for (size_t k = 0; k < table->n_lines; k++) {
			const struct rf_bench_published_line *line = &table->lines[k];

			for (size_t s = 0; s < RF_BENCH_PUBLISHED_STEPS; s++)
				assert_int_equal(line->values[s] > 0, s < table->n_steps);
			if (k > 0)
				assert_true(line->streams > line[-1].streams ||
					    (line->streams == line[-1].streams &&
					     line->size > line[-1].size));
		}
	}
}

/* Some figures by hand, from the published mails. */
static void test_figures(void **state RF_UNUSED)
{
	static const struct {
		const char *preset;
		bool latency;
		enum rf_bench_dir dir;
		uint32_t size;
		unsigned streams;
		double first, last;
	} cases[] = {
		{ "published-a", true, RF_BENCH_G2H, 512, 1, 17.35, 14.11 },
		{ "published-a", true, RF_BENCH_G2H, 4096, 1, 19.87, 14.96 },
		{ "published-a", false, RF_BENCH_G2H, 65536, 2, 32.8, 47.7 },
		{ "published-a", false, RF_BENCH_G2H, 131072, 4, 34.2, 50.5 },
		{ "published-b", false, RF_BENCH_H2G, 64, 1, 0.060, 0.096 },
		{ "published-b", false, RF_BENCH_H2G, 65536, 1, 13.5, 21.4 },
		{ "published-b", false, RF_BENCH_G2H, 65536, 1, 8.3, 25.4 },
		{ "published-b", false, RF_BENCH_G2H, 524288, 1, 7.7, 25.0 },
	};

	for (size_t i = 0; i < RF_ARRAY_SIZE(cases); i++) {
		unsigned found = 0;

		for (size_t t = 0; t < rf_bench_n_published; t++) {
			const struct rf_bench_published *table = &rf_bench_published[t];

			if (strcmp(table->preset, cases[i].preset) != 0 ||
			    table->latency != cases[i].latency || table->dir != cases[i].dir)
				continue;
			for (size_t k = 0; k < table->n_lines; k++)
				found +=
					table->lines[k].size == cases[i].size &&
					table->lines[k].streams == cases[i].streams &&
					table->lines[k].values[0] == cases[i].first &&
					table->lines[k].values[table->n_steps - 1] == cases[i].last;
		}
		if (!found)
			fail_msg("row %zu is in no table", i);
	}
}

static void test_presets(void **state RF_UNUSED)
{
	char wrong[RF_BENCH_WRONG_BYTES] = "";

	assert_int_equal(rf_bench_preset_parse("published-a", wrong), 0);
	assert_int_equal(rf_bench_preset_parse("published-b", wrong), 0);
	assert_string_equal(wrong, "");
	assert_int_equal(rf_bench_preset_parse("published-c", wrong), -EINVAL);
	assert_string_equal(wrong, "published-a, published-b");
}

static struct rf_bench_row *row_new(const char *bench, uint32_t size, const char *variant,
				    double value)
{
	struct rf_bench_row *row = calloc(1, sizeof(*row));

	assert_non_null(row);
	row->bench = bench;
	row->dir = RF_BENCH_G2H;
	row->size = size;
	row->streams = 1;
	row->latency = !strcmp(bench, "pingpong");
	row->n_samples = 1;
	if (row->latency)
		row->samples[0].latency.mean = value;
	else
		row->samples[0].gbps = value;
	snprintf(row->variant, sizeof(row->variant), "%s", variant);
	return row;
}

/*
 * Rows of other parts, sizes and names are passed over; sizes that were not measured are left out.
 */
static void test_print(void **state RF_UNUSED)
{
	static const struct rf_bench_published_line lines[] = { { 64, 1, { 2, 3, 1 } },
								{ 512, 1, { 4, 2, 0 } },
								{ 4096, 1, { 5, 6, 7 } } };
	struct rf_bench_published table = {
		.title = "toys",
		.source = "a toy shop",
		.unit = "Gb/s",
		.dir = RF_BENCH_G2H,
		.steps = { { "before", "old:credit=eager" }, { "after", "new" }, { "last", "x" } },
		.n_steps = 3,
		.lines = lines,
		.n_lines = RF_ARRAY_SIZE(lines),
	};
	struct rf_bench_row *rows[] = {
		row_new("stream", 64, "new", 1.5),     row_new("stream", 64, "old", 1),
		row_new("stream", 512, "old", 4),      row_new("stream", 512, "newer", 9),
		row_new("pingpong", 512, "old", 8000), row_new("pingpong", 512, "new", 6000),
		row_new("stream", 1024, "old", 4),
	};
	char *text = NULL;
	size_t bytes;
	FILE *file = open_memstream(&text, &bytes);

	assert_non_null(file);
	rf_bench_published_print(&table, rows, RF_ARRAY_SIZE(rows), file);
	table.latency = true;
	table.unit = "us";
	rf_bench_published_print(&table, rows, RF_ARRAY_SIZE(rows), file);
	assert_int_equal(fclose(file), 0);
	for (size_t i = 0; i < RF_ARRAY_SIZE(rows); i++)
		free(rows[i]);
	assert_string_equal(text,
			    "\ntoys\npublished: a toy shop\n"
			    "  bytes streams                          before                 after"
			    "                  last\n"
			    "     64       1 GB/s here                     1          1.5 (x 1.50)"
			    "                     -\n"
			    "                     Gb/s                     2            3 (x 1.50)"
			    "            1 (x 0.50)\n"
			    "    512       1 GB/s here                     4                     -"
			    "                     -\n"
			    "                     Gb/s                     4            2 (x 0.50)"
			    "                     -\n"
			    "\ntoys\npublished: a toy shop\n"
			    "  bytes streams                          before                 after"
			    "                  last\n"
			    "    512       1   us here                     8            6 (x 0.75)"
			    "                     -\n"
			    "                       us                     4            2 (x 0.50)"
			    "                     -\n");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_steps),   cmocka_unit_test(test_lines),
		cmocka_unit_test(test_figures), cmocka_unit_test(test_presets),
		cmocka_unit_test(test_print),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
