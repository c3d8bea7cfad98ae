/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench limits: what the machine can do without us, in turn: copies of memory, the copies of a
 * stream with nothing but an index between two threads, a plain socket, and two ways to wake
 * somebody up.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lab.h"
#include "limit.h"
#include "parts.h"

#define IN_CACHE_BYTES (32u << 10)
#define BEYOND_BYTES   (64u << 20)
/* What is under way, as the host half grants it by default. */
#define WINDOW_BYTES   (1u << 20)
#define CEILING_BYTES  (256u << 10)
#define CEILING_SNDBUF (1 << 20)
#define DEFAULT_RUNS   5u
#define MAX_TIMES      100000u
#define TIMES_PER_S    20000.0

static const uint32_t default_sizes[] = { 64, 256, 1024, 4096, 16384, 65536, 262144 };
static const uint32_t signal_sizes[] = { 512, 4096 };

/**
 * struct limit - One of the things that are measured
 * @name:	Name of the variant
 * @via:	What it goes through
 * @kind:	Kind of the variant
 * @run:	Measures it once
 * @one_core:	It runs on one core
 */
struct limit {
	const char *name;
	const char *via;
	enum rf_bench_kind kind;
	int (*run)(struct rf_bench *bench, const struct rf_bench_case *c,
		   const struct rf_bench_place *place, double seconds, struct rf_bench_sample *ret);
	bool one_core;
};

static int copy_within(size_t bytes, const struct rf_bench_case *c, double seconds,
		       struct rf_bench_sample *ret)
{
	size_t size = c->row->size;
	int r;

	rf_bench_pin(0);
	r = rf_bench_limit_memcpy(size, rf_max_size(bytes, size), seconds, &ret->gbps);
	rf_bench_pin(RF_BENCH_ANY_CORE);
	return r < 0 ? rf_bench_error(-r, "memory to copy") : 0;
}

static int run_in_cache(struct rf_bench *bench RF_UNUSED, const struct rf_bench_case *c,
			const struct rf_bench_place *place RF_UNUSED, double seconds,
			struct rf_bench_sample *ret)
{
	return copy_within(IN_CACHE_BYTES, c, seconds, ret);
}

static int run_beyond(struct rf_bench *bench RF_UNUSED, const struct rf_bench_case *c,
		      const struct rf_bench_place *place RF_UNUSED, double seconds,
		      struct rf_bench_sample *ret)
{
	return copy_within(BEYOND_BYTES, c, seconds, ret);
}

static int pipeline(const struct rf_bench *bench, const struct rf_bench_case *c,
		    const struct rf_bench_place *place, bool two_threads, double seconds,
		    struct rf_bench_sample *ret)
{
	const struct rf_bench_limit_pipeline how = {
		.size = c->row->size,
		.slots = bench->options->queue_size,
		.window = WINDOW_BYTES,
		.two_threads = two_threads,
		.check = true,
		.cores = { place->guest, place->host },
		.seconds = seconds,
	};
	int r = rf_bench_limit_pipeline(&how, &ret->gbps);

	return r < 0 ? rf_bench_error(-r, "pipeline") : 0;
}

static int run_one_thread(struct rf_bench *bench, const struct rf_bench_case *c,
			  const struct rf_bench_place *place, double seconds,
			  struct rf_bench_sample *ret)
{
	return pipeline(bench, c, place, false, seconds, ret);
}

static int run_two_threads(struct rf_bench *bench, const struct rf_bench_case *c,
			   const struct rf_bench_place *place, double seconds,
			   struct rf_bench_sample *ret)
{
	return pipeline(bench, c, place, true, seconds, ret);
}

static int ping(enum rf_bench_limit_signal signal, const struct rf_bench_case *c,
		const struct rf_bench_place *place, double seconds, struct rf_bench_sample *ret)
{
	const int cores[] = { place->guest, place->host };
	size_t n = rf_min_size((size_t)(seconds * TIMES_PER_S) + 1, MAX_TIMES);
	uint32_t *times_ns = calloc(n, sizeof(*times_ns));
	int r = -ENOMEM;

	if (times_ns)
		r = rf_bench_limit_pingpong(signal, c->row->size, cores, times_ns, n);
	if (r == 0)
		ret->latency = rf_bench_latency(times_ns, n);
	free(times_ns);
	return r < 0 ? rf_bench_error(-r, "ping-pong") : 0;
}

static int run_eventfd(struct rf_bench *bench RF_UNUSED, const struct rf_bench_case *c,
		       const struct rf_bench_place *place, double seconds,
		       struct rf_bench_sample *ret)
{
	return ping(RF_BENCH_LIMIT_EVENTFD, c, place, seconds, ret);
}

static int run_socket(struct rf_bench *bench RF_UNUSED, const struct rf_bench_case *c,
		      const struct rf_bench_place *place, double seconds,
		      struct rf_bench_sample *ret)
{
	return ping(RF_BENCH_LIMIT_SOCKET, c, place, seconds, ret);
}

