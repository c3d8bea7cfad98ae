/* SPDX-License-Identifier: BSD-3-Clause */
/* What arrives and how it is read: guest/deliver.c, stream_recv.c, rx.c. */
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

#define WINDOW 262144u

static void check(const uint8_t *buf, uint64_t at, size_t len)
{
	assert_int_equal(pattern_check(buf, at, len), len);
}

/* Read that many bytes of the pattern. */
static void read_pattern(struct rig *rig, int sock, uint64_t at, size_t len)
{
	uint8_t *buf = malloc(len);

	assert_non_null(buf);
	assert_int_equal(rf_recv(rig->guest, sock, buf, len, RF_MSG_WAITALL), len);
	check(buf, at, len);
	free(buf);
}

static void send_pattern(struct rig *rig, const struct rig_conn *c, uint64_t at, uint32_t len)
{
	uint8_t *buf = malloc(len);

	assert_non_null(buf);
	pattern_fill(buf, at, len);
	rig_send(rig, c, buf, len);
	free(buf);
}

/* Everything that was sent to the guest has been looked at. */
static void settle(struct rig *rig, uint64_t packets)
{
	rig_wait_counter(rig, "rx_packets", packets);
}

static ssize_t try_recv(struct rig *rig, const struct rig_conn *c, void *buf, size_t len, int flags)
{
	return rf_recv(rig->guest, c->sock, buf, len, flags | RF_MSG_DONTWAIT);
}

/* A thread in rf_recv(). */
struct reader {
	struct rig *rig;
	int sock, flags;
	size_t len;
	pthread_t thread;
	ssize_t result;
	char buf[4096];
};

static void *reader_run(void *arg)
{
	struct reader *r = arg;

	r->result = rf_recv(r->rig->guest, r->sock, r->buf, r->len, r->flags);
	return NULL;
}

static void reader_start(struct reader *r, struct rig *rig, int sock, size_t len, int flags)
{
	*r = (struct reader){ .rig = rig, .sock = sock, .len = len, .flags = flags };
	assert_int_equal(pthread_create(&r->thread, NULL, reader_run, r), 0);
}

static ssize_t reader_end(struct reader *r)
{
	pthread_join(r->thread, NULL);
	return r->result;
}

static void data_arrives(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, WINDOW);
	struct reader r;
	char buf[16];

	assert_int_equal(try_recv(rig, &c, buf, sizeof(buf), 0), -EAGAIN);
	reader_start(&r, rig, c.sock, 4096, 0);
	rig_send(rig, &c, "hello", 5);
	assert_int_equal(reader_end(&r), 5);
	assert_memory_equal(r.buf, "hello", 5);
	send_pattern(rig, &c, 0, 65536);
	read_pattern(rig, c.sock, 0, 65536);
	assert_int_equal(rig_counter(rig, "rx_bytes"), 65541);
	assert_int_equal(rig_counter(rig, "rx_bounced_bytes"), 0);
	rig_end(rig, &c);
}

/* vsock_test 14: small packets share a buffer, across a read in between. */
static void small_packets_are_joined(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, WINDOW);
	char buf[16];

	rig_send(rig, &c, "HELLO", 5);
	assert_int_equal(rf_recv(rig->guest, c.sock, buf, 2, RF_MSG_WAITALL), 2);
	rig_send(rig, &c, "WORLD", 5);
	settle(rig, 3);
	assert_int_equal(try_recv(rig, &c, buf, sizeof(buf), 0), 8);
	assert_memory_equal(buf, "LLOWORLD", 8);
	assert_int_equal(rig_counter(rig, "rx_joined_bytes"), 5);
	assert_int_equal(try_recv(rig, &c, buf, sizeof(buf), 0), -EAGAIN);
}

static void reads_of_any_size(void **state)
{
	static const uint32_t sizes[] = { 1, 128, 129, 3000, 65536, 2, 500, 127, 20000 };
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, WINDOW);
	uint64_t at = 0, got = 0;
	uint8_t buf[7001];

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		send_pattern(rig, &c, at, sizes[i]);
		at += sizes[i];
	}
	settle(rig, 1 + sizeof(sizes) / sizeof(sizes[0]));
	assert_int_equal(rig_option(rig, c.sock, RF_SO_INQ), at);
	for (size_t len = 1; got < at; len = len * 3 % sizeof(buf) + 1) {
		ssize_t n = try_recv(rig, &c, buf, len, 0);

		assert_true(n > 0);
		check(buf, got, (size_t)n);
		got += (uint64_t)n;
	}
	assert_int_equal(rig_option(rig, c.sock, RF_SO_INQ), 0);
}

