/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The life of a connection as guest and host program see it: set-up, half-close, end.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "vsock/limits.h"
#include "vsock_rig.h"

#define REQUEST  VIRTIO_VSOCK_OP_REQUEST
#define RESPONSE VIRTIO_VSOCK_OP_RESPONSE
#define RST      VIRTIO_VSOCK_OP_RST
#define SHUTDOWN VIRTIO_VSOCK_OP_SHUTDOWN
#define RW       VIRTIO_VSOCK_OP_RW

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

/*
 * Open a connection and send more than the host program's socket holds, however much that is here:
 * some of it waits in the device. Return: bytes sent.
 */
static uint32_t open_stuffed(struct vsock_rig *rig, struct fake_conn *c, int *ret_fd)
{
	uint32_t sent = 0;

	rig->options.window = 8u << 20;
	rig_start(rig);
	*ret_fd = rig_open_from_guest(rig, c, 1000);
	while (rig_count(rig, "host", "bounced_bytes") < 100000) {
		assert_true(fake_conn_space(c) >= 65536);
		rig_guest_send(c, sent, 65536);
		sent += 65536;
		rig_skip_updates(rig, c);
	}
	return sent;
}

/* Read all of it, to the end of the file. */
static void read_stuffed(struct vsock_rig *rig, int fd, uint32_t sent)
{
	for (uint32_t at = 0; at < sent; at += 16384) {
		rig_host_read(fd, at, 16384);
		rig_idle(rig);
	}
	rig_host_eof(fd);
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
	int listener, fds[50], n = 0;
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
	int listener;
	struct fake_conn first, second;
	uint64_t turns;

	rig_start(rig);
	listener = rig_listen(rig, RIG_PORT, 0);
	fake_conn_init(&first, &rig->guest, 1000, RIG_PORT);
	fake_conn_control(&first, REQUEST, 0);
	rig_expect(rig, &first, RESPONSE);
	fake_conn_init(&second, &rig->guest, 1001, RIG_PORT);
	fake_conn_control(&second, REQUEST, 0);
	rig_idle(rig);
	turns = rig_count(rig, "host", "turns");
	for (unsigned i = 0; i < 19; i++)
		rig_warp(rig, 100 * RF_NS_PER_MS);
	/* Refused before the guest gives up by itself, which is after two seconds. */
	rig_warp(rig, 99 * RF_NS_PER_MS);
	rig_expect(rig, &second, RST);
	assert_true(rig_count(rig, "host", "turns") - turns < 10);
	assert_int_equal(rig_count(rig, "host", "refused_host"), 1);
	close(listener);
}

/* Half-close */

/* cloud-hypervisor #8300: the answer to what a host program asked, and ended with SHUT_WR. */
static void host_half_closes(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fd;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	rig_host_write(rig, fd, 0, 10000);
	shutdown(fd, SHUT_WR);
	rig_guest_read(rig, &c, 0, 10000);
	expect_shutdown(rig, &c, RF_VSOCK_SHUT_SEND);
	rig_guest_send(&c, 0, 5000);
	rig_idle(rig);
	rig_host_read(fd, 0, 5000);
	rig_host_quiet(fd);
	/* The guest closes: SHUTDOWN(both), and an RST for it. */
	fake_conn_control(&c, SHUTDOWN, RF_VSOCK_SHUT_BOTH);
	rig_expect(rig, &c, RST);
	rig_host_eof(fd);
	expect_over(rig);
	close(fd);
}

/* vhost-device #874, microvm.nix PR 568: the host program sees the end, and answers after it. */
static void guest_half_closes(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fd;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	rig_guest_send(&c, 0, 5000);
	fake_conn_control(&c, SHUTDOWN, RF_VSOCK_SHUT_SEND);
	rig_idle(rig);
	rig_host_read(fd, 0, 5000);
	rig_host_eof(fd);
	rig_host_write(rig, fd, 0, 10000);
	rig_guest_read(rig, &c, 0, 10000);
	close(fd);
	expect_shutdown(rig, &c, RF_VSOCK_SHUT_BOTH);
	fake_conn_control(&c, RST, 0);
	expect_over(rig);
	assert_int_equal(rig_count(rig, "ended", "closed"), 1);
}

