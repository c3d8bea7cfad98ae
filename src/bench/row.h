/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rows: what was measured, for tables, JSON and plots.
 */
#ifndef RF_BENCH_ROW_H
#define RF_BENCH_ROW_H

#include <jansson.h>

#include "bench/run.h"
#include "stat.h"

/**
 * struct rf_bench_sample - What one run gave
 * @gbps:	Payload, 10^9 bytes per second of all streams together; 0 if that is not measured
 * @latency:	Round trips; 0 if that is not measured
 * @slowest, @fastest: GB/s of the slowest and of the fastest stream
 * @bytes:	Payload bytes of the measured time
 * @cpu_s:	CPU seconds, user and system, of all processes of the run in that time
 * @rtt_before, @rtt_after: Core-to-core round trip, ns; 0 with one core
 * @disturbed:	Other programs took the machine's time
 * @host, @guest: Counters of both halves, how much they grew: objects name -> number, or NULL
 */
struct rf_bench_sample {
	double gbps;
	struct rf_bench_latency latency;
	double slowest, fastest;
	double bytes;
	double cpu_s;
	double rtt_before, rtt_after;
	bool disturbed;
	json_t *host;
	json_t *guest;
};

void rf_bench_sample_fini(struct rf_bench_sample *sample);

/**
 * struct rf_bench_row - One row
 * @bench:	Part
 * @via:	As in JSON
 * @dir:	0 where there is none
 * @size:	Bytes per message, 0 where there is none
 * @streams:	Connections at once
 * @rotate:	Connections that messages rotate over, 0 for one
 * @variant:	Its variant's name
 * @same_thread: Via embed: both halves are in one thread
 * @raw:	It is what others are compared with
 * @latency:	Round trips are measured, not a rate
 * @place:	The placement that was used
 * @samples:	By round
 * @n_samples:	Rounds so far
 * @thrown:	Runs thrown away, because the machine's cores had moved
 * @extra:	Further members of its counters in JSON, or NULL
 */
struct rf_bench_row {
	const char *bench;
	const char *via;
	enum rf_bench_dir dir;
	uint32_t size;
	unsigned streams;
	unsigned rotate;
	char variant[RF_BENCH_NAME_BYTES];
	bool same_thread;
	bool raw;
	bool latency;
	struct rf_bench_place place;
	struct rf_bench_sample samples[RF_BENCH_MAX_RUNS];
	unsigned n_samples;
	unsigned thrown;
	json_t *extra;
};

void rf_bench_row_fini(struct rf_bench_row *row);

/* "g2h", "h2g", or "" */
const char *rf_bench_dir_name(enum rf_bench_dir dir);

/* The value of a row that is compared: GB/s, or p50 in ns. */
double rf_bench_row_value(const struct rf_bench_row *row, unsigned round);

/* Of all rounds. */
struct rf_bench_stat rf_bench_row_stat(const struct rf_bench_row *row);

/* Ratios, each taken within one round. */
struct rf_bench_stat rf_bench_row_ratio(const struct rf_bench_row *row,
					const struct rf_bench_row *to);

/* Median over the rounds of each. */
struct rf_bench_latency rf_bench_row_latency(const struct rf_bench_row *row);

/* Rounds that others disturbed; rounds in which the cores moved during the row's own run. */
unsigned rf_bench_row_disturbed(const struct rf_bench_row *row);
unsigned rf_bench_row_moved(const struct rf_bench_row *row);

/* CPU seconds per 10^9 bytes, over all rounds. */
double rf_bench_row_cpu_s_per_gb(const struct rf_bench_row *row);

/**
 * struct rf_bench_costs - What a row's bytes cost, from the counters
 * @bytes_per_syscall: Payload that a system call of the back end carried, 0 if there was none
 * @bounced_bytes: Payload bytes that were copied once more, per round
 * @notifications_per_mib: Kicks and calls per MiB of payload
 * @known:	There are counters
 */
struct rf_bench_costs {
	double bytes_per_syscall;
	double bounced_bytes;
	double notifications_per_mib;
	bool known;
};

struct rf_bench_costs rf_bench_row_costs(const struct rf_bench_row *row);

/* A row of the JSON file. Return: a new reference, or NULL when out of memory. */
json_t *rf_bench_row_json(const struct rf_bench_row *row, const struct rf_bench_row *raw);

#endif
