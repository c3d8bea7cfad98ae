/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Figures that others have published about the same mechanisms in Linux, to stand beside ours.
 *
 * They were measured on other machines, with virtual machines and with other programs: what may be
 * compared is the ratio of a step to the figure before it.
 */
#ifndef RF_BENCH_PUBLISHED_H
#define RF_BENCH_PUBLISHED_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "bench/run.h"

#define RF_BENCH_PUBLISHED_STEPS 4u

/**
 * struct rf_bench_published_step - One column
 * @name:	What was changed
 * @variant:	What recreates it here, as rf_bench_variant_parse() takes it; each column has all
 *		that is not the default
 */
struct rf_bench_published_step {
	const char *name;
	const char *variant;
};

/**
 * struct rf_bench_published_line - Figures for one size
 * @size:	Bytes per message
 * @streams:	Connections at once
 * @values:	One per step, in the table's unit; 0 if none was published
 */
struct rf_bench_published_line {
	uint32_t size;
	unsigned streams;
	double values[RF_BENCH_PUBLISHED_STEPS];
};

/**
 * struct rf_bench_published - One table
 * @preset:	Preset that it belongs to
 * @title:	What is measured
 * @source:	Title and date of the patches
 * @unit:	Of the figures
 * @latency:	Mean round trips: less is better; otherwise rates
 * @dir:	Direction
 * @steps:	Columns; the first one is "before"
 * @n_steps:	Their number
 * @lines:	Lines
 * @n_lines:	Their number
 */
struct rf_bench_published {
	const char *preset;
	const char *title;
	const char *source;
	const char *unit;
	bool latency;
	enum rf_bench_dir dir;
	struct rf_bench_published_step steps[RF_BENCH_PUBLISHED_STEPS];
	size_t n_steps;
	const struct rf_bench_published_line *lines;
	size_t n_lines;
};

extern const struct rf_bench_published rf_bench_published[];
extern const size_t rf_bench_n_published;

struct rf_bench;
struct rf_bench_row;

/**
 * rf_bench_preset() - Measure what the published tables of the preset in the options measured
 *
 * Switches come from the tables; sizes and directions of the options narrow what is measured, the
 * rest of them is as for other measurements. Prints each table beside ours.
 *
 * Return: 0, or -errno after saying what failed.
 */
int rf_bench_preset(struct rf_bench *bench);

/**
 * rf_bench_published_print() - Print a published table beside our rows
 * @table:	Table
 * @rows:	Ours; those of its steps are found by part, direction, size, streams and name
 * @n_rows:	Their number
 * @file:	Where to
 */
void rf_bench_published_print(const struct rf_bench_published *table,
			      struct rf_bench_row *const *rows, size_t n_rows, FILE *file);

#endif
