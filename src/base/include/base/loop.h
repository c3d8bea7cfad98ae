/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The event loop: descriptors, timers and work that is to be done before sleeping again.
 *
 * One thread runs a loop and everything registered with it; only rf_loop_quit() and rf_loop_wake()
 * may be called from elsewhere. Watches, timers and work items are embedded in their owners; none
 * of them is allocated here.
 *
 * A wake-up is one turn: (1) collect events, (2) run expired timers, (3) call ready watches,
 * (4) run the work that was queued before this step, each item once. Work that queues itself again
 * runs in the next turn, which then does not sleep: that is how a turn with a budget gives way to
 * others.
 *
 * Poll, then sleep: peers that share memory with us tell of what they put there only if we ask them
 * to, which costs both sides. Whoever has found nothing there queues an idle item. While no work is
 * left, the loop looks at these items and, now and then, for events, for as long as
 * rf_loop_set_poll() allows; then it takes each item off, has it ask the peer, and sleeps. In a
 * turn that has work, it looks at the items once. So an item that is not queued has asked, and
 * costs nothing.
 *
 * A callback may remove any watch, timer or work item, its own included, and free its owner: what
 * has been removed is never called again, not even for events that were already collected.
 */
#ifndef RF_BASE_LOOP_H
#define RF_BASE_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/queue.h>

#include "base/counter.h"
#include "base/util.h"

struct rf_loop;

/**
 * struct rf_watch - Interest in a descriptor
 * @ready:	Called with the EPOLL* bits that are there
 * @loop, @fd, @events, @slot: the loop's; @loop is NULL while it does not watch
 */
struct rf_watch {
	void (*ready)(struct rf_watch *watch, uint32_t events);
	struct rf_loop *loop;
	int fd;
	uint32_t events;
	int slot;
};

/**
 * struct rf_timer - A moment to be called at
 * @expired:	Called once, at or after the deadline
 * @loop, @deadline_ns, @heap_index: the loop's; the index counts from 1 and is 0 while it does not
 *		run
 */
struct rf_timer {
	void (*expired)(struct rf_timer *timer);
	struct rf_loop *loop;
	uint64_t deadline_ns;
	unsigned heap_index;
};

/**
 * struct rf_work - Something to do before the loop sleeps again
 * @run:	Called once per queueing
 */
struct rf_work {
	void (*run)(struct rf_work *work);
	struct rf_loop *loop;
	TAILQ_ENTRY(rf_work) link;
};

/**
 * struct rf_idle - Something in shared memory that is looked at until it is time to sleep
 * @peek:	Look; called often, so it is to cost a few instructions. If something is there,
 *		queue the work that takes it and return true.
 * @arm:	It was taken off the queue: have the peer tell when something comes, and look once
 *		more. If something is there, queue the work that takes it and return true.
 * @loop, @until_ns, @link: the loop's; @loop is NULL while it is not queued, @until_ns is 0 before
 *		its time is known
 *
 * The two may queue work, and nothing else of the loop.
 */
struct rf_idle {
	bool (*peek)(struct rf_idle *idle);
	bool (*arm)(struct rf_idle *idle);
	struct rf_loop *loop;
	uint64_t until_ns;
	TAILQ_ENTRY(rf_idle) link;
};

/* Counters of a loop. */
#define RF_LOOP_COUNTERS(X)                                                      \
	X(loop_wakeups, "times the loop returned from waiting")                  \
	X(loop_events, "events delivered to watches")                            \
	X(loop_timers, "timers that expired")                                    \
	X(loop_polls, "times it polled before it would have slept")              \
	X(loop_poll_hits, "of these, times that something came while it polled") \
	X(loop_poll_ns, "nanoseconds spent polling")

struct rf_loop_counters {
	RF_LOOP_COUNTERS(RF_COUNTER_MEMBER)
};

extern const struct rf_counter_def rf_loop_counter_defs[];
extern const size_t rf_loop_n_counters;

/**
 * rf_loop_new() - Make a loop
 * Return: 0, or -errno.
 */
int rf_loop_new(struct rf_loop **ret_loop);

/**
 * rf_loop_free() - Free a loop
 * @loop:	Loop, or NULL. Watches, timers and idle items must have been removed.
 */
void rf_loop_free(struct rf_loop *loop);

/**
 * rf_loop_run() - Turn until rf_loop_quit()
 * Return: 0, or -errno if waiting failed.
 */
int rf_loop_run(struct rf_loop *loop);

/**
 * rf_loop_turn() - One turn
 * @timeout_ms:	Sleep at most so long, -1 for ever, 0 not at all
 *
 * With 0 nothing is polled, either, and idle items that are queued meanwhile ask their peers at
 * once.
 *
 * Return: 0, or -errno.
 */
