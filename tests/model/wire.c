/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire.h"

#include <string.h>

#include "base/util.h"
#include "model_run.h"
#include "op_name.h"
#include "prng.h"

static struct wire_pair *pair_of(struct wire *wire, unsigned from, const struct rf_vsock_hdr *hdr)
{
	uint32_t port[2];
	struct wire_pair *pair = wire->pairs;

	port[from] = hdr->src_port;
	port[!from] = hdr->dst_port;
	for (; pair < wire->pairs + wire->n_pairs; pair++) {
		if (pair->port[0] == port[0] && pair->port[1] == port[1])
			return pair;
	}
	MODEL_CHECK(wire->n_pairs < WIRE_PAIRS);
	wire->n_pairs++;
	*pair = (struct wire_pair){ .port = { port[0], port[1] } };
	return pair;
}

static void begin(const struct wire *wire, struct wire_half *half, unsigned side)
{
	*half = (struct wire_half){
		.open = true,
		.tx = wire->base[side],
		.peer_fwd = wire->base[side],
		.fwd = wire->base[!side],
		.strays = half->strays,
	};
}

/* At most 4 updates for each window of bytes: the smaller of both windows, and of our limit. */
static void check_update(const struct wire *wire, unsigned from, struct wire_half *half,
			 uint32_t buf_alloc)
{
	uint32_t window = rf_min_u32(rf_min_u32(buf_alloc, half->peer_buf), 4u << 20);

	half->updates++;
	MODEL_CHECK(!wire->batched[from] ||
		    half->updates <= half->rx_bytes / (window / 4) + half->requests);
}

/*
 * Since 2026 Linux drops packets, or resets the connection, when there are more than its buffer
 * allows, but never the only one (CVE-2026-53132).
 */
static void check_packets(struct wire_half *half)
{
	while (half->n && (int32_t)(half->ends[half->first] - half->peer_fwd) <= 0) {
		half->first = (half->first + 1) % WIRE_FLIGHT;
		half->n--;
	}
	if (half->n == WIRE_FLIGHT)
		return;
	half->ends[(half->first + half->n++) % WIRE_FLIGHT] = half->tx;
	MODEL_CHECK(half->n == 1 ||
		    half->tx - half->peer_fwd + half->n * WIRE_PACKET_COST <= half->peer_buf);
}

/* A packet of a connection, in its order and within its credit. */
static void check_open(const struct wire *wire, unsigned from, struct wire_half *half,
		       const struct rf_vsock_hdr *hdr)
{
	MODEL_CHECK(half->open);
	MODEL_CHECK(hdr->fwd_cnt - half->fwd <= half->rx_bytes);
	MODEL_CHECK(hdr->fwd_cnt - wire->base[!from] <= half->rx_bytes);
	half->fwd = hdr->fwd_cnt;
	switch (hdr->op) {
	case VIRTIO_VSOCK_OP_RESPONSE:
		MODEL_CHECK(half->asked && !half->up);
		half->up = true;
		break;
	case VIRTIO_VSOCK_OP_RW:
		MODEL_CHECK(half->up && hdr->len && !(half->shut & RF_VSOCK_SHUT_SEND));
		half->tx += hdr->len;
		MODEL_CHECK(half->tx - half->peer_fwd <= half->peer_buf);
		check_packets(half);
		break;
	case VIRTIO_VSOCK_OP_SHUTDOWN:
		MODEL_CHECK(half->up && (hdr->flags & ~half->shut) && !(half->shut & ~hdr->flags));
		half->shut = hdr->flags;
		break;
	case VIRTIO_VSOCK_OP_CREDIT_UPDATE:
		MODEL_CHECK(half->up);
		check_update(wire, from, half, hdr->buf_alloc);
		break;
	case VIRTIO_VSOCK_OP_CREDIT_REQUEST:
		MODEL_CHECK(half->up);
		break;
	default:
		model_fail("operation %u was sent", hdr->op);
	}
}

static void check_post(struct wire *wire, unsigned from, const struct rf_vsock_hdr *hdr)
{
	struct wire_half *half = &pair_of(wire, from, hdr)->half[from];

	switch (hdr->op) {
	case VIRTIO_VSOCK_OP_REQUEST:
		MODEL_CHECK(!half->open);
		begin(wire, half, from);
		break;
	case VIRTIO_VSOCK_OP_RST:
		/* Never in answer to RST: that ends @open and is no stray. */
		MODEL_CHECK(half->open || half->strays > 0);
		if (!half->open)
			half->strays--;
		half->open = false;
		break;
	default:
		check_open(wire, from, half, hdr);
		break;
	}
}

/* What an end knows once it has taken a packet. */
static void learn(struct wire *wire, unsigned to, const struct rf_vsock_hdr *hdr)
{
	struct wire_half *half = &pair_of(wire, !to, hdr)->half[to];

	if (hdr->op == VIRTIO_VSOCK_OP_RST) {
		/* A REQUEST that was refused is answered, whatever has come since. */
		half->strays += half->open && half->asked && !half->up;
		half->open = false;
		return;
	}
	if (hdr->op == VIRTIO_VSOCK_OP_REQUEST && !half->open) {
		begin(wire, half, to);
		half->asked = true;
	}
	if (!half->open) {
		half->strays++;
		return;
	}
	half->peer_buf = hdr->buf_alloc;
	half->peer_fwd = hdr->fwd_cnt;
	half->up |= hdr->op == VIRTIO_VSOCK_OP_RESPONSE;
	half->requests += hdr->op == VIRTIO_VSOCK_OP_CREDIT_REQUEST;
	if (hdr->op == VIRTIO_VSOCK_OP_RW)
		half->rx_bytes += hdr->len;
}

bool wire_room(const struct wire *wire, unsigned from)
{
	return wire->lanes[!from].n < wire->room;
}

void wire_post(struct wire *wire, unsigned from, const struct wire_packet *packet)
{
	struct wire_lane *lane = &wire->lanes[!from];
	uint64_t arrive_ns = wire->now_ns + prng_below(&wire->seed, wire->max_delay_ns);
	struct wire_packet *slot = &lane->packets[(lane->head + lane->n) % WIRE_ROOM];

	MODEL_CHECK(wire_room(wire, from));
	model_packet("sends", packet->use, from, op_name(packet->hdr.op),
		     packet->hdr.len + packet->hdr.flags);
	check_post(wire, from, &packet->hdr);
	if (arrive_ns > lane->last_ns)
		lane->last_ns = arrive_ns;
	*slot = *packet;
	slot->arrive_ns = lane->last_ns;
	lane->n++;
}

bool wire_take(struct wire *wire, unsigned to, struct wire_packet *ret_packet)
{
	struct wire_lane *lane = &wire->lanes[to];

	if (!lane->n || lane->packets[lane->head].arrive_ns > wire->now_ns)
		return false;
	*ret_packet = lane->packets[lane->head];
	lane->head = (lane->head + 1) % WIRE_ROOM;
	lane->n--;
	model_packet("takes", ret_packet->use, to, op_name(ret_packet->hdr.op),
		     ret_packet->hdr.len + ret_packet->hdr.flags);
	learn(wire, to, &ret_packet->hdr);
	return true;
}

bool wire_empty(const struct wire *wire)
{
	return !wire->lanes[0].n && !wire->lanes[1].n;
}

void wire_reset(struct wire *wire)
{
	memset(wire->lanes, 0, sizeof(wire->lanes));
	wire->n_pairs = 0;
}
