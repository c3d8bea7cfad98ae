/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random operations on sockets at both ends of a link that delays, in virtual time: the core's
 * connections, credit, table and scheduler against the model of sockets (sock_model.h) and the
 * rules of the wire (wire.c).
 */
#include <errno.h>
#include <string.h>

#include "end.h"
#include "model_run.h"
#include "prng.h"
#include "sock_model.h"

#define CONNS    48u
#define OPS      400u
#define EXPLICIT 500u
#define N_FROM   4u
#define MS       RF_NS_PER_MS
#define READ_MAX 102400u

/**
 * struct conn - A connection
 * @m:		Model
 * @from:	The end that connects
 * @port:	Index of the port it connects to; @own: of the port it connects from, or N_FROM
 * @sock:	Sockets while their programs have them
 * @decided:	Connected or failed
 * @began_op, @began_ns: when
 * @closed_ns:	When its ends were closed
 */
struct conn {
	struct sock_model m;
	unsigned from, port, own;
	struct end_sock *sock[2];
	bool decided, accepted;
	uint64_t began_op, began_ns;
	uint64_t closed_ns[2];
};

static struct {
	uint64_t seed;
	struct wire wire;
	struct end ends[2];
	struct port_model ports[2][END_PORTS];
	unsigned last_accepted[2][END_PORTS];
	/* Pairs whose last use may have left packets on their way. */
	bool stale[2][N_FROM][END_PORTS];
	struct conn conns[CONNS];
	unsigned n_conns;
} t;

static uint32_t below(uint32_t n)
{
	return prng_below(&t.seed, n);
}

static void stale(const struct conn *c)
{
	if (c->own < N_FROM)
		t.stale[c->from][c->own][c->port] = true;
}

static void may_reset(struct conn *c)
{
	c->m.reset = true;
	stale(c);
}

/* What time alone allows to be reset. */
static void look_at_time(struct conn *c)
{
	const struct rf_vsock_params *params = &t.ends[c->from].params;

	if (!c->decided && t.wire.now_ns >= c->began_ns + params->handshake_ns)
		may_reset(c);
	for (unsigned side = 0; side < 2; side++)
		if (c->m.side[side].closed &&
		    t.wire.now_ns >= c->closed_ns[side] + params->shutdown_ns)
			may_reset(c);
}

static bool ended(const struct sock_model_side *s)
{
	return s->closed || (s->shut_rd && s->shut_wr);
}

/*
 * Both ends say good-bye, and neither has heard the other: each answers with RST, and one of those
 * may still be on its way when the ports are used again.
 */
static void look_at_crossing(const struct conn *c, unsigned side)
{
	if (ended(&c->m.side[!side]) && c->sock[side]->conn.state != RF_VSOCK_DEAD)
		stale(c);
}

static void give_up(struct conn *c, unsigned side)
{
	look_at_crossing(c, side);
	end_close(&t.ends[side], c->sock[side]);
	c->sock[side] = NULL;
	sock_model_close(&c->m, side);
	c->closed_ns[side] = t.wire.now_ns;
}

/* Has a connect been decided? Then rightly so? */
static void look_at_connect(struct conn *c)
{
	struct end_sock *sock = c->sock[c->from];
	struct port_model *port = &t.ports[!c->from][c->port];
	int error;

	if (c->decided || !sock || sock->connecting)
		return;
	c->decided = true;
	error = sock->error;
	model_note("connected", sock->use, c->from, 0, error);
	if (!error || error == -ECONNRESET) {
		if (!c->m.reset)
			model_check(port_model_answer(port, c->began_op, error));
	} else {
		MODEL_CHECK(error == -ETIMEDOUT && c->m.reset);
	}
	if (error) {
		if (!c->m.reset)
			port_model_end(port);
		may_reset(c);
		give_up(c, c->from);
	}
}

static void pass_time(uint64_t ns)
{
	t.wire.now_ns += ns;
	model_time(t.wire.now_ns);
	for (unsigned i = 0; i < t.n_conns; i++)
		look_at_time(&t.conns[i]);
}

static void turn(unsigned side)
{
	end_turn(&t.ends[side]);
	for (unsigned i = 0; i < t.n_conns; i++)
		look_at_connect(&t.conns[i]);
}

