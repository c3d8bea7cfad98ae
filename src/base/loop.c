/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/loop.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/poll_auto.h"
#include "base/probe.h"

/* Events of one turn; more come with the next. */
#define BATCH 64

/*
 * @quit:	rf_loop_run() is to return
 * @heap:	Timers, earliest first; heap[0] is not used
 * @work_end:	Queued behind the work of this turn: what stands behind it is for the next
 * @idle:	Idle items
 * @poll_us:	As rf_loop_set_poll() was told
 * @poll_auto:	Says whether to poll, for RF_LOOP_POLL_AUTO
 * @poll_cut:	The last poll was interrupted by others who want the core
 * @may_wait:	The turn, or the last one, has a timeout
 * @look_ns:	While it polls or is always busy: descriptors are not looked at before
 * @busy_turns:	Turns without work since then, if it is always busy
 * @awake:	@woken will be looked at before it sleeps, or its user does
 * @woken:	It is to turn even if nothing happens
 * @events:	Events of this turn; data.ptr is the watch, NULL once it was removed
 */
struct rf_loop {
	int epoll_fd;
	int wake_fd;
	atomic_bool quit;
	uint64_t now_ns;
	struct rf_timer **heap;
	unsigned n_timers;
	unsigned max_timers;
	unsigned n_watches;
	TAILQ_HEAD(, rf_work) work;
	struct rf_work work_end;
	TAILQ_HEAD(, rf_idle) idle;
	uint32_t poll_us;
	struct rf_poll_auto poll_auto;
	bool poll_cut;
	bool may_wait;
	uint64_t look_ns;
	unsigned busy_turns;
	atomic_bool awake, woken;
	struct epoll_event events[BATCH];
	struct rf_loop_counters counters;
};

#define ROW(name, help) RF_COUNTER_ROW(struct rf_loop_counters, name, help)
const struct rf_counter_def rf_loop_counter_defs[] = { RF_LOOP_COUNTERS(ROW) };
const size_t rf_loop_n_counters = RF_ARRAY_SIZE(rf_loop_counter_defs);

static int loop_init(struct rf_loop *loop)
{
	/* No watch: data.ptr stays NULL, which collect() knows it by. */
	struct epoll_event event = { .events = EPOLLIN };

	loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (loop->epoll_fd < 0)
		return -errno;
	loop->wake_fd = rf_eventfd_new();
	if (loop->wake_fd < 0)
		return loop->wake_fd;
	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->wake_fd, &event) < 0)
		return -errno;
	return 0;
}

int rf_loop_new(struct rf_loop **ret_loop)
{
	struct rf_loop *loop = calloc(1, sizeof(*loop));
	int r;

	if (!loop)
		return -ENOMEM;
	loop->wake_fd = -1;
	loop->now_ns = rf_clock_now();
	TAILQ_INIT(&loop->work);
	TAILQ_INIT(&loop->idle);
	r = loop_init(loop);
	if (r < 0) {
		rf_loop_free(loop);
		return r;
	}
	*ret_loop = loop;
	return 0;
}

void rf_loop_free(struct rf_loop *loop)
{
	if (!loop)
		return;
	assert(!loop->n_watches && !loop->n_timers && TAILQ_EMPTY(&loop->idle));
	while (!TAILQ_EMPTY(&loop->work))
		rf_work_cancel(TAILQ_FIRST(&loop->work));
	rf_fd_close(loop->wake_fd);
	rf_fd_close(loop->epoll_fd);
	free(loop->heap);
	free(loop);
}

int rf_loop_fd(const struct rf_loop *loop)
{
	return loop->epoll_fd;
}

static bool is_woken(const struct rf_loop *loop)
{
	return atomic_load((atomic_bool *)(uintptr_t)&loop->woken);
}

uint64_t rf_loop_deadline(const struct rf_loop *loop)
{
	if (!TAILQ_EMPTY(&loop->work) || !TAILQ_EMPTY(&loop->idle) ||
	    loop->poll_us == RF_LOOP_POLL_BUSY || is_woken(loop))
		return 0;
	return loop->n_timers ? loop->heap[1]->deadline_ns : UINT64_MAX;
}

/* How long epoll_wait() may sleep: not beyond the earliest timer, not at all while work waits. */
static int sleep_ms(const struct rf_loop *loop, int timeout_ms)
{
	uint64_t deadline_ns = rf_loop_deadline(loop);
	uint64_t now_ns, timer_ms;

	if (!deadline_ns)
		return 0;
	if (!timeout_ms || deadline_ns == UINT64_MAX)
		return timeout_ms;
	now_ns = rf_clock_now();
	if (deadline_ns <= now_ns)
		return 0;
	timer_ms = (deadline_ns - now_ns - 1) / RF_NS_PER_MS + 1;
	if (timeout_ms > 0)
		timer_ms = rf_min_u64(timer_ms, (uint64_t)timeout_ms);
	return (int)rf_min_u64(timer_ms, INT_MAX);
}