static void guest_half_closes_with_data_waiting(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	uint32_t sent;
	int fd;

	sent = open_stuffed(rig, &c, &fd);
	fake_conn_control(&c, SHUTDOWN, RF_VSOCK_SHUT_SEND);
	rig_idle(rig);
	read_stuffed(rig, fd, sent);
	rig_host_write(rig, fd, 0, 100);
	rig_guest_read(rig, &c, 0, 100);
	close(fd);
}

static void both_half_close(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fd;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	rig_guest_send(&c, 0, 10);
	fake_conn_control(&c, SHUTDOWN, RF_VSOCK_SHUT_SEND);
	rig_idle(rig);
	rig_host_write(rig, fd, 0, 20);
	shutdown(fd, SHUT_WR);
	rig_guest_read(rig, &c, 0, 20);
	/* Whether the program is gone or has only shut down both ways looks the same from here. */
	rig_expect(rig, &c, SHUTDOWN);
	rig_host_read(fd, 0, 10);
	rig_host_eof(fd);
	close(fd);
	rig_idle(rig);
	fake_conn_control(&c, SHUTDOWN, RF_VSOCK_SHUT_BOTH);
	while (rig_connections(rig)) {
		struct fake_packet packet;

		rig_idle(rig);
		assert_true(fake_conn_recv(&c, &packet));
		if (packet.hdr.op == RST)
			break;
		assert_int_equal(packet.hdr.op, SHUTDOWN);
	}
	expect_over(rig);
}

/* A guest that does not receive any more: the program's writes fail, the guest still sends. */
static void guest_shuts_receive(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fd;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	fake_conn_control(&c, SHUTDOWN, RF_VSOCK_SHUT_RCV);
	rig_idle(rig);
	assert_int_equal(send(fd, "x", 1, MSG_NOSIGNAL), -1);
	assert_int_equal(errno, EPIPE);
	rig_guest_send(&c, 0, 5000);
	rig_expect_none(rig);
	rig_host_read(fd, 0, 5000);
	close(fd);
	expect_shutdown(rig, &c, RF_VSOCK_SHUT_BOTH);
	fake_conn_control(&c, RST, 0);
	expect_over(rig);
}

/* The end */

static void shutdown_both_is_reset_at_once(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn old, new;
	int old_fd, new_fd;
	uint32_t sent;

	sent = open_stuffed(rig, &old, &old_fd);
	fake_conn_control(&old, SHUTDOWN, RF_VSOCK_SHUT_BOTH);
	rig_expect(rig, &old, RST);
	/* The pair of ports is free although the old bytes are still on their way. */
	new_fd = rig_open_from_guest(rig, &new, 1000);
	assert_int_equal(rig_connections(rig), 2);
	rig_guest_send(&new, 7, 100);
	rig_idle(rig);
	rig_host_read(new_fd, 7, 100);
	read_stuffed(rig, old_fd, sent);
	assert_int_equal(rig_connections(rig), 1);
	close(old_fd);
	close(new_fd);
}

static void guest_resets_with_data_waiting(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	uint32_t sent;
	int fd;

	sent = open_stuffed(rig, &c, &fd);
	fake_conn_control(&c, RST, 0);
	/* An RST is not answered. */
	rig_expect_none(rig);
	read_stuffed(rig, fd, sent);
	expect_over(rig);
	assert_int_equal(rig_count(rig, "ended", "peer_reset"), 1);
	close(fd);
}

static void program_closes_with_data_waiting(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fd;

	(void)open_stuffed(rig, &c, &fd);
	rig_host_write(rig, fd, 0, 100);
	close(fd);
	rig_idle(rig);
	expect_shutdown(rig, &c, RF_VSOCK_SHUT_RCV);
	rig_guest_read(rig, &c, 0, 100);
	expect_shutdown(rig, &c, RF_VSOCK_SHUT_BOTH);
	assert_true(rig_count(rig, "host", "discarded_bytes") > 0);
	fake_conn_control(&c, RST, 0);
	expect_over(rig);
}

