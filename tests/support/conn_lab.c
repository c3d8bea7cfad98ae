/* SPDX-License-Identifier: BSD-3-Clause */
#include "conn_lab.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

const struct rf_vsock_params conn_params = {
	.window = WINDOW,
	.tx_limit = 2 * WINDOW,
	.handshake_ns = 100,
	.shutdown_ns = 200,
};
static const struct rf_vsock_key conn_key = {
	.local_cid = 2, .peer_cid = 3, .local_port = 1024, .peer_port = 80
};

struct rf_vsock_conn conn;
bool conn_reached[RF_VSOCK_N_REASONS];

struct rf_vsock_hdr conn_packet(uint16_t op)
{
	return (struct rf_vsock_hdr){
		.src_cid = 3,
		.dst_cid = 2,
		.src_port = 80,
		.dst_port = 1024,
		.type = VIRTIO_VSOCK_TYPE_STREAM,
		.op = op,
		.buf_alloc = WINDOW,
		.fwd_cnt = conn.credit.peer_fwd_cnt,
	};
}

unsigned conn_rx(uint16_t op, uint32_t len, uint32_t flags)
{
	struct rf_vsock_hdr hdr = conn_packet(op);
	unsigned events;

	hdr.len = len;
	hdr.flags = flags;
	events = rf_vsock_conn_rx(&conn, &hdr);
	conn_reached[conn.reason] = true;
	return events;
}

uint16_t conn_next_op(void)
{
	struct rf_vsock_hdr hdr = { 0 };
	bool owes = rf_vsock_conn_owes(&conn);

	assert_int_equal(rf_vsock_conn_next(&conn, &hdr), owes);
	return hdr.op;
}

void conn_expect(uint16_t op)
{
	assert_int_equal(conn_next_op(), op);
}

void conn_begin(enum from from)
{
	if (from == UNSENT || from == LOCAL) {
		rf_vsock_conn_connect(&conn, &conn_key, &conn_params, T0);
		if (from == LOCAL)
			conn_expect(OP(REQUEST));
		return;
	}
	struct rf_vsock_hdr hdr = conn_packet(OP(REQUEST));

	hdr.fwd_cnt = 0;
	rf_vsock_conn_request(&conn, &hdr, &conn_params, T0);
	if (from >= ACCEPTED)
		rf_vsock_conn_accept(&conn);
	if (from >= OPEN)
		conn_expect(OP(RESPONSE));
	if (from == CLOSING) {
		rf_vsock_conn_close(&conn, &conn_params, T0);
		conn_expect(OP(SHUTDOWN));
	}
	if (from == DEAD_RST)
		rf_vsock_conn_reset(&conn, RF_VSOCK_LOCAL_RESET);
}