static void op_listen(void)
{
	unsigned side = below(2), port = below(END_PORTS), backlog = below(4) ? 8 : below(3);
	struct port_model *p = &t.ports[side][port];

	if (!p->listening) {
		model_note("listen", port, side, backlog, 0);
		end_listen(&t.ends[side], END_PORT_FIRST + port, backlog);
		port_model_listen(p, true, backlog, model_ops());
		return;
	}
	if (below(6))
		return;
	model_note("unlisten", port, side, 0, 0);
	for (unsigned i = 0; i < t.n_conns; i++) {
		struct conn *c = &t.conns[i];

		if (c->from != side && c->port == port && !c->accepted)
			may_reset(c);
	}
	end_unlisten(&t.ends[side], END_PORT_FIRST + port);
	port_model_listen(p, false, 0, model_ops());
}

static void connect_pair(unsigned from, unsigned own, unsigned port)
{
	struct conn *c = &t.conns[t.n_conns];

	if (t.n_conns == CONNS || (own < N_FROM && t.stale[from][own][port]))
		return;
	*c = (struct conn){
		.from = from,
		.port = port,
		.own = own,
		.began_op = model_ops(),
		.began_ns = t.wire.now_ns,
	};
	c->sock[from] = end_connect(&t.ends[from], own < N_FROM ? EXPLICIT + own : 0,
				    END_PORT_FIRST + port, t.n_conns);
	model_note("connect", t.n_conns, from, port * 10 + own, c->sock[from] ? 0 : -EADDRINUSE);
	if (!c->sock[from])
		return;
	t.n_conns++;
	port_model_begin(&t.ports[!from][port], model_ops());
}

static void op_connect(void)
{
	connect_pair(below(2), below(2) ? N_FROM : below(N_FROM), below(END_PORTS));
}

/* The ports of a connection that is just over, at once. */
static void op_reconnect(void)
{
	for (unsigned i = t.n_conns; i-- > 0;) {
		const struct conn *c = &t.conns[i];
		const struct end_sock *sock = c->sock[c->from];

		if (c->own == N_FROM || (sock && sock->in_table) || below(2))
			continue;
		connect_pair(c->from, c->own, c->port);
		return;
	}
}

static bool accept_one(unsigned side, unsigned port)
{
	struct end_sock *sock = end_accept(&t.ends[side], END_PORT_FIRST + port);
	struct conn *c;

	if (!sock)
		return false;
	model_note("accept", sock->use, side, port, 0);
	c = &t.conns[sock->use];
	MODEL_CHECK(c->from != side && c->port == port && !c->accepted);
	MODEL_CHECK(sock->use + 1 > t.last_accepted[side][port]);
	t.last_accepted[side][port] = sock->use + 1;
	c->accepted = true;
	c->sock[side] = sock;
	if (t.ports[side][port].waiting)
		port_model_end(&t.ports[side][port]);
	return true;
}

static void op_accept(void)
{
	accept_one(below(2), below(END_PORTS));
}

/* A socket that a program has and that is connected. Return: its connection, or NULL. */
static struct conn *pick(unsigned *ret_side)
{
	unsigned side = below(2);
	struct conn *c;

	if (!t.n_conns)
		return NULL;
	c = &t.conns[below(t.n_conns)];
	/* The latest ones are the ones that are open. */
	if (below(4) && t.n_conns > 8)
		c = &t.conns[t.n_conns - 1 - below(8)];
	*ret_side = side;
	return c->sock[side] && (side != c->from || c->decided) ? c : NULL;
}

static unsigned number(const struct conn *c)
{
	return (unsigned)(c - t.conns);
}

static void send_one(struct conn *c, unsigned side, uint32_t len, bool settled)
{
	long n = end_send(&t.ends[side], c->sock[side], len);

	/* The peer may have to be asked for its credit. */
	for (unsigned ms = 0; settled && n == -EAGAIN && ms < 1000; ms++) {
		pass_time(MS);
		turn(0);
		turn(1);
		n = end_send(&t.ends[side], c->sock[side], len);
	}
	model_note("send", number(c), side, len, n);
	model_check(sock_model_send(&c->m, side, n, settled));
}

static long recv_one(struct conn *c, unsigned side, uint32_t len, bool peek, bool settled)
{
	long n = end_recv(&t.ends[side], c->sock[side], len, peek);

	if (n != -EAGAIN || settled)
		model_note(peek ? "peek" : "recv", number(c), side, len, n);
	model_check(sock_model_recv(&c->m, side, n, peek, settled));
	return n;
}

static uint32_t some_bytes(void)
{
	return 1 + (below(3) ? below(READ_MAX) : below(200));
}

