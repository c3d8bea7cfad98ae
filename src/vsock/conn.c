/* SPDX-License-Identifier: BSD-3-Clause */
#include "vsock/conn.h"

#include <assert.h>
#include <string.h>

#include "base/util.h"
#include "vsock/limits.h"

/* The order of the RF_VSOCK_OWE_* bits is the order in which they are handed out. */
static const uint16_t owed_ops[] = {
	VIRTIO_VSOCK_OP_REQUEST,        VIRTIO_VSOCK_OP_RESPONSE, VIRTIO_VSOCK_OP_CREDIT_UPDATE,
	VIRTIO_VSOCK_OP_CREDIT_REQUEST, VIRTIO_VSOCK_OP_SHUTDOWN, VIRTIO_VSOCK_OP_RST,
};

void rf_vsock_params_default(struct rf_vsock_params *ret_params)
{
	*ret_params = (struct rf_vsock_params){
		.window = RF_VSOCK_WINDOW_DEFAULT,
		.tx_limit = RF_VSOCK_TX_LIMIT_DEFAULT,
		.bound_packets = true,
		.handshake_ns = RF_VSOCK_HANDSHAKE_NS,
		.shutdown_ns = RF_VSOCK_SHUTDOWN_NS,
	};
}

static void conn_init(struct rf_vsock_conn *conn, const struct rf_vsock_params *params,
		      uint64_t now_ns)
{
	memset(conn, 0, sizeof(*conn));
	rf_vsock_credit_init(&conn->credit, params->window, params->tx_limit, params->tell);
	conn->bound_packets = params->bound_packets;
	conn->wake_ns = now_ns + params->handshake_ns;
}

void rf_vsock_conn_connect(struct rf_vsock_conn *conn, const struct rf_vsock_key *key,
			   const struct rf_vsock_params *params, uint64_t now_ns)
{
	conn_init(conn, params, now_ns);
	conn->key = *key;
	conn->type = VIRTIO_VSOCK_TYPE_STREAM;
	conn->state = RF_VSOCK_LOCAL_INIT;
	conn->owed = RF_VSOCK_OWE_REQUEST;
}

void rf_vsock_conn_request(struct rf_vsock_conn *conn, const struct rf_vsock_hdr *hdr,
			   const struct rf_vsock_params *params, uint64_t now_ns)
{
	assert(hdr->op == VIRTIO_VSOCK_OP_REQUEST);
	conn_init(conn, params, now_ns);
	conn->key = (struct rf_vsock_key){
		.local_cid = hdr->dst_cid,
		.peer_cid = hdr->src_cid,
		.local_port = hdr->dst_port,
		.peer_port = hdr->src_port,
	};
	conn->type = hdr->type;
	conn->state = RF_VSOCK_PEER_INIT;
	rf_vsock_credit_peer(&conn->credit, hdr->buf_alloc, hdr->fwd_cnt);
}

void rf_vsock_conn_accept(struct rf_vsock_conn *conn)
{
	assert(conn->state == RF_VSOCK_PEER_INIT);
	conn->state = RF_VSOCK_ESTABLISHED;
	conn->owed |= RF_VSOCK_OWE_RESPONSE;
	conn->wake_ns = 0;
}

/* Does the peer not know of the connection yet? */
static bool unheard(const struct rf_vsock_conn *conn)
{
	return conn->state == RF_VSOCK_LOCAL_INIT && !conn->sent;
}

static unsigned die(struct rf_vsock_conn *conn, enum rf_vsock_reason reason, uint32_t owed)
{
	conn->state = RF_VSOCK_DEAD;
	conn->reason = reason;
	conn->owed = owed;
	conn->wake_ns = 0;
	return RF_VSOCK_EV_DEAD;
}

static unsigned refuse(struct rf_vsock_conn *conn, enum rf_vsock_reason reason)
{
	return die(conn, reason, RF_VSOCK_OWE_RST);
}

