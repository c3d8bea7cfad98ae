/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Why a vhost-user session ended or a request was refused: the oracle of the tests, the text of the
 * log and the name of the counter. Each value has a test that reaches it.
 */
#ifndef RF_VHOST_REASON_H
#define RF_VHOST_REASON_H

/* X(NAME, "text") */
#define RF_VU_REASONS(X)                                                           \
	X(NONE, "still open")                                                      \
	X(HANGUP, "the other side closed the connection")                          \
	X(CLOSED, "closed by this side")                                           \
	X(IO, "sending or receiving failed")                                       \
	X(STALLED, "half a message, and nothing more in time")                     \
	X(VERSION, "message of another protocol version")                          \
	X(UNKNOWN, "unknown or unsupported request")                               \
	X(SIZE, "payload of the wrong size for its request")                       \
	X(FDS, "wrong number or kind of descriptors for the request")              \
	X(NOT_NEGOTIATED, "request of a protocol feature that was not negotiated") \
	X(FEATURES, "features acknowledged that were not offered")                 \
	X(RING_INDEX, "ring index beyond the device's rings")                      \
	X(RING_NUM, "ring size that is not allowed")                               \
	X(RING_BASE, "ring index to start at that does not fit 16 bits")           \
	X(RING_ADDR, "ring outside shared memory, or not aligned")                 \
	X(RING_STATE, "request that the ring's state does not allow")              \
	X(MEM_REGION, "bad, overlapping or too many memory regions")               \
	X(MEM_MAP, "memory region that cannot be mapped")                          \
	X(MEM_FAULT, "guest memory vanished under its mapping")                    \
	X(CONFIG, "configuration access beyond the device's")                      \
	X(REPLY, "reply that does not fit its request")                            \
	X(REFUSED, "the other side refused a request")

enum rf_vu_reason {
#define X(name, text) RF_VU_##name,
	RF_VU_REASONS(X)
#undef X
		RF_VU_N_REASONS
};

/* The text of a reason, for a log line. */
const char *rf_vu_reason_text(enum rf_vu_reason reason);

#endif
