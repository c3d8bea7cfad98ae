/* SPDX-License-Identifier: BSD-3-Clause */
/* Idle items and polling of base/loop.c, on a clock that goes on by TICK_NS whenever it is read. */
#include "base/loop.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/poll_auto.h"

#define TICK_NS 100u
#define POLL_US 20u

/* Looks while it polls for POLL_US, a tick each; looks at descriptors take some ticks, too. */
#define MAX_PEEKS (POLL_US * 1000u / TICK_NS + 1)
#define MIN_PEEKS (MAX_PEEKS * 9 / 10)

uint64_t __wrap_rf_clock_now(void);

static uint64_t clock_ns = 1;

uint64_t __wrap_rf_clock_now(void)
{
	return clock_ns += TICK_NS;
}

/**
 * struct item - An idle item, its work and an event
 * @peeks, @arms, @runs, @events: Calls so far
 * @hit_peek:	This look, counted from 1, finds something; 0 for none
 * @hit_arm:	So does arming
 * @at_peek:	Called at look @when
 * @again:	Its work queues itself again
 * @idles:	Its work queues the item
 */
struct item {
	struct rf_loop *loop;
	struct rf_idle idle;
	struct rf_work work;
	struct rf_watch watch;
	struct rf_timer timer;
	int fd;
	unsigned peeks, arms, runs, events, timeouts;
	unsigned hit_peek;
	bool hit_arm;
	void (*at_peek)(struct item *item);
	unsigned when;
	bool again, idles;
};

static bool on_peek(struct rf_idle *idle)
{
	struct item *item = RF_CONTAINER_OF(idle, struct item, idle);

	item->peeks++;
	if (item->at_peek && item->peeks == item->when)
		item->at_peek(item);
	if (item->peeks != item->hit_peek)
		return false;
	rf_work_queue(item->loop, &item->work);
	return true;
}

static bool on_arm(struct rf_idle *idle)
{
	struct item *item = RF_CONTAINER_OF(idle, struct item, idle);

	assert_null(idle->loop);
	item->arms++;
	if (item->hit_arm)
		rf_work_queue(item->loop, &item->work);
	return item->hit_arm;
}

static void on_work(struct rf_work *work)
{
	struct item *item = RF_CONTAINER_OF(work, struct item, work);

	item->runs++;
	if (item->again)
		rf_work_queue(item->loop, work);
	if (item->idles)
		rf_idle_queue(item->loop, &item->idle);
}

static void on_ready(struct rf_watch *watch, uint32_t events)
{
	struct item *item = RF_CONTAINER_OF(watch, struct item, watch);

	assert_int_equal(events, EPOLLIN);
	rf_eventfd_drain(item->fd);
	item->events++;
}

static void on_expired(struct rf_timer *timer)
{
	RF_CONTAINER_OF(timer, struct item, timer)->timeouts++;
}

static struct item *item_new(struct rf_loop *loop)
{
	struct item *item = calloc(1, sizeof(*item));

	assert_non_null(item);
	item->loop = loop;
	item->idle.peek = on_peek;
	item->idle.arm = on_arm;
	item->work.run = on_work;
	item->watch.ready = on_ready;
	item->timer.expired = on_expired;
	item->fd = rf_eventfd_new();
	assert_true(item->fd >= 0);
	assert_int_equal(rf_watch_add(loop, &item->watch, item->fd, EPOLLIN), 0);
	return item;
}

static void item_free(struct item *item)
{
	rf_idle_cancel(&item->idle);
	rf_work_cancel(&item->work);
	rf_timer_stop(&item->timer);
	rf_watch_remove(&item->watch);
	rf_fd_close(item->fd);
	free(item);
}

static int setup(void **state)
{
	struct rf_loop *loop;

	if (rf_loop_new(&loop) < 0)
		return -1;
	*state = loop;
	return 0;
}

static int teardown(void **state)
{
	rf_loop_free(*state);
	return 0;
}

/* A turn that may sleep, if only for a moment. */
static void turn(struct rf_loop *loop)
{
	assert_int_equal(rf_loop_turn(loop, 1), 0);
}

/* The item is queued while a turn goes on, as its owner's work does. */
static void queue_in_turn(struct item *item)
{
	item->idles = true;
	rf_work_queue(item->loop, &item->work);
	turn(item->loop);
	item->idles = false;
	item->runs = 0;
}

