/* SPDX-License-Identifier: BSD-3-Clause */
#include "end.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "model_run.h"

static const uint64_t cids[2] = { RF_VSOCK_CID_HOST, 7 };

static struct end_sock *sock_of(struct rf_vsock_conn *conn)
{
	return RF_CONTAINER_OF(conn, struct end_sock, conn);
}

void end_init(struct end *end, unsigned side, struct wire *wire, uint64_t seed)
{
	memset(end, 0, sizeof(*end));
	end->side = side;
	end->wire = wire;
	rf_vsock_params_default(&end->params);
	rf_vsock_table_init(&end->table, end->buckets, END_BUCKETS, seed);
	rf_vsock_sched_init(&end->sched);
	for (unsigned i = 0; i < END_PORTS; i++)
		TAILQ_INIT(&end->listeners[i].pending);
}

static struct end_listener *listener_of(struct end *end, uint32_t port)
{
	uint32_t i = port - END_PORT_FIRST;

	return i < END_PORTS ? &end->listeners[i] : NULL;
}

static struct end_sock *sock_new(struct end *end, unsigned use)
{
	struct end_sock *sock = end->socks;

	while (sock->used)
		MODEL_CHECK(++sock < end->socks + END_SOCKS);
	*sock = (struct end_sock){ .used = true, .use = use };
	return sock;
}

/* The counts of bytes begin near their end, so that they wrap. */
static void enter(struct end *end, struct end_sock *sock)
{
	struct rf_vsock_credit *credit = &sock->conn.credit;

	credit->tx_cnt = credit->peer_fwd_cnt = end->wire->base[end->side];
	credit->rx_cnt = credit->fwd_cnt = credit->told_fwd_cnt = end->wire->base[!end->side];
	rf_vsock_sched_forget_resets(&end->sched, &sock->conn.key);
	rf_vsock_table_insert(&end->table, &sock->conn);
	sock->in_table = true;
}

static void post(struct end *end, const struct end_sock *sock, const struct rf_vsock_hdr *hdr)
{
	struct wire_packet packet = { .hdr = *hdr };

	if (sock) {
		packet.use = sock->use;
		packet.pos = sock->out;
	}
	wire_post(end->wire, end->side, &packet);
}

static void consumed(struct end_sock *sock, uint64_t len)
{
	sock->got += len;
	rf_vsock_conn_consumed(&sock->conn, (uint32_t)len);
}

static void drop_received(struct end_sock *sock)
{
	consumed(sock, sock->in - sock->got);
}

static void died(struct end_sock *sock)
{
	enum rf_vsock_reason reason = sock->conn.reason;

	if (sock->died)
		return;
	sock->died = true;
	if (sock->connecting || reason != RF_VSOCK_CLOSED)
		sock->error = reason == RF_VSOCK_HANDSHAKE_TIMEOUT ? -ETIMEDOUT : -ECONNRESET;
	sock->connecting = false;
}

static void settle(struct end *end, struct end_sock *sock)
{
	struct rf_vsock_conn *conn = &sock->conn;

	/* What nobody wants is not sent. */
	if (conn->state == RF_VSOCK_DEAD || conn->peer_shut & RF_VSOCK_SHUT_RCV)
		sock->put = sock->out;
	if (sock->put == sock->out && sock->shut_wr)
		rf_vsock_conn_shutdown(conn, RF_VSOCK_SHUT_SEND);
	if (sock->put == sock->out && sock->closed)
		rf_vsock_conn_close(conn, &end->params, end->wire->now_ns);
	if (conn->state == RF_VSOCK_DEAD)
		died(sock);
	if (sock->in_table && rf_vsock_conn_done(conn)) {
		rf_vsock_sched_remove(&end->sched, conn);
		rf_vsock_table_remove(&end->table, conn);
		sock->in_table = false;
	}
	if (sock->closed && !sock->in_table)
		sock->used = false;
	if (!sock->in_table)
		return;
	MODEL_CHECK(!rf_vsock_conn_data(conn) || !(conn->local_shut & RF_VSOCK_SHUT_SEND ||
						   conn->peer_shut & RF_VSOCK_SHUT_RCV));
	/* What waits for the peer does not wait for ever. */
	MODEL_CHECK(conn->state == RF_VSOCK_ESTABLISHED || conn->state == RF_VSOCK_DEAD ||
		    conn->wake_ns);
	rf_vsock_sched_control(&end->sched, conn);
	sock->wants_credit = sock->wants_credit && !rf_vsock_conn_data(conn);
	if (sock->put > sock->out || sock->wants_credit)
		rf_vsock_conn_wait(conn, end->wire->now_ns);
	if (sock->put > sock->out && rf_vsock_conn_data(conn))
		rf_vsock_sched_data(&end->sched, conn);
}

