/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Presets: what others have published is measured here, and printed side by side.
 */
#include <errno.h>
#include <string.h>

#include "lab.h"
#include "published.h"

/* Long names of switches do not fit into a column's head. */
#define COLUMN 22

static const char *part_of(const struct rf_bench_published *table)
{
	return table->latency ? "pingpong" : "stream";
}

/* The name in "NAME:key=value". */
static void variant_name(const struct rf_bench_published_step *step, char *name)
{
	snprintf(name, RF_BENCH_NAME_BYTES, "%.*s", (int)strcspn(step->variant, ":"),
		 step->variant);
}

static struct rf_bench_row *find_row(const struct rf_bench_published *table,
				     const struct rf_bench_published_line *line, size_t step,
				     struct rf_bench_row *const *rows, size_t n_rows)
{
	char name[RF_BENCH_NAME_BYTES];

	variant_name(&table->steps[step], name);
	for (size_t i = 0; i < n_rows; i++) {
		struct rf_bench_row *row = rows[i];

		if (!strcmp(row->bench, part_of(table)) && !strcmp(row->variant, name) &&
		    row->size == line->size && row->streams == line->streams &&
		    (table->latency || row->dir == table->dir))
			return row;
	}
	return NULL;
}

static double our_value(const struct rf_bench_row *row)
{
	if (!row)
		return 0;
	return row->latency ? rf_bench_row_latency(row).mean * 1e-3 : rf_bench_row_stat(row).median;
}

/* A value and how it compares with the first one of its line. */
static void print_value(FILE *file, double value, double first, bool is_first)
{
	char text[32] = "-";

	if (value > 0 && (is_first || first <= 0))
		snprintf(text, sizeof(text), "%.4g", value);
	else if (value > 0)
		snprintf(text, sizeof(text), "%.4g (x %.2f)", value, value / first);
	fprintf(file, "%*s", COLUMN, text);
}

static void print_head(const struct rf_bench_published *table, FILE *file)
{
	fprintf(file, "\n%s\npublished: %s\n%7s %7s %9s", table->title, table->source, "bytes",
		"streams", "");
	for (size_t s = 0; s < table->n_steps; s++)
		fprintf(file, "%*s", COLUMN, table->steps[s].name);
	fputc('\n', file);
}

void rf_bench_published_print(const struct rf_bench_published *table,
			      struct rf_bench_row *const *rows, size_t n_rows, FILE *file)
{
	print_head(table, file);
	for (size_t i = 0; i < table->n_lines; i++) {
		const struct rf_bench_published_line *line = &table->lines[i];
		double ours[RF_BENCH_PUBLISHED_STEPS] = { 0 }, any = 0;

		for (size_t s = 0; s < table->n_steps; s++) {
			ours[s] = our_value(find_row(table, line, s, rows, n_rows));
			any += ours[s];
		}
		if (any <= 0)
			continue;
		fprintf(file, "%7u %7u %9s", line->size, line->streams,
			table->latency ? "us here" : "GB/s here");
		for (size_t s = 0; s < table->n_steps; s++)
			print_value(file, ours[s], ours[0], s == 0);
		fprintf(file, "\n%15s %9s", "", table->unit);
		for (size_t s = 0; s < table->n_steps; s++)
			print_value(file, line->values[s], line->values[0], s == 0);
		fputc('\n', file);
	}
}

static bool wanted(const struct rf_bench_options *asked, uint32_t size)
{
	for (unsigned i = 0; i < asked->n_sizes; i++)
		if (asked->sizes[i] == size)
			return true;
	return !asked->n_sizes;
}

/* The sizes of the table's lines with so many streams, as far as they are asked for. */
static void sizes_of(const struct rf_bench_published *table, const struct rf_bench_options *asked,
		     struct rf_bench_options *options)
{
	options->n_sizes = 0;
	for (size_t i = 0; i < table->n_lines; i++)
		if (table->lines[i].streams == options->streams &&
		    wanted(asked, table->lines[i].size))
			options->sizes[options->n_sizes++] = table->lines[i].size;
}

