/* SPDX-License-Identifier: BSD-3-Clause */
/* Sending and publishing: guest/stream_send.c, tx.c. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "guest_rig.h"
#include "pattern.h"

#define WINDOW 262144u

static uint8_t bytes[8u << 20];

static void fill_bytes(void)
{
	pattern_fill(bytes, 0, sizeof(bytes));
}

static ssize_t try_send(struct rig *rig, int sock, const void *buf, size_t len)
{
	return rf_send(rig->guest, sock, buf, len, RF_MSG_DONTWAIT);
}

/* Take data packets of that many bytes in all, which must be bytes[at] onwards. */
static unsigned expect_bytes(struct rig *rig, size_t at, size_t len)
{
	static uint8_t payload[RF_VSOCK_HDR_BYTES + 65536];
	unsigned n = 0;

	while (len) {
		struct rf_vsock_hdr hdr;

		fake_next(rig->fake, &hdr, payload);
		assert_int_equal(hdr.op, VIRTIO_VSOCK_OP_RW);
		assert_in_range(hdr.len, 1, rf_min_size(len, 65536));
		assert_memory_equal(payload, bytes + at, hdr.len);
		at += hdr.len;
		len -= hdr.len;
		n++;
	}
	return n;
}

/* The host has consumed so many bytes and has so much room. */
static void give_credit(struct rig *rig, const struct rig_conn *c, uint16_t op, uint32_t fwd_cnt,
			uint32_t buf_alloc)
{
	struct rf_vsock_hdr hdr = c->host;

	hdr.op = op;
	hdr.fwd_cnt = fwd_cnt;
	hdr.buf_alloc = buf_alloc;
	fake_send(rig->fake, &hdr, NULL);
}

struct sender {
	struct rig *rig;
	int sock;
	size_t at, len;
	pthread_t thread;
	ssize_t result;
};

static void *sender_run(void *arg)
{
	struct sender *s = arg;

	s->result = rf_send(s->rig->guest, s->sock, bytes + s->at, s->len, 0);
	return NULL;
}

static void sender_start(struct sender *s, struct rig *rig, int sock, size_t at, size_t len)
{
	*s = (struct sender){ .rig = rig, .sock = sock, .at = at, .len = len };
	assert_int_equal(pthread_create(&s->thread, NULL, sender_run, s), 0);
}

static ssize_t sender_end(struct sender *s)
{
	pthread_join(s->thread, NULL);
	return s->result;
}

static void sends_packets(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, WINDOW);
	struct rf_vsock_hdr hdr;

	assert_int_equal(rf_send(rig->guest, c.sock, bytes, 5, 0), 5);
	fake_next(rig->fake, &hdr, NULL);
	assert_int_equal(hdr.len, 5);
	assert_int_equal(hdr.src_port, c.host.dst_port);
	assert_int_equal(hdr.dst_port, 1234);
	assert_int_equal(hdr.flags, 0);
	assert_int_equal(hdr.buf_alloc, 262144);
	assert_int_equal(rig_option(rig, c.sock, RF_SO_OUTQ), 5);
	/* At most 64 KiB in a packet. */
	assert_int_equal(rf_send(rig->guest, c.sock, bytes, 200000, 0), 200000);
	assert_int_equal(expect_bytes(rig, 0, 200000), 4);
	give_credit(rig, &c, VIRTIO_VSOCK_OP_CREDIT_UPDATE, 200005, WINDOW);
	rig_wait_counter(rig, "rx_packets", 2);
	assert_int_equal(rig_option(rig, c.sock, RF_SO_OUTQ), 0);
	assert_int_equal(rf_send(rig->guest, c.sock, bytes, 0, 0), 0);
	rig_end(rig, &c);
}

