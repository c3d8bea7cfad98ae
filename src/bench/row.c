/* SPDX-License-Identifier: BSD-3-Clause */
#include "row.h"

#include <string.h>

#define MIB 1048576.0

void rf_bench_sample_fini(struct rf_bench_sample *sample)
{
	json_decref(sample->host);
	json_decref(sample->guest);
	sample->host = sample->guest = NULL;
}

void rf_bench_row_fini(struct rf_bench_row *row)
{
	for (unsigned i = 0; i < row->n_samples; i++)
		rf_bench_sample_fini(&row->samples[i]);
	json_decref(row->extra);
}

const char *rf_bench_dir_name(enum rf_bench_dir dir)
{
	switch (dir) {
	case RF_BENCH_G2H:
		return "g2h";
	case RF_BENCH_H2G:
		return "h2g";
	default:
		return "";
	}
}

double rf_bench_row_value(const struct rf_bench_row *row, unsigned round)
{
	const struct rf_bench_sample *sample = &row->samples[round];

	return row->latency ? sample->latency.p50 : sample->gbps;
}

struct rf_bench_stat rf_bench_row_stat(const struct rf_bench_row *row)
{
	double values[RF_BENCH_MAX_RUNS];

	for (unsigned i = 0; i < row->n_samples; i++)
		values[i] = rf_bench_row_value(row, i);
	return rf_bench_stat(values, row->n_samples);
}

struct rf_bench_stat rf_bench_row_ratio(const struct rf_bench_row *row,
					const struct rf_bench_row *to)
{
	double ratios[RF_BENCH_MAX_RUNS];
	unsigned n = 0;

	for (unsigned i = 0; i < row->n_samples && i < to->n_samples; i++)
		if (rf_bench_row_value(to, i) > 0)
			ratios[n++] = rf_bench_row_value(row, i) / rf_bench_row_value(to, i);
	return rf_bench_stat(ratios, n);
}

struct rf_bench_latency rf_bench_row_latency(const struct rf_bench_row *row)
{
	static const size_t offsets[] = { offsetof(struct rf_bench_latency, p1),
					  offsetof(struct rf_bench_latency, mean),
					  offsetof(struct rf_bench_latency, p50),
					  offsetof(struct rf_bench_latency, p99) };
	double values[RF_BENCH_MAX_RUNS];
	struct rf_bench_latency median;

	for (unsigned k = 0; k < sizeof(offsets) / sizeof(offsets[0]); k++) {
		for (unsigned i = 0; i < row->n_samples; i++)
			memcpy(&values[i], (const char *)&row->samples[i].latency + offsets[k],
			       sizeof(double));
		values[0] = rf_bench_stat(values, row->n_samples).median;
		memcpy((char *)&median + offsets[k], &values[0], sizeof(double));
	}
	return median;
}

unsigned rf_bench_row_disturbed(const struct rf_bench_row *row)
{
	unsigned n = 0;

	for (unsigned i = 0; i < row->n_samples; i++)
		n += row->samples[i].disturbed;
	return n;
}

unsigned rf_bench_row_moved(const struct rf_bench_row *row)
{
	unsigned n = 0;

	for (unsigned i = 0; i < row->n_samples; i++) {
		double before = row->samples[i].rtt_before, after = row->samples[i].rtt_after;

		n += rf_bench_moved(before, after) || rf_bench_moved(after, before);
	}
	return n;
}

static double sum_bytes(const struct rf_bench_row *row)
{
	double bytes = 0;

	for (unsigned i = 0; i < row->n_samples; i++)
		bytes += row->samples[i].bytes;
	return bytes;
}

double rf_bench_row_cpu_s_per_gb(const struct rf_bench_row *row)
{
	double cpu_s = 0, bytes = sum_bytes(row);

	for (unsigned i = 0; i < row->n_samples; i++)
		cpu_s += row->samples[i].cpu_s;
	return bytes > 0 ? cpu_s / bytes * 1e9 : 0;
}

/* Of one counter over all rounds. */
static double sum(const struct rf_bench_row *row, bool host, const char *name)
{
	double total = 0;

	for (unsigned i = 0; i < row->n_samples; i++) {
		const json_t *counters = host ? row->samples[i].host : row->samples[i].guest;

		total += (double)json_integer_value(json_object_get(counters, name));
	}
	return total;
}