/* vsock_test 5; and the offset of an earlier read counts (Linux 080f22f5d302). */
static void peek_takes_nothing(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, WINDOW);
	uint8_t buf[4000];

	assert_int_equal(try_recv(rig, &c, buf, sizeof(buf), RF_MSG_PEEK), -EAGAIN);
	send_pattern(rig, &c, 0, 1000);
	send_pattern(rig, &c, 1000, 1000);
	settle(rig, 3);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(try_recv(rig, &c, buf, 500, RF_MSG_PEEK), 500);
		check(buf, 0, 500);
		assert_int_equal(try_recv(rig, &c, buf, sizeof(buf), RF_MSG_PEEK), 2000);
		check(buf, 0, 2000);
	}
	assert_int_equal(try_recv(rig, &c, buf, 300, 0), 300);
	assert_int_equal(try_recv(rig, &c, buf, sizeof(buf), RF_MSG_PEEK), 1700);
	check(buf, 300, 1700);
	assert_int_equal(rig_option(rig, c.sock, RF_SO_INQ), 1700);
	read_pattern(rig, c.sock, 300, 1700);
}

static void waitall_waits(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, WINDOW);
	struct reader r;

	reader_start(&r, rig, c.sock, 300, RF_MSG_WAITALL);
	for (uint32_t i = 0; i < 3; i++) {
		usleep(5000);
		send_pattern(rig, &c, UINT64_C(100) * i, 100);
	}
	assert_int_equal(reader_end(&r), 300);
	check((uint8_t *)r.buf, 0, 300);

	reader_start(&r, rig, c.sock, 200, RF_MSG_WAITALL | RF_MSG_PEEK);
	send_pattern(rig, &c, 300, 150);
	usleep(5000);
	send_pattern(rig, &c, 450, 150);
	assert_int_equal(reader_end(&r), 200);
	check((uint8_t *)r.buf, 300, 200);
	assert_int_equal(rig_option(rig, c.sock, RF_SO_INQ), 300);

	/* Without blocking, and at the end of file, there may be fewer. */
	assert_int_equal(try_recv(rig, &c, r.buf, 4096, RF_MSG_WAITALL), 300);
	reader_start(&r, rig, c.sock, 300, RF_MSG_WAITALL);
	rig_send(rig, &c, "end", 3);
	rig_send_op(rig, &c, VIRTIO_VSOCK_OP_SHUTDOWN, RF_VSOCK_SHUT_SEND);
	assert_int_equal(reader_end(&r), 3);
}

static void host_half_closes(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, WINDOW);
	char buf[16];

	rig_send(rig, &c, "last", 4);
	rig_send_op(rig, &c, VIRTIO_VSOCK_OP_SHUTDOWN, RF_VSOCK_SHUT_SEND);
	settle(rig, 3);
	assert_int_equal(rf_recv(rig->guest, c.sock, buf, sizeof(buf), 0), 4);
	for (int i = 0; i < 2; i++)
		assert_int_equal(rf_recv(rig->guest, c.sock, buf, sizeof(buf), 0), 0);
	/* The other direction lives on. */
	assert_int_equal(rf_send(rig->guest, c.sock, "answer", 6, 0), 6);
	assert_int_equal(fake_expect(rig->fake, VIRTIO_VSOCK_OP_RW).len, 6);
	assert_int_equal(rf_shutdown(rig->guest, c.sock, RF_SHUT_WR), 0);
	assert_int_equal(fake_expect(rig->fake, VIRTIO_VSOCK_OP_SHUTDOWN).flags,
			 RF_VSOCK_SHUT_SEND);
	assert_int_equal(rig_poll(rig, c.sock, 0), RF_POLLHUP);
}

