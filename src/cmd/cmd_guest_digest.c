/* SPDX-License-Identifier: BSD-3-Clause */
#include <assert.h>
#include <endian.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "cmd_guest.h"

static uint64_t word(uint64_t seed, uint64_t i)
{
	uint64_t z = seed + (i + 1) * UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return htole64(z ^ z >> 31);
}

void rf_guest_seeded_fill(struct rf_guest_seeded *seeded, uint8_t *buf, size_t len)
{
	uint64_t i = seeded->at / sizeof(i);

	assert(!len || seeded->at % sizeof(i) == 0);
	seeded->at += len;
	for (; len; i++) {
		uint64_t w = word(seeded->seed, i);
		size_t n = rf_min_size(len, sizeof(w));

		memcpy(buf, &w, n);
		buf += n;
		len -= n;
	}
}

void rf_guest_digest_text(EVP_MD_CTX *sha256, char ret_text[RF_GUEST_DIGEST_CHARS])
{
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned n = 0;

	EVP_DigestFinal_ex(sha256, digest, &n);
	assert(2 * n + 1 == RF_GUEST_DIGEST_CHARS);
	for (unsigned i = 0; i < n; i++)
		sprintf(ret_text + 2 * (size_t)i, "%02x", digest[i]);
}
