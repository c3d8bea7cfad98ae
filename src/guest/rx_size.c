/* SPDX-License-Identifier: BSD-3-Clause */
#include "rx_size.h"

#include "base/util.h"
#include "guest/switches.h"
#include "memory.h"

void rf_rx_size_init(struct rf_rx_size *size, int rule, uint32_t largest)
{
	*size = (struct rf_rx_size){
		.rule = rule,
		.page = rf_min_u32(RF_GUEST_PAGE - RF_GUEST_PAYLOAD_AT, largest),
		.largest = largest,
		.average = largest * RF_RX_SIZE_WEIGHT,
	};
}

static uint32_t by_average(const struct rf_rx_size *size)
{
	uint32_t average = size->average / RF_RX_SIZE_WEIGHT;
	/* An eighth more, so that packets of one size do not fill the buffers chosen for them. */
	uint32_t wanted = average + average / 8 + 1;
	uint32_t pages = 1;

	while (pages * RF_GUEST_PAGE - RF_GUEST_PAYLOAD_AT < wanted) {
		pages *= 2;
		/* Not one that is smaller by the header's room only. */
		if (pages * RF_GUEST_PAGE >= size->largest)
			return size->largest;
	}
	return rf_min_u32(pages * RF_GUEST_PAGE - RF_GUEST_PAYLOAD_AT, size->largest);
}

uint32_t rf_rx_size_next(const struct rf_rx_size *size)
{
	switch (size->rule) {
	case RF_GUEST_RX_BUF_4K:
		return size->page;
	case RF_GUEST_RX_BUF_64K:
		return size->largest;
	default:
		return by_average(size);
	}
}

void rf_rx_size_came(struct rf_rx_size *size, uint32_t payload, uint32_t room)
{
	if (payload >= room)
		size->average = size->largest * RF_RX_SIZE_WEIGHT;
	else
		size->average += payload - size->average / RF_RX_SIZE_WEIGHT;
}
