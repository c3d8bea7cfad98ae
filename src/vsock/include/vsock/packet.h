/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The vsock packet header (virtio 1.2 5.10.6), as a private copy in host byte order.
 */
#ifndef RF_VSOCK_PACKET_H
#define RF_VSOCK_PACKET_H

#include <linux/virtio_vsock.h>
#include <stdbool.h>
#include <stdint.h>

#include "vsock/reason.h"

#define RF_VSOCK_HDR_BYTES 44u

#define RF_VSOCK_CID_HYPERVISOR 0u
#define RF_VSOCK_CID_LOCAL      1u
#define RF_VSOCK_CID_HOST       2u
#define RF_VSOCK_CID_ANY        UINT32_MAX
#define RF_VSOCK_PORT_ANY       UINT32_MAX

/* Bits of SHUTDOWN, from the sender's view: "I will not receive", "I will not send". */
#define RF_VSOCK_SHUT_RCV  1u
#define RF_VSOCK_SHUT_SEND 2u
#define RF_VSOCK_SHUT_BOTH 3u

/**
 * struct rf_vsock_hdr - A packet header in host byte order; fields as in the specification
 */
struct rf_vsock_hdr {
	uint64_t src_cid;
	uint64_t dst_cid;
	uint32_t src_port;
	uint32_t dst_port;
	uint32_t len;
	uint16_t type;
	uint16_t op;
	uint32_t flags;
	uint32_t buf_alloc;
	uint32_t fwd_cnt;
};

/* Read a header from its 44 bytes on the wire, and write it. */
void rf_vsock_hdr_decode(const uint8_t wire[RF_VSOCK_HDR_BYTES], struct rf_vsock_hdr *ret_hdr);
void rf_vsock_hdr_encode(const struct rf_vsock_hdr *hdr, uint8_t ret_wire[RF_VSOCK_HDR_BYTES]);

/**
 * rf_vsock_hdr_reset() - The RST that answers a packet
 * @hdr:	Packet that cannot be served
 * @ret_reset:	RST with its addresses swapped, its type kept and no credit
 *
 * Return: false if @hdr is an RST itself, which is never answered.
 */
bool rf_vsock_hdr_reset(const struct rf_vsock_hdr *hdr, struct rf_vsock_hdr *ret_reset);

/* May this CID be given to a guest? Not 0, 1, 2, 2^32-1, nor anything above 32 bits. */
bool rf_vsock_cid_usable(uint64_t cid);

#endif
