/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Drawing: panels one below the other, each with a title, axes, a light grid, and its legend on the
 * right. All figures are printed with a fixed number of digits, so that equal rows give equal
 * files.
 */
#include <math.h>
#include <string.h>

#include "base/util.h"
#include "plot.h"

#define WIDTH        960.0
#define PANEL_HEIGHT 400.0
#define LEFT         74.0
#define PLOT_WIDTH   600.0
#define TOP          46.0
#define PLOT_HEIGHT  290.0
#define LEGEND_X     (LEFT + PLOT_WIDTH + 24)
#define LEGEND_STEP  20.0
#define BAR_MAX      34.0
#define MAX_SIZES    ((size_t)RF_BENCH_PLOT_POINTS * 2)
/* A rate's axis is logarithmic when the largest value is so many times the smallest. */
#define LOG_FROM 20.0

/* Okabe and Ito's colours, which colour-blind people can tell apart; then dashes. */
static const char *const colours[] = { "#0072b2", "#d55e00", "#009e73", "#cc79a7",
				       "#e69f00", "#56b4e9", "#000000", "#8a8a8a" };
static const char *const dashes[] = { "none", "7 4", "2 3" };

/**
 * struct axes - Where values lie in a panel
 * @top:	Of the panel
 * @sizes:	All sizes in it, in order
 * @n_sizes:	Their number
 * @low, @high:	Ends of the vertical axis
 * @log:	It is logarithmic
 */
struct axes {
	double top;
	double sizes[MAX_SIZES];
	size_t n_sizes;
	double low, high;
	bool log;
};

char *rf_bench_plot_size(double bytes, char *buf, size_t buf_bytes)
{
	static const char *const units[] = { "", "K", "M", "G" };
	size_t unit = 0;

	while (bytes >= 1024 && fmod(bytes, 1024) == 0 && unit + 1 < RF_ARRAY_SIZE(units)) {
		bytes /= 1024;
		unit++;
	}
	snprintf(buf, buf_bytes, "%.0f%s", bytes, units[unit]);
	return buf;
}

static void put_text(FILE *file, const char *text)
{
	for (; *text; text++)
		if (*text == '<')
			fputs("&lt;", file);
		else if (*text == '>')
			fputs("&gt;", file);
		else if (*text == '&')
			fputs("&amp;", file);
		else if ((unsigned char)*text >= ' ')
			fputc(*text, file);
}

/* @anchor: start, middle, end. */
static void label(FILE *file, double x, double y, const char *anchor, const char *text)
{
	fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
	put_text(file, text);
	fputs("</text>\n", file);
}

static void line(FILE *file, double x1, double y1, double x2, double y2, const char *colour)
{
	fprintf(file, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", x1,
		y1, x2, y2, colour);
}

/* Times a power of ten: what stands at the lines of a scale. */
static const double steps[] = { 1, 2, 5 };

/* The smallest 1, 2 or 5 times a power of ten that is not below @value. */
static double round_up(double value)
{
	double power = pow(10, floor(log10(value)));

	for (size_t i = 0; i < RF_ARRAY_SIZE(steps); i++)
		if (steps[i] * power >= value * 0.999999)
			return steps[i] * power;
	return 10 * power;
}

static double round_down(double value)
{
	double up = round_up(value);
	double first = round(up / pow(10, floor(log10(up) + 1e-9)));

	if (up <= value * 1.000001)
		return up;
	return first == 5 ? up / 2.5 : up / 2;
}

static void add_size(struct axes *axes, double size)
{
	size_t i = 0;

	while (i < axes->n_sizes && axes->sizes[i] < size)
		i++;
	if (axes->n_sizes == MAX_SIZES || (i < axes->n_sizes && axes->sizes[i] == size))
		return;
	memmove(&axes->sizes[i + 1], &axes->sizes[i], (axes->n_sizes - i) * sizeof(double));
	axes->sizes[i] = size;
	axes->n_sizes++;
}

static struct axes axes_of(const struct rf_bench_plot_panel *panel, double top)
{
	struct axes axes = { .top = top };
	double min = HUGE_VAL, max = 0;

	for (size_t s = 0; s < panel->n; s++)
		for (size_t p = 0; p < panel->series[s].n; p++) {
			const struct rf_bench_plot_point *point = &panel->series[s].points[p];

			add_size(&axes, point->size);
			min = fmin(min, point->value);
			max = fmax(max, point->value);
		}
	axes.log = !panel->bars && max >= LOG_FROM * min;
	if (axes.log) {
		axes.low = round_down(min);
		axes.high = round_up(max);
	} else {
		double step = round_up(max * 1.02 / 6);

		axes.high = step * ceil(max * 1.02 / step);
	}
	return axes;
}

