/* SPDX-License-Identifier: BSD-3-Clause */
#include "vhost/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"

#define PF(bit) (UINT64_C(1) << (bit))
#define ALL_PF  UINT64_MAX

/* A request with nothing but sizes. */
static struct rf_vu_message message(uint32_t request, uint32_t size, unsigned n_fds)
{
	struct rf_vu_message msg = { .hdr = { request, RF_VU_PROTOCOL_VERSION, size },
				     .n_fds = n_fds };

	if (request == RF_VU_SET_MEM_TABLE && size >= 8)
		msg.payload.table.n_regions = (size - 8) / 32;
	return msg;
}

static const struct {
	unsigned row;
	uint32_t request, flags, size;
	enum rf_vu_reason reason;
} hdr_rows[] = {
	{ 1, RF_VU_GET_FEATURES, 0x1, 0, RF_VU_NONE },
	{ 2, RF_VU_GET_FEATURES, 0x9, 0, RF_VU_NONE },
	{ 3, RF_VU_GET_FEATURES, 0x0, 0, RF_VU_VERSION },
	{ 4, RF_VU_GET_FEATURES, 0x2, 0, RF_VU_VERSION },
	{ 5, RF_VU_GET_FEATURES, 0x3, 0, RF_VU_VERSION },
	/* A reply where a request belongs. */
	{ 6, RF_VU_GET_FEATURES, 0x5, 8, RF_VU_VERSION },
	/* Bits of a later version of the text. */
	{ 7, RF_VU_GET_FEATURES, 0x11, 0, RF_VU_NONE },
	{ 8, RF_VU_GET_FEATURES, 0x1, 1, RF_VU_SIZE },
	{ 9, RF_VU_SET_FEATURES, 0x1, 7, RF_VU_SIZE },
	{ 10, RF_VU_SET_FEATURES, 0x1, UINT32_MAX, RF_VU_SIZE },
	{ 11, RF_VU_SET_MEM_TABLE, 0x1, 8 + 32 * 8, RF_VU_NONE },
	{ 12, RF_VU_SET_MEM_TABLE, 0x1, 8 + 32 * 8 + 1, RF_VU_SIZE },
	{ 13, RF_VU_GET_CONFIG, 0x1, 12 + 256, RF_VU_NONE },
	{ 14, RF_VU_GET_CONFIG, 0x1, 12 + 257, RF_VU_SIZE },
	{ 15, RF_VU_GET_CONFIG, 0x1, 11, RF_VU_SIZE },
	/* An unknown one is read to its end, if there is room. */
	{ 16, 0, 0x1, RF_VU_MAX_PAYLOAD, RF_VU_NONE },
	{ 17, 0, 0x1, RF_VU_MAX_PAYLOAD + 1, RF_VU_SIZE },
	{ 18, UINT32_MAX, 0x1, 0, RF_VU_NONE },
	{ 19, UINT32_MAX, 0x1, UINT32_MAX, RF_VU_SIZE },
};

static void test_check_hdr(void **state)
{
	(void)state;
	for (size_t i = 0; i < RF_ARRAY_SIZE(hdr_rows); i++) {
		struct rf_vu_hdr hdr = { hdr_rows[i].request, hdr_rows[i].flags, hdr_rows[i].size };

		if (rf_vu_check_hdr(&hdr) != hdr_rows[i].reason)
			fail_msg("row %u", hdr_rows[i].row);
	}
}

static const struct {
	unsigned row;
	uint32_t request, size;
	unsigned n_fds;
	uint64_t protocol_features;
	enum rf_vu_reason reason;
} request_rows[] = {
	{ 1, RF_VU_SET_OWNER, 0, 0, 0, RF_VU_NONE },
	{ 2, RF_VU_SET_OWNER, 0, 1, 0, RF_VU_FDS },
	{ 3, 0, 0, 0, ALL_PF, RF_VU_UNKNOWN },
	{ 4, 22, 32, 0, ALL_PF, RF_VU_UNKNOWN },
	{ 5, 41, 16, 0, ALL_PF, RF_VU_UNKNOWN },
	{ 6, UINT32_MAX, 8, 0, ALL_PF, RF_VU_UNKNOWN },
	{ 7, RF_VU_SET_OWNER, 1, 0, 0, RF_VU_SIZE },
	{ 8, RF_VU_GET_QUEUE_NUM, 0, 0, PF(RF_VU_PF_MQ), RF_VU_NONE },
	{ 9, RF_VU_GET_QUEUE_NUM, 0, 0, ~PF(RF_VU_PF_MQ), RF_VU_NOT_NEGOTIATED },
	{ 10, RF_VU_GET_CONFIG, 20, 0, ~PF(RF_VU_PF_CONFIG), RF_VU_NOT_NEGOTIATED },
	{ 11, RF_VU_ADD_MEM_REG, 40, 1, ~PF(RF_VU_PF_CONFIGURE_MEM_SLOTS), RF_VU_NOT_NEGOTIATED },
	{ 12, RF_VU_ADD_MEM_REG, 40, 1, ALL_PF, RF_VU_NONE },
	{ 13, RF_VU_ADD_MEM_REG, 40, 0, ALL_PF, RF_VU_FDS },
	{ 14, RF_VU_ADD_MEM_REG, 40, 2, ALL_PF, RF_VU_FDS },
	{ 15, RF_VU_REM_MEM_REG, 40, 0, ALL_PF, RF_VU_NONE },
	{ 16, RF_VU_REM_MEM_REG, 40, 1, ALL_PF, RF_VU_NONE },
	{ 17, RF_VU_REM_MEM_REG, 40, 2, ALL_PF, RF_VU_FDS },
	/* 0 and 1 descriptors are both legal here: DPDK once looped for ever on 0. */
	{ 18, RF_VU_SET_VRING_CALL, 8, 0, 0, RF_VU_NONE },
	{ 19, RF_VU_SET_VRING_CALL, 8, 1, 0, RF_VU_NONE },
	{ 20, RF_VU_SET_VRING_CALL, 8, 2, 0, RF_VU_FDS },
	/* A memory table says itself how many there are: the "253 descriptors" of CVE-2019-14818.
	 */
	{ 21, RF_VU_SET_MEM_TABLE, 8, 0, 0, RF_VU_NONE },
	{ 22, RF_VU_SET_MEM_TABLE, 8 + 32 * 8, 8, 0, RF_VU_NONE },
	{ 23, RF_VU_SET_MEM_TABLE, 8 + 32 * 2, 1, 0, RF_VU_FDS },
	{ 24, RF_VU_SET_MEM_TABLE, 8 + 32 * 2, 3, 0, RF_VU_FDS },
	{ 25, RF_VU_SET_MEM_TABLE, 8 + 32 + 1, 1, 0, RF_VU_SIZE },
	{ 26, RF_VU_SET_STATUS, 8, 0, ~PF(RF_VU_PF_STATUS), RF_VU_NOT_NEGOTIATED },
	{ 27, RF_VU_SET_LOG_BASE, 16, 1, ~PF(RF_VU_PF_LOG_SHMFD), RF_VU_NOT_NEGOTIATED },
	/* Legal before any feature was negotiated. */
	{ 28, RF_VU_GET_PROTOCOL_FEATURES, 0, 0, 0, RF_VU_NONE },
	{ 29, RF_VU_SET_PROTOCOL_FEATURES, 8, 0, 0, RF_VU_NONE },
	{ 30, RF_VU_SET_VRING_ENABLE, 8, 0, 0, RF_VU_NONE },
};

