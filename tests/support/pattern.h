/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bytes of a stream that show where in it they are.
 */
#ifndef RF_TESTS_PATTERN_H
#define RF_TESTS_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Byte number @i; they come round after 128 KiB. */
static inline uint8_t pattern_byte(uint64_t i)
{
	return (uint8_t)(i * 31 + (i >> 9));
}

static inline void pattern_fill(void *buf, uint64_t at, size_t len)
{
	uint8_t *bytes = buf;

	for (size_t i = 0; i < len; i++)
		bytes[i] = pattern_byte(at + i);
}

/* Return: the first of the bytes that is wrong, @len if none is. */
static inline size_t pattern_check(const void *buf, uint64_t at, size_t len)
{
	const uint8_t *bytes = buf;
	size_t i = 0;

	while (i < len && bytes[i] == pattern_byte(at + i))
		i++;
	return i;
}

#endif