int rf_loop_turn(struct rf_loop *loop, int timeout_ms);

/**
 * rf_loop_quit() - Make rf_loop_run() return after the current turn
 * Context: any thread, and signal handlers.
 */
void rf_loop_quit(struct rf_loop *loop);

/**
 * rf_loop_wake() - Make the loop turn even if nothing happens
 * Context: any thread, and signal handlers.
 */
void rf_loop_wake(struct rf_loop *loop);

/**
 * rf_loop_fd() - A descriptor that is readable while events wait for a turn
 *
 * It does not tell of timers and of work and idle items that are queued: rf_loop_deadline() does.
 */
int rf_loop_fd(const struct rf_loop *loop);

/**
 * rf_loop_deadline() - When the next turn is due though no event comes
 * Return: a moment on the monotonic clock; 0 while work or an idle item is queued; UINT64_MAX for
 * never.
 */
uint64_t rf_loop_deadline(const struct rf_loop *loop);

/* Values of rf_loop_set_poll(): as base/poll_auto.h decides; and always, without ever sleeping. */
#define RF_LOOP_POLL_AUTO UINT32_MAX
#define RF_LOOP_POLL_BUSY (UINT32_MAX - 1)

/* Nobody is to set more: it is CPU time. */
#define RF_LOOP_POLL_MAX_US 1000u

/**
 * rf_loop_set_poll() - How long to look for something before sleeping
 * @poll_us:	Microseconds; 0, which it begins with, for not at all; or RF_LOOP_POLL_*
 *
 * With RF_LOOP_POLL_BUSY no turn waits, whatever its timeout, and no idle item ever asks its peer;
 * for descriptors and timers it looks only every RF_LOOP_BUSY_GAP_NS, or every few turns if these
 * have nothing to do. It is for programs that turn the loop all the time.
 */
void rf_loop_set_poll(struct rf_loop *loop, uint32_t poll_us);

/* Descriptors are looked at so often while it polls, and if it is always busy: it costs 1 us. */
#define RF_LOOP_POLL_GAP_NS UINT64_C(2000)
#define RF_LOOP_BUSY_GAP_NS UINT64_C(20000)
#define RF_LOOP_BUSY_TURNS  32u

/**
 * rf_loop_polling() - Is it of use to queue an idle item now?
 *
 * If not, rf_idle_queue() does nothing but to arm it.
 */
bool rf_loop_polling(const struct rf_loop *loop);

/* The time of the current wake-up, ns on the monotonic clock. Loop thread only. */
uint64_t rf_loop_now(const struct rf_loop *loop);

const struct rf_loop_counters *rf_loop_counters(const struct rf_loop *loop);

/**
 * rf_watch_add() - Watch a descriptor
 * @loop:	Loop
 * @watch:	Watch with @ready set; it must stay where it is until removed
 * @fd:		Descriptor; stays the caller's
 * @events:	EPOLL* bits; EPOLLET is the caller's choice
 *
 * Return: 0, or -errno.
 */
int rf_watch_add(struct rf_loop *loop, struct rf_watch *watch, int fd, uint32_t events);

/**
 * rf_watch_set() - Change the events of a watch that was added; no system call if they are the same
 * Return: 0, or -errno.
 */
int rf_watch_set(struct rf_watch *watch, uint32_t events);

/**
 * rf_watch_remove() - Stop watching; call it before closing the descriptor
 *
 * A watch that was never added (zero-initialised) may be given.
 */
void rf_watch_remove(struct rf_watch *watch);

static inline bool rf_watch_active(const struct rf_watch *watch)
{
	return watch->loop != NULL;
}

/**
 * rf_timer_start() - Set or move a timer
 * @loop:		Loop
 * @timer:		Timer with @expired set, zero-initialised before its first use
 * @deadline_ns:	Moment on the monotonic clock
 *
 * Return: 0, or -ENOMEM (an earlier deadline then stays).
 */
int rf_timer_start(struct rf_loop *loop, struct rf_timer *timer, uint64_t deadline_ns);

/* Stop a timer; one that does not run may be given. */
void rf_timer_stop(struct rf_timer *timer);

bool rf_timer_active(const struct rf_timer *timer);

/* Queue work; work that is queued already stays where it is. */
void rf_work_queue(struct rf_loop *loop, struct rf_work *work);

/* Take work off the queue; work that is not queued may be given. */
void rf_work_cancel(struct rf_work *work);

/* Queue an idle item; one that is queued already has its full time again. */
void rf_idle_queue(struct rf_loop *loop, struct rf_idle *idle);

/* Take an idle item off the queue, not armed; one that is not queued may be given. */
void rf_idle_cancel(struct rf_idle *idle);

#endif
