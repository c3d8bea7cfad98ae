/* SPDX-License-Identifier: BSD-3-Clause */
#include "counters.h"

#define ROW(name, help) RF_COUNTER_ROW(struct rf_guest_counters, name, help)
#define ENDED_ROW(NAME, name, text)                        \
	{ "ended_" #name, "connections that ended: " text, \
	  offsetof(struct rf_guest_counters, ended) + RF_VSOCK_##NAME * sizeof(rf_counter) },

const struct rf_counter_def rf_guest_counter_defs[] = {
	/* clang-format off */
	RF_GUEST_COUNTERS_OWNED(ROW)
	RF_GUEST_COUNTERS_SHARED(ROW)
	RF_VSOCK_REASONS(ENDED_ROW)
	/* clang-format on */
};
const size_t rf_guest_n_counters = RF_ARRAY_SIZE(rf_guest_counter_defs);
