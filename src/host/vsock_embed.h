/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The plug of streams that end in this process, as ringferry/host.h sees it.
 *
 * Context: the loop thread, unless it says otherwise.
 */
#ifndef RF_HOST_VSOCK_EMBED_H
#define RF_HOST_VSOCK_EMBED_H

#include "host/vsock_plug.h"
#include "ringferry/host.h"

/* What a program tells of a connection. */
enum {
	RF_EMBED_TAKE = RF_HOST_TAKE,
	RF_EMBED_GIVE = RF_HOST_GIVE,
	RF_EMBED_SHUT_TAKE = RF_HOST_TAKE << 2,
	RF_EMBED_SHUT_GIVE = RF_HOST_GIVE << 2,
	RF_EMBED_CLOSE = 1 << 4,
};

/* What rf_embed_ctx() returns for the connections of this plug. */
void rf_embed_set_ctx(struct rf_vsock_plug *plug, void *ctx);
void *rf_embed_ctx(const struct rf_host_conn *conn);

/**
 * rf_embed_listen() - Connections of the guest to a port come here from now on
 * @ops, @ctx:	As given to rf_host_listen()
 *
 * Return: 0; -EADDRINUSE; -ENODEV after rf_embed_mute(); or -ENOMEM.
 */
int rf_embed_listen(struct rf_vsock_plug *plug, uint32_t port, const struct rf_host_stream_ops *ops,
		    void *ctx);

/* Return: 0, or -ENOENT. */
int rf_embed_unlisten(struct rf_vsock_plug *plug, uint32_t port);

/**
 * rf_embed_connect() - Connect to a port of the guest; how that ends is told in the plug's turn
 * Return: 0; -ENOSPC for too many connections; -ENODEV after rf_embed_mute(); or -ENOMEM.
 */
int rf_embed_connect(struct rf_vsock_plug *plug, uint32_t port,
		     const struct rf_host_stream_ops *ops, void *ctx,
		     struct rf_host_conn **ret_conn);

/**
 * rf_embed_tell() - RF_EMBED_* bits, which take effect in the plug's turn
 *
 * Context: any thread.
 * Return: true if the caller has to see to it that the plug has a turn.
 */
bool rf_embed_tell(struct rf_host_conn *conn, unsigned bits);

/* Have the plug's turn come before the loop sleeps. */
void rf_embed_wake(struct rf_vsock_plug *plug);

/* Is a callback of a connection of this plug being made? */
bool rf_embed_calling(const struct rf_vsock_plug *plug);

/* No callback but ended() comes any more, and nothing new begins. */
void rf_embed_mute(struct rf_vsock_plug *plug);

#endif