/* Firecracker #2464: a program that does not read any more. What it wrote still arrives. */
static void program_shuts_receive(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fd;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	shutdown(fd, SHUT_RD);
	rig_host_write(rig, fd, 0, 3000);
	rig_guest_read(rig, &c, 0, 3000);
	rig_guest_send(&c, 0, 1000);
	expect_shutdown(rig, &c, RF_VSOCK_SHUT_RCV);
	assert_int_equal(rig_count(rig, "host", "discarded_bytes"), 1000);
	/* The credit of what was under way is given back. */
	rig_guest_send(&c, 1000, 65536);
	rig_guest_send(&c, 1000, 65536);
	rig_guest_send(&c, 1000, 65536);
	rig_guest_send(&c, 1000, 65536);
	rig_expect(rig, &c, VIRTIO_VSOCK_OP_CREDIT_UPDATE);
	rig_host_write(rig, fd, 3000, 500);
	rig_guest_read(rig, &c, 3000, 500);
	close(fd);
	expect_shutdown(rig, &c, RF_VSOCK_SHUT_BOTH);
	fake_conn_control(&c, RST, 0);
	expect_over(rig);
}

static void program_writes_and_closes(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fd;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	rig_host_write(rig, fd, 0, 100000);
	close(fd);
	rig_guest_read(rig, &c, 0, 100000);
	expect_shutdown(rig, &c, RF_VSOCK_SHUT_BOTH);
	/* The guest goes on sending before it has seen that: dropped, not answered. */
	rig_guest_send(&c, 0, 100);
	rig_expect_none(rig);
	fake_conn_control(&c, SHUTDOWN, RF_VSOCK_SHUT_BOTH);
	rig_expect(rig, &c, RST);
	expect_over(rig);
	assert_int_equal(rig_count(rig, "ended", "closed"), 1);
}

static void shutdown_not_answered(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fd;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	close(fd);
	expect_shutdown(rig, &c, RF_VSOCK_SHUT_BOTH);
	rig_warp(rig, RF_VSOCK_SHUTDOWN_NS - RF_NS_PER_SEC);
	rig_expect_none(rig);
	rig_warp(rig, RF_NS_PER_SEC + RF_NS_PER_MS);
	rig_expect(rig, &c, RST);
	expect_over(rig);
	assert_int_equal(rig_count(rig, "ended", "shutdown_timeout"), 1);
}

/* The guest's own RST arrives while ours still waits for a receive buffer: it is not sent, and the
 * ports are free. */