static void window_is_kept(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, 100000);
	struct sender s;

	/* Whoever waits with a part of the window left asks. */
	fake_ignore_questions(rig->fake);
	/* Two packets cost a part of it. */
	assert_int_equal(try_send(rig, c.sock, bytes, sizeof(bytes)), 98720);
	assert_int_equal(try_send(rig, c.sock, bytes, 1), -EAGAIN);
	expect_bytes(rig, 0, 98720);
	sender_start(&s, rig, c.sock, 98720, 150000);
	fake_expect_none(rig->fake, 10);
	give_credit(rig, &c, VIRTIO_VSOCK_OP_CREDIT_UPDATE, 60000, 100000);
	expect_bytes(rig, 98720, 59360);
	fake_expect_none(rig->fake, 10);
	/* tgoskits #1724: the credit may come with any operation. */
	give_credit(rig, &c, VIRTIO_VSOCK_OP_CREDIT_REQUEST, 158080, 100000);
	fake_expect(rig->fake, VIRTIO_VSOCK_OP_CREDIT_UPDATE);
	expect_bytes(rig, 158080, 90640);
	assert_int_equal(sender_end(&s), 150000);
}

/* hermit PR 2254: a window of 0 in RESPONSE; bytes go when there is some. */
static void no_window_at_first(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, 0);

	assert_int_equal(try_send(rig, c.sock, bytes, 10), -EAGAIN);
	give_credit(rig, &c, VIRTIO_VSOCK_OP_CREDIT_UPDATE, 0, 4);
	assert_int_equal(rig_poll(rig, c.sock, RF_POLLOUT), RF_POLLOUT);
	assert_int_equal(try_send(rig, c.sock, bytes, 10), 4);
}

/* CVE-2026-23069: a peer that shrinks its buffer below what is under way. */
static void window_that_shrinks(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, 50000);

	assert_int_equal(try_send(rig, c.sock, bytes, 40000), 40000);
	expect_bytes(rig, 0, 40000);
	give_credit(rig, &c, VIRTIO_VSOCK_OP_CREDIT_UPDATE, 0, 1000);
	rig_wait_counter(rig, "rx_packets", 2);
	assert_int_equal(try_send(rig, c.sock, bytes, 10), -EAGAIN);
	give_credit(rig, &c, VIRTIO_VSOCK_OP_CREDIT_UPDATE, 39500, 1000);
	assert_int_equal(try_send(rig, c.sock, bytes, 10), -EAGAIN);
	give_credit(rig, &c, VIRTIO_VSOCK_OP_CREDIT_UPDATE, 40000, 1000);
	assert_int_equal(rig_poll(rig, c.sock, RF_POLLOUT), RF_POLLOUT);
	assert_int_equal(try_send(rig, c.sock, bytes, 1000), 360);
}

/* CVE-2026-23086: a peer that offers 4 GiB and does not read. */
static void huge_window_is_cut(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, UINT32_MAX);

	/* 64 packets, and what they cost. */
	assert_int_equal(rf_send(rig->guest, c.sock, bytes, sizeof(bytes), RF_MSG_DONTWAIT),
			 (4u << 20) - 64 * 640);
	assert_int_equal(try_send(rig, c.sock, bytes, 1), -EAGAIN);
}

/* Nobody takes packets: data waits, and neither spins nor is lost. */
static void ring_without_room(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, UINT32_MAX);
	unsigned sent = 0;
	struct sender s;

	fake_hold_tx(rig->fake, true);
	while (try_send(rig, c.sock, bytes + sent, 1) == 1)
		sent++;
	/* 256 entries, an eighth of them for control packets; twice as many slots as the rest. */
	assert_int_equal(sent, 2 * 224);
	assert_int_equal(rf_poll(rig->guest, &(struct rf_pollfd){ c.sock, RF_POLLOUT, 0 }, 1, 0),
			 0);
	sender_start(&s, rig, c.sock, sent, 70000);
	usleep(10000);
	fake_hold_tx(rig->fake, false);
	assert_int_equal(sender_end(&s), 70000);
	expect_bytes(rig, 0, sent + 70000);
	assert_int_equal(rig_poll(rig, c.sock, RF_POLLOUT), RF_POLLOUT);
	assert_true(rig_counter(rig, "tx_waits") >= 2);
}

