/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Why a vsock connection ended, or a packet was refused: the oracle of the tests, the text of the
 * log and the name of the counter. Each value has a test that reaches it
 * (tests/unit/test-vsock-*.c).
 */
#ifndef RF_VSOCK_REASON_H
#define RF_VSOCK_REASON_H

/* X(NAME, name of the counter, "text") */
#define RF_VSOCK_REASONS(X)                                                                    \
	X(NONE, none, "still open")                                                            \
	/* orderly */                                                                          \
	X(CLOSED, closed, "closed by both sides")                                              \
	X(PEER_RESET, peer_reset, "reset by the peer")                                         \
	X(REFUSED, refused, "refused by the peer")                                             \
	X(LOCAL_RESET, local_reset, "reset by this side")                                      \
	X(TRANSPORT_RESET, transport_reset, "the device was reset or went away")               \
	X(HANDSHAKE_TIMEOUT, handshake_timeout, "no answer to the connection request in time") \
	X(SHUTDOWN_TIMEOUT, shutdown_timeout, "no reset in answer to shutdown in time")        \
	/* the peer broke a rule */                                                            \
	X(CREDIT_OVERRUN, credit_overrun, "peer sent more than its credit")                    \
	X(DATA_EARLY, data_early, "peer sent data before the connection was established")      \
	X(DATA_LATE, data_late, "peer sent data after it said it would not")                   \
	X(BAD_STATE, bad_state, "operation that the connection's state does not allow")        \
	X(BAD_OP, bad_op, "unknown operation")                                                 \
	X(BAD_TYPE, bad_type, "packet of another socket type than the connection")

enum rf_vsock_reason {
#define X(name, counter, text) RF_VSOCK_##name,
	RF_VSOCK_REASONS(X)
#undef X
		RF_VSOCK_N_REASONS
};

/* The text of a reason, for a log line. */
const char *rf_vsock_reason_text(enum rf_vsock_reason reason);

#endif
