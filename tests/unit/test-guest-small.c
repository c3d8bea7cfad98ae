/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Small sends that share a packet while the back end is behind: guest/small.c.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "guest_rig.h"
#include "pattern.h"

#define WINDOW (1u << 20)

/* A guest with one connection whose back end holds the transmit ring. */
struct bench {
	struct rig rig;
	struct rig_conn c;
	uint64_t sent, seen;
};

static void bench_open(struct bench *bench, const char *tune, uint32_t window)
{
	const struct rig_options options = { .tune = tune };

	*bench = (struct bench){ 0 };
	rig_open(&bench->rig, &options);
	bench->c = rig_connect(&bench->rig, 1, window);
	fake_ignore_questions(bench->rig.fake);
}

static int try_send(struct bench *bench, size_t len)
{
	static uint8_t bytes[65536];
	ssize_t n;

	pattern_fill(bytes, bench->sent, len);
	n = rf_send(bench->rig.guest, bench->c.sock, bytes, len, RF_MSG_DONTWAIT);
	if (n > 0)
		bench->sent += (uint64_t)n;
	return (int)n;
}

static void send_len(struct bench *bench, size_t len)
{
	assert_int_equal(try_send(bench, len), len);
}

/*
 * From now on the back end is behind: the first packet is on the ring, and is not used. Where the
 * guest's thread puts it there, it is counted just before it can be seen.
 */
static void fall_behind(struct bench *bench)
{
	uint64_t packets = rig_counter(&bench->rig, "tx_packets");

	fake_hold_tx(bench->rig.fake, true);
	send_len(bench, 1);
	if (rig_counter(&bench->rig, "tx_packets") > packets)
		return;
	rig_wait_counter(&bench->rig, "tx_packets", packets + 1);
	usleep(20000);
}

/* The next packet: data that comes after what came so far. Return: its length. */
static uint32_t see_packet(struct bench *bench)
{
	static uint8_t payload[65536];
	struct rf_vsock_hdr hdr;

	fake_next(bench->rig.fake, &hdr, payload);
	assert_int_equal(hdr.op, VIRTIO_VSOCK_OP_RW);
	assert_int_equal(pattern_check(payload, bench->seen, hdr.len), hdr.len);
	bench->seen += hdr.len;
	return hdr.len;
}

static void see_all(struct bench *bench)
{
	while (bench->seen < bench->sent)
		see_packet(bench);
}

/* Send @n times @len bytes to a back end that is behind, and let it go on: which packets come? */
static const struct {
	const char *tune;
	unsigned len, n;
	uint32_t packets[6];
} rows[] = {
	{ "join=on", 7, 10, { 1, 70 } },
	{ "join=off", 7, 3, { 1, 7, 7, 7 } },
	{ "join=on", 4096, 5, { 1, 16384, 4096 } },
	/* What would make it too large begins the next. */
	{ "join=on", 4000, 5, { 1, 16000, 4000 } },
	{ "join=on,max-packet=4k", 1000, 9, { 1, 4000, 4000, 1000 } },
	{ "join=on,max-packet=4k", 4096, 2, { 1, 4096, 4096 } },
	/* No small sends. */
	{ "join=on", 4097, 2, { 1, 4097, 4097 } },
	{ "join=on,direct-tx=off", 7, 10, { 1, 70 } },
};

static void table(void **state)
{
	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint64_t bytes = 0;
		struct bench bench;

		print_message("# row %u\n", i);
		bench_open(&bench, rows[i].tune, WINDOW);
		fall_behind(&bench);
		for (unsigned n = 0; n < rows[i].n; n++)
			send_len(&bench, rows[i].len);
		assert_int_equal(rig_option(&bench.rig, bench.c.sock, RF_SO_OUTQ), bench.sent);
		fake_hold_tx(bench.rig.fake, false);
		for (unsigned p = 0; rows[i].packets[p]; p++) {
			assert_int_equal(see_packet(&bench), rows[i].packets[p]);
			bytes += rows[i].packets[p];
		}
		assert_int_equal(bytes, bench.sent);
		fake_expect_none(bench.rig.fake, 5);
		rig_end(&bench.rig, &bench.c);
		rig_close(&bench.rig);
	}
}

