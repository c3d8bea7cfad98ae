/* SPDX-License-Identifier: BSD-3-Clause */
#include "plot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

/* What distinguishes the series of a panel; each is named only where it differs. */
static const char *const distinguishing[] = { "bench", "via", "streams" };

static const struct {
	const char *dir;
	const char *title;
} directions[] = {
	{ "g2h", "guest to host" },
	{ "h2g", "host to guest" },
};

static const char *text_of(const json_t *row, const char *key, char *buf, size_t buf_bytes)
{
	const json_t *value = json_object_get(row, key);

	if (json_is_string(value))
		return json_string_value(value);
	if (!json_is_integer(value))
		return "";
	snprintf(buf, buf_bytes, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
	return buf;
}

/* Return: false if the row has nothing to be drawn. */
static bool value_of(const json_t *row, struct rf_bench_plot_point *ret_point, bool *ret_bars)
{
	const json_t *size = json_object_get(row, "size"), *rate = json_object_get(row, "gbps");
	const json_t *median = json_object_get(row, "p50_ns");

	if (!json_is_number(size) || json_number_value(size) < 1)
		return false;
	if (json_is_number(rate) && json_number_value(rate) > 0)
		*ret_point = (struct rf_bench_plot_point){ json_number_value(size),
							   json_number_value(rate) };
	else if (json_is_number(median) && json_number_value(median) > 0)
		*ret_point = (struct rf_bench_plot_point){ json_number_value(size),
							   json_number_value(median) * 1e-3 };
	else
		return false;
	*ret_bars = !json_is_number(rate);
	return true;
}

/* Does a row that is drawn differ from @row in @key, within the same direction and kind? */
static bool differs(const json_t *rows, const json_t *row, const char *key)
{
	char a[32], b[32], c[32], d[32];
	struct rf_bench_plot_point point;
	bool bars, other_bars;
	const json_t *other;
	size_t i;

	(void)value_of(row, &point, &bars);
	json_array_foreach(rows, i, other)
	{
		if (value_of(other, &point, &other_bars) && bars == other_bars &&
		    !strcmp(text_of(row, "dir", a, sizeof(a)),
			    text_of(other, "dir", b, sizeof(b))) &&
		    strcmp(text_of(row, key, c, sizeof(c)), text_of(other, key, d, sizeof(d))) != 0)
			return true;
	}
	return false;
}

static void append(char *label, const char *separator, const char *text, const char *after)
{
	size_t len = strlen(label);

	snprintf(label + len, RF_BENCH_PLOT_LABEL - len, "%s%s%s", len ? separator : "", text,
		 after);
}

static void series_label(const json_t *rows, const json_t *row, char *label)
{
	char buf[32];

	label[0] = '\0';
	for (size_t i = 0; i < RF_ARRAY_SIZE(distinguishing); i++) {
		const char *key = distinguishing[i], *text = text_of(row, key, buf, sizeof(buf));

		if (*text && differs(rows, row, key))
			append(label, ", ", text,
			       strcmp(key, "streams") != 0 ? ""
			       : strcmp(text, "1") != 0    ? " streams"
							   : " stream");
	}
	if (*text_of(row, "variant", buf, sizeof(buf)))
		append(label, ", ", text_of(row, "variant", buf, sizeof(buf)), "");
	if (!label[0])
		append(label, "", text_of(row, "bench", buf, sizeof(buf)), "");
}

static void panel_title(const json_t *rows, const json_t *row, bool bars, char *title)
{
	char buf[32];
	const char *dir = text_of(row, "dir", buf, sizeof(buf));

	title[0] = '\0';
	append(title, "", bars ? "Round trip" : "Throughput", "");
	for (size_t i = 0; i < RF_ARRAY_SIZE(directions); i++)
		if (!strcmp(dir, directions[i].dir))
			dir = directions[i].title;
	if (*dir)
		append(title, ", ", dir, "");
	if (*text_of(row, "via", buf, sizeof(buf)) && !differs(rows, row, "via"))
		append(title, ", via ", text_of(row, "via", buf, sizeof(buf)), "");
}

static struct rf_bench_plot_panel *find_panel(struct rf_bench_plot *plot, const char *title,
					      bool bars)
{
	struct rf_bench_plot_panel *panel;

	for (size_t i = 0; i < plot->n; i++)
		if (plot->panels[i].bars == bars && !strcmp(plot->panels[i].title, title))
			return &plot->panels[i];
	if (plot->n == RF_BENCH_PLOT_PANELS)
		return NULL;
	panel = &plot->panels[plot->n++];
	panel->bars = bars;
	snprintf(panel->title, sizeof(panel->title), "%s", title);
	return panel;
}

static struct rf_bench_plot_series *find_series(struct rf_bench_plot_panel *panel,
						const char *label)
{
	struct rf_bench_plot_series *series;

	for (size_t i = 0; i < panel->n; i++)
		if (!strcmp(panel->series[i].label, label))
			return &panel->series[i];
	if (panel->n == RF_BENCH_PLOT_SERIES)
		return NULL;
	series = &panel->series[panel->n++];
	snprintf(series->label, sizeof(series->label), "%s", label);
	return series;
}

/* Keeps the sizes in order; of two values for one size the last one counts. */
static int add_point(struct rf_bench_plot_series *series, struct rf_bench_plot_point point)
{
	size_t i = 0;

	while (i < series->n && series->points[i].size < point.size)
		i++;
	if (i < series->n && series->points[i].size == point.size) {
		series->points[i] = point;
		return 0;
	}
	if (series->n == RF_BENCH_PLOT_POINTS)
		return -E2BIG;
	memmove(&series->points[i + 1], &series->points[i],
		(series->n - i) * sizeof(series->points[0]));
	series->points[i] = point;
	series->n++;
	return 0;
}

static int add_row(struct rf_bench_plot *plot, const json_t *rows, const json_t *row)
{
	char title[RF_BENCH_PLOT_LABEL], label[RF_BENCH_PLOT_LABEL];
	struct rf_bench_plot_series *series;
	struct rf_bench_plot_panel *panel;
	struct rf_bench_plot_point point;
	bool bars;

	if (!value_of(row, &point, &bars))
		return 0;
	panel_title(rows, row, bars, title);
	series_label(rows, row, label);
	panel = find_panel(plot, title, bars);
	series = panel ? find_series(panel, label) : NULL;
	return series ? add_point(series, point) : -E2BIG;
}

int rf_bench_plot_read(const json_t *rows, struct rf_bench_plot **ret_plot)
{
	struct rf_bench_plot *plot = calloc(1, sizeof(*plot));
	const json_t *row;
	size_t i;
	int r = 0;

	if (!plot)
		return -ENOMEM;
	json_array_foreach(rows, i, row)
	{
		r = add_row(plot, rows, row);
		if (r < 0)
			break;
	}
	if (r == 0 && !plot->n)
		r = -ENODATA;
	if (r < 0)
		free(plot);
	else
		*ret_plot = plot;
	return r;
}

int rf_bench_plot_file(const json_t *rows, const char *path)
{
	struct rf_bench_plot *plot;
	FILE *file;
	int r = rf_bench_plot_read(rows, &plot);

	if (r < 0)
		return r;
	file = fopen(path, "we");
	if (!file) {
		r = -errno;
		goto out;
	}
	errno = 0;
	rf_bench_plot_draw(plot, file);
	if (fflush(file) || ferror(file))
		r = errno ? -errno : -EIO;
	if (fclose(file) && !r)
		r = -errno;
out:
	free(plot);
	return r;
}
