/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Placements: which cores the processes of a run share decides as much as the code does.
 */
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "round.h"

#define ANY RF_BENCH_ANY_CORE

static const struct rf_bench_place places[] = {
	{ "split-host", 0, 1, 1, 0 }, { "split-guest", 0, 0, 1, 0 }, { "three", 0, 1, 2, 0 },
	{ "free", ANY, ANY, ANY, 0 }, { "one", 0, 0, 0, 0 },
};

/* Those that are tried for the best one: all with every process on one core lose. */
#define N_TRIED 4u

/* A plain socket's ends. */
static const struct rf_bench_place raw_places[] = {
	{ "0|1", 0, 0, 1, 0 },
	{ "1|0", 1, 1, 0, 0 },
	{ "one", 0, 0, 0, 0 },
};

static const int raw_sndbufs[] = { 0, 512 << 10, 1 << 20, 4 << 20 };

/* The cores that this process could use at its start. */
static struct {
	int cores[CPU_SETSIZE];
	unsigned n;
} allowed;

static void find_cores(void)
{
	cpu_set_t set;

	if (allowed.n || sched_getaffinity(0, sizeof(set), &set) < 0)
		return;
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET((size_t)i, &set))
			allowed.cores[allowed.n++] = i;
}

unsigned rf_bench_n_cores(void)
{
	find_cores();
	return allowed.n;
}

static void pin_thread(pid_t tid, int core)
{
	cpu_set_t set;

	find_cores();
	CPU_ZERO(&set);
	for (unsigned i = 0; i < allowed.n; i++)
		if (core == ANY || i == (unsigned)core % allowed.n)
			CPU_SET((size_t)allowed.cores[i], &set);
	(void)sched_setaffinity(tid, sizeof(set), &set);
}

void rf_bench_pin(int core)
{
	pin_thread(0, core);
}

void rf_bench_pin_process(pid_t pid, int core)
{
	struct dirent *entry;
	char path[64];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			pin_thread((pid_t)strtol(entry->d_name, NULL, 10), core);
	if (dir)
		closedir(dir);
}

static bool fits(const struct rf_bench_place *place)
{
	int n = (int)rf_bench_n_cores();

	return place->guest < n && place->back_end < n && place->host < n;
}

/* One of the cores, or "any" for all of them. */
static const char *core_parse(const char *text, int *ret_core)
{
	char *end;
	long core = strtol(text, &end, 10);

	if (!strncmp(text, "any", 3)) {
		*ret_core = ANY;
		return text + 3;
	}
	if (end == text || core < 0 || core >= CPU_SETSIZE)
		return NULL;
	*ret_core = (int)core;
	return end;
}

static int cores_parse(const char *text, struct rf_bench_place *place)
{
	int *const cores[] = { &place->guest, &place->back_end, &place->host };

	snprintf(place->name, sizeof(place->name), "%.40s", text);
	for (unsigned i = 0; i < RF_ARRAY_SIZE(cores); i++) {
		text = core_parse(text, cores[i]);
		if (!text || *text != (i + 1 < RF_ARRAY_SIZE(cores) ? ':' : '\0'))
			return -EINVAL;
		text++;
	}
	return fits(place) ? 0 : -EINVAL;
}

int rf_bench_place_parse(const char *text, struct rf_bench_place *ret_place, bool *ret_best,
			 char *ret_wrong)
{
	struct rf_bench_place place = { .sndbuf = 0 };

	*ret_best = !strcmp(text, "best");
	if (*ret_best)
		return 0;
	for (unsigned i = 0; i < RF_ARRAY_SIZE(places); i++) {
		if (strcmp(text, places[i].name) != 0 || !fits(&places[i]))
			continue;
		*ret_place = places[i];
		return 0;
	}
	if (cores_parse(text, &place) == 0) {
		*ret_place = place;
		return 0;
	}
	snprintf(ret_wrong, RF_BENCH_WRONG_BYTES,
		 "best, free, one, split-host, split-guest, three, or GUEST:BACKEND:HOST, each one "
		 "of the %u cores from 0, or any",
		 rf_bench_n_cores());
	return -EINVAL;
}

/* Via embed there are two threads, or one. */
static unsigned embed_places(const struct rf_bench_variant *variant,
			     struct rf_bench_place *ret_places)
{
	bool one = variant->same_thread || variant->kind == RF_BENCH_RAW_BEST;
	unsigned n = 0;

	for (unsigned i = 0; i < RF_ARRAY_SIZE(raw_places); i++)
		if (fits(&raw_places[i]) && one == (raw_places[i].guest == raw_places[i].host))
			ret_places[n++] = raw_places[i];
	if (!n || variant->kind == RF_BENCH_OURS)
		ret_places[n++] = (struct rf_bench_place){ "free", ANY, ANY, ANY, 0 };
	return n;
}

static unsigned add_raw(const struct rf_bench_place *place, bool best, struct rf_bench_place *out)
{
	unsigned n = best ? (unsigned)RF_ARRAY_SIZE(raw_sndbufs) : 1;

	for (unsigned i = 0; i < n; i++) {
		out[i] = *place;
		out[i].sndbuf = raw_sndbufs[i];
		if (out[i].sndbuf)
			snprintf(out[i].name, sizeof(out[i].name), "%.24s, %d KiB", place->name,
				 out[i].sndbuf >> 10);
	}
	return n;
}

unsigned rf_bench_places(const struct rf_bench_options *options,
			 const struct rf_bench_variant *variant, struct rf_bench_place *ret_places)
{
	bool best = variant->kind == RF_BENCH_RAW_BEST;
	bool raw = best || variant->kind == RF_BENCH_RAW;
	unsigned n = 0;

	if (options->best_place && options->via == RF_BENCH_EMBED)
		return embed_places(variant, ret_places);
	if (options->via == RF_BENCH_EMBED)
		raw = false;
	if (!options->best_place && raw)
		return add_raw(&options->place, best, ret_places);
	if (!options->best_place) {
		ret_places[0] = options->place;
		return 1;
	}
	for (unsigned i = 0; raw && i < RF_ARRAY_SIZE(raw_places); i++)
		if (fits(&raw_places[i]))
			n += add_raw(&raw_places[i], best, ret_places + n);
	for (unsigned i = 0; !raw && i < N_TRIED; i++)
		if (fits(&places[i]))
			ret_places[n++] = places[i];
	return n;
}