/* A back end that has nothing to do gets each packet at once. */
static void idle_back_end(void **state)
{
	struct bench bench;

	(void)state;
	bench_open(&bench, "join=on", WINDOW);
	for (unsigned i = 0; i < 20; i++) {
		send_len(&bench, 100);
		assert_int_equal(see_packet(&bench), 100);
		/* It has the packet; it may not have said so yet. */
		usleep(1000);
	}
	assert_int_equal(rig_counter(&bench.rig, "tx_joined"), 0);
	rig_end(&bench.rig, &bench.c);
	rig_close(&bench.rig);
}

/* Nobody sends any more: the guest's thread lets the packet go when the back end has caught up. */
static void last_bytes_leave(void **state)
{
	struct bench bench;

	(void)state;
	bench_open(&bench, "join=on", WINDOW);
	for (unsigned i = 0; i < 50; i++) {
		fall_behind(&bench);
		send_len(&bench, 10);
		send_len(&bench, 20);
		fake_hold_tx(bench.rig.fake, false);
		assert_int_equal(see_packet(&bench), 1);
		assert_int_equal(see_packet(&bench), 30);
		assert_int_equal(rig_counter(&bench.rig, "tx_joined"), i + 1);
		usleep(1000);
	}
	rig_end(&bench.rig, &bench.c);
	rig_close(&bench.rig);
}

/* Larger sends, and the end of the stream, stay behind the open packet. */
static void order(void **state)
{
	struct bench bench;

	(void)state;
	bench_open(&bench, "join=on", WINDOW);
	fall_behind(&bench);
	send_len(&bench, 10);
	send_len(&bench, 20);
	send_len(&bench, 50000);
	send_len(&bench, 30);
	assert_int_equal(rf_shutdown(bench.rig.guest, bench.c.sock, RF_SHUT_WR), 0);
	fake_hold_tx(bench.rig.fake, false);
	assert_int_equal(see_packet(&bench), 1);
	assert_int_equal(see_packet(&bench), 30);
	assert_int_equal(see_packet(&bench), 50000);
	assert_int_equal(see_packet(&bench), 30);
	assert_int_equal(fake_expect(bench.rig.fake, VIRTIO_VSOCK_OP_SHUTDOWN).flags,
			 VIRTIO_VSOCK_SHUTDOWN_SEND);
	rig_end(&bench.rig, &bench.c);
	rig_close(&bench.rig);
}

/* The last bytes that the peer has room for do not wait: without them it gives no more. */
static void credit_used_up(void **state)
{
	struct bench bench;
	uint64_t packets;

	(void)state;
	bench_open(&bench, "join=on", 4096);
	fall_behind(&bench);
	packets = rig_counter(&bench.rig, "tx_packets");
	send_len(&bench, 95);
	assert_int_equal(rig_counter(&bench.rig, "tx_packets"), packets);
	while (bench.sent < 4096 && try_send(&bench, 100) > 0)
		;
	assert_true(rig_counter(&bench.rig, "tx_packets") > packets);
	assert_int_equal(try_send(&bench, 100), -EAGAIN);
	fake_hold_tx(bench.rig.fake, false);
	see_all(&bench);
	rig_end(&bench.rig, &bench.c);
	rig_close(&bench.rig);
}

/* Closed with a packet open: its bytes were accepted, and come. */
static void closed(void **state)
{
	struct bench bench;

	(void)state;
	bench_open(&bench, "join=on", WINDOW);
	fall_behind(&bench);
	send_len(&bench, 10);
	send_len(&bench, 20);
	assert_int_equal(rf_close(bench.rig.guest, bench.c.sock), 0);
	fake_hold_tx(bench.rig.fake, false);
	see_all(&bench);
	fake_expect(bench.rig.fake, VIRTIO_VSOCK_OP_SHUTDOWN);
	rig_send_op(&bench.rig, &bench.c, VIRTIO_VSOCK_OP_RST, 0);
	rig_close(&bench.rig);
}

/*
 * The connection or the back end ends: the open packet's slot is free again, as often as one
 * likes.
 */