static uint64_t counter(const rf_counter *c)
{
	return rf_counter_read(c);
}

static void assert_polls(struct rf_loop *loop, uint64_t polls, uint64_t hits, uint64_t wakeups)
{
	const struct rf_loop_counters *counters = rf_loop_counters(loop);

	assert_int_equal(counter(&counters->loop_polls), polls);
	assert_int_equal(counter(&counters->loop_poll_hits), hits);
	assert_int_equal(counter(&counters->loop_wakeups), wakeups);
}

static bool readable(struct rf_loop *loop)
{
	struct pollfd pfd = { .fd = rf_loop_fd(loop), .events = POLLIN };

	return poll(&pfd, 1, 0) == 1;
}

static void test_never(void **state)
{
	struct rf_loop *loop = *state;
	struct item *item = item_new(loop);

	assert_false(rf_loop_polling(loop));
	rf_idle_queue(loop, &item->idle);
	assert_int_equal(item->arms, 1);
	assert_int_equal(rf_loop_deadline(loop), UINT64_MAX);
	turn(loop);
	assert_int_equal(item->peeks, 0);
	assert_int_equal(item->arms, 1);
	item->hit_arm = true;
	queue_in_turn(item);
	assert_int_equal(item->arms, 2);
	assert_int_equal(rf_loop_deadline(loop), 0);
	turn(loop);
	assert_int_equal(item->runs, 1);
	assert_polls(loop, 0, 0, 1);
	item_free(item);
}

static void test_miss(void **state)
{
	struct rf_loop *loop = *state;
	struct item *item = item_new(loop);
	const struct rf_loop_counters *counters = rf_loop_counters(loop);

	rf_loop_set_poll(loop, POLL_US);
	queue_in_turn(item);
	assert_int_equal(item->arms, 0);
	/* Who waits elsewhere is to come back before. */
	assert_int_equal(rf_loop_deadline(loop), 0);
	turn(loop);
	assert_in_range(item->peeks, MIN_PEEKS, MAX_PEEKS);
	assert_int_equal(item->arms, 1);
	assert_int_equal(item->runs, 0);
	assert_polls(loop, 1, 0, 1);
	assert_in_range(counter(&counters->loop_poll_ns), POLL_US * 1000,
			POLL_US * 1000 + 10 * TICK_NS);
	assert_int_equal(rf_loop_deadline(loop), UINT64_MAX);
	/* It is not looked at any more. */
	item->peeks = 0;
	turn(loop);
	assert_int_equal(item->peeks, 0);
	assert_int_equal(item->arms, 1);
	assert_polls(loop, 1, 0, 2);
	item_free(item);
}

static void test_hit(void **state)
{
	static const struct {
		unsigned hit_peek;
		bool hit_arm;
		unsigned polls, max_peeks, arms;
	} rows[] = {
		/* 0: there before it would have begun to poll */
		{ 1, false, 0, 1, 0 },
		/* 1: while it polls */
		{ 2, false, 1, 2, 0 },
		{ 50, false, 1, 50, 0 },
		/* 3: in the last moment */
		{ 0, true, 1, MAX_PEEKS, 1 },
	};
	struct rf_loop *loop = *state;
	unsigned polls = 0;

	rf_loop_set_poll(loop, POLL_US);
	for (size_t i = 0; i < RF_ARRAY_SIZE(rows); i++) {
		struct item *item = item_new(loop);

		queue_in_turn(item);
		item->hit_peek = rows[i].hit_peek;
		item->hit_arm = rows[i].hit_arm;
		turn(loop);
		assert_int_equal(item->runs, 1);
		assert_int_equal(item->arms, rows[i].arms);
		assert_in_range(item->peeks, rows[i].hit_peek, rows[i].max_peeks);
		polls += rows[i].polls;
		assert_polls(loop, polls, polls, 0);
		item_free(item);
	}
}

static void make_event(struct item *item)
{
	rf_eventfd_signal(item->fd);
}

