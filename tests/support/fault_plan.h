/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the wrapped calls (fault_wrap.c) ask the plan: whether to fail, and how.
 */
#ifndef RF_TESTS_FAULT_PLAN_H
#define RF_TESTS_FAULT_PLAN_H

#include <stddef.h>

#include "fault_wrap.h"

/* A way to fail: an errno; negative: one that comes once at a time. This one: fewer bytes. */
#define FAULT_SHORTER  (-10000)
#define FAULT_MAX_WAYS 6

/* A call, and the ways in which it may fail. */
struct fault_call {
	const char *name;
	int ways[FAULT_MAX_WAYS];
};

/* Most objects of each kind that are there at once. */
#define FAULT_MAX_OBJECTS 16384u

struct fault_objects {
	const void *all[FAULT_MAX_OBJECTS];
	unsigned n;
};

/* What the code under test has. */
extern struct fault_objects fault_allocations, fault_mappings;

void fault_object_add(struct fault_objects *objects, const void *at);
void fault_object_remove(struct fault_objects *objects, const void *at);

/* How deep this thread is in code under test. */
extern _Thread_local unsigned fault_depth;

/* Return: 0, FAULT_SHORTER, or the errno with which the call is to fail. */
int fault_decide(const struct fault_call *call);

/* Bytes of so many that a call may move. */
size_t fault_allowed(int way, size_t bytes);

#endif
