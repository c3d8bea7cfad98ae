/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Room for packets on their way to the transmit ring, and the lists that they are on.
 *
 * DOC: Stacks of free slots. Any thread takes a slot and gives one back without a lock: whoever
 * loses a race has lost it to somebody who got on. The top of a stack carries a count of the slots
 * that were taken, so that a slot that was taken and given back in between is no mistake. The slot
 * given back last is taken first: it is the one still in the cache.
 *
 * DOC: The list that packets are handed over on. Any thread adds to it; the holder of the ring's
 * mutex takes all of it at once, and turns it round. A packet is on it as soon as it is seen at
 * all: there is no gap that somebody would have to wait for.
 *
 * Both lists are made of the slots themselves: nothing is allocated.
 */
#ifndef RF_GUEST_TX_SLOTS_H
#define RF_GUEST_TX_SLOTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "memory.h"
#include "vsock/packet.h"

struct rf_sock;

/* Which way a packet took. */
enum rf_tx_way {
	RF_TX_DIRECT,         /* its sender put it onto the ring */
	RF_TX_QUEUED_BUSY,    /* queued: somebody else was putting packets onto the ring */
	RF_TX_QUEUED_FULL,    /* queued: the ring had no room */
	RF_TX_QUEUED_EARLIER, /* queued: an earlier packet waited */
	RF_TX_QUEUED_OFF,     /* queued: the switch direct-tx is off */
};

/**
 * struct rf_tx_slot - Room for one packet, and what is to be known of it
 * @wire:	Where the header goes
 * @payload:	Where the payload goes, RF_VSOCK_MAX_PAYLOAD bytes; NULL in a control slot
 * @hdr:	Header, as of the moment when the packet was handed over
 * @sock:	Whose packet it is, NULL for an RST without a connection. Not a reference: of what
 *		it points to only @tx_behind is used, which is there as long as the guest is.
 * @joined:	Sends that joined the packet after the one that began it
 * @way:	Which way the packet took
 * @below:	Free: index of the slot below, plus one; 0 at the bottom
 * @next:	Handed over: the packet that was before
 * @link:	In the backlog
 */
struct rf_tx_slot {
	uint8_t *wire;
	uint8_t *payload;
	struct rf_vsock_hdr hdr;
	struct rf_sock *sock;
	uint32_t joined;
	enum rf_tx_way way;
	_Atomic uint32_t below;
	struct rf_tx_slot *next;
	STAILQ_ENTRY(rf_tx_slot) link;
};

STAILQ_HEAD(rf_tx_backlog, rf_tx_slot);

/**
 * struct rf_tx_stack - Free slots of one kind
 * @slots:	All slots of that kind
 * @top:	Slots taken so far, << 32, and the index of the first free one, plus one
 */
struct rf_tx_stack {
	struct rf_tx_slot *slots;
	_Atomic uint64_t top;
};

void rf_tx_stack_init(struct rf_tx_stack *stack, struct rf_tx_slot *slots, uint32_t n);

/* Give a slot back. Context: any thread. */
void rf_tx_stack_push(struct rf_tx_stack *stack, struct rf_tx_slot *slot);

/* Take a slot. Context: any thread. Return: the slot, or NULL if there is none. */
struct rf_tx_slot *rf_tx_stack_pop(struct rf_tx_stack *stack);

static inline bool rf_tx_stack_empty(struct rf_tx_stack *stack)
{
	return (uint32_t)atomic_load_explicit(&stack->top, memory_order_relaxed) == 0;
}

/**
 * struct rf_tx_chain - Packets of one sender, linked by @next
 */
struct rf_tx_chain {
	struct rf_tx_slot *newest, *oldest;
};

static inline void rf_tx_chain_add(struct rf_tx_chain *chain, struct rf_tx_slot *slot)
{
	slot->next = chain->newest;
	chain->newest = slot;
	if (!chain->oldest)
		chain->oldest = slot;
}

/* Turn packets that are linked from the newest to the oldest round. Return: the oldest. */
struct rf_tx_slot *rf_tx_turn_round(struct rf_tx_slot *newest);

/* Packets that were handed over and not taken yet. */
struct rf_tx_handed {
	struct rf_tx_slot *_Atomic newest;
};

/* Hand packets over. Context: any thread. */
void rf_tx_handed_add(struct rf_tx_handed *handed, const struct rf_tx_chain *chain);

/* Take all. Return: the oldest, which is linked to those after it; or NULL. */
struct rf_tx_slot *rf_tx_handed_take(struct rf_tx_handed *handed);

static inline bool rf_tx_handed_empty(struct rf_tx_handed *handed)
{
	return !atomic_load_explicit(&handed->newest, memory_order_relaxed);
}

#endif
