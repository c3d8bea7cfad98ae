/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What outlives what in the guest half, and what is held for how long: faults that Linux's sockets
 * had.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "guest_rig.h"

#define WINDOW 262144u

static const struct rf_sockaddr host_port = { RF_CID_HOST, 1234 };

/* The next attempt to connect is refused. */
static void refuse(struct rig *rig, int sock, uint32_t from_port)
{
	struct rf_vsock_hdr request, answer;

	assert_int_equal(rf_connect(rig->guest, sock, &host_port), -EINPROGRESS);
	request = fake_expect(rig->fake, VIRTIO_VSOCK_OP_REQUEST);
	assert_int_equal(request.src_port, from_port);
	answer = fake_answer(&request, VIRTIO_VSOCK_OP_RST);
	fake_send(rig->fake, &answer, NULL);
	rig_poll(rig, sock, RF_POLLOUT);
	assert_int_equal(rig_option(rig, sock, RF_SO_ERROR), ECONNRESET);
}

/*
 * CVE-2025-21756: a change of transport gave up the port of a socket that then lived on. A binding
 * lasts until its socket is closed, whatever fails or goes in between.
 */
static void bindings_outlive_their_device(void **state)
{
	struct rig *rig = *state;
	struct rf_sockaddr addr = { RF_CID_ANY, 900 }, any = { RF_CID_ANY, RF_PORT_ANY };
	int sock = rf_socket(rig->guest, RF_SOCK_STREAM | RF_SOCK_NONBLOCK);
	int other = rf_socket(rig->guest, RF_SOCK_STREAM | RF_SOCK_NONBLOCK);

	assert_int_equal(rf_bind(rig->guest, sock, &addr), 0);
	for (uint64_t i = 1; i <= 3; i++) {
		refuse(rig, sock, 900);
		assert_int_equal(rf_bind(rig->guest, other, &addr), -EADDRINUSE);
		fake_hang_up(rig->fake);
		rig_wait_counter(rig, "attachments", i + 1);
		fake_wait_attached(rig->fake);
		assert_int_equal(rf_bind(rig->guest, other, &addr), -EADDRINUSE);
	}
	/* The report used up 24 ports that are picked; here none is the one that is held. */
	for (unsigned i = 0; i < 24; i++) {
		int picked = rf_socket(rig->guest, RF_SOCK_STREAM);
		struct rf_sockaddr got;

		assert_int_equal(rf_bind(rig->guest, picked, &any), 0);
		assert_int_equal(rf_getsockname(rig->guest, picked, &got), 0);
		assert_int_not_equal(got.port, 900);
	}
	assert_int_equal(rf_close(rig->guest, sock), 0);
	assert_int_equal(rf_bind(rig->guest, other, &addr), 0);
	refuse(rig, other, 900);
}

/* 78dafe1cf3af: closing while there is no transport at all, in every state. */
static void closed_without_a_device(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1, WINDOW);
	int listener = rig_listen(rig, 700, 5);
	int connecting = rf_socket(rig->guest, RF_SOCK_STREAM | RF_SOCK_NONBLOCK);
	struct rf_vsock_hdr hdr = fake_hdr(VIRTIO_VSOCK_OP_REQUEST, 9, 700);
	int bound = rf_socket(rig->guest, RF_SOCK_STREAM);

	assert_int_equal(rf_bind(rig->guest, bound, &(struct rf_sockaddr){ RF_CID_ANY, 5 }), 0);
	rig_send(rig, &c, "unread", 6);
	assert_int_equal(rf_connect(rig->guest, connecting, &host_port), -EINPROGRESS);
	fake_expect(rig->fake, VIRTIO_VSOCK_OP_REQUEST);
	fake_send(rig->fake, &hdr, NULL);
	fake_expect(rig->fake, VIRTIO_VSOCK_OP_RESPONSE);
	fake_down(rig->fake);
	rig_wait_counter(rig, "detachments", 1);
	assert_int_equal(rf_close(rig->guest, c.sock), 0);
	assert_int_equal(rf_close(rig->guest, connecting), 0);
	assert_int_equal(rf_close(rig->guest, listener), 0);
	assert_int_equal(rf_close(rig->guest, bound), 0);
	fake_up(rig->fake, FAKE_CID);
	fake_wait_attached(rig->fake);
	/* Nobody is told of what the other side has forgotten. */
	fake_expect_none(rig->fake, 20);
}

/*
 * CVE-2026-46214: requests that came to nothing counted against the backlog for ever. Here many
 * more than it holds are turned away first.
 */
