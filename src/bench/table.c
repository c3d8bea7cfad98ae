/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tables for people: rows that ran in turn, one block each.
 */
#include <stdio.h>

#include "lab.h"

static void print_head(const struct rf_bench *bench, const struct rf_bench_row *row)
{
	printf("%s via %s", row->bench, row->via);
	if (row->dir)
		printf(", %s", row->dir == RF_BENCH_G2H ? "guest to host" : "host to guest");
	if (row->size)
		printf(", %u B", row->size);
	if (row->streams > 1)
		printf(", %u streams", row->streams);
	if (row->rotate)
		printf(", rotating over %u connections", row->rotate);
	printf("; %u rounds; core to core and back %.0f-%.0f ns\n", row->n_samples, bench->rtt_min,
	       bench->rtt_max);
}

static void print_ratio(const struct rf_bench_row *row, const struct rf_bench_row *raw)
{
	struct rf_bench_stat ratio;

	if (!raw || raw == row) {
		printf(" %19s", "");
		return;
	}
	ratio = rf_bench_row_ratio(row, raw);
	printf(" %5.2f (%5.2f-%5.2f)", ratio.median, ratio.min, ratio.max);
}

static void print_costs(const struct rf_bench_row *row)
{
	struct rf_bench_costs costs = rf_bench_row_costs(row);

	if (costs.known)
		printf(" %9.0f %10.0f %8.2f", costs.bytes_per_syscall, costs.bounced_bytes,
		       costs.notifications_per_mib);
	else
		printf(" %9s %10s %8s", "-", "-", "-");
}

static void print_notes(const struct rf_bench_row *row)
{
	unsigned disturbed = rf_bench_row_disturbed(row);

	printf("  %s", row->place.name);
	if (disturbed)
		printf("; %u DISTURBED", disturbed);
	if (rf_bench_row_moved(row))
		printf("; %u MOVED", rf_bench_row_moved(row));
	if (row->thrown)
		printf("; %u thrown away", row->thrown);
	printf("\n");
}

static void print_fairness(const struct rf_bench_row *row)
{
	const struct rf_bench_sample *last = &row->samples[row->n_samples - 1];

	if (row->streams > 1)
		printf("  %-16s slowest %.3f, fastest %.3f GB/s of the last round\n", "",
		       last->slowest, last->fastest);
	if (row->rotate)
		printf("  %-16s %.0f ns per message\n", "",
		       row->size / rf_bench_row_stat(row).median);
}

static void print_rate(const struct rf_bench_row *row, const struct rf_bench_row *raw)
{
	struct rf_bench_stat stat = rf_bench_row_stat(row);

	printf("  %-16s %7.3f (%7.3f-%7.3f)", row->variant, stat.median, stat.min, stat.max);
	print_ratio(row, raw);
	printf(" %6.3f", rf_bench_row_cpu_s_per_gb(row));
	print_costs(row);
	print_notes(row);
	print_fairness(row);
}

static void print_latency(const struct rf_bench_row *row, const struct rf_bench_row *raw)
{
	struct rf_bench_latency latency = rf_bench_row_latency(row);

	printf("  %-16s %8.2f %8.2f %8.2f %8.2f", row->variant, latency.p1 * 1e-3,
	       latency.mean * 1e-3, latency.p50 * 1e-3, latency.p99 * 1e-3);
	print_ratio(row, raw);
	printf(" %6.3f", rf_bench_row_cpu_s_per_gb(row));
	print_notes(row);
}

void rf_bench_table(const struct rf_bench *bench, unsigned first, unsigned n)
{
	const struct rf_bench_row *row = bench->rows[first];

	print_head(bench, row);
	if (row->latency)
		printf("  %-16s %8s %8s %8s %8s %19s %6s  placement\n", "variant, us", "p1", "mean",
		       "p50", "p99", "p50 / raw's", "s/GB");
	else
		printf("  %-16s %7s %17s %19s %6s %9s %10s %8s  placement\n", "variant", "GB/s",
		       "(lowest-highest)", "/ raw", "s/GB", "B/syscall", "bounced", "notif/M");
	for (unsigned i = first; i < first + n; i++) {
		row = bench->rows[i];
		if (row->latency)
			print_latency(row, rf_bench_find_raw(bench, row));
		else
			print_rate(row, rf_bench_find_raw(bench, row));
	}
	printf("\n");
	fflush(stdout);
}
