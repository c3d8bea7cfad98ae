/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a connection begins, asked for by the guest and by a host program.
 */
#include <sys/socket.h>
#include <unistd.h>

#include "vsock/limits.h"
#include "vsock_rig.h"

static void expect_shutdown(struct vsock_rig *rig, struct fake_conn *c, uint32_t flags)
{
	assert_int_equal(rig_expect_hdr(rig, c, SHUTDOWN).flags, flags);
}

/* All connections are gone, and nothing more comes. */
static void expect_over(struct vsock_rig *rig)
{
	rig_expect_none(rig);
	assert_int_equal(rig_connections(rig), 0);
}

/* Guest asks */

static void refused_at_once(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;

	rig_start(rig);
	fake_conn_init(&c, &rig->guest, 1000, RIG_PORT);
	fake_conn_control(&c, REQUEST, 0);
	rig_expect(rig, &c, RST);
	expect_over(rig);
	assert_int_equal(rig_count(rig, "host", "refused_host"), 1);
	assert_int_equal(rig_count(rig, "ended", "local_reset"), 1);
}

static void host_speaks_first_and_closes(void **state)
{
	struct vsock_rig *rig = *state;
	int listener, fd;
	struct fake_conn c;

	rig->guest.auto_post = false;
	rig_start(rig);
	listener = rig_listen(rig, RIG_PORT, 1);
	fake_conn_init(&c, &rig->guest, 1000, RIG_PORT);
	fake_conn_control(&c, REQUEST, 0);
	rig_idle(rig);
	fd = rig_accept(listener);
	rig_host_write(rig, fd, 0, 100);
	close(fd);
	close(listener);
	rig_idle(rig);
	fake_guest_post(&rig->guest, 8, 4096, &fake_shape_one);
	rig_expect(rig, &c, RESPONSE);
	rig_guest_read(rig, &c, 0, 100);
	expect_shutdown(rig, &c, RF_VSOCK_SHUT_BOTH);
	fake_conn_control(&c, RST, 0);
	expect_over(rig);
	assert_int_equal(rig_count(rig, "ended", "closed"), 1);
}

/* One after the other, with one receive buffer at a time. */
static void order_with_one_buffer(void **state)
{
	struct vsock_rig *rig = *state;
	int listener, fd;
	struct fake_conn c;

	rig->guest.auto_post = false;
	rig_start(rig);
	listener = rig_listen(rig, RIG_PORT, 1);
	fake_conn_init(&c, &rig->guest, 1000, RIG_PORT);
	fake_conn_control(&c, REQUEST, 0);
	rig_idle(rig);
	fd = rig_accept(listener);
	rig_host_write(rig, fd, 0, 3);
	close(fd);
	close(listener);
	for (uint32_t i = 0; i < 5; i++) {
		static const uint16_t ops[] = { RESPONSE, RW, RW, RW, SHUTDOWN };

		fake_guest_post(&rig->guest, 1, RF_VSOCK_HDR_BYTES + 1, &fake_shape_one);
		if (ops[i] == RW)
			rig_guest_read(rig, &c, i - 1, 1);
		else
			rig_expect(rig, &c, ops[i]);
		rig_expect_none(rig);
	}
	/* Both have shut down both ways: RST comes from us as well. */
	fake_conn_control(&c, SHUTDOWN, RF_VSOCK_SHUT_BOTH);
	fake_guest_post(&rig->guest, 1, 4096, &fake_shape_one);
	rig_expect(rig, &c, RST);
	expect_over(rig);
}

static void reset_while_dialling(void **state)
{
	struct vsock_rig *rig = *state;
	int listener;
	struct fake_conn first, second;

	rig_start(rig);
	listener = rig_listen(rig, RIG_PORT, 0);
	fake_conn_init(&first, &rig->guest, 1000, RIG_PORT);
	fake_conn_control(&first, REQUEST, 0);
	rig_expect(rig, &first, RESPONSE);
	/* The backlog is full: this one is retried. */
	fake_conn_init(&second, &rig->guest, 1001, RIG_PORT);
	fake_conn_control(&second, REQUEST, 0);
	rig_expect_none(rig);
	assert_int_equal(rig_connections(rig), 2);
	fake_conn_control(&second, RST, 0);
	rig_expect_none(rig);
	rig_warp(rig, 3 * RF_NS_PER_SEC);
	rig_expect_none(rig);
	assert_int_equal(rig_connections(rig), 1);
	assert_int_equal(rig_count(rig, "ended", "peer_reset"), 1);
	close(listener);
}