/* Most that may be in flight, payload and what packets cost together. */
static uint32_t flight_limit(const struct rf_vsock_conn *conn)
{
	return rf_min_u32(conn->credit.peer_buf_alloc, conn->credit.tx_limit);
}

/* What is in flight of that. */
static uint64_t flight(const struct rf_vsock_conn *conn)
{
	return rf_vsock_credit_in_flight(&conn->credit) +
	       (uint64_t)conn->inflight.n_pkts * RF_VSOCK_PACKET_COST;
}

/* What the bound of packets allows the next one to carry, after others. */
static uint32_t packet_room(const struct rf_vsock_conn *conn, uint32_t n_pkts, uint32_t bytes)
{
	uint64_t limit = flight_limit(conn);
	uint64_t used = flight(conn) + bytes + (uint64_t)n_pkts * RF_VSOCK_PACKET_COST;

	/* However small its buffer, a peer that has nothing gets something. */
	if (!used)
		return (uint32_t)(limit > RF_VSOCK_PACKET_COST ? limit - RF_VSOCK_PACKET_COST
							       : limit);
	/* A packet that costs more than it may carry is not worth it: wait for more room. */
	if (used + UINT64_C(2) * RF_VSOCK_PACKET_COST > limit)
		return 0;
	return (uint32_t)(limit - used - RF_VSOCK_PACKET_COST);
}

static uint32_t room(const struct rf_vsock_conn *conn, uint32_t n_pkts, uint32_t bytes)
{
	uint32_t space = rf_vsock_credit_space(&conn->credit);

	space = space > bytes ? space - bytes : 0;
	return conn->bound_packets ? rf_min_u32(space, packet_room(conn, n_pkts, bytes)) : space;
}

static bool may_send(const struct rf_vsock_conn *conn)
{
	return conn->state == RF_VSOCK_ESTABLISHED && !(conn->owed & RF_VSOCK_OWE_RESPONSE) &&
	       !(conn->local_shut & RF_VSOCK_SHUT_SEND) && !(conn->peer_shut & RF_VSOCK_SHUT_RCV);
}

/*
 * There is room again. The timer stays: streams wait often, and so have it set anew at most as
 * often as it runs.
 */
static void end_wait(struct rf_vsock_conn *conn)
{
	conn->owed &= ~(uint32_t)RF_VSOCK_OWE_CREDIT_REQUEST;
	conn->ask_pause_ns = 0;
}

/* Nothing will wait for the peer's credit any more. */
static void stop_asking(struct rf_vsock_conn *conn)
{
	end_wait(conn);
	if (conn->state == RF_VSOCK_ESTABLISHED)
		conn->wake_ns = 0;
}

static unsigned take_credit(struct rf_vsock_conn *conn, const struct rf_vsock_hdr *hdr)
{
	uint32_t room_before = room(conn, 0, 0), fwd_before = conn->credit.peer_fwd_cnt;
	bool more;

	rf_vsock_credit_peer(&conn->credit, hdr->buf_alloc, hdr->fwd_cnt);
	rf_vsock_inflight_consumed(&conn->inflight, conn->credit.tx_cnt, conn->credit.peer_fwd_cnt);
	more = room(conn, 0, 0) > room_before;
	if (more)
		end_wait(conn);
	else if (conn->credit.peer_fwd_cnt != fwd_before)
		/* The pause grows only while nothing comes. */
		conn->ask_pause_ns /= 2;
	/* A peer that shrank its buffer limits itself more than before and may wait for us now. */
	if (rf_vsock_credit_due(&conn->credit))
		conn->owed |= RF_VSOCK_OWE_CREDIT_UPDATE;
	return more ? RF_VSOCK_EV_CREDIT : 0;
}

