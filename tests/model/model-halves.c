/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random operations on the guest half's sockets and on host programs' unix sockets at the other end
 * of the same connections, through both real halves, against the model of sockets (sock_model.h).
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"
#include "halves.h"
#include "model_run.h"
#include "prng.h"
#include "sock_model.h"

#define HOST       0u
#define GUEST      1u
#define CONNS      48u
#define OPEN_MAX   16u
#define OPS        300u
#define SLOTS      6u
#define PORT_FIRST 100u
#define OWN_FIRST  3000u
#define MS         RF_NS_PER_MS
#define READ_MAX   102400u
#define PERIOD     65521u
#define NONE       (-1)

/**
 * struct conn - A connection
 * @m:		Model
 * @from:	The end that connects
 * @slot:	Port it connects to, less PORT_FIRST
 * @end:	Descriptors while programs have them, or NONE
 * @own:	From a port that is used again and again
 * @decided:	Connected or failed; @accepted: its peer has it
 * @gone:	It is over, and no packet of it is on its way
 * @began_op, @began_ns: when
 * @closed_ns:	When its ends were closed; @over_ns: when no bytes could come any more
 */
struct conn {
	struct sock_model m;
	unsigned from, slot;
	int end[2];
	bool own, decided, accepted, gone;
	uint64_t began_op, began_ns;
	uint64_t closed_ns[2], over_ns;
};

/* A port that is listened on at one end, for one connection at a time that is not accepted yet. */
struct slot {
	struct port_model m;
	int listener;
	struct conn *waiting;
};

static struct {
	uint64_t seed;
	struct halves h;
	struct slot slots[2][SLOTS];
	struct conn conns[CONNS];
	unsigned n_conns;
} t;

/* The bytes of all streams: each begins at another place and comes round after PERIOD. */
static uint8_t pattern[PERIOD + READ_MAX];
static uint8_t buf[READ_MAX];

static uint32_t below(uint32_t n)
{
	return prng_below(&t.seed, n);
}

static void check(const char *what)
{
	if (what)
		model_fail("%s", what);
}

static unsigned number(const struct conn *c)
{
	return (unsigned)(c - t.conns);
}

static const uint8_t *bytes_of(const struct conn *c, unsigned side, uint64_t pos)
{
	return &pattern[(pos + number(c) * 7919 + side * 104729) % PERIOD];
}

static long result(long n)
{
	return n < 0 ? -errno : n;
}

/* Calls of sockets */

static long do_send(struct conn *c, unsigned side, uint32_t len)
{
	const uint8_t *data = bytes_of(c, side, c->m.side[side].sent);
	long n;

	if (side == GUEST)
		return rf_send(t.h.guest, c->end[side], data, len, RF_MSG_DONTWAIT);
	n = result(send(c->end[side], data, len, MSG_NOSIGNAL | MSG_DONTWAIT));
	/* What a unix socket calls a reset is that its peer was closed with bytes unread. */
	return n == -ECONNRESET ? -EPIPE : n;
}

static long do_recv(struct conn *c, unsigned side, uint32_t len, bool peek)
{
	long n;

	if (side == GUEST)
		return rf_recv(t.h.guest, c->end[side], buf, len,
			       RF_MSG_DONTWAIT | (peek ? RF_MSG_PEEK : 0));
	do
		n = result(recv(c->end[side], buf, len, MSG_DONTWAIT | (peek ? MSG_PEEK : 0)));
	while (n == -ECONNRESET);
	return n;
}

static void do_close(struct conn *c, unsigned side)
{
	if (side == GUEST)
		MODEL_CHECK(rf_close(t.h.guest, c->end[side]) == 0);
	else
		close(c->end[side]);
	c->end[side] = NONE;
}

static void give_up(struct conn *c, unsigned side)
{
	do_close(c, side);
	sock_model_close(&c->m, side);
	c->closed_ns[side] = halves_now();
}

static bool turn(unsigned side);
static void pass_time(uint64_t ns);

static void send_one(struct conn *c, unsigned side, uint32_t len, bool settled)
{
	long n = do_send(c, side, len);

	/* There may be one place on the ring, and the peer may have to be asked for its credit. */
	for (unsigned ms = 0; settled && n == -EAGAIN && ms < 1000; ms++) {
		pass_time(MS);
		turn(HOST);
		turn(GUEST);
		n = do_send(c, side, len);
	}
	model_note("send", number(c), side, len, n);
	check(sock_model_send(&c->m, side, n, settled));
}

