/* SPDX-License-Identifier: BSD-3-Clause */
#include "warp_clock.h"

#include "base/clock.h"

static _Atomic uint64_t ahead_ns;

uint64_t __real_rf_clock_now(void);
uint64_t __wrap_rf_clock_now(void);

uint64_t __wrap_rf_clock_now(void)
{
	return __real_rf_clock_now() + ahead_ns;
}

void warp_clock(uint64_t ns)
{
	ahead_ns += ns;
}