static unsigned rx_local_init(struct rf_vsock_conn *conn, const struct rf_vsock_hdr *hdr)
{
	/* No answer to a REQUEST that was not sent: a late packet of an earlier use of the ports.
	 */
	if (!conn->sent)
		return 0;

	switch (hdr->op) {
	case VIRTIO_VSOCK_OP_RESPONSE:
		conn->state = RF_VSOCK_ESTABLISHED;
		conn->wake_ns = 0;
		return RF_VSOCK_EV_CONNECTED | take_credit(conn, hdr);
	case VIRTIO_VSOCK_OP_RST:
		return die(conn, RF_VSOCK_REFUSED, 0);
	default:
		return refuse(conn, RF_VSOCK_BAD_STATE);
	}
}

static unsigned rx_data(struct rf_vsock_conn *conn, const struct rf_vsock_hdr *hdr)
{
	if (conn->state == RF_VSOCK_PEER_INIT || conn->owed & RF_VSOCK_OWE_RESPONSE)
		return refuse(conn, RF_VSOCK_DATA_EARLY);
	if (!hdr->len)
		return take_credit(conn, hdr);
	if (conn->peer_shut & RF_VSOCK_SHUT_SEND)
		return refuse(conn, RF_VSOCK_DATA_LATE);
	if (!rf_vsock_credit_admit(&conn->credit, hdr->len))
		return refuse(conn, RF_VSOCK_CREDIT_OVERRUN);
	return RF_VSOCK_EV_DATA | take_credit(conn, hdr);
}

static unsigned rx_shutdown(struct rf_vsock_conn *conn, const struct rf_vsock_hdr *hdr)
{
	uint32_t news = hdr->flags & RF_VSOCK_SHUT_BOTH & ~conn->peer_shut;
	unsigned events = 0;

	if (news & RF_VSOCK_SHUT_SEND)
		events |= RF_VSOCK_EV_SHUT_SEND;
	if (news & RF_VSOCK_SHUT_RCV)
		events |= RF_VSOCK_EV_SHUT_RCV;
	conn->peer_shut |= news;
	if (news & RF_VSOCK_SHUT_RCV)
		stop_asking(conn);
	if (conn->peer_shut == RF_VSOCK_SHUT_BOTH)
		return events | refuse(conn, RF_VSOCK_CLOSED);
	return events | take_credit(conn, hdr);
}

/* Does an RST answer our SHUTDOWN of both directions? */
static bool told_shutdown(const struct rf_vsock_conn *conn)
{
	return conn->local_shut == RF_VSOCK_SHUT_BOTH && !(conn->owed & RF_VSOCK_OWE_SHUTDOWN);
}

/* PEER_INIT and ESTABLISHED. */
static unsigned rx_open(struct rf_vsock_conn *conn, const struct rf_vsock_hdr *hdr)
{
	switch (hdr->op) {
	case VIRTIO_VSOCK_OP_RST:
		return die(conn, told_shutdown(conn) ? RF_VSOCK_CLOSED : RF_VSOCK_PEER_RESET, 0);
	case VIRTIO_VSOCK_OP_RW:
		return rx_data(conn, hdr);
	case VIRTIO_VSOCK_OP_SHUTDOWN:
		return rx_shutdown(conn, hdr);
	case VIRTIO_VSOCK_OP_CREDIT_REQUEST:
		/* Before the RESPONSE that carries it, nobody waits for credit. */
		if (conn->state == RF_VSOCK_ESTABLISHED)
			conn->owed |= RF_VSOCK_OWE_CREDIT_UPDATE;
		return take_credit(conn, hdr);
	case VIRTIO_VSOCK_OP_CREDIT_UPDATE:
		return take_credit(conn, hdr);
	case VIRTIO_VSOCK_OP_REQUEST:
	case VIRTIO_VSOCK_OP_RESPONSE:
		return refuse(conn, RF_VSOCK_BAD_STATE);
	default:
		return refuse(conn, RF_VSOCK_BAD_OP);
	}
}

static unsigned rx_closing(struct rf_vsock_conn *conn, const struct rf_vsock_hdr *hdr)
{
	if (hdr->op == VIRTIO_VSOCK_OP_RST)
		return die(conn, RF_VSOCK_CLOSED, 0);
	if (hdr->op == VIRTIO_VSOCK_OP_SHUTDOWN) {
		conn->peer_shut |= hdr->flags & RF_VSOCK_SHUT_BOTH;
		if (conn->peer_shut == RF_VSOCK_SHUT_BOTH)
			return refuse(conn, RF_VSOCK_CLOSED);
	}
	return 0;
}

