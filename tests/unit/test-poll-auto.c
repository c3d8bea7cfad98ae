/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/poll_auto.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define US RF_NS_PER_US
#define MS RF_NS_PER_MS

/* Time to go to sleep and wake up. */
#define WAKE_NS (8 * US)

/**
 * struct peer - Whom we wait for, again and again
 * @answer_ns:	Time until it answers
 * @shared:	It works on our core: while we poll it does not
 * @late_ns:	A poll is interrupted for so long, and then finds the answer
 */
struct peer {
	uint64_t answer_ns;
	bool shared;
	uint64_t late_ns;
};

/* What waiting cost. */
struct cost {
	uint64_t waits, polls, hits, polled_ns, elapsed_ns;
};

static uint64_t clock_ns = 1;

static void wait_once(struct rf_poll_auto *poll, const struct peer *peer, struct cost *cost)
{
	uint64_t limit_ns = rf_poll_auto_limit(poll), left_ns = peer->answer_ns,
		 begin_ns = clock_ns;

	cost->waits++;
	if (limit_ns) {
		bool hit = peer->late_ns || (!peer->shared && left_ns <= limit_ns);
		uint64_t spent_ns = hit ? left_ns + peer->late_ns : limit_ns;

		clock_ns += spent_ns;
		cost->polls++;
		cost->hits += hit;
		cost->polled_ns += spent_ns;
		rf_poll_auto_polled(poll, hit, spent_ns, clock_ns);
		if (!peer->shared)
			left_ns -= rf_min_u64(left_ns, spent_ns);
		if (hit)
			left_ns = 0;
	}
	if (!limit_ns || left_ns) {
		clock_ns += left_ns + WAKE_NS;
		rf_poll_auto_slept(poll, left_ns + WAKE_NS, clock_ns);
	}
	cost->elapsed_ns += clock_ns - begin_ns;
}

static struct cost wait_for(struct rf_poll_auto *poll, const struct peer *peer, uint64_t ns)
{
	uint64_t end_ns = clock_ns + ns;
	struct cost cost = { 0 };

	while (clock_ns < end_ns)
		wait_once(poll, peer, &cost);
	return cost;
}

static void test_steady(void **state)
{
	static const struct {
		struct peer peer;
		/* Polls per 1000 waits, and time polled per 1000 of all time: from, to. */
		unsigned min_polls, max_polls, min_time, max_time;
	} rows[] = {
		/* 0: it answers in time: always */
		{ { .answer_ns = 5 * US }, 999, 1000, 0, 1000 },
		{ { .answer_ns = 45 * US }, 999, 1000, 0, 1000 },
		/* 2: a little too late for a poll: a few tries */
		{ { .answer_ns = 51 * US }, 0, 2, 0, 2 },
		/* 3: far too late: never */
		{ { .answer_ns = 120 * US }, 0, 0, 0, 0 },
		{ { .answer_ns = 10 * MS }, 0, 0, 0, 0 },
		/* 5: in time, but on the same core: a few tries */
		{ { .answer_ns = 1 * US, .shared = true }, 0, 1, 0, 2 },
		{ { .answer_ns = 5 * US, .shared = true }, 0, 1, 0, 2 },
		/* 7: found after the peer had taken our core: no hit */
		{ { .answer_ns = 5 * US, .late_ns = 100 * US }, 0, 1, 0, 5 },
	};
	(void)state;

	for (size_t i = 0; i < RF_ARRAY_SIZE(rows); i++) {
		struct rf_poll_auto poll;
		struct cost cost;

		rf_poll_auto_init(&poll);
		assert_int_equal(rf_poll_auto_limit(&poll), 0);
		cost = wait_for(&poll, &rows[i].peer, 2 * RF_NS_PER_SEC);
		assert_in_range(cost.polls * 1000 / cost.waits, rows[i].min_polls,
				rows[i].max_polls);
		assert_in_range(cost.polled_ns * 1000 / cost.elapsed_ns, rows[i].min_time,
				rows[i].max_time);
	}
}

/* What it saves where polling pays, and what it costs where it does not: 5 % of the better. */
static void test_no_worse_than_either(void **state)
{
	(void)state;
	for (uint64_t us = 1; us < 60; us++) {
		for (int shared = 0; shared <= 1; shared++) {
			struct peer peer = { .answer_ns = us * US, .shared = shared };
			uint64_t never_ns = us * US + WAKE_NS, best_ns = never_ns;
			struct rf_poll_auto poll;
			struct cost cost;

			if (!shared && us <= 20)
				best_ns = us * US;
			rf_poll_auto_init(&poll);
			cost = wait_for(&poll, &peer, RF_NS_PER_SEC);
			assert_true(cost.elapsed_ns <= cost.waits * best_ns * 105 / 100);
		}
	}
}

