/* SPDX-License-Identifier: BSD-3-Clause */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "fake_vsock_backend_priv.h"
#include "pattern.h"

#define BUF_BYTES ((size_t)2 * RF_VSOCK_WINDOW_DEFAULT)

static void slow_read(struct rf_timer *timer);

static struct fake_conn *conn_new(struct fake_backend *fake, uint32_t service)
{
	struct fake_conn *c = calloc(1, sizeof(*c));

	assert(c);
	c->service = service;
	c->fake = fake;
	c->timer.expired = slow_read;
	c->buf = malloc(BUF_BYTES);
	assert(c->buf);
	c->source_left = service == FAKE_SOURCE ? FAKE_SOURCE_BYTES : 0;
	return c;
}

static void conn_free(struct fake_backend *fake, struct fake_conn *c)
{
	rf_timer_stop(&c->timer);
	rf_vsock_sched_remove(&fake->sched, &c->conn);
	rf_vsock_table_remove(&fake->table, &c->conn);
	free(c->buf);
	free(c);
}

/* End of the guest's data, and nothing left to send: the host's side is over, too. */
static void conn_finish(struct fake_backend *fake, struct fake_conn *c)
{
	struct rf_vsock_params params;
	bool guest_ended = c->conn.peer_shut & RF_VSOCK_SHUT_SEND;

	if (c->conn.state != RF_VSOCK_ESTABLISHED || c->sent < c->len || c->source_left || c->n)
		return;
	if (!guest_ended && c->service != FAKE_SOURCE)
		return;
	rf_vsock_params_default(&params);
	rf_vsock_conn_close(&c->conn, &params, rf_clock_now());
	rf_vsock_sched_control(&fake->sched, &c->conn);
}

static void conn_schedule(struct fake_backend *fake, struct fake_conn *c)
{
	conn_finish(fake, c);
	rf_vsock_sched_control(&fake->sched, &c->conn);
	if ((c->sent < c->len || c->source_left) && rf_vsock_conn_data(&c->conn))
		rf_vsock_sched_data(&fake->sched, &c->conn);
	if (rf_vsock_conn_done(&c->conn))
		conn_free(fake, c);
}

static void slow_later(struct fake_conn *c)
{
	if (!rf_timer_active(&c->timer))
		assert(rf_timer_start(c->fake->loop, &c->timer, rf_clock_now() + RF_NS_PER_MS) ==
		       0);
}

static void slow_read(struct rf_timer *timer)
{
	struct fake_conn *c = RF_CONTAINER_OF(timer, struct fake_conn, timer);
	struct fake_backend *fake = c->fake;

	for (unsigned i = 0; i < 16 && c->n; i++) {
		uint32_t len = c->lens[c->first];

		c->first = (c->first + 1) % FAKE_QUEUE;
		c->n--;
		atomic_fetch_add(&fake->slow_bytes, len);
		rf_vsock_conn_consumed(&c->conn, len);
	}
	if (c->n)
		slow_later(c);
	conn_schedule(fake, c);
	fake_host_pump(fake);
}

/* Queue a packet to be read later, and look at it as Linux 6.12.92 does. */
static void slow_keep(struct fake_conn *c, uint32_t len, const struct iovec *iov, unsigned n)
{
	static uint8_t bytes[RF_VSOCK_MAX_PAYLOAD];
	uint64_t cost = UINT64_C(576) * (c->n + 1) + rf_vsock_credit_held(&c->conn.credit);

	if (cost > c->conn.credit.buf_alloc)
		atomic_fetch_add(&c->fake->overflows, 1);
	rf_iov_copy_out(iov, n, RF_VSOCK_HDR_BYTES, bytes, len);
	assert(pattern_check(bytes, c->at, len) == len);
	c->at += len;
	assert(c->n < FAKE_QUEUE);
	c->lens[(c->first + c->n++) % FAKE_QUEUE] = len;
	slow_later(c);
}

static void keep(struct fake_conn *c, uint32_t len, const struct iovec *iov, unsigned n)
{
	if (c->service == FAKE_SLOW) {
		slow_keep(c, len, iov, n);
		return;
	}
	if (c->service != FAKE_ECHO) {
		rf_vsock_conn_consumed(&c->conn, len);
		return;
	}
	if (c->sent) {
		memmove(c->buf, c->buf + c->sent, c->len - c->sent);
		c->len -= c->sent;
		c->sent = 0;
	}
	assert(c->len + len <= BUF_BYTES);
	rf_iov_copy_out(iov, n, RF_VSOCK_HDR_BYTES, c->buf + c->len, len);
	c->len += len;
}

static void requested(struct fake_backend *fake, const struct rf_vsock_hdr *hdr)
{
	struct rf_vsock_params params;
	struct fake_conn *c;

	switch (hdr->dst_port) {
	case FAKE_ECHO:
	case FAKE_SINK:
	case FAKE_SOURCE:
	case FAKE_SLOW:
		break;
	case FAKE_SILENT:
		return;
	default:
		rf_vsock_sched_reset(&fake->sched, hdr);
		return;
	}
	rf_vsock_params_default(&params);
	if (hdr->dst_port == FAKE_SLOW)
		params.tell = RF_VSOCK_TELL_LINUX;
	c = conn_new(fake, hdr->dst_port);
	rf_vsock_conn_request(&c->conn, hdr, &params, rf_clock_now());
	rf_vsock_conn_accept(&c->conn);
	rf_vsock_table_insert(&fake->table, &c->conn);
	conn_schedule(fake, c);
}