unsigned rf_vsock_conn_rx(struct rf_vsock_conn *conn, const struct rf_vsock_hdr *hdr)
{
	/* No answer to a REQUEST that was not sent: a late packet of an earlier use of the ports.
	 */
	if (unheard(conn))
		return 0;
	if (hdr->type != conn->type) {
		/* An RST is never answered, and this one is not about a socket of ours. */
		if (hdr->op == VIRTIO_VSOCK_OP_RST || conn->state >= RF_VSOCK_CLOSING)
			return 0;
		return refuse(conn, RF_VSOCK_BAD_TYPE);
	}

	switch (conn->state) {
	case RF_VSOCK_LOCAL_INIT:
		return rx_local_init(conn, hdr);
	case RF_VSOCK_PEER_INIT:
	case RF_VSOCK_ESTABLISHED:
		return rx_open(conn, hdr);
	case RF_VSOCK_CLOSING:
		return rx_closing(conn, hdr);
	case RF_VSOCK_DEAD:
		if (hdr->op != VIRTIO_VSOCK_OP_RST)
			return 0;
		/* An RST of ours might meet the ports' next connection. */
		conn->owed = 0;
		return RF_VSOCK_EV_FORGOTTEN;
	}
	return 0;
}

void rf_vsock_conn_consumed(struct rf_vsock_conn *conn, uint32_t len)
{
	if (rf_vsock_credit_consumed(&conn->credit, len) && conn->state == RF_VSOCK_ESTABLISHED)
		conn->owed |= RF_VSOCK_OWE_CREDIT_UPDATE;
}

uint32_t rf_vsock_conn_data(const struct rf_vsock_conn *conn)
{
	return rf_vsock_conn_data_after(conn, 0, 0);
}

uint32_t rf_vsock_conn_data_after(const struct rf_vsock_conn *conn, uint32_t n_pkts, uint32_t bytes)
{
	return may_send(conn) ? room(conn, n_pkts, bytes) : 0;
}

/* Will the peer tell us when it has consumed so many bytes? As Linux does, and as we do. */
static bool tells_by_itself(const struct rf_vsock_conn *conn, uint64_t bytes)
{
	uint32_t buf_alloc = conn->credit.peer_buf_alloc;

	return bytes + RF_VSOCK_LINUX_TELLS > buf_alloc &&
	       bytes >= buf_alloc / RF_VSOCK_CREDIT_FRACTION;
}

/* Then it knows that we wait. */
static bool peer_is_full(const struct rf_vsock_conn *conn)
{
	return rf_vsock_credit_in_flight(&conn->credit) >= conn->credit.peer_buf_alloc;
}

/* A peer that tells by itself does so only if its program reads on. */
static uint64_t longest_pause(const struct rf_vsock_conn *conn)
{
	return tells_by_itself(conn, rf_vsock_credit_in_flight(&conn->credit))
		       ? RF_VSOCK_ASK_RARELY_NS
		       : RF_VSOCK_ASK_LAST_NS;
}

bool rf_vsock_conn_wait(struct rf_vsock_conn *conn, uint64_t now_ns)
{
	bool begins = !conn->ask_pause_ns;

	if (!may_send(conn) || room(conn, 0, 0) || (!begins && conn->wake_ns) || peer_is_full(conn))
		return false;
	conn->ask_pause_ns = begins ? RF_VSOCK_ASK_FIRST_NS
				    : rf_min_u64(2 * conn->ask_pause_ns, longest_pause(conn));
	/* An earlier wait may have left its timer. */
	if (!conn->wake_ns || conn->wake_ns > now_ns + conn->ask_pause_ns)
		conn->wake_ns = now_ns + conn->ask_pause_ns;
	return begins;
}

