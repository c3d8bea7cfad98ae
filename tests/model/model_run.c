/* SPDX-License-Identifier: BSD-3-Clause */
#include "model_run.h"

#include <assert.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/util.h"
#include "prng.h"

#define NOTES 4096u
#define SHOWN 40u
/* From here on: all of them. */
#define NO_CONN         999u
#define SECONDS_DEFAULT 8u

struct note {
	const char *op;
	unsigned conn, side;
	long arg, result;
	uint64_t now_ns;
};

static const struct model_test *the_test;
static struct note notes[NOTES];
static unsigned n_notes;
static uint64_t seed, time_ns;
static unsigned max_ops = UINT_MAX;
static unsigned chosen_conn;
static bool choosy;
static bool one_seed;

void model_note(const char *op, unsigned conn, unsigned side, long arg, long result)
{
	notes[n_notes++ % NOTES] = (struct note){ op, conn, side, arg, result, time_ns };
}

void model_time(uint64_t now_ns)
{
	time_ns = now_ns;
}

unsigned model_ops(void)
{
	return n_notes;
}

void model_op(const struct model_op *ops, size_t n, uint64_t *prng)
{
	unsigned sum = 0, at;

	for (size_t i = 0; i < n; i++)
		sum += ops[i].weight;
	assert(sum > 0);
	at = prng_below(prng, sum);
	while (at >= ops->weight)
		at -= ops++->weight;
	ops->run();
}

void model_check(const char *wrong)
{
	if (wrong)
		model_fail("%s", wrong);
}

/* Is this connection to be shown? */
static bool chosen(unsigned conn)
{
	return !choosy || conn == chosen_conn || chosen_conn >= NO_CONN;
}

static void show_notes(void)
{
	unsigned shown = choosy ? NOTES : SHOWN;

	for (unsigned i = n_notes > shown ? n_notes - shown : 0; i < n_notes; i++) {
		const struct note *n = &notes[i % NOTES];

		if (chosen(n->conn))
			fprintf(stderr, "# %5u %12.6f  conn %2u end %u  %-10s %8ld -> %ld\n", i,
				(double)n->now_ns / 1e9, n->conn, n->side, n->op, n->arg,
				n->result);
	}
}

void model_packet(const char *what, unsigned conn, unsigned side, const char *op, uint32_t len)
{
	if (choosy && chosen(conn))
		fprintf(stderr, "# %5u %12.6f  conn %2u end %u  %s %s %u\n", n_notes,
			(double)time_ns / 1e9, conn, side, what, op, len);
}

void model_fail(const char *fmt, ...)
{
	char what[512];
	va_list ap;

	va_start(ap, fmt);
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it overlooks the line above */
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	show_notes();
	fail_msg("%s (again: --seed %llu --ops %u)", what, (unsigned long long)seed, n_notes);
	abort();
}

static uint64_t number(const char *text)
{
	char *end;
	uint64_t n = strtoull(text, &end, 10);

	if (!*text || *end) {
		fprintf(stderr, "\"%s\" is no number\n", text);
		exit(2);
	}
	return n;
}

static uint64_t from_env(const char *name, uint64_t value)
{
	const char *text = getenv(name);

	return text ? number(text) : value;
}

static uint64_t clock_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * RF_NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

static void sequences(void **state)
{
	uint64_t end_ns =
		clock_ns() + from_env("RF_MODEL_SECONDS", SECONDS_DEFAULT) * RF_NS_PER_SEC;
	uint64_t n = 0, ops = 0;

	(void)state;
	do {
		n_notes = 0;
		time_ns = 0;
		the_test->run(seed, max_ops);
		ops += n_notes;
		n++;
		seed++;
	} while (!one_seed && clock_ns() < end_ns);
	print_message("# %s: %llu sequences, %llu operations\n", the_test->name,
		      (unsigned long long)n, (unsigned long long)ops);
}

int model_main(const struct model_test *test, int argc, char **argv)
{
	const struct CMUnitTest tests[] = { { test->name, sequences, NULL, NULL, NULL } };

	the_test = test;
	seed = from_env("RF_MODEL_SEED", 1);
	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--seed") == 0) {
			seed = number(argv[i + 1]);
			one_seed = true;
		} else if (strcmp(argv[i], "--ops") == 0) {
			max_ops = (unsigned)number(argv[i + 1]);
		} else if (strcmp(argv[i], "--conn") == 0) {
			chosen_conn = (unsigned)number(argv[i + 1]);
			choosy = true;
		}
	}
	return _cmocka_run_group_tests(test->name, tests, RF_ARRAY_SIZE(tests), NULL, NULL);
}
