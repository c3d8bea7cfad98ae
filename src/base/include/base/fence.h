/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The full barrier between a store and a load of another word.
 */
#ifndef RF_BASE_FENCE_H
#define RF_BASE_FENCE_H

#include <stdint.h>

/**
 * rf_fence_store_load() - What was stored before is seen before what is loaded after is read
 *
 * For two sides that each store one word and then load the other's: with this in between on both,
 * at least one of them sees what the other has stored.
 *
 * The thread sanitizer does not model fences (and gcc refuses them there); a read-modify-write of a
 * private word is as strong on the machine, and gives it no order that the fence would not.
 */
static inline void rf_fence_store_load(void)
{
#if defined(__SANITIZE_THREAD__)
	uint32_t word = 0;

	__atomic_fetch_or(&word, 0, __ATOMIC_SEQ_CST);
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

#endif
