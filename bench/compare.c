/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench/compare: one stream's throughput both ways beside a plain AF_UNIX stream socket.
 *
 * Which cores the processes share, and how large the socket's buffer is, decides as much as the
 * code does, so both sides get their best: for each size of messages short runs of all candidates,
 * in turn, choose by their median. The winners are then measured anew, in turn again, with the same
 * number of runs for both sides; the short runs count no more. The plain socket is shown with its
 * default buffer and with its best one.
 */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench.h"

#define PROBE_RUNS    3
#define PROBE_SECONDS 0.1
#define LARGE_SNDBUF  (1 << 20)
#define MAX_PLACES    3
#define ANY           BENCH_ANY_CORE

static const struct bench_place raw_default[] = {
	{ "writer | reader", 0, 0, 1, 0 },
	{ "reader | writer", 1, 0, 0, 0 },
	{ "one core", 0, 0, 0, 0 },
};

static const struct bench_place raw_large[] = {
	{ "1 MiB, writer | reader", 0, 0, 1, LARGE_SNDBUF },
	{ "1 MiB, reader | writer", 1, 0, 0, LARGE_SNDBUF },
	{ "1 MiB, one core", 0, 0, 0, LARGE_SNDBUF },
};

static const struct bench_place ours[] = {
	{ "guest | back end + host program", 0, 1, 1, 0 },
	{ "guest + back end | host program", 0, 0, 1, 0 },
	{ "unpinned", ANY, ANY, ANY, 0 },
};

/**
 * struct line - One line of a size's table
 * @label:	What is measured
 * @way:	What is run
 * @places:	Candidates
 * @best:	The one that is measured
 * @rates:	GB/s of each run
 * @stat:	Of them
 */
struct line {
	const char *label;
	enum bench_way way;
	const struct bench_place *places;
	const struct bench_place *best;
	double rates[BENCH_MAX_RUNS];
	struct bench_stat stat;
};

enum {
	RAW_DEFAULT,
	RAW_LARGE,
	TO_HOST,
	TO_GUEST,
	N_LINES,
};

static void choose(const struct bench_setup *setup, struct line *lines, size_t size)
{
	double rates[N_LINES][MAX_PLACES][PROBE_RUNS], best;

	for (unsigned run = 0; run < PROBE_RUNS; run++)
		for (unsigned l = 0; l < N_LINES; l++)
			for (unsigned p = 0; p < MAX_PLACES; p++)
				rates[l][p][run] =
					bench_run(setup, lines[l].way, &lines[l].places[p], size,
						  PROBE_SECONDS);
	for (unsigned l = 0; l < N_LINES; l++) {
		best = 0;
		for (unsigned p = 0; p < MAX_PLACES; p++) {
			double median = bench_stat(rates[l][p], PROBE_RUNS).median;

			if (median > best) {
				best = median;
				lines[l].best = &lines[l].places[p];
			}
		}
	}
}

static void print_raw(const struct line *line)
{
	printf("         %-20s %7.3f GB/s (%.3f-%.3f)  %s\n", line->label, line->stat.median,
	       line->stat.min, line->stat.max, line->best->name);
}

/* A ratio is taken within each round of runs. */
static struct bench_stat ratio(const struct line *line, const struct line *to, unsigned runs)
{
	double ratios[BENCH_MAX_RUNS];

	for (unsigned i = 0; i < runs; i++)
		ratios[i] = line->rates[i] / to->rates[i];
	return bench_stat(ratios, runs);
}

static void print_ours(const struct line *line, const struct line *best,
		       const struct line *with_default, unsigned runs)
{
	struct bench_stat to_best = ratio(line, best, runs);
	struct bench_stat to_default = ratio(line, with_default, runs);

	printf("         %-20s %7.3f GB/s (%.3f-%.3f)  %s\n"
	       "         %20s %7.2f of the best (%.2f-%.2f), %.2f of the default (%.2f-%.2f)\n",
	       line->label, line->stat.median, line->stat.min, line->stat.max, line->best->name, "",
	       to_best.median, to_best.min, to_best.max, to_default.median, to_default.min,
	       to_default.max);
}

static struct bench_stat stat_of(const struct line *line, unsigned runs)
{
	double rates[BENCH_MAX_RUNS];

	memcpy(rates, line->rates, sizeof(rates));
	return bench_stat(rates, runs);
}

static void measure_size(const struct bench_setup *setup, size_t size)
{
	struct line lines[N_LINES] = {
		[RAW_DEFAULT] = { .label = "plain, default", .way = BENCH_RAW, raw_default },
		[RAW_LARGE] = { .label = "plain, large buffer", .way = BENCH_RAW, raw_large },
		[TO_HOST] = { .label = "guest to host", .way = BENCH_TO_HOST, ours },
		[TO_GUEST] = { .label = "host to guest", .way = BENCH_TO_GUEST, ours },
	};
	double before = bench_core_rtt_ns(), after;
	const struct line *best = &lines[RAW_DEFAULT];

	choose(setup, lines, size);
	for (unsigned run = 0; run < setup->runs; run++)
		for (unsigned l = 0; l < N_LINES; l++)
			lines[l].rates[run] =
				bench_run(setup, lines[l].way, lines[l].best, size, setup->seconds);
	after = bench_core_rtt_ns();
	for (unsigned l = 0; l < N_LINES; l++)
		lines[l].stat = stat_of(&lines[l], setup->runs);
	if (lines[RAW_LARGE].stat.median > best->stat.median)
		best = &lines[RAW_LARGE];
	printf("%6zu B, core to core and back %.0f ns, %.0f ns after%s\n", size, before, after,
	       before > 1.5 * after || after > 1.5 * before ? ": CORES MOVED, repeat" : "");
	print_raw(&lines[RAW_DEFAULT]);
	print_raw(&lines[RAW_LARGE]);
	print_ours(&lines[TO_HOST], best, &lines[RAW_DEFAULT], setup->runs);
	print_ours(&lines[TO_GUEST], best, &lines[RAW_DEFAULT], setup->runs);
	fflush(stdout);
}

static int granted_sndbuf(int ask)
{
	int fd = socket(AF_UNIX, SOCK_STREAM, 0), bytes = 0;
	socklen_t len = sizeof(bytes);

	if (ask)
		(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &ask, sizeof(ask));
	(void)getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &len);
	close(fd);
	return bytes;
}

void bench_streams(struct bench_setup *setup)
{
	bench_start_back_end(setup);
	printf("One stream beside a plain AF_UNIX stream socket between two processes, each with "
	       "its best placement on\ntwo cores (core 0 | core 1), chosen by %d runs of %.1f s, "
	       "then measured by %u runs of %.1f s in turn:\nmedian (lowest-highest). Ring of %u. "
	       "SO_SNDBUF %d by default, %d granted of %d.\n\n",
	       PROBE_RUNS, PROBE_SECONDS, setup->runs, setup->seconds, setup->queue_size,
	       granted_sndbuf(0), granted_sndbuf(LARGE_SNDBUF), LARGE_SNDBUF);
	for (unsigned i = 0; i < setup->n_sizes; i++)
		measure_size(setup, setup->sizes[i]);
	bench_kill(setup->back_end);
	bench_pin(0, BENCH_ANY_CORE);
	printf("\n");
}
