/* SPDX-License-Identifier: BSD-3-Clause */
#include "round.h"

#include <errno.h>

#define CHOOSE_RUNS    3u
#define CHOOSE_SECONDS 0.1
/*
 * So many repetitions for each round that is wanted; then they count as they are, and say so. Some
 * machines move cores every second: more repetitions would find no quiet moment, either.
 */
#define MAX_REPEATS 1u

unsigned rf_bench_turn(unsigned round, unsigned step, unsigned n)
{
	return (round + step) % n;
}

/* The round trips seen in a round, and in all of them. */
struct rtts {
	double last, min, max;
};

static void probe(struct rf_bench *bench, struct rtts *rtts)
{
	double rtt = rf_bench_rtt_ns();

	rtts->last = rtt;
	rtts->min = rtts->min == 0 || rtt < rtts->min ? rtt : rtts->min;
	rtts->max = rtt > rtts->max ? rtt : rtts->max;
	bench->rtt_min = bench->rtt_min == 0 || rtt < bench->rtt_min ? rtt : bench->rtt_min;
	bench->rtt_max = rtt > bench->rtt_max ? rtt : bench->rtt_max;
}

static double value_of(const struct rf_bench_case *c, const struct rf_bench_sample *sample)
{
	/* Less time is better. */
	return c->row->latency ? -sample->latency.p50 : sample->gbps;
}

static int try_place(struct rf_bench *bench, const struct rf_bench_case *c,
		     const struct rf_bench_place *place, double *ret_value)
{
	struct rf_bench_sample sample = { 0 };
	double seconds = bench->options->seconds;
	int r = c->run(bench, c, place, seconds < CHOOSE_SECONDS ? seconds : CHOOSE_SECONDS,
		       &sample);

	*ret_value = value_of(c, &sample);
	rf_bench_sample_fini(&sample);
	return r;
}

static int choose_place(struct rf_bench *bench, struct rf_bench_case *c)
{
	double values[RF_BENCH_MAX_PLACES][CHOOSE_RUNS], best = 0;
	int r = 0;

	c->row->place = c->places[0];
	if (c->n_places < 2)
		return 0;
	for (unsigned run = 0; run < CHOOSE_RUNS; run++)
		for (unsigned p = 0; r == 0 && p < c->n_places; p++)
			r = try_place(bench, c, &c->places[p], &values[p][run]);
	for (unsigned p = 0; r == 0 && p < c->n_places; p++) {
		double median = rf_bench_stat(values[p], CHOOSE_RUNS).median;

		if (p > 0 && median <= best)
			continue;
		best = median;
		c->row->place = c->places[p];
	}
	return r;
}

static int run_case(struct rf_bench *bench, struct rf_bench_case *c, unsigned round,
		    struct rtts *rtts)
{
	struct rf_bench_sample *sample = &c->row->samples[round];
	int r;

	*sample = (struct rf_bench_sample){ .rtt_before = rtts->last };
	c->row->n_samples = round + 1;
	r = c->run(bench, c, &c->row->place, bench->options->seconds, sample);
	if (r < 0)
		return r;
	probe(bench, rtts);
	sample->rtt_after = rtts->last;
	return rf_bench_interrupted() ? -EINTR : 0;
}

/* Return: 1 if it is to be thrown away, 0 if it counts, or -errno. */
static int run_round(struct rf_bench *bench, struct rf_bench_case *cases, unsigned n,
		     unsigned round)
{
	struct rtts rtts = { 0 };
	int r = 0;

	probe(bench, &rtts);
	for (unsigned step = 0; r == 0 && step < n; step++)
		r = run_case(bench, &cases[rf_bench_turn(round, step, n)], round, &rtts);
	if (r < 0)
		return r;
	return rf_bench_moved(rtts.min, rtts.max);
}

static void throw_away(struct rf_bench_case *cases, unsigned n, unsigned round)
{
	for (unsigned i = 0; i < n; i++) {
		rf_bench_sample_fini(&cases[i].row->samples[round]);
		cases[i].row->n_samples = round;
		cases[i].row->thrown++;
	}
}

/* One that counts, however often the cores move. */
static int run_until_it_counts(struct rf_bench *bench, struct rf_bench_case *cases, unsigned n,
			       unsigned round, unsigned *repeats)
{
	int r = run_round(bench, cases, n, round);

	while (r > 0 && *repeats) {
		rf_bench_progress("the cores have moved: the round is repeated");
		throw_away(cases, n, round);
		--*repeats;
		r = run_round(bench, cases, n, round);
	}
	return r < 0 ? r : 0;
}

int rf_bench_rounds(struct rf_bench *bench, struct rf_bench_case *cases, unsigned n,
		    unsigned rounds)
{
	unsigned repeats = MAX_REPEATS * rounds;
	int r = 0;

	for (unsigned i = 0; r == 0 && i < n; i++)
		r = choose_place(bench, &cases[i]);
	for (unsigned round = 0; r == 0 && round < rounds; round++) {
		r = run_until_it_counts(bench, cases, n, round, &repeats);
		if (r == 0)
			rf_bench_progress("%s %s %u B: round %u of %u", cases[0].row->bench,
					  rf_bench_dir_name(cases[0].row->dir), cases[0].row->size,
					  round + 1, rounds);
	}
	return r;
}
