/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts, and what several of them do alike.
 */
#ifndef RF_BENCH_PARTS_H
#define RF_BENCH_PARTS_H

#include "round.h"

/**
 * struct rf_bench_grid - A part that measures each variant for each size and direction
 * @bench:	Its name
 * @sizes:	Sizes of messages if no others are asked for
 * @n_sizes:	Their number
 * @dirs:	Directions, bits
 * @runs:	Rounds if no other number is asked for
 * @latency:	Round trips are measured
 * @run:	As in struct rf_bench_case
 */
struct rf_bench_grid {
	const char *bench;
	const uint32_t *sizes;
	unsigned n_sizes;
	unsigned dirs;
	unsigned runs;
	bool latency;
	int (*run)(struct rf_bench *bench, const struct rf_bench_case *c,
		   const struct rf_bench_place *place, double seconds, struct rf_bench_sample *ret);
};

/* Return: 0, or -errno after saying what failed. */
int rf_bench_grid(struct rf_bench *bench, const struct rf_bench_grid *grid);

/* One run of a stream, as in struct rf_bench_case. */
int rf_bench_stream_run(struct rf_bench *bench, const struct rf_bench_case *c,
			const struct rf_bench_place *place, double seconds,
			struct rf_bench_sample *ret);

/* The parts, see struct rf_bench_part. */
int rf_bench_stream(struct rf_bench *bench);
int rf_bench_pingpong(struct rf_bench *bench);
int rf_bench_limits(struct rf_bench *bench);
int rf_bench_conns(struct rf_bench *bench);

#endif
