/* SPDX-License-Identifier: BSD-3-Clause */
#include "vsock/credit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/util.h"
#include "vsock/limits.h"

#define BATCHED RF_VSOCK_TELL_BATCHED
#define EAGER   RF_VSOCK_TELL_EAGER
#define LINUX   RF_VSOCK_TELL_LINUX

/*
 * What a header of the peer does to the credit. Before it: @tx_cnt bytes were sent, of which the
 * peer has consumed up to @fwd_cnt; it can hold @buf_alloc.
 */
static const struct peer_row {
	const char *what;
	uint32_t limit, tx_cnt, fwd_cnt, buf_alloc;
	uint32_t new_buf_alloc, new_fwd_cnt;
	bool more;
	uint32_t space, in_flight;
} peer_rows[] = {
	/* 0 */ { "first header", 1000, 0, 0, 0, 500, 0, true, 500, 0 },
	/* 1 */ { "all in flight", 1000, 500, 0, 500, 500, 0, false, 0, 500 },
	/* 2 */ { "some consumed", 1000, 500, 0, 500, 500, 200, true, 200, 300 },
	/* 3 */ { "all consumed", 1000, 500, 0, 500, 500, 500, true, 500, 0 },
	/* 4 */ { "nothing new", 1000, 500, 200, 500, 500, 200, false, 200, 300 },
	/* 5 */ { "larger buffer", 1000, 500, 0, 500, 600, 0, true, 100, 500 },
	/* 6 */
	{ "CVE-2026-23069: shrunk below what is in flight", 1000, 500, 0, 500, 100, 0, false, 0,
	  500 },
	/* 7 */ { "CVE-2026-23069: shrunk to nothing", 1000, 1, 0, 500, 0, 0, false, 0, 1 },
	/* 8 */
	{ "CVE-2026-23069: and caught up, resumes", 1000, 500, 0, 100, 100, 450, true, 50, 50 },
	/* 9 */
	{ "CVE-2026-23069: shrunk, caught up to the edge", 1000, 500, 0, 100, 100, 400, false, 0,
	  100 },
	/* 10 */ { "CVE-2026-23086: 4 GiB offered", 1000, 0, 0, 0, UINT32_MAX, 0, true, 1000, 0 },
	/* 11 */
	{ "CVE-2026-23086: and not read", 1000, 1000, 0, UINT32_MAX, UINT32_MAX, 0, false, 0,
	  1000 },
	/* 12 */
	{ "above the limit a larger buffer is no credit", 1000, 400, 0, 1000, 2000, 0, false, 600,
	  400 },
	/* 13 */ { "older count", 1000, 500, 300, 500, 500, 200, false, 300, 200 },
	/* 14 */ { "older count with a new buffer", 1000, 500, 300, 500, 600, 200, true, 400, 200 },
	/* 15 */ { "more than was sent", 1000, 500, 300, 500, 500, 501, false, 300, 200 },
	/* 16 */
	{ "2^31 more than was sent", 1000, 500, 300, 500, 500, 500 + (1u << 31), false, 300, 200 },
	/* 17 */ { "peer starts at a count that is not 0", 1000, 0, 0, 0, 500, 7, true, 500, 0 },
	/* 18: tgoskits#1724 */
	{ "wrap: sent behind 2^32, consumed before it", 1000, 100, UINT32_MAX - 99, 500, 500,
	  UINT32_MAX - 49, true, 350, 150 },
	/* 19 */
	{ "wrap: consumed behind 2^32", 1000, 100, UINT32_MAX - 99, 500, 500, 50, true, 450, 50 },
	/* 20 */ { "wrap: older count", 1000, 100, 0, 500, 500, UINT32_MAX, false, 400, 100 },
	/* 21 */
	{ "wrap: more than was sent", 1000, UINT32_MAX, UINT32_MAX - 10, 500, 500, 0, false, 490,
	  10 },
};

