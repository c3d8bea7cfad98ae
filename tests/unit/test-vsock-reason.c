/* SPDX-License-Identifier: BSD-3-Clause */
#include "vsock/reason.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"

static void test_reason_texts(void **state RF_UNUSED)
{
	for (int i = 0; i < RF_VSOCK_N_REASONS; i++) {
		const char *text = rf_vsock_reason_text((enum rf_vsock_reason)i);

		assert_true(strlen(text) > 5);
		for (int k = 0; k < i; k++)
			assert_string_not_equal(text,
						rf_vsock_reason_text((enum rf_vsock_reason)k));
	}
	assert_string_equal(rf_vsock_reason_text(RF_VSOCK_REFUSED), "refused by the peer");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reason_texts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
