/* SPDX-License-Identifier: BSD-3-Clause */
/* bind, listen, connect, accept, close: guest/connect.c, listen.c, ports.c, close.c. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "guest_rig.h"
#include "warp_clock.h"

static const struct rf_sockaddr host_port = { .cid = RF_CID_HOST, .port = 1234 };

/* Call something that blocks in a thread. */
struct blocked {
	struct rig *rig;
	int sock;
	pthread_t thread;
	int result;
};

static void block(struct blocked *b, struct rig *rig, int sock, void *(*fn)(void *))
{
	*b = (struct blocked){ .rig = rig, .sock = sock };
	assert_int_equal(pthread_create(&b->thread, NULL, fn, b), 0);
}

static int unblocked(struct blocked *b)
{
	pthread_join(b->thread, NULL);
	return b->result;
}

static void *connect_run(void *arg)
{
	struct blocked *b = arg;

	b->result = rf_connect(b->rig->guest, b->sock, &host_port);
	return NULL;
}

static void *accept_run(void *arg)
{
	struct blocked *b = arg;

	b->result = rf_accept(b->rig->guest, b->sock, NULL, 0);
	return NULL;
}

static int new_sock(struct rig *rig, int flags)
{
	int sock = rf_socket(rig->guest, RF_SOCK_STREAM | flags);

	assert_true(sock > 0);
	return sock;
}

static void connects_and_ends(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, 1000);
	struct rf_sockaddr addr;

	assert_int_equal(c.host.dst_cid, FAKE_CID);
	assert_true(c.host.dst_port > 1023);
	assert_int_equal(rf_getpeername(rig->guest, c.sock, &addr), 0);
	assert_int_equal(addr.cid, RF_CID_HOST);
	assert_int_equal(addr.port, 1234);
	assert_int_equal(rf_getsockname(rig->guest, c.sock, &addr), 0);
	assert_int_equal(addr.cid, FAKE_CID);
	assert_int_equal(addr.port, c.host.dst_port);
	rig_end(rig, &c);
	assert_int_equal(rf_close(rig->guest, c.sock), -EBADF);
	rig_wait_counter(rig, "ended_closed", 1);
}

static void connect_blocks_until_decided(void **state)
{
	struct rig *rig = *state;
	struct rf_vsock_hdr request, answer;
	struct blocked b;
	int sock = new_sock(rig, 0);

	block(&b, rig, sock, connect_run);
	request = fake_expect(rig->fake, VIRTIO_VSOCK_OP_REQUEST);
	assert_int_equal(request.src_cid, FAKE_CID);
	assert_int_equal(request.dst_cid, RF_CID_HOST);
	assert_int_equal(request.type, VIRTIO_VSOCK_TYPE_STREAM);
	assert_int_equal(request.buf_alloc, 262144);
	assert_int_equal(rf_connect(rig->guest, sock, &host_port), -EALREADY);
	answer = fake_answer(&request, VIRTIO_VSOCK_OP_RESPONSE);
	fake_send(rig->fake, &answer, NULL);
	assert_int_equal(unblocked(&b), 0);
	assert_int_equal(rf_connect(rig->guest, sock, &host_port), -EISCONN);
}

/* A refused port is ECONNRESET, and at once; the same socket may try again, from the same port. */
static void refused_connect_can_be_tried_again(void **state)
{
	struct rig *rig = *state;
	int sock = new_sock(rig, RF_SOCK_NONBLOCK);
	struct rf_vsock_hdr request, answer;
	uint32_t port;

	assert_int_equal(rf_connect(rig->guest, sock, &host_port), -EINPROGRESS);
	request = fake_expect(rig->fake, VIRTIO_VSOCK_OP_REQUEST);
	port = request.src_port;
	answer = fake_answer(&request, VIRTIO_VSOCK_OP_RST);
	fake_send(rig->fake, &answer, NULL);
	assert_int_equal(rig_poll(rig, sock, RF_POLLOUT), RF_POLLOUT | RF_POLLERR);
	assert_int_equal(rig_option(rig, sock, RF_SO_ERROR), ECONNRESET);
	assert_int_equal(rig_option(rig, sock, RF_SO_ERROR), 0);
	assert_int_equal(rf_send(rig->guest, sock, "x", 1, 0), -ENOTCONN);

	assert_int_equal(rf_connect(rig->guest, sock, &host_port), -EINPROGRESS);
	request = fake_expect(rig->fake, VIRTIO_VSOCK_OP_REQUEST);
	assert_int_equal(request.src_port, port);
	answer = fake_answer(&request, VIRTIO_VSOCK_OP_RESPONSE);
	fake_send(rig->fake, &answer, NULL);
	assert_int_equal(rig_poll(rig, sock, RF_POLLOUT), RF_POLLOUT);
	assert_int_equal(rig_option(rig, sock, RF_SO_ERROR), 0);
}

