/* SPDX-License-Identifier: BSD-3-Clause */
#include <time.h>

#include "soak.h"

uint64_t soak_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * SOAK_NS_PER_SEC + (uint64_t)ts.tv_nsec;
}

void soak_sleep_ms(unsigned ms)
{
	const struct timespec ts = { ms / 1000, (long)(ms % 1000) * 1000000 };

	nanosleep(&ts, NULL);
}
