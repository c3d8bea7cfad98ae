/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Small helpers that everything may use: sizes, checked arithmetic, attributes.
 */
#ifndef RF_BASE_UTIL_H
#define RF_BASE_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RF_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define RF_COLD              __attribute__((cold))
#define RF_UNUSED            __attribute__((unused))
#define RF_MUST_CHECK        __attribute__((warn_unused_result))

#define RF_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* The structure that holds member @m, of which @p is the address. */
#define RF_CONTAINER_OF(p, type, m) ((type *)(void *)((char *)(p)-offsetof(type, m)))

#define RF_NS_PER_US  UINT64_C(1000)
#define RF_NS_PER_MS  UINT64_C(1000000)
#define RF_NS_PER_SEC UINT64_C(1000000000)

static inline size_t rf_min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

static inline size_t rf_max_size(size_t a, size_t b)
{
	return a > b ? a : b;
}

static inline uint32_t rf_min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static inline uint64_t rf_min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Between two looks at a word that another core may write. */
static inline void rf_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/**
 * rf_add_u64() - Add two numbers that a peer chose
 * @a:		First summand
 * @b:		Second summand
 * @ret_sum:	The sum, untouched on overflow
 *
 * Return: true if the sum fits.
 */
static inline bool RF_MUST_CHECK rf_add_u64(uint64_t a, uint64_t b, uint64_t *ret_sum)
{
	uint64_t sum;

	if (__builtin_add_overflow(a, b, &sum))
		return false;
	*ret_sum = sum;
	return true;
}

static inline bool rf_is_power_of_2(uint64_t v)
{
	return v && !(v & (v - 1));
}

/* @align is a power of two. */
static inline uint64_t rf_align_down(uint64_t v, uint64_t align)
{
	return v & ~(align - 1);
}

static inline uint64_t rf_align_up(uint64_t v, uint64_t align)
{
	return rf_align_down(v + align - 1, align);
}

#endif
