/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a guest counts.
 */
#ifndef RF_GUEST_COUNTERS_H
#define RF_GUEST_COUNTERS_H

#include "base/counter.h"
#include "vsock/reason.h"

/* Counted under the mutex of a ring, or by the guest's thread alone. */
#define RF_GUEST_COUNTERS_OWNED(X)                                                            \
	X(tx_packets, "packets put onto the transmit ring")                                   \
	X(tx_bytes, "payload bytes in them")                                                  \
	X(tx_joined, "small sends that joined a packet")                                      \
	X(tx_credit_updates, "of the packets: credit updates")                                \
	X(tx_credit_requests, "of the packets: credit requests")                              \
	X(tx_resets, "of the packets: RST")                                                   \
	X(tx_direct, "of the packets: put onto the ring by their sender, at once")            \
	X(tx_queued_busy, "of the packets: queued while somebody else held the ring")         \
	X(tx_queued_full, "of the packets: queued because the ring was full")                 \
	X(tx_queued_earlier, "of the packets: queued because an earlier one waited")          \
	X(tx_queued_off, "of the packets: queued because direct-tx is off")                   \
	X(tx_worker_runs, "times the guest's thread put queued packets onto the ring")        \
	X(tx_waits, "times a packet found no room to wait for the transmit ring in")          \
	X(rx_packets, "packets taken from the receive ring")                                  \
	X(rx_bytes, "payload bytes admitted from them")                                       \
	X(rx_credit_updates, "of the packets: credit updates")                                \
	X(rx_credit_requests, "of the packets: credit requests")                              \
	X(rx_resets, "of the packets: RST")                                                   \
	X(rx_joined_bytes, "payload bytes of small packets, copied behind the packet before") \
	X(rx_bounced_bytes, "payload bytes copied because receive buffers ran low")           \
	X(rx_posted_page, "receive buffers posted: of one page, or the largest if smaller")   \
	X(rx_posted_middle, "receive buffers posted: larger, but not the largest")            \
	X(rx_posted_largest, "receive buffers posted: the largest")                           \
	X(rx_filled, "of the packets: those that left no room in their buffer")               \
	X(rx_pages_given_back, "pages of receive buffers given back to the system")           \
	X(tx_calls, "notifications received for the transmit ring")                           \
	X(rx_kicks, "notifications sent for the receive ring")                                \
	X(rx_calls, "notifications received for the receive ring")                            \
	X(rx_polled_packets, "of the packets: taken by callers that polled")                  \
	X(rx_grace_ticks, "times the guest's thread looked after a ring that callers poll")   \
	X(rx_bad_length, "packets dropped: longer than what the back end wrote")              \
	X(rx_overflows, "packets dropped, or connections ended: too many packets unread")     \
	X(rx_misaddressed, "packets dropped: from or for somebody else")                      \
	X(rx_unmatched, "packets answered with RST: no such socket")                          \
	X(back_pressure, "times no packet was taken because all owed resets were in use")     \
	X(backlog_refusals, "connection requests answered with RST: the backlog was full")    \
	X(accepted, "connections accepted by a listener")                                     \
	X(attachments, "times a back end was attached")                                       \
	X(detachments, "times a back end went away or was given up")                          \
	X(rings_broken, "times a ring was given up because of what the back end wrote")       \
	X(transport_resets, "transport reset events")

/* Counted by any thread. */
#define RF_GUEST_COUNTERS_SHARED(X)                                                  \
	X(tx_kicks, "notifications sent for the transmit ring")                      \
	X(rx_polls, "times a call that would have blocked polled first")             \
	X(rx_poll_hits, "of these, times that what it waited for came meanwhile")    \
	X(credit_waits, "times a sender found no credit")                            \
	X(packet_waits, "times sending waited though the host had byte credit left") \
	X(connects, "connections asked for")

struct rf_guest_counters {
	RF_GUEST_COUNTERS_OWNED(RF_COUNTER_MEMBER)
	RF_GUEST_COUNTERS_SHARED(RF_COUNTER_MEMBER)
	/* Connections that ended, by reason; printed as ended_REASON, counted by any thread. */
	rf_counter ended[RF_VSOCK_N_REASONS];
};

extern const struct rf_counter_def rf_guest_counter_defs[];
extern const size_t rf_guest_n_counters;

#endif
