/* SPDX-License-Identifier: BSD-3-Clause */
#include "stat.h"

#include <stdlib.h>

/* A virtual machine's cores are either near or far: nothing else changes it by so much. */
#define MOVED_RATIO 1.5

static int compare_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int compare_u32(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

struct rf_bench_stat rf_bench_stat(double *values, size_t n)
{
	if (!n)
		return (struct rf_bench_stat){ 0 };
	qsort(values, n, sizeof(*values), compare_double);
	return (struct rf_bench_stat){ (values[(n - 1) / 2] + values[n / 2]) / 2, values[0],
				       values[n - 1] };
}

/* The smallest value that @percent of them are not above. */
static double percentile(const uint32_t *sorted, size_t n, size_t percent)
{
	size_t rank = (n * percent + 99) / 100;

	return sorted[rank ? rank - 1 : 0];
}

struct rf_bench_latency rf_bench_latency(uint32_t *times_ns, size_t n)
{
	double sum = 0;

	if (!n)
		return (struct rf_bench_latency){ 0 };
	qsort(times_ns, n, sizeof(*times_ns), compare_u32);
	for (size_t i = 0; i < n; i++)
		sum += times_ns[i];
	return (struct rf_bench_latency){
		.p1 = percentile(times_ns, n, 1),
		.mean = sum / (double)n,
		.p50 = percentile(times_ns, n, 50),
		.p99 = percentile(times_ns, n, 99),
	};
}

int rf_bench_moved(double rtt_min_ns, double rtt_max_ns)
{
	return rtt_min_ns > 0 && rtt_max_ns > MOVED_RATIO * rtt_min_ns;
}
