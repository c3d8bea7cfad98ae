/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Why a virtqueue or a guest memory was given up: the oracle of the tests, the text of the log and
 * the name of the counter. Each value has a test that reaches it (tests/unit/test-devq.c,
 * test-devq-split.c, test-drvq.c).
 */
#ifndef RF_RING_REASON_H
#define RF_RING_REASON_H

/* X(NAME, "what the peer did") */
#define RF_RING_REASONS(X)                                                                  \
	X(NONE, "not broken")                                                               \
	/* device side: what a driver did */                                                \
	X(AVAIL_JUMP, "available index moved by more than the ring size")                   \
	X(HEAD_RANGE, "head index beyond the descriptor table")                             \
	X(NEXT_RANGE, "next index beyond the descriptor table")                             \
	X(CHAIN_LOOP, "descriptor chain longer than its table")                             \
	X(CHAIN_BYTES, "descriptor chain of more than 2^32 bytes")                          \
	X(CHAIN_PIECES, "descriptor chain of more pieces than are supported")               \
	X(READ_AFTER_WRITE, "device-readable descriptor after a device-writable one")       \
	X(INDIRECT_FEATURE, "indirect descriptor although the feature was not negotiated")  \
	X(INDIRECT_SIZE, "indirect table of zero bytes, not a multiple of 16, or too long") \
	X(INDIRECT_NESTED, "indirect descriptor in an indirect table")                      \
	X(INDIRECT_NEXT, "descriptor that is both indirect and continued")                  \
	X(DESC_ADDR, "descriptor address outside guest memory")                             \
	X(MEM_FAULT, "guest memory vanished under its mapping")                             \
	/* driver side: what a device did */                                                \
	X(USED_JUMP, "used index moved by more than is outstanding")                        \
	X(USED_ID, "used id is not that of an outstanding chain")                           \
	X(USED_LEN, "used length larger than the writable part of the chain")

enum rf_ring_reason {
#define X(name, text) RF_RING_##name,
	RF_RING_REASONS(X)
#undef X
		RF_RING_N_REASONS
};

/* The text of a reason, for a log line. */
const char *rf_ring_reason_text(enum rf_ring_reason reason);

#endif
