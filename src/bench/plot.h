/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A picture of a run: its rows, as they stand in the JSON file, drawn as an SVG file.
 *
 * Rates become lines over the size of messages (logarithmic), round-trip times groups of bars. Each
 * direction has a panel of its own. The same rows always give the same bytes.
 */
#ifndef RF_BENCH_PLOT_H
#define RF_BENCH_PLOT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define RF_BENCH_PLOT_PANELS 12
#define RF_BENCH_PLOT_SERIES 24
#define RF_BENCH_PLOT_POINTS 40
#define RF_BENCH_PLOT_LABEL  96

/**
 * struct rf_bench_plot_point - One value
 * @size:	Bytes per message
 * @value:	GB/s, or microseconds
 */
struct rf_bench_plot_point {
	double size;
	double value;
};

/**
 * struct rf_bench_plot_series - One line, or the bars of one colour
 * @label:	For the legend
 * @points:	In the order of their sizes
 * @n:		Their number
 */
struct rf_bench_plot_series {
	char label[RF_BENCH_PLOT_LABEL];
	struct rf_bench_plot_point points[RF_BENCH_PLOT_POINTS];
	size_t n;
};

/**
 * struct rf_bench_plot_panel - One pair of axes
 * @title:	Above it
 * @bars:	Round-trip times in microseconds, as bars; otherwise GB/s, as lines
 * @series:	In the order in which their first rows stand
 * @n:		Their number
 */
struct rf_bench_plot_panel {
	char title[RF_BENCH_PLOT_LABEL];
	bool bars;
	struct rf_bench_plot_series series[RF_BENCH_PLOT_SERIES];
	size_t n;
};

struct rf_bench_plot {
	struct rf_bench_plot_panel panels[RF_BENCH_PLOT_PANELS];
	size_t n;
};

/**
 * rf_bench_plot_read() - Sort the rows of a run into panels and series
 * @rows:	JSON array of rows; those without a size or a figure are left out
 * @ret_plot:	Result, to be freed with free()
 *
 * Return: 0, -ENODATA if no row has a figure, -E2BIG if there are more panels, series or sizes than
 * fit into a readable picture, -ENOMEM.
 */
int rf_bench_plot_read(const json_t *rows, struct rf_bench_plot **ret_plot);

/**
 * rf_bench_plot_draw() - Write the picture
 * @plot:	What to draw
 * @file:	Written to; the caller checks ferror()
 */
void rf_bench_plot_draw(const struct rf_bench_plot *plot, FILE *file);

/**
 * rf_bench_plot_file() - Draw the rows of a run into a file
 * @rows:	As for rf_bench_plot_read()
 * @path:	Created or overwritten
 *
 * Return: 0, or as rf_bench_plot_read(), or the -errno of writing the file.
 */
int rf_bench_plot_file(const json_t *rows, const char *path);

/* A size in bytes as people write it: "64", "4K", "1M". Return: @buf. */
char *rf_bench_plot_size(double bytes, char *buf, size_t buf_bytes);

#endif
