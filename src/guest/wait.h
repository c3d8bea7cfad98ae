/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waiting for a socket to change: a caller polls for a while (serve_rx.h), if the guest is told to,
 * and sleeps then.
 */
#ifndef RF_GUEST_WAIT_H
#define RF_GUEST_WAIT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "serve_rx.h"

struct rf_sock;

enum rf_wait_stage {
	RF_WAIT_FRESH,
	RF_WAIT_LOOKED, /* once, for a call that does not block */
	RF_WAIT_POLLS,
	RF_WAIT_POLLED, /* in vain */
	RF_WAIT_SLEEPS,
};

/**
 * struct rf_wait - A call that waits; zero but for @sock before it does
 * @stage:	How far it is
 * @polled:	How the last poll ended
 * @begin_ns:	When that began
 */
struct rf_wait {
	struct rf_sock *sock;
	enum rf_wait_stage stage;
	enum rf_polled polled;
	uint64_t begin_ns;
};

/**
 * rf_wait() - Wait until the socket may have changed
 * @cond:	The socket's condition to sleep on
 * @outer:	Another mutex that is held, and let go of meanwhile; or NULL
 * @blocks:	May the call block?
 *
 * Context: the socket's mutex held; let go of meanwhile.
 *
 * Return: true to look again; false, at once, if there is nothing to wait for any more.
 */
bool rf_wait(struct rf_wait *wait, pthread_cond_t *cond, pthread_mutex_t *outer, bool blocks);

/* To be called in the end of rf_wait_end(). */
void rf_wait_ended(struct rf_wait *wait);

/* The call has what it waited for, or waits no more. Context: no mutex of a socket held. */
static inline void rf_wait_end(struct rf_wait *wait)
{
	if (wait->stage != RF_WAIT_FRESH)
		rf_wait_ended(wait);
}

#endif