/* Data that fills the ring does not keep control packets from it. */
static void control_passes_data(void **state)
{
	struct rig *rig = *state;
	struct rig_conn a = rig_connect(rig, 1, UINT32_MAX), b = rig_connect(rig, 2, WINDOW);
	uint64_t packets;

	fake_hold_tx(rig->fake, true);
	while (try_send(rig, a.sock, bytes, 1) == 1)
		;
	packets = rig_counter(rig, "tx_packets");
	assert_int_equal(rf_shutdown(rig->guest, b.sock, RF_SHUT_WR), 0);
	assert_int_equal(rig_counter(rig, "tx_packets"), packets + 1);
	fake_hold_tx(rig->fake, false);
}

/* No room even for control packets (ring of 2: one entry): they stay owed, in order. */
static void control_waits_its_turn(void **state)
{
	const struct rig_options options = { .queue_size = 2 };
	struct rf_sockaddr addr = { RF_CID_HOST, 1 };
	unsigned requests = 0, data = 0, shutdowns = 0;
	struct rf_vsock_hdr hdr;
	struct rig_conn c;
	struct rig rig;
	int sock[3];

	(void)state;
	rig_open(&rig, &options);
	c = rig_connect(&rig, 1234, WINDOW);
	fake_hold_tx(rig.fake, true);
	for (unsigned i = 0; i < 3; i++) {
		sock[i] = rf_socket(rig.guest, RF_SOCK_STREAM | RF_SOCK_NONBLOCK);
		assert_int_equal(rf_connect(rig.guest, sock[i], &addr), -EINPROGRESS);
	}
	/* One on the ring, one queued. */
	assert_int_equal(try_send(&rig, c.sock, bytes, 5), 5);
	assert_int_equal(try_send(&rig, c.sock, bytes, 6), 6);
	assert_int_equal(try_send(&rig, c.sock, bytes, 5), -EAGAIN);
	assert_int_equal(rf_close(rig.guest, c.sock), 0);
	/* Never heard of: nothing to say. */
	assert_int_equal(rf_close(rig.guest, sock[2]), 0);
	fake_hold_tx(rig.fake, false);
	fake_expect(rig.fake, VIRTIO_VSOCK_OP_REQUEST);
	assert_int_equal(fake_expect(rig.fake, VIRTIO_VSOCK_OP_RW).len, 5);
	for (unsigned i = 0; i < 3; i++) {
		fake_next(rig.fake, &hdr, NULL);
		requests += hdr.op == VIRTIO_VSOCK_OP_REQUEST;
		data += hdr.op == VIRTIO_VSOCK_OP_RW && hdr.len == 6;
		/* Data before the end. */
		shutdowns += hdr.op == VIRTIO_VSOCK_OP_SHUTDOWN && data;
	}
	assert_true(requests == 1 && data == 1 && shutdowns == 1);
	fake_expect_none(rig.fake, 20);
	rig_close(&rig);
}

/* A sender that takes each entry as soon as it is free does not keep others from the ring. */
static void who_waits_comes_first(void **state)
{
	const struct rig_options options = { .queue_size = 4 };
	struct rig_conn a, b;
	struct sender s;
	struct rig rig;
	unsigned rounds = 0;

	(void)state;
	rig_open(&rig, &options);
	a = rig_connect(&rig, 1, UINT32_MAX);
	b = rig_connect(&rig, 2, UINT32_MAX);
	fake_hold_tx(rig.fake, true);
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(try_send(&rig, a.sock, bytes, 1), 1);
	sender_start(&s, &rig, b.sock, 0, 1);
	rig_wait_counter(&rig, "tx_waits", 1);
	while (rig_option(&rig, b.sock, RF_SO_OUTQ) == 0 && rounds++ < 200) {
		fake_take_one(rig.fake);
		try_send(&rig, a.sock, bytes, 1);
		usleep(1000);
	}
	assert_in_range(rounds, 1, 100);
	fake_hold_tx(rig.fake, false);
	assert_int_equal(sender_end(&s), 1);
	rig_close(&rig);
}

/* A slot that somebody else took back from the ring is for who waits: no notification tells of it.
 */
