/* SPDX-License-Identifier: BSD-3-Clause */
#include "ring/reason.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"

static void test_reason_texts(void **state RF_UNUSED)
{
	for (int i = 0; i < RF_RING_N_REASONS; i++)
		assert_true(strlen(rf_ring_reason_text((enum rf_ring_reason)i)) > 5);
	assert_string_equal(rf_ring_reason_text(RF_RING_NONE), "not broken");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reason_texts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
