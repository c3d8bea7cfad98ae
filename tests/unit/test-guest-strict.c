/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets that wait to be read, counted as Linux of 2026 counts them: by a guest of ours, and by
 * a host that our guest sends to; and credit as Linux 6.1 tells it.
 */
#include "guest_rig.h"
#include "pattern.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"

#define WINDOW 262144u

/* What is held of packets that nobody reads, and what becomes of the next one. */
static const struct bound_row {
	const char *what;
	int bound;
	uint32_t len, held;
} bound_rows[] = {
	/* 0 */ { "libkrun#795, first form", RF_PACKETS_DROP, 450, 255 },
	/* 1 */ { "first form, large packets", RF_PACKETS_DROP, 60000, 4 },
	/* 2 */ { "libkrun#795, second form: 455 packets", RF_PACKETS_RESET, 450, 455 },
	/* 3 */ { "second form, one byte at a time", RF_PACKETS_RESET, 1, 455 },
	/* 4 */ { "first form, one byte at a time", RF_PACKETS_DROP, 1, 454 },
};

static uint32_t read_all(struct rig *rig, int sock, ssize_t *ret_last)
{
	static uint8_t buf[WINDOW];
	uint32_t got = 0;
	ssize_t n;

	while ((n = rf_recv(rig->guest, sock, buf, sizeof(buf), RF_MSG_DONTWAIT)) > 0)
		got += (uint32_t)n;
	*ret_last = n;
	return got;
}

static void guest_counts_packets(void **state RF_UNUSED)
{
	static const uint8_t bytes[60000];

	for (size_t i = 0; i < RF_ARRAY_SIZE(bound_rows); i++) {
		const struct bound_row *row = &bound_rows[i];
		const struct rig_options options = { .packet_bound = row->bound };
		struct rig_conn c;
		struct rig rig;
		ssize_t last;

		print_message("# row %zu: %s\n", i, row->what);
		rig_open(&rig, &options);
		c = rig_connect(&rig, 1234, WINDOW);
		for (uint32_t k = 0; k < row->held; k++)
			rig_send(&rig, &c, bytes, row->len);
		rig_wait_counter(&rig, "rx_packets", 1 + row->held);
		assert_int_equal(rig_counter(&rig, "rx_overflows"), 0);
		assert_int_equal(rig_option(&rig, c.sock, RF_SO_INQ), row->held * row->len);
		fake_forget(rig.fake);
		rig_send(&rig, &c, bytes, row->len);
		rig_wait_counter(&rig, "rx_overflows", 1);
		if (row->bound == RF_PACKETS_RESET) {
			/* Not silently (faults.md V6). */
			fake_expect(rig.fake, VIRTIO_VSOCK_OP_RST);
			assert_int_equal(read_all(&rig, c.sock, &last), row->held * row->len);
			assert_int_equal(last, -ENOBUFS);
		} else {
			/* It is lost, and the stream goes on. */
			assert_int_equal(read_all(&rig, c.sock, &last), row->held * row->len);
			assert_int_equal(last, -EAGAIN);
			rig_send(&rig, &c, bytes, 1);
			rig_wait_counter(&rig, "rx_packets", 3 + row->held);
			assert_int_equal(read_all(&rig, c.sock, &last), 1);
			assert_int_equal(rig_counter(&rig, "rx_overflows"), 1);
		}
		rig_close(&rig);
	}
}

/* A packet counts until its last byte was read, and so do its bytes. */
static void packet_counts_until_its_end(void **state RF_UNUSED)
{
	const struct rig_options options = { .packet_bound = RF_PACKETS_DROP,
					     .credit = RF_CREDIT_EAGER };
	static const uint8_t bytes[450];
	uint8_t buf[450];
	struct rig_conn c;
	struct rig rig;

	rig_open(&rig, &options);
	c = rig_connect(&rig, 1234, WINDOW);
	for (uint32_t k = 0; k < 255; k++)
		rig_send(&rig, &c, bytes, 450);
	rig_wait_counter(&rig, "rx_packets", 256);
	assert_int_equal(rf_recv(rig.guest, c.sock, buf, 449, 0), 449);
	fake_expect_none(rig.fake, 10);
	rig_send(&rig, &c, bytes, 450);
	rig_wait_counter(&rig, "rx_overflows", 1);
	assert_int_equal(rf_recv(rig.guest, c.sock, buf, 1, 0), 1);
	assert_int_equal(fake_expect(rig.fake, VIRTIO_VSOCK_OP_CREDIT_UPDATE).fwd_cnt, 450);
	rig_send(&rig, &c, bytes, 450);
	rig_wait_counter(&rig, "rx_packets", 258);
	assert_int_equal(rig_counter(&rig, "rx_overflows"), 1);
	rig_close(&rig);
}