static void who_waits_hears_of_any_slot(void **state)
{
	const struct rig_options options = { .queue_size = 16 };
	struct rig_conn a, b;
	struct sender s;
	struct rig rig;

	(void)state;
	rig_open(&rig, &options);
	a = rig_connect(&rig, 1, UINT32_MAX);
	b = rig_connect(&rig, 2, UINT32_MAX);
	fake_hold_tx(rig.fake, true);
	for (unsigned i = 0; i < 28; i++)
		assert_int_equal(try_send(&rig, a.sock, bytes, 1), 1);
	sender_start(&s, &rig, b.sock, 0, 1);
	rig_wait_counter(&rig, "tx_waits", 1);
	/* One of 14 on the ring: the notification is for half of them. The control packet takes it
	   back. */
	fake_take_one(rig.fake);
	usleep(5000);
	assert_int_equal(rig_option(&rig, b.sock, RF_SO_OUTQ), 0);
	assert_int_equal(rf_shutdown(rig.guest, a.sock, RF_SHUT_WR), 0);
	assert_int_equal(sender_end(&s), 1);
	fake_hold_tx(rig.fake, false);
	rig_close(&rig);
}

/* Answers that find no room stop further taking; none is lost, and they do not pile up. */
static void resets_that_find_no_room(void **state)
{
	const struct rig_options options = { .queue_size = 4 };
	struct rig rig;
	uint64_t taken;
	clock_t cpu;

	(void)state;
	rig_open(&rig, &options);
	fake_hold_tx(rig.fake, true);
	/* 1 on the ring, 64 owed, 3 in the receive ring. */
	for (uint32_t i = 0; i < 68; i++) {
		struct rf_vsock_hdr hdr = fake_hdr(VIRTIO_VSOCK_OP_RW, i, 99);

		fake_send(rig.fake, &hdr, NULL);
	}
	rig_wait_counter(&rig, "rx_packets", 65);
	cpu = clock();
	usleep(100000);
	/* Waiting, and not trying again and again. */
	assert_true(clock() - cpu < CLOCKS_PER_SEC / 20);
	taken = rig_counter(&rig, "rx_packets");
	assert_int_equal(taken, 65);
	fake_hold_tx(rig.fake, false);
	for (uint32_t i = 0; i < 68; i++)
		assert_int_equal(fake_expect(rig.fake, VIRTIO_VSOCK_OP_RST).dst_port, i);
	rig_close(&rig);
}

static void senders_that_block_end(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1, 10);
	struct sender s;

	sender_start(&s, rig, c.sock, 0, 100);
	expect_bytes(rig, 0, 10);
	rig_send_op(rig, &c, VIRTIO_VSOCK_OP_RST, 0);
	/* Some went out: the error comes with the next call. */
	assert_int_equal(sender_end(&s), 10);
	assert_int_equal(try_send(rig, c.sock, bytes, 1), -ECONNRESET);
	assert_int_equal(try_send(rig, c.sock, bytes, 1), -EPIPE);

	c = rig_connect(rig, 2, 0);
	sender_start(&s, rig, c.sock, 0, 100);
	usleep(5000);
	assert_int_equal(rf_close(rig->guest, c.sock), 0);
	assert_int_equal(sender_end(&s), -EBADF);
	fake_expect(rig->fake, VIRTIO_VSOCK_OP_SHUTDOWN);

	c = rig_connect(rig, 3, 0);
	sender_start(&s, rig, c.sock, 0, 100);
	usleep(5000);
	assert_int_equal(rf_shutdown(rig->guest, c.sock, RF_SHUT_WR), 0);
	assert_int_equal(sender_end(&s), -EPIPE);
	fake_expect(rig->fake, VIRTIO_VSOCK_OP_SHUTDOWN);

	c = rig_connect(rig, 4, 0);
	sender_start(&s, rig, c.sock, 0, 100);
	usleep(5000);
	/* The peer reads no more, but may write: only sending is over. */
	rig_send_op(rig, &c, VIRTIO_VSOCK_OP_SHUTDOWN, RF_VSOCK_SHUT_RCV);
	assert_int_equal(sender_end(&s), -EPIPE);
	rig_send(rig, &c, "x", 1);
	assert_int_equal(rf_recv(rig->guest, c.sock, bytes, 1, 0), 1);
	fill_bytes();
}

