/* SPDX-License-Identifier: BSD-3-Clause */
#include "connect_line.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"

#define BAD UINT32_MAX

static const struct row {
	const char *line;
	uint32_t port;
} rows[] = {
	/* 0 upper case: systemd, Kata's Go runtime, iperf-vsock */ { "CONNECT 1234", 1234 },
	/* 1 lower case: Kata's runtime-rs */ { "connect 52", 52 },
	/* 2 */ { "CoNnEcT 0", 0 },
	/* 3 the largest port */ { "CONNECT 4294967294", 4294967294 },
	/* 4 which is no port */ { "CONNECT 4294967295", BAD },
	/* 5 */ { "CONNECT 4294967296", BAD },
	/* 6 would be 1 if it wrapped */ { "CONNECT 18446744073709551617", BAD },
	/* 7 */ { "CONNECT 99999999999999999999999999999999999999999999999", BAD },
	/* 8 carriage return */ { "CONNECT 1\r", 1 },
	/* 9 blanks */ { "CONNECT \t 1 \t\r", 1 },
	/* 10 leading zeros */ { "CONNECT 000000000000001024", 1024 },
	/* 11 vhost-device #307 */ { "connect", BAD },
	/* 12 */ { "CONNECT ", BAD },
	/* 13 */ { "CONNECT \r", BAD },
	/* 14 */ { "", BAD },
	/* 15 */ { "CONNECT1234", BAD },
	/* 16 */ { "CONNECTED 1234", BAD },
	/* 17 */ { " CONNECT 1234", BAD },
	/* 18 more words */ { "CONNECT 1234 5678", BAD },
	/* 19 */ { "CONNECT 12x", BAD },
	/* 20 what strtoul() takes */ { "CONNECT +5", BAD },
	/* 21 */ { "CONNECT -1", BAD },
	/* 22 */ { "CONNECT 0x10", BAD },
	/* 23 */ { "CONNECT 1\r1", BAD },
	/* 24 */ { "passfd", BAD },
	/* 25 */ { "GET / HTTP/1.1\r", BAD },
};

static void test_parse(void **state RF_UNUSED)
{
	for (size_t i = 0; i < RF_ARRAY_SIZE(rows); i++) {
		uint32_t port = 77;
		int r = rf_connect_line_parse(rows[i].line, strlen(rows[i].line), &port);
		int expected = rows[i].port == BAD ? -EINVAL : 0;

		if (r != expected || port != (r ? 77 : rows[i].port))
			fail_msg("row %zu: %d, port %u", i, r, port);
	}
}

/* The line is what its length says: it may hold any byte, and what lies behind it is not looked at.
 */
static void test_length(void **state RF_UNUSED)
{
	static const char text[] = "CONNECT 1234567";
	uint32_t port;

	assert_int_equal(rf_connect_line_parse(text, 12, &port), 0);
	assert_int_equal(port, 1234);
	for (size_t len = 0; len < 9; len++)
		assert_int_equal(rf_connect_line_parse(text, len, &port), -EINVAL);
	assert_int_equal(rf_connect_line_parse("CONNECT 1\0", 10, &port), -EINVAL);
	assert_int_equal(rf_connect_line_parse("CONNECT\0 1", 10, &port), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse),
		cmocka_unit_test(test_length),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
