/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of slots without a lock: guest/tx_slots.c, by hand and from several threads at once. */
#include "tx_slots.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/util.h"

#define SLOTS   7u
#define THREADS 4u
#define ROUNDS  30000u

static struct rf_tx_slot slots[SLOTS];

static void stack(void **state)
{
	struct rf_tx_stack s;

	(void)state;
	rf_tx_stack_init(&s, slots, SLOTS);
	for (uint32_t i = 0; i < SLOTS; i++)
		assert_ptr_equal(rf_tx_stack_pop(&s), &slots[i]);
	assert_true(rf_tx_stack_empty(&s));
	assert_null(rf_tx_stack_pop(&s));
	/* The last one given back is taken first. */
	rf_tx_stack_push(&s, &slots[3]);
	rf_tx_stack_push(&s, &slots[5]);
	assert_false(rf_tx_stack_empty(&s));
	assert_ptr_equal(rf_tx_stack_pop(&s), &slots[5]);
	assert_ptr_equal(rf_tx_stack_pop(&s), &slots[3]);
	assert_null(rf_tx_stack_pop(&s));
}

static void handed(void **state)
{
	struct rf_tx_handed h = { NULL };
	struct rf_tx_slot *slot;

	(void)state;
	assert_true(rf_tx_handed_empty(&h));
	assert_null(rf_tx_handed_take(&h));
	/* 0, then 1 to 3 at once, then 4. */
	for (unsigned n = 0; n < 3; n++) {
		static const unsigned first[] = { 0, 1, 4, 5 };
		struct rf_tx_chain chain = { 0 };

		for (unsigned i = first[n]; i < first[n + 1]; i++)
			rf_tx_chain_add(&chain, &slots[i]);
		rf_tx_handed_add(&h, &chain);
	}
	assert_false(rf_tx_handed_empty(&h));
	slot = rf_tx_handed_take(&h);
	for (unsigned i = 0; i < 5; i++, slot = slot->next)
		assert_ptr_equal(slot, &slots[i]);
	assert_null(slot);
	assert_true(rf_tx_handed_empty(&h));
}

/*
 * Threads take slots, number them and hand them over; one takes them and gives them back. No slot
 * is with two at once, and the numbers of each thread come in order.
 */
struct crowd {
	struct rf_tx_stack free;
	struct rf_tx_handed handed;
	atomic_uint with[SLOTS];
	_Atomic unsigned wrong;
};

struct sender {
	struct crowd *crowd;
	uint32_t number;
	pthread_t thread;
};

static void *send(void *arg)
{
	struct sender *sender = arg;
	struct crowd *crowd = sender->crowd;

	for (uint32_t i = 0; i < ROUNDS;) {
		struct rf_tx_slot *slot = rf_tx_stack_pop(&crowd->free);
		struct rf_tx_chain chain = { 0 };

		if (!slot) {
			sched_yield();
			continue;
		}
		crowd->wrong += atomic_fetch_add(&crowd->with[slot - slots], 1) != 0;
		slot->hdr.src_port = sender->number;
		slot->hdr.len = i++;
		rf_tx_chain_add(&chain, slot);
		rf_tx_handed_add(&crowd->handed, &chain);
	}
	return NULL;
}

static void many_threads(void **state)
{
	static struct crowd crowd;
	struct sender senders[THREADS];
	uint32_t next[THREADS] = { 0 }, n = 0;

	(void)state;
	rf_tx_stack_init(&crowd.free, slots, SLOTS);
	for (uint32_t i = 0; i < THREADS; i++) {
		senders[i] = (struct sender){ .crowd = &crowd, .number = i };
		assert_int_equal(pthread_create(&senders[i].thread, NULL, send, &senders[i]), 0);
	}
	while (n < THREADS * ROUNDS) {
		struct rf_tx_slot *slot = rf_tx_handed_take(&crowd.handed);

		if (!slot)
			sched_yield();
		while (slot) {
			struct rf_tx_slot *following = slot->next;

			assert_true(slot->hdr.src_port < THREADS);
			assert_int_equal(slot->hdr.len, next[slot->hdr.src_port]++);
			atomic_fetch_sub(&crowd.with[slot - slots], 1);
			rf_tx_stack_push(&crowd.free, slot);
			slot = following;
			n++;
		}
	}
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_join(senders[i].thread, NULL);
	assert_int_equal(crowd.wrong, 0);
	for (uint32_t i = 0; i < SLOTS; i++)
		assert_non_null(rf_tx_stack_pop(&crowd.free));
	assert_null(rf_tx_stack_pop(&crowd.free));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stack),
		cmocka_unit_test(handed),
		cmocka_unit_test(many_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
