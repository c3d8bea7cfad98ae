/* SPDX-License-Identifier: BSD-3-Clause */
#include "rig_group.h"

#include <string.h>

void rig_group_add(struct rig_group *group, const struct CMUnitTest *tests, size_t n)
{
	assert_true(n <= RIG_MAX_TESTS - group->n);
	memcpy(&group->tests[group->n], tests, n * sizeof(*tests));
	group->n += n;
}

void rig_group_add_rows(struct rig_group *group, CMUnitTestFunction run, const void *rows, size_t n,
			size_t row_bytes)
{
	for (size_t i = 0; i < n; i++) {
		const char *row = (const char *)rows + i * row_bytes;
		struct CMUnitTest test = {
			.test_func = run,
			.initial_state = (void *)(uintptr_t)row,
		};

		memcpy(&test.name, row, sizeof(test.name));
		rig_group_add(group, &test, 1);
	}
}

int rig_group_run(const struct rig_group *group, const char *name)
{
	return _cmocka_run_group_tests(name, group->tests, group->n, NULL, NULL);
}