static long recv_one(struct conn *c, unsigned side, uint32_t len, bool peek, bool settled)
{
	const uint8_t *wanted = bytes_of(c, !side, c->m.side[side].got);
	long n;

	/* A unix socket still has what came before shutdown(). */
	if (side == HOST && c->m.side[side].shut_rd)
		return 0;
	n = do_recv(c, side, len, peek);
	if (n != -EAGAIN || settled)
		model_note(peek ? "peek" : "recv", number(c), side, len, n);
	check(sock_model_recv(&c->m, side, n, peek, settled));
	if (n > 0 && memcmp(buf, wanted, (size_t)n) != 0)
		model_fail("wrong bytes");
	return n;
}

/* Can no bytes come from this end any more? */
static bool dried_up(const struct conn *c, unsigned side)
{
	const struct sock_model_side *s = &c->m.side[side], *peer = &c->m.side[!side];

	return s->shut_wr || s->closed || peer->shut_rd || peer->closed;
}

/* What time alone allows to be reset. */
static void look_at_time(struct conn *c)
{
	/* A unix socket that is shut down both ways, by whomever, looks as if it were closed. */
	if (!c->over_ns && dried_up(c, HOST) && dried_up(c, GUEST))
		c->over_ns = halves_now();
	if (c->over_ns && halves_now() >= c->over_ns + RF_VSOCK_SHUTDOWN_NS)
		c->m.reset = true;
	if (!c->decided && halves_now() >= c->began_ns + RF_VSOCK_HANDSHAKE_NS - 100 * MS)
		c->m.reset = true;
	for (unsigned side = 0; side < 2; side++)
		if (c->m.side[side].closed &&
		    halves_now() >= c->closed_ns[side] + RF_VSOCK_SHUTDOWN_NS)
			c->m.reset = true;
}

/* Return: 0, -EAGAIN while it is not known, or -errno. */
static long guest_connect_result(const struct conn *c)
{
	struct rf_sockaddr addr;
	uint64_t error;

	if (rf_getpeername(t.h.guest, c->end[GUEST], &addr) == 0)
		return 0;
	MODEL_CHECK(rf_getsockopt(t.h.guest, c->end[GUEST], RF_SO_ERROR, &error) == 0);
	return error ? -(long)error : -EAGAIN;
}

/* The same for a host program: "OK <port>", and not a byte more of the line than that is read. */
static long host_connect_result(const struct conn *c)
{
	char ok[32], text[32];
	long n = result(recv(c->end[HOST], text, sizeof(text), MSG_DONTWAIT | MSG_PEEK));
	size_t len = (size_t)snprintf(ok, sizeof(ok), "OK %u\n", PORT_FIRST + c->slot);

	if (n <= 0)
		return n == -EAGAIN ? n : -ECONNRESET;
	MODEL_CHECK(n >= (long)len && memcmp(text, ok, len) == 0);
	MODEL_CHECK(recv(c->end[HOST], text, len, MSG_DONTWAIT) == (ssize_t)len);
	return 0;
}

static void look_at_connect(struct conn *c)
{
	struct slot *slot = &t.slots[!c->from][c->slot];
	long r;

	if (c->decided || c->end[c->from] == NONE)
		return;
	r = c->from == GUEST ? guest_connect_result(c) : host_connect_result(c);
	if (r == -EAGAIN)
		return;
	model_note("connected", number(c), c->from, 0, r);
	c->decided = true;
	if (!c->m.reset) {
		MODEL_CHECK(r == 0 || r == -ECONNRESET);
		check(port_model_answer(&slot->m, c->began_op, r));
	}
	if (r == 0)
		return;
	if (!c->m.reset && slot->waiting == c)
		slot->waiting = NULL;
	c->m.reset = true;
	give_up(c, c->from);
}

static void look_around(void)
{
	for (unsigned i = 0; i < t.n_conns; i++) {
		look_at_time(&t.conns[i]);
		look_at_connect(&t.conns[i]);
	}
}

static void pass_time(uint64_t ns)
{
	halves_pass_time(ns);
	model_time(halves_now());
	look_around();
}

static bool turn(unsigned side)
{
	bool had = halves_turn(&t.h, side);

	if (had)
		look_around();
	return had;
}