static void refused_connect_that_blocks(void **state)
{
	struct rig *rig = *state;
	struct rf_vsock_hdr request, answer;
	struct blocked b;

	block(&b, rig, new_sock(rig, 0), connect_run);
	request = fake_expect(rig->fake, VIRTIO_VSOCK_OP_REQUEST);
	answer = fake_answer(&request, VIRTIO_VSOCK_OP_RST);
	fake_send(rig->fake, &answer, NULL);
	assert_int_equal(unblocked(&b), -ECONNRESET);
	rig_wait_counter(rig, "ended_refused", 1);
}

/* vhost-device PR 943: a back end that answers nothing. RST tells it that nobody waits any more. */
static void silent_back_end_times_out(void **state)
{
	struct rig *rig = *state;
	int sock = new_sock(rig, 0);

	assert_int_equal(rf_setsockopt(rig->guest, sock, RF_SO_CONNECT_TIMEOUT_MS, 50), 0);
	assert_int_equal(rf_connect(rig->guest, sock, &host_port), -ETIMEDOUT);
	fake_expect(rig->fake, VIRTIO_VSOCK_OP_REQUEST);
	fake_expect(rig->fake, VIRTIO_VSOCK_OP_RST);
	assert_int_equal(rig_option(rig, sock, RF_SO_ERROR), 0);
	assert_int_equal(rf_connect(rig->guest, sock, &host_port), -ETIMEDOUT);
}

/* The answer to an attempt that timed out is none to the next one; a bound port is kept. */
static void late_answer_is_no_answer(void **state)
{
	struct rig *rig = *state;

	for (unsigned bound = 0; bound < 2; bound++) {
		int sock = new_sock(rig, 0);
		struct rf_vsock_hdr first, second, answer;
		struct rf_sockaddr addr;

		print_message("# row %u\n", bound);
		if (bound)
			assert_int_equal(rf_bind(rig->guest, sock,
						 &(struct rf_sockaddr){ RF_CID_ANY, 7000 }),
					 0);
		assert_int_equal(rf_setsockopt(rig->guest, sock, RF_SO_CONNECT_TIMEOUT_MS, 30), 0);
		assert_int_equal(rf_connect(rig->guest, sock, &host_port), -ETIMEDOUT);
		first = fake_expect(rig->fake, VIRTIO_VSOCK_OP_REQUEST);
		fake_expect(rig->fake, VIRTIO_VSOCK_OP_RST);
		assert_int_equal(rf_setsockopt(rig->guest, sock, RF_SO_CONNECT_TIMEOUT_MS, 5000),
				 0);
		assert_int_equal(rf_setsockopt(rig->guest, sock, RF_SO_NONBLOCK, 1), 0);
		assert_int_equal(rf_connect(rig->guest, sock, &host_port), -EINPROGRESS);
		second = fake_expect(rig->fake, VIRTIO_VSOCK_OP_REQUEST);
		assert_int_equal(first.src_port == second.src_port, bound);
		if (!bound) {
			answer = fake_answer(&first, VIRTIO_VSOCK_OP_RESPONSE);
			fake_send(rig->fake, &answer, NULL);
			assert_int_equal(fake_expect(rig->fake, VIRTIO_VSOCK_OP_RST).src_port,
					 first.src_port);
			assert_int_equal(rf_getpeername(rig->guest, sock, &addr), -ENOTCONN);
		}
		answer = fake_answer(&second, VIRTIO_VSOCK_OP_RESPONSE);
		fake_send(rig->fake, &answer, NULL);
		assert_true(rig_poll(rig, sock, RF_POLLOUT) & RF_POLLOUT);
		assert_int_equal(rf_getsockname(rig->guest, sock, &addr), 0);
		assert_int_equal(addr.port, second.src_port);
		assert_int_equal(rf_close(rig->guest, sock), 0);
		fake_expect(rig->fake, VIRTIO_VSOCK_OP_SHUTDOWN);
		answer = fake_answer(&second, VIRTIO_VSOCK_OP_RST);
		fake_send(rig->fake, &answer, NULL);
	}
}

