/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ringferry/host.h: connections of the guest with the program itself.
 */
#include <errno.h>
#include <sys/uio.h>

#include "base/iov.h"
#include "embed_device.h"
#include "vsock/packet.h"

static bool ops_allowed(const struct rf_host_stream_ops *ops)
{
	return ops && ops->size == sizeof(*ops);
}

int rf_host_listen(struct rf_host_device *device, uint32_t port,
		   const struct rf_host_stream_ops *ops, void *ctx)
{
	int r;

	if (!ops_allowed(ops) || port == RF_VSOCK_PORT_ANY)
		return -EINVAL;
	r = rf_embed_hold(device);
	if (r < 0)
		return r;
	r = rf_embed_listen(rf_embed_plug(device), port, ops, ctx);
	rf_embed_release(device);
	return r;
}

int rf_host_unlisten(struct rf_host_device *device, uint32_t port)
{
	int r = rf_embed_hold(device);

	if (r < 0)
		return r;
	r = rf_embed_unlisten(rf_embed_plug(device), port);
	rf_embed_release(device);
	return r;
}

int rf_host_connect(struct rf_host_device *device, uint32_t port,
		    const struct rf_host_stream_ops *ops, void *ctx, struct rf_host_conn **ret_conn)
{
	int r;

	if (!ops_allowed(ops) || port == RF_VSOCK_PORT_ANY)
		return -EINVAL;
	r = rf_embed_hold(device);
	if (r < 0)
		return r;
	r = rf_embed_connect(rf_embed_plug(device), port, ops, ctx, ret_conn);
	rf_embed_release(device);
	return r;
}

static void tell(struct rf_host_conn *conn, unsigned bits)
{
	/* As soon as it is told, the connection may end. */
	struct rf_host_device *device = rf_embed_ctx(conn);

	if (rf_embed_tell(conn, bits))
		rf_embed_kick(device);
}

void rf_host_conn_ready(struct rf_host_conn *conn, int what)
{
	tell(conn, (unsigned)what & (RF_EMBED_TAKE | RF_EMBED_GIVE));
}

void rf_host_conn_shutdown(struct rf_host_conn *conn, int what)
{
	tell(conn, ((unsigned)what & (RF_HOST_TAKE | RF_HOST_GIVE)) << 2);
}

void rf_host_conn_close(struct rf_host_conn *conn)
{
	tell(conn, RF_EMBED_CLOSE);
}

size_t rf_host_copy_out(const struct iovec *iov, int n, size_t offset, void *buf, size_t len)
{
	return rf_iov_copy_out(iov, (unsigned)n, offset, buf, len);
}

size_t rf_host_copy_in(const struct iovec *iov, int n, size_t offset, const void *buf, size_t len)
{
	return rf_iov_copy_in(iov, (unsigned)n, offset, buf, len);
}
