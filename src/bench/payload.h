/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bytes that streams carry, so that a receiver can tell whether all of them came, in order.
 *
 * They repeat after an odd multiple of 64 bytes, which no size of messages, packets or buffers is a
 * multiple of, and are sent from, and compared with, a few KiB that stay in the first-level cache:
 * the check costs as little as reading what came can cost. Senders' addresses stay aligned to 64.
 */
#ifndef RF_BENCH_PAYLOAD_H
#define RF_BENCH_PAYLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RF_BENCH_PERIOD ((size_t)127 * 64)

/**
 * struct rf_bench_payload - A period and more of the pattern
 * @bytes:	Memory: RF_BENCH_PERIOD plus the longest message
 */
struct rf_bench_payload {
	char *bytes;
};

/**
 * rf_bench_payload_init() - Make it
 * @max:	Bytes of the longest message to be sent from it; 0 only to check
 *
 * Return: 0, or -ENOMEM.
 */
int rf_bench_payload_init(struct rf_bench_payload *payload, size_t max);

void rf_bench_payload_fini(struct rf_bench_payload *payload);

/* Where a stream's pattern begins: another place for each. */
uint64_t rf_bench_payload_start(unsigned stream);

/* The message at a stream's position @pos. */
static inline const char *rf_bench_payload_at(const struct rf_bench_payload *payload, uint64_t pos)
{
	return payload->bytes + pos % RF_BENCH_PERIOD;
}

/* Are these the @len bytes at position @pos? */
bool rf_bench_payload_check(const struct rf_bench_payload *payload, uint64_t pos, const void *buf,
			    size_t len);

#endif
