/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a process holds and has used, from /proc.
 */
#ifndef RF_BENCH_USAGE_H
#define RF_BENCH_USAGE_H

#include <stdint.h>
#include <sys/types.h>

/**
 * struct rf_bench_usage - What a process holds and has used
 * @fds:	Open descriptors
 * @anon_kib:	Resident memory of its own
 * @shared_kib:	Resident memory that it shares: the guest's, as far as it was touched
 * @run_ns:	CPU time of its threads that live
 * @sleeps:	Times one of them has gone to sleep (voluntary context switches)
 */
struct rf_bench_usage {
	long fds;
	long anon_kib;
	long shared_kib;
	uint64_t run_ns;
	uint64_t sleeps;
};

struct rf_bench_usage rf_bench_usage(pid_t pid);

/* Unswappable memory of the whole kernel's object caches; 0 if it is not told. */
long rf_bench_slab_kib(void);

#endif