/* The ring is full when the attempt ends: its peer hears of that before another one begins. */
static void failed_connect_says_so_first(void **state)
{
	const struct rig_options options = { .queue_size = 2 };
	struct rf_sockaddr other = { RF_CID_HOST, host_port.port + 1 };
	struct rig rig;
	int sock, r;

	(void)state;
	rig_open(&rig, &options);
	sock = new_sock(&rig, 0);
	assert_int_equal(rf_setsockopt(rig.guest, sock, RF_SO_CONNECT_TIMEOUT_MS, 50), 0);
	fake_hold_tx(rig.fake, true);
	assert_int_equal(rf_connect(rig.guest, sock, &host_port), -ETIMEDOUT);
	assert_int_equal(rf_connect(rig.guest, sock, &other), -EADDRINUSE);
	fake_hold_tx(rig.fake, false);
	fake_expect(rig.fake, VIRTIO_VSOCK_OP_REQUEST);
	assert_int_equal(fake_expect(rig.fake, VIRTIO_VSOCK_OP_RST).dst_port, host_port.port);
	do {
		r = rf_connect(rig.guest, sock, &other);
	} while (r == -EADDRINUSE);
	assert_int_equal(r, -ETIMEDOUT);
	assert_int_equal(fake_expect(rig.fake, VIRTIO_VSOCK_OP_REQUEST).dst_port, other.port);
	rig_close(&rig);
}

/* Linux: an operation that answers no REQUEST ends the attempt with RST. */
static void nonsense_in_answer_to_request(void **state)
{
	struct rig *rig = *state;
	struct rf_vsock_hdr request, answer;
	struct blocked b;

	block(&b, rig, new_sock(rig, 0), connect_run);
	request = fake_expect(rig->fake, VIRTIO_VSOCK_OP_REQUEST);
	answer = fake_answer(&request, VIRTIO_VSOCK_OP_CREDIT_UPDATE);
	fake_send(rig->fake, &answer, NULL);
	assert_int_equal(unblocked(&b), -ECONNRESET);
	fake_expect(rig->fake, VIRTIO_VSOCK_OP_RST);
}

static void connect_that_is_not_allowed(void **state)
{
	static const struct {
		int row;
		struct rf_sockaddr addr;
		int result;
	} rows[] = {
		{ 1, { FAKE_CID, 1 }, -ENETUNREACH }, /* ourselves */
		{ 2, { 77, 1 }, -ENETUNREACH },       /* a sibling */
		{ 3, { 1, 1 }, -ENETUNREACH },        /* local */
		{ 4, { RF_CID_ANY, 1 }, -ENETUNREACH },
		{ 5, { RF_CID_HOST, RF_PORT_ANY }, -EINVAL },
	};
	struct rig *rig = *state;
	int sock = new_sock(rig, 0);

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rf_connect(rig->guest, sock, &rows[i].addr) != rows[i].result)
			fail_msg("row %d", rows[i].row);
	assert_int_equal(rf_connect(rig->guest, rig_listen(rig, 5, 1), &host_port), -EINVAL);
	assert_int_equal(rf_connect(rig->guest, sock + 100, &host_port), -EBADF);
	fake_expect_none(rig->fake, 20);
}