/* A ring without room ends with the device, too. */
static void ring_without_room_and_hang_up(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1, UINT32_MAX);
	struct sender s;

	fake_hold_tx(rig->fake, true);
	sender_start(&s, rig, c.sock, 0, sizeof(bytes));
	rig_wait_counter(rig, "tx_packets", 10);
	usleep(5000);
	fake_hang_up(rig->fake);
	assert_in_range(sender_end(&s), 1, sizeof(bytes) - 1);
	assert_int_equal(try_send(rig, c.sock, bytes, 1), -ECONNRESET);
	fake_hold_tx(rig->fake, false);
}

/* Several threads on one socket: all bytes arrive. */
static void threads_share_a_socket(void **state)
{
	struct rig rig;
	const struct rig_options options = { .fake = &fake_automatic };
	struct rf_sockaddr addr = { RF_CID_HOST, FAKE_ECHO };
	struct sender senders[4];
	size_t got = 0;
	ssize_t n;
	int sock;

	(void)state;
	rig_open(&rig, &options);
	sock = rf_socket(rig.guest, RF_SOCK_STREAM);
	assert_int_equal(rf_connect(rig.guest, sock, &addr), 0);
	for (unsigned i = 0; i < 4; i++)
		sender_start(&senders[i], &rig, sock, 0, 1000000);
	while (got < 4000000) {
		static uint8_t buf[300000];

		n = rf_recv(rig.guest, sock, buf, sizeof(buf), 0);
		assert_true(n > 0);
		got += (size_t)n;
	}
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(sender_end(&senders[i]), 1000000);
	assert_int_equal(got, 4000000);
	rig_close(&rig);
}

static void sending_that_is_not_allowed(void **state)
{
	struct rig *rig = *state;
	int sock = rf_socket(rig->guest, RF_SOCK_STREAM);

	assert_int_equal(rf_send(rig->guest, sock, bytes, 1, 0), -ENOTCONN);
	assert_int_equal(rf_send(rig->guest, sock, bytes, 0, 0), -ENOTCONN);
	assert_int_equal(rf_send(rig->guest, sock, bytes, 1, RF_MSG_PEEK), -EINVAL);
	assert_int_equal(rf_send(rig->guest, sock + 100, bytes, 1, 0), -EBADF);
	assert_int_equal(rf_send(rig->guest, rig_listen(rig, 3, 1), bytes, 1, 0), -ENOTCONN);
}

static void *closer_run(void *arg)
{
	const struct rig *rig = arg;

	rf_guest_close(rig->guest);
	return NULL;
}

/* Data on the ring when the guest closes is still the back end's to take. */
static void closing_the_guest_loses_nothing(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1, WINDOW);
	pthread_t closer;

	fake_hold_tx(rig->fake, true);
	assert_int_equal(rf_send(rig->guest, c.sock, bytes, 200000, 0), 200000);
	assert_int_equal(pthread_create(&closer, NULL, closer_run, rig), 0);
	usleep(20000);
	fake_hold_tx(rig->fake, false);
	pthread_join(closer, NULL);
	expect_bytes(rig, 0, 200000);
	fake_expect(rig->fake, VIRTIO_VSOCK_OP_SHUTDOWN);
	rig->guest = NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_CASE(sends_packets),
		RIG_CASE(window_is_kept),
		RIG_CASE(no_window_at_first),
		RIG_CASE(window_that_shrinks),
		RIG_CASE(huge_window_is_cut),
		RIG_CASE(ring_without_room),
		RIG_CASE(control_passes_data),
		cmocka_unit_test(control_waits_its_turn),
		cmocka_unit_test(who_waits_comes_first),
		cmocka_unit_test(who_waits_hears_of_any_slot),
		cmocka_unit_test(resets_that_find_no_room),
		RIG_CASE(senders_that_block_end),
		RIG_CASE(ring_without_room_and_hang_up),
		cmocka_unit_test(threads_share_a_socket),
		RIG_CASE(sending_that_is_not_allowed),
		RIG_CASE(closing_the_guest_loses_nothing),
	};

	fill_bytes();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