static int guest_listen(uint32_t port)
{
	const struct rf_sockaddr addr = { RF_CID_ANY, port };
	int sock = rf_socket(t.h.guest, RF_SOCK_STREAM | RF_SOCK_NONBLOCK);

	MODEL_CHECK(sock > 0);
	MODEL_CHECK(rf_bind(t.h.guest, sock, &addr) == 0);
	MODEL_CHECK(rf_listen(t.h.guest, sock, 4) == 0);
	return sock;
}

static void listen_slot(unsigned side, unsigned i)
{
	struct slot *slot = &t.slots[side][i];

	slot->listener =
		side == GUEST ? guest_listen(PORT_FIRST + i) : halves_listen(&t.h, PORT_FIRST + i);
	port_model_listen(&slot->m, true, 4, model_ops());
}

static void unlisten_slot(unsigned side, unsigned i)
{
	struct slot *slot = &t.slots[side][i];

	if (slot->waiting)
		slot->waiting->m.reset = true;
	if (side == GUEST)
		MODEL_CHECK(rf_close(t.h.guest, slot->listener) == 0);
	else
		halves_unlisten(&t.h, PORT_FIRST + i, slot->listener);
	slot->listener = NONE;
	port_model_listen(&slot->m, false, 0, model_ops());
}

static void op_listen(void)
{
	unsigned side = below(2), i = below(SLOTS);

	if (t.slots[side][i].listener == NONE) {
		model_note("listen", i, side, 0, 0);
		listen_slot(side, i);
	} else if (!below(6)) {
		model_note("unlisten", i, side, 0, 0);
		unlisten_slot(side, i);
	}
}

/* Return: a socket of the guest on its way to a port, or -errno. */
static int guest_connect(uint32_t port, uint32_t own)
{
	const struct rf_sockaddr self = { RF_CID_ANY, own }, peer = { RF_CID_HOST, port };
	int sock = rf_socket(t.h.guest, RF_SOCK_STREAM | RF_SOCK_NONBLOCK);
	int r = 0;

	MODEL_CHECK(sock > 0);
	if (!below(4))
		rf_setsockopt(t.h.guest, sock, RF_SO_BUFFER_SIZE, 4096 + below(60000));
	if (own)
		r = rf_bind(t.h.guest, sock, &self);
	if (r == 0)
		r = rf_connect(t.h.guest, sock, &peer);
	if (r == -EINPROGRESS)
		return sock;
	rf_close(t.h.guest, sock);
	return r;
}

static unsigned n_open(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < t.n_conns; i++)
		n += t.conns[i].end[HOST] != NONE || t.conns[i].end[GUEST] != NONE;
	return n;
}

/*
 * May packets of an earlier use of these ports be on their way? If a connect was given up, or both
 * ends said good-bye before they heard the other, RESPONSE or RST may come yet.
 */
static bool stale(unsigned i)
{
	for (unsigned n = 0; n < t.n_conns; n++) {
		const struct conn *c = &t.conns[n];
		const struct sock_model_side *host = &c->m.side[HOST], *guest = &c->m.side[GUEST];

		if (c->from == GUEST && c->slot == i && c->own && !c->gone &&
		    (c->m.reset || (c->over_ns && !host->eof && !guest->eof)))
			return true;
	}
	return false;
}

static void op_connect(void)
{
	struct conn *c = &t.conns[t.n_conns];
	unsigned from = below(2), i = below(SLOTS);
	struct slot *slot = &t.slots[!from][i];
	int r;

	if (t.n_conns == CONNS || slot->waiting || n_open() >= OPEN_MAX)
		return;
	*c = (struct conn){
		.from = from,
		.slot = i,
		.end = { NONE, NONE },
		.began_op = model_ops(),
		.began_ns = halves_now(),
		.m.side[HOST].quiet = true,
		.own = from == GUEST && !stale(i) && below(2),
	};
	if (from == GUEST)
		r = guest_connect(PORT_FIRST + i, c->own ? OWN_FIRST + i : 0);
	else
		r = halves_ask(&t.h, PORT_FIRST + i);
	model_note("connect", t.n_conns, from, i, r);
	if (r < 0) {
		MODEL_CHECK(from == GUEST && r == -EADDRINUSE);
		return;
	}
	c->end[from] = r;
	slot->waiting = c;
	t.n_conns++;
}

