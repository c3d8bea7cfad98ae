/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Limits and budgets of a served device, and what each prevents.
 */
#ifndef RF_HOST_LIMITS_H
#define RF_HOST_LIMITS_H

#include <stddef.h>

#include "base/util.h"

/* Connections of one device, host programs that have not said CONNECT yet included: descriptors. */
#define RF_HOST_MAX_CONNS 1024u

/* The most that may be set instead. */
#define RF_HOST_CONNS_LIMIT 65536u

/* Buckets of the table of connections, at least; a power of two. */
#define RF_HOST_MIN_BUCKETS 64u

/* Range of the times that may be set: for the handshake, the shutdown and the CONNECT line. */
#define RF_HOST_TIME_MIN_MS 10u
#define RF_HOST_TIME_MAX_MS 3600000u

/* Bytes that must fit behind a hybrid socket's path: "_4294967295". */
#define RF_HOST_PORT_SUFFIX_BYTES 11u

/* Bytes that one connection may move to the guest before the next has its turn: fairness. */
#define RF_HOST_CONN_BUDGET_BYTES 262144u

/*
 * Room that one read for the guest has at least, and not more after reads of little: buffers have
 * to be laid out for it, 4 of a Linux guest's.
 */
#define RF_HOST_MIN_READ_BYTES 16384u

/* Sends, or reads, that are worth a batch: one alone costs more in one than by itself. */
#define RF_HOST_BATCH_MIN 4u

/* Room that receive buffers have to have for reads of several streams into one each. */
#define RF_HOST_BATCH_ROOM 1024u

/* Packets per turn and direction, so that neither direction, nor another device, waits for long. */
#define RF_HOST_TURN_PACKETS 512u

/* Bytes per turn and direction; the packet that exceeds them is still served. */
#define RF_HOST_TURN_BYTES ((size_t)4 * RF_HOST_CONN_BUDGET_BYTES)

/* Host programs accepted per wake-up. */
#define RF_HOST_ACCEPT_BATCH 64u

/* SO_SNDBUF asked for, so that one packet of 64 KiB does not need two sends; the host may grant
 * less. */
#define RF_HOST_SNDBUF_BYTES (1 << 20)

/* A host program's CONNECT line: longest accepted, and the time it has to send it. */
#define RF_HOST_LINE_BYTES 64u
#define RF_HOST_LINE_NS    (10 * RF_NS_PER_SEC)

/* A front end that is silent from the start has to leave after this time when another one waits. */
#define RF_HOST_SILENCE_NS (2 * RF_NS_PER_SEC)

/*
 * After a device's last front end: host programs that take nothing of what the guest sent before
 * for so long lose it, and hold up the end of the program no longer.
 */
#define RF_HOST_LINGER_NS (10 * RF_NS_PER_SEC)

/*
 * A host listener whose backlog is full, or a lack of descriptors: first and longest wait to retry.
 */
#define RF_HOST_RETRY_FIRST_NS (2 * RF_NS_PER_MS)
#define RF_HOST_RETRY_LAST_NS  (64 * RF_NS_PER_MS)

#endif
