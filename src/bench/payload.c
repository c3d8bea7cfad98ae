/* SPDX-License-Identifier: BSD-3-Clause */
#include "payload.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

/* Odd, so that no two words of a period are the same. */
#define STEP UINT64_C(0x9e3779b97f4a7c15)

int rf_bench_payload_init(struct rf_bench_payload *payload, size_t max)
{
	size_t bytes = rf_align_up(RF_BENCH_PERIOD + max, 64);

	payload->bytes = aligned_alloc(64, bytes);
	if (!payload->bytes)
		return -ENOMEM;
	for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
		uint64_t word = (i % RF_BENCH_PERIOD / sizeof(word) + 1) * STEP;

		memcpy(payload->bytes + i, &word, sizeof(word));
	}
	/* For the test that a wrong byte is noticed. */
	if (max && getenv("RINGFERRY_BENCH_WRONG_BYTE"))
		payload->bytes[RF_BENCH_PERIOD / 2] ^= 1;
	return 0;
}

void rf_bench_payload_fini(struct rf_bench_payload *payload)
{
	free(payload->bytes);
	payload->bytes = NULL;
}

uint64_t rf_bench_payload_start(unsigned stream)
{
	return UINT64_C(64) * stream;
}

bool rf_bench_payload_check(const struct rf_bench_payload *payload, uint64_t pos, const void *buf,
			    size_t len)
{
	const char *at = buf;

	while (len) {
		size_t offset = pos % RF_BENCH_PERIOD;
		size_t part = rf_min_size(len, RF_BENCH_PERIOD - offset);

		if (memcmp(at, payload->bytes + offset, part) != 0)
			return false;
		at += part;
		pos += part;
		len -= part;
	}
	return true;
}