static bool accept_one(unsigned side, unsigned i)
{
	struct slot *slot = &t.slots[side][i];
	struct conn *c = slot->waiting;
	long r;

	if (slot->listener == NONE)
		return false;
	if (side == GUEST)
		r = rf_accept(t.h.guest, slot->listener, NULL, RF_SOCK_NONBLOCK);
	else
		r = result(accept4(slot->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
	if (r == -EAGAIN)
		return false;
	model_note("accept", c ? number(c) : 99, side, i, r);
	MODEL_CHECK(r >= 0 && c);
	c->end[side] = (int)r;
	c->accepted = true;
	slot->waiting = NULL;
	return true;
}

static void op_accept(void)
{
	accept_one(below(2), below(SLOTS));
}

/* May this end's program send and receive? */
static bool usable(const struct conn *c, unsigned side)
{
	return c->end[side] != NONE && (side != c->from || c->decided);
}

static struct conn *pick(unsigned *ret_side)
{
	struct conn *c;

	if (!t.n_conns)
		return NULL;
	c = &t.conns[t.n_conns - 1 - below(rf_min_u32(t.n_conns, below(4) ? 8 : CONNS))];
	*ret_side = below(2);
	return usable(c, *ret_side) ? c : NULL;
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

/* Host programs do not wait until the device has had its turn. */
static void meanwhile(void)
{
	struct conn *c;

	if (!t.n_conns || below(2))
		return;
	c = &t.conns[t.n_conns - 1 - below(rf_min_u32(t.n_conns, 8))];
	if (!usable(c, HOST))
		return;
	if (below(4))
		recv_one(c, HOST, some_bytes(), false, false);
	else
		send_one(c, HOST, some_bytes(), false);
}

static void op_shutdown(void)
{
	static const int hows[] = { RF_SHUT_RD, RF_SHUT_WR, RF_SHUT_RDWR };
	unsigned side, how = below(3);
	struct conn *c = pick(&side);
	int r;

	if (!c || below(3))
		return;
	if (side == GUEST)
		r = rf_shutdown(t.h.guest, c->end[side], hows[how]);
	else
		r = shutdown(c->end[side], hows[how]);
	model_note("shutdown", number(c), side, how, r);
	sock_model_shutdown(&c->m, side, how != 1, how != 0);
}

static void op_close(void)
{
	unsigned side = below(2);
	struct conn *c = t.n_conns ? &t.conns[below(t.n_conns)] : NULL;

	if (!c || c->end[side] == NONE || below(2))
		return;
	model_note("close", number(c), side, 0, 0);
	if (!c->decided || !c->accepted)
		c->m.reset = true;
	c->decided |= side == c->from;
	give_up(c, side);
}

/* The host half is killed and comes back. */
static void op_restart(void)
{
	if (below(12))
		return;
	model_note("restart", 0, 0, 0, 0);
	for (unsigned i = 0; i < t.n_conns; i++)
		t.conns[i].m.reset = true;
	halves_restart(&t.h);
	look_around();
}

/* Whether or not the host does anything, a guest's connect is decided in time. */
static void check_timeouts(void)
{
	while (turn(GUEST))
		pass_time(MS);
	for (unsigned i = 0; i < t.n_conns; i++)
		MODEL_CHECK(t.conns[i].decided || t.conns[i].from == HOST);
}

static void op_wait(void)
{
	uint64_t ns = below(30) ? below(30) * MS : (below(2) ? 2500 : 9000) * MS;

	model_note("wait", 0, 0, (long)(ns / MS), 0);
	pass_time(ns);
	if (ns > RF_VSOCK_HANDSHAKE_NS)
		check_timeouts();
}

static void op_turn(void)
{
	unsigned side = below(2), n = 1 + below(4);

	for (unsigned i = 0; i < n; i++)
		turn(side);
}

static bool read_all(void)
{
	bool any = false;

	for (unsigned side = 0; side < 2; side++)
		for (unsigned i = 0; i < SLOTS; i++)
			while (accept_one(side, i))
				any = true;
	for (unsigned i = 0; i < t.n_conns; i++)
		for (unsigned side = 0; side < 2; side++)
			while (usable(&t.conns[i], side) &&
			       recv_one(&t.conns[i], side, READ_MAX, false, false) > 0)
				any = true;
	return any;
}

/* Everybody reads until both halves sleep and nothing has come for a while. */
static void settle(void)
{
	unsigned quiet = 0;

	halves_meanwhile = NULL;
	for (unsigned rounds = 0; quiet < 16; rounds++) {
		bool busy = turn(HOST);

		MODEL_CHECK(rounds < 20000);
		busy |= turn(GUEST);
		busy |= read_all();
		quiet = busy ? 0 : quiet + 1;
		if (!busy)
			pass_time(quiet * MS);
	}
}

static void check_settled(void)
{
	for (unsigned i = 0; i < t.n_conns; i++) {
		struct conn *c = &t.conns[i];

		MODEL_CHECK(c->decided);
		check(sock_model_settled(&c->m));
		c->gone = c->over_ns || c->m.reset;
		for (unsigned side = 0; side < 2; side++)
			if (usable(c, side))
				recv_one(c, side, 1, false, true);
	}
	for (unsigned side = 0; side < 2; side++)
		for (unsigned i = 0; i < SLOTS; i++)
			t.slots[side][i].waiting = NULL;
}

static void op_settle(void)
{
	model_note("settle", 0, 0, 0, 0);
	settle();
	check_settled();
	for (unsigned i = 0; i < t.n_conns; i++)
		for (unsigned side = 0; side < 2; side++)
			if (usable(&t.conns[i], side))
				send_one(&t.conns[i], side, 1 + below(100), true);
	settle();
	check_settled();
	halves_meanwhile = meanwhile;
}

static const struct {
	void (*run)(void);
	unsigned weight;
} ops[] = {
	{ op_listen, 3 }, { op_connect, 6 }, { op_accept, 12 },  { op_send, 20 },
	{ op_recv, 20 },  { op_close, 4 },   { op_shutdown, 3 }, { op_restart, 1 },
	{ op_wait, 5 },   { op_turn, 25 },   { op_settle, 1 },
};

static void one_op(void)
{
	unsigned sum = 0, at, i;

	for (i = 0; i < RF_ARRAY_SIZE(ops); i++)
		sum += ops[i].weight;
	at = below(sum);
	for (i = 0; at >= ops[i].weight; i++)
		at -= ops[i].weight;
	ops[i].run();
	look_around();
}

static void begin(uint64_t seed)
{
	static const uint32_t windows[] = { 4096, 20000, 262144, 1u << 20 };
	static const uint32_t buffers[] = { 256, 4096, 65536 };

	memset(&t, 0, sizeof(t));
	t.seed = seed * UINT64_C(0x9e3779b97f4a7c15);
	halves_meanwhile = meanwhile;
	halves_open(&t.h, windows[below(4)], 2u << below(7), buffers[below(3)],
		    1 << (11 + below(10)), (int)below(3));
	for (unsigned side = 0; side < 2; side++)
		for (unsigned i = 0; i < SLOTS; i++)
			if (i > 0)
				listen_slot(side, i);
			else
				t.slots[side][i].listener = NONE;
}

/* No more connections have ended in disorder than had a reason to. */
static void check_ends(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < t.n_conns; i++)
		n += t.conns[i].m.reset;
	MODEL_CHECK(halves_disorderly(&t.h) <= n);
}

static void finish(void)
{
	for (unsigned i = 0; i < t.n_conns; i++)
		for (unsigned side = 0; side < 2; side++)
			if (t.conns[i].end[side] != NONE)
				give_up(&t.conns[i], side);
	for (unsigned side = 0; side < 2; side++)
		for (unsigned i = 0; i < SLOTS; i++)
			if (t.slots[side][i].listener != NONE)
				unlisten_slot(side, i);
	settle();
	MODEL_CHECK(!halves_connections(&t.h, HOST));
	MODEL_CHECK(!halves_connections(&t.h, GUEST));
	check_ends();
	halves_close(&t.h);
}

static void run(uint64_t seed, unsigned max_ops)
{
	unsigned n = rf_min_u32(max_ops, OPS);

	begin(seed);
	while (model_ops() < n)
		one_op();
	op_settle();
	finish();
}

int main(int argc, char **argv)
{
	static const struct model_test test = { "halves", run };
	uint64_t seed = 1;

	for (size_t i = 0; i < sizeof(pattern); i++)
		pattern[i] = i < PERIOD ? (uint8_t)prng_next(&seed) : pattern[i - PERIOD];
	return model_main(&test, argc, argv);
}
