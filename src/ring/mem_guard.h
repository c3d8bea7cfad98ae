/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ranges that the SIGBUS handler of ring/mem.h knows (see there: "memory that vanishes").
 *
 * Context: any thread; the handler reads them without a lock.
 */
#ifndef RF_RING_MEM_GUARD_H
#define RF_RING_MEM_GUARD_H

#include <stdatomic.h>
#include <stddef.h>

struct rf_guard_range;

/**
 * rf_guard_add() - Watch over a mapping
 * @start:	First byte
 * @bytes:	Length
 * @page_bytes:	Page size of the mapping
 * @n_faulted:	Count that goes up by one when the first hole is met in this range, and down again
 *		when the range is removed; must live as long
 * @ret_range:	Name of the range
 *
 * Return: 0, or -ENOMEM.
 */
int rf_guard_add(void *start, size_t bytes, size_t page_bytes, atomic_uint *n_faulted,
		 struct rf_guard_range **ret_range);

/**
 * rf_guard_remove() - Forget a mapping; before it is unmapped
 */
void rf_guard_remove(struct rf_guard_range *range);

#endif
