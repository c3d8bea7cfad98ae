/* SPDX-License-Identifier: BSD-3-Clause */
#include "vsock/packet.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

static_assert(sizeof(struct virtio_vsock_hdr) == RF_VSOCK_HDR_BYTES, "header on the wire");

void rf_vsock_hdr_decode(const uint8_t wire[RF_VSOCK_HDR_BYTES], struct rf_vsock_hdr *ret_hdr)
{
	struct virtio_vsock_hdr le;

	memcpy(&le, wire, sizeof(le));
	*ret_hdr = (struct rf_vsock_hdr){
		.src_cid = le64toh(le.src_cid),
		.dst_cid = le64toh(le.dst_cid),
		.src_port = le32toh(le.src_port),
		.dst_port = le32toh(le.dst_port),
		.len = le32toh(le.len),
		.type = le16toh(le.type),
		.op = le16toh(le.op),
		.flags = le32toh(le.flags),
		.buf_alloc = le32toh(le.buf_alloc),
		.fwd_cnt = le32toh(le.fwd_cnt),
	};
}

void rf_vsock_hdr_encode(const struct rf_vsock_hdr *hdr, uint8_t ret_wire[RF_VSOCK_HDR_BYTES])
{
	struct virtio_vsock_hdr le = {
		.src_cid = htole64(hdr->src_cid),
		.dst_cid = htole64(hdr->dst_cid),
		.src_port = htole32(hdr->src_port),
		.dst_port = htole32(hdr->dst_port),
		.len = htole32(hdr->len),
		.type = htole16(hdr->type),
		.op = htole16(hdr->op),
		.flags = htole32(hdr->flags),
		.buf_alloc = htole32(hdr->buf_alloc),
		.fwd_cnt = htole32(hdr->fwd_cnt),
	};

	memcpy(ret_wire, &le, sizeof(le));
}

bool rf_vsock_hdr_reset(const struct rf_vsock_hdr *hdr, struct rf_vsock_hdr *ret_reset)
{
	if (hdr->op == VIRTIO_VSOCK_OP_RST)
		return false;
	*ret_reset = (struct rf_vsock_hdr){
		.src_cid = hdr->dst_cid,
		.dst_cid = hdr->src_cid,
		.src_port = hdr->dst_port,
		.dst_port = hdr->src_port,
		.type = hdr->type,
		.op = VIRTIO_VSOCK_OP_RST,
	};
	return true;
}

bool rf_vsock_cid_usable(uint64_t cid)
{
	return cid > RF_VSOCK_CID_HOST && cid < RF_VSOCK_CID_ANY;
}