/* Control packets first, as far as there is room. */
static void send_control(struct end *end)
{
	struct rf_vsock_conn *conn;
	struct rf_vsock_hdr hdr;

	while (wire_room(end->wire, end->side) &&
	       rf_vsock_sched_next_control(&end->sched, &hdr, &conn)) {
		post(end, conn ? sock_of(conn) : NULL, &hdr);
		if (conn)
			settle(end, sock_of(conn));
	}
}

static uint32_t send_packet(struct end *end, struct end_sock *sock, uint64_t len)
{
	uint32_t n = rf_vsock_conn_data(&sock->conn);
	struct rf_vsock_hdr hdr;

	n = (uint32_t)rf_min_u64(len, rf_min_u32(n, RF_VSOCK_MAX_PAYLOAD));
	if (!n)
		return 0;
	rf_vsock_conn_rw(&sock->conn, n, &hdr);
	post(end, sock, &hdr);
	sock->out += n;
	return n;
}

static void send_data(struct end *end)
{
	struct rf_vsock_conn *conn;

	while (wire_room(end->wire, end->side) && (conn = rf_vsock_sched_next_data(&end->sched))) {
		struct end_sock *sock = sock_of(conn);

		send_packet(end, sock, sock->put - sock->out);
		settle(end, sock);
	}
}

void end_listen(struct end *end, uint32_t port, unsigned backlog)
{
	struct end_listener *listener = listener_of(end, port);

	listener->on = true;
	listener->backlog = backlog;
}

static struct end_sock *pop(struct end_listener *listener)
{
	struct end_sock *sock = TAILQ_FIRST(&listener->pending);

	if (sock) {
		TAILQ_REMOVE(&listener->pending, sock, pending);
		listener->n_pending--;
	}
	return sock;
}

void end_unlisten(struct end *end, uint32_t port)
{
	struct end_listener *listener = listener_of(end, port);
	struct end_sock *sock;

	listener->on = false;
	while ((sock = pop(listener))) {
		drop_received(sock);
		sock->closed = true;
		rf_vsock_conn_reset(&sock->conn, RF_VSOCK_LOCAL_RESET);
		settle(end, sock);
	}
}

struct end_sock *end_connect(struct end *end, uint32_t from, uint32_t to, unsigned use)
{
	struct rf_vsock_key key = { cids[end->side], cids[!end->side], from, to };
	struct end_sock *sock;

	if (!from)
		MODEL_CHECK(rf_vsock_table_pick_port(&end->table, &key) == 0);
	else if (rf_vsock_table_find(&end->table, &key))
		return NULL;
	sock = sock_new(end, use);
	sock->connecting = sock->accepted = true;
	rf_vsock_conn_connect(&sock->conn, &key, &end->params, end->wire->now_ns);
	enter(end, sock);
	settle(end, sock);
	return sock;
}

struct end_sock *end_accept(struct end *end, uint32_t port)
{
	struct end_listener *listener = listener_of(end, port);
	struct end_sock *sock = TAILQ_FIRST(&listener->pending);

	/* One that ended while it was dialled waits, too: what its program sees is its end. */
	if (!sock || (sock->dial_ns && sock->in_table))
		return NULL;
	sock->accepted = true;
	return pop(listener);
}

long end_send(struct end *end, struct end_sock *sock, uint32_t len)
{
	uint32_t done = 0, n = 1;
	int error = sock->error;

	if (error) {
		sock->error = 0;
		return error;
	}
	if (sock->shut_wr || sock->conn.state != RF_VSOCK_ESTABLISHED ||
	    sock->conn.peer_shut & RF_VSOCK_SHUT_RCV)
		return -EPIPE;
	if (end->buffer) {
		done = (uint32_t)rf_min_u64(len, end->buffer - (sock->put - sock->out));
		sock->put += done;
		settle(end, sock);
		return done ? (long)done : -EAGAIN;
	}
	send_control(end);
	while (done < len && n && wire_room(end->wire, end->side)) {
		n = send_packet(end, sock, len - done);
		sock->put += n;
		done += n;
	}
	sock->wants_credit = done < len;
	settle(end, sock);
	return done ? (long)done : -EAGAIN;
}

static bool at_eof(const struct end_sock *sock)
{
	return sock->conn.state == RF_VSOCK_DEAD || sock->conn.peer_shut & RF_VSOCK_SHUT_SEND;
}

long end_recv(struct end *end, struct end_sock *sock, uint32_t len, bool peek)
{
	uint64_t n = rf_min_u64(len, sock->in - sock->got);
	int error = sock->error;

	if (sock->shut_rd)
		return 0;
	if (n) {
		if (!peek)
			consumed(sock, n);
		settle(end, sock);
		return (long)n;
	}
	if (sock->conn.peer_shut & RF_VSOCK_SHUT_SEND)
		return 0;
	if (error) {
		sock->error = 0;
		return error;
	}
	return at_eof(sock) ? 0 : -EAGAIN;
}

