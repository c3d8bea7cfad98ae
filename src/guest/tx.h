/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Publishing: the transmit ring, which any thread puts packets onto.
 *
 * DOC: Theory of operation. A packet lies in a slot of the guest's memory. A sender takes a free
 * slot, copies its payload with no lock held, and hands the packet over, straight onto the ring if
 * it can: if no earlier packet waits and nobody holds the ring's mutex (it tries, and does not
 * wait). Otherwise, and if the ring is full, the packet goes onto a list that whoever holds the
 * mutex puts onto the ring before letting go, and looks at once more afterwards: a packet that was
 * handed over while the mutex was held is never left behind. Nobody waits for another sender's
 * copy, nor for another thread to run. With the switch direct-tx off every packet goes onto the
 * list, and only the guest's thread takes it from there, as Linux did before 6.12.
 *
 * What was handed over and finds no room on the ring is the backlog. Control packets always find
 * room: they have slots of their own, and as many entries of the ring, which data may not use. So
 * they pass the backlog, unless packets of their own connection are in it. There are twice as many
 * slots for data as entries, so that those who send need not wait as soon as the ring is full.
 *
 * The back end does not notify us of used packets: senders take them back themselves. Only when a
 * sender finds no slot does it queue its socket on @waiting and ask for a notification, upon which
 * the guest's thread calls rf_tx_reap() and serves those that wait; likewise when there is a
 * backlog.
 *
 * DOC: Order and credit. A header is made while the socket's mutex is held, and the packet handed
 * over before it is released: packets of one connection are on the ring in the order in which the
 * connection made them. A header tells the credit of the moment when its packet is handed over,
 * which for one that goes straight is that of publishing; for one that is queued it may be older
 * (as in Linux), which is harmless: the peer thinks that we have less room than we have, and what
 * was read since then is told when it is due.
 *
 * DOC: Replies. An RST that answers a packet without a connection is owed (guest->rx.resets) until
 * it has a slot; while too many are, no packet is taken. One that goes straight has its slot at
 * once, and is back when the back end has used it. So replies count against that budget only while
 * there is no slot for them, and never because somebody else sends.
 *
 * Context: any thread. Lock order: a socket's mutex, then the ring's.
 */
#ifndef RF_GUEST_TX_H
#define RF_GUEST_TX_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "counters.h"
#include "memory.h"
#include "ring/drvq.h"
#include "tx_slots.h"
#include "vsock/sched.h"

struct rf_sock;

/* What is to be done once the locks are released: rf_guest_do(). */
enum {
	/* Kick the transmit ring. */
	RF_TX_KICK = 1 << 0,
	/* Have the guest's thread look at the transmit ring. */
	RF_TX_WAKE = 1 << 1,
};

TAILQ_HEAD(rf_tx_waiters, rf_sock);

/**
 * struct rf_tx_kind - Slots for data, or for control packets
 * @free:	Free ones; any thread
 * @wanted:	Somebody found none: the guest's thread for an RST, or one of @waiting. Whoever
 *		comes now waits behind them. Changes under the ring's mutex.
 */
struct rf_tx_kind {
	struct rf_tx_stack free;
	atomic_bool wanted;
};

/**
 * struct rf_tx - The transmit ring
 * @direct:	Packets may go straight
 * @slots:	All slots: those for data, then those for control packets
 * @data, @control: Free ones
 * @handed:	Packets that were handed over; any thread adds
 * @has_backlog: There is a backlog; any thread may look
 * @mutex:	Protects all that follows
 * @q:		Ring
 * @n_data:	Data packets on the ring
 * @armed_out:	How many packets were out when a notification was asked for, none of which was
 *		taken back since; 0 if none is asked for
 * @armed_after: After how many of them it was asked for
 * @backlog:	Packets that were taken from @handed and have to wait
 * @stopped:	The back end is gone: what is published vanishes
 * @waiting:	Sockets that found no slot, or have an open packet; each holds a reference on itself
 * @n_waiting:	Their number
 * @n_open:	Those of them that are there only for their open packet
 * @n_taken:	Packets taken back so far
 * @open_due:	What it is when the first of them is served
 */
struct rf_tx {
	const struct rf_guest_mem *mem;
	struct rf_guest_counters *counters;
	bool direct;
	struct rf_tx_slot *slots;
	struct rf_tx_kind data, control;
	struct rf_tx_handed handed;
	atomic_bool has_backlog;
	pthread_mutex_t mutex;
	struct rf_drvq *q;
	uint32_t n_data;
	unsigned armed_out, armed_after;
	struct rf_tx_backlog backlog;
	bool stopped;
	struct rf_tx_waiters waiting;
	unsigned n_waiting;
	unsigned n_open;
	uint32_t n_taken, open_due;
};

