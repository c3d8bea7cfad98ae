/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counting the packets that wait to be read as Linux of 2026 does, to test senders.
 */
#ifndef RF_GUEST_STRICT_H
#define RF_GUEST_STRICT_H

#include <stdbool.h>
#include <stdint.h>

#include "vsock/credit.h"

/**
 * struct rf_strict - Packets of a socket that were not read to their end
 * @lens:	Their lengths, a ring; NULL before the first packet, and always in a guest that does
 *		not count
 * @room:	Its entries
 * @first, @n:	Its oldest entry and their number
 * @read:	Bytes read of the oldest
 */
struct rf_strict {
	uint32_t *lens;
	uint32_t room, first, n;
	uint32_t read;
};

/**
 * rf_strict_admit() - A packet of @len bytes arrives; count it if there is room
 * @bound:	RF_PACKETS_DROP or RF_PACKETS_RESET: how it is counted
 * @credit:	The connection's, before the packet
 * Return: false if Linux would not take it.
 */
bool rf_strict_admit(struct rf_strict *strict, int bound, const struct rf_vsock_credit *credit,
		     uint32_t len);

/**
 * rf_strict_read() - Bytes were read
 * Return: bytes of packets that were read to their end with that; @bytes if none are counted.
 */
uint32_t rf_strict_read(struct rf_strict *strict, uint32_t bytes);

void rf_strict_fini(struct rf_strict *strict);

#endif
