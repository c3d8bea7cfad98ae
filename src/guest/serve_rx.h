/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Serving the receive ring: by the guest's thread, or by callers that wait for what comes.
 *
 * DOC: Theory of operation. Whoever holds the mutex takes packets off the ring and hands them to
 * sockets. Without polling (rf_guest_options.poll_us of 0) that is the guest's thread only, each
 * time the back end notifies it.
 *
 * A caller that polls (wait.h) tries the mutex, and passes on if somebody else has it: then that
 * one does the work. While callers poll, the back end is asked not to notify (the ring is
 * *disarmed*), and stays so when a caller found what it waited for: it is going to be back. Three
 * things see to it that nothing waits for long:
 *
 * - A caller arms the ring before it sleeps. So does one that stops polling while others sleep
 *   (@n_asleep), which counts sockets with event fds as well.
 * - A caller that leaves the ring disarmed sets a timer (@grace_fd), unless it runs: a millisecond
 *   later the guest's thread looks at the ring, and sets it again if somebody has polled since, or
 *   arms the ring. So when nobody polls, nobody wakes up either.
 * - What only the guest's thread may do is handed to it: timers and ends of connections
 *   (rf_guest_attend()), the transmit ring (RF_TX_WAKE), a broken ring (its call eventfd).
 *
 * With the switch poll-by=worker the guest's thread polls instead (base/loop.h), and callers sleep.
 *
 * Lock order: the mutex comes before all others of the guest. Callers hold none of a socket when
 * they call the functions below.
 */
#ifndef RF_GUEST_SERVE_RX_H
#define RF_GUEST_SERVE_RX_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/loop.h"
#include "base/poll_auto.h"
#include "vsock/sched.h"

struct rf_guest;
struct rf_device;

/* Value of @poll_ns. */
#define RF_SERVE_RX_AUTO UINT64_MAX

/* For how long the ring may stay disarmed though nobody polls. */
#define RF_SERVE_RX_GRACE_NS RF_NS_PER_MS

/**
 * struct rf_serve_rx - The service
 * @mutex:	Protects what follows, if nothing else is said
 * @wanted:	Threads that wait for the mutex; any thread
 * @device:	Whose ring is served; NULL while there is none. No reference: the guest's is let go
 *		of after this was set to NULL.
 * @resets:	RSTs owed for packets that have no connection
 * @stalled:	They have no room for more; no packet is taken until they have
 * @todo:	RF_TX_* bits, for whoever lets go of the mutex
 * @disarmed:	The back end was asked not to notify
 * @polled:	A caller has looked at the ring since the timer expired last
 * @grace:	The timer runs; changes with the mutex held, read by any thread
 * @poll_auto:	Of rf_poll(), which waits for several sockets
 * @poll_ns:	How long callers poll: 0, or RF_SERVE_RX_AUTO; does not change
 * @n_asleep:	Who relies on notifications; any thread
 * @grace_fd:	The timer, a timerfd; -1 if callers never poll
 * @grace_watch, @idle, @again: the guest's thread's
 */
struct rf_serve_rx {
	pthread_mutex_t mutex;
	atomic_uint wanted;
	struct rf_device *device;
	struct rf_vsock_sched resets;
	bool stalled;
	unsigned todo;
	bool disarmed;
	bool polled;
	atomic_bool grace;
	struct rf_poll_auto poll_auto;
	uint64_t poll_ns;
	atomic_uint n_asleep;
	int grace_fd;
	struct rf_watch grace_watch;
	struct rf_idle idle;
	struct rf_work again;
};

void rf_serve_rx_init(struct rf_guest *guest);

/**
 * rf_serve_rx_set_poll() - Who is to poll, and how long
 * @poll_us:	As rf_guest_options.poll_us
 *
 * Context: before there is a device; guest->loop and guest->switches are there.
 * Return: 0, or -errno.
 */
int rf_serve_rx_set_poll(struct rf_guest *guest, int poll_us);

/* Before the loop is freed. */
void rf_serve_rx_fini(struct rf_guest *guest);

/* Begin to serve a device, and end; when that returns, nobody serves it. Guest's thread. */
void rf_serve_rx_begin(struct rf_guest *guest, struct rf_device *device);
void rf_serve_rx_end(struct rf_guest *guest);

/* Take packets: the back end has notified. Guest's thread. */
void rf_serve_rx_turn(struct rf_guest *guest);

/* There may be room on the transmit ring for RSTs that are owed. Guest's thread. */
void rf_serve_rx_room(struct rf_guest *guest);

/* Let nobody take packets, for a while. Guest's thread. */
void rf_serve_rx_hold(struct rf_guest *guest);
void rf_serve_rx_go_on(struct rf_guest *guest);

/* Do callers poll? */
static inline bool rf_serve_rx_polled(const struct rf_serve_rx *rx)
{
	return rx->poll_ns != 0;
}

/**
 * rf_serve_rx_look() - Take the packets that are there, a batch at most
 *
 * If somebody else is at it, nothing is done. The ring stays disarmed.
 *
 * Context: any thread that polls.
 */
void rf_serve_rx_look(struct rf_guest *guest);

/* How a poll ends; which of the changes it is matters to RF_SERVE_RX_AUTO, and is known with it. */
enum rf_polled {
	RF_POLLED_NOTHING, /* time is over */
	RF_POLLED_AT_ONCE, /* it has changed by the first look */
	RF_POLLED_CHANGE,
	RF_POLLED_CUT, /* it has changed; others had the core meanwhile */
};

/**
 * rf_serve_rx_poll() - The same, until something changes or time is over
 * @word:	What is to change
 * @seen:	From what
 */
enum rf_polled rf_serve_rx_poll(struct rf_guest *guest, const atomic_uint *word, unsigned seen,
				uint64_t until_ns);

/* A caller that has polled goes on with something else. */
void rf_serve_rx_leave(struct rf_guest *guest);

/* Somebody relies on notifications: rf_serve_rx_leave() has to follow. Any mutex may be held. */
void rf_serve_rx_relied_on(struct rf_guest *guest);

/* The same with what has to follow: nothing is left that is not notified. May take packets. */
void rf_serve_rx_doze(struct rf_guest *guest);

/* One less relies on them. Any mutex may be held. */
void rf_serve_rx_rouse(struct rf_guest *guest);

#endif