/**
 * struct rf_tx_config - What a transmit ring is like
 * @event_idx:	The event index was negotiated
 * @direct:	Packets may go straight
 */
struct rf_tx_config {
	bool event_idx;
	bool direct;
};

/**
 * rf_tx_init() - Make the transmit ring of an attachment
 * @mem:	Memory; must outlive it
 * Return: 0, or -errno; nothing is left then.
 */
int rf_tx_init(struct rf_tx *tx, const struct rf_guest_mem *mem, const struct rf_tx_config *config,
	       struct rf_guest_counters *counters);

/* A zero-initialised ring may be given. */
void rf_tx_fini(struct rf_tx *tx);

/**
 * rf_tx_take() - Take a slot for data
 * @sock:	Who asks; its mutex is held. Queued on @waiting if there is none.
 * @ret_todo:	RF_TX_* bits are added
 *
 * Return: the slot, or NULL.
 */
struct rf_tx_slot *rf_tx_take(struct rf_tx *tx, struct rf_sock *sock, unsigned *ret_todo);

/* Take a slot for data if there is one for whoever comes. Return: the slot, or NULL. */
struct rf_tx_slot *rf_tx_try_take(struct rf_tx *tx);

/* Has the back end, or the guest's thread, packets before it that it has not got to yet? A hint. */
bool rf_tx_behind(struct rf_tx *tx);

/**
 * rf_tx_watch() - Have the guest's thread serve a socket as soon as the back end has caught up
 * @sock:	It has, or is to have, an open packet; its mutex is held. When one of its packets is
 *		handed over, that is off.
 * @ret_todo:	RF_TX_* bits are added
 * Return: false if that cannot be had at once.
 */
bool rf_tx_watch(struct rf_tx *tx, struct rf_sock *sock, unsigned *ret_todo);

/* Give a slot back that nothing was sent in. Return: RF_TX_* bits. */
unsigned rf_tx_return(struct rf_tx *tx, struct rf_tx_slot *slot);

/**
 * rf_tx_data() - Send the packet whose payload was copied into a slot
 * @sock:	Whose it is; its mutex is held
 * @slot:	From rf_tx_take(), its header set; given up
 *
 * Waits for no other thread, and allocates nothing.
 *
 * Return: RF_TX_* bits.
 */
unsigned rf_tx_data(struct rf_tx *tx, struct rf_sock *sock, struct rf_tx_slot *slot);

/**
 * rf_tx_control() - Send the control packets that a connection owes, as far as there are slots
 * @sock:	Its mutex is held. Queued on @waiting if not all could be sent.
 * Return: RF_TX_* bits.
 */
unsigned rf_tx_control(struct rf_tx *tx, struct rf_sock *sock);

/**
 * rf_tx_resets() - Send the RSTs owed for packets that have no connection, as far as there are
 * slots
 * @sched:	Where they are owed; the guest's thread's, which is woken when there is room for the
 *		rest
 * Return: RF_TX_* bits.
 */
unsigned rf_tx_resets(struct rf_tx *tx, struct rf_vsock_sched *sched);

/**
 * rf_tx_reap() - Take back used packets, and put queued ones onto the ring
 * @ret_waiting: Number of sockets that waited for that and are to be served: rf_tx_pop_waiting()
 * @ret_todo:	RF_TX_* bits are added
 * Context: the guest's thread, as for all that follows.
 * Return: false if the ring is broken.
 */
bool rf_tx_reap(struct rf_tx *tx, unsigned *ret_waiting, unsigned *ret_todo);

/**
 * rf_tx_pop_waiting() - Take the socket that has waited longest off the list
 * @ret_todo:	RF_TX_* bits are added
 * Return: the socket, with the list's reference; NULL if there is none.
 */
struct rf_sock *rf_tx_pop_waiting(struct rf_tx *tx, unsigned *ret_todo);

/**
 * rf_tx_idle() - Has the back end used all that was handed over?
 * @ret_todo:	RF_TX_* bits are added
 *
 * If not, the guest's thread is notified when it has.
 */
bool rf_tx_idle(struct rf_tx *tx, unsigned *ret_todo);

/* The back end is gone: what is queued is dropped. @ret_waiting as in rf_tx_reap(). */
void rf_tx_stop(struct rf_tx *tx, unsigned *ret_waiting);

#endif
