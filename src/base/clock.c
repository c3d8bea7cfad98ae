/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/clock.h"

#include <assert.h>
#include <time.h>

#include "base/util.h"

uint64_t rf_clock_now(void)
{
	struct timespec ts;
	int rc = clock_gettime(CLOCK_MONOTONIC, &ts);
	uint64_t ns;

	assert(rc == 0);
	ns = (uint64_t)ts.tv_sec * RF_NS_PER_SEC + (uint64_t)ts.tv_nsec;
	return ns ? ns : 1;
}