static void guest_half_closes(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, WINDOW);
	char buf[16];

	assert_int_equal(rf_send(rig->guest, c.sock, "last", 4, 0), 4);
	assert_int_equal(rf_shutdown(rig->guest, c.sock, RF_SHUT_WR), 0);
	assert_int_equal(rf_shutdown(rig->guest, c.sock, RF_SHUT_WR), 0);
	fake_expect(rig->fake, VIRTIO_VSOCK_OP_RW);
	assert_int_equal(fake_expect(rig->fake, VIRTIO_VSOCK_OP_SHUTDOWN).flags,
			 RF_VSOCK_SHUT_SEND);
	fake_expect_none(rig->fake, 10);
	assert_int_equal(rf_send(rig->guest, c.sock, "x", 1, 0), -EPIPE);
	assert_int_equal(rf_send(rig->guest, c.sock, "", 0, 0), -EPIPE);
	rig_send(rig, &c, "answer", 6);
	assert_int_equal(rf_recv(rig->guest, c.sock, buf, sizeof(buf), 0), 6);
}

static void guest_stops_receiving(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, WINDOW);
	char buf[16];

	for (uint64_t at = 0; at < WINDOW; at += 65536)
		send_pattern(rig, &c, at, 65536);
	settle(rig, 5);
	assert_int_equal(rf_shutdown(rig->guest, c.sock, RF_SHUT_RD), 0);
	assert_int_equal(fake_expect(rig->fake, VIRTIO_VSOCK_OP_CREDIT_UPDATE).fwd_cnt, WINDOW);
	assert_int_equal(fake_expect(rig->fake, VIRTIO_VSOCK_OP_SHUTDOWN).flags, RF_VSOCK_SHUT_RCV);
	assert_int_equal(rf_recv(rig->guest, c.sock, buf, sizeof(buf), 0), 0);
	assert_int_equal(rig_option(rig, c.sock, RF_SO_INQ), 0);
	/* What was under way is taken, and forgotten: the peer does not wait for credit. */
	for (unsigned i = 0; i < 5; i++)
		send_pattern(rig, &c, 0, 65536);
	settle(rig, 10);
	assert_int_equal(rig_option(rig, c.sock, RF_SO_INQ), 0);
	assert_int_equal(rf_recv(rig->guest, c.sock, buf, sizeof(buf), 0), 0);
	assert_true(rig_counter(rig, "tx_credit_updates") > 1);
}

static void shutdown_that_is_not_allowed(void **state)
{
	struct rig *rig = *state;
	int sock = rf_socket(rig->guest, RF_SOCK_STREAM);
	int listener = rig_listen(rig, 5, 1);

	assert_int_equal(rf_shutdown(rig->guest, sock, RF_SHUT_RDWR), -ENOTCONN);
	assert_int_equal(rf_shutdown(rig->guest, listener, RF_SHUT_RDWR), -ENOTCONN);
	assert_int_equal(rf_shutdown(rig->guest, sock, 3), -EINVAL);
	assert_int_equal(rf_shutdown(rig->guest, -1, RF_SHUT_RD), -EBADF);
	assert_int_equal(rf_shutdown(rig->guest, sock + 100, RF_SHUT_RD), -EBADF);
}

/* Peer's close(): RST at once, what it sent before stays readable, then end of file: no error. */
static void host_closes_behind_data(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, WINDOW);
	char buf[16];

	rig_send(rig, &c, "last", 4);
	rig_send_op(rig, &c, VIRTIO_VSOCK_OP_SHUTDOWN, RF_VSOCK_SHUT_BOTH);
	fake_expect(rig->fake, VIRTIO_VSOCK_OP_RST);
	assert_int_equal(rf_recv(rig->guest, c.sock, buf, sizeof(buf), 0), 4);
	assert_int_equal(rf_recv(rig->guest, c.sock, buf, sizeof(buf), 0), 0);
	assert_int_equal(rf_send(rig->guest, c.sock, "x", 1, 0), -EPIPE);
	assert_int_equal(rig_option(rig, c.sock, RF_SO_ERROR), 0);
	assert_int_equal(rf_close(rig->guest, c.sock), 0);
	fake_expect_none(rig->fake, 10);
}

