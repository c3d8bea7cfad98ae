/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When it pays to poll before sleeping.
 *
 * Who waits for a peer may look for what it waits for a while before it sleeps. That saves a
 * wake-up if the peer works on another core and answers soon, and is time lost, or stolen from the
 * peer, if it does not. Which of the two it is can only be tried:
 *
 * - While polls find something, they go on: one hit makes up for RF_POLL_AUTO_HIT misses. What a
 *   hit saves (two system calls and a wake-up) is about what a miss costs; but few misses cost
 *   anybody anything but CPU time, where there are hits at all.
 * - When they fail, polling stops for RF_POLL_AUTO_FIRST_NS, and for twice as long after each try
 *   that fails, up to RF_POLL_AUTO_LAST_NS.
 * - It is tried (again) when that time is over and a sleep was so short that a poll would have seen
 *   its end. Who sleeps for long never tries.
 *
 * On a core that both share, all sleeps are short, and a poll finds nothing, except when the peer
 * takes our core meanwhile. Both are told apart by looking once before polling (what is there is no
 * merit of the poll), and by a jump of the clock between two looks. What is lost is a few polls
 * every RF_POLL_AUTO_LAST_NS.
 *
 * Use: poll for up to rf_poll_auto_limit() ns before sleeping, if that is not 0; say how each poll
 * and each sleep ended. Pure: no system call, the time is an argument. Not for several threads at
 * once; keep one for each place that waits, under what protects that place.
 */
#ifndef RF_BASE_POLL_AUTO_H
#define RF_BASE_POLL_AUTO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

/*
 * A poll takes no longer. About as long as a wake-up takes is right: who polls for that long and
 * then sleeps has lost no more than who sleeps at once loses if the answer comes just then. A
 * virtual core that has gone to sleep takes 30 us and more.
 */
#define RF_POLL_AUTO_LIMIT_NS UINT64_C(50000)

/* A sleep that a poll would have spared; the time to wake up is in it. */
#define RF_POLL_AUTO_SHORT_NS (2 * RF_POLL_AUTO_LIMIT_NS)

/* How long nothing is tried after polls that failed: first, and at most. */
#define RF_POLL_AUTO_FIRST_NS RF_NS_PER_MS
#define RF_POLL_AUTO_LAST_NS  (128 * RF_NS_PER_MS)

/* Who looks all the time and then does not for so long had to leave the core to others. */
#define RF_POLL_AUTO_CUT_NS UINT64_C(5000)

/* Misses in a row that end a try; misses that a hit makes up for; and, at most, those to come. */
#define RF_POLL_AUTO_TRY  3u
#define RF_POLL_AUTO_HIT  3u
#define RF_POLL_AUTO_GOOD 24u

/**
 * struct rf_poll_auto - What is known of one place that waits
 * @score:	Polls that may fail before polling stops; 0 while it does not poll
 * @pause_ns:	How long nothing is tried when it stops next
 * @retry_ns:	Nothing is tried before
 */
struct rf_poll_auto {
	unsigned score;
	uint64_t pause_ns;
	uint64_t retry_ns;
};

/* It does not poll before a short sleep was reported. */
void rf_poll_auto_init(struct rf_poll_auto *poll);

/* How long to poll before sleeping, ns; 0: not at all. */
static inline uint64_t rf_poll_auto_limit(const struct rf_poll_auto *poll)
{
	return poll->score ? RF_POLL_AUTO_LIMIT_NS : 0;
}

/**
 * rf_poll_auto_polled() - A poll has ended
 * @hit:	It found what was not there at its first look, and RF_POLL_AUTO_CUT_NS have never
 *		passed between two looks: else it was interrupted, perhaps by the very peer. One
 *		that found it at the first look, or was given up early, is not to be reported.
 * @spent_ns:	How long it took; far longer than allowed is as bad as an interruption
 * @now_ns:	The time
 */
void rf_poll_auto_polled(struct rf_poll_auto *poll, bool hit, uint64_t spent_ns, uint64_t now_ns);

/**
 * rf_poll_auto_slept() - A sleep has ended because what was waited for has come
 * @slept_ns:	How long it took, waking up included
 * @now_ns:	The time
 */
void rf_poll_auto_slept(struct rf_poll_auto *poll, uint64_t slept_ns, uint64_t now_ns);

#endif