static void ends_with_open_packets(void **state)
{
	struct bench bench;

	(void)state;
	bench_open(&bench, "join=on", WINDOW);
	for (unsigned i = 0; i < 500; i++) {
		struct rig_conn c = rig_connect(&bench.rig, 2 + i, WINDOW);

		fake_hold_tx(bench.rig.fake, true);
		for (unsigned n = 0; n < 3; n++)
			assert_int_equal(rf_send(bench.rig.guest, c.sock, "abc", 3, 0), 3);
		rig_send_op(&bench.rig, &c, VIRTIO_VSOCK_OP_RST, 0);
		rig_poll(&bench.rig, c.sock, RF_POLLHUP);
		assert_int_equal(rf_close(bench.rig.guest, c.sock), 0);
		fake_hold_tx(bench.rig.fake, false);
		fake_expect(bench.rig.fake, VIRTIO_VSOCK_OP_RW);
		fake_forget(bench.rig.fake);
	}
	fall_behind(&bench);
	send_len(&bench, 10);
	fake_hang_up(bench.rig.fake);
	rig_poll(&bench.rig, bench.c.sock, RF_POLLERR);
	assert_int_equal(rf_close(bench.rig.guest, bench.c.sock), 0);
	fake_hold_tx(bench.rig.fake, false);
	rig_close(&bench.rig);
}

struct sender {
	struct rf_guest *guest;
	int sock;
	ssize_t result;
	pthread_t thread;
};

static void *send_large(void *arg)
{
	static const uint8_t large[5000];
	struct sender *s = arg;

	s->result = rf_send(s->guest, s->sock, large, sizeof(large), 0);
	return NULL;
}

/* All slots are open packets, and their own sockets wait for another one. */
static void who_waits_keeps_no_slot(void **state)
{
	const struct rig_options options = { .tune = "join=on", .queue_size = 2 };
	struct sender senders[2];
	struct rig_conn other;
	struct rig rig;

	(void)state;
	rig_open(&rig, &options);
	other = rig_connect(&rig, 9, WINDOW);
	for (unsigned i = 0; i < 2; i++)
		senders[i] = (struct sender){ rig.guest, rig_connect(&rig, i, WINDOW).sock, 0, 0 };
	fake_hold_tx(rig.fake, true);
	/* Something is on the ring, so that the back end is behind. */
	assert_int_equal(rf_shutdown(rig.guest, other.sock, RF_SHUT_WR), 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(rf_send(rig.guest, senders[i].sock, "abc", 3, 0), 3);
	for (unsigned i = 0; i < 2; i++)
		pthread_create(&senders[i].thread, NULL, send_large, &senders[i]);
	rig_wait_counter(&rig, "tx_waits", 1);
	usleep(5000);
	fake_hold_tx(rig.fake, false);
	for (unsigned i = 0; i < 2; i++) {
		pthread_join(senders[i].thread, NULL);
		assert_int_equal(senders[i].result, 5000);
	}
	fake_expect(rig.fake, VIRTIO_VSOCK_OP_SHUTDOWN);
	for (unsigned bytes = 0; bytes < 2 * 5003;)
		bytes += fake_expect(rig.fake, VIRTIO_VSOCK_OP_RW).len;
	rig_close(&rig);
}

/* An open packet waits for what was before it on the ring, not for what others send after it. */
static void others_go_on(void **state)
{
	struct rig_conn other;
	struct bench bench;
	struct sender s;
	uint64_t packets;

	(void)state;
	bench_open(&bench, "join=on", WINDOW);
	other = rig_connect(&bench.rig, 2, WINDOW);
	s = (struct sender){ bench.rig.guest, other.sock, 0, 0 };
	fake_hold_tx(bench.rig.fake, true);
	send_large(&s);
	send_len(&bench, 10);
	for (unsigned i = 0; i < 20; i++)
		send_large(&s);
	packets = rig_counter(&bench.rig, "tx_packets");
	fake_take_one(bench.rig.fake);
	rig_wait_counter(&bench.rig, "tx_packets", packets + 1);
	fake_hold_tx(bench.rig.fake, false);
	for (unsigned i = 0; i < 22; i++)
		fake_expect(bench.rig.fake, VIRTIO_VSOCK_OP_RW);
	rig_end(&bench.rig, &other);
	rig_end(&bench.rig, &bench.c);
	rig_close(&bench.rig);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(table),
		cmocka_unit_test(idle_back_end),
		cmocka_unit_test(last_bytes_leave),
		cmocka_unit_test(order),
		cmocka_unit_test(credit_used_up),
		cmocka_unit_test(closed),
		cmocka_unit_test(ends_with_open_packets),
		cmocka_unit_test(who_waits_keeps_no_slot),
		cmocka_unit_test(others_go_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