static int variants_of(const struct rf_bench_published *table, struct rf_bench_options *options)
{
	char wrong[RF_BENCH_WRONG_BYTES];
	int r = 0;

	options->n_variants = 0;
	for (size_t s = 0; s < table->n_steps && !r; s++) {
		r = rf_bench_variant_parse(table->steps[s].variant,
					   &options->variants[options->n_variants++], wrong);
		if (r < 0)
			return rf_bench_error(EPROTO, "%s: %s", table->steps[s].variant, wrong);
	}
	return 0;
}

static int run_part(struct rf_bench *bench, const char *name)
{
	for (const struct rf_bench_part *part = rf_bench_parts; part->name; part++)
		if (!strcmp(part->name, name))
			return part->run(bench);
	return rf_bench_error(ENOENT, "no part %s", name);
}

static int run_table(struct rf_bench *bench, const struct rf_bench_published *table)
{
	const struct rf_bench_options *asked = bench->options;
	struct rf_bench_options options = *asked;
	unsigned streams = 0;
	int r;

	options.part = part_of(table);
	options.dirs = table->dir;
	/* cppcheck-suppress autoVariables ; as long as this function runs */
	bench->options = &options;
	r = variants_of(table, &options);
	/* Lines are in the order of their streams. */
	for (size_t i = 0; i < table->n_lines && !r; i++) {
		if (table->lines[i].streams == streams)
			continue;
		streams = options.streams = table->lines[i].streams;
		sizes_of(table, asked, &options);
		if (options.n_sizes)
			r = run_part(bench, options.part);
	}
	bench->options = asked;
	return r;
}

/* For readers of the JSON file. */
static void note_published(struct rf_bench *bench, const struct rf_bench_published *table)
{
	for (size_t i = 0; i < table->n_lines; i++)
		for (size_t s = 0; s < table->n_steps; s++) {
			const struct rf_bench_published_line *line = &table->lines[i];
			struct rf_bench_row *row =
				find_row(table, line, s, bench->rows, bench->n_rows);

			if (row && !row->extra && line->values[s] > 0)
				row->extra = json_pack("{s:f, s:s}", "published", line->values[s],
						       "published_unit", table->unit);
		}
}

int rf_bench_preset_parse(const char *name, char *ret_wrong)
{
	size_t used = 0;

	for (size_t i = 0; i < rf_bench_n_published; i++)
		if (!strcmp(rf_bench_published[i].preset, name))
			return 0;
	for (size_t i = 0; i < rf_bench_n_published && used < RF_BENCH_WRONG_BYTES; i++)
		if (!i ||
		    strcmp(rf_bench_published[i].preset, rf_bench_published[i - 1].preset) != 0)
			used += (size_t)snprintf(ret_wrong + used, RF_BENCH_WRONG_BYTES - used,
						 "%s%s", i ? ", " : "",
						 rf_bench_published[i].preset);
	return -EINVAL;
}

static bool selected(const struct rf_bench *bench, const struct rf_bench_published *table)
{
	return !strcmp(table->preset, bench->options->preset) &&
	       (table->latency || (bench->options->dirs & table->dir));
}

int rf_bench_preset(struct rf_bench *bench)
{
	int r = 0;

	for (size_t i = 0; i < rf_bench_n_published && !r; i++)
		if (selected(bench, &rf_bench_published[i]))
			r = run_table(bench, &rf_bench_published[i]);
	for (size_t i = 0; i < rf_bench_n_published && !r; i++) {
		const struct rf_bench_published *table = &rf_bench_published[i];

		if (!selected(bench, table))
			continue;
		note_published(bench, table);
		rf_bench_published_print(table, bench->rows, bench->n_rows, stdout);
	}
	return r;
}