static void bind_rules(void **state)
{
	struct rig *rig = *state;
	int a = new_sock(rig, 0), b = new_sock(rig, 0);
	struct rf_sockaddr addr = { RF_CID_ANY, 500 };

	assert_int_equal(rf_bind(rig->guest, a, &(struct rf_sockaddr){ 99, 500 }), -EADDRNOTAVAIL);
	assert_int_equal(rf_bind(rig->guest, a, &addr), 0);
	assert_int_equal(rf_bind(rig->guest, a, &addr), -EINVAL);
	assert_int_equal(rf_bind(rig->guest, b, &addr), -EADDRINUSE);
	/* The wildcard conflicts with the guest's own CID. */
	addr.cid = FAKE_CID;
	assert_int_equal(rf_bind(rig->guest, b, &addr), -EADDRINUSE);
	assert_int_equal(rf_getsockname(rig->guest, a, &addr), 0);
	assert_int_equal(addr.cid, RF_CID_ANY);
	assert_int_equal(addr.port, 500);
	assert_int_equal(rf_close(rig->guest, a), 0);
	addr.cid = FAKE_CID;
	assert_int_equal(rf_bind(rig->guest, b, &addr), 0);
	assert_int_equal(rf_getsockname(rig->guest, b, &addr), 0);
	assert_int_equal(addr.cid, FAKE_CID);
	assert_int_equal(rf_bind(rig->guest, a, &addr), -EBADF);
}

/* CVE-2025-38618: VMADDR_PORT_ANY is never a port; what is picked is free and above 1023. */
static void any_port_is_picked(void **state)
{
	struct rig *rig = *state;
	uint32_t ports[64];

	for (unsigned i = 0; i < 64; i++) {
		struct rf_sockaddr addr = { RF_CID_ANY, RF_PORT_ANY };
		int sock = new_sock(rig, 0);

		assert_int_equal(rf_bind(rig->guest, sock, &addr), 0);
		assert_int_equal(rf_getsockname(rig->guest, sock, &addr), 0);
		assert_true(addr.port > 1023 && addr.port != RF_PORT_ANY);
		ports[i] = addr.port;
		for (unsigned k = 0; k < i; k++)
			assert_int_not_equal(ports[k], addr.port);
	}
}

static void listen_rules(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, 1000);
	int sock = new_sock(rig, 0);

	assert_int_equal(rf_listen(rig->guest, sock, 1), -EINVAL);
	assert_int_equal(rf_listen(rig->guest, c.sock, 1), -EINVAL);
	assert_int_equal(rf_listen(rig->guest, sock + 100, 1), -EBADF);
	assert_int_equal(rf_accept(rig->guest, sock, NULL, 0), -EINVAL);
	assert_int_equal(rf_accept(rig->guest, c.sock, NULL, 0), -EINVAL);
	assert_int_equal(rf_accept(rig->guest, sock, NULL, 1), -EINVAL);
	assert_int_equal(rf_accept(rig->guest, sock + 100, NULL, 0), -EBADF);
	sock = rig_listen(rig, 700, 1);
	assert_int_equal(rf_setsockopt(rig->guest, sock, RF_SO_NONBLOCK, 1), 0);
	assert_int_equal(rf_accept(rig->guest, sock, NULL, 0), -EAGAIN);
	assert_int_equal(rf_listen(rig->guest, sock, 2), 0);
}

static void accepts(void **state)
{
	struct rig *rig = *state;
	int listener = rig_listen(rig, 700, 1), sock;
	struct rf_vsock_hdr hdr = fake_hdr(VIRTIO_VSOCK_OP_REQUEST, 42, 700);
	struct rf_sockaddr peer, addr;
	struct blocked b;
	struct rf_vsock_hdr response;

	block(&b, rig, listener, accept_run);
	fake_send(rig->fake, &hdr, NULL);
	response = fake_expect(rig->fake, VIRTIO_VSOCK_OP_RESPONSE);
	assert_int_equal(response.dst_port, 42);
	assert_int_equal(response.src_port, 700);
	sock = unblocked(&b);
	assert_true(sock > 0);
	assert_int_equal(rf_getpeername(rig->guest, sock, &peer), 0);
	assert_int_equal(peer.cid, RF_CID_HOST);
	assert_int_equal(peer.port, 42);
	assert_int_equal(rf_getsockname(rig->guest, sock, &addr), 0);
	assert_int_equal(addr.port, 700);
	assert_int_equal(addr.cid, FAKE_CID);

	hdr.src_port = 43;
	fake_send(rig->fake, &hdr, NULL);
	fake_expect(rig->fake, VIRTIO_VSOCK_OP_RESPONSE);
	sock = rf_accept(rig->guest, listener, &peer, RF_SOCK_NONBLOCK);
	assert_int_equal(peer.port, 43);
	assert_int_equal(rig_option(rig, sock, RF_SO_NONBLOCK), 1);
	rig_wait_counter(rig, "accepted", 2);
}

