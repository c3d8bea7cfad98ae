/* SPDX-License-Identifier: BSD-3-Clause */
#include "round.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_RUNS 200u

/* What runs, one letter each: 'a' + case; and what the probes of round trips say. */
static struct {
	char runs[MAX_RUNS];
	unsigned n_runs;
	const double *rtts;
	unsigned n_rtts, at;
	unsigned fail_at;
} script;

double __wrap_rf_bench_rtt_ns(void);

double __wrap_rf_bench_rtt_ns(void)
{
	return script.at < script.n_rtts ? script.rtts[script.at++] : 140;
}

static int run(struct rf_bench *bench RF_UNUSED, const struct rf_bench_case *c,
	       const struct rf_bench_place *place, double seconds RF_UNUSED,
	       struct rf_bench_sample *ret)
{
	script.runs[script.n_runs++] = *c->row->variant;
	if (script.n_runs == script.fail_at)
		return -EPROTO;
	ret->gbps = place->guest + 1;
	ret->latency.p50 = place->guest + 1;
	return 0;
}

struct lab {
	struct rf_bench_options options;
	struct rf_bench bench;
	struct rf_bench_case cases[3];
};

static int setup(void **state)
{
	struct lab *lab = calloc(1, sizeof(*lab));

	memset(&script, 0, sizeof(script));
	rf_bench_options_init(&lab->options);
	lab->bench.options = &lab->options;
	for (unsigned i = 0; i < RF_ARRAY_SIZE(lab->cases); i++) {
		const char name[] = { (char)('a' + i), '\0' };

		lab->cases[i] = (struct rf_bench_case){
			.row = rf_bench_add_row(&lab->bench, "test", name),
			.run = run,
			.n_places = 1,
		};
	}
	*state = lab;
	return 0;
}

static int teardown(void **state)
{
	struct lab *lab = *state;

	for (unsigned i = 0; i < lab->bench.n_rows; i++)
		free(lab->bench.rows[i]);
	free(lab);
	return 0;
}

/* Each is first once: what the first one meets, such as cold caches, meets all. */
static void test_turns(void **state)
{
	struct lab *lab = *state;

	assert_int_equal(rf_bench_rounds(&lab->bench, lab->cases, 3, 4), 0);
	assert_string_equal(script.runs, "abcbcacababc");
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(lab->cases[i].row->n_samples, 4);
		assert_int_equal(lab->cases[i].row->thrown, 0);
	}
}

/* A round in which the cores move does not count for anybody. */
static void test_moved(void **state)
{
	static const double rtts[] = { 140, 140, 600 };
	struct lab *lab = *state;

	script.rtts = rtts;
	script.n_rtts = RF_ARRAY_SIZE(rtts);
	assert_int_equal(rf_bench_rounds(&lab->bench, lab->cases, 2, 2), 0);
	assert_string_equal(script.runs, "ababba");
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(lab->cases[i].row->n_samples, 2);
		assert_int_equal(lab->cases[i].row->thrown, 1);
	}
	assert_true(lab->bench.rtt_min == 140);
	assert_true(lab->bench.rtt_max == 600);
	assert_true(lab->cases[0].row->samples[0].rtt_before == 140);
}

/* Between rounds they may move. */
static void test_moved_between(void **state)
{
	static const double rtts[] = { 140, 140, 140, 600, 600, 600 };
	struct lab *lab = *state;

	script.rtts = rtts;
	script.n_rtts = RF_ARRAY_SIZE(rtts);
	assert_int_equal(rf_bench_rounds(&lab->bench, lab->cases, 2, 2), 0);
	assert_string_equal(script.runs, "abba");
}

/* It comes to an end on a machine whose cores always move. */
static void test_moves_always(void **state)
{
	static double rtts[100];
	struct lab *lab = *state;

	for (unsigned i = 0; i < RF_ARRAY_SIZE(rtts); i++)
		rtts[i] = i % 2 ? 140 : 600;
	script.rtts = rtts;
	script.n_rtts = RF_ARRAY_SIZE(rtts);
	assert_int_equal(rf_bench_rounds(&lab->bench, lab->cases, 1, 2), 0);
	assert_int_equal(script.n_runs, 4);
	assert_int_equal(lab->cases[0].row->n_samples, 2);
	assert_int_equal(lab->cases[0].row->thrown, 2);
}

/* The best of the candidates: the highest rate, or the shortest time. */
static void test_places(void **state)
{
	struct lab *lab = *state;

	for (unsigned i = 0; i < 2; i++) {
		lab->cases[i].n_places = 3;
		for (int p = 0; p < 3; p++)
			lab->cases[i].places[p].guest = (p + 1) % 3;
	}
	lab->cases[1].row->latency = true;
	assert_int_equal(rf_bench_rounds(&lab->bench, lab->cases, 2, 1), 0);
	assert_int_equal(lab->cases[0].row->place.guest, 2);
	assert_int_equal(lab->cases[1].row->place.guest, 0);
	/* Short runs to choose do not count. */
	assert_int_equal(lab->cases[0].row->n_samples, 1);
}

static void test_failure(void **state)
{
	struct lab *lab = *state;

	script.fail_at = 3;
	assert_int_equal(rf_bench_rounds(&lab->bench, lab->cases, 2, 9), -EPROTO);
	assert_int_equal(script.n_runs, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_turns, setup, teardown),
		cmocka_unit_test_setup_teardown(test_moved, setup, teardown),
		cmocka_unit_test_setup_teardown(test_moved_between, setup, teardown),
		cmocka_unit_test_setup_teardown(test_moves_always, setup, teardown),
		cmocka_unit_test_setup_teardown(test_places, setup, teardown),
		cmocka_unit_test_setup_teardown(test_failure, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
