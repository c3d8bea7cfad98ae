/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random numbers for tests: the same from the same seed, everywhere.
 */
#ifndef PRNG_H
#define PRNG_H

#include <stdint.h>

static inline uint32_t prng_next(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(*state >> 32);
}

/* A number below @n, which is not 0. */
static inline uint32_t prng_below(uint64_t *state, uint32_t n)
{
	return prng_next(state) % n;
}

#endif