static void test_event(void **state)
{
	struct rf_loop *loop = *state;
	struct item *item = item_new(loop);

	rf_loop_set_poll(loop, POLL_US);
	queue_in_turn(item);
	item->at_peek = make_event;
	item->when = 50;
	turn(loop);
	assert_int_equal(item->events, 1);
	assert_int_equal(item->arms, 0);
	assert_in_range(item->peeks, 50, 50 + RF_LOOP_POLL_GAP_NS / TICK_NS + 1);
	assert_polls(loop, 1, 1, 0);
	/* Then it has its full time again only if its owner says so. */
	turn(loop);
	assert_int_equal(item->arms, 1);
	assert_in_range(item->peeks, MIN_PEEKS, MAX_PEEKS + 2);
	item_free(item);
}

static void test_timer(void **state)
{
	struct rf_loop *loop = *state;
	struct item *item = item_new(loop);

	rf_loop_set_poll(loop, POLL_US);
	queue_in_turn(item);
	assert_int_equal(rf_timer_start(loop, &item->timer, clock_ns + 5000), 0);
	turn(loop);
	assert_int_equal(item->timeouts, 1);
	assert_int_equal(item->arms, 0);
	assert_in_range(item->peeks, 40, 5000 / TICK_NS + 1);
	assert_polls(loop, 1, 0, 0);
	turn(loop);
	assert_int_equal(item->arms, 1);
	assert_in_range(item->peeks, MIN_PEEKS, MAX_PEEKS + 2);
	item_free(item);
}

/* A timeout that ends before the poll does. */
static void test_timeout(void **state)
{
	struct rf_loop *loop = *state;
	struct item *item = item_new(loop);

	rf_loop_set_poll(loop, 10000);
	queue_in_turn(item);
	turn(loop);
	assert_int_equal(item->arms, 0);
	assert_in_range(item->peeks, 9000, 10001);
	assert_int_equal(rf_loop_deadline(loop), 0);
	item_free(item);
}

static void wake(struct item *item)
{
	rf_loop_wake(item->loop);
	assert_false(readable(item->loop));
}

static void wake_in_work(struct rf_work *work)
{
	wake(RF_CONTAINER_OF(work, struct item, work));
}

static void test_wake(void **state)
{
	struct rf_loop *loop = *state;
	struct item *item = item_new(loop);

	rf_loop_set_poll(loop, POLL_US);
	queue_in_turn(item);
	/* While it polls no event is needed. */
	item->at_peek = wake;
	item->when = 30;
	turn(loop);
	assert_int_equal(item->peeks, 30);
	assert_int_equal(item->arms, 0);
	assert_polls(loop, 1, 1, 0);
	/* Nor in the turn after a hit; then the next turn does not wait. */
	item->hit_peek = 40;
	item->work.run = wake_in_work;
	turn(loop);
	assert_int_equal(item->peeks, 40);
	assert_int_equal(rf_loop_deadline(loop), 0);
	turn(loop);
	assert_polls(loop, 2, 2, 0);
	/* Between turns and in a sleep it is. */
	rf_loop_wake(loop);
	assert_true(readable(loop));
	turn(loop);
	assert_false(readable(loop));
	item_free(item);
}

/* A caller that does not want to wait does not poll, and leaves nothing that did not ask. */
static void test_no_wait(void **state)
{
	struct rf_loop *loop = *state;
	struct item *item = item_new(loop);

	rf_loop_set_poll(loop, POLL_US);
	item->idles = true;
	rf_work_queue(loop, &item->work);
	assert_int_equal(rf_loop_turn(loop, 0), 0);
	assert_int_equal(item->arms, 1);
	assert_int_equal(rf_loop_deadline(loop), UINT64_MAX);
	/* Nor does it leave what an earlier turn left. */
	queue_in_turn(item);
	assert_int_equal(item->arms, 1);
	assert_int_equal(rf_loop_turn(loop, 0), 0);
	assert_int_equal(item->arms, 2);
	assert_in_range(item->peeks, 0, 1);
	assert_int_equal(rf_loop_deadline(loop), UINT64_MAX);
	assert_polls(loop, 0, 0, 0);
	item_free(item);
}