static void reset_behind_data(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, WINDOW);
	char buf[16];

	rig_send(rig, &c, "last", 4);
	rig_send_op(rig, &c, VIRTIO_VSOCK_OP_RST, 0);
	settle(rig, 3);
	assert_int_equal(rf_recv(rig->guest, c.sock, buf, 2, RF_MSG_WAITALL), 2);
	assert_int_equal(rf_recv(rig->guest, c.sock, buf, 16, RF_MSG_WAITALL), 2);
	assert_int_equal(rf_recv(rig->guest, c.sock, buf, 16, 0), -ECONNRESET);
	assert_int_equal(rf_recv(rig->guest, c.sock, buf, 16, 0), 0);
	assert_int_equal(rf_send(rig->guest, c.sock, "x", 1, 0), -EPIPE);
	assert_int_equal(rf_connect(rig->guest, c.sock, &(struct rf_sockaddr){ 2, 1 }), -EISCONN);
	assert_int_equal(rf_close(rig->guest, c.sock), 0);
	fake_expect_none(rig->fake, 10);
}

/* What the peer had said before was all there would be. */
static void reset_behind_end_of_file(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, WINDOW);
	char buf[16];

	rig_send(rig, &c, "last", 4);
	rig_send_op(rig, &c, VIRTIO_VSOCK_OP_SHUTDOWN, RF_VSOCK_SHUT_SEND);
	settle(rig, 3);
	assert_int_equal(rf_recv(rig->guest, c.sock, buf, 16, 0), 4);
	assert_int_equal(rf_recv(rig->guest, c.sock, buf, 16, 0), 0);
	rig_send_op(rig, &c, VIRTIO_VSOCK_OP_RST, 0);
	settle(rig, 4);
	assert_int_equal(rf_recv(rig->guest, c.sock, buf, 16, 0), 0);
	assert_int_equal(rf_send(rig->guest, c.sock, "x", 1, 0), -ECONNRESET);
	assert_int_equal(rf_send(rig->guest, c.sock, "x", 1, 0), -EPIPE);
	assert_int_equal(rf_recv(rig->guest, c.sock, buf, 16, 0), 0);
}

static void reset_ends_a_reader_that_blocks(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, WINDOW);
	struct reader r;

	reader_start(&r, rig, c.sock, 10, 0);
	usleep(5000);
	rig_send_op(rig, &c, VIRTIO_VSOCK_OP_RST, 0);
	assert_int_equal(reader_end(&r), -ECONNRESET);
}

static void close_ends_a_reader_that_blocks(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, WINDOW);
	struct reader r;

	reader_start(&r, rig, c.sock, 10, 0);
	usleep(5000);
	assert_int_equal(rf_close(rig->guest, c.sock), 0);
	assert_int_equal(reader_end(&r), -EBADF);
}

/* Linux 6.1 a4f0b001782b: RST, rather than a silent loss; what fitted stays readable. */
static void more_than_the_window(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, WINDOW);
	uint8_t byte;

	for (uint64_t at = 0; at < WINDOW; at += 65536)
		send_pattern(rig, &c, at, 65536);
	send_pattern(rig, &c, WINDOW, 1);
	fake_expect(rig->fake, VIRTIO_VSOCK_OP_RST);
	read_pattern(rig, c.sock, 0, WINDOW);
	assert_int_equal(rf_recv(rig->guest, c.sock, &byte, 1, 0), -ECONNRESET);
	assert_int_equal(rig_counter(rig, "ended_credit_overrun"), 1);
}

/* MigTD #453: more than a window in all; virtio-drivers PR 110. At most 4 updates per window. */
static void a_reader_that_drains_gives_credit(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, WINDOW);
	uint32_t fwd_cnt = 0, sent = 0;

	for (unsigned i = 0; i < 64; i++) {
		while (sent - fwd_cnt > WINDOW - 16384)
			fwd_cnt = fake_expect(rig->fake, VIRTIO_VSOCK_OP_CREDIT_UPDATE).fwd_cnt;
		send_pattern(rig, &c, sent, 16384);
		read_pattern(rig, c.sock, sent, 16384);
		sent += 16384;
	}
	assert_in_range(rig_counter(rig, "tx_credit_updates"), 4, 17);
}

