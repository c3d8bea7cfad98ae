/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_guest.h"

void fake_conn_init(struct fake_conn *c, struct fake_guest *g, uint32_t port, uint32_t host_port)
{
	*c = (struct fake_conn){
		.guest = g,
		.port = port,
		.host_port = host_port,
		.buf_alloc = 262144,
	};
}

struct rf_vsock_hdr fake_conn_hdr(const struct fake_conn *c, uint16_t op, uint32_t len)
{
	return (struct rf_vsock_hdr){
		.src_cid = c->guest->cid,
		.dst_cid = RF_VSOCK_CID_HOST,
		.src_port = c->port,
		.dst_port = c->host_port,
		.len = len,
		.type = VIRTIO_VSOCK_TYPE_STREAM,
		.op = op,
		.buf_alloc = c->buf_alloc,
		.fwd_cnt = c->fwd_cnt,
	};
}

void fake_conn_control(struct fake_conn *c, uint16_t op, uint32_t flags)
{
	struct rf_vsock_hdr hdr = fake_conn_hdr(c, op, 0);

	hdr.flags = flags;
	fake_guest_send(c->guest, &hdr, NULL, 0, &fake_shape_one);
}

void fake_conn_put(struct fake_conn *c, const void *data, uint32_t bytes,
		   const struct fake_shape *shape)
{
	struct rf_vsock_hdr hdr = fake_conn_hdr(c, VIRTIO_VSOCK_OP_RW, bytes);

	c->tx_cnt += bytes;
	fake_guest_put(c->guest, &hdr, data, bytes, shape);
}

void fake_conn_send(struct fake_conn *c, const void *data, uint32_t bytes)
{
	fake_conn_put(c, data, bytes, &fake_shape_one);
	fake_guest_kick(c->guest, FAKE_TX);
}

uint32_t fake_conn_space(const struct fake_conn *c)
{
	return c->peer_buf_alloc - (c->tx_cnt - c->peer_fwd_cnt);
}

bool fake_conn_recv(struct fake_conn *c, struct fake_packet *ret_packet)
{
	const struct rf_vsock_hdr *hdr = &ret_packet->hdr;

	if (!fake_guest_recv(c->guest, ret_packet, NULL))
		return false;
	FAKE_CHECK(hdr->src_cid == RF_VSOCK_CID_HOST && hdr->dst_cid == c->guest->cid);
	FAKE_CHECK(hdr->src_port == c->host_port && hdr->dst_port == c->port);
	FAKE_CHECK(hdr->type == VIRTIO_VSOCK_TYPE_STREAM);
	FAKE_CHECK(hdr->op == VIRTIO_VSOCK_OP_RW ? hdr->len : !hdr->len);
	c->rx_cnt += hdr->len;
	FAKE_CHECK(c->rx_cnt - c->fwd_cnt <= c->buf_alloc || !hdr->len);
	if (hdr->op != VIRTIO_VSOCK_OP_RST) {
		FAKE_CHECK(hdr->fwd_cnt - c->peer_fwd_cnt <= c->tx_cnt - c->peer_fwd_cnt);
		c->peer_buf_alloc = hdr->buf_alloc;
		c->peer_fwd_cnt = hdr->fwd_cnt;
	}
	return true;
}