static void ask(struct rf_vsock_conn *conn)
{
	conn->owed |= RF_VSOCK_OWE_CREDIT_REQUEST;
	conn->unasked_bytes = 0;
}

/*
 * Ask when half of what may be in flight is, then for each further quarter at most, and when
 * nothing more can be sent; unless, by the size of the packets so far, the peer will tell by itself
 * before we have to wait. Return: can more be sent?
 */
static bool ask_early(struct rf_vsock_conn *conn)
{
	uint64_t limit = flight_limit(conn), used = flight(conn);
	uint64_t bytes = rf_vsock_credit_in_flight(&conn->credit);
	bool full = !room(conn, 0, 0);

	if (!full && (2 * used < limit || RF_VSOCK_CREDIT_FRACTION * conn->unasked_bytes < limit))
		return true;
	if (!full)
		bytes = bytes * limit / used;
	if (!tells_by_itself(conn, bytes))
		ask(conn);
	return !full;
}

static bool count_sent(struct rf_vsock_conn *conn, uint32_t len)
{
	uint32_t max_pkts = flight_limit(conn) / RF_VSOCK_PACKET_COST;

	rf_vsock_credit_sent(&conn->credit, len);
	conn->unasked_bytes += len;
	if (conn->bound_packets) {
		rf_vsock_inflight_sent(&conn->inflight, conn->credit.tx_cnt,
				       max_pkts / RF_VSOCK_INFLIGHT_RUNS);
		conn->unasked_bytes += RF_VSOCK_PACKET_COST;
	}
	return ask_early(conn);
}

static bool count_more(struct rf_vsock_conn *conn, uint32_t len)
{
	rf_vsock_credit_sent(&conn->credit, len);
	conn->unasked_bytes += len;
	if (conn->bound_packets)
		rf_vsock_inflight_grew(&conn->inflight, conn->credit.tx_cnt);
	return ask_early(conn);
}

/* Every packet tells our credit of this moment, so an owed CREDIT_UPDATE goes with it. */
static void tell_credit(struct rf_vsock_conn *conn, struct rf_vsock_hdr *hdr)
{
	hdr->buf_alloc = conn->credit.buf_alloc;
	hdr->fwd_cnt = conn->credit.fwd_cnt;
	conn->credit.told_fwd_cnt = conn->credit.fwd_cnt;
	conn->owed &= ~(uint32_t)RF_VSOCK_OWE_CREDIT_UPDATE;
}

static void fill_header(struct rf_vsock_conn *conn, uint16_t op, struct rf_vsock_hdr *ret_hdr)
{
	*ret_hdr = (struct rf_vsock_hdr){
		.src_cid = conn->key.local_cid,
		.dst_cid = conn->key.peer_cid,
		.src_port = conn->key.local_port,
		.dst_port = conn->key.peer_port,
		.type = conn->type,
		.op = op,
	};
	tell_credit(conn, ret_hdr);
	conn->sent = true;
}

bool rf_vsock_conn_rw(struct rf_vsock_conn *conn, uint32_t len, struct rf_vsock_hdr *ret_hdr)
{
	assert(len > 0 && len <= RF_VSOCK_MAX_PAYLOAD && len <= rf_vsock_conn_data(conn));
	fill_header(conn, VIRTIO_VSOCK_OP_RW, ret_hdr);
	ret_hdr->len = len;
	return count_sent(conn, len);
}

bool rf_vsock_conn_rw_more(struct rf_vsock_conn *conn, struct rf_vsock_hdr *hdr, uint32_t len)
{
	assert(hdr->len + len <= RF_VSOCK_MAX_PAYLOAD);
	tell_credit(conn, hdr);
	if (!len)
		return rf_vsock_conn_data(conn) > 0;
	hdr->len += len;
	return count_more(conn, len);
}

