/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Guest memory as the rest of this layer sees it.
 */
#ifndef RF_RING_MEM_PRIV_H
#define RF_RING_MEM_PRIV_H

#include <stdatomic.h>

#include "ring/mem.h"

#include "mem_guard.h"

/**
 * struct rf_mem_span - Guest memory that is contiguous here too
 * @gpa:	First guest-physical address
 * @bytes:	Length; 0 for none
 * @host:	Where it begins in our address space
 */
struct rf_mem_span {
	uint64_t gpa;
	uint64_t bytes;
	uint8_t *host;
};

/**
 * struct rf_mem_mapping - A region and its mapping, which begins at a page and may be longer
 */
struct rf_mem_mapping {
	struct rf_mem_span span;
	uint64_t uva;
	void *map_start;
	size_t map_bytes;
	struct rf_guard_range *range;
};

/**
 * struct rf_mem - Mappings in the order of their guest-physical addresses
 * @max_piece:	No piece is longer; SIZE_MAX unless a test asks for less
 * @n_faulted:	Mappings under which memory vanished (written by the SIGBUS handler)
 */
struct rf_mem {
	unsigned n;
	size_t max_piece;
	atomic_uint n_faulted;
	struct rf_mem_mapping mappings[RF_MEM_MAX_REGIONS];
};

/**
 * rf_mem_find() - The region that an address lies in
 * Return: the region, or NULL.
 */
const struct rf_mem_span *rf_mem_find(const struct rf_mem *mem, uint64_t gpa);

/**
 * rf_mem_read() - Copy a guest-physical range into private memory, each byte once
 * Return: 0, or -EFAULT if any byte is in no region.
 */
int rf_mem_read(const struct rf_mem *mem, uint64_t gpa, void *buf, size_t len);

#endif
