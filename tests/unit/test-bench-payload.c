/* SPDX-License-Identifier: BSD-3-Clause */
#include "payload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"

#define MAX_MESSAGE 65536u

static int setup(void **state)
{
	static struct rf_bench_payload payload;

	unsetenv("RINGFERRY_BENCH_WRONG_BYTE");
	*state = &payload;
	return rf_bench_payload_init(&payload, MAX_MESSAGE);
}

static int teardown(void **state)
{
	rf_bench_payload_fini(*state);
	return 0;
}

/* Messages of many sizes, from all positions that follow, are what a receiver expects. */
static void test_sent_is_expected(void **state)
{
	static const size_t sizes[] = { 1, 7, 64, 1000, 4096, RF_BENCH_PERIOD, MAX_MESSAGE };
	const struct rf_bench_payload *payload = *state;

	for (size_t i = 0; i < RF_ARRAY_SIZE(sizes); i++) {
		uint64_t pos = rf_bench_payload_start((unsigned)i);

		for (unsigned n = 0; n < 300; n++, pos += sizes[i])
			assert_true(rf_bench_payload_check(
				payload, pos, rf_bench_payload_at(payload, pos), sizes[i]));
	}
}

/* Each byte counts, wherever it is. */
static void test_wrong_byte(void **state)
{
	static const size_t places[] = {
		0, 1, 63, 64, RF_BENCH_PERIOD - 1, RF_BENCH_PERIOD, 4095, MAX_MESSAGE - 1
	};
	const struct rf_bench_payload *payload = *state;
	static char message[MAX_MESSAGE];

	for (size_t i = 0; i < RF_ARRAY_SIZE(places); i++) {
		memcpy(message, rf_bench_payload_at(payload, 12345), sizeof(message));
		assert_true(rf_bench_payload_check(payload, 12345, message, sizeof(message)));
		message[places[i]] ^= 0x10;
		assert_false(rf_bench_payload_check(payload, 12345, message, sizeof(message)));
	}
}

/* Whatever is lost, doubled or comes from elsewhere: pages, packets, messages, other streams. */
static void test_displaced(void **state)
{
	static const uint64_t moves[] = { 1,    8,     44,    64,     128,      1024,
					  4096, 65492, 65536, 262144, 1u << 20, 3u << 20 };
	const struct rf_bench_payload *payload = *state;

	for (size_t i = 0; i < RF_ARRAY_SIZE(moves); i++)
		assert_false(rf_bench_payload_check(
			payload, 777, rf_bench_payload_at(payload, 777 + moves[i]), 64));
}

static void test_wrong_byte_on_request(void **state)
{
	const struct rf_bench_payload *payload = *state;
	struct rf_bench_payload wrong;

	setenv("RINGFERRY_BENCH_WRONG_BYTE", "1", 1);
	assert_int_equal(rf_bench_payload_init(&wrong, 64), 0);
	unsetenv("RINGFERRY_BENCH_WRONG_BYTE");
	assert_false(rf_bench_payload_check(payload, 0, rf_bench_payload_at(&wrong, 0),
					    RF_BENCH_PERIOD));
	rf_bench_payload_fini(&wrong);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sent_is_expected),
		cmocka_unit_test(test_wrong_byte),
		cmocka_unit_test(test_displaced),
		cmocka_unit_test(test_wrong_byte_on_request),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
