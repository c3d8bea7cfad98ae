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

/* Counters of a loop. */
#define RF_LOOP_COUNTERS(X)                                     \
	X(loop_wakeups, "times the loop returned from waiting") \
	X(loop_events, "events delivered to watches")           \
	X(loop_timers, "timers that expired")

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
 * @loop:	Loop, or NULL. Watches and timers must have been removed.
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
 * It does not tell of timers and of work that is queued: rf_loop_deadline() does.
 */
int rf_loop_fd(const struct rf_loop *loop);

/**
 * rf_loop_deadline() - When the next turn is due though no event comes
 * Return: a moment on the monotonic clock; 0 while work is queued; UINT64_MAX for never.
 */
uint64_t rf_loop_deadline(const struct rf_loop *loop);

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

#endif
