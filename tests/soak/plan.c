/* SPDX-License-Identifier: BSD-3-Clause */
#include "soak.h"

/* Connections are planned to take so long at most, if a piece takes no more than a millisecond. */
#define LONG_MS 4000u

/* A number below 2^@bits whose size, not whose value, is evenly spread. */
static uint64_t spread(uint64_t *prng, unsigned bits)
{
	return prng_next(prng) & ((UINT64_C(1) << prng_below(prng, bits + 1)) - 1);
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* What a side moves in some seconds, with its pieces and pauses. */
static uint64_t moves(const struct soak_plan *plan, enum soak_who who)
{
	if (!plan->pause_every[who])
		return (uint64_t)plan->chunk[who] * LONG_MS;
	return (uint64_t)plan->chunk[who] * plan->pause_every[who] *
	       (1 + LONG_MS / plan->pause_ms[who]);
}

/* Tiny pieces and pauses make a stream slow: it gets less to carry. */
static void plan_side(uint64_t *prng, struct soak_plan *plan, enum soak_who who)
{
	plan->chunk[who] = (uint32_t)spread(prng, 18) + 1;
	plan->pause_every[who] = 0;
	if (prng_below(prng, 3) == 0) {
		plan->pause_every[who] = 1 + prng_below(prng, 50);
		plan->pause_ms[who] = 1 + (uint32_t)spread(prng, 8);
	}
	plan->bytes[who] = spread(prng, prng_below(prng, 8) ? 22 : 26);
	plan->bytes[who] = least(plan->bytes[who], moves(plan, who));
}

void soak_plan_make(uint64_t seed, struct soak_plan *plan)
{
	static const uint8_t kinds[] = { SOAK_ORDERLY, SOAK_ORDERLY, SOAK_CLOSES, SOAK_DEAF };
	uint64_t prng = seed;

	*plan = (struct soak_plan){ 0 };
	plan->kind = (enum soak_kind)kinds[prng_below(&prng, sizeof(kinds))];
	plan->actor = prng_below(&prng, 2) ? SOAK_GUEST : SOAK_HOST;
	plan->by_event_fds = prng_below(&prng, 2);
	plan_side(&prng, plan, SOAK_HOST);
	plan_side(&prng, plan, SOAK_GUEST);
	/* A reader may be slower than its writer. */
	for (int who = 0; who < 2; who++)
		plan->bytes[!who] = least(plan->bytes[!who], moves(plan, (enum soak_who)who));
	plan->stop_after = least(spread(&prng, 20), plan->bytes[!plan->actor]);
}