/* Wait for events. Each watch is told where its event stands, so that its removal finds it. */
static int collect(struct rf_loop *loop, int timeout_ms)
{
	bool learns = timeout_ms && loop->poll_us == RF_LOOP_POLL_AUTO;
	uint64_t begin_ns = learns ? rf_clock_now() : 0;
	int n = epoll_wait(loop->epoll_fd, loop->events, BATCH, timeout_ms);

	if (n < 0 && errno != EINTR)
		return -errno;
	loop->now_ns = rf_clock_now();
	if (timeout_ms) {
		rf_count(&loop->counters.loop_wakeups, 1);
		RF_PROBE(loop_wakeups, loop, n);
	}
	if (learns && n > 0)
		rf_poll_auto_slept(&loop->poll_auto, loop->now_ns - begin_ns, loop->now_ns);
	loop->look_ns = loop->now_ns + (loop->poll_us == RF_LOOP_POLL_BUSY ? RF_LOOP_BUSY_GAP_NS
									   : RF_LOOP_POLL_GAP_NS);
	for (int i = 0; i < n; i++) {
		struct rf_watch *watch = loop->events[i].data.ptr;

		if (watch)
			watch->slot = i + 1;
		else
			rf_eventfd_drain(loop->wake_fd);
	}
	return n < 0 ? 0 : n;
}

/* For how long idle items are looked at before they are armed; UINT64_MAX for ever. */
static uint64_t poll_limit(const struct rf_loop *loop)
{
	if (loop->poll_us == RF_LOOP_POLL_BUSY)
		return UINT64_MAX;
	if (!loop->may_wait)
		return 0;
	if (loop->poll_us == RF_LOOP_POLL_AUTO)
		return rf_poll_auto_limit(&loop->poll_auto);
	return loop->poll_us * RF_NS_PER_US;
}

/* Look at the idle items once, and arm those whose time is over. */
static void look_at_idle(struct rf_loop *loop)
{
	uint64_t limit_ns = poll_limit(loop);
	struct rf_idle *idle, *next;

	for (idle = TAILQ_FIRST(&loop->idle); idle; idle = next) {
		next = TAILQ_NEXT(idle, link);
		if (idle->peek(idle))
			continue;
		if (!idle->until_ns)
			idle->until_ns =
				limit_ns == UINT64_MAX ? limit_ns : loop->now_ns + limit_ns;
		if (!limit_ns || loop->now_ns >= idle->until_ns) {
			rf_idle_cancel(idle);
			(void)idle->arm(idle);
		}
	}
}

static bool has_work(const struct rf_loop *loop)
{
	return !TAILQ_EMPTY(&loop->work) || is_woken(loop);
}

static bool can_poll(const struct rf_loop *loop)
{
	return !has_work(loop) && !TAILQ_EMPTY(&loop->idle);
}

/* A poll has ended. */
static void learn(struct rf_loop *loop, bool hit, uint64_t spent_ns)
{
	rf_count(&loop->counters.loop_polls, 1);
	rf_count(&loop->counters.loop_poll_hits, hit);
	rf_count(&loop->counters.loop_poll_ns, spent_ns);
	if (hit || TAILQ_EMPTY(&loop->idle))
		rf_poll_auto_polled(&loop->poll_auto, hit && !loop->poll_cut, spent_ns,
				    loop->now_ns);
}

/* Nothing is there, and there is nothing to do but to look. Return: events, or -errno. */
static int poll_until(struct rf_loop *loop, uint64_t end_ns)
{
	uint64_t begin_ns = loop->now_ns, last_ns;
	bool hit = false;
	int n = 0;

	loop->poll_cut = false;
	atomic_store(&loop->awake, true);
	while (!hit && n == 0 && !TAILQ_EMPTY(&loop->idle) && loop->now_ns < end_ns) {
		last_ns = loop->now_ns;
		rf_cpu_relax();
		if (loop->now_ns >= loop->look_ns)
			n = collect(loop, 0);
		else
			loop->now_ns = rf_clock_now();
		loop->poll_cut |= loop->now_ns - last_ns > RF_POLL_AUTO_CUT_NS;
		look_at_idle(loop);
		hit = n > 0 || has_work(loop);
	}
	/* From now on rf_loop_wake() has to make an event; what it did before is still seen. */
	if (!hit)
		atomic_store(&loop->awake, false);
	learn(loop, hit, loop->now_ns - begin_ns);
	return n;
}

