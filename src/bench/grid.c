/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>

#include "parts.h"

const struct rf_bench_part rf_bench_parts[] = {
	{ "stream", "throughput of streams, one way", rf_bench_stream },
	{ "pingpong", "round trips of one message", rf_bench_pingpong },
	{ "limits", "what the machine can do without us", rf_bench_limits },
	{ "conns", "idle connections, and what is left of many", rf_bench_conns },
	{ NULL, NULL, NULL },
};

#define POLL_US   20
#define MAX_USUAL 4u
#define MAX_ALL   (MAX_USUAL + RF_BENCH_MAX_VARIANTS)

static unsigned usual_unix(struct rf_bench_variant *usual, bool latency)
{
	unsigned n = 0;

	rf_bench_variant_init(&usual[n++], "raw", RF_BENCH_RAW);
	/* One message at a time: no buffer is ever full. */
	if (!latency)
		rf_bench_variant_init(&usual[n++], "raw-best", RF_BENCH_RAW_BEST);
	rf_bench_variant_init(&usual[n++], "default", RF_BENCH_OURS);
	return n;
}

/* Each way beside the same copies with nothing around them. */
static unsigned usual_embed(struct rf_bench_variant *usual)
{
	rf_bench_variant_init(&usual[0], "raw", RF_BENCH_RAW);
	rf_bench_variant_init(&usual[1], "other", RF_BENCH_OURS);
	usual[1].host_poll_us = usual[1].guest_poll_us = POLL_US;
	rf_bench_variant_init(&usual[2], "raw-best", RF_BENCH_RAW_BEST);
	rf_bench_variant_init(&usual[3], "same", RF_BENCH_OURS);
	usual[3].guest_poll_us = POLL_US;
	usual[3].same_thread = true;
	return 4;
}

/* Are only back ends of others asked for? They are to stand beside something. */
static bool only_others(const struct rf_bench_options *options)
{
	for (unsigned i = 0; i < options->n_variants; i++)
		if (options->variants[i].kind != RF_BENCH_EXTERNAL &&
		    options->variants[i].kind != RF_BENCH_KERNEL)
			return false;
	return true;
}

/* The variants that are asked for, with those that always make sense if no --variant is given. */
static unsigned variants_of(const struct rf_bench_options *options, bool latency,
			    const struct rf_bench_variant **ret_variants)
{
	static struct rf_bench_variant all[MAX_ALL];
	unsigned n;

	if (!only_others(options)) {
		*ret_variants = options->variants;
		return options->n_variants;
	}
	*ret_variants = all;
	n = options->via == RF_BENCH_EMBED ? usual_embed(all) : usual_unix(all, latency);
	for (unsigned i = 0; i < options->n_variants; i++)
		all[n++] = options->variants[i];
	return n;
}

static struct rf_bench_row *add_row(struct rf_bench *bench, const struct rf_bench_grid *grid,
				    const struct rf_bench_variant *variant, enum rf_bench_dir dir,
				    uint32_t size)
{
	const struct rf_bench_options *options = bench->options;
	struct rf_bench_row *row = rf_bench_add_row(bench, grid->bench, variant->name);
	bool embed = options->via == RF_BENCH_EMBED;
	bool best = variant->kind == RF_BENCH_RAW_BEST;

	if (!row)
		return NULL;
	row->via = embed ? "embed" : "unix";
	row->dir = dir;
	row->size = size;
	row->streams = grid->latency ? 1 : options->streams;
	row->rotate = grid->latency ? 0 : options->rotate;
	row->same_thread = embed && (best || variant->same_thread);
	row->raw = variant->kind == RF_BENCH_RAW || (embed && best);
	row->latency = grid->latency;
	return row;
}

static int measure(struct rf_bench *bench, const struct rf_bench_grid *grid, enum rf_bench_dir dir,
		   uint32_t size)
{
	static struct rf_bench_case cases[RF_BENCH_MAX_CASES];
	const struct rf_bench_options *options = bench->options;
	const struct rf_bench_variant *variants;
	unsigned n = variants_of(options, grid->latency, &variants), first = bench->n_rows;
	int r;

	for (unsigned i = 0; i < n; i++) {
		cases[i] = (struct rf_bench_case){
			.row = add_row(bench, grid, &variants[i], dir, size),
			.variant = &variants[i],
			.run = grid->run,
		};
		if (!cases[i].row)
			return -ENOMEM;
		cases[i].n_places = rf_bench_places(options, &variants[i], cases[i].places);
	}
	r = rf_bench_rounds(bench, cases, n, options->runs ? options->runs : grid->runs);
	if (r == 0)
		rf_bench_table(bench, first, n);
	return r;
}

int rf_bench_grid(struct rf_bench *bench, const struct rf_bench_grid *grid)
{
	const struct rf_bench_options *options = bench->options;
	const uint32_t *sizes = options->n_sizes ? options->sizes : grid->sizes;
	unsigned n_sizes = options->n_sizes ? options->n_sizes : grid->n_sizes;
	int r = 0;

	for (unsigned dir = RF_BENCH_G2H; dir <= RF_BENCH_H2G; dir <<= 1)
		for (unsigned i = 0; r == 0 && i < n_sizes; i++)
			if (grid->dirs & dir)
				r = measure(bench, grid, (enum rf_bench_dir)dir, sizes[i]);
	return r;
}
