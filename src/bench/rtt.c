/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Time of a cache line's way from one core to another and back.
 *
 * Virtual machines are moved between cores that are near and far from each other, which shifts
 * every figure of two processes, and ratios, too; no figure of load shows it.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "round.h"

/* Short samples, of which few meet other load; the quarter that met least of it counts. */
#define ROUNDS  200u
#define SAMPLES 41u

struct ball {
	_Alignas(64) _Atomic unsigned there;
	_Alignas(64) _Atomic unsigned back;
};

static void *return_balls(void *arg)
{
	struct ball *ball = arg;

	rf_bench_pin(1);
	for (unsigned i = 1; i <= ROUNDS * SAMPLES; i++) {
		while (atomic_load_explicit(&ball->there, memory_order_acquire) != i)
			;
		atomic_store_explicit(&ball->back, i, memory_order_release);
	}
	return NULL;
}

double rf_bench_rtt_ns(void)
{
	static struct ball ball;
	double samples[SAMPLES];
	pthread_t thread;
	unsigned i = 0;

	if (rf_bench_n_cores() < 2)
		return 0;
	atomic_store(&ball.there, 0);
	atomic_store(&ball.back, 0);
	if (pthread_create(&thread, NULL, return_balls, &ball) != 0)
		return 0;
	rf_bench_pin(0);
	for (unsigned s = 0; s < SAMPLES; s++) {
		double begin = rf_bench_now_s();

		for (unsigned round = 0; round < ROUNDS; round++) {
			atomic_store_explicit(&ball.there, ++i, memory_order_release);
			while (atomic_load_explicit(&ball.back, memory_order_acquire) != i)
				;
		}
		samples[s] = (rf_bench_now_s() - begin) * 1e9 / ROUNDS;
	}
	pthread_join(thread, NULL);
	rf_bench_pin(RF_BENCH_ANY_CORE);
	(void)rf_bench_stat(samples, SAMPLES);
	/* They are sorted now. */
	return samples[SAMPLES / 4];
}
