/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A connection whose peer and owner do anything, in any order. The bytes of the input become
 * packets and calls; what is handed out and what is admitted is checked after each.
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/util.h"
#include "vsock/conn.h"
#include "vsock/limits.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/**
 * struct fuzz - One connection and what was seen of it
 * @held:	Bytes admitted and not consumed
 * @out:	Bytes sent; wraps
 * @up:		Handed out RESPONSE, or got it: data may go
 * @closed:	close() was called
 * @told:	SHUTDOWN bits handed out
 */
struct fuzz {
	struct rf_vsock_conn conn;
	struct rf_vsock_params params;
	const uint8_t *data;
	size_t size;
	uint64_t now_ns;
	uint32_t held, out;
	bool up, closed, any, rst;
	uint32_t told;
};

static uint8_t byte(struct fuzz *f)
{
	if (!f->size)
		return 0;
	f->size--;
	return *f->data++;
}

/* A number up to about 2^23, small ones as likely as large ones. */
static uint32_t number(struct fuzz *f)
{
	uint8_t b = byte(f);

	return (uint32_t)(b & 15) << (b >> 4) << (b & 128 ? 4 : 0);
}

static void check_packet(struct fuzz *f, const struct rf_vsock_hdr *hdr)
{
	assert(!f->rst);
	assert(hdr->buf_alloc == f->params.window && hdr->src_cid == 2 && hdr->dst_cid == 3);
	switch (hdr->op) {
	case VIRTIO_VSOCK_OP_REQUEST:
	case VIRTIO_VSOCK_OP_RESPONSE:
		assert(!f->any);
		f->up |= hdr->op == VIRTIO_VSOCK_OP_RESPONSE;
		break;
	case VIRTIO_VSOCK_OP_RW:
		assert(f->up && !f->closed && !(f->told & RF_VSOCK_SHUT_SEND));
		f->out += hdr->len;
		break;
	case VIRTIO_VSOCK_OP_CREDIT_REQUEST:
		assert(f->up && !f->closed && !(f->told & RF_VSOCK_SHUT_SEND));
		break;
	case VIRTIO_VSOCK_OP_CREDIT_UPDATE:
		assert(f->up && !f->closed);
		break;
	case VIRTIO_VSOCK_OP_SHUTDOWN:
		assert(f->up && (hdr->flags & ~f->told) && (hdr->flags & f->told) == f->told);
		f->told = hdr->flags;
		break;
	case VIRTIO_VSOCK_OP_RST:
		f->rst = true;
		assert(rf_vsock_conn_done(&f->conn));
		break;
	default:
		abort();
	}
	f->any = true;
}

static void receive(struct fuzz *f)
{
	uint8_t what = byte(f);
	struct rf_vsock_hdr hdr = {
		.src_cid = 3,
		.dst_cid = 2,
		.src_port = 80,
		.dst_port = 1024,
		.type = what & 128 ? byte(f) : VIRTIO_VSOCK_TYPE_STREAM,
		.op = what & 15,
		.len = number(f),
		.flags = what >> 4 & 3,
		.buf_alloc = number(f),
		.fwd_cnt = f->out - number(f),
	};
	enum rf_vsock_state before = f->conn.state;
	uint32_t owed = f->conn.owed;
	unsigned events = rf_vsock_conn_rx(&f->conn, &hdr);

	if (events & RF_VSOCK_EV_CONNECTED) {
		assert(before == RF_VSOCK_LOCAL_INIT && f->any && !f->up);
		f->up = true;
	}
	if (events & RF_VSOCK_EV_DATA) {
		assert(hdr.op == VIRTIO_VSOCK_OP_RW && hdr.len && f->up && !f->closed);
		f->held += hdr.len;
		assert(f->held <= f->params.window);
	}
	if (events & RF_VSOCK_EV_DEAD)
		assert(f->conn.state == RF_VSOCK_DEAD);
	/* An RST is never answered. */
	if (hdr.op == VIRTIO_VSOCK_OP_RST)
		assert(!(f->conn.owed & ~owed));
}

static void consume(struct fuzz *f)
{
	uint32_t len = rf_min_u32(number(f), f->held);

	rf_vsock_conn_consumed(&f->conn, len);
	f->held -= len;
}