struct rf_bench_costs rf_bench_row_costs(const struct rf_bench_row *row)
{
	/* Each is one, but for those of which several were one. */
	double calls = sum(row, true, "from_guest_sends") + sum(row, true, "to_guest_reads") -
		       sum(row, true, "uring_ops") + sum(row, true, "uring_batches");
	double carried = sum(row, true, "from_guest_bytes") + sum(row, true, "to_guest_bytes");
	double told = sum(row, false, "tx_kicks") + sum(row, false, "rx_kicks") +
		      sum(row, true, "vu_calls");
	double bytes = sum(row, false, "tx_bytes") + sum(row, false, "rx_bytes");
	struct rf_bench_costs costs = { .known = row->n_samples && row->samples[0].guest };

	costs.bytes_per_syscall = calls > 0 ? carried / calls : 0;
	costs.notifications_per_mib = bytes > 0 ? told / (bytes / MIB) : 0;
	if (row->n_samples)
		costs.bounced_bytes =
			(sum(row, true, "bounced_bytes") + sum(row, false, "rx_bounced_bytes")) /
			row->n_samples;
	return costs;
}

static json_t *total_of(const struct rf_bench_row *row, bool host)
{
	json_t *first = host ? row->samples[0].host : row->samples[0].guest;
	json_t *total = json_object();

	for (void *at = json_object_iter(first); at; at = json_object_iter_next(first, at)) {
		const char *name = json_object_iter_key(at);

		json_object_set_new(total, name, json_integer((json_int_t)sum(row, host, name)));
	}
	return total;
}

/* What the row's bytes have cost, and the counters themselves, summed over all rounds. */
static json_t *counters_json(const struct rf_bench_row *row)
{
	struct rf_bench_costs costs = rf_bench_row_costs(row);
	json_t *json = json_pack("{s:o*, s:o*}", "host", total_of(row, true), "guest",
				 total_of(row, false));

	if (costs.known)
		json_object_update_new(json, json_pack("{s:f, s:f, s:f}", "bytes_per_syscall",
						       costs.bytes_per_syscall, "bounced_bytes",
						       costs.bounced_bytes, "notifications_per_mib",
						       costs.notifications_per_mib));
	if (row->extra)
		json_object_update(json, row->extra);
	return json;
}

/* Of the slowest stream to the fastest one, median over the rounds. */
static double fairness(const struct rf_bench_row *row)
{
	double values[RF_BENCH_MAX_RUNS];

	for (unsigned i = 0; i < row->n_samples; i++) {
		const struct rf_bench_sample *sample = &row->samples[i];

		values[i] = sample->fastest > 0 ? sample->slowest / sample->fastest : 0;
	}
	return rf_bench_stat(values, row->n_samples).median;
}

static json_t *spread_json(const struct rf_bench_row *row, const struct rf_bench_row *raw)
{
	struct rf_bench_stat stat = rf_bench_row_stat(row), ratio;
	json_t *json =
		json_pack("{s:f, s:f, s:i, s:i, s:i, s:i, s:s}", "min", stat.min, "max", stat.max,
			  "runs", (int)row->n_samples, "disturbed",
			  (int)rf_bench_row_disturbed(row), "moved", (int)rf_bench_row_moved(row),
			  "thrown_away", (int)row->thrown, "placement", row->place.name);

	if (row->streams > 1)
		json_object_set_new(json, "slowest_to_fastest", json_real(fairness(row)));
	if (row->rotate)
		json_object_set_new(json, "rotate", json_integer(row->rotate));
	if (raw && raw != row) {
		ratio = rf_bench_row_ratio(row, raw);
		json_object_set_new(json, "to_raw",
				    json_pack("[f, f, f]", ratio.min, ratio.median, ratio.max));
	}
	return json;
}

json_t *rf_bench_row_json(const struct rf_bench_row *row, const struct rf_bench_row *raw)
{
	json_t *json =
		json_pack("{s:s, s:s, s:s, s:I, s:i, s:s}", "bench", row->bench, "via", row->via,
			  "dir", rf_bench_dir_name(row->dir), "size", (json_int_t)row->size,
			  "streams", (int)row->streams, "variant", row->variant);

	if (row->latency) {
		struct rf_bench_latency latency = rf_bench_row_latency(row);

		json_object_update_new(json, json_pack("{s:f, s:f, s:f, s:f}", "p1_ns", latency.p1,
						       "mean_ns", latency.mean, "p50_ns",
						       latency.p50, "p99_ns", latency.p99));
	} else if (row->n_samples) {
		json_object_set_new(json, "gbps", json_real(rf_bench_row_stat(row).median));
	}
	json_object_update_new(json, json_pack("{s:o, s:f, s:o}", "spread", spread_json(row, raw),
					       "cpu_s_per_gb", rf_bench_row_cpu_s_per_gb(row),
					       "counters", counters_json(row)));
	return json;
}
