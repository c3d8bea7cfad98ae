/* SPDX-License-Identifier: BSD-3-Clause */
#include "embed_lab.h"

#include <errno.h>
#include <stdlib.h>

#include "vsock_embed.h"

static void call(struct embed_peer *peer, void (*hook)(struct embed_peer *peer))
{
	if (hook)
		hook(peer);
}

int embed_on_accept(void *ctx, struct rf_host_conn *conn, uint32_t guest_port, void **ret_ctx)
{
	struct embed_peer *peer = ctx;

	assert_ptr_equal(*ret_ctx, ctx);
	peer->n_accepted++;
	if (!peer->refuse)
		peer->conn = conn;
	peer->guest_port = guest_port;
	call(peer, peer->in_accept);
	return peer->refuse;
}

static void on_connected(void *ctx, struct rf_host_conn *conn)
{
	struct embed_peer *peer = ctx;

	assert_ptr_equal(conn, peer->conn);
	peer->n_connected++;
	call(peer, peer->in_connected);
}

static ssize_t on_take(void *ctx, struct rf_host_conn *conn, const struct iovec *iov, int n)
{
	static uint8_t buf[1 << 20];
	struct embed_peer *peer = ctx;
	size_t len = rf_min_size(peer->room, sizeof(buf));

	assert_ptr_equal(conn, peer->conn);
	assert_false(peer->shut & RF_HOST_TAKE || peer->n_ended);
	peer->n_takes++;
	call(peer, peer->in_take);
	if (peer->take_error)
		return peer->take_error;
	len = rf_host_copy_out(iov, n, 0, buf, len);
	rig_check(buf, len, peer->taken);
	peer->taken += len;
	peer->room -= len;
	return len ? (ssize_t)len : -EAGAIN;
}

static ssize_t on_give(void *ctx, struct rf_host_conn *conn, const struct iovec *iov, int n)
{
	static uint8_t buf[1 << 20];
	struct embed_peer *peer = ctx;
	size_t len = rf_min_size(peer->have, sizeof(buf));

	assert_ptr_equal(conn, peer->conn);
	assert_false(peer->shut & RF_HOST_GIVE || peer->n_ended);
	peer->n_gives++;
	call(peer, peer->in_give);
	if (peer->give_error)
		return peer->give_error == 1 ? 0 : peer->give_error;
	rig_fill(buf, len, peer->given);
	len = rf_host_copy_in(iov, n, 0, buf, len);
	peer->given += len;
	peer->have -= len;
	return len ? (ssize_t)len : -EAGAIN;
}

static void on_shut(void *ctx, struct rf_host_conn *conn, int what)
{
	struct embed_peer *peer = ctx;

	assert_ptr_equal(conn, peer->conn);
	assert_false(peer->shut & what || peer->n_ended);
	peer->shut |= what;
	call(peer, peer->in_shut);
}

void embed_on_ended(void *ctx, struct rf_host_conn *conn, int how)
{
	struct embed_peer *peer = ctx;

	assert_ptr_equal(conn, peer->conn);
	assert_int_equal(peer->n_ended, 0);
	peer->n_ended++;
	peer->how = how;
	call(peer, peer->in_ended);
}

const struct rf_host_stream_ops embed_ops = {
	.size = sizeof(embed_ops),
	.accept = embed_on_accept,
	.connected = on_connected,
	.take = on_take,
	.give = on_give,
	.shut = on_shut,
	.ended = embed_on_ended,
};

const struct rf_host_stream_ops embed_no_ops = { .size = sizeof(embed_no_ops) };

struct rf_vsock_plug *embed_plug(const struct vsock_rig *rig)
{
	return rf_vsock_device_plug(rig->device, &rf_vsock_plug_embed);
}

void embed_tell(struct embed_peer *peer, unsigned bits)
{
	(void)rf_embed_tell(peer->conn, bits);
	rf_embed_wake(embed_plug(peer->rig));
}

void embed_start(struct vsock_rig *rig)
{
	rig_start(rig);
	assert_int_equal(rf_embed_listen(embed_plug(rig), 1, &embed_no_ops, NULL), 0);
	assert_int_equal(rf_embed_unlisten(embed_plug(rig), 1), 0);
	assert_int_equal(rf_embed_unlisten(embed_plug(rig), 1), -ENOENT);
}

struct embed_peer *embed_listen(struct vsock_rig *rig, uint32_t port)
{
	struct embed_peer *peer = calloc(1, sizeof(*peer));

	assert_non_null(peer);
	peer->rig = rig;
	peer->room = SIZE_MAX;
	assert_int_equal(rf_embed_listen(embed_plug(rig), port, &embed_ops, peer), 0);
	assert_int_equal(rf_embed_listen(embed_plug(rig), port, &embed_ops, peer), -EADDRINUSE);
	return peer;
}

struct embed_peer *embed_open(struct vsock_rig *rig, struct fake_conn *c)
{
	struct embed_peer *peer;

	embed_start(rig);
	peer = embed_listen(rig, RIG_PORT);
	fake_conn_init(c, &rig->guest, EMBED_GUEST_PORT, RIG_PORT);
	fake_conn_control(c, REQUEST, 0);
	rig_expect(rig, c, RESPONSE);
	assert_int_equal(peer->n_accepted, 1);
	assert_int_equal(peer->guest_port, EMBED_GUEST_PORT);
	return peer;
}

struct embed_peer *embed_ask(struct vsock_rig *rig)
{
	struct embed_peer *peer = calloc(1, sizeof(*peer));

	assert_non_null(peer);
	peer->rig = rig;
	peer->room = SIZE_MAX;
	assert_int_equal(rf_embed_connect(embed_plug(rig), RIG_PORT, &embed_ops, peer, &peer->conn),
			 0);
	return peer;
}

struct embed_peer *embed_ask_received(struct vsock_rig *rig, struct fake_conn *c)
{
	struct embed_peer *peer = embed_ask(rig);
	struct fake_packet packet;

	rig_idle(rig);
	assert_true(fake_guest_recv(&rig->guest, &packet, NULL));
	assert_int_equal(packet.hdr.op, REQUEST);
	assert_int_equal(packet.hdr.dst_port, RIG_PORT);
	fake_conn_init(c, &rig->guest, RIG_PORT, packet.hdr.src_port);
	c->peer_buf_alloc = packet.hdr.buf_alloc;
	return peer;
}

void embed_expect_ended(struct embed_peer *peer, int how)
{
	rig_expect_none(peer->rig);
	assert_int_equal(peer->n_ended, 1);
	assert_int_equal(peer->how, how);
	assert_int_equal(rig_connections(peer->rig), 0);
	free(peer);
}

void embed_guest_ends(struct embed_peer *peer, struct fake_conn *c)
{
	fake_conn_control(c, SHUTDOWN, RF_VSOCK_SHUT_BOTH);
	rig_expect(peer->rig, c, RST);
	embed_expect_ended(peer, 0);
}