/* Firecracker PR 5995: 50 connections against a backlog of 5. */
static void full_backlog(void **state)
{
	struct vsock_rig *rig = *state;
	int listener, fds[50] = { 0 }, n = 0;
	struct fake_conn c;

	rig_start(rig);
	listener = rig_listen(rig, RIG_PORT, 5);
	for (uint32_t i = 0; i < 50; i++) {
		fake_conn_init(&c, &rig->guest, 1000 + i, RIG_PORT);
		fake_conn_control(&c, REQUEST, 0);
	}
	rig_idle(rig);
	for (unsigned round = 0; round < 20; round++) {
		int fd;

		while ((fd = accept(listener, NULL, NULL)) >= 0)
			fds[n++] = fd;
		rig_warp(rig, 64 * RF_NS_PER_MS);
	}
	assert_int_equal(n, 50);
	for (uint32_t i = 0; i < 50; i++) {
		struct fake_packet packet;

		assert_true(fake_guest_recv(&rig->guest, &packet, NULL));
		assert_int_equal(packet.hdr.op, RESPONSE);
	}
	while (n)
		close(fds[--n]);
	close(listener);
}

static void backlog_never_served(void **state)
{
	struct vsock_rig *rig = *state;
	int listener, other;
	struct fake_conn bystander, first, second;
	uint64_t turns;

	rig_start(rig);
	other = rig_open_from_guest(rig, &bystander, 999);
	listener = rig_listen(rig, RIG_PORT, 0);
	fake_conn_init(&first, &rig->guest, 1000, RIG_PORT);
	fake_conn_control(&first, REQUEST, 0);
	rig_expect(rig, &first, RESPONSE);
	fake_conn_init(&second, &rig->guest, 1001, RIG_PORT);
	fake_conn_control(&second, REQUEST, 0);
	rig_idle(rig);
	/* Nobody else waits with it. */
	for (uint32_t i = 0; i < 5; i++) {
		rig_host_write(rig, other, 100 * i, 100);
		rig_guest_read(rig, &bystander, 100 * i, 100);
	}
	turns = rig_count(rig, "host", "turns");
	for (unsigned i = 0; i < 19; i++)
		rig_warp(rig, 100 * RF_NS_PER_MS);
	/* Refused before the guest gives up by itself, which is after two seconds. */
	rig_warp(rig, 99 * RF_NS_PER_MS);
	rig_expect(rig, &second, RST);
	assert_true(rig_count(rig, "host", "turns") - turns < 10);
	assert_int_equal(rig_count(rig, "host", "refused_host"), 1);
	close(other);
	close(listener);
}

/* A guest need not wait for RESPONSE: Linux does so when connect(2) does not block. */
static void shut_down_while_dialling(void **state)
{
	struct vsock_rig *rig = *state;
	int listener, fd;
	struct fake_conn c;

	rig_start(rig);
	listener = rig_listen(rig, RIG_PORT, 2);
	for (uint32_t i = 0; i < 2; i++) {
		static const uint32_t flags[] = { RF_VSOCK_SHUT_SEND, RF_VSOCK_SHUT_RCV };

		fake_conn_init(&c, &rig->guest, 1000 + i, RIG_PORT);
		fake_conn_control(&c, REQUEST, 0);
		fake_conn_control(&c, SHUTDOWN, flags[i]);
		rig_expect(rig, &c, RESPONSE);
		fd = rig_accept(listener);
		if (flags[i] == RF_VSOCK_SHUT_SEND) {
			rig_host_eof(fd);
			rig_host_write(rig, fd, 0, 100);
			rig_guest_read(rig, &c, 0, 100);
		} else {
			assert_int_equal(send(fd, "x", 1, MSG_NOSIGNAL), -1);
			rig_guest_send(&c, 0, 100);
			rig_idle(rig);
			rig_host_read(fd, 0, 100);
		}
		close(fd);
		expect_shutdown(rig, &c, RF_VSOCK_SHUT_BOTH);
		fake_conn_control(&c, RST, 0);
		expect_over(rig);
	}
	close(listener);
}

/*
 * Stray packets of an earlier use of the ports have been taken, and their RSTs wait for buffers,
 * when the guest uses the ports anew: the new connection is not for them.
 */
static void resets_of_an_earlier_use(void **state)
{
	struct vsock_rig *rig = *state;
	int listener, fd;
	struct fake_conn c, stray;

	rig->guest.auto_post = false;
	rig_start(rig);
	listener = rig_listen(rig, RIG_PORT, 1);
	fake_conn_init(&stray, &rig->guest, 999, RIG_PORT);
	fake_conn_init(&c, &rig->guest, 1000, RIG_PORT);
	for (unsigned i = 0; i < 3; i++) {
		fake_conn_control(&stray, CREDIT_UPDATE, 0);
		fake_conn_control(&c, CREDIT_UPDATE, 0);
	}
	fake_conn_control(&c, REQUEST, 0);
	rig_idle(rig);
	fd = rig_accept(listener);
	fake_guest_post(&rig->guest, 20, 4096, &fake_shape_one);
	rig_expect(rig, &stray, RST);
	rig_expect(rig, &c, RESPONSE);
	rig_expect(rig, &stray, RST);
	rig_expect(rig, &stray, RST);
	rig_works(rig, &c, fd, 0);
	close(fd);
	close(listener);
}

