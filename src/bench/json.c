/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The JSON file: this machine, and all rows.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "lab.h"
#include "round.h"

static void cpu_model(char *model, size_t bytes)
{
	FILE *file = fopen("/proc/cpuinfo", "re");
	char line[256];

	snprintf(model, bytes, "unknown");
	while (file && fgets(line, sizeof(line), file)) {
		const char *colon = strchr(line, ':');

		if (strncmp(line, "model name", 10) != 0 || !colon)
			continue;
		snprintf(model, bytes, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
		break;
	}
	if (file)
		fclose(file);
}

json_t *rf_bench_host_json(const struct rf_bench *bench)
{
	struct utsname name = { .release = "" };
	char model[128];

	uname(&name);
	cpu_model(model, sizeof(model));
	return json_pack("{s:s, s:s, s:s, s:i, s:{s:i, s:i}, s:{s:f, s:f}}", "kernel", name.release,
			 "machine", name.machine, "cpu", model, "cores", (int)rf_bench_n_cores(),
			 "granted_sndbuf", "default", rf_bench_granted_sndbuf(0), "of_1m",
			 rf_bench_granted_sndbuf(1 << 20), "core_rtt_ns", "min", bench->rtt_min,
			 "max", bench->rtt_max);
}

static bool same_case(const struct rf_bench_row *a, const struct rf_bench_row *b)
{
	return a->bench == b->bench && a->dir == b->dir && a->size == b->size &&
	       a->streams == b->streams && a->rotate == b->rotate &&
	       a->same_thread == b->same_thread && a->latency == b->latency;
}

const struct rf_bench_row *rf_bench_find_raw(const struct rf_bench *bench,
					     const struct rf_bench_row *row)
{
	for (unsigned i = 0; i < bench->n_rows; i++)
		if (bench->rows[i]->raw && same_case(bench->rows[i], row))
			return bench->rows[i];
	return NULL;
}

json_t *rf_bench_rows_json(const struct rf_bench *bench)
{
	json_t *rows = json_array();

	for (unsigned i = 0; i < bench->n_rows; i++)
		json_array_append_new(rows,
				      rf_bench_row_json(bench->rows[i],
							rf_bench_find_raw(bench, bench->rows[i])));
	return rows;
}

static json_t *all_json(const struct rf_bench *bench)
{
	return json_pack("{s:s, s:o, s:o}", "bench", bench->options->part, "host",
			 rf_bench_host_json(bench), "rows", rf_bench_rows_json(bench));
}

int rf_bench_file_check(const char *path)
{
	int fd;

	if (access(path, F_OK) == 0)
		return access(path, W_OK) == 0 ? 0 : rf_bench_error(errno, "%s", path);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return rf_bench_error(errno, "%s", path);
	close(fd);
	return unlink(path) == 0 ? 0 : rf_bench_error(errno, "%s", path);
}

int rf_bench_json_write(const struct rf_bench *bench, const char *path)
{
	json_t *json = all_json(bench);
	int r = 0;

	if (!json)
		return rf_bench_error(ENOMEM, "rows");
	errno = 0;
	if (json_dump_file(json, path, JSON_INDENT(1)) < 0)
		r = rf_bench_error(errno ? errno : EIO, "%s", path);
	json_decref(json);
	return r;
}