static const struct limit rates[] = {
	{ "memcpy-cache", "memory", RF_BENCH_OURS, run_in_cache, true },
	{ "memcpy-memory", "memory", RF_BENCH_OURS, run_beyond, true },
	{ "copies-1-thread", "memory", RF_BENCH_OURS, run_one_thread, true },
	{ "copies-2-threads", "memory", RF_BENCH_OURS, run_two_threads, false },
	{ "raw", "unix", RF_BENCH_RAW, rf_bench_stream_run, false },
	{ "raw-best", "unix", RF_BENCH_RAW_BEST, rf_bench_stream_run, false },
};

static const struct limit ceiling = { "ceiling", "unix", RF_BENCH_RAW, rf_bench_stream_run, false };

static const struct limit signals[] = {
	{ "eventfd", "memory", RF_BENCH_OURS, run_eventfd, false },
	{ "raw", "unix", RF_BENCH_RAW, run_socket, false },
};

/* Cases that are run in turn, with the variants that they point to. */
struct group {
	struct rf_bench_case cases[RF_ARRAY_SIZE(rates) + 1];
	struct rf_bench_variant variants[RF_ARRAY_SIZE(rates) + 1];
	unsigned n;
};

static const struct rf_bench_place pair_places[] = {
	{ "0|1", 0, 0, 1, 0 },
	{ "1|0", 1, 1, 0, 0 },
};

static const struct rf_bench_place one_place = { "one", 0, 0, 0, 0 };

/* Which placements: those of plain sockets where it is one, or the cores both ways round. */
static void set_places(const struct rf_bench *bench, const struct limit *limit,
		       struct rf_bench_case *c)
{
	c->n_places = 1;
	if (limit == &ceiling) {
		for (unsigned i = 0; i < RF_ARRAY_SIZE(pair_places); i++) {
			c->places[i] = pair_places[i];
			c->places[i].sndbuf = CEILING_SNDBUF;
		}
		c->n_places = RF_ARRAY_SIZE(pair_places);
	} else if (limit->kind != RF_BENCH_OURS && limit->run == rf_bench_stream_run) {
		c->n_places = rf_bench_places(bench->options, c->variant, c->places);
	} else if (limit->one_core || rf_bench_n_cores() < 2) {
		c->places[0] = one_place;
	} else if (!bench->options->best_place) {
		c->places[0] = bench->options->place;
	} else {
		memcpy(c->places, pair_places, sizeof(pair_places));
		c->n_places = RF_ARRAY_SIZE(pair_places);
	}
}

static int add(struct rf_bench *bench, struct group *group, const struct limit *limit,
	       uint32_t size, bool latency)
{
	struct rf_bench_variant *variant = &group->variants[group->n];
	struct rf_bench_case *c = &group->cases[group->n++];

	rf_bench_variant_init(variant, limit->name, limit->kind);
	*c = (struct rf_bench_case){
		.row = rf_bench_add_row(bench, "limits", limit->name),
		.variant = variant,
		.run = limit->run,
	};
	if (!c->row)
		return -ENOMEM;
	c->row->via = limit->via;
	c->row->dir = limit->run == rf_bench_stream_run ? RF_BENCH_G2H : 0;
	c->row->size = size;
	c->row->raw = limit->kind == RF_BENCH_RAW && limit != &ceiling;
	c->row->latency = latency;
	set_places(bench, limit, c);
	return 0;
}

static int run_group(struct rf_bench *bench, struct group *group)
{
	unsigned runs = bench->options->runs ? bench->options->runs : DEFAULT_RUNS;
	unsigned first = bench->n_rows - group->n;
	int r = rf_bench_rounds(bench, group->cases, group->n, runs);

	if (r == 0)
		rf_bench_table(bench, first, group->n);
	return r;
}

static int measure_rates(struct rf_bench *bench, uint32_t size, bool with_ceiling)
{
	struct group group = { .n = 0 };
	int r = 0;

	for (unsigned i = 0; i < RF_ARRAY_SIZE(rates) && !r; i++)
		r = add(bench, &group, &rates[i], size, false);
	if (with_ceiling && !r)
		r = add(bench, &group, &ceiling, CEILING_BYTES, false);
	return r ? r : run_group(bench, &group);
}

static int measure_signals(struct rf_bench *bench, uint32_t size)
{
	struct group group = { .n = 0 };
	int r = 0;

	for (unsigned i = 0; i < RF_ARRAY_SIZE(signals) && !r; i++)
		r = add(bench, &group, &signals[i], size, true);
	return r ? r : run_group(bench, &group);
}

int rf_bench_limits(struct rf_bench *bench)
{
	const struct rf_bench_options *options = bench->options;
	const uint32_t *sizes = options->n_sizes ? options->sizes : default_sizes;
	size_t n = options->n_sizes ? options->n_sizes : RF_ARRAY_SIZE(default_sizes);
	int r = 0;

	for (size_t i = 0; i < n && !r; i++)
		r = measure_rates(bench, sizes[i], i + 1 == n);
	for (size_t i = 0; i < RF_ARRAY_SIZE(signal_sizes) && !r; i++)
		r = measure_signals(bench, signal_sizes[i]);
	return r;
}