/* Return: number of events, or -errno. */
static int wait_for_events(struct rf_loop *loop, int timeout_ms)
{
	bool looked = !TAILQ_EMPTY(&loop->idle);
	uint64_t end_ns = loop->n_timers ? loop->heap[1]->deadline_ns : UINT64_MAX;
	int wait_ms, n = 0;

	if (looked) {
		loop->now_ns = rf_clock_now();
		if (timeout_ms > 0)
			end_ns = rf_min_u64(end_ns,
					    loop->now_ns + (uint64_t)timeout_ms * RF_NS_PER_MS);
		look_at_idle(loop);
		/* What was there before it polls is no merit of polling. */
		if (can_poll(loop) && loop->now_ns >= loop->look_ns)
			n = collect(loop, 0);
		if (n == 0 && can_poll(loop))
			n = poll_until(loop, end_ns);
		if (n != 0)
			return n;
	}
	wait_ms = sleep_ms(loop, timeout_ms);
	if (looked && !wait_ms && loop->now_ns < loop->look_ns)
		return 0;
	return collect(loop, wait_ms);
}

/* Always busy: as wait_for_events(), but it does not even look each time. */
static int look_for_events(struct rf_loop *loop)
{
	look_at_idle(loop);
	if (!TAILQ_EMPTY(&loop->work)) {
		loop->now_ns = rf_clock_now();
		if (loop->now_ns < loop->look_ns)
			return 0;
	} else if (++loop->busy_turns < RF_LOOP_BUSY_TURNS) {
		return 0;
	}
	loop->busy_turns = 0;
	return collect(loop, 0);
}

static void run_timers(struct rf_loop *loop)
{
	/* Ends, because rf_timer_start() starts no timer before now_ns + 1. */
	while (loop->n_timers && loop->heap[1]->deadline_ns <= loop->now_ns) {
		struct rf_timer *timer = loop->heap[1];

		rf_timer_stop(timer);
		rf_count(&loop->counters.loop_timers, 1);
		timer->expired(timer);
	}
}

static void run_watches(struct rf_loop *loop, int n)
{
	for (int i = 0; i < n; i++) {
		struct rf_watch *watch = loop->events[i].data.ptr;
		uint32_t events;

		if (!watch)
			continue;
		watch->slot = 0;
		/* rf_watch_set() may have taken interest away since. */
		events = loop->events[i].events & (watch->events | EPOLLERR | EPOLLHUP);
		if (!events)
			continue;
		rf_count(&loop->counters.loop_events, 1);
		watch->ready(watch, events);
	}
}

static void run_work(struct rf_loop *loop)
{
	struct rf_work *work;

	TAILQ_INSERT_TAIL(&loop->work, &loop->work_end, link);
	while ((work = TAILQ_FIRST(&loop->work)) != &loop->work_end) {
		rf_work_cancel(work);
		work->run(work);
	}
	TAILQ_REMOVE(&loop->work, &loop->work_end, link);
}

static void run_all(struct rf_loop *loop, int n_events)
{
	if (is_woken(loop))
		(void)atomic_exchange(&loop->woken, false);
	run_timers(loop);
	run_watches(loop, n_events);
	run_work(loop);
}

int rf_loop_turn(struct rf_loop *loop, int timeout_ms)
{
	int n;

	loop->may_wait = timeout_ms != 0;
	if (loop->poll_us == RF_LOOP_POLL_BUSY)
		n = look_for_events(loop);
	else
		n = wait_for_events(loop, timeout_ms);
	if (n >= 0)
		run_all(loop, n);
	if (loop->poll_us != RF_LOOP_POLL_BUSY && atomic_load(&loop->awake))
		atomic_store(&loop->awake, false);
	return n < 0 ? n : 0;
}

int rf_loop_run(struct rf_loop *loop)
{
	while (!atomic_exchange(&loop->quit, false)) {
		int r = rf_loop_turn(loop, -1);

		if (r < 0)
			return r;
	}
	return 0;
}

void rf_loop_quit(struct rf_loop *loop)
{
	atomic_store(&loop->quit, true);
	rf_loop_wake(loop);
}

void rf_loop_wake(struct rf_loop *loop)
{
	/* If it is still awake after @woken was set, it has not looked at it for the last time. */
	if (atomic_load(&loop->awake)) {
		atomic_store(&loop->woken, true);
		if (atomic_load(&loop->awake))
			return;
	}
	rf_eventfd_signal(loop->wake_fd);
}

void rf_loop_set_poll(struct rf_loop *loop, uint32_t poll_us)
{
	loop->poll_us = poll_us;
	rf_poll_auto_init(&loop->poll_auto);
	atomic_store(&loop->awake, poll_us == RF_LOOP_POLL_BUSY);
}

bool rf_loop_polling(const struct rf_loop *loop)
{
	return poll_limit(loop) != 0;
}

uint64_t rf_loop_now(const struct rf_loop *loop)
{
	return loop->now_ns;
}

const struct rf_loop_counters *rf_loop_counters(const struct rf_loop *loop)
{
	return &loop->counters;
}

