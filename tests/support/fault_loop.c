/* SPDX-License-Identifier: BSD-3-Clause */
#include "fault_loop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "open_fds.h"

#define SAMPLE_AFTER 200
#define SAMPLE_STEP  7

static const char *const mode_names[] = {
	[FAULT_ONCE] = "once",
	[FAULT_EVER] = "for ever",
	[FAULT_SHORT] = "short",
};

static unsigned nth;

/* What is there. */
struct stock {
	unsigned allocations, mappings, fds;
};

static struct stock take_stock(void)
{
	return (struct stock){ fault_live_allocations(), fault_live_mappings(), open_fds() };
}

unsigned fault_nth(void)
{
	return nth;
}

int fault_say_point(void **state)
{
	(void)state;
	fprintf(stderr, "the last point tried was %u: %s\n", nth, fault_text());
	return 0;
}

static bool one_run(enum fault_mode mode, void (*run)(void))
{
	fault_begin(mode, nth);
	run();
	(void)fault_end();
	return fault_hit();
}

static void each_point(const char *name, enum fault_mode mode, void (*run)(void))
{
	bool full = getenv("RF_FAULTLOOP_FULL") != NULL, hit = true;
	unsigned tried = 0;
	struct stock before, after;

	/* What is made once and stays. */
	nth = 0;
	(void)one_run(mode, run);
	before = take_stock();
	for (nth = 1; hit; nth += full || nth < SAMPLE_AFTER ? 1 : SAMPLE_STEP) {
		hit = one_run(mode, run);
		tried += hit;
		after = take_stock();
		if (after.allocations != before.allocations || after.mappings != before.mappings ||
		    after.fds != before.fds)
			FAULT_FAIL("%d allocations, %d mappings, %d descriptors are left",
				   (int)(after.allocations - before.allocations),
				   (int)(after.mappings - before.mappings),
				   (int)(after.fds - before.fds));
	}
	printf("%s, %s: %u faults\n", name, mode_names[mode], tried);
	fflush(stdout);
}

void fault_loop(const char *name, void (*run)(void))
{
	for (enum fault_mode mode = FAULT_ONCE; mode <= FAULT_SHORT; mode++)
		each_point(name, mode, run);
}
