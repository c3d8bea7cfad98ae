/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Probes: places that programs outside (perf, bpftrace, gdb) can find and count (doc/probes.md).
 *
 * A probe has the name of a counter and fires whenever that counter counts one, so that either can
 * be checked by the other (tests/integration/test-probes.py). Unused it costs one "nop"; arguments
 * should be what is at hand anyway.
 */
#ifndef RF_BASE_PROBE_H
#define RF_BASE_PROBE_H

#define SDT_USE_VARIADIC
#include <sys/sdt.h>

/* Fire the probe ringferry:NAME; the arguments, at most 12, are integers or pointers. */
#define RF_PROBE(name, ...) STAP_PROBEV(ringferry, name, __VA_ARGS__)

#endif
