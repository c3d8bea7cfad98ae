/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Limits of vsock streams, and what each prevents.
 */
#ifndef RF_VSOCK_LIMITS_H
#define RF_VSOCK_LIMITS_H

#include "base/util.h"

/* Largest payload we put into one packet: Linux accepts no more (VIRTIO_VSOCK_MAX_PKT_BUF_SIZE). */
#define RF_VSOCK_MAX_PAYLOAD 65536u

/*
 * Receive window offered to the peer; the smallest and the largest that can be set. Four times that
 * of Linux: a sender that has filled it sleeps until it hears of credit, and with 256 KiB both ends
 * slept more than they copied (packets of 64 KiB were half as fast). A Linux guest keeps to its own
 * buffer's size whatever we offer.
 */
#define RF_VSOCK_WINDOW_DEFAULT 1048576u
#define RF_VSOCK_WINDOW_MIN     4096u
#define RF_VSOCK_WINDOW_MAX     (1u << 30)

/*
 * Most bytes we keep in flight on one connection whatever the peer offers: a peer that offers 4 GiB
 * and does not read pins no more of our memory than this (CVE-2026-23086).
 */
#define RF_VSOCK_TX_LIMIT_DEFAULT (4u << 20)

/*
 * A receiver tells of consumed bytes when they are this fraction of its window: at most 4 credit
 * updates per window, however small the reads are.
 */
#define RF_VSOCK_CREDIT_FRACTION 4u

/*
 * What a packet in flight costs of the peer's buffer besides its payload. Since 2026 Linux bounds
 * packets, too: it charges 576 bytes for each and drops the packet, or resets the connection, when
 * that is more than the buffer (CVE-2026-53132). The rest is margin.
 */
#define RF_VSOCK_PACKET_COST 640u

/*
 * Linux tells of consumed bytes when less than this much of its buffer is free; a sender that keeps
 * less in flight hears nothing, and has to ask.
 */
#define RF_VSOCK_LINUX_TELLS 65536u

/*
 * A sender that waits and may have to ask does so after the first time, and ever later up to the
 * last, while no answer brings anything new: a peer that never answers costs next to nothing. One
 * that will tell by itself if its program reads on is asked rarely in the end: many programs may
 * not read for long.
 */
#define RF_VSOCK_ASK_FIRST_NS  (2 * RF_NS_PER_MS)
#define RF_VSOCK_ASK_LAST_NS   (200 * RF_NS_PER_MS)
#define RF_VSOCK_ASK_RARELY_NS RF_NS_PER_SEC

/* Owed RSTs for packets that have no connection; when all are owed, no further packet is taken. */
#define RF_VSOCK_RESETS 64u

#define RF_VSOCK_HANDSHAKE_NS (2 * RF_NS_PER_SEC)
#define RF_VSOCK_SHUTDOWN_NS  (8 * RF_NS_PER_SEC)

/* Ports that we allocate lie in [first, 2^32 - 2]: above what guests use, as Firecracker's. */
#define RF_VSOCK_PORT_FIRST (1u << 30)

#endif
