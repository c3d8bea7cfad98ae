/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The switches of the guest half: each recreates what Linux once did, to measure the difference.
 */
#ifndef RF_GUEST_SWITCHES_H
#define RF_GUEST_SWITCHES_H

#include <stdbool.h>

#include "base/counter.h"

/* Values of @max_packet. */
enum {
	RF_GUEST_MAX_PACKET_64K,
	RF_GUEST_MAX_PACKET_4K,
};

/* Values of @rx_buf. */
enum {
	RF_GUEST_RX_BUF_EWMA,
	RF_GUEST_RX_BUF_64K,
	RF_GUEST_RX_BUF_4K,
};

/* Values of @poll_by. */
enum {
	RF_GUEST_POLL_BY_CALLER,
	RF_GUEST_POLL_BY_WORKER,
};

/* X(member, name, type, default, values, help); they are read when a guest is opened. */
#define RF_GUEST_SWITCHES(X)                                                                      \
	X(direct_tx, "direct-tx", RF_SWITCH_BOOL, "on", "on|off",                                 \
	  "put packets onto the ring in the sender's thread if no earlier one waits; off: queue " \
	  "all of them for the guest's thread, as Linux before 6.12")                             \
	X(join, "join", RF_SWITCH_BOOL, "on", "on|off",                                           \
	  "let small sends share a packet while the back end is behind; off: a packet each")      \
	X(max_packet, "max-packet", RF_SWITCH_ENUM, "64k", "64k|4k",                              \
	  "payload that one packet carries at most; 4k: as Linux before 5.4")                     \
	X(rx_buf, "rx-buf", RF_SWITCH_ENUM, "ewma", "ewma|64k|4k",                                \
	  "size of receive buffers: as what comes; 64k: the largest; 4k: a page, as Linux 6.17")  \
	X(poll_by, "poll-by", RF_SWITCH_ENUM, "caller", "caller|worker",                          \
	  "who polls before sleeping, if that is asked for: calls that wait; worker: the "        \
	  "guest's thread")                                                                       \
	X(credit, "credit", RF_SWITCH_ENUM, "batched", "batched|eager|linux",                     \
	  "tell of bytes that were read a few times per window; eager: at once, as Linux before " \
	  "5.4; linux: when less than 64 KiB is free, as Linux 6.1")

struct rf_guest_switches {
	bool direct_tx;
	bool join;
	int max_packet; /* RF_GUEST_MAX_PACKET_* */
	int rx_buf;     /* RF_GUEST_RX_BUF_* */
	int poll_by;    /* RF_GUEST_POLL_BY_* */
	int credit;     /* enum rf_vsock_tell */
};

extern const struct rf_switch_def rf_guest_switch_defs[];
extern const size_t rf_guest_n_switches;

#endif