static void resets_meet(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c, again;
	int fd;

	rig->guest.auto_post = false;
	rig_start(rig);
	fake_guest_post(&rig->guest, 1, 4096, &fake_shape_one);
	fd = rig_open_from_guest(rig, &c, 1000);
	fake_conn_control(&c, SHUTDOWN, RF_VSOCK_SHUT_BOTH);
	rig_idle(rig);
	fake_conn_control(&c, RST, 0);
	rig_idle(rig);
	assert_int_equal(rig_connections(rig), 0);
	close(fd);
	fake_guest_post(&rig->guest, 2, 4096, &fake_shape_one);
	rig_expect_none(rig);
	fd = rig_open_from_guest(rig, &again, 1000);
	close(fd);
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
	assert_int_equal(packet.hdr.buf_alloc, RF_VSOCK_WINDOW_DEFAULT);
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
	rig_warp(rig, RF_VSOCK_HANDSHAKE_NS - 100 * RF_NS_PER_MS);
	rig_host_quiet(fd);
	rig_warp(rig, 101 * RF_NS_PER_MS);
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

static void host_gives_up(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_packet packet;
	struct fake_conn c;
	int fd;

	rig_start(rig);
	fd = rig_ask(rig, RIG_PORT);
	assert_true(fake_guest_recv(&rig->guest, &packet, NULL));
	fake_conn_init(&c, &rig->guest, RIG_PORT, packet.hdr.src_port);
	close(fd);
	rig_expect(rig, &c, RST);
	expect_over(rig);
}

/* The line and the hang-up are seen in the same moment. */
static void host_asks_and_gives_up(void **state)
{
	struct vsock_rig *rig = *state;
	int fd;

	rig_start(rig);
	fd = rig_connect(rig);
	rig_idle(rig);
	assert_int_equal(write(fd, "CONNECT 1234\n", 13), 13);
	close(fd);
	expect_over(rig);
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

/* Rules that a guest can break, each ends its own connection with an RST and no other. */

struct broken_row {
	const char *name;
	const char *reason;
	bool established;
	uint16_t op;
	uint16_t then;
	uint32_t flags;
	uint32_t data;
};

static const struct broken_row broken_rows[] = {
	{ "REQUEST for an open connection", "bad_state", true, REQUEST, 0, 0, 0 },
	{ "RESPONSE for an open connection", "bad_state", true, RESPONSE, 0, 0, 0 },
	{ "RESPONSE while we connect", "bad_state", false, RESPONSE, 0, 0, 0 },
	{ "unknown operation", "bad_op", true, 42, 0, 0, 0 },
	{ "operation 0", "bad_op", true, 0, 0, 0, 0 },
	{ "data before RESPONSE", "data_early", false, RW, 0, 0, 10 },
	{ "data after SHUTDOWN(send)", "data_late", true, SHUTDOWN, RW, RF_VSOCK_SHUT_SEND, 10 },
};

static void rule_broken(void **state)
{
	const struct broken_row *row = *state;
	struct vsock_rig *rig;
	struct fake_conn c, bystander;
	int fd = -1, other, listener = -1;

	rig_setup(state);
	rig = *state;
	rig_start(rig);
	other = rig_open_from_guest(rig, &bystander, 999);
	if (row->established) {
		fd = rig_open_from_guest(rig, &c, 1000);
	} else {
		/* Its dialling waits for a backlog that is full. */
		listener = rig_listen(rig, RIG_PORT, 0);
		fake_conn_init(&c, &rig->guest, 1001, RIG_PORT);
		fake_conn_control(&c, REQUEST, 0);
		rig_expect(rig, &c, RESPONSE);
		fake_conn_init(&c, &rig->guest, 1000, RIG_PORT);
		fake_conn_control(&c, REQUEST, 0);
		rig_idle(rig);
	}
	if (row->op == RW)
		rig_guest_send(&c, 0, row->data);
	else
		fake_conn_control(&c, row->op, row->flags);
	if (row->then)
		rig_guest_send(&c, 0, row->data);
	rig_expect(rig, &c, RST);
	rig_expect_none(rig);
	assert_int_equal(rig_count(rig, "ended", row->reason), 1);
	if (fd >= 0)
		rig_host_eof(fd);
	rig_guest_send(&bystander, 0, 10);
	rig_idle(rig);
	rig_host_read(other, 0, 10);
	close(fd);
	close(other);
	close(listener);
	rig_teardown(state);
}

#define TEST(name)                                         \
	{                                                  \
#name, name, rig_setup, rig_teardown, NULL \
	}

static const struct CMUnitTest tests[] = {
	TEST(refused_at_once),
	TEST(host_speaks_first_and_closes),
	TEST(order_with_one_buffer),
	TEST(reset_while_dialling),
	TEST(full_backlog),
	TEST(backlog_never_served),
	TEST(host_half_closes),
	TEST(guest_half_closes),
	TEST(guest_half_closes_with_data_waiting),
	TEST(both_half_close),
	TEST(guest_shuts_receive),
	TEST(shutdown_both_is_reset_at_once),
	TEST(guest_resets_with_data_waiting),
	TEST(program_closes_with_data_waiting),
	TEST(program_shuts_receive),
	TEST(program_writes_and_closes),
	TEST(shutdown_not_answered),
	TEST(resets_meet),
	TEST(host_asks),
	TEST(host_refused),
	TEST(host_not_answered),
	TEST(host_not_answered_never_asked),
	TEST(host_gives_up),
	TEST(host_asks_and_gives_up),
	TEST(host_speaks_before_ok),
	TEST(guest_uses_our_ports),
	TEST(port_pair_in_use),
	TEST(no_guest),
};

int main(void)
{
	struct CMUnitTest all[RF_ARRAY_SIZE(tests) + RF_ARRAY_SIZE(broken_rows)];
	size_t n = 0;

	for (; n < RF_ARRAY_SIZE(tests); n++)
		all[n] = tests[n];
	for (size_t i = 0; i < RF_ARRAY_SIZE(broken_rows); i++)
		all[n++] = (struct CMUnitTest){ broken_rows[i].name, rule_broken, NULL, NULL,
						(void *)(uintptr_t)&broken_rows[i] };
	return _cmocka_run_group_tests("vsock-stream", all, n, NULL, NULL);
}
