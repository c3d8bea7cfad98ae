/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When it pays to poll before sleeping.
 *
 * Who waits for a peer may look for what it waits for a while before it sleeps. That saves a
 * wake-up if the peer works on another core and answers soon, and is time lost, or stolen from the
 * peer, if it does not. Which of the two it is can only be tried:
 *
 * - While polls find something, they go on; each that does counts for one that does not.
 * - When they fail, polling stops for RF_POLL_AUTO_FIRST_NS, and for twice as long after each try
 *   that fails, up to RF_POLL_AUTO_LAST_NS.
 * - It is tried (again) when that time is over and a sleep was so short that a poll would have seen
 *   its end. Who sleeps for long never tries.
 *
 * On a core that both share, a poll never finds anything, though all sleeps are short: what is lost
 * is a few polls every RF_POLL_AUTO_LAST_NS.
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

/* A poll takes no longer: on a core that others want, longer ones are seen in their 99th percentile
 * and gain nothing. */
#define RF_POLL_AUTO_LIMIT_NS UINT64_C(20000)

/* A sleep that a poll would have spared; the time to wake up is in it. */
#define RF_POLL_AUTO_SHORT_NS (RF_POLL_AUTO_LIMIT_NS + UINT64_C(10000))

/* How long nothing is tried after polls that failed: first, and at most. */
#define RF_POLL_AUTO_FIRST_NS RF_NS_PER_MS
#define RF_POLL_AUTO_LAST_NS  (128 * RF_NS_PER_MS)

/* Polls in a row that end a try, and polls that a good time has in hand when it ends. */
#define RF_POLL_AUTO_TRY  3u
#define RF_POLL_AUTO_GOOD 16u

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
 * @hit:	It found what was waited for. One that was given up early for another reason is not
 *		to be reported.
 * @spent_ns:	How long it took. One that took far longer than allowed was interrupted, perhaps by
 *		the very peer; what it found is no merit of polling.
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
