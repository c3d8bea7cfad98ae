/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rounds: cases that are compared with each other run in turn.
 */
#ifndef RF_BENCH_ROUND_H
#define RF_BENCH_ROUND_H

#include <sys/types.h>

#include "lab.h"

#define RF_BENCH_MAX_CASES  32u
#define RF_BENCH_MAX_PLACES 16u

/**
 * struct rf_bench_case - What is run, for a row
 * @row:	Where the samples go
 * @variant:	Under which circumstances
 * @run:	Measures once, for about @seconds: fills *@ret, and owns nothing of it. Returns 0,
 *		or -errno after saying what failed.
 * @places:	Placements to choose from, by short runs; the first one is used if it is the only
 *		one
 * @n_places:	Their number, at least one
 * @ctx:	For @run
 */
struct rf_bench_case {
	struct rf_bench_row *row;
	const struct rf_bench_variant *variant;
	int (*run)(struct rf_bench *bench, const struct rf_bench_case *c,
		   const struct rf_bench_place *place, double seconds, struct rf_bench_sample *ret);
	struct rf_bench_place places[RF_BENCH_MAX_PLACES];
	unsigned n_places;
	const void *ctx;
};

/**
 * rf_bench_rounds() - Choose placements, then run all cases in turn, so many rounds
 *
 * The core-to-core round trip is probed between runs. A round during which it changed is thrown
 * away and repeated, a few times at most.
 *
 * Return: 0, or -errno after saying what failed.
 */
int rf_bench_rounds(struct rf_bench *bench, struct rf_bench_case *cases, unsigned n,
		    unsigned rounds);

/* The order in which the cases of a round run: each begins a round equally often. */
unsigned rf_bench_turn(unsigned round, unsigned step, unsigned n);

/* rtt.c: time of a cache line's way from one core to another and back: ns, 0 with one core. */
double rf_bench_rtt_ns(void);

/**
 * rf_bench_places() - The placements that a case may choose from
 * @options:	Which may name the one
 * @variant:	A plain socket has no back end, and perhaps several SO_SNDBUF
 * @ret_places:	RF_BENCH_MAX_PLACES of them
 *
 * Return: their number.
 */
unsigned rf_bench_places(const struct rf_bench_options *options,
			 const struct rf_bench_variant *variant, struct rf_bench_place *ret_places);

/* Run the calling thread, and those it starts, on a core as counted in struct rf_bench_place. */
void rf_bench_pin(int core);

/* The same for all threads of another process. */
void rf_bench_pin_process(pid_t pid, int core);

/* Number of cores that this process may use; before anything was pinned. */
unsigned rf_bench_n_cores(void);

#endif