int rf_watch_add(struct rf_loop *loop, struct rf_watch *watch, int fd, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = watch };

	assert(!watch->loop && watch->ready);
	if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
		return -errno;
	watch->loop = loop;
	watch->fd = fd;
	watch->events = events;
	watch->slot = 0;
	loop->n_watches++;
	return 0;
}

int rf_watch_set(struct rf_watch *watch, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = watch };

	assert(watch->loop);
	if (watch->events == events)
		return 0;
	if (epoll_ctl(watch->loop->epoll_fd, EPOLL_CTL_MOD, watch->fd, &event) < 0)
		return -errno;
	watch->events = events;
	return 0;
}

void rf_watch_remove(struct rf_watch *watch)
{
	struct rf_loop *loop = watch->loop;
	int rc;

	if (!loop)
		return;
	if (watch->slot)
		loop->events[watch->slot - 1].data.ptr = NULL;
	watch->loop = NULL;
	loop->n_watches--;
	/*
	 * Fails only for a descriptor that was closed first. A duplicate of it elsewhere would then
	 * go on reporting events for memory that is no watch any more.
	 */
	rc = epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
	assert(rc == 0);
}

static void heap_put(struct rf_loop *loop, unsigned i, struct rf_timer *timer)
{
	loop->heap[i] = timer;
	timer->heap_index = i;
}

/* Move a timer from hole @i towards the top or the bottom to where its deadline belongs. */
static void heap_settle(struct rf_loop *loop, unsigned i, struct rf_timer *timer)
{
	while (i > 1 && timer->deadline_ns < loop->heap[i / 2]->deadline_ns) {
		heap_put(loop, i, loop->heap[i / 2]);
		i /= 2;
	}
	while (2 * i <= loop->n_timers) {
		unsigned child = 2 * i;

		if (child < loop->n_timers &&
		    loop->heap[child + 1]->deadline_ns < loop->heap[child]->deadline_ns)
			child++;
		if (timer->deadline_ns <= loop->heap[child]->deadline_ns)
			break;
		heap_put(loop, i, loop->heap[child]);
		i = child;
	}
	heap_put(loop, i, timer);
}

static int heap_grow(struct rf_loop *loop)
{
	unsigned max = loop->max_timers ? 2 * loop->max_timers : 16;
	struct rf_timer **heap = reallocarray(loop->heap, max + 1, sizeof(struct rf_timer *));

	if (!heap)
		return -ENOMEM;
	loop->heap = heap;
	loop->max_timers = max;
	return 0;
}

int rf_timer_start(struct rf_loop *loop, struct rf_timer *timer, uint64_t deadline_ns)
{
	assert(timer->expired && (!timer->heap_index || timer->loop == loop));
	if (!timer->heap_index && loop->n_timers == loop->max_timers) {
		int r = heap_grow(loop);

		if (r < 0)
			return r;
	}
	if (!timer->heap_index)
		timer->heap_index = ++loop->n_timers;
	timer->loop = loop;
	/* A moment that has passed means the next turn: this one must end. */
	timer->deadline_ns = deadline_ns > loop->now_ns ? deadline_ns : loop->now_ns + 1;
	heap_settle(loop, timer->heap_index, timer);
	return 0;
}

void rf_timer_stop(struct rf_timer *timer)
{
	struct rf_loop *loop = timer->loop;
	unsigned hole = timer->heap_index;
	struct rf_timer *last;

	if (!hole)
		return;
	timer->heap_index = 0;
	last = loop->heap[loop->n_timers--];
	if (last != timer)
		heap_settle(loop, hole, last);
}

bool rf_timer_active(const struct rf_timer *timer)
{
	return timer->heap_index != 0;
}

void rf_work_queue(struct rf_loop *loop, struct rf_work *work)
{
	assert(work->run && (!work->loop || work->loop == loop));
	if (work->loop)
		return;
	work->loop = loop;
	TAILQ_INSERT_TAIL(&loop->work, work, link);
}

void rf_work_cancel(struct rf_work *work)
{
	if (!work->loop)
		return;
	TAILQ_REMOVE(&work->loop->work, work, link);
	work->loop = NULL;
}

void rf_idle_queue(struct rf_loop *loop, struct rf_idle *idle)
{
	assert(idle->peek && idle->arm && (!idle->loop || idle->loop == loop));
	idle->until_ns = 0;
	if (idle->loop)
		return;
	if (!rf_loop_polling(loop)) {
		(void)idle->arm(idle);
		return;
	}
	idle->loop = loop;
	TAILQ_INSERT_TAIL(&loop->idle, idle, link);
}

void rf_idle_cancel(struct rf_idle *idle)
{
	if (!idle->loop)
		return;
	TAILQ_REMOVE(&idle->loop->idle, idle, link);
	idle->loop = NULL;
}
