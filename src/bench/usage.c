/* SPDX-License-Identifier: BSD-3-Clause */
#include "usage.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number behind @name in a file of lines "NAME: NUMBER ...", 0 if there is none. */
static uint64_t read_field(const char *path, const char *name)
{
	FILE *file = fopen(path, "re");
	size_t len = strlen(name);
	uint64_t value = 0;
	char line[256];

	if (!file)
		return 0;
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, name, len) && line[len] == ':')
			value = strtoull(line + len + 1, NULL, 10);
	fclose(file);
	return value;
}

/* The first number in a file. */
static uint64_t read_number(const char *path)
{
	FILE *file = fopen(path, "re");
	char line[128] = "";

	if (!file)
		return 0;
	if (!fgets(line, sizeof(line), file))
		line[0] = '\0';
	fclose(file);
	return strtoull(line, NULL, 10);
}

/* Return: number of entries; @each is called with the path of each. */
static long for_entries(const char *path, void (*each)(const char *path, void *ctx), void *ctx)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	char name[512];
	long n = 0;

	while (dir && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		n++;
		snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
		if (each)
			each(name, ctx);
	}
	if (dir)
		closedir(dir);
	return n;
}

static void add_thread(const char *path, void *ctx)
{
	struct rf_bench_usage *usage = ctx;
	char name[600];

	snprintf(name, sizeof(name), "%s/schedstat", path);
	usage->run_ns += read_number(name);
	snprintf(name, sizeof(name), "%s/status", path);
	usage->sleeps += read_field(name, "voluntary_ctxt_switches");
}

struct rf_bench_usage rf_bench_usage(pid_t pid)
{
	struct rf_bench_usage usage = { 0 };
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	usage.fds = for_entries(path, NULL, NULL);
	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	usage.anon_kib = (long)read_field(path, "RssAnon");
	usage.shared_kib = (long)read_field(path, "RssShmem");
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	for_entries(path, add_thread, &usage);
	return usage;
}

long rf_bench_slab_kib(void)
{
	return (long)read_field("/proc/meminfo", "SUnreclaim");
}