static void test_peer(void **state RF_UNUSED)
{
	for (size_t i = 0; i < RF_ARRAY_SIZE(peer_rows); i++) {
		const struct peer_row *row = &peer_rows[i];
		struct rf_vsock_credit credit;
		uint32_t space;

		print_message("# row %zu: %s\n", i, row->what);
		rf_vsock_credit_init(&credit, 1000, row->limit, BATCHED);
		credit.tx_cnt = row->tx_cnt;
		credit.peer_fwd_cnt = row->fwd_cnt;
		credit.peer_buf_alloc = row->buf_alloc;
		space = rf_vsock_credit_space(&credit);
		rf_vsock_credit_peer(&credit, row->new_buf_alloc, row->new_fwd_cnt);
		assert_int_equal(rf_vsock_credit_space(&credit) > space, row->more);
		assert_int_equal(rf_vsock_credit_space(&credit), row->space);
		assert_int_equal(rf_vsock_credit_in_flight(&credit), row->in_flight);
		assert_int_equal(credit.peer_buf_alloc, row->new_buf_alloc);
		rf_vsock_credit_sent(&credit, row->space);
		assert_int_equal(rf_vsock_credit_space(&credit), 0);
		assert_int_equal(rf_vsock_credit_in_flight(&credit), row->in_flight + row->space);
	}
}

/* Payload of @len arrives while @rx_cnt - @fwd_cnt bytes are held, in a window of 1000. */
static const struct admit_row {
	const char *what;
	uint32_t rx_cnt, fwd_cnt, len;
	bool admitted;
} admit_rows[] = {
	/* 0 */ { "whole window", 0, 0, 1000, true },
	/* 1 */ { "more than the window", 0, 0, 1001, false },
	/* 2 */ { "2^32 - 1 bytes", 0, 0, UINT32_MAX, false },
	/* 3 */ { "rest of the window", 900, 0, 100, true },
	/* 4 */ { "one more", 900, 0, 101, false },
	/* 5 */ { "sum wraps", 900, 0, UINT32_MAX - 899, false },
	/* 6 */ { "full", 1000, 0, 1, false },
	/* 7 */ { "full, empty payload", 1000, 0, 0, true },
	/* 8 */ { "consumed", 5000, 4500, 500, true },
	/* 9 */ { "consumed, one more", 5000, 4500, 501, false },
	/* 10 */ { "wrap", 100, UINT32_MAX - 99, 800, true },
	/* 11 */ { "wrap, one more", 100, UINT32_MAX - 99, 801, false },
};

static void test_admit(void **state RF_UNUSED)
{
	for (size_t i = 0; i < RF_ARRAY_SIZE(admit_rows); i++) {
		const struct admit_row *row = &admit_rows[i];
		struct rf_vsock_credit credit;
		uint32_t held = row->rx_cnt - row->fwd_cnt;

		print_message("# row %zu: %s\n", i, row->what);
		rf_vsock_credit_init(&credit, 1000, 1000, BATCHED);
		credit.rx_cnt = row->rx_cnt;
		credit.fwd_cnt = row->fwd_cnt;
		assert_int_equal(rf_vsock_credit_held(&credit), held);
		assert_int_equal(rf_vsock_credit_admit(&credit, row->len), row->admitted);
		if (row->admitted)
			held += row->len;
		assert_int_equal(rf_vsock_credit_held(&credit), held);
		rf_vsock_credit_consumed(&credit, held);
		assert_int_equal(rf_vsock_credit_held(&credit), 0);
	}
}

