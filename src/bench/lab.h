/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What all parts work with: the measurement at large, its rows, its folder.
 */
#ifndef RF_BENCH_LAB_H
#define RF_BENCH_LAB_H

#include "base/util.h"
#include "row.h"

#define RF_BENCH_MAX_ROWS 1024u

/**
 * struct rf_bench - One measurement
 * @options:	What is asked for
 * @dir:	Folder for sockets, removed at the end
 * @socket, @uds: Sockets of our back end
 * @rows:	All rows, in the order of the JSON file; each is allocated
 * @n_rows:	Their number
 * @rtt_min, @rtt_max: Core-to-core round trips seen, ns; 0 if none
 */
struct rf_bench {
	const struct rf_bench_options *options;
	char dir[64];
	char socket[RF_BENCH_PATH_BYTES];
	char uds[RF_BENCH_PATH_BYTES];
	struct rf_bench_row *rows[RF_BENCH_MAX_ROWS];
	unsigned n_rows;
	double rtt_min, rtt_max;
};

/* Say on standard error what failed: one line. Return: -@error. */
int rf_bench_error(int error, const char *fmt, ...) RF_PRINTF(2, 3);

/* A line for who waits, on standard error. */
void rf_bench_progress(const char *fmt, ...) RF_PRINTF(1, 2);

/* Was it interrupted (SIGINT, SIGTERM)? Everything that waits looks. */
bool rf_bench_interrupted(void);

/* Sleep. Return: 0, or -EINTR when it was interrupted. */
int rf_bench_sleep(double seconds);

double rf_bench_now_s(void);

/**
 * rf_bench_add_row() - Begin a row
 * @part:	Name of its part, a constant
 * @variant:	Name of its variant
 *
 * Return: the row, which stays where it is, all else in it 0, via unix and one stream; NULL after
 * saying why not.
 */
struct rf_bench_row *rf_bench_add_row(struct rf_bench *bench, const char *part,
				      const char *variant);

/* The program itself, to run its subcommands. */
const char *rf_bench_program(void);

/* SO_SNDBUF that the kernel grants for @ask, 0 for the default. */
int rf_bench_granted_sndbuf(int ask);

/* What a row is compared with: a plain socket, same size and so on. NULL if there is none. */
const struct rf_bench_row *rf_bench_find_raw(const struct rf_bench *bench,
					     const struct rf_bench_row *row);

/* table.c: print rows that were run in turn. */
void rf_bench_table(const struct rf_bench *bench, unsigned first, unsigned n);

/* The description of this machine in the JSON file. */
json_t *rf_bench_host_json(const struct rf_bench *bench);

/* All rows as an array for the JSON file. Return: a new reference, or NULL when out of memory. */
json_t *rf_bench_rows_json(const struct rf_bench *bench);

/* Will a file be writable when all is measured? Return: 0, or -errno after saying why not. */
int rf_bench_file_check(const char *path);

/* Write all rows. Return: 0, or -errno. */
int rf_bench_json_write(const struct rf_bench *bench, const char *path);

#endif
