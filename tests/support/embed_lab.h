/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The program's end of streams that end in this process, on a vsock_rig. To be used with cmocka.
 */
#ifndef EMBED_LAB_H
#define EMBED_LAB_H

#include "ringferry/host.h"
#include "vsock_rig.h"

#define EMBED_GUEST_PORT 1000u

/**
 * struct embed_peer - The program's end of a connection
 * @conn:	Connection
 * @room:	What take() still takes
 * @have:	What give() still gives
 * @taken, @given: Bytes of the pattern that it took and gave
 * @take_error, @give_error: What they return instead; 1 is the end of file
 * @n_accepted, @n_connected, @n_takes, @n_gives, @n_ended: Calls
 * @guest_port:	What accept() was told
 * @shut:	What shut() was told
 * @how:	What ended() was told
 * @in_accept and so on: Called from there
 */
struct embed_peer {
	struct rf_host_conn *conn;
	size_t room, have;
	uint64_t taken, given;
	int take_error, give_error;
	unsigned n_accepted, n_connected, n_takes, n_gives, n_ended;
	uint32_t guest_port;
	int shut, how;
	int refuse;
	void (*in_accept)(struct embed_peer *peer);
	void (*in_connected)(struct embed_peer *peer);
	void (*in_take)(struct embed_peer *peer);
	void (*in_give)(struct embed_peer *peer);
	void (*in_shut)(struct embed_peer *peer);
	void (*in_ended)(struct embed_peer *peer);
	struct vsock_rig *rig;
};

/* Callbacks whose ctx is a struct embed_peer; and none, each of which has its meaning. */
extern const struct rf_host_stream_ops embed_ops, embed_no_ops;

int embed_on_accept(void *ctx, struct rf_host_conn *conn, uint32_t guest_port, void **ret_ctx);
void embed_on_ended(void *ctx, struct rf_host_conn *conn, int how);

struct rf_vsock_plug *embed_plug(const struct vsock_rig *rig);

/* Tell RF_EMBED_* bits. */
void embed_tell(struct embed_peer *peer, unsigned bits);

/* Serve and boot. */
void embed_start(struct vsock_rig *rig);

/* A port that is served. One connection that the guest has asked for there, and the answer. */
struct embed_peer *embed_listen(struct vsock_rig *rig, uint32_t port);
struct embed_peer *embed_open(struct vsock_rig *rig, struct fake_conn *c);

/* A connection that the program asks for; the guest has the REQUEST. */
struct embed_peer *embed_ask(struct vsock_rig *rig);
struct embed_peer *embed_ask_received(struct vsock_rig *rig, struct fake_conn *c);

/* It is over, on both sides, and @peer is freed; the same after the guest has ended it. */
void embed_expect_ended(struct embed_peer *peer, int how);
void embed_guest_ends(struct embed_peer *peer, struct fake_conn *c);

#endif