/* Host asks */

static void host_asks(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_packet packet;
	struct fake_conn c;
	int fd;

	rig_start(rig);
	fd = rig_ask(rig, RIG_PORT);
	/* Firecracker #1479: OK only when the guest has accepted. */
	rig_host_quiet(fd);
	assert_true(fake_guest_recv(&rig->guest, &packet, NULL));
	assert_int_equal(packet.hdr.op, REQUEST);
	assert_int_equal(packet.hdr.dst_port, RIG_PORT);
	assert_true(packet.hdr.src_port >= RF_VSOCK_PORT_FIRST);
	assert_int_equal(packet.hdr.buf_alloc, RIG_WINDOW);
	fake_conn_init(&c, &rig->guest, RIG_PORT, packet.hdr.src_port);
	c.peer_buf_alloc = packet.hdr.buf_alloc;
	fake_conn_control(&c, RESPONSE, 0);
	rig_guest_send(&c, 0, 100);
	rig_idle(rig);
	{
		char ok[9] = "";

		assert_int_equal(read(fd, ok, 8), 8);
		assert_string_equal(ok, "OK 1234\n");
	}
	rig_host_read(fd, 0, 100);
	rig_host_write(rig, fd, 0, 10);
	rig_guest_read(rig, &c, 0, 10);
	close(fd);
	rig_expect(rig, &c, SHUTDOWN);
	fake_conn_control(&c, RST, 0);
	expect_over(rig);
}

/* libkrun #684, #116: closed at once, and nothing is left of it. */
static void host_refused(void **state)
{
	struct vsock_rig *rig = *state;

	rig_start(rig);
	for (unsigned i = 0; i < 100; i++) {
		struct fake_packet packet;
		struct fake_conn c;
		int fd = rig_ask(rig, RIG_PORT);

		assert_true(fake_guest_recv(&rig->guest, &packet, NULL));
		fake_conn_init(&c, &rig->guest, RIG_PORT, packet.hdr.src_port);
		fake_conn_control(&c, RST, 0);
		rig_idle(rig);
		rig_host_eof(fd);
		close(fd);
		expect_over(rig);
	}
	assert_int_equal(rig_count(rig, "ended", "refused"), 100);
}

static void host_not_answered(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_packet packet;
	struct fake_conn c;
	int fd;

	rig_start(rig);
	fd = rig_ask(rig, RIG_PORT);
	assert_true(fake_guest_recv(&rig->guest, &packet, NULL));
	fake_conn_init(&c, &rig->guest, RIG_PORT, packet.hdr.src_port);
	rig_warp(rig, RF_VSOCK_HANDSHAKE_NS - RF_NS_PER_SEC);
	rig_host_quiet(fd);
	rig_warp(rig, RF_NS_PER_SEC);
	rig_host_eof(fd);
	rig_expect(rig, &c, RST);
	expect_over(rig);
	assert_int_equal(rig_count(rig, "ended", "handshake_timeout"), 1);
	close(fd);
}

/* A guest that never saw the REQUEST hears nothing of it at all. */
static void host_not_answered_never_asked(void **state)
{
	struct vsock_rig *rig = *state;
	int fd;

	rig->guest.auto_post = false;
	rig_start(rig);
	fd = rig_ask(rig, RIG_PORT);
	rig_warp(rig, RF_VSOCK_HANDSHAKE_NS + RF_NS_PER_MS);
	rig_host_eof(fd);
	fake_guest_post(&rig->guest, 4, 4096, &fake_shape_one);
	expect_over(rig);
	close(fd);
}

/* A program that asks and leaves before the guest answered, as with TCP: what it sent arrives. */
static void leave_before_ok(struct vsock_rig *rig, size_t bytes)
{
	struct fake_packet packet;
	struct fake_conn c;
	int fd;

	rig_start(rig);
	fd = rig_connect(rig);
	rig_idle(rig);
	/* The line and the hang-up are seen in the same moment. */
	assert_int_equal(write(fd, "CONNECT 1234\n", 13), 13);
	if (bytes)
		rig_host_write(rig, fd, 0, bytes);
	close(fd);
	rig_idle(rig);
	assert_true(fake_guest_recv(&rig->guest, &packet, NULL));
	fake_conn_init(&c, &rig->guest, RIG_PORT, packet.hdr.src_port);
	rig_expect_none(rig);
	fake_conn_control(&c, RESPONSE, 0);
	if (bytes)
		rig_guest_read(rig, &c, 0, bytes);
	expect_shutdown(rig, &c, RF_VSOCK_SHUT_BOTH);
	fake_conn_control(&c, RST, 0);
	expect_over(rig);
}

