/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/loop.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/probe.h"

/* Events of one turn; more come with the next. */
#define BATCH 64

/*
 * @quit:	rf_loop_run() is to return
 * @heap:	Timers, earliest first; heap[0] is not used
 * @work_end:	Queued behind the work of this turn: what stands behind it is for the next
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
	assert(!loop->n_watches && !loop->n_timers);
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

uint64_t rf_loop_deadline(const struct rf_loop *loop)
{
	if (!TAILQ_EMPTY(&loop->work))
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
	int n = epoll_wait(loop->epoll_fd, loop->events, BATCH, timeout_ms);

	if (timeout_ms) {
		rf_count(&loop->counters.loop_wakeups, 1);
		RF_PROBE(loop_wakeups, loop, n);
	}
	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	for (int i = 0; i < n; i++) {
		struct rf_watch *watch = loop->events[i].data.ptr;

		if (watch)
			watch->slot = i + 1;
		else
			rf_eventfd_drain(loop->wake_fd);
	}
	return n;
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

int rf_loop_turn(struct rf_loop *loop, int timeout_ms)
{
	int n = collect(loop, sleep_ms(loop, timeout_ms));

	if (n < 0)
		return n;
	loop->now_ns = rf_clock_now();
	run_timers(loop);
	run_watches(loop, n);
	run_work(loop);
	return 0;
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
	rf_eventfd_signal(loop->wake_fd);
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
