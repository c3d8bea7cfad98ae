/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What many values are said to be: median and extremes, percentiles.
 */
#ifndef RF_BENCH_STAT_H
#define RF_BENCH_STAT_H

#include <stddef.h>
#include <stdint.h>

struct rf_bench_stat {
	double median, min, max;
};

/* Of @n values, which are sorted by it; all 0 without any. The median of two is their mean. */
struct rf_bench_stat rf_bench_stat(double *values, size_t n);

/**
 * struct rf_bench_latency - Round trip times, in ns
 * @p1, @p50, @p99: Percentiles: so many per cent are not above it
 */
struct rf_bench_latency {
	double p1, mean, p50, p99;
};

/* Of @n times, which are sorted by it. */
struct rf_bench_latency rf_bench_latency(uint32_t *times_ns, size_t n);

/* Do two core-to-core round trips (0: unknown) come from two states of the machine? */
int rf_bench_moved(double rtt_min_ns, double rtt_max_ns);

#endif
