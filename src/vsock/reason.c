/* SPDX-License-Identifier: BSD-3-Clause */
#include "vsock/reason.h"

#include <assert.h>

const char *rf_vsock_reason_text(enum rf_vsock_reason reason)
{
	static const char *const texts[] = {
#define X(name, counter, text) [RF_VSOCK_##name] = text,
		RF_VSOCK_REASONS(X)
#undef X
	};

	assert(reason < RF_VSOCK_N_REASONS);
	return texts[reason];
}
