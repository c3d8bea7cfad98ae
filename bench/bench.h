/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What measurements share: processes on chosen cores, the state of the machine, medians.
 */
#ifndef RF_BENCH_BENCH_H
#define RF_BENCH_BENCH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct rf_guest;

/* Say what failed (with errno) and end the program. */
_Noreturn void bench_die(const char *what);

double bench_now_s(void);

/* "Wherever the scheduler likes", as a core. */
#define BENCH_ANY_CORE (-1)

/* Run a process (0: the calling one) on one core; a core that does not exist is ignored. */
void bench_pin(pid_t pid, int core);

/**
 * bench_fork() - Start a process that ends with its parent
 * Return: 0 in the child, its pid in the parent.
 */
pid_t bench_fork(void);

/* End a process that bench_fork() started. */
void bench_kill(pid_t pid);

/**
 * bench_core_rtt_ns() - Time of a cache line's way from core 0 to core 1 and back
 *
 * Virtual machines are moved between cores that are near and far from each other, which shifts
 * every two-process figure: it is printed with them, before and after.
 *
 * Return: nanoseconds (median of many), 0 with one core.
 */
double bench_core_rtt_ns(void);

/* Median, minimum and maximum; sorts @values. */
struct bench_stat {
	double median, min, max;
};

struct bench_stat bench_stat(double *values, size_t n);

#define BENCH_MAX_RUNS  101
#define BENCH_MAX_SIZES 16

/**
 * struct bench_setup - What is measured, and where
 * @program:	ringferry
 * @dir:	For the sockets
 * @socket:	vhost-user socket
 * @uds:	Hybrid socket
 * @back_end:	Process of the back end
 * @queue_size:	Of the guest
 * @seconds:	Length of a run
 * @runs:	Runs per figure
 * @idle_seconds: How long idle connections are watched
 * @sizes:	Sizes of messages
 * @n_sizes:	Their number
 */
struct bench_setup {
	const char *program;
	char dir[64];
	char socket[96];
	char uds[96];
	pid_t back_end;
	unsigned queue_size;
	double seconds;
	unsigned runs;
	double idle_seconds;
	size_t sizes[BENCH_MAX_SIZES];
	unsigned n_sizes;
};

void bench_start_back_end(struct bench_setup *setup);

struct rf_guest *bench_open_guest(const struct bench_setup *setup);

/* Write to and read from a pipe to another process of the measurement, all or nothing. */
void bench_tell(int fd, const void *data, size_t len);
void bench_hear(int fd, void *data, size_t len);

/**
 * struct bench_usage - What a process holds and has used
 * @fds:	Open descriptors
 * @anon_kib:	Resident memory of its own
 * @shared_kib:	Resident memory that it shares: the guest's, as far as it was touched
 * @run_ns:	CPU time of its threads that live
 * @sleeps:	Times one of them has gone to sleep (voluntary context switches)
 */
struct bench_usage {
	long fds;
	long anon_kib;
	long shared_kib;
	uint64_t run_ns;
	uint64_t sleeps;
};

struct bench_usage bench_usage(pid_t pid);

/* Unswappable memory of the whole kernel's object caches; 0 if it is not told. */
long bench_slab_kib(void);

/* The measurements; they print. */
void bench_streams(struct bench_setup *setup);
void bench_conns(struct bench_setup *setup);

/* stream.c, for compare.c */

/**
 * struct bench_place - Where the processes of a run are, and what they ask for
 * @name:	For people
 * @near:	Core of the guest; of the writer without a guest
 * @back_end:	Core of the back end
 * @far:	Core of the host program; of the reader without a guest
 * @sndbuf:	SO_SNDBUF of a plain socket, 0 for the default
 */
struct bench_place {
	const char *name;
	int near;
	int back_end;
	int far;
	int sndbuf;
};

/* What is run: a plain socket, or a stream in one direction. */
enum bench_way {
	BENCH_RAW,
	BENCH_TO_HOST,
	BENCH_TO_GUEST,
};

/* Return: GB/s of one run that lasts for @seconds. */
double bench_run(const struct bench_setup *setup, enum bench_way way,
		 const struct bench_place *place, size_t size, double seconds);

#endif
