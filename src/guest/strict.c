/* SPDX-License-Identifier: BSD-3-Clause */
#include "strict.h"

#include <stdlib.h>

#include "ringferry/guest.h"

/* What Linux charges for a packet. */
#define COST UINT64_C(576)

static bool fits(const struct rf_strict *strict, int bound, const struct rf_vsock_credit *credit,
		 uint32_t len)
{
	uint64_t bytes = (uint64_t)rf_vsock_credit_held(credit) + len;
	uint64_t cost = (strict->n + 1) * COST;

	if (bound == RF_PACKETS_DROP)
		return bytes + cost <= credit->buf_alloc;
	return bytes <= credit->buf_alloc && cost <= credit->buf_alloc;
}

bool rf_strict_admit(struct rf_strict *strict, int bound, const struct rf_vsock_credit *credit,
		     uint32_t len)
{
	if (!fits(strict, bound, credit, len))
		return false;
	if (!strict->lens) {
		strict->room = (uint32_t)(credit->buf_alloc / COST);
		strict->lens = calloc(strict->room, sizeof(*strict->lens));
	}
	if (!strict->lens)
		return false;
	strict->lens[(strict->first + strict->n++) % strict->room] = len;
	return true;
}

uint32_t rf_strict_read(struct rf_strict *strict, uint32_t bytes)
{
	uint32_t whole = 0;

	if (!strict->lens)
		return bytes;
	strict->read += bytes;
	while (strict->n && strict->read >= strict->lens[strict->first]) {
		strict->read -= strict->lens[strict->first];
		whole += strict->lens[strict->first];
		strict->first = (strict->first + 1) % strict->room;
		strict->n--;
	}
	return whole;
}

void rf_strict_fini(struct rf_strict *strict)
{
	free(strict->lens);
	strict->lens = NULL;
}