/* The number of untold bytes at which the peer is to be told. */
static const struct update_row {
	const char *what;
	uint32_t window, peer_buf_alloc;
	enum rf_vsock_tell tell;
	uint32_t at;
} update_rows[] = {
	/* 0: vhost-device#317 had one for each byte */
	{ "a quarter of the window", 262144, 262144, BATCHED, 65536 },
	/* 1 */ { "peer's window is larger", 4096, 262144, BATCHED, 1024 },
	/* 2 */ { "rounded down", 4099, 4099, BATCHED, 1024 },
	/* 3 */ { "never 0", 3, 262144, BATCHED, 1 },
	/* 4 */ { "smallest window", 1, 262144, BATCHED, 1 },
	/* 5 */
	{ "largest window: senders of ours stop at 4 MiB", RF_VSOCK_WINDOW_MAX, RF_VSOCK_WINDOW_MAX,
	  BATCHED, 1048576 },
	/* 6: a Linux sender keeps no more in flight than its own buffer (CVE-2026-23086's fix) */
	{ "peer's window is smaller than ours", 262144, 4096, BATCHED, 1024 },
	/* 7 */ { "peer's window is tiny", 262144, 3, BATCHED, 1 },
	/* 8 */ { "peer has none", 262144, 0, BATCHED, 1 },
	/* 9 */ { "eager", 262144, 262144, EAGER, 1 },
	/* 10: less than 64 KiB is free then */
	{ "as Linux 6.1", 262144, 262144, LINUX, 196609 },
	/* 11 */ { "as Linux 6.1, whatever the peer's window is", 262144, 100, LINUX, 196609 },
	/* 12 */ { "as Linux 6.1, just 64 KiB", 65536, 262144, LINUX, 1 },
	/* 13 */ { "as Linux 6.1, less", 4096, 262144, LINUX, 1 },
};

static void test_update(void **state RF_UNUSED)
{
	for (size_t i = 0; i < RF_ARRAY_SIZE(update_rows); i++) {
		const struct update_row *row = &update_rows[i];
		struct rf_vsock_credit credit;

		print_message("# row %zu: %s\n", i, row->what);
		rf_vsock_credit_init(&credit, row->window, RF_VSOCK_WINDOW_MAX, row->tell);
		/* The counts wrap in between. */
		credit.rx_cnt = credit.fwd_cnt = credit.told_fwd_cnt = UINT32_MAX - row->at / 2;
		rf_vsock_credit_peer(&credit, row->peer_buf_alloc, 0);
		assert_true(rf_vsock_credit_admit(&credit, row->at));
		assert_false(rf_vsock_credit_due(&credit));
		assert_false(rf_vsock_credit_consumed(&credit, row->at - 1));
		assert_false(rf_vsock_credit_due(&credit));
		assert_true(rf_vsock_credit_consumed(&credit, 1));
		assert_true(rf_vsock_credit_due(&credit));
		credit.told_fwd_cnt = credit.fwd_cnt;
		assert_false(rf_vsock_credit_due(&credit));
	}
}

/* 5 GiB one way: the counts pass 2^32, credit stays honest all the time. */
static void test_wrap(void **state RF_UNUSED)
{
	struct rf_vsock_credit tx, rx;
	uint32_t untold = 0;

	rf_vsock_credit_init(&tx, 262144, RF_VSOCK_TX_LIMIT_DEFAULT, BATCHED);
	rf_vsock_credit_init(&rx, 262144, RF_VSOCK_TX_LIMIT_DEFAULT, BATCHED);
	rf_vsock_credit_peer(&rx, tx.buf_alloc, tx.fwd_cnt);
	rf_vsock_credit_peer(&tx, rx.buf_alloc, rx.fwd_cnt);
	for (uint64_t sent = 0; sent < UINT64_C(5) << 30;) {
		uint32_t len = rf_min_u32(rf_vsock_credit_space(&tx), 65535);

		assert_true(len > 0);
		rf_vsock_credit_sent(&tx, len);
		assert_true(rf_vsock_credit_admit(&rx, len));
		untold += len;
		sent += len;
		if (!rf_vsock_credit_consumed(&rx, len))
			continue;
		assert_true(untold >= 65536);
		untold = 0;
		rx.told_fwd_cnt = rx.fwd_cnt;
		rf_vsock_credit_peer(&tx, rx.buf_alloc, rx.fwd_cnt);
	}
	assert_int_equal(rf_vsock_credit_in_flight(&tx), untold);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_peer),
		cmocka_unit_test(test_admit),
		cmocka_unit_test(test_update),
		cmocka_unit_test(test_wrap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
