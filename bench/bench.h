/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What measurements share: processes on chosen cores, the state of the machine, medians.
 */
#ifndef RF_BENCH_BENCH_H
#define RF_BENCH_BENCH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Say what failed (with errno) and end the program. */
_Noreturn void bench_die(const char *what);

double bench_now_s(void);

/* Run the calling process on one core; a core that does not exist is ignored. */
void bench_pin(int core);

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

#endif
