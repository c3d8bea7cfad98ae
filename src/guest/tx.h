/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Publishing: the transmit ring, which any thread puts packets onto.
 *
 * DOC: Theory of operation. A packet lies in a slot of the guest's memory. A sender takes a free
 * slot, copies its payload with no lock held, and publishes in one short section under the ring's
 * mutex. There are as many slots as ring entries, so whoever has a slot finds room on the ring;
 * packets without payload have slots of their own, so data cannot keep them waiting.
 *
 * The back end does not notify us of used packets: senders take them back themselves. Only when a
 * sender finds no slot does it queue its socket on @waiting and ask for a notification, upon which
 * the guest's thread calls rf_tx_reap() and serves those that wait.
 *
 * A header is written in the same section that publishes it, while the socket's mutex is held, too:
 * packets of one connection are on the ring in the order in which the connection made them.
 *
 * Context: any thread. Lock order: a socket's mutex, then the ring's.
 */
#ifndef RF_GUEST_TX_H
#define RF_GUEST_TX_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "counters.h"
#include "memory.h"
#include "ring/drvq.h"
#include "vsock/sched.h"

struct rf_sock;

/* What is to be done once the locks are released: rf_guest_do(). */
enum {
	/* Kick the transmit ring. */
	RF_TX_KICK = 1 << 0,
	/* Have the guest's thread look at the transmit ring. */
	RF_TX_WAKE = 1 << 1,
};

/**
 * struct rf_tx_slot - Room for one packet
 * @wire:	Where the header goes
 * @payload:	Where the payload goes, RF_VSOCK_MAX_PAYLOAD bytes; NULL in a control slot
 */
struct rf_tx_slot {
	uint8_t *wire;
	uint8_t *payload;
};

/* A stack of free slots: the one used last is the one still in the cache. */
struct rf_tx_stack {
	struct rf_tx_slot **slots;
	uint32_t n;
};

TAILQ_HEAD(rf_tx_waiters, rf_sock);

/**
 * struct rf_tx - The transmit ring
 * @mutex:	Protects all that follows
 * @q:		Ring
 * @stopped:	The back end is gone: what is published vanishes
 * @waiting:	Sockets that found no slot; each holds a reference on itself
 * @n_waiting:	Their number
 * @wants_data, @wants_control: Somebody found no slot of this kind: the guest's thread for an RST,
 *		or one of @waiting. Whoever comes now waits behind them.
 */
struct rf_tx {
	pthread_mutex_t mutex;
	const struct rf_guest_mem *mem;
	struct rf_guest_counters *counters;
	struct rf_drvq *q;
	bool stopped;
	struct rf_tx_slot *slots;
	struct rf_tx_stack data, control;
	struct rf_tx_waiters waiting;
	unsigned n_waiting;
	bool wants_data, wants_control;
};

/**
 * rf_tx_init() - Make the transmit ring of an attachment
 * @mem:	Memory; must outlive it
 * @event_idx:	The event index was negotiated
 * Return: 0, or -errno; nothing is left then.
 */
int rf_tx_init(struct rf_tx *tx, const struct rf_guest_mem *mem, bool event_idx,
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

/* Give a slot back that nothing was sent in. Return: RF_TX_* bits. */
unsigned rf_tx_return(struct rf_tx *tx, struct rf_tx_slot *slot);

/**
 * rf_tx_data() - Send the packet whose payload was copied into a slot
 * @sock:	Its connection may send @len bytes now; its mutex is held
 * @slot:	From rf_tx_take(); given up
 * Return: RF_TX_* bits.
 */
unsigned rf_tx_data(struct rf_tx *tx, struct rf_sock *sock, struct rf_tx_slot *slot, uint32_t len);

/**
 * rf_tx_control() - Send the control packets that a connection owes, as far as there is room
 * @sock:	Its mutex is held. Queued on @waiting if not all could be sent.
 * Return: RF_TX_* bits.
 */
unsigned rf_tx_control(struct rf_tx *tx, struct rf_sock *sock);

/**
 * rf_tx_resets() - Send the RSTs owed for packets that have no connection, as far as there is room
 * @sched:	Where they are owed; the guest's thread's, which is woken when there is room for the
 *		rest
 * Return: RF_TX_* bits.
 */
unsigned rf_tx_resets(struct rf_tx *tx, struct rf_vsock_sched *sched);

/**
 * rf_tx_reap() - Take back used packets
 * @ret_waiting: Number of sockets that waited for that and are to be served: rf_tx_pop_waiting()
 * Return: false if the ring is broken.
 */
bool rf_tx_reap(struct rf_tx *tx, unsigned *ret_waiting);

/* The socket that has waited longest, with the list's reference; NULL if there is none. */
struct rf_sock *rf_tx_pop_waiting(struct rf_tx *tx);

/**
 * rf_tx_idle() - Has the back end used all that was published?
 *
 * If not, the guest's thread is notified when it has.
 */
bool rf_tx_idle(struct rf_tx *tx);

/* The back end is gone. @ret_waiting as in rf_tx_reap(). */
void rf_tx_stop(struct rf_tx *tx, unsigned *ret_waiting);

#endif
