/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The store-buffering litmus of ring_fence_store_load(), on the real rings: one side publishes at
 * the very moment when the other asks to be told. Sleeping is a look at a word here, because a
 * system call would keep the two apart; a notification that is lost leaves both waiting.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "ring/devq.h"
#include "ring/drvq.h"

#include "fake_mem.h"
#include "prng.h"

#define NUM     64u
#define DRV_AT  0x1000u
#define DEV_AT  0x2000u
#define BUF_AT  0x3000u
#define RUN_MS  250
#define LOST_MS 5000

static const struct fake_region region = { 0, 0x10000, 0 };

/* @bell: notifications given; @heard: those that the sleeper has seen */
struct sleeper {
	_Alignas(64) atomic_uint bell;
	unsigned heard;
	uint64_t n_slept;
};

struct wakeups {
	struct rf_drvq *drv;
	struct rf_devq *dev;
	_Alignas(64) atomic_bool stop;
	struct sleeper device, driver;
	bool device_lost;
};

/* Keep this thread on the n-th processor that we may use: left alone, both end up on one. */
static void pin(unsigned n)
{
	cpu_set_t all, one;

	if (sched_getaffinity(0, sizeof(all), &all) < 0)
		return;
	CPU_ZERO(&one);
	for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, &all) && !n--)
			CPU_SET(cpu, &one);
	}
	if (CPU_COUNT(&one))
		(void)sched_setaffinity(0, sizeof(one), &one);
}

static void ring_bell(struct sleeper *s)
{
	atomic_fetch_add(&s->bell, 1);
}

/* False if nobody rings. */
static bool sleep_until_bell(struct wakeups *w, struct sleeper *s)
{
	uint64_t end = 0;

	s->n_slept++;
	for (unsigned i = 0; atomic_load(&s->bell) == s->heard; i++) {
		if (s == &w->device && atomic_load(&w->stop))
			return true;
		if (i % 1024 < 1000)
			continue;
		/* The other side may share our processor. */
		sched_yield();
		end = end ? end : rf_clock_now() + LOST_MS * RF_NS_PER_MS;
		if (rf_clock_now() > end)
			return false;
	}
	s->heard = atomic_load(&s->bell);
	return true;
}

/* A moment of random length, so that the sides meet at every distance. */
static void dawdle(uint64_t *seed)
{
	for (volatile unsigned i = prng_below(seed, 100); i; i--)
		;
}

static void *device_main(void *arg)
{
	struct wakeups *w = arg;
	uint64_t seed = 1;

	pin(1);
	while (!atomic_load(&w->stop)) {
		const struct rf_chain *chains;
		int n = rf_devq_look(w->dev, 1, &chains);

		if (n < 0)
			break;
		if (n) {
			rf_devq_take(w->dev, 1);
			rf_devq_push(w->dev, chains, 1);
			if (rf_devq_publish(w->dev))
				ring_bell(&w->driver);
			continue;
		}
		dawdle(&seed);
		if (!rf_devq_arm(w->dev) && !sleep_until_bell(w, &w->device)) {
			w->device_lost = true;
			break;
		}
		rf_devq_disarm(w->dev);
	}
	return NULL;
}

/* Keep a random number in flight, and wait for the last of them. */
static const char *driver_run(struct wakeups *w)
{
	const struct rf_drvq_piece piece = { { BUF_AT }, 1 };
	uint64_t end = rf_clock_now() + RUN_MS * RF_NS_PER_MS, seed = 2;

	while (rf_clock_now() < end) {
		uint32_t len;

		for (unsigned n = 1 + prng_below(&seed, 3); n; n--) {
			if (rf_drvq_add(w->drv, &piece, 0, 1, w) < 0)
				return "driver: the ring broke";
			if (rf_drvq_publish(w->drv))
				ring_bell(&w->device);
			dawdle(&seed);
		}
		while (rf_drvq_outstanding(w->drv)) {
			if (rf_drvq_get(w->drv, &len))
				continue;
			dawdle(&seed);
			if (!rf_drvq_arm(w->drv) && !sleep_until_bell(w, &w->driver))
				return "driver: call lost";
			rf_drvq_disarm(w->drv);
		}
	}
	return NULL;
}

static void run(bool event_idx)
{
	struct wakeups w = { .drv = NULL };
	struct fake_mem m;
	struct rf_ring_config config = { .layout = RF_RING_SPLIT,
					 .num = NUM,
					 .event_idx = event_idx };
	const char *wrong;
	pthread_t thread;
	cpu_set_t all;
	uint8_t *base;

	fake_mem_init(&m, region.size, &region, 1);
	base = fake_mem_host(&m, 0, region.size);
	config.desc = base;
	config.driver = base + DRV_AT;
	config.device = base + DEV_AT;
	assert_int_equal(rf_drvq_new(&config, &w.drv), 0);
	assert_int_equal(rf_devq_new(m.mem, &w.dev), 0);
	assert_int_equal(rf_devq_start(w.dev, &config), 0);
	assert_int_equal(pthread_create(&thread, NULL, device_main, &w), 0);
	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	pin(0);
	wrong = driver_run(&w);
	(void)sched_setaffinity(0, sizeof(all), &all);
	atomic_store(&w.stop, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	print_message("# the device slept %llu times, the driver %llu\n",
		      (unsigned long long)w.device.n_slept, (unsigned long long)w.driver.n_slept);
	rf_devq_free(w.dev);
	rf_drvq_free(w.drv);
	fake_mem_fini(&m);
	if (wrong)
		fail_msg("%s", wrong);
	assert_false(w.device_lost);
	assert_true(w.device.n_slept && w.driver.n_slept);
}

static void test_event(void **state RF_UNUSED)
{
	run(true);
}

static void test_flag(void **state RF_UNUSED)
{
	run(false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_event),
		cmocka_unit_test(test_flag),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