static void send_data(struct fuzz *f)
{
	uint32_t len = rf_min_u32(number(f), rf_vsock_conn_data(&f->conn));
	struct rf_vsock_hdr hdr;

	len = rf_min_u32(len, RF_VSOCK_MAX_PAYLOAD);
	if (!len)
		return;
	rf_vsock_conn_rw(&f->conn, len, &hdr);
	check_packet(f, &hdr);
	assert(!(f->conn.owed & RF_VSOCK_OWE_CREDIT_UPDATE));
	/* Linux's first form, which is the stricter one. */
	if (f->params.bound_packets && f->conn.credit.peer_buf_alloc > RF_VSOCK_PACKET_COST)
		assert(UINT64_C(576) * f->conn.inflight.n_pkts +
			       rf_vsock_credit_in_flight(&f->conn.credit) <=
		       f->conn.credit.peer_buf_alloc);
}

static void hand_out(struct fuzz *f)
{
	bool owes = rf_vsock_conn_owes(&f->conn);
	struct rf_vsock_hdr hdr;
	bool got = rf_vsock_conn_next(&f->conn, &hdr);

	assert(got == owes);
	if (got)
		check_packet(f, &hdr);
}

static void act(struct fuzz *f)
{
	uint8_t what = byte(f);

	switch (what % 16) {
	case 0:
	case 1:
	case 2:
	case 3:
		receive(f);
		break;
	case 4:
	case 5:
	case 6:
		hand_out(f);
		break;
	case 7:
	case 8:
		consume(f);
		break;
	case 9:
	case 10:
		send_data(f);
		break;
	case 11:
		rf_vsock_conn_shutdown(&f->conn, what >> 4);
		break;
	case 12:
		rf_vsock_conn_close(&f->conn, &f->params, f->now_ns);
		f->closed = true;
		break;
	case 13:
		if (f->conn.state == RF_VSOCK_PEER_INIT)
			rf_vsock_conn_accept(&f->conn);
		else if (rf_vsock_conn_wait(&f->conn, f->now_ns))
			assert(f->conn.wake_ns == f->now_ns + RF_VSOCK_ASK_FIRST_NS);
		break;
	case 14:
		f->now_ns += (uint64_t)number(f) << 20;
		rf_vsock_conn_wake(&f->conn, f->now_ns);
		break;
	case 15:
		if (what >> 4)
			rf_vsock_conn_reset(&f->conn, RF_VSOCK_LOCAL_RESET);
		else
			rf_vsock_conn_abandon(&f->conn, RF_VSOCK_TRANSPORT_RESET);
		break;
	}
}

static void begin(struct fuzz *f)
{
	static const uint32_t windows[] = { 1, 128, 4096, 262144 };
	static const struct rf_vsock_key key = {
		.local_cid = 2, .peer_cid = 3, .local_port = 1024, .peer_port = 80
	};
	uint8_t how = byte(f);

	rf_vsock_params_default(&f->params);
	f->params.window = windows[how >> 1 & 3];
	f->params.tell = (enum rf_vsock_tell)((how >> 3 & 3) % 3);
	f->params.bound_packets = !(how & 32);
	if (how & 1) {
		rf_vsock_conn_connect(&f->conn, &key, &f->params, f->now_ns);
	} else {
		const struct rf_vsock_hdr hdr = {
			.src_cid = 3,
			.dst_cid = 2,
			.src_port = 80,
			.dst_port = 1024,
			.type = VIRTIO_VSOCK_TYPE_STREAM,
			.op = VIRTIO_VSOCK_OP_REQUEST,
			.buf_alloc = number(f),
			.fwd_cnt = number(f),
		};

		rf_vsock_conn_request(&f->conn, &hdr, &f->params, f->now_ns);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz f = { .data = data, .size = size };

	begin(&f);
	while (f.size && !rf_vsock_conn_done(&f.conn)) {
		enum rf_vsock_state before = f.conn.state;

		act(&f);
		assert(f.conn.state >= before);
		assert((f.conn.reason != RF_VSOCK_NONE) == (f.conn.state == RF_VSOCK_DEAD));
		assert(rf_vsock_credit_held(&f.conn.credit) == f.held);
		assert(rf_vsock_credit_in_flight(&f.conn.credit) <= f.params.tx_limit);
	}
	return 0;
}