/* Bytes count as they are read (Linux before 6.16 counted whole packets). */
static void partial_reads_give_credit(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, WINDOW);
	struct rf_vsock_hdr request = c.host;

	send_pattern(rig, &c, 0, 65536);
	read_pattern(rig, c.sock, 0, 1000);
	request.op = VIRTIO_VSOCK_OP_CREDIT_REQUEST;
	fake_send(rig->fake, &request, NULL);
	assert_int_equal(fake_expect(rig->fake, VIRTIO_VSOCK_OP_CREDIT_UPDATE).fwd_cnt, 1000);
	read_pattern(rig, c.sock, 1000, 64536);
}

/* CVE-2025-39718: the header's length against what was written; the socket's state stays. */
static void lengths_that_lie(void **state)
{
	static const struct {
		int row;
		uint32_t len, used;
	} rows[] = {
		{ 1, 5, 44 }, { 2, 5, 48 }, { 3, 65536, 44 + 100 }, { 4, UINT32_MAX, 44 + 100 },
		{ 5, 0, 0 },  { 6, 0, 43 }, { 7, 1, 44 },           { 8, UINT32_MAX - 43, 100 },
	};
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, WINDOW);
	uint8_t bytes[100] = { 0 }, buf[8];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rf_vsock_hdr hdr = c.host;

		hdr.op = VIRTIO_VSOCK_OP_RW;
		hdr.len = rows[i].len;
		fake_send_used(rig->fake, &hdr, bytes, rows[i].used);
	}
	settle(rig, 1 + sizeof(rows) / sizeof(rows[0]));
	assert_int_equal(rig_counter(rig, "rx_bad_length"), sizeof(rows) / sizeof(rows[0]));
	rig_send(rig, &c, "fine", 4);
	assert_int_equal(rf_recv(rig->guest, c.sock, buf, sizeof(buf), 0), 4);
	assert_memory_equal(buf, "fine", 4);
}

static void packets_that_are_not_ours(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, WINDOW);
	struct rf_vsock_hdr hdr = c.host;

	hdr.op = VIRTIO_VSOCK_OP_RST;
	hdr.dst_cid = FAKE_CID + 1;
	fake_send(rig->fake, &hdr, NULL);
	hdr.dst_cid = FAKE_CID | UINT64_C(1) << 32;
	fake_send(rig->fake, &hdr, NULL);
	hdr.dst_cid = FAKE_CID;
	hdr.src_cid = 9;
	fake_send(rig->fake, &hdr, NULL);
	/* Another type is another socket's: RST of that type. */
	hdr = c.host;
	hdr.op = VIRTIO_VSOCK_OP_RW;
	hdr.type = VIRTIO_VSOCK_TYPE_SEQPACKET;
	fake_send(rig->fake, &hdr, NULL);
	assert_int_equal(fake_expect(rig->fake, VIRTIO_VSOCK_OP_RST).type,
			 VIRTIO_VSOCK_TYPE_SEQPACKET);
	assert_int_equal(rig_counter(rig, "rx_misaddressed"), 3);
	rig_end(rig, &c);
}

static void operations_that_break_a_connection(void **state)
{
	static const struct {
		uint16_t op;
		const char *counter;
	} rows[] = {
		{ VIRTIO_VSOCK_OP_REQUEST, "ended_bad_state" },
		{ VIRTIO_VSOCK_OP_RESPONSE, "ended_bad_state" },
		{ 99, "ended_bad_op" },
		{ VIRTIO_VSOCK_OP_INVALID, "ended_bad_op" },
	};
	struct rig *rig = *state;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rig_conn c = rig_connect(rig, 1234, WINDOW);
		uint64_t before = rig_counter(rig, rows[i].counter);
		char byte;

		rig_send_op(rig, &c, rows[i].op, 0);
		fake_expect(rig->fake, VIRTIO_VSOCK_OP_RST);
		assert_int_equal(rf_recv(rig->guest, c.sock, &byte, 1, 0), -ECONNRESET);
		assert_int_equal(rig_counter(rig, rows[i].counter), before + 1);
	}
}

static void data_after_shutdown_and_no_data(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, WINDOW);
	char byte;

	/* No bytes are no end of file. */
	rig_send(rig, &c, NULL, 0);
	settle(rig, 2);
	assert_int_equal(try_recv(rig, &c, &byte, 1, 0), -EAGAIN);
	rig_send_op(rig, &c, VIRTIO_VSOCK_OP_SHUTDOWN, RF_VSOCK_SHUT_SEND);
	rig_send(rig, &c, "x", 1);
	fake_expect(rig->fake, VIRTIO_VSOCK_OP_RST);
	assert_int_equal(rig_counter(rig, "ended_data_late"), 1);
}