static void host_leaves_before_ok(void **state)
{
	leave_before_ok(*state, 0);
}

static void host_speaks_and_leaves_before_ok(void **state)
{
	leave_before_ok(*state, 9000);
}

/* Bytes that follow the line without waiting for OK, and an early end. */
static void host_speaks_before_ok(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_packet packet;
	struct fake_conn c;
	int fd;

	rig_start(rig);
	fd = rig_connect(rig);
	assert_int_equal(write(fd, "CONNECT 1234\n", 13), 13);
	rig_host_write(rig, fd, 0, 9000);
	shutdown(fd, SHUT_WR);
	rig_idle(rig);
	assert_true(fake_guest_recv(&rig->guest, &packet, NULL));
	fake_conn_init(&c, &rig->guest, RIG_PORT, packet.hdr.src_port);
	rig_expect_none(rig);
	fake_conn_control(&c, RESPONSE, 0);
	rig_guest_read(rig, &c, 0, 9000);
	expect_shutdown(rig, &c, RF_VSOCK_SHUT_SEND);
	close(fd);
}

/* GHSA-383j-pr26-f5vr: ports belong to who allocated them. */
static void guest_uses_our_ports(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_packet packet;
	struct fake_conn c, other;
	uint32_t first;
	int fd, fd2;

	rig_start(rig);
	fd = rig_open_from_host(rig, &c);
	first = c.host_port;
	/* The guest dials the very port that the next connection of the host would get. */
	fake_conn_init(&other, &rig->guest, RIG_PORT, first + 1);
	fake_conn_control(&other, REQUEST, 0);
	rig_expect(rig, &other, RST);
	/* And the one that is in use, from a port that is not: refused, nothing else. */
	fake_conn_init(&other, &rig->guest, 77, first);
	fake_conn_control(&other, REQUEST, 0);
	rig_expect(rig, &other, RST);
	fd2 = rig_ask(rig, RIG_PORT);
	assert_true(fake_guest_recv(&rig->guest, &packet, NULL));
	assert_int_equal(packet.hdr.op, REQUEST);
	assert_int_not_equal(packet.hdr.src_port, first);
	rig_host_write(rig, fd, 0, 10);
	rig_guest_read(rig, &c, 0, 10);
	close(fd);
	close(fd2);
}

/* A port pair that a guest-initiated connection holds is not given to a host program. */
static void port_pair_in_use(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_packet packet;
	struct fake_conn c, other;
	int fd, fd2, fd3, listener;

	rig_start(rig);
	fd = rig_open_from_host(rig, &c);
	listener = rig_listen(rig, c.host_port + 1, 1);
	fake_conn_init(&other, &rig->guest, RIG_PORT, c.host_port + 1);
	fake_conn_control(&other, REQUEST, 0);
	rig_expect(rig, &other, RESPONSE);
	fd2 = rig_accept(listener);
	fd3 = rig_ask(rig, RIG_PORT);
	assert_true(fake_guest_recv(&rig->guest, &packet, NULL));
	assert_int_equal(packet.hdr.op, REQUEST);
	assert_int_equal(packet.hdr.src_port, c.host_port + 2);
	rig_guest_send(&other, 0, 10);
	rig_idle(rig);
	rig_host_read(fd2, 0, 10);
	close(fd);
	close(fd2);
	close(fd3);
	close(listener);
}

static void no_guest(void **state)
{
	struct vsock_rig *rig = *state;
	int fd;

	rig_serve(rig);
	fd = rig_ask(rig, RIG_PORT);
	rig_host_eof(fd);
	assert_int_equal(rig_count(rig, "host", "refused_no_guest"), 1);
	close(fd);
}

static const struct CMUnitTest tests[] = {
	RIG_TEST(refused_at_once),
	RIG_TEST(host_speaks_first_and_closes),
	RIG_TEST(order_with_one_buffer),
	RIG_TEST(reset_while_dialling),
	RIG_TEST(full_backlog),
	RIG_TEST(backlog_never_served),
	RIG_TEST(shut_down_while_dialling),
	RIG_TEST(resets_of_an_earlier_use),
	RIG_TEST(host_asks),
	RIG_TEST(host_refused),
	RIG_TEST(host_not_answered),
	RIG_TEST(host_not_answered_never_asked),
	RIG_TEST(host_leaves_before_ok),
	RIG_TEST(host_speaks_and_leaves_before_ok),
	RIG_TEST(host_speaks_before_ok),
	RIG_TEST(guest_uses_our_ports),
	RIG_TEST(port_pair_in_use),
	RIG_TEST(no_guest),
};

int main(void)
{
	static struct rig_group group;

	rig_group_add(&group, tests, RF_ARRAY_SIZE(tests));
	return rig_group_run(&group, "vsock-open");
}
