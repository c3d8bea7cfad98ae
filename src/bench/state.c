/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How far a run has come, and what happened between two such states.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "team.h"

/* What others may take of the machine in an undisturbed run: a share, and as ticks are coarse. */
#define OTHERS_SHARE 0.05
#define OTHERS_S     0.03

static double clock_s(clockid_t clock)
{
	struct timespec ts;

	if (clock_gettime(clock, &ts) < 0)
		return 0;
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* User and system time of all threads, those that have ended included. */
static double process_cpu_s(pid_t pid)
{
	clockid_t clock;

	return pid && clock_getcpuclockid(pid, &clock) == 0 ? clock_s(clock) : 0;
}

static double team_cpu_s(const struct rf_bench_team *team)
{
	double sum = 0;

	for (int role = 0; role < RF_BENCH_N_ROLES; role++)
		sum += process_cpu_s(team->pids[role]);
	return sum;
}

/* All that was not idle, what the hypervisor gave to others included. */
static double machine_busy_s(void)
{
	/* user, nice, system, idle, iowait, irq, softirq, steal */
	static const bool busy[] = { true, true, true, false, false, true, true, true };
	FILE *file = fopen("/proc/stat", "re");
	char line[256] = "", *at = line + strlen("cpu");
	unsigned long long ticks = 0;

	if (!file)
		return 0;
	if (!fgets(line, sizeof(line), file))
		*at = '\0';
	fclose(file);
	for (size_t i = 0; i < RF_ARRAY_SIZE(busy); i++) {
		unsigned long long value = strtoull(at, &at, 10);

		ticks += busy[i] ? value : 0;
	}
	return (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

static void read_rest(struct rf_bench_team *team, struct rf_bench_state *state)
{
	for (unsigned i = 0; i < RF_BENCH_MAX_STREAMS; i++)
		state->received[i] = atomic_load_explicit(&team->shared->lanes[i].received,
							  memory_order_relaxed);
	state->now_s = rf_bench_now_s();
	state->cpu_s = team_cpu_s(team);
	state->busy_s = machine_busy_s() - process_cpu_s(getpid());
}

void rf_bench_state_begin(struct rf_bench_team *team, struct rf_bench_state *ret_state)
{
	ret_state->host = rf_bench_host_counters(team);
	ret_state->guest = rf_bench_guest_counters(team);
	read_rest(team, ret_state);
}

void rf_bench_state_end(struct rf_bench_team *team, struct rf_bench_state *ret_state)
{
	read_rest(team, ret_state);
	ret_state->host = rf_bench_host_counters(team);
	ret_state->guest = rf_bench_guest_counters(team);
}

static bool others_worked(const struct rf_bench_state *begin, const struct rf_bench_state *end)
{
	double others = (end->busy_s - begin->busy_s) - (end->cpu_s - begin->cpu_s);
	double whole = (end->now_s - begin->now_s) * rf_bench_n_cores();

	return others > OTHERS_SHARE * whole + OTHERS_S;
}

static json_t *grown(json_t *begin, json_t *end)
{
	json_t *diff = begin && end ? rf_bench_counters_diff(begin, end) : NULL;

	json_decref(begin);
	json_decref(end);
	return diff;
}

void rf_bench_sample_fill(struct rf_bench_state *begin, struct rf_bench_state *end,
			  unsigned streams, struct rf_bench_sample *ret)
{
	double seconds = end->now_s - begin->now_s;

	ret->bytes = 0;
	ret->slowest = ret->fastest = 0;
	for (unsigned i = 0; i < streams; i++) {
		double bytes = (double)(end->received[i] - begin->received[i]);
		double rate = bytes / seconds * 1e-9;

		ret->bytes += bytes;
		ret->fastest = rate > ret->fastest ? rate : ret->fastest;
		ret->slowest = i == 0 || rate < ret->slowest ? rate : ret->slowest;
	}
	ret->gbps = ret->bytes / seconds * 1e-9;
	ret->cpu_s = end->cpu_s - begin->cpu_s;
	ret->disturbed = others_worked(begin, end);
	ret->host = grown(begin->host, end->host);
	ret->guest = grown(begin->guest, end->guest);
}
