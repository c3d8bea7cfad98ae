/* SPDX-License-Identifier: BSD-3-Clause */
#include <assert.h>

#include "ring/reason.h"

const char *rf_ring_reason_text(enum rf_ring_reason reason)
{
	static const char *const texts[] = {
#define X(name, text) [RF_RING_##name] = (text),
		RF_RING_REASONS(X)
#undef X
	};

	assert((unsigned)reason < RF_RING_N_REASONS);
	return texts[reason];
}
