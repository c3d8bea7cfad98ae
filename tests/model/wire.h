/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A link between two ends that delays packets and keeps their order, with room for a few in each
 * direction; and what must hold of the packets on it, found from their headers alone.
 */
#ifndef WIRE_H
#define WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "vsock/conn.h"

#define WIRE_ROOM  64u
#define WIRE_PAIRS 64u

/* Packets in flight that are followed, and what Linux charges for each besides its payload. */
#define WIRE_FLIGHT      2048u
#define WIRE_PACKET_COST 576u

/**
 * struct wire_packet - A packet
 * @hdr:	Header
 * @use:	Which connection it is of, as the sender knows
 * @pos:	RW: place of its payload in the stream
 * @arrive_ns:	When it can be taken
 */
struct wire_packet {
	struct rf_vsock_hdr hdr;
	unsigned use;
	uint64_t pos;
	uint64_t arrive_ns;
};

struct wire_lane {
	struct wire_packet packets[WIRE_ROOM];
	unsigned head, n;
	uint64_t last_ns;
};

/**
 * struct wire_half - What one end has said, and been told, about a pair of ports
 * @open:	A connection has begun, and not ended, as far as this end knows
 * @asked:	With the peer's REQUEST
 * @up:		RESPONSE went or came
 * @shut:	Bits of the SHUTDOWN it has sent
 * @tx:		Its count of sent bytes
 * @peer_buf, @peer_fwd: credit in the header that it took last
 * @ends, @first, @n: where in the stream its packets end that the peer has not consumed
 * @fwd:	Its own count of consumed bytes in its last header
 * @rx_bytes:	Payload that it has taken
 * @updates, @requests: CREDIT_UPDATEs sent and CREDIT_REQUESTs taken
 * @strays:	Packets it has taken that no connection was open for, each good for one RST
 */
struct wire_half {
	bool open, asked, up;
	uint32_t shut;
	uint32_t tx, peer_buf, peer_fwd, fwd;
	uint32_t ends[WIRE_FLIGHT];
	unsigned first, n;
	uint64_t rx_bytes;
	uint32_t updates, requests;
	unsigned strays;
};

struct wire_pair {
	uint32_t port[2];
	struct wire_half half[2];
};

/**
 * struct wire - Both directions
 * @seed:	For the delays
 * @now_ns:	Time
 * @room:	Packets that fit in each direction
 * @max_delay_ns: Longest delay
 * @lanes:	Packets on their way to each end
 * @base:	Where each end's counts of sent bytes begin
 * @batched:	This end tells of what it has consumed a few times per window
 * @pairs, @n_pairs: what is known of each pair of ports
 */
struct wire {
	uint64_t seed, now_ns;
	unsigned room;
	uint32_t max_delay_ns;
	struct wire_lane lanes[2];
	uint32_t base[2];
	bool batched[2];
	struct wire_pair pairs[WIRE_PAIRS];
	unsigned n_pairs;
};

/* Is there room for a packet from this end? */
bool wire_room(const struct wire *wire, unsigned from);

/* Send a packet; there is room. */
void wire_post(struct wire *wire, unsigned from, const struct wire_packet *packet);

/* Take the packet that has arrived at an end. Return: false if there is none. */
bool wire_take(struct wire *wire, unsigned to, struct wire_packet *ret_packet);

/* Is nothing on its way? */
bool wire_empty(const struct wire *wire);

/* The transport is reset: all is lost, and nothing known any more. */
void wire_reset(struct wire *wire);

#endif
