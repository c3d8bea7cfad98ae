/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Guest memory: the regions that a front end shared, mapped here, and the look-ups between its
 * three address spaces (guest-physical, front end's virtual, ours).
 *
 * DOC: memory that vanishes. The peer that passed a descriptor can truncate the file behind it at
 * any moment. A system call that meets the hole fails with EFAULT; a load or store raises SIGBUS.
 * rf_mem_guard_install() installs a handler that, for addresses inside mapped regions only, puts a
 * zero page over the hole, marks the region as faulted and returns; any other SIGBUS goes to the
 * handler that was there before. Owners ask rf_mem_faulted() once per turn and break the session.
 */
#ifndef RF_RING_MEM_H
#define RF_RING_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/util.h"

/* A guest-physical address, and one in the front end's address space: they cannot be mixed up. */
struct rf_gpa {
	uint64_t v;
};

struct rf_uva {
	uint64_t v;
};

/* Regions of one memory. 8 with SET_MEM_TABLE; as GET_MAX_MEM_SLOTS reports with ADD_MEM_REG. */
#define RF_MEM_MAX_REGIONS 509

/**
 * struct rf_mem_region - One region as a front end describes it
 * @gpa:	First guest-physical address
 * @uva:	First address in the front end
 * @size:	Bytes
 * @offset:	Where the region begins in the file behind its descriptor
 */
struct rf_mem_region {
	struct rf_gpa gpa;
	struct rf_uva uva;
	uint64_t size;
	uint64_t offset;
};

struct rf_mem;

/**
 * rf_mem_guard_install() - Survive memory that vanishes (see above)
 *
 * Installs the SIGBUS handler once per process; further calls do nothing.
 * Context: before other threads use guest memory.
 * Return: 0, or -errno.
 */
int rf_mem_guard_install(void);

/**
 * rf_mem_new() - Make an empty memory
 * Context: as all of this interface, the owner's thread only.
 * Return: 0, or -ENOMEM.
 */
int rf_mem_new(struct rf_mem **ret_mem);

/* Unmap and free; NULL may be given. */
void rf_mem_free(struct rf_mem *mem);

/**
 * rf_mem_add() - Map a region
 * @mem:	Memory
 * @region:	Region, every field checked here: sizes, overflows, overlap in both address spaces
 * @fd:		File behind it; borrowed, the caller may close it
 *
 * Mapping is shared, from a page-aligned offset (of the file's block size for hugetlbfs), and never
 * executable. The file must be large enough now.
 *
 * Return: 0; -EINVAL for a bad region, or a descriptor that is no file; -EEXIST for one that
 * overlaps another (an identical one included); -ENOSPC if there are RF_MEM_MAX_REGIONS; -ERANGE if
 * the file is too small; another -errno from the system.
 */
int rf_mem_add(struct rf_mem *mem, const struct rf_mem_region *region, int fd);

/**
 * rf_mem_has() - Is there exactly this region (guest address, front-end address, size)?
 */
bool rf_mem_has(const struct rf_mem *mem, const struct rf_mem_region *region);

/**
 * rf_mem_remove() - Unmap the region with this guest address, front-end address and size
 * Return: 0, or -ENOENT.
 */
int rf_mem_remove(struct rf_mem *mem, const struct rf_mem_region *region);

unsigned rf_mem_n_regions(const struct rf_mem *mem);

/**
 * rf_mem_map() - Translate a guest-physical range into pieces of our address space
 * @mem:	Memory
 * @gpa:	Start
 * @len:	Bytes, may be 0: then the address itself must lie in a region, and no piece is
 *		stored
 * @iov:	Where pieces go; neighbouring regions give separate pieces
 * @max_iov:	Room in @iov
 *
 * Return: number of pieces; -EFAULT if any byte is in no region; -E2BIG if @iov is too small.
 */
int rf_mem_map(const struct rf_mem *mem, struct rf_gpa gpa, uint64_t len, struct iovec *iov,
	       unsigned max_iov);

/**
 * rf_mem_from_uva() - Our address of a range in the front end's address space
 * @mem:	Memory
 * @uva:	Start
 * @len:	Bytes; the whole range must lie in one region
 *
 * Return: the address, or NULL.
 */
void *rf_mem_from_uva(const struct rf_mem *mem, struct rf_uva uva, uint64_t len);

/* Has memory vanished under one of the regions since it was added? */
bool rf_mem_faulted(const struct rf_mem *mem);

/**
 * rf_mem_set_max_piece() - Test hook: let no piece of rf_mem_map() be longer than this
 * @max_bytes:	1 forces every path that handles split memory; 0 takes the limit away
 */
void rf_mem_set_max_piece(struct rf_mem *mem, size_t max_bytes);

#endif
