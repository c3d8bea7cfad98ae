/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups of cmocka tests, in which each row of a table is a test of its own.
 */
#ifndef RIG_GROUP_H
#define RIG_GROUP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define RIG_MAX_TESTS 128

struct rig_group {
	struct CMUnitTest tests[RIG_MAX_TESTS];
	size_t n;
};

/* Add tests. */
void rig_group_add(struct rig_group *group, const struct CMUnitTest *tests, size_t n);

/* Add a test for each row of a table whose first member is the row's name: @run gets it as *state.
 */
void rig_group_add_rows(struct rig_group *group, CMUnitTestFunction run, const void *rows, size_t n,
			size_t row_bytes);

/* Return: what main() is to return. */
int rig_group_run(const struct rig_group *group, const char *name);

#endif