static double y_of(const struct axes *axes, double value)
{
	double part = axes->log ? log(value / axes->low) / log(axes->high / axes->low)
				: value / axes->high;

	return axes->top + TOP + PLOT_HEIGHT * (1 - part);
}

static double x_of(const struct axes *axes, double size)
{
	double first = axes->sizes[0], last = axes->sizes[axes->n_sizes - 1];

	if (axes->n_sizes == 1)
		return LEFT + PLOT_WIDTH / 2;
	return LEFT + 14 + (PLOT_WIDTH - 28) * log2(size / first) / log2(last / first);
}

static void horizontal(FILE *file, const struct axes *axes, double value)
{
	double y = y_of(axes, value);
	char text[32];

	snprintf(text, sizeof(text), "%g", round(value * 1e6) * 1e-6);
	line(file, LEFT, y, LEFT + PLOT_WIDTH, y, "#dddddd");
	label(file, LEFT - 8, y + 4, "end", text);
}

static void draw_scale(FILE *file, const struct axes *axes)
{
	double step = round_up(axes->high / 6);
	double power = axes->log ? pow(10, floor(log10(axes->low) + 1e-9)) : 1;

	if (!axes->log) {
		for (unsigned i = 0; i * step <= axes->high * 1.000001; i++)
			horizontal(file, axes, i * step);
		return;
	}
	while (power <= axes->high * 1.000001) {
		for (size_t i = 0; i < RF_ARRAY_SIZE(steps); i++)
			if (steps[i] * power >= axes->low * 0.999999 &&
			    steps[i] * power <= axes->high * 1.000001)
				horizontal(file, axes, steps[i] * power);
		power *= 10;
	}
}

static void draw_axes(FILE *file, const struct axes *axes, const struct rf_bench_plot_panel *panel)
{
	double bottom = axes->top + TOP + PLOT_HEIGHT, middle = axes->top + TOP + PLOT_HEIGHT / 2;
	const char *what = panel->bars ? "median round trip, µs"
			   : axes->log ? "GB/s (logarithmic)"
				       : "GB/s";

	fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"15\" font-weight=\"bold\">", LEFT,
		axes->top + 28);
	put_text(file, panel->title);
	fputs("</text>\n", file);
	draw_scale(file, axes);
	line(file, LEFT, axes->top + TOP, LEFT, bottom, "#555555");
	line(file, LEFT, bottom, LEFT + PLOT_WIDTH, bottom, "#555555");
	label(file, LEFT + PLOT_WIDTH / 2, bottom + 40, "middle", "bytes per message");
	fprintf(file,
		"<text transform=\"translate(%.1f %.1f) rotate(-90)\" text-anchor=\"middle\">%s"
		"</text>\n",
		18.0, middle, what);
}

static void draw_sizes(FILE *file, const struct axes *axes)
{
	double bottom = axes->top + TOP + PLOT_HEIGHT, room = -HUGE_VAL;
	char text[32];

	for (size_t i = 0; i < axes->n_sizes; i++) {
		double x = x_of(axes, axes->sizes[i]);

		line(file, x, axes->top + TOP, x, bottom, "#eeeeee");
		/* Numbers that would touch are left out. */
		if (x < room)
			continue;
		label(file, x, bottom + 18, "middle",
		      rf_bench_plot_size(axes->sizes[i], text, sizeof(text)));
		room = x + 34;
	}
}

static const char *colour_of(size_t series)
{
	return colours[series % RF_ARRAY_SIZE(colours)];
}

static void draw_marker(FILE *file, size_t series, double x, double y)
{
	switch (series % 3) {
	case 0:
		fprintf(file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>\n", x, y,
			colour_of(series));
		break;
	case 1:
		fprintf(file,
			"<rect x=\"%.1f\" y=\"%.1f\" width=\"6.4\" height=\"6.4\" fill=\"%s\"/>\n",
			x - 3.2, y - 3.2, colour_of(series));
		break;
	default:
		fprintf(file, "<path d=\"M%.1f %.1fl4.2 7.4h-8.4z\" fill=\"%s\"/>\n", x, y - 4.6,
			colour_of(series));
	}
}