/* It notices within reason that things have changed. */
static void test_phases(void **state)
{
	static const struct peer good = { .answer_ns = 6 * US };
	static const struct peer bad = { .answer_ns = 6 * US, .shared = true };
	static const struct peer slow = { .answer_ns = 5 * MS };
	static const struct {
		const struct peer *first, *second;
		/* How soon after the change it polls almost always, or almost never. */
		uint64_t within_ns;
		bool polls;
	} rows[] = {
		{ &good, &bad, 1 * MS, false },
		{ &good, &slow, 200 * MS, false },
		{ &bad, &good, RF_POLL_AUTO_LAST_NS + MS, true },
		{ &slow, &good, 1 * MS, true },
	};
	(void)state;

	for (size_t i = 0; i < RF_ARRAY_SIZE(rows); i++) {
		struct rf_poll_auto poll;
		struct cost cost;

		rf_poll_auto_init(&poll);
		/* Several times: what it has learnt before does not matter. */
		for (unsigned round = 0; round < 5; round++) {
			(void)wait_for(&poll, rows[i].first, RF_NS_PER_SEC);
			(void)wait_for(&poll, rows[i].second, rows[i].within_ns);
			cost = wait_for(&poll, rows[i].second, 100 * MS);
			if (rows[i].polls)
				assert_int_equal(cost.hits, cost.waits);
			else
				assert_in_range(cost.polls * 100, 0, cost.waits);
		}
	}
}

/* Each burst of answers ends with a poll that finds nothing: they go on. */
static void test_bursts(void **state)
{
	static const struct peer good = { .answer_ns = 6 * US };
	static const struct peer pause = { .answer_ns = 3 * MS };
	struct rf_poll_auto poll;
	struct cost cost = { 0 };
	(void)state;

	rf_poll_auto_init(&poll);
	for (unsigned burst = 0; burst < 1000; burst++) {
		for (unsigned i = 0; i < 4; i++)
			wait_once(&poll, &good, &cost);
		wait_once(&poll, &pause, &cost);
	}
	assert_in_range(cost.polls, 4900, 5000);
	assert_in_range(cost.hits, 3900, 4000);
}

/* Of those polls that find nothing and of those that do there are as many: it goes on. */
static void test_every_other(void **state)
{
	static const struct peer good = { .answer_ns = 6 * US };
	static const struct peer late = { .answer_ns = 21 * US };
	struct rf_poll_auto poll;
	struct cost cost = { 0 };
	(void)state;

	rf_poll_auto_init(&poll);
	for (unsigned i = 0; i < 100000; i++)
		wait_once(&poll, i % 2 ? &good : &late, &cost);
	assert_in_range(cost.polls, 99999, 100000);
}

/* Pauses grow to their limit, and are short again after a good time. */
static void test_pauses(void **state)
{
	struct rf_poll_auto poll;
	uint64_t now_ns = 1000, pause_ns = RF_POLL_AUTO_FIRST_NS;
	(void)state;

	rf_poll_auto_init(&poll);
	for (unsigned i = 0; i < 20; i++) {
		rf_poll_auto_slept(&poll, RF_POLL_AUTO_SHORT_NS + 1, now_ns);
		assert_int_equal(rf_poll_auto_limit(&poll), 0);
		rf_poll_auto_slept(&poll, RF_POLL_AUTO_SHORT_NS, now_ns);
		for (unsigned k = 0; k < RF_POLL_AUTO_TRY; k++) {
			assert_int_equal(rf_poll_auto_limit(&poll), RF_POLL_AUTO_LIMIT_NS);
			rf_poll_auto_polled(&poll, false, RF_POLL_AUTO_LIMIT_NS, now_ns);
		}
		assert_int_equal(rf_poll_auto_limit(&poll), 0);
		rf_poll_auto_slept(&poll, 1, now_ns + pause_ns - 1);
		assert_int_equal(rf_poll_auto_limit(&poll), 0);
		now_ns += pause_ns;
		pause_ns = rf_min_u64(2 * pause_ns, RF_POLL_AUTO_LAST_NS);
	}
	rf_poll_auto_slept(&poll, 1, now_ns);
	for (unsigned k = 0; k < RF_POLL_AUTO_GOOD / RF_POLL_AUTO_HIT; k++)
		rf_poll_auto_polled(&poll, true, 1, now_ns);
	for (unsigned k = 0; k < RF_POLL_AUTO_GOOD; k++)
		rf_poll_auto_polled(&poll, false, RF_POLL_AUTO_LIMIT_NS, now_ns);
	assert_int_equal(rf_poll_auto_limit(&poll), 0);
	rf_poll_auto_slept(&poll, 1, now_ns + RF_POLL_AUTO_FIRST_NS);
	assert_int_equal(rf_poll_auto_limit(&poll), RF_POLL_AUTO_LIMIT_NS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_steady),      cmocka_unit_test(test_no_worse_than_either),
		cmocka_unit_test(test_phases),      cmocka_unit_test(test_bursts),
		cmocka_unit_test(test_every_other), cmocka_unit_test(test_pauses),
	};

	return cmocka_run_group_tests_name("poll-auto", tests, NULL, NULL);
}
