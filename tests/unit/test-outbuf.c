/* SPDX-License-Identifier: BSD-3-Clause */
#include "outbuf.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include <cmocka.h>

#include "base/iov.h"
#include "base/util.h"
#include "pattern.h"
#include "prng.h"

static bool no_memory;

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

void *__wrap_malloc(size_t size)
{
	return no_memory ? NULL : __real_malloc(size);
}

/* Append bytes of the stream from @offset on, cut in three behind some that do not belong to it. */
static ssize_t append(struct rf_outbuf *out, uint64_t offset, size_t len, size_t lead)
{
	static uint8_t bytes[100000];
	struct iovec iov[3];
	size_t third = (lead + len) / 3;

	assert_true(lead + len <= sizeof(bytes));
	for (size_t i = 0; i < len; i++)
		bytes[lead + i] = pattern_byte(offset + i);
	iov[0] = (struct iovec){ bytes, third };
	iov[1] = (struct iovec){ bytes + third, third };
	iov[2] = (struct iovec){ bytes + 2 * third, lead + len - 2 * third };
	return rf_outbuf_append(out, iov, 3, lead);
}

static void assert_holds(const struct rf_outbuf *out, uint64_t offset, size_t len)
{
	struct iovec iov[2];
	unsigned n = rf_outbuf_pieces(out, iov);

	assert_int_equal(out->used, len);
	assert_int_equal(rf_iov_bytes(iov, n), len);
	for (unsigned i = 0; i < n; i++)
		for (size_t k = 0; k < iov[i].iov_len; k++)
			assert_int_equal(((uint8_t *)iov[i].iov_base)[k], pattern_byte(offset++));
}

static void test_empty(void **state RF_UNUSED)
{
	struct rf_outbuf out = { 0 };
	struct iovec iov[2];

	assert_int_equal(rf_outbuf_pieces(&out, iov), 0);
	assert_int_equal(append(&out, 0, 0, 100), 0);
	assert_null(out.data);
	rf_outbuf_clear(&out);
	assert_int_equal(append(&out, 0, 10, 0), 10);
	assert_non_null(out.data);
	rf_outbuf_drop(&out, 10);
	/* It costs nothing while it is empty. */
	assert_null(out.data);
	assert_int_equal(append(&out, 0, 10, 0), 10);
	rf_outbuf_clear(&out);
	assert_null(out.data);
	assert_int_equal(out.used, 0);
}

static void test_wrap(void **state RF_UNUSED)
{
	struct rf_outbuf out = { 0 };

	assert_int_equal(append(&out, 0, 4096, 0), 4096);
	rf_outbuf_drop(&out, 3000);
	assert_int_equal(append(&out, 4096, 3000, 11), 3000);
	assert_int_equal(out.size, 4096);
	assert_holds(&out, 3000, 4096);
	/* Grown while it wraps around. */
	assert_int_equal(append(&out, 7096, 1, 0), 1);
	assert_int_equal(out.size, 8192);
	assert_holds(&out, 3000, 4097);
	rf_outbuf_clear(&out);
}

static void test_no_memory(void **state RF_UNUSED)
{
	struct rf_outbuf out = { 0 };

	no_memory = true;
	assert_int_equal(append(&out, 0, 1, 0), -ENOMEM);
	no_memory = false;
	assert_int_equal(append(&out, 0, 4000, 0), 4000);
	no_memory = true;
	assert_int_equal(append(&out, 4000, 96, 0), 96);
	assert_int_equal(append(&out, 4096, 1, 0), -ENOMEM);
	no_memory = false;
	assert_holds(&out, 0, 4096);
	assert_int_equal(append(&out, 4096, 1, 0), 1);
	assert_holds(&out, 0, 4097);
	rf_outbuf_clear(&out);
}

static void test_random(void **state RF_UNUSED)
{
	struct rf_outbuf out = { 0 };
	uint64_t seed = 3, first = 0, end = 0;
	size_t most = 0;

	for (unsigned step = 0; step < 3000; step++) {
		size_t len = prng_below(&seed, 1u << prng_below(&seed, 16));

		if (prng_below(&seed, 2)) {
			assert_int_equal(append(&out, end, len, prng_below(&seed, 50)), len);
			end += len;
		} else {
			len = rf_min_size(len, end - first);
			rf_outbuf_drop(&out, len);
			first += len;
		}
		assert_holds(&out, first, end - first);
		most = rf_max_size(most, out.used);
		assert_true(out.size <= 4096 || out.size < 2 * most);
	}
	rf_outbuf_clear(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_wrap),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