static void draw_stroke(FILE *file, size_t series)
{
	fprintf(file, "fill=\"none\" stroke=\"%s\" stroke-width=\"2\" stroke-dasharray=\"%s\"/>\n",
		colour_of(series), dashes[series / RF_ARRAY_SIZE(colours) % RF_ARRAY_SIZE(dashes)]);
}

static void draw_lines(FILE *file, const struct axes *axes, const struct rf_bench_plot_panel *panel)
{
	for (size_t s = 0; s < panel->n; s++) {
		const struct rf_bench_plot_series *series = &panel->series[s];

		fputs("<polyline points=\"", file);
		for (size_t p = 0; p < series->n; p++)
			fprintf(file, "%s%.1f,%.1f", p ? " " : "",
				x_of(axes, series->points[p].size),
				y_of(axes, series->points[p].value));
		fputs("\" ", file);
		draw_stroke(file, s);
		for (size_t p = 0; p < series->n; p++)
			draw_marker(file, s, x_of(axes, series->points[p].size),
				    y_of(axes, series->points[p].value));
	}
}

static void draw_bar(FILE *file, const struct axes *axes, size_t series, double x, double width,
		     double value)
{
	double y = y_of(axes, value);
	char text[32];

	fprintf(file, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n",
		x, y, width * 0.88, axes->top + TOP + PLOT_HEIGHT - y, colour_of(series));
	snprintf(text, sizeof(text), value < 100 ? "%.1f" : "%.0f", value);
	if (width >= 20)
		label(file, x + width * 0.44, y - 4, "middle", text);
}

static void draw_bars(FILE *file, const struct axes *axes, const struct rf_bench_plot_panel *panel)
{
	double bottom = axes->top + TOP + PLOT_HEIGHT, group = PLOT_WIDTH / (double)axes->n_sizes;
	double width = fmin(BAR_MAX, group * 0.86 / (double)panel->n);
	char text[32];

	for (size_t i = 0; i < axes->n_sizes; i++) {
		double middle = LEFT + group * ((double)i + 0.5);
		double x = middle - width * (double)panel->n / 2;

		label(file, middle, bottom + 18, "middle",
		      rf_bench_plot_size(axes->sizes[i], text, sizeof(text)));
		for (size_t s = 0; s < panel->n; s++)
			for (size_t p = 0; p < panel->series[s].n; p++)
				if (panel->series[s].points[p].size == axes->sizes[i])
					draw_bar(file, axes, s, x + width * (double)s, width,
						 panel->series[s].points[p].value);
	}
}

static void draw_legend(FILE *file, const struct axes *axes,
			const struct rf_bench_plot_panel *panel)
{
	for (size_t s = 0; s < panel->n; s++) {
		double y = axes->top + TOP + 8 + LEGEND_STEP * (double)s;

		if (panel->bars) {
			fprintf(file,
				"<rect x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"10\" "
				"fill=\"%s\"/>\n",
				LEGEND_X + 8, y - 5, colour_of(s));
		} else {
			fprintf(file, "<path d=\"M%.1f %.1fh28\" ", LEGEND_X, y);
			draw_stroke(file, s);
			draw_marker(file, s, LEGEND_X + 14, y);
		}
		label(file, LEGEND_X + 36, y + 4, "start", panel->series[s].label);
	}
}

static double panel_height(const struct rf_bench_plot_panel *panel)
{
	return fmax(PANEL_HEIGHT, TOP + 30 + LEGEND_STEP * (double)panel->n);
}

void rf_bench_plot_draw(const struct rf_bench_plot *plot, FILE *file)
{
	double height = 0, top = 0, width = WIDTH;

	for (size_t i = 0; i < plot->n; i++) {
		height += panel_height(&plot->panels[i]);
		/* A letter is about 6.6 wide. */
		for (size_t s = 0; s < plot->panels[i].n; s++)
			width = fmax(width,
				     LEGEND_X + 46 +
					     6.6 * (double)strlen(plot->panels[i].series[s].label));
	}
	fprintf(file,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
		"viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" font-size=\"12\" "
		"fill=\"#222222\">\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
		width, height, width, height);
	for (size_t i = 0; i < plot->n; i++) {
		const struct rf_bench_plot_panel *panel = &plot->panels[i];
		struct axes axes = axes_of(panel, top);

		draw_axes(file, &axes, panel);
		if (panel->bars) {
			draw_bars(file, &axes, panel);
		} else {
			draw_sizes(file, &axes);
			draw_lines(file, &axes, panel);
		}
		draw_legend(file, &axes, panel);
		top += panel_height(panel);
	}
	fputs("</svg>\n", file);
}