/*
 * A reader that does not read takes no receive buffer away from others: when they run low, payload
 * is copied. Nothing of it is lost. (4 ring entries, 8 buffers.)
 */
static void slow_reader_starves_nobody(void **state)
{
	const struct rig_options options = { .queue_size = 4, .rx_buf_bytes = 4096 };
	struct rig rig;
	struct rig_conn slow, fast;
	uint64_t at = 0;

	(void)state;
	rig_open(&rig, &options);
	slow = rig_connect(&rig, 1, WINDOW);
	fast = rig_connect(&rig, 2, WINDOW);
	for (uint32_t i = 0; i < 200; i++) {
		uint32_t len = 100 + i * 13 % 1200;

		send_pattern(&rig, &slow, at, len);
		at += len;
		send_pattern(&rig, &fast, i, 1);
		read_pattern(&rig, fast.sock, i, 1);
	}
	assert_true(rig_counter(&rig, "rx_bounced_bytes") > 0);
	assert_int_equal(rig_option(&rig, slow.sock, RF_SO_INQ), at);
	read_pattern(&rig, slow.sock, 0, at);
	rig_close(&rig);
}

/* A closed socket's buffers go back, read or not. */
static void unread_data_is_dropped_by_close(void **state)
{
	const struct rig_options options = { .queue_size = 2, .rx_buf_bytes = 65536 };
	struct rig rig;

	(void)state;
	rig_open(&rig, &options);
	for (uint32_t i = 0; i < 20; i++) {
		struct rig_conn c = rig_connect(&rig, i, WINDOW);

		send_pattern(&rig, &c, 0, 65536);
		rig_wait_counter(&rig, "rx_packets", 3 * i + 2);
		rig_end(&rig, &c);
		rig_wait_counter(&rig, "rx_packets", 3 * i + 3);
	}
	assert_int_equal(rig_counter(&rig, "rx_bounced_bytes"), 0);
	rig_close(&rig);
}

static void receiving_that_is_not_allowed(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, WINDOW);
	int sock = rf_socket(rig->guest, RF_SOCK_STREAM);
	char byte;

	assert_int_equal(rf_recv(rig->guest, sock, &byte, 1, 0), -ENOTCONN);
	assert_int_equal(rf_recv(rig->guest, sock, &byte, 1, 1), -EINVAL);
	assert_int_equal(rf_recv(rig->guest, sock + 100, &byte, 1, 0), -EBADF);
	assert_int_equal(rf_recv(rig->guest, rig_listen(rig, 4, 1), &byte, 1, 0), -ENOTCONN);
	assert_int_equal(rf_recv(rig->guest, c.sock, &byte, 0, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_CASE(data_arrives),
		RIG_CASE(small_packets_are_joined),
		RIG_CASE(reads_of_any_size),
		RIG_CASE(peek_takes_nothing),
		RIG_CASE(waitall_waits),
		RIG_CASE(host_half_closes),
		RIG_CASE(guest_half_closes),
		RIG_CASE(guest_stops_receiving),
		RIG_CASE(shutdown_that_is_not_allowed),
		RIG_CASE(host_closes_behind_data),
		RIG_CASE(reset_behind_data),
		RIG_CASE(reset_behind_end_of_file),
		RIG_CASE(reset_ends_a_reader_that_blocks),
		RIG_CASE(close_ends_a_reader_that_blocks),
		RIG_CASE(more_than_the_window),
		RIG_CASE(a_reader_that_drains_gives_credit),
		RIG_CASE(partial_reads_give_credit),
		RIG_CASE(lengths_that_lie),
		RIG_CASE(packets_that_are_not_ours),
		RIG_CASE(operations_that_break_a_connection),
		RIG_CASE(data_after_shutdown_and_no_data),
		RIG_CASE(receiving_that_is_not_allowed),
		cmocka_unit_test(slow_reader_starves_nobody),
		cmocka_unit_test(unread_data_is_dropped_by_close),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
