/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "bench/run.h"

#define UNSET RF_BENCH_POLL_UNSET
#define AUTO  RF_BENCH_POLL_AUTO

static const struct good_row {
	const char *text;
	const char *name;
	enum rf_bench_kind kind;
	const char *host, *guest;
	int host_poll, guest_poll;
	uint32_t queue_size, window;
	bool same_thread;
} good_rows[] = {
	/* 0 */ { "a", "a", RF_BENCH_OURS, "", "", UNSET, UNSET, 0, 0, false },
	/* 1 */ { "raw", "raw", RF_BENCH_RAW, "", "", UNSET, UNSET, 0, 0, false },
	/* 2 */ { "raw-best", "raw-best", RF_BENCH_RAW_BEST, "", "", UNSET, UNSET, 0, 0, false },
	/* 3: both have it */
	{ "a:credit=eager", "a", RF_BENCH_OURS, "credit=eager", "credit=eager", UNSET, UNSET, 0, 0,
	  false },
	/* 4 */
	{ "a:host.credit=eager", "a", RF_BENCH_OURS, "credit=eager", "", UNSET, UNSET, 0, 0,
	  false },
	/* 5 */
	{ "a:guest.credit=linux", "a", RF_BENCH_OURS, "", "credit=linux", UNSET, UNSET, 0, 0,
	  false },
	/* 6: one half has it */
	{ "a:merge=off,max-packet=4k,packets=off", "a", RF_BENCH_OURS, "merge=off,packets=off",
	  "max-packet=4k", UNSET, UNSET, 0, 0, false },
	/* 7 */ { "a:poll-us=20", "a", RF_BENCH_OURS, "", "", 20, 20, 0, 0, false },
	/* 8 */ { "a:host.poll-us=auto", "a", RF_BENCH_OURS, "", "", AUTO, UNSET, 0, 0, false },
	/* 9 */
	{ "a:guest.poll-us=0,queue-size=128,window=64k,thread=same", "a", RF_BENCH_OURS, "", "",
	  UNSET, 0, 128, 65536, true },
	/* 10 */ { "a:thread=other", "a", RF_BENCH_OURS, "", "", UNSET, UNSET, 0, 0, false },
};

static void test_good(void **state RF_UNUSED)
{
	for (size_t i = 0; i < RF_ARRAY_SIZE(good_rows); i++) {
		const struct good_row *row = &good_rows[i];
		struct rf_bench_variant variant;
		char wrong[RF_BENCH_WRONG_BYTES];

		assert_int_equal(rf_bench_variant_parse(row->text, &variant, wrong), 0);
		assert_string_equal(variant.name, row->name);
		assert_int_equal(variant.kind, row->kind);
		assert_string_equal(variant.host_tune, row->host);
		assert_string_equal(variant.guest_tune, row->guest);
		assert_int_equal(variant.host_poll_us, row->host_poll);
		assert_int_equal(variant.guest_poll_us, row->guest_poll);
		assert_int_equal(variant.queue_size, row->queue_size);
		assert_int_equal(variant.window, row->window);
		assert_int_equal(variant.same_thread, row->same_thread);
	}
}

/* @says: a part of what is said to be wrong */
static const struct bad_row {
	const char *text;
	const char *says;
} bad_rows[] = {
	/* 0 */ { "", "name" },
	/* 1 */ { ":merge=off", "name" },
	/* 2 */ { "a-name-that-is-longer-than-31-chars", "name" },
	/* 3 */ { "raw:merge=off", "plain socket" },
	/* 4 */ { "a:merge", "NAME:key=value" },
	/* 5 */ { "a:frobnicate=off", "no such key: frobnicate" },
	/* 6 */ { "a:merge=maybe", "on|off" },
	/* 7 */ { "a:guest.merge=off", "no such key: merge" },
	/* 8 */ { "a:host.max-packet=4k", "no such key: max-packet" },
	/* 9 */ { "a:poll-us=1001", "auto" },
	/* 10 */ { "a:poll-us=often", "auto" },
	/* 11 */ { "a:queue-size=100", "power of two" },
	/* 12 */ { "a:queue-size=65536", "power of two" },
	/* 13 */ { "a:window=1k", "4k" },
	/* 14 */ { "a:thread=third", "same or other" },
	/* 15 */ { "a:nowhere.merge=off", "no such key" },
};

static void test_bad(void **state RF_UNUSED)
{
	for (size_t i = 0; i < RF_ARRAY_SIZE(bad_rows); i++) {
		struct rf_bench_variant variant;
		char wrong[RF_BENCH_WRONG_BYTES] = "";

		assert_int_equal(rf_bench_variant_parse(bad_rows[i].text, &variant, wrong),
				 -EINVAL);
		assert_non_null(strstr(wrong, bad_rows[i].says));
	}
}

static void test_backend(void **state RF_UNUSED)
{
	static const char *const bad[] = { "",      "name",     "name=/sock", "=/sock,/uds",
					   "n=,/u", "n=/sock,", "kernel2" };
	struct rf_bench_variant variant;
	char wrong[RF_BENCH_WRONG_BYTES], text[2 * RF_BENCH_PATH_BYTES];

	assert_int_equal(rf_bench_backend_parse("kernel", &variant, wrong), 0);
	assert_int_equal(variant.kind, RF_BENCH_KERNEL);
	assert_int_equal(rf_bench_backend_parse("rust=/a/sock,/b/uds", &variant, wrong), 0);
	assert_int_equal(variant.kind, RF_BENCH_EXTERNAL);
	assert_string_equal(variant.name, "rust");
	assert_string_equal(variant.socket, "/a/sock");
	assert_string_equal(variant.uds, "/b/uds");
	for (size_t i = 0; i < RF_ARRAY_SIZE(bad); i++)
		assert_int_equal(rf_bench_backend_parse(bad[i], &variant, wrong), -EINVAL);

	memset(text, 'x', sizeof(text));
	memcpy(text, "n=/s,", 5);
	text[5 + RF_BENCH_PATH_BYTES] = '\0';
	assert_int_equal(rf_bench_backend_parse(text, &variant, wrong), -EINVAL);
	text[4 + RF_BENCH_PATH_BYTES] = '\0';
	assert_int_equal(rf_bench_backend_parse(text, &variant, wrong), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_backend),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
