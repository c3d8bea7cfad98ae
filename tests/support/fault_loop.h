/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A scenario with each of its fault points as the one that fails. To be used with cmocka.
 */
#ifndef RF_TESTS_FAULT_LOOP_H
#define RF_TESTS_FAULT_LOOP_H

#include "fault_wrap.h"

/* The point of the run at hand. */
unsigned fault_nth(void);

/* Fail the test, and say at which point. */
#define FAULT_FAIL(format, ...) \
	fail_msg("point %u (%s): " format, fault_nth(), fault_text(), ##__VA_ARGS__)

/**
 * fault_loop() - Run a scenario once, for ever and short, point by point until none is hit
 * @name:	Its name
 * @run:	The scenario; faults are on when it is called and need not be off in the end
 *
 * Each run must leave as many descriptors, allocations and mappings as a run without faults. Of the
 * points after the 200th only some are tried, unless RF_FAULTLOOP_FULL is set.
 */
void fault_loop(const char *name, void (*run)(void));

/* A cmocka test that names the point at hand if it fails. */
int fault_say_point(void **state);
#define FAULT_TEST(name) cmocka_unit_test_teardown(name, fault_say_point)

#endif
