/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RTT_ROUNDS  2000
#define RTT_SAMPLES 51

void bench_die(const char *what)
{
	perror(what);
	exit(1);
}

double bench_now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

void bench_pin(pid_t pid, int core)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (int i = 0; core == BENCH_ANY_CORE && i < CPU_SETSIZE; i++)
		CPU_SET((size_t)i, &set);
	if (core != BENCH_ANY_CORE)
		CPU_SET((size_t)core, &set);
	(void)sched_setaffinity(pid, sizeof(set), &set);
}

pid_t bench_fork(void)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid < 0)
		bench_die("fork");
	if (pid == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

void bench_kill(pid_t pid)
{
	kill(pid, SIGTERM);
	waitpid(pid, NULL, 0);
}

struct ball {
	_Alignas(64) _Atomic unsigned there;
	_Alignas(64) _Atomic unsigned back;
};

static void *return_balls(void *arg)
{
	struct ball *ball = arg;

	bench_pin(0, 1);
	for (unsigned i = 1; i <= RTT_ROUNDS * RTT_SAMPLES; i++) {
		while (atomic_load_explicit(&ball->there, memory_order_acquire) != i)
			;
		atomic_store_explicit(&ball->back, i, memory_order_release);
	}
	return NULL;
}

double bench_core_rtt_ns(void)
{
	static struct ball ball;
	double samples[RTT_SAMPLES];
	cpu_set_t before;
	pthread_t thread;
	unsigned i = 0;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		return 0;
	ball = (struct ball){ 0 };
	sched_getaffinity(0, sizeof(before), &before);
	bench_pin(0, 0);
	if (pthread_create(&thread, NULL, return_balls, &ball))
		return 0;
	for (int s = 0; s < RTT_SAMPLES; s++) {
		double begin = bench_now_s();

		for (int round = 0; round < RTT_ROUNDS; round++) {
			atomic_store_explicit(&ball.there, ++i, memory_order_release);
			while (atomic_load_explicit(&ball.back, memory_order_acquire) != i)
				;
		}
		samples[s] = (bench_now_s() - begin) * 1e9 / RTT_ROUNDS;
	}
	pthread_join(thread, NULL);
	sched_setaffinity(0, sizeof(before), &before);
	return bench_stat(samples, RTT_SAMPLES).median;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct bench_stat bench_stat(double *values, size_t n)
{
	qsort(values, n, sizeof(*values), compare);
	return (struct bench_stat){ values[n / 2], values[0], values[n - 1] };
}
