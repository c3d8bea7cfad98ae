/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From the receive ring to the sockets.
 */
#ifndef RF_GUEST_DELIVER_H
#define RF_GUEST_DELIVER_H

#include <stdbool.h>
#include <stdint.h>

#include "rx.h"

struct rf_guest;

/**
 * rf_deliver() - Do what a received packet asks for
 * @chunk:	Receive buffer with the packet
 * @used:	Bytes the back end wrote to it
 *
 * An RST may be owed for a packet without connection: guest->rx.resets has room for one.
 * Context: guest->rx's mutex held; no other.
 *
 * Return: true if a socket keeps the buffer.
 */
bool rf_deliver(struct rf_guest *guest, struct rf_chunk *chunk, uint32_t used);

#endif
