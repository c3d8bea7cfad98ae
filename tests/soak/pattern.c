/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "soak.h"

static uint64_t scramble(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

uint64_t soak_mix(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	return scramble(scramble(scramble(scramble(a) ^ b) ^ c) ^ d);
}

void soak_pattern_fill(uint64_t key, uint64_t position, uint8_t *buf, size_t len)
{
	while (len) {
		uint64_t word = scramble(key ^ position >> 3);
		size_t skip = position & 7;
		size_t n = 8 - skip < len ? 8 - skip : len;

		memcpy(buf, (const uint8_t *)&word + skip, n);
		buf += n;
		position += n;
		len -= n;
	}
}

size_t soak_pattern_check(uint64_t key, uint64_t position, const uint8_t *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		uint64_t word = scramble(key ^ position >> 3);
		size_t skip = position & 7;
		size_t n = 8 - skip < len - done ? 8 - skip : len - done;
		const uint8_t *expect = (const uint8_t *)&word + skip;

		if (memcmp(buf + done, expect, n) != 0) {
			while (buf[done] == *expect++)
				done++;
			return done;
		}
		position += n;
		done += n;
	}
	return done;
}
