/* SPDX-License-Identifier: BSD-3-Clause */
#include "tx_slots.h"

#include <assert.h>
#include <stddef.h>

#define INDEX_BITS 32
#define TAKEN_ONE  (UINT64_C(1) << INDEX_BITS)

static uint64_t top_of(uint64_t taken, uint32_t index)
{
	return (taken & ~(TAKEN_ONE - 1)) | index;
}

void rf_tx_stack_init(struct rf_tx_stack *stack, struct rf_tx_slot *slots, uint32_t n)
{
	assert(n > 0);
	stack->slots = slots;
	atomic_init(&stack->top, 0);
	while (n)
		rf_tx_stack_push(stack, &slots[--n]);
}

void rf_tx_stack_push(struct rf_tx_stack *stack, struct rf_tx_slot *slot)
{
	uint32_t index = (uint32_t)(slot - stack->slots) + 1;
	uint64_t top = atomic_load_explicit(&stack->top, memory_order_relaxed);

	do {
		atomic_store_explicit(&slot->below, (uint32_t)top, memory_order_relaxed);
	} while (!atomic_compare_exchange_weak_explicit(
		&stack->top, &top, top_of(top, index), memory_order_release, memory_order_relaxed));
}

struct rf_tx_slot *rf_tx_stack_pop(struct rf_tx_stack *stack)
{
	uint64_t top = atomic_load_explicit(&stack->top, memory_order_acquire);
	struct rf_tx_slot *slot;
	uint64_t next;

	do {
		if (!(uint32_t)top)
			return NULL;
		slot = &stack->slots[(uint32_t)top - 1];
		/* If somebody else takes it meanwhile, this is wrong, and so is @top. */
		next = top_of(top + TAKEN_ONE,
			      atomic_load_explicit(&slot->below, memory_order_relaxed));
	} while (!atomic_compare_exchange_weak_explicit(
		&stack->top, &top, next, memory_order_acquire, memory_order_acquire));
	return slot;
}

struct rf_tx_slot *rf_tx_turn_round(struct rf_tx_slot *newest)
{
	struct rf_tx_slot *after = NULL;

	while (newest) {
		struct rf_tx_slot *before = newest->next;

		newest->next = after;
		after = newest;
		newest = before;
	}
	return after;
}

void rf_tx_handed_add(struct rf_tx_handed *handed, const struct rf_tx_chain *chain)
{
	struct rf_tx_slot *newest = atomic_load_explicit(&handed->newest, memory_order_relaxed);

	do {
		chain->oldest->next = newest;
	} while (!atomic_compare_exchange_weak_explicit(&handed->newest, &newest, chain->newest,
							memory_order_release,
							memory_order_relaxed));
}

struct rf_tx_slot *rf_tx_handed_take(struct rf_tx_handed *handed)
{
	return rf_tx_turn_round(
		atomic_exchange_explicit(&handed->newest, NULL, memory_order_acquire));
}