static void accepted_sockets_inherit(void **state)
{
	struct rig *rig = *state;
	int listener = rig_listen(rig, 700, 1);
	struct rf_vsock_hdr hdr = fake_hdr(VIRTIO_VSOCK_OP_REQUEST, 42, 700);
	int sock;

	assert_int_equal(rf_setsockopt(rig->guest, listener, RF_SO_BUFFER_SIZE, 8192), 0);
	assert_int_equal(rf_setsockopt(rig->guest, listener, RF_SO_CONNECT_TIMEOUT_MS, 77), 0);
	fake_send(rig->fake, &hdr, NULL);
	assert_int_equal(fake_expect(rig->fake, VIRTIO_VSOCK_OP_RESPONSE).buf_alloc, 8192);
	sock = rf_accept(rig->guest, listener, NULL, 0);
	assert_int_equal(rig_option(rig, sock, RF_SO_BUFFER_SIZE), 8192);
	assert_int_equal(rig_option(rig, sock, RF_SO_CONNECT_TIMEOUT_MS), 77);
}

/* Linux: backlog + 1 fit, then RST; and after an accept the next one fits. */
static void backlog_is_bounded(void **state)
{
	struct rig *rig = *state;
	int listener = rig_listen(rig, 700, 2);
	uint32_t port = 100;

	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 3; i++) {
			struct rf_vsock_hdr hdr = fake_hdr(VIRTIO_VSOCK_OP_REQUEST, port++, 700);

			fake_send(rig->fake, &hdr, NULL);
			fake_expect(rig->fake, VIRTIO_VSOCK_OP_RESPONSE);
		}
		struct rf_vsock_hdr hdr = fake_hdr(VIRTIO_VSOCK_OP_REQUEST, port++, 700);

		fake_send(rig->fake, &hdr, NULL);
		assert_int_equal(fake_expect(rig->fake, VIRTIO_VSOCK_OP_RST).dst_port, port - 1);
		for (int i = 0; i < 3; i++)
			assert_true(rf_accept(rig->guest, listener, NULL, 0) > 0);
	}
	assert_int_equal(rig_counter(rig, "backlog_refusals"), 2);
}

/* CVE-2026-46214's kin, and "accept queue leak": whoever waits is reset when the listener closes.
 */
