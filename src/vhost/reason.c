/* SPDX-License-Identifier: BSD-3-Clause */
#include "vhost/reason.h"

#include <assert.h>

const char *rf_vu_reason_text(enum rf_vu_reason reason)
{
	static const char *const texts[] = {
#define X(name, text) [RF_VU_##name] = text,
		RF_VU_REASONS(X)
#undef X
	};

	assert((unsigned)reason < RF_VU_N_REASONS);
	return texts[reason];
}