static void test_check_request(void **state)
{
	(void)state;
	for (size_t i = 0; i < RF_ARRAY_SIZE(request_rows); i++) {
		struct rf_vu_message msg = message(request_rows[i].request, request_rows[i].size,
						   request_rows[i].n_fds);

		if (rf_vu_check_request(&msg, request_rows[i].protocol_features) !=
		    request_rows[i].reason)
			fail_msg("row %u", request_rows[i].row);
	}
}

/* More regions than the table has room for, with a size that would fit fewer. */
static void test_table_too_many(void **state)
{
	struct rf_vu_message msg = message(RF_VU_SET_MEM_TABLE, 8 + 32 * 8, 8);

	(void)state;
	msg.payload.table.n_regions = 9;
	assert_int_equal(rf_vu_check_request(&msg, 0), RF_VU_SIZE);
	/* 8 + 32 * n that wraps around 32 bits to the right size. */
	msg.payload.table.n_regions = 8 + (UINT32_MAX / 32 + 1);
	assert_int_equal(rf_vu_check_request(&msg, 0), RF_VU_SIZE);
}

/* Each row: legal at its smallest and largest, refused one byte and one descriptor beyond. */
static void test_every_row(void **state)
{
	unsigned n = 0;

	(void)state;
	for (uint32_t request = 0; request < 64; request++) {
		const struct rf_vu_request_def *def = rf_vu_request_def(request);
		struct rf_vu_message msg;

		if (!def)
			continue;
		n++;
		assert_int_equal(def->request, request);
		assert_string_equal(rf_vu_request_name(request), def->name);
		msg = message(request, def->min_size, def->min_fds);
		assert_int_equal(rf_vu_check_request(&msg, ALL_PF), RF_VU_NONE);
		msg = message(request, def->max_size, def->max_fds);
		assert_int_equal(rf_vu_check_request(&msg, ALL_PF), RF_VU_NONE);
		msg = message(request, def->max_size + 1u, def->max_fds);
		assert_int_equal(rf_vu_check_request(&msg, ALL_PF), RF_VU_SIZE);
		msg = message(request, def->max_size, def->max_fds + 1u);
		assert_int_equal(rf_vu_check_request(&msg, ALL_PF), RF_VU_FDS);
		msg = message(request, def->min_size - 1u, def->min_fds);
		assert_int_equal(rf_vu_check_request(&msg, ALL_PF), RF_VU_SIZE);
		if (def->min_fds) {
			msg = message(request, def->min_size, def->min_fds - 1u);
			assert_int_equal(rf_vu_check_request(&msg, ALL_PF), RF_VU_FDS);
		}
		assert_true(def->max_size <= RF_VU_MAX_PAYLOAD);
		assert_true(def->max_fds <= RF_VU_MAX_FDS);
	}
	assert_int_equal(n, 29);
}

static void test_names(void **state)
{
	(void)state;
	assert_string_equal(rf_vu_request_name(RF_VU_SET_MEM_TABLE), "SET_MEM_TABLE");
	assert_string_equal(rf_vu_request_name(0), "?");
	assert_string_equal(rf_vu_request_name(UINT32_MAX), "?");
	for (int reason = 0; reason < RF_VU_N_REASONS; reason++)
		assert_true(strlen(rf_vu_reason_text((enum rf_vu_reason)reason)) > 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_check_hdr),      cmocka_unit_test(test_check_request),
		cmocka_unit_test(test_table_too_many), cmocka_unit_test(test_every_row),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