static void op_send(void)
{
	unsigned side;
	struct conn *c = pick(&side);

	if (c)
		send_one(c, side, some_bytes(), false);
}

static void op_recv(void)
{
	unsigned side;
	struct conn *c = pick(&side);

	if (c)
		recv_one(c, side, some_bytes(), !below(8), false);
}

static void op_shutdown(void)
{
	unsigned side, how = 1 + below(3);
	struct conn *c = pick(&side);

	if (!c || below(3))
		return;
	model_note("shutdown", number(c), side, how, 0);
	look_at_crossing(c, side);
	end_shutdown(&t.ends[side], c->sock[side], how & 1, how & 2);
	sock_model_shutdown(&c->m, side, how & 1, how & 2);
}

static void op_close(void)
{
	unsigned side = below(2);
	struct conn *c = t.n_conns ? &t.conns[below(t.n_conns)] : NULL;

	if (!c || !c->sock[side] || below(2))
		return;
	model_note("close", number(c), side, 0, 0);
	/* A peer that accepts, or has accepted, what is given up. */
	if (!c->decided || !c->accepted)
		may_reset(c);
	c->decided |= side == c->from;
	give_up(c, side);
}

static void op_params(void)
{
	static const uint32_t windows[] = { 4096, 5000, 65536, 262144, 8u << 20 };
	unsigned side = below(2), i = below(5);

	model_note("window", 0, side, windows[i], 0);
	t.ends[side].params.window = windows[i];
	t.ends[side].params.tx_limit = 8u << 20;
}

static void op_pause(void)
{
	struct end *end = &t.ends[below(2)];

	if (!end->paused && below(3))
		return;
	end->paused = !end->paused;
	model_note(end->paused ? "pause" : "resume", 0, end->side, 0, 0);
}

static void op_reset(void)
{
	if (below(20))
		return;
	model_note("reset", 0, 0, 0, 0);
	for (unsigned i = 0; i < t.n_conns; i++) {
		t.conns[i].m.reset = true;
		t.conns[i].decided |= !t.conns[i].sock[t.conns[i].from];
	}
	wire_reset(&t.wire);
	end_reset(&t.ends[0]);
	end_reset(&t.ends[1]);
	turn(0);
}

static void op_wait(void)
{
	uint64_t ns = below(20) ? below(30) * MS : (below(2) ? 2500 : 9000) * MS;

	model_note("wait", 0, 0, (long)(ns / MS), 0);
	pass_time(ns);
}

/* Both programs read all there is. Return: true if there was anything. */
static bool read_all(void)
{
	bool any = false;

	for (unsigned side = 0; side < 2; side++)
		for (unsigned port = 0; port < END_PORTS; port++)
			while (accept_one(side, port))
				any = true;
	for (unsigned i = 0; i < t.n_conns; i++)
		for (unsigned side = 0; side < 2; side++) {
			struct conn *c = &t.conns[i];

			if (!c->sock[side] || (side == c->from && !c->decided))
				continue;
			while (recv_one(c, side, READ_MAX, false, false) > 0)
				any = true;
		}
	return any;
}

/* Does anybody wait for a timer, to accept or to ask for credit? */
static bool waiting(void)
{
	for (unsigned side = 0; side < 2; side++)
		for (unsigned i = 0; i < END_SOCKS; i++) {
			const struct end_sock *sock = &t.ends[side].socks[i];

			if (sock->used && sock->in_table &&
			    (sock->dial_ns || sock->put > sock->out))
				return true;
		}
	return false;
}

/* Let all that is on its way arrive while everybody reads: within so many seconds it has to. */
static void settle(void)
{
	uint64_t end_ns = t.wire.now_ns + 60 * RF_NS_PER_SEC;
	bool busy = true;

	t.ends[0].paused = t.ends[1].paused = false;
	while (busy) {
		turn(0);
		turn(1);
		busy = read_all();
		busy |= !wire_empty(&t.wire) || !end_idle(&t.ends[0]) || !end_idle(&t.ends[1]) ||
			waiting();
		if (busy)
			pass_time(MS / 2 + below(2 * MS));
		MODEL_CHECK(t.wire.now_ns < end_ns);
	}
}