void fake_host_packet(struct fake_backend *fake, const struct rf_vsock_hdr *hdr,
		      const struct iovec *iov, unsigned n)
{
	struct rf_vsock_conn *conn;
	struct rf_vsock_key key;
	struct fake_conn *c;

	assert(rf_vsock_route(hdr, fake->options.cid, RF_VSOCK_CID_HOST, &key) ==
	       RF_VSOCK_ROUTE_DELIVER);
	conn = rf_vsock_table_find(&fake->table, &key);
	if (!conn) {
		if (hdr->op == VIRTIO_VSOCK_OP_REQUEST)
			requested(fake, hdr);
		else
			rf_vsock_sched_reset(&fake->sched, hdr);
		return;
	}
	c = RF_CONTAINER_OF(conn, struct fake_conn, conn);
	if (rf_vsock_conn_rx(conn, hdr) & RF_VSOCK_EV_DATA)
		keep(c, hdr->len, iov, n);
	conn_schedule(fake, c);
}

/* Payload that fits the next receive buffer; there is one. */
static uint32_t payload_room(struct fake_backend *fake)
{
	const struct rf_chain *chains;

	if (rf_devq_look(rf_vu_session_queue(fake->session, 0), 1, &chains) < 1)
		abort();
	return rf_min_u32((uint32_t)chains->bytes_in - RF_VSOCK_HDR_BYTES, 60000);
}

/* One packet of data of the connection whose turn it is. Return: false if the ring is full. */
static bool send_data(struct fake_backend *fake, struct fake_conn *c)
{
	static uint8_t source[RF_VSOCK_MAX_PAYLOAD];
	uint32_t len = rf_min_u32(rf_vsock_conn_data(&c->conn), payload_room(fake));
	struct rf_vsock_hdr hdr;
	const void *payload;

	if (c->service == FAKE_SOURCE) {
		uint64_t at = FAKE_SOURCE_BYTES - c->source_left;

		len = (uint32_t)rf_min_u64(len, c->source_left);
		pattern_fill(source, at, len);
		payload = source;
	} else {
		len = rf_min_u32(len, c->len - c->sent);
		payload = c->buf + c->sent;
	}
	if (!len)
		return true;
	rf_vsock_conn_rw(&c->conn, len, &hdr);
	if (!fake_rx_put(fake, &hdr, payload, RF_VSOCK_HDR_BYTES + len))
		abort();
	if (c->service == FAKE_SOURCE) {
		c->source_left -= len;
	} else {
		c->sent += len;
		rf_vsock_conn_consumed(&c->conn, len);
	}
	conn_schedule(fake, c);
	return true;
}

static bool rx_room(struct fake_backend *fake)
{
	struct rf_devq *q = rf_vu_session_queue(fake->session, 0);
	const struct rf_chain *chains;

	if (!rf_devq_running(rf_vu_session_queue(fake->session, 0)))
		return false;
	return rf_devq_look(q, 1, &chains) > 0 ||
	       (rf_devq_arm(q) && rf_devq_look(q, 1, &chains) > 0);
}

void fake_host_pump(struct fake_backend *fake)
{
	struct rf_vsock_conn *conn;
	struct rf_vsock_hdr hdr;

	while (fake->session && rx_room(fake)) {
		if (rf_vsock_sched_next_control(&fake->sched, &hdr, &conn)) {
			if (!fake_rx_put(fake, &hdr, NULL, RF_VSOCK_HDR_BYTES))
				abort();
			if (conn)
				conn_schedule(fake, RF_CONTAINER_OF(conn, struct fake_conn, conn));
			continue;
		}
		conn = rf_vsock_sched_next_data(&fake->sched);
		if (!conn)
			break;
		send_data(fake, RF_CONTAINER_OF(conn, struct fake_conn, conn));
	}
}

void fake_host_reset(struct fake_backend *fake)
{
	struct rf_vsock_conn *conn;

	while ((conn = rf_vsock_table_next(&fake->table, NULL)))
		conn_free(fake, RF_CONTAINER_OF(conn, struct fake_conn, conn));
	rf_vsock_sched_init(&fake->sched);
}

void fake_host_init(struct fake_backend *fake)
{
	rf_vsock_table_init(&fake->table, fake->buckets, FAKE_BUCKETS, 1);
	rf_vsock_sched_init(&fake->sched);
	fake->next_port = 1u << 30;
}

void fake_host_connect(struct fake_backend *fake, uint32_t guest_port)
{
	struct rf_vsock_key key = {
		.local_cid = RF_VSOCK_CID_HOST,
		.peer_cid = fake->options.cid,
		.local_port = fake->next_port++,
		.peer_port = guest_port,
	};
	struct fake_conn *c = conn_new(fake, FAKE_ECHO);
	struct rf_vsock_params params;

	rf_vsock_params_default(&params);
	rf_vsock_conn_connect(&c->conn, &key, &params, rf_clock_now());
	rf_vsock_table_insert(&fake->table, &c->conn);
	conn_schedule(fake, c);
	fake_host_pump(fake);
}