void end_shutdown(struct end *end, struct end_sock *sock, bool rd, bool wr)
{
	if (rd) {
		sock->shut_rd = true;
		drop_received(sock);
		rf_vsock_conn_shutdown(&sock->conn, RF_VSOCK_SHUT_RCV);
	}
	sock->shut_wr |= wr;
	settle(end, sock);
}

void end_close(struct end *end, struct end_sock *sock)
{
	sock->closed = true;
	drop_received(sock);
	if (sock->put > sock->out)
		rf_vsock_conn_shutdown(&sock->conn, RF_VSOCK_SHUT_RCV);
	settle(end, sock);
}

static void to_sock(struct end *end, struct end_sock *sock, const struct wire_packet *packet)
{
	unsigned events = rf_vsock_conn_rx(&sock->conn, &packet->hdr);

	if (events & RF_VSOCK_EV_CONNECTED)
		sock->connecting = false;
	if (events & RF_VSOCK_EV_DATA) {
		if (packet->use != sock->use || packet->pos != sock->in)
			model_fail("byte %llu of connection %u came, not byte %llu of %u",
				   (unsigned long long)packet->pos, packet->use,
				   (unsigned long long)sock->in, sock->use);
		sock->in += packet->hdr.len;
		if (sock->closed || sock->shut_rd)
			drop_received(sock);
	}
	settle(end, sock);
}

static void to_listener(struct end *end, const struct wire_packet *packet)
{
	struct end_listener *listener = listener_of(end, packet->hdr.dst_port);
	struct end_sock *sock;

	if (!listener || !listener->on || listener->n_pending > listener->backlog) {
		rf_vsock_sched_reset(&end->sched, &packet->hdr);
		return;
	}
	sock = sock_new(end, packet->use);
	rf_vsock_conn_request(&sock->conn, &packet->hdr, &end->params, end->wire->now_ns);
	enter(end, sock);
	sock->dial_ns = end->wire->now_ns + end->dial_ns;
	if (!end->dial_ns) {
		rf_vsock_conn_accept(&sock->conn);
		sock->dial_ns = 0;
	}
	TAILQ_INSERT_TAIL(&listener->pending, sock, pending);
	listener->n_pending++;
	settle(end, sock);
}

static void take(struct end *end, const struct wire_packet *packet)
{
	struct rf_vsock_conn *conn;
	struct rf_vsock_key key;

	MODEL_CHECK(rf_vsock_route(&packet->hdr, cids[!end->side], cids[end->side], &key) ==
		    RF_VSOCK_ROUTE_DELIVER);
	conn = rf_vsock_table_find(&end->table, &key);
	if (conn)
		to_sock(end, sock_of(conn), packet);
	else if (packet->hdr.op == VIRTIO_VSOCK_OP_REQUEST)
		to_listener(end, packet);
	else
		rf_vsock_sched_reset(&end->sched, &packet->hdr);
}

static void look_at_time(struct end *end, struct end_sock *sock)
{
	uint64_t now_ns = end->wire->now_ns;

	if (sock->dial_ns && now_ns >= sock->dial_ns) {
		sock->dial_ns = 0;
		if (sock->conn.state == RF_VSOCK_PEER_INIT)
			rf_vsock_conn_accept(&sock->conn);
	}
	rf_vsock_conn_wake(&sock->conn, now_ns);
	settle(end, sock);
}

void end_turn(struct end *end)
{
	struct wire_packet packet;

	for (unsigned i = 0; i < END_SOCKS; i++)
		if (end->socks[i].used && end->socks[i].in_table)
			look_at_time(end, &end->socks[i]);
	/* Any packet may need an RST: without room for one, none is taken. */
	while (!end->paused && rf_vsock_sched_reset_room(&end->sched) &&
	       wire_take(end->wire, end->side, &packet))
		take(end, &packet);
	send_control(end);
	send_data(end);
}

void end_reset(struct end *end)
{
	for (unsigned i = 0; i < END_SOCKS; i++) {
		struct end_sock *sock = &end->socks[i];

		if (!sock->used || !sock->in_table)
			continue;
		rf_vsock_conn_abandon(&sock->conn, RF_VSOCK_TRANSPORT_RESET);
		sock->dial_ns = 0;
		settle(end, sock);
	}
	rf_vsock_sched_init(&end->sched);
}

bool end_idle(struct end *end)
{
	return !rf_vsock_sched_has_control(&end->sched) && !rf_vsock_sched_has_data(&end->sched);
}

bool end_empty(struct end *end)
{
	for (unsigned i = 0; i < END_SOCKS; i++)
		if (end->socks[i].used)
			return false;
	return end_idle(end) && !end->table.n_conns;
}
