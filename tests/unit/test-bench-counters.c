/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * counters.c: what is made of the halves' lines of JSON.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "team.h"

static json_t *parse(const char *text)
{
	json_t *json = json_loads(text, 0, NULL);

	assert_non_null(json);
	return json;
}

static void test_flat(void **state RF_UNUSED)
{
	json_t *line =
		parse("{\"loop\": {\"loop_wakeups\": 1}, \"devices\": [{\"device\": \"cid 4\", "
		      "\"guest_cid\": 4, \"connections\": 9, \"host\": {\"turns\": 2}, "
		      "\"vhost\": {\"vu_calls\": 3}, \"switches\": {\"merge\": \"on\"}}]}");
	json_t *flat = rf_bench_counters_flat(line);
	json_t *wanted = parse("{\"loop_wakeups\": 1, \"turns\": 2, \"vu_calls\": 3}");

	assert_true(json_equal(flat, wanted));
	json_decref(wanted);
	json_decref(flat);
	json_decref(line);
}

static void test_diff(void **state RF_UNUSED)
{
	json_t *begin = parse("{\"a\": 5, \"b\": 7, \"gone\": 1}");
	json_t *end = parse("{\"a\": 5, \"b\": 9, \"new\": 1}");
	json_t *diff = rf_bench_counters_diff(begin, end);
	json_t *wanted = parse("{\"a\": 0, \"b\": 2}");

	assert_true(json_equal(diff, wanted));
	json_decref(wanted);
	json_decref(diff);
	json_decref(end);
	json_decref(begin);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_flat),
		cmocka_unit_test(test_diff),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