/* While one has work in each turn, the others are looked at, and asked when their time is over. */
static void test_others(void **state)
{
	struct rf_loop *loop = *state;
	struct item *busy = item_new(loop), *idle = item_new(loop), *late = item_new(loop);
	unsigned i;

	rf_loop_set_poll(loop, POLL_US);
	queue_in_turn(idle);
	busy->again = true;
	rf_work_queue(loop, &busy->work);
	idle->hit_peek = 3;
	for (i = 0; i < 5; i++)
		turn(loop);
	assert_int_equal(busy->runs, 5);
	assert_int_equal(idle->peeks, 5);
	assert_int_equal(idle->runs, 1);
	/* @late has its full time from now on. */
	clock_ns += POLL_US * 1000 - 100 * TICK_NS;
	rf_idle_queue(loop, &late->idle);
	turn(loop);
	assert_int_equal(idle->arms + late->arms, 0);
	clock_ns += 100 * TICK_NS;
	turn(loop);
	assert_int_equal(idle->arms, 1);
	assert_int_equal(late->arms, 0);
	clock_ns += POLL_US * 1000;
	turn(loop);
	assert_int_equal(late->arms, 1);
	assert_polls(loop, 0, 0, 0);
	item_free(busy);
	item_free(idle);
	item_free(late);
}

static void test_requeue(void **state)
{
	struct rf_loop *loop = *state;
	struct item *item = item_new(loop), *other = item_new(loop);

	rf_loop_set_poll(loop, POLL_US);
	queue_in_turn(item);
	rf_idle_queue(loop, &other->idle);
	item->idles = true;
	item->hit_peek = 100;
	turn(loop);
	turn(loop);
	assert_int_equal(item->arms, 1);
	assert_in_range(item->peeks, 100 + MIN_PEEKS, 100 + MAX_PEEKS);
	assert_int_equal(other->arms, 1);
	assert_in_range(other->peeks, MIN_PEEKS, MAX_PEEKS + 2);
	/* One that was cancelled is neither looked at nor armed. */
	queue_in_turn(item);
	item->peeks = 0;
	rf_idle_cancel(&item->idle);
	rf_idle_cancel(&item->idle);
	turn(loop);
	assert_int_equal(item->peeks, 0);
	assert_int_equal(item->arms, 1);
	item_free(item);
	item_free(other);
}

static void test_auto(void **state)
{
	struct rf_loop *loop = *state;
	struct item *item = item_new(loop);
	unsigned i;

	rf_loop_set_poll(loop, RF_LOOP_POLL_AUTO);
	queue_in_turn(item);
	assert_int_equal(item->arms, 1);
	/* One that times out says nothing of peers. */
	turn(loop);
	assert_false(rf_loop_polling(loop));
	/* A short sleep. */
	make_event(item);
	turn(loop);
	assert_true(rf_loop_polling(loop));
	item->hit_peek = 40;
	queue_in_turn(item);
	turn(loop);
	assert_int_equal(item->runs, 1);
	assert_polls(loop, 1, 1, 2);
	item->hit_peek = 0;
	for (i = 0; i < RF_POLL_AUTO_TRY + RF_POLL_AUTO_HIT; i++) {
		assert_true(rf_loop_polling(loop));
		queue_in_turn(item);
		turn(loop);
		assert_int_equal(item->arms, 2 + i);
	}
	assert_false(rf_loop_polling(loop));
	item->peeks = 0;
	make_event(item);
	turn(loop);
	queue_in_turn(item);
	assert_int_equal(item->peeks, 0);
	assert_polls(loop, 1 + i, 1, 3 + i);
	item_free(item);
}

static void lose_core(struct item *item)
{
	clock_ns += RF_POLL_AUTO_CUT_NS;
	make_event(item);
}

/* What is found on a core that the peer has just used is not found by polling. */
static void test_auto_cut(void **state)
{
	static const struct {
		/* At which look the peer works; 0: before the first one. */
		unsigned when;
		unsigned polls;
	} rows[] = { { 0, 0 }, { 30, RF_POLL_AUTO_TRY } };
	struct rf_loop *loop = *state;

	for (size_t i = 0; i < RF_ARRAY_SIZE(rows); i++) {
		struct item *item = item_new(loop);
		unsigned k;

		rf_loop_set_poll(loop, RF_LOOP_POLL_AUTO);
		make_event(item);
		turn(loop);
		for (k = 0; k < RF_POLL_AUTO_TRY; k++) {
			assert_true(rf_loop_polling(loop));
			queue_in_turn(item);
			item->peeks = item->events = 0;
			item->at_peek = lose_core;
			item->when = rows[i].when;
			if (!rows[i].when)
				lose_core(item);
			turn(loop);
			assert_int_equal(item->events, 1);
			rf_idle_cancel(&item->idle);
		}
		assert_int_equal(rf_loop_polling(loop), !rows[i].polls);
		assert_polls(loop, rows[i].polls, rows[i].polls, i + 1);
		item_free(item);
	}
}

