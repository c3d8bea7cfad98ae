/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a connection ends: half-close, end, rules that are broken.
 */
#include <errno.h>
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
	struct rf_vsock_hdr hdr;
	struct fake_conn c;
	int fd;

	(void)open_stuffed(rig, &c, &fd);
	rig_host_write(rig, fd, 0, 100);
	close(fd);
	rig_idle(rig);
	hdr = rig_expect_hdr(rig, &c, SHUTDOWN);
	assert_int_equal(hdr.flags, RF_VSOCK_SHUT_RCV);
	/* What is dropped is consumed. */
	assert_int_equal(hdr.fwd_cnt, c.tx_cnt);
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
	rig_expect(rig, &c, CREDIT_UPDATE);
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

/* What the program sends goes nowhere, and one that does not read either is done. */
static void guest_reset_is_told_before_the_data_is_read(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	uint32_t sent = 0;
	int fd;

	rig->options.window = 8u << 20;
	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	while (!rig_count(rig, "host", "bounced_bytes")) {
		rig_guest_send(&c, sent, 60000);
		sent += 60000;
		rig_skip_updates(rig, &c);
	}
	fake_conn_control(&c, RST, 0);
	rig_idle(rig);
	assert_int_equal(rig_connections(rig), 1);
	assert_int_equal(send(fd, "x", 1, MSG_NOSIGNAL), -1);
	assert_int_equal(errno, EPIPE);
	assert_int_equal(shutdown(fd, SHUT_RD), 0);
	rig_idle(rig);
	assert_int_equal(rig_connections(rig), 0);
	close(fd);
}

static const struct CMUnitTest tests[] = {
	RIG_TEST(host_half_closes),
	RIG_TEST(guest_half_closes),
	RIG_TEST(guest_half_closes_with_data_waiting),
	RIG_TEST(guest_reset_is_told_before_the_data_is_read),
	RIG_TEST(both_half_close),
	RIG_TEST(guest_shuts_receive),
	RIG_TEST(shutdown_both_is_reset_at_once),
	RIG_TEST(guest_resets_with_data_waiting),
	RIG_TEST(program_closes_with_data_waiting),
	RIG_TEST(program_shuts_receive),
	RIG_TEST(program_writes_and_closes),
	RIG_TEST(shutdown_not_answered),
	RIG_TEST(resets_meet),
};

int main(void)
{
	static struct rig_group group;

	rig_group_add_rows(&group, rule_broken, broken_rows, RF_ARRAY_SIZE(broken_rows),
			   sizeof(broken_rows[0]));
	rig_group_add(&group, tests, RF_ARRAY_SIZE(tests));
	return rig_group_run(&group, "vsock-stream");
}