/* All credit has come back but for what the peer saves up. */
static void check_credit(const struct conn *c)
{
	for (unsigned side = 0; side < 2; side++) {
		const struct end_sock *sock = c->sock[side], *peer = c->sock[!side];
		const struct rf_vsock_credit *credit, *theirs;

		if (!sock || !peer || sock->conn.state != RF_VSOCK_ESTABLISHED ||
		    peer->conn.state != RF_VSOCK_ESTABLISHED)
			continue;
		credit = &sock->conn.credit;
		theirs = &peer->conn.credit;
		MODEL_CHECK(credit->tx_cnt == theirs->rx_cnt && theirs->rx_cnt == theirs->fwd_cnt);
		MODEL_CHECK(credit->peer_fwd_cnt == theirs->told_fwd_cnt);
		MODEL_CHECK(!rf_vsock_credit_due(theirs));
		if (theirs->tell == RF_VSOCK_TELL_BATCHED)
			MODEL_CHECK(rf_vsock_credit_in_flight(credit) <= theirs->buf_alloc / 4);
	}
}

static void check_settled(void)
{
	for (unsigned i = 0; i < t.n_conns; i++) {
		struct conn *c = &t.conns[i];

		MODEL_CHECK(c->decided);
		model_check(sock_model_settled(&c->m));
		check_credit(c);
		for (unsigned side = 0; side < 2; side++)
			if (c->sock[side])
				recv_one(c, side, 1, false, true);
	}
	for (unsigned side = 0; side < 2; side++) {
		MODEL_CHECK(!t.ends[side].sched.n_resets);
		for (unsigned port = 0; port < END_PORTS; port++)
			t.ports[side][port].waiting = 0;
	}
	memset(t.stale, 0, sizeof(t.stale));
}

static void op_settle(void)
{
	model_note("settle", 0, 0, 0, 0);
	settle();
	check_settled();
	for (unsigned i = 0; i < t.n_conns; i++)
		for (unsigned side = 0; side < 2; side++)
			if (t.conns[i].sock[side])
				send_one(&t.conns[i], side, 1 + below(100), true);
	settle();
	check_settled();
}

static void op_finish(void)
{
	for (unsigned i = 0; i < t.n_conns; i++)
		for (unsigned side = 0; side < 2; side++)
			if (t.conns[i].sock[side])
				give_up(&t.conns[i], side);
	settle();
	for (unsigned side = 0; side < 2; side++) {
		MODEL_CHECK(end_empty(&t.ends[side]));
	}
}

static const struct model_op ops[] = {
	{ op_listen, 3 }, { op_connect, 6 }, { op_reconnect, 6 }, { op_accept, 12 },
	{ op_send, 25 },  { op_recv, 25 },   { op_shutdown, 3 },  { op_close, 4 },
	{ op_params, 1 }, { op_pause, 3 },   { op_reset, 1 },     { op_wait, 6 },
	{ op_settle, 1 },
};

static void one_op(void)
{
	model_op(ops, RF_ARRAY_SIZE(ops), &t.seed);
	pass_time(below(3) ? 0 : below(2 * MS));
	if (below(2))
		turn(below(2));
}

static void begin(uint64_t seed)
{
	memset(&t, 0, sizeof(t));
	t.seed = seed * UINT64_C(0x9e3779b97f4a7c15);
	t.wire.seed = t.seed + 1;
	t.wire.room = 1u << below(7);
	t.wire.max_delay_ns = 1 + below(10 * MS);
	t.wire.now_ns = RF_NS_PER_SEC;
	for (unsigned side = 0; side < 2; side++) {
		struct end *end = &t.ends[side];

		t.wire.base[side] = below(2) ? 0 : -below(1u << 20);
		end_init(end, side, &t.wire, t.seed + side);
		end->buffer = below(2) ? 0 : 1u << (10 + below(10));
		end->dial_ns = below(2) ? 0 : below(1000 * MS);
		end->params.tell = below(2) ? RF_VSOCK_TELL_BATCHED : below(3);
		t.wire.batched[side] = end->params.tell == RF_VSOCK_TELL_BATCHED;
		for (unsigned port = 0; port < END_PORTS; port++) {
			end_listen(end, END_PORT_FIRST + port, 8);
			port_model_listen(&t.ports[side][port], port != 3, 8, 0);
		}
		end_unlisten(end, END_PORT_FIRST + 3);
	}
}

static void run(uint64_t seed, unsigned max_ops)
{
	unsigned n = rf_min_u32(max_ops, OPS);

	begin(seed);
	while (model_ops() < n)
		one_op();
	op_settle();
	op_finish();
}

int main(int argc, char **argv)
{
	static const struct model_test test = { "core", run };

	return model_main(&test, argc, argv);
}