static void test_busy(void **state)
{
	struct rf_loop *loop = *state;
	struct item *item = item_new(loop);
	unsigned i;

	rf_loop_set_poll(loop, RF_LOOP_POLL_BUSY);
	assert_int_equal(rf_loop_deadline(loop), 0);
	rf_idle_queue(loop, &item->idle);
	/* Without work the clock is not even read, but every so many turns. */
	for (i = 1; i < 4 * RF_LOOP_BUSY_TURNS; i++) {
		make_event(item);
		assert_int_equal(rf_loop_turn(loop, -1), 0);
		assert_int_equal(item->peeks, i);
		assert_int_equal(item->events, i / RF_LOOP_BUSY_TURNS);
	}
	/* With work, after a time. */
	clock_ns += RF_LOOP_BUSY_GAP_NS;
	item->events = 0;
	item->again = true;
	rf_work_queue(loop, &item->work);
	for (i = 1; i < 4 * RF_LOOP_BUSY_GAP_NS / TICK_NS; i++) {
		make_event(item);
		assert_int_equal(rf_loop_turn(loop, 0), 0);
		assert_int_equal(item->runs, i);
	}
	assert_in_range(item->events, 3, 4);
	assert_int_equal(item->arms, 0);
	assert_polls(loop, 0, 0, 0);
	/* Timers, and wake-ups, are seen. */
	rf_work_cancel(&item->work);
	assert_int_equal(rf_watch_set(&item->watch, 0), 0);
	wake(item);
	assert_int_equal(rf_timer_start(loop, &item->timer, clock_ns + 1), 0);
	rf_loop_quit(loop);
	assert_int_equal(rf_loop_run(loop), 0);
	for (i = 0; i < RF_LOOP_BUSY_TURNS; i++)
		assert_int_equal(rf_loop_turn(loop, -1), 0);
	assert_int_equal(item->timeouts, 1);
	assert_false(readable(loop));
	/* A loop that is not always busy any more asks. */
	rf_loop_set_poll(loop, 0);
	assert_int_equal(rf_loop_turn(loop, 0), 0);
	assert_int_equal(item->arms, 1);
	item_free(item);
}

#define WAKES 20000u

/* Each of a thread's wake-ups is followed by a turn, whether it polls or sleeps. */
struct pinger {
	struct rf_loop *loop;
	atomic_uint pings, pongs;
};

static void *ping(void *arg)
{
	struct pinger *p = arg;

	for (unsigned i = 1; i <= WAKES; i++) {
		atomic_store(&p->pings, i);
		rf_loop_wake(p->loop);
		while (atomic_load(&p->pongs) != i)
			;
		/* Let it go to sleep now and then. */
		for (volatile unsigned k = 0; k < i % 64 * 256; k++)
			;
	}
	return NULL;
}

static void test_wake_threads(void **state)
{
	struct rf_loop *loop = *state;
	struct item *item = item_new(loop);
	struct pinger pinger = { .loop = loop };
	pthread_t thread;

	rf_loop_set_poll(loop, POLL_US);
	assert_int_equal(pthread_create(&thread, NULL, ping, &pinger), 0);
	alarm(60);
	while (atomic_load(&pinger.pongs) < WAKES) {
		assert_int_equal(rf_loop_turn(loop, -1), 0);
		atomic_store(&pinger.pongs, atomic_load(&pinger.pings));
		rf_idle_queue(loop, &item->idle);
	}
	alarm(0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	item_free(item);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_never),  TEST(test_miss),         TEST(test_hit),  TEST(test_event),
		TEST(test_timer),  TEST(test_timeout),      TEST(test_wake), TEST(test_no_wait),
		TEST(test_others), TEST(test_requeue),      TEST(test_auto), TEST(test_auto_cut),
		TEST(test_busy),   TEST(test_wake_threads),
	};

	return cmocka_run_group_tests_name("loop-poll", tests, NULL, NULL);
}
