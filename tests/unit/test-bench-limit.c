/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * src/bench/limit_memory.c and limit_signal.c: each runs, and carries what it says it carries. How
 * fast is nobody's business here.
 */
#include "limit.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"

struct rf_bench_payload;

#define SECONDS 0.01

/* Checks so far, and which one finds a wrong byte; 0 for none. */
static unsigned checks, wrong_check;

bool __real_rf_bench_payload_check(const struct rf_bench_payload *pattern, uint64_t pos,
				   const void *buf, size_t len);
bool __wrap_rf_bench_payload_check(const struct rf_bench_payload *pattern, uint64_t pos,
				   const void *buf, size_t len);

bool __wrap_rf_bench_payload_check(const struct rf_bench_payload *pattern, uint64_t pos,
				   const void *buf, size_t len)
{
	return ++checks != wrong_check && __real_rf_bench_payload_check(pattern, pos, buf, len);
}

static int reset(void **state RF_UNUSED)
{
	checks = wrong_check = 0;
	return 0;
}

static void test_memcpy(void **state RF_UNUSED)
{
	static const struct {
		size_t size, area;
	} cases[] = { { 1, 1 }, { 64, 100 }, { 64, 32768 }, { 65536, 65536 }, { 100000, 1 << 20 } };

	for (size_t i = 0; i < RF_ARRAY_SIZE(cases); i++) {
		double gbps = -1;

		assert_int_equal(
			rf_bench_limit_memcpy(cases[i].size, cases[i].area, SECONDS, &gbps), 0);
		if (!(gbps > 0))
			fail_msg("row %zu: %f", i, gbps);
	}
}

static void test_memcpy_too_large(void **state RF_UNUSED)
{
	double gbps = -1;

	assert_int_equal(rf_bench_limit_memcpy(64, SIZE_MAX / 2, SECONDS, &gbps), -ENOMEM);
	assert_true(gbps == -1);
}

static const struct {
	size_t size;
	unsigned slots;
	size_t window;
	bool two_threads;
	int cores[2];
} pipelines[] = {
	{ 64, 256, 1 << 20, false, { 0, 0 } },      { 64, 256, 1 << 20, true, { 0, 1 } },
	{ 64, 256, 1 << 20, true, { 0, 0 } },       { 1, 1, 1, true, { 1, 0 } },
	{ 65536, 128, 1 << 20, true, { -1, -1 } },  { 100000, 2, 100, true, { 0, 1 } },
	{ 65536, 128, 1 << 20, false, { -1, -1 } },
};

static int run_pipeline(size_t i, double *ret_gbps)
{
	const struct rf_bench_limit_pipeline how = {
		.size = pipelines[i].size,
		.slots = pipelines[i].slots,
		.window = pipelines[i].window,
		.two_threads = pipelines[i].two_threads,
		.check = true,
		.cores = { pipelines[i].cores[0], pipelines[i].cores[1] },
		.seconds = SECONDS,
	};

	return rf_bench_limit_pipeline(&how, ret_gbps);
}

static void test_pipeline(void **state RF_UNUSED)
{
	for (size_t i = 0; i < RF_ARRAY_SIZE(pipelines); i++) {
		double gbps = -1;
		int r;

		checks = 0;
		r = run_pipeline(i, &gbps);
		if (r || !(gbps > 0) || !checks)
			fail_msg("row %zu: %d, %f GB/s, %u checks", i, r, gbps, checks);
	}
}

/* A wrong byte is not lost among the good ones; of small messages, there are some in any time. */
static void test_pipeline_wrong(void **state RF_UNUSED)
{
	for (size_t i = 0; i < RF_ARRAY_SIZE(pipelines); i++)
		for (unsigned at = 1; at <= (pipelines[i].size == 64 ? 3 : 1); at += 2) {
			double gbps = -1;

			checks = 0;
			wrong_check = at;
			assert_int_equal(run_pipeline(i, &gbps), -EBADMSG);
			assert_true(gbps == -1);
		}
}

static void test_pingpong(void **state RF_UNUSED)
{
	static const struct {
		enum rf_bench_limit_signal signal;
		size_t size, n;
		int cores[2];
	} cases[] = {
		{ RF_BENCH_LIMIT_EVENTFD, 0, 1, { 0, 1 } },
		{ RF_BENCH_LIMIT_EVENTFD, 0, 100, { -1, -1 } },
		{ RF_BENCH_LIMIT_SOCKET, 1, 1, { 0, 1 } },
		{ RF_BENCH_LIMIT_SOCKET, 4096, 100, { 0, 0 } },
		/* More than the socket holds at once. */
		{ RF_BENCH_LIMIT_SOCKET, 1 << 20, 20, { 0, 1 } },
	};

	for (size_t i = 0; i < RF_ARRAY_SIZE(cases); i++) {
		uint32_t times_ns[100] = { 0 };
		int r = rf_bench_limit_pingpong(cases[i].signal, cases[i].size, cases[i].cores,
						times_ns, cases[i].n);

		assert_int_equal(r, 0);
		for (size_t k = 0; k < RF_ARRAY_SIZE(times_ns); k++)
			if ((times_ns[k] > 0) != (k < cases[i].n))
				fail_msg("row %zu: time %zu is %u", i, k, times_ns[k]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memcpy),
		cmocka_unit_test(test_memcpy_too_large),
		cmocka_unit_test_setup(test_pipeline, reset),
		cmocka_unit_test_setup(test_pipeline_wrong, reset),
		cmocka_unit_test(test_pingpong),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
