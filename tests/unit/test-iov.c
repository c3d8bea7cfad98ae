/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/iov.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"

/* "abc", "", "d", "efghij": ten bytes. */
static char text[] = "abcdefghij";
static const struct iovec pieces[] = {
	{ text, 3 },
	{ NULL, 0 },
	{ text + 3, 1 },
	{ text + 4, 6 },
};

static void test_bytes(void **state RF_UNUSED)
{
	assert_int_equal(rf_iov_bytes(pieces, 0), 0);
	assert_int_equal(rf_iov_bytes(pieces, 3), 4);
	assert_int_equal(rf_iov_bytes(pieces, 4), 10);
}

/* @expected: the pieces of the slice separated by '|' */
static const struct slice_row {
	unsigned n;
	size_t offset, len;
	unsigned max_out;
	const char *expected;
} slice_rows[] = {
	/* 0 */ { 4, 0, 10, 4, "abc|d|efghij" },
	/* 1 */ { 4, 0, 10, 3, "abc|d|efghij" },
	/* 2 */ { 4, 0, 10, 2, "abc|d" },
	/* 3 */ { 4, 0, 10, 0, "" },
	/* 4 */ { 4, 0, 0, 4, "" },
	/* 5 */ { 4, 1, 1, 4, "b" },
	/* 6 */ { 4, 1, 3, 4, "bc|d" },
	/* 7 */ { 4, 3, 1, 4, "d" },
	/* 8 */ { 4, 3, 2, 4, "d|e" },
	/* 9 */ { 4, 4, 100, 4, "efghij" },
	/* 10 */ { 4, 9, SIZE_MAX, 4, "j" },
	/* 11 */ { 4, 10, 1, 4, "" },
	/* 12 */ { 4, 11, 1, 4, "" },
	/* 13 */ { 4, SIZE_MAX, SIZE_MAX, 4, "" },
	/* 14 */ { 0, 0, 10, 4, "" },
	/* 15 */ { 2, 2, 10, 4, "c" },
};

static void test_slice(void **state RF_UNUSED)
{
	for (size_t i = 0; i < RF_ARRAY_SIZE(slice_rows); i++) {
		const struct slice_row *row = &slice_rows[i];
		struct iovec out[5] = { 0 };
		char got[32] = "";
		size_t len = 0, bytes = 0;
		unsigned n, at = 0;

		print_message("row %zu\n", i);
		n = rf_iov_slice(pieces, row->n, row->offset, row->len, out, row->max_out, &len);
		for (unsigned k = 0; k < n; k++) {
			at += (unsigned)snprintf(got + at, sizeof(got) - at, "%s%.*s", k ? "|" : "",
						 (int)out[k].iov_len, (char *)out[k].iov_base);
			bytes += out[k].iov_len;
		}
		assert_string_equal(got, row->expected);
		assert_int_equal(len, bytes);
		assert_int_equal(rf_iov_slice(pieces, row->n, row->offset, row->len, out,
					      row->max_out, NULL),
				 n);
	}
}

/* Every offset and length, against a plain copy of the same bytes. */
static void test_copy_out(void **state RF_UNUSED)
{
	for (size_t offset = 0; offset <= 11; offset++) {
		for (size_t len = 0; len <= 12; len++) {
			size_t left = offset < 10 ? 10 - offset : 0;
			char buf[16] = "";

			assert_int_equal(rf_iov_copy_out(pieces, 4, offset, buf, len),
					 rf_min_size(len, left));
			assert_int_equal(strlen(buf), rf_min_size(len, left));
			assert_memory_equal(buf, text + offset, strlen(buf));
		}
	}
}

static void test_copy_in(void **state RF_UNUSED)
{
	for (size_t offset = 0; offset <= 11; offset++) {
		for (size_t len = 0; len <= 12; len++) {
			char target[11] = "..........", model[11] = "..........";
			const struct iovec iov[] = {
				{ target, 1 },
				{ target + 1, 4 },
				{ NULL, 0 },
				{ target + 5, 5 },
			};
			size_t want = rf_min_size(len, offset < 10 ? 10 - offset : 0);

			memcpy(model + rf_min_size(offset, 10), "ABCDEFGHIJKL", want);
			assert_int_equal(rf_iov_copy_in(iov, 4, offset, "ABCDEFGHIJKL", len), want);
			assert_string_equal(target, model);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_slice),
		cmocka_unit_test(test_copy_out),
		cmocka_unit_test(test_copy_in),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
