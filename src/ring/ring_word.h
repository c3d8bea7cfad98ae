/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Words that both sides of a ring see. Nothing else in this layer touches them: each function here
 * is exactly one load or one store, of a little-endian word, so that what a peer changes meanwhile
 * is seen either before or after, and never twice.
 */
#ifndef RF_RING_RING_WORD_H
#define RF_RING_RING_WORD_H

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <linux/virtio_ring.h>

#include "base/fence.h"
#include "ring/layout.h"

static inline uint16_t ring_load_u16(const uint16_t *p)
{
	return le16toh(__atomic_load_n(p, __ATOMIC_RELAXED));
}

static inline uint32_t ring_load_u32(const uint32_t *p)
{
	return le32toh(__atomic_load_n(p, __ATOMIC_RELAXED));
}

static inline void ring_store_u16(uint16_t *p, uint16_t v)
{
	__atomic_store_n(p, htole16(v), __ATOMIC_RELAXED);
}

static inline void ring_store_u32(uint32_t *p, uint32_t v)
{
	__atomic_store_n(p, htole32(v), __ATOMIC_RELAXED);
}

/* An index that guards data: what the peer wrote before it is visible after this. */
static inline uint16_t ring_load_acquire_u16(const uint16_t *p)
{
	return le16toh(__atomic_load_n(p, __ATOMIC_ACQUIRE));
}

static inline void ring_store_release_u16(uint16_t *p, uint16_t v)
{
	__atomic_store_n(p, htole16(v), __ATOMIC_RELEASE);
}

/* A descriptor in host byte order, in private memory. */
struct ring_desc {
	uint64_t addr;
	uint32_t len;
	uint16_t flags;
	uint16_t next;
};

/* A descriptor is two aligned words: half as many loads as it has members. */
static inline struct ring_desc ring_unpack_desc(uint64_t addr, uint64_t rest)
{
	return (struct ring_desc){
		.addr = addr,
		.len = (uint32_t)rest,
		.flags = (uint16_t)(rest >> 32),
		.next = (uint16_t)(rest >> 48),
	};
}

static inline struct ring_desc ring_load_desc(const struct vring_desc *desc)
{
	const uint64_t *word = (const void *)desc;
	uint64_t addr = le64toh(__atomic_load_n(&word[0], __ATOMIC_RELAXED));
	uint64_t rest = le64toh(__atomic_load_n(&word[1], __ATOMIC_RELAXED));

	return ring_unpack_desc(addr, rest);
}

static inline void ring_store_desc(struct vring_desc *desc, const struct ring_desc *v)
{
	uint64_t *word = (void *)desc;
	uint64_t rest = v->len | (uint64_t)v->flags << 32 | (uint64_t)v->next << 48;

	__atomic_store_n(&word[0], htole64(v->addr), __ATOMIC_RELAXED);
	__atomic_store_n(&word[1], htole64(rest), __ATOMIC_RELAXED);
}

/* Copy from shared to private memory once: the compiler may not go back to the source. */
static inline void ring_copy_out(void *dst, const void *src, size_t n)
{
	memcpy(dst, src, n);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* Is it an area at all, and may its words be accessed as such? */
static inline bool ring_area_is_aligned(const void *area, uint32_t align)
{
	return area && (uintptr_t)area % align == 0;
}

/* Are a ring's layout and size allowed, and may the words of its areas be accessed as such? */
static inline bool ring_config_is_sound(const struct rf_ring_config *config,
					struct rf_ring_extent *ret_extent)
{
	return rf_ring_extent_get(config->layout, config->num, ret_extent) == 0 &&
	       ring_area_is_aligned(config->desc, ret_extent->desc_align) &&
	       ring_area_is_aligned(config->driver, ret_extent->driver_align) &&
	       ring_area_is_aligned(config->device, ret_extent->device_align);
}

/* Set an area to its initial state, before the peer knows it. */
static inline void ring_zero(void *area, size_t n)
{
	memset(area, 0, n);
}

/**
 * ring_fence_store_load() - The one full barrier of the notification protocol
 *
 * Each side stores one word and then loads the other's:
 *
 *	publisher			sleeper
 *	store index			store event index (or flag)
 *	fence				fence
 *	load event index (or flag)	load index
 *
 * Litmus (store buffering): with both fences it cannot be that the publisher sees the old event
 * index *and* the sleeper the old index; so either the publisher notifies or the sleeper does not
 * sleep. With acquire and release alone both may see the old value, and the notification is lost.
 */
static inline void ring_fence_store_load(void)
{
	rf_fence_store_load();
}

#endif
