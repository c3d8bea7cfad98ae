/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A clock that tests can set forward: no test waits for a timeout. Programs that use it are linked
 * with --wrap=rf_clock_now.
 */
#ifndef WARP_CLOCK_H
#define WARP_CLOCK_H

#include <stdint.h>

/* From now on the clock is so much further. */
void warp_clock(uint64_t ns);

#endif