/* As Linux 6.1: nothing is told while 64 KiB are free, unless it is asked for. */
static void guest_tells_as_linux(void **state RF_UNUSED)
{
	const struct rig_options options = { .credit = RF_CREDIT_LINUX };
	static uint8_t bytes[65536];
	struct rf_vsock_hdr hdr;
	struct rig_conn c;
	struct rig rig;
	ssize_t last;

	rig_open(&rig, &options);
	c = rig_connect(&rig, 1234, WINDOW);
	for (unsigned i = 0; i < 3; i++)
		rig_send(&rig, &c, bytes, sizeof(bytes));
	rig_wait_counter(&rig, "rx_packets", 4);
	assert_int_equal(read_all(&rig, c.sock, &last), 3 * sizeof(bytes));
	fake_expect_none(rig.fake, 20);
	rig_send_op(&rig, &c, VIRTIO_VSOCK_OP_CREDIT_REQUEST, 0);
	hdr = fake_expect(rig.fake, VIRTIO_VSOCK_OP_CREDIT_UPDATE);
	assert_int_equal(hdr.fwd_cnt, 3 * sizeof(bytes));
	assert_int_equal(rig_counter(&rig, "rx_credit_requests"), 1);
	fake_expect_none(rig.fake, 20);
	/* In all that was told since. */
	for (unsigned i = 0; i < 4; i++) {
		rig_send(&rig, &c, bytes, sizeof(bytes));
		rig_wait_counter(&rig, "rx_packets", 6 + i);
		assert_int_equal(read_all(&rig, c.sock, &last), sizeof(bytes));
		if (i == 3)
			fake_expect(rig.fake, VIRTIO_VSOCK_OP_CREDIT_UPDATE);
		fake_expect_none(rig.fake, 5);
	}
	rig_close(&rig);
}

/* faults.md V7: "iperf3 -l 129" failed at once; and sizes around it, to a host that counts, reads
 * slowly, and tells as Linux does. */
static void host_counts_packets(void **state RF_UNUSED)
{
	static const size_t sizes[] = { 64, 128, 129, 450, 512 };
	const struct rig_options options = { .fake = &fake_automatic };
	static uint8_t bytes[300000];
	const struct rf_sockaddr addr = { RF_CID_HOST, FAKE_SLOW };
	uint64_t all = 0;
	struct rig rig;

	pattern_fill(bytes, 0, sizeof(bytes));
	rig_open(&rig, &options);
	for (size_t i = 0; i < RF_ARRAY_SIZE(sizes); i++) {
		int sock = rf_socket(rig.guest, RF_SOCK_STREAM);
		size_t len, at;

		print_message("# row %zu: %zu\n", i, sizes[i]);
		assert_int_equal(rf_connect(rig.guest, sock, &addr), 0);
		for (at = 0; at < sizeof(bytes); at += len) {
			len = rf_min_size(sizes[i], sizeof(bytes) - at);
			assert_int_equal(rf_send(rig.guest, sock, bytes + at, len, 0), len);
		}
		all += sizeof(bytes);
		for (unsigned k = 0; k < 5000 && fake_slow_bytes(rig.fake) < all; k++)
			usleep(1000);
		assert_int_equal(fake_slow_bytes(rig.fake), all);
		assert_int_equal(fake_overflows(rig.fake), 0);
		assert_int_equal(rf_close(rig.guest, sock), 0);
	}
	assert_true(rig_counter(&rig, "tx_credit_requests") > 0);
	assert_true(rig_counter(&rig, "packet_waits") > 0);
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(guest_counts_packets),
		cmocka_unit_test(packet_counts_until_its_end),
		cmocka_unit_test(guest_tells_as_linux),
		cmocka_unit_test(host_counts_packets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