void rf_vsock_conn_shutdown(struct rf_vsock_conn *conn, uint32_t flags)
{
	uint32_t news = flags & RF_VSOCK_SHUT_BOTH & ~conn->local_shut;

	if (!news || conn->state == RF_VSOCK_DEAD)
		return;
	conn->local_shut |= news;
	conn->owed |= RF_VSOCK_OWE_SHUTDOWN;
	if (news & RF_VSOCK_SHUT_SEND)
		stop_asking(conn);
}

void rf_vsock_conn_close(struct rf_vsock_conn *conn, const struct rf_vsock_params *params,
			 uint64_t now_ns)
{
	switch (conn->state) {
	case RF_VSOCK_LOCAL_INIT:
	case RF_VSOCK_PEER_INIT:
		rf_vsock_conn_reset(conn, RF_VSOCK_LOCAL_RESET);
		break;
	case RF_VSOCK_ESTABLISHED:
		rf_vsock_conn_shutdown(conn, RF_VSOCK_SHUT_BOTH);
		/* A credit update for a closed socket draws an RST that cuts off unread data. */
		conn->owed &= RF_VSOCK_OWE_RESPONSE | RF_VSOCK_OWE_SHUTDOWN;
		conn->state = RF_VSOCK_CLOSING;
		conn->wake_ns = now_ns + params->shutdown_ns;
		break;
	case RF_VSOCK_CLOSING:
	case RF_VSOCK_DEAD:
		break;
	}
}

void rf_vsock_conn_reset(struct rf_vsock_conn *conn, enum rf_vsock_reason reason)
{
	if (conn->state != RF_VSOCK_DEAD)
		die(conn, reason, unheard(conn) ? 0 : RF_VSOCK_OWE_RST);
}

void rf_vsock_conn_abandon(struct rf_vsock_conn *conn, enum rf_vsock_reason reason)
{
	die(conn, conn->state == RF_VSOCK_DEAD ? conn->reason : reason, 0);
}

bool rf_vsock_conn_wake(struct rf_vsock_conn *conn, uint64_t now_ns)
{
	if (!conn->wake_ns || now_ns < conn->wake_ns)
		return false;
	if (conn->state == RF_VSOCK_ESTABLISHED) {
		conn->wake_ns = 0;
		if (conn->ask_pause_ns && !peer_is_full(conn))
			ask(conn);
		return false;
	}
	rf_vsock_conn_reset(conn, conn->state == RF_VSOCK_CLOSING ? RF_VSOCK_SHUTDOWN_TIMEOUT
								  : RF_VSOCK_HANDSHAKE_TIMEOUT);
	return true;
}

/* The owed packets that the state allows to go out. */
static uint32_t sendable(const struct rf_vsock_conn *conn)
{
	switch (conn->state) {
	case RF_VSOCK_LOCAL_INIT:
		return conn->owed & RF_VSOCK_OWE_REQUEST;
	case RF_VSOCK_PEER_INIT:
		return 0;
	case RF_VSOCK_ESTABLISHED:
		/* A peer that was told both ways has forgotten the connection: credit would draw an
		   RST, which may meet the ports' next one. */
		if (told_shutdown(conn))
			return conn->owed & ~(uint32_t)RF_VSOCK_OWE_CREDIT_UPDATE;
		return conn->owed;
	default:
		return conn->owed;
	}
}

bool rf_vsock_conn_next(struct rf_vsock_conn *conn, struct rf_vsock_hdr *ret_hdr)
{
	uint32_t owed = sendable(conn);
	unsigned first;

	if (!owed)
		return false;
	first = (unsigned)__builtin_ctz(owed);
	conn->owed &= ~(1u << first);
	fill_header(conn, owed_ops[first], ret_hdr);
	if (ret_hdr->op == VIRTIO_VSOCK_OP_SHUTDOWN)
		ret_hdr->flags = conn->local_shut;
	return true;
}

bool rf_vsock_conn_owes(const struct rf_vsock_conn *conn)
{
	return sendable(conn) != 0;
}

bool rf_vsock_conn_done(const struct rf_vsock_conn *conn)
{
	return conn->state == RF_VSOCK_DEAD && !conn->owed;
}
