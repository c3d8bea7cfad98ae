/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Guest memory for tests: one memfd, mapped twice. The test pokes it through @bytes, as the guest
 * would; the code under test maps it on its own, elsewhere.
 */
#ifndef FAKE_MEM_H
#define FAKE_MEM_H

#include <stddef.h>
#include <stdint.h>

#include "ring/mem.h"

/**
 * struct fake_region - A part of the file that is a region of guest memory
 */
struct fake_region {
	uint64_t gpa;
	uint64_t size;
	uint64_t offset;
};

/* The front end's addresses lie this much above the guest's. */
#define FAKE_MEM_UVA UINT64_C(0x700000000000)

/**
 * struct fake_mem - Guest memory
 * @fd:		File behind it
 * @bytes:	Our own mapping of the whole file
 * @size:	Its length
 * @mem:	The memory under test, with the regions in it
 */
struct fake_mem {
	int fd;
	uint8_t *bytes;
	size_t size;
	struct rf_mem *mem;
};

/* Make the file and map it; aborts on failure, as everything here. */
void fake_mem_init(struct fake_mem *m, size_t size, const struct fake_region *regions, unsigned n);

void fake_mem_fini(struct fake_mem *m);

/* A region as a front end would describe it. */
struct rf_mem_region fake_mem_region(const struct fake_region *region);

/* Address of guest memory in the mapping of the memory under test. */
void *fake_mem_host(const struct fake_mem *m, uint64_t gpa, uint64_t len);

/*
 * rf_mem_guard_install() for a cmocka test: cmocka puts a handler of its own for SIGBUS in place
 * when a test begins, and takes it away after it.
 */
void fake_mem_guard(void);

#endif
