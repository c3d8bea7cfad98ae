/* SPDX-License-Identifier: BSD-3-Clause */
/* guest/rx_size.c: sizes of receive buffers, by rule and by what came. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "guest/switches.h"
#include "rx_size.h"

#define EWMA RF_GUEST_RX_BUF_EWMA

/* Packets that come in turn, each in a buffer of the size that was chosen before it. */
static void packets(struct rf_rx_size *size, unsigned n, uint32_t a, uint32_t b)
{
	for (unsigned i = 0; i < n; i++) {
		uint32_t room = rf_rx_size_next(size), len = i % 2 ? b : a;

		rf_rx_size_came(size, len < room ? len : room, room);
	}
}

/* The size after @n packets of @a and @b bytes in turn. */
static void chosen(void **state)
{
	static const struct {
		int row, rule;
		uint32_t largest;
		unsigned n;
		uint32_t a, b, wanted;
	} rows[] = {
		/* The fixed ones. */
		{ 1, RF_GUEST_RX_BUF_64K, 65536, 0, 0, 0, 65536 },
		{ 2, RF_GUEST_RX_BUF_64K, 65536, 1000, 1, 1, 65536 },
		{ 3, RF_GUEST_RX_BUF_64K, 300, 1000, 300, 300, 300 },
		{ 4, RF_GUEST_RX_BUF_4K, 65536, 0, 0, 0, 4032 },
		{ 5, RF_GUEST_RX_BUF_4K, 65536, 1000, 65536, 65536, 4032 },
		{ 6, RF_GUEST_RX_BUF_4K, 4032, 1, 1, 1, 4032 },
		{ 7, RF_GUEST_RX_BUF_4K, 4031, 1, 1, 1, 4031 },
		{ 8, RF_GUEST_RX_BUF_4K, 256, 1, 1, 1, 256 },
		/* It begins with the largest, and comes down slowly. */
		{ 9, EWMA, 65536, 0, 0, 0, 65536 },
		{ 10, EWMA, 65536, 8, 0, 0, 65536 },
		{ 11, EWMA, 65536, 15, 0, 0, 32704 },
		{ 12, EWMA, 65536, 50, 0, 0, 4032 },
		{ 13, EWMA, 1 << 20, 100, 0, 0, 4032 },
		{ 14, EWMA, 256, 100, 0, 0, 256 },
		{ 15, EWMA, 1 << 20, 0, 0, 0, 1 << 20 },
		/* One size: more than that, and it stays so. */
		{ 16, EWMA, 65536, 1000, 1, 1, 4032 },
		{ 17, EWMA, 65536, 1000, 3000, 3000, 4032 },
		{ 18, EWMA, 65536, 1000, 4032, 4032, 8128 },
		{ 19, EWMA, 65536, 1000, 4096, 4096, 8128 },
		{ 20, EWMA, 65536, 1000, 8128, 8128, 16320 },
		{ 21, EWMA, 65536, 1000, 16384, 16384, 32704 },
		{ 22, EWMA, 65536, 1000, 32768, 32768, 65536 },
		{ 23, EWMA, 65536, 1000, 65535, 65535, 65536 },
		{ 24, EWMA, 65536, 1000, 65536, 65536, 65536 },
		{ 25, EWMA, 1 << 20, 1000, 65536, 65536, 131008 },
		/* Data and credit updates in turn. */
		{ 26, EWMA, 65536, 1000, 65536, 0, 65536 },
		{ 27, EWMA, 65536, 1000, 15000, 0, 16320 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rf_rx_size size;

		rf_rx_size_init(&size, rows[i].rule, rows[i].largest);
		packets(&size, rows[i].n, rows[i].a, rows[i].b);
		if (rf_rx_size_next(&size) != rows[i].wanted)
			fail_msg("row %d: %u", rows[i].row, rf_rx_size_next(&size));
	}
}

/* One packet that fills a small buffer is enough. */
static void grows_at_once(void **state)
{
	struct rf_rx_size size;

	(void)state;
	rf_rx_size_init(&size, EWMA, 65536);
	packets(&size, 1000, 1, 1);
	assert_int_equal(rf_rx_size_next(&size), 4032);
	rf_rx_size_came(&size, 4031, 4032);
	assert_int_equal(rf_rx_size_next(&size), 4032);
	rf_rx_size_came(&size, 4032, 4032);
	assert_int_equal(rf_rx_size_next(&size), 65536);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chosen),
		cmocka_unit_test(grows_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
