/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The monotonic clock. Only shells read it; the pure layers are given the time.
 */
#ifndef RF_BASE_CLOCK_H
#define RF_BASE_CLOCK_H

#include <stdint.h>

/**
 * rf_clock_now() - Read the monotonic clock
 *
 * Context: any thread.
 * Return: nanoseconds since an arbitrary point, never 0.
 */
uint64_t rf_clock_now(void);

#endif