static void closing_a_listener_resets_who_waits(void **state)
{
	struct rig *rig = *state;
	int listener = rig_listen(rig, 700, 5);
	struct rf_vsock_hdr hdr;
	struct blocked b;

	for (uint32_t i = 0; i < 3; i++) {
		hdr = fake_hdr(VIRTIO_VSOCK_OP_REQUEST, 100 + i, 700);
		fake_send(rig->fake, &hdr, NULL);
		fake_expect(rig->fake, VIRTIO_VSOCK_OP_RESPONSE);
	}
	assert_int_equal(rf_close(rig->guest, listener), 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(fake_expect(rig->fake, VIRTIO_VSOCK_OP_RST).dst_port, 100 + i);
	fake_send(rig->fake, &hdr, NULL);
	fake_expect(rig->fake, VIRTIO_VSOCK_OP_RST);

	listener = rig_listen(rig, 700, 5);
	block(&b, rig, listener, accept_run);
	usleep(20000);
	assert_int_equal(rf_close(rig->guest, listener), 0);
	assert_int_equal(unblocked(&b), -EBADF);
}

/* A connection that was reset before it was accepted is accepted, and says so. */
static void reset_while_waiting_to_be_accepted(void **state)
{
	struct rig *rig = *state;
	int listener = rig_listen(rig, 700, 5), sock;
	struct rf_vsock_hdr hdr = fake_hdr(VIRTIO_VSOCK_OP_REQUEST, 42, 700);
	char byte;

	fake_send(rig->fake, &hdr, NULL);
	hdr.op = VIRTIO_VSOCK_OP_RST;
	fake_send(rig->fake, &hdr, NULL);
	rig_wait_counter(rig, "rx_resets", 1);
	sock = rf_accept(rig->guest, listener, NULL, 0);
	assert_int_equal(rf_recv(rig->guest, sock, &byte, 1, 0), -ECONNRESET);
	assert_int_equal(rf_recv(rig->guest, sock, &byte, 1, 0), 0);
}

static void packets_for_nobody_are_reset(void **state)
{
	static const struct {
		int row;
		uint16_t op;
		bool answered;
	} rows[] = {
		{ 1, VIRTIO_VSOCK_OP_REQUEST, true },
		{ 2, VIRTIO_VSOCK_OP_RESPONSE, true },
		{ 3, VIRTIO_VSOCK_OP_RW, true },
		{ 4, VIRTIO_VSOCK_OP_SHUTDOWN, true },
		{ 5, VIRTIO_VSOCK_OP_CREDIT_UPDATE, true },
		{ 6, 99, true },
		{ 7, VIRTIO_VSOCK_OP_RST, false },
	};
	struct rig *rig = *state;
	struct rf_sockaddr addr = { RF_CID_ANY, 800 };

	/* Bound is not listening. */
	assert_int_equal(rf_bind(rig->guest, new_sock(rig, 0), &addr), 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rf_vsock_hdr hdr = fake_hdr(rows[i].op, 42, 800);

		fake_send(rig->fake, &hdr, NULL);
		if (rows[i].answered)
			hdr = fake_expect(rig->fake, VIRTIO_VSOCK_OP_RST);
		if (hdr.src_port != (rows[i].answered ? 800 : 42))
			fail_msg("row %d", rows[i].row);
	}
	fake_expect_none(rig->fake, 20);
	assert_int_equal(rig_counter(rig, "rx_unmatched"), 6);
}

/* An RST that is owed when a connection of the same name begins is not that connection's. */
static void resets_of_an_earlier_use(void **state)
{
	const struct rig_options options = { .queue_size = 2 };
	struct rf_vsock_hdr hdr;
	struct rig rig;

	(void)state;
	rig_open(&rig, &options);
	rig_listen(&rig, 700, 5);
	/* The one slot for packets without payload goes to the first RST. */
	fake_hold_tx(rig.fake, true);
	hdr = fake_hdr(VIRTIO_VSOCK_OP_CREDIT_UPDATE, 41, 700);
	fake_send(rig.fake, &hdr, NULL);
	hdr = fake_hdr(VIRTIO_VSOCK_OP_CREDIT_UPDATE, 42, 700);
	fake_send(rig.fake, &hdr, NULL);
	hdr = fake_hdr(VIRTIO_VSOCK_OP_REQUEST, 42, 700);
	fake_send(rig.fake, &hdr, NULL);
	rig_wait_counter(&rig, "accepted", 1);
	fake_hold_tx(rig.fake, false);
	assert_int_equal(fake_expect(rig.fake, VIRTIO_VSOCK_OP_RST).dst_port, 41);
	assert_int_equal(fake_expect(rig.fake, VIRTIO_VSOCK_OP_RESPONSE).dst_port, 42);
	fake_expect_none(rig.fake, 20);
	rig_close(&rig);
}

/* Double bind connect (vsock_test 21): one local port, two peers; and the pair again once it ended.
 */
static void a_bound_port_is_used_again(void **state)
{
	struct rig *rig = *state;
	struct rf_sockaddr local = { RF_CID_ANY, 900 };
	struct rf_vsock_hdr request, answer;

	for (int i = 0; i < 3; i++) {
		int sock = new_sock(rig, RF_SOCK_NONBLOCK);
		struct rig_conn c = { .sock = sock };

		assert_int_equal(rf_bind(rig->guest, sock, &local), 0);
		assert_int_equal(rf_connect(rig->guest, sock, &host_port), -EINPROGRESS);
		request = fake_expect(rig->fake, VIRTIO_VSOCK_OP_REQUEST);
		assert_int_equal(request.src_port, 900);
		c.host = answer = fake_answer(&request, VIRTIO_VSOCK_OP_RESPONSE);
		fake_send(rig->fake, &answer, NULL);
		rig_poll(rig, sock, RF_POLLOUT);
		rig_end(rig, &c);
		rig_wait_counter(rig, "ended_closed", (uint64_t)i + 1);
	}
}

/* As long as the peer has not answered our good-bye the pair is taken: for us, and for its RST. */
static void a_pair_that_says_goodbye_is_in_use(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, 1000);
	struct rf_sockaddr local;
	int sock = new_sock(rig, RF_SOCK_NONBLOCK);

	assert_int_equal(rf_getsockname(rig->guest, c.sock, &local), 0);
	local.cid = RF_CID_ANY;
	assert_int_equal(rf_close(rig->guest, c.sock), 0);
	fake_expect(rig->fake, VIRTIO_VSOCK_OP_SHUTDOWN);
	assert_int_equal(rf_bind(rig->guest, sock, &local), 0);
	assert_int_equal(rf_connect(rig->guest, sock, &host_port), -EADDRINUSE);
	rig_send_op(rig, &c, VIRTIO_VSOCK_OP_RST, 0);
	rig_wait_counter(rig, "ended_closed", 1);
	assert_int_equal(rf_connect(rig->guest, sock, &host_port), -EINPROGRESS);
}

