/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Message sequences of real front ends, played against a session: test-replay FILE...
 *
 * Nothing that they send may be refused, each ring must start and stop when it should and at the
 * index that it should; tests/fixtures/vhost-user/README says what the files are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "vu_lab.h"

#define MAX_FILES 32

static char *read_file(const char *path)
{
	static char buf[65536];
	FILE *f = fopen(path, "r");
	size_t n;

	if (!f)
		fail_msg("%s cannot be opened", path);
	n = fread(buf, 1, sizeof(buf) - 1, f);
	assert_true(n < sizeof(buf) - 1);
	buf[n] = '\0';
	fclose(f);
	return buf;
}

static void replay(void **state)
{
	const char *path = *state;
	struct vu_lab lab;

	vu_lab_init(&lab, path);
	vu_lab_run(&lab, read_file(path));
	vu_lab_expect(&lab, "");
	assert_true(rf_counter_read(&lab.counters.vu_messages) > 20);
	assert_int_equal(rf_counter_read(&lab.counters.vu_refused), 0);
	assert_int_equal(rf_counter_read(&lab.counters.vu_sessions_broken), 0);
	vu_lab_fini(&lab);
}

int main(int argc, char **argv)
{
	struct CMUnitTest tests[MAX_FILES];
	size_t n = 0;

	for (int i = 1; i < argc && n < MAX_FILES; i++) {
		char *name = strrchr(argv[i], '/');

		tests[n++] = (struct CMUnitTest){ .name = name ? name + 1 : argv[i],
						  .test_func = replay,
						  .initial_state = argv[i] };
	}
	if (!n || argc > MAX_FILES)
		return 2;
	return _cmocka_run_group_tests("replay", tests, n, NULL, NULL);
}