static void refusals_take_no_place_in_a_backlog(void **state)
{
	struct rig *rig = *state;
	int listener = rig_listen(rig, 700, 2);
	struct rf_vsock_hdr hdr;

	for (uint32_t i = 0; i < 20; i++) {
		hdr = fake_hdr(VIRTIO_VSOCK_OP_REQUEST, 100 + i, 700);
		hdr.type = VIRTIO_VSOCK_TYPE_SEQPACKET;
		fake_send(rig->fake, &hdr, NULL);
		assert_int_equal(fake_expect(rig->fake, VIRTIO_VSOCK_OP_RST).dst_port, 100 + i);
		/* And one that is for another guest. */
		hdr.type = VIRTIO_VSOCK_TYPE_STREAM;
		hdr.dst_cid = FAKE_CID + 1;
		fake_send(rig->fake, &hdr, NULL);
	}
	for (uint32_t i = 0; i < 3; i++) {
		hdr = fake_hdr(VIRTIO_VSOCK_OP_REQUEST, 200 + i, 700);
		fake_send(rig->fake, &hdr, NULL);
		assert_int_equal(fake_expect(rig->fake, VIRTIO_VSOCK_OP_RESPONSE).dst_port,
				 200 + i);
	}
	for (unsigned i = 0; i < 3; i++)
		assert_true(rf_accept(rig->guest, listener, NULL, 0) > 0);
}

/* CVE-2026-53132: packets that say nothing hold nothing, however many there are. */
static void flood_of_empty_packets(void **state)
{
	const struct rig_options options = { .queue_size = 4, .rx_buf_bytes = 4096 };
	struct rig_conn c;
	struct rig rig;
	char buf[8];

	(void)state;
	rig_open(&rig, &options);
	c = rig_connect(&rig, 1234, WINDOW);
	for (unsigned i = 0; i < 5000; i++) {
		struct rf_vsock_hdr hdr = c.host;

		hdr.op = VIRTIO_VSOCK_OP_RW;
		hdr.flags = 1;
		fake_send(rig.fake, &hdr, NULL);
	}
	rig_wait_counter(&rig, "rx_packets", 5001);
	assert_int_equal(rig_option(&rig, c.sock, RF_SO_INQ), 0);
	assert_int_equal(rf_recv(rig.guest, c.sock, buf, 1, RF_MSG_DONTWAIT), -EAGAIN);
	assert_int_equal(rig_counter(&rig, "rx_bounced_bytes"), 0);
	rig_send(&rig, &c, "fine", 4);
	assert_int_equal(rf_recv(rig.guest, c.sock, buf, 4, RF_MSG_WAITALL), 4);
	rig_close(&rig);
}

/* A thread that reads more than a window holds, and takes nothing but all of it. */
#define MUCH (3 * WINDOW)

static uint8_t much[MUCH];

struct reader {
	struct rig *rig;
	int sock;
	ssize_t result;
};

static void *reader_run(void *arg)
{
	struct reader *r = arg;

	r->result = rf_recv(r->rig->guest, r->sock, much, MUCH, RF_MSG_WAITALL);
	return NULL;
}

/*
 * Linux before 6.8: a receiver that waits for more than is queued told of no credit, and both sides
 * slept. Here that is MSG_WAITALL; SO_RCVLOWAT there is none.
 */
static void waiting_for_more_than_the_window(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, WINDOW);
	struct reader r = { .rig = rig, .sock = c.sock };
	uint32_t sent = 0, fwd_cnt = 0;
	static uint8_t piece[16384];
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, reader_run, &r), 0);
	while (sent < MUCH) {
		while (sent - fwd_cnt > WINDOW - sizeof(piece))
			fwd_cnt = fake_expect(rig->fake, VIRTIO_VSOCK_OP_CREDIT_UPDATE).fwd_cnt;
		memset(piece, (int)(sent / sizeof(piece)), sizeof(piece));
		rig_send(rig, &c, piece, sizeof(piece));
		sent += (uint32_t)sizeof(piece);
	}
	pthread_join(thread, NULL);
	assert_int_equal(r.result, MUCH);
	for (uint32_t at = 0; at < MUCH; at += 1000)
		assert_int_equal(much[at], (uint8_t)(at / sizeof(piece)));

	/* Peeking frees nothing: the whole window is all that there will ever be. */
	for (uint32_t at = 0; at < WINDOW; at += (uint32_t)sizeof(piece))
		rig_send(rig, &c, piece, sizeof(piece));
	assert_int_equal(rf_recv(rig->guest, c.sock, much, MUCH, RF_MSG_WAITALL | RF_MSG_PEEK),
			 WINDOW);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_CASE(bindings_outlive_their_device),
		RIG_CASE(closed_without_a_device),
		RIG_CASE(refusals_take_no_place_in_a_backlog),
		cmocka_unit_test(flood_of_empty_packets),
		RIG_CASE(waiting_for_more_than_the_window),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