/* More connections, one after the other, than there are sockets: each slot is free again. */
static void connections_that_ended_leave_nothing(void **state)
{
	struct rig *rig = *state;
	int listener = rig_listen(rig, 700, 5);

	for (uint32_t i = 0; i < 4200; i++) {
		struct rig_conn c = rig_accept(rig, listener, 700, i);

		rig_send_op(rig, &c, VIRTIO_VSOCK_OP_SHUTDOWN, RF_VSOCK_SHUT_BOTH);
		fake_expect(rig->fake, VIRTIO_VSOCK_OP_RST);
		assert_int_equal(rf_close(rig->guest, c.sock), 0);
	}
}

static void close_ends_a_connect_that_blocks(void **state)
{
	struct rig *rig = *state;
	int sock = new_sock(rig, 0);
	struct blocked b;

	block(&b, rig, sock, connect_run);
	fake_expect(rig->fake, VIRTIO_VSOCK_OP_REQUEST);
	assert_int_equal(rf_close(rig->guest, sock), 0);
	assert_int_equal(unblocked(&b), -EBADF);
	fake_expect(rig->fake, VIRTIO_VSOCK_OP_RST);
}

/* The peer never answers SHUTDOWN: RST after 8 seconds. */
static void goodbye_times_out(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1234, 1000);
	struct rf_vsock_hdr nobody = fake_hdr(VIRTIO_VSOCK_OP_RST, 1, 1);

	assert_int_equal(rf_close(rig->guest, c.sock), 0);
	assert_int_equal(fake_expect(rig->fake, VIRTIO_VSOCK_OP_SHUTDOWN).flags, 3);
	/* Packets wake the guest's thread, which then looks at the clock. */
	warp_clock(7500 * RF_NS_PER_MS);
	fake_send(rig->fake, &nobody, NULL);
	fake_expect_none(rig->fake, 20);
	warp_clock(500 * RF_NS_PER_MS);
	fake_send(rig->fake, &nobody, NULL);
	fake_expect(rig->fake, VIRTIO_VSOCK_OP_RST);
	assert_int_equal(rig_counter(rig, "ended_shutdown_timeout"), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_CASE(connects_and_ends),
		RIG_CASE(connect_blocks_until_decided),
		RIG_CASE(refused_connect_can_be_tried_again),
		RIG_CASE(refused_connect_that_blocks),
		RIG_CASE(silent_back_end_times_out),
		RIG_CASE(late_answer_is_no_answer),
		cmocka_unit_test(failed_connect_says_so_first),
		RIG_CASE(nonsense_in_answer_to_request),
		RIG_CASE(connect_that_is_not_allowed),
		RIG_CASE(bind_rules),
		RIG_CASE(any_port_is_picked),
		RIG_CASE(listen_rules),
		RIG_CASE(accepts),
		RIG_CASE(accepted_sockets_inherit),
		RIG_CASE(backlog_is_bounded),
		RIG_CASE(closing_a_listener_resets_who_waits),
		RIG_CASE(reset_while_waiting_to_be_accepted),
		RIG_CASE(packets_for_nobody_are_reset),
		cmocka_unit_test(resets_of_an_earlier_use),
		RIG_CASE(a_bound_port_is_used_again),
		RIG_CASE(a_pair_that_says_goodbye_is_in_use),
		RIG_CASE(connections_that_ended_leave_nothing),
		RIG_CASE(close_ends_a_connect_that_blocks),
		RIG_CASE(goodbye_times_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
