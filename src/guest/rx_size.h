/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How large a receive buffer is to be.
 *
 * DOC: Theory of operation. A buffer has a header's room and payload room in whole pages, the
 * header in the first: 4096 - 64 bytes of payload in one page, 8192 - 64 in two, and so on in
 * powers of two up to the largest. A packet that fills its buffer means that more waits behind it:
 * the largest buffers are posted at once. Else their size follows an average of what came in which
 * one packet weighs a sixteenth. It starts as if the largest was needed: pages that nobody has
 * written to take no memory.
 */
#ifndef RF_GUEST_RX_SIZE_H
#define RF_GUEST_RX_SIZE_H

#include <stdint.h>

/**
 * struct rf_rx_size - Size of receive buffers
 * @rule:	RF_GUEST_RX_BUF_*
 * @page:	Payload of the smallest
 * @largest:	Payload of the largest
 * @average:	Of the payload that came, times RF_RX_SIZE_WEIGHT
 */
struct rf_rx_size {
	int rule;
	uint32_t page, largest;
	uint32_t average;
};

#define RF_RX_SIZE_WEIGHT 16u

/* @largest: payload bytes, at most 2^26. */
void rf_rx_size_init(struct rf_rx_size *size, int rule, uint32_t largest);

/* Payload that the next buffer is to hold. */
uint32_t rf_rx_size_next(const struct rf_rx_size *size);

/* A packet of @payload bytes came in a buffer for @room. */
void rf_rx_size_came(struct rf_rx_size *size, uint32_t payload, uint32_t room);

#endif
