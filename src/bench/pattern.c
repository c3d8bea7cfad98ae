/* SPDX-License-Identifier: BSD-3-Clause */
#include "pattern.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

/* Odd, so that no two words of a period are the same. */
#define STEP UINT64_C(0x9e3779b97f4a7c15)

int rf_bench_pattern_init(struct rf_bench_pattern *pattern, size_t max)
{
	size_t bytes = rf_align_up(RF_BENCH_PERIOD + max, 64);

	pattern->bytes = aligned_alloc(64, bytes);
	if (!pattern->bytes)
		return -ENOMEM;
	for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
		uint64_t word = (i % RF_BENCH_PERIOD / sizeof(word) + 1) * STEP;

		memcpy(pattern->bytes + i, &word, sizeof(word));
	}
	return 0;
}

void rf_bench_pattern_fini(struct rf_bench_pattern *pattern)
{
	free(pattern->bytes);
	pattern->bytes = NULL;
}

uint64_t rf_bench_pattern_start(unsigned stream)
{
	return UINT64_C(64) * stream;
}

bool rf_bench_pattern_check(const struct rf_bench_pattern *pattern, uint64_t pos, const void *buf,
			    size_t len)
{
	const char *at = buf;

	while (len) {
		size_t offset = pos % RF_BENCH_PERIOD;
		size_t part = rf_min_size(len, RF_BENCH_PERIOD - offset);

		if (memcmp(at, pattern->bytes + offset, part) != 0)
			return false;
		at += part;
		pos += part;
		len -= part;
	}
	return true;
}
