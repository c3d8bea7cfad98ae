/* SPDX-License-Identifier: BSD-3-Clause */
#include "lab.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "plot.h"
#include "published.h"

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
	(void)sig;
	interrupted = 1;
}

bool rf_bench_interrupted(void)
{
	return interrupted != 0;
}

int rf_bench_error(int error, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "ringferry bench: %s%s%s\n", text, error == EPROTO ? "" : ": ",
		error == EPROTO ? "" : strerror(error));
	return -error;
}

void rf_bench_progress(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

double rf_bench_now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

int rf_bench_sleep(double seconds)
{
	struct timespec ts = { .tv_sec = (time_t)seconds };

	ts.tv_nsec = (long)((seconds - (double)ts.tv_sec) * 1e9);
	while (!interrupted && nanosleep(&ts, &ts) < 0)
		;
	return interrupted ? -EINTR : 0;
}

const char *rf_bench_program(void)
{
	static char path[4096];
	ssize_t n = *path ? 0 : readlink("/proc/self/exe", path, sizeof(path) - 1);

	if (n > 0)
		path[n] = '\0';
	return path;
}

int rf_bench_granted_sndbuf(int ask)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), bytes = 0;
	socklen_t len = sizeof(int);

	if (ask)
		(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &ask, sizeof(ask));
	(void)getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &len);
	rf_fd_close(fd);
	return bytes;
}

struct rf_bench_row *rf_bench_add_row(struct rf_bench *bench, const char *part, const char *variant)
{
	struct rf_bench_row *row = NULL;

	if (bench->n_rows < RF_BENCH_MAX_ROWS)
		row = calloc(1, sizeof(*row));
	if (!row) {
		(void)rf_bench_error(ENOMEM, "rows");
		return NULL;
	}
	row->bench = part;
	row->via = "unix";
	row->streams = 1;
	snprintf(row->variant, sizeof(row->variant), "%s", variant);
	bench->rows[bench->n_rows++] = row;
	return row;
}

void rf_bench_options_init(struct rf_bench_options *options)
{
	*options = (struct rf_bench_options){
		.dirs = RF_BENCH_BOTH,
		.streams = 1,
		.seconds = 0.5,
		.best_place = true,
		.queue_size = 256,
		.idle_seconds = 5,
	};
}

static const struct rf_bench_part *find_part(const char *name)
{
	const struct rf_bench_part *part = rf_bench_parts;

	while (part->name && strcmp(part->name, name) != 0)
		part++;
	return part->name ? part : NULL;
}

static int open_dir(struct rf_bench *bench)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(bench->dir, sizeof(bench->dir), "%.32s/ringferry-bench-XXXXXX",
		 tmp && *tmp == '/' && strlen(tmp) <= 32 ? tmp : "/tmp");
	if (!mkdtemp(bench->dir))
		return rf_bench_error(errno, "%s", bench->dir);
	snprintf(bench->socket, sizeof(bench->socket), "%s/vhost", bench->dir);
	snprintf(bench->uds, sizeof(bench->uds), "%s/vsock", bench->dir);
	return 0;
}

/* What a process that was killed has left is removed, too. */
static void close_dir(const struct rf_bench *bench)
{
	(void)unlink(bench->socket);
	(void)unlink(bench->uds);
	(void)rmdir(bench->dir);
}

static int draw(const struct rf_bench *bench)
{
	const char *path = bench->options->plot;
	json_t *rows = rf_bench_rows_json(bench);
	int r = rf_bench_plot_file(rows, path);

	json_decref(rows);
	if (r == -ENODATA)
		return rf_bench_error(EPROTO, "%s: nothing was measured that can be drawn", path);
	if (r == -E2BIG)
		return rf_bench_error(EPROTO, "%s: more directions, variants or sizes than fit",
				      path);
	return r < 0 ? rf_bench_error(-r, "%s", path) : 0;
}

static int run_part(struct rf_bench *bench, const struct rf_bench_part *part)
{
	int r = bench->options->json ? rf_bench_file_check(bench->options->json) : 0;

	if (r == 0 && bench->options->plot)
		r = rf_bench_file_check(bench->options->plot);
	if (r == 0)
		r = open_dir(bench);
	if (r < 0)
		return r;
	r = part->run(bench);
	close_dir(bench);
	if (r == 0 && bench->options->json)
		r = rf_bench_json_write(bench, bench->options->json);
	if (r == 0 && bench->options->plot)
		r = draw(bench);
	return r;
}

int rf_bench_run(const struct rf_bench_options *options)
{
	struct rf_bench *bench = calloc(1, sizeof(*bench));
	static const struct rf_bench_part preset = { "preset", NULL, rf_bench_preset };
	const struct rf_bench_part *part = options->preset ? &preset : find_part(options->part);
	struct sigaction action = { .sa_handler = on_signal };
	int r;

	if (!bench || !part) {
		free(bench);
		return 1;
	}
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	bench->options = options;
	r = run_part(bench, part);
	for (unsigned i = 0; i < bench->n_rows; i++) {
		rf_bench_row_fini(bench->rows[i]);
		free(bench->rows[i]);
	}
	free(bench);
	if (r == -EINTR)
		return 130;
	return r < 0 ? 1 : 0;
}
