/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>
#include <time.h>

#include "soak.h"

uint64_t soak_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * SOAK_NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

void soak_sleep_ms(unsigned ms)
{
	const struct timespec ts = { ms / 1000, (long)(ms % 1000) * 1000000 };

	nanosleep(&ts, NULL);
}

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

/* A number below 2^@bits whose size, not whose value, is evenly spread. */
static uint64_t spread(uint64_t *prng, unsigned bits)
{
	return prng_next(prng) & ((UINT64_C(1) << prng_below(prng, bits + 1)) - 1);
}

/* Tiny pieces and pauses make a stream slow: it gets less to carry. */
static void plan_side(uint64_t *prng, struct soak_plan *plan, enum soak_who who)
{
	uint64_t most;

	plan->chunk[who] = (uint32_t)spread(prng, 18) + 1;
	plan->pause_every[who] = 0;
	if (prng_below(prng, 3) == 0) {
		plan->pause_every[who] = 1 + prng_below(prng, 50);
		plan->pause_ms[who] = 1 + (uint32_t)spread(prng, 8);
	}
	plan->bytes[who] = spread(prng, prng_below(prng, 8) ? 22 : 26);
	most = (uint64_t)plan->chunk[who] * 4000;
	if (plan->pause_every[who] && plan->pause_ms[who])
		most = (uint64_t)plan->chunk[who] * plan->pause_every[who] *
		       (1 + 4000 / plan->pause_ms[who]);
	if (plan->bytes[who] > most)
		plan->bytes[who] = most;
}

void soak_plan_make(uint64_t seed, struct soak_plan *plan)
{
	static const uint8_t kinds[] = { SOAK_ORDERLY, SOAK_ORDERLY, SOAK_CLOSES, SOAK_DEAF };
	uint64_t prng = seed;
	uint64_t most;

	*plan = (struct soak_plan){ 0 };
	plan->kind = (enum soak_kind)kinds[prng_below(&prng, sizeof(kinds))];
	plan->actor = prng_below(&prng, 2) ? SOAK_GUEST : SOAK_HOST;
	plan->by_event_fds = prng_below(&prng, 2);
	plan_side(&prng, plan, SOAK_HOST);
	plan_side(&prng, plan, SOAK_GUEST);
	/* A reader may be slower than its writer. */
	for (int who = 0; who < 2; who++) {
		most = ((uint64_t)plan->chunk[who] * 4000);
		if (plan->pause_every[who])
			most = (uint64_t)plan->chunk[who] * plan->pause_every[who] *
			       (1 + 4000 / plan->pause_ms[who]);
		if (plan->bytes[!who] > most)
			plan->bytes[!who] = most;
	}
	plan->stop_after = spread(&prng, 20);
	if (plan->stop_after > plan->bytes[!plan->actor])
		plan->stop_after = plan->bytes[!plan->actor];
}
