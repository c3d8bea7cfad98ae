/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random operations on the guest half's sockets and on host programs' unix sockets at the other end
 * of the same connections, through both real halves, against the model of sockets (sock_model.h).
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "model_run.h"
#include "world.h"

#define OPEN_MAX  16u
#define OPS       300u
#define OWN_FIRST 3000u

static void op_listen(void)
{
	unsigned side = world_below(2), i = world_below(WORLD_SLOTS);

	if (world.slots[side][i].listener == NONE) {
		model_note("listen", i, side, 0, 0);
		world_listen(side, i);
	} else if (!world_below(6)) {
		model_note("unlisten", i, side, 0, 0);
		world_unlisten(side, i);
	}
}

/* Return: a socket of the guest on its way to a port, or -errno. */
static int guest_connect(uint32_t port, uint32_t own)
{
	const struct rf_sockaddr self = { RF_CID_ANY, own }, peer = { RF_CID_HOST, port };
	int sock = rf_socket(world.h.guest, RF_SOCK_STREAM | RF_SOCK_NONBLOCK);
	int r = 0;

	MODEL_CHECK(sock > 0);
	if (!world_below(4))
		rf_setsockopt(world.h.guest, sock, RF_SO_BUFFER_SIZE, 4096 + world_below(60000));
	if (own)
		r = rf_bind(world.h.guest, sock, &self);
	if (r == 0)
		r = rf_connect(world.h.guest, sock, &peer);
	if (r == -EINPROGRESS)
		return sock;
	rf_close(world.h.guest, sock);
	return r;
}

static unsigned n_open(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < world.n_conns; i++)
		n += world.conns[i].end[HOST] != NONE || world.conns[i].end[GUEST] != NONE;
	return n;
}

/*
 * May packets of an earlier use of these ports be on their way? If a connect was given up, or both
 * ends said good-bye before they heard the other, RESPONSE or RST may come yet.
 */
static bool stale(unsigned i)
{
	for (unsigned n = 0; n < world.n_conns; n++) {
		const struct conn *c = &world.conns[n];
		const struct sock_model_side *host = &c->m.side[HOST], *guest = &c->m.side[GUEST];

		if (c->from == GUEST && c->slot == i && c->own && !c->gone &&
		    (c->m.reset || (c->over_ns && !host->eof && !guest->eof)))
			return true;
	}
	return false;
}

static void op_connect(void)
{
	struct conn *c = &world.conns[world.n_conns];
	unsigned from = world_below(2), i = world_below(WORLD_SLOTS);
	struct slot *slot = &world.slots[!from][i];
	int r;

	if (world.n_conns == WORLD_CONNS || slot->waiting || n_open() >= OPEN_MAX)
		return;
	*c = (struct conn){
		.from = from,
		.slot = i,
		.end = { NONE, NONE },
		.began_op = model_ops(),
		.began_ns = halves_now(),
		.m.side[HOST].quiet = true,
		.own = from == GUEST && !stale(i) && world_below(2),
	};
	if (from == GUEST)
		r = guest_connect(WORLD_PORT_FIRST + i, c->own ? OWN_FIRST + i : 0);
	else
		r = halves_ask(&world.h, WORLD_PORT_FIRST + i);
	model_note("connect", world.n_conns, from, i, r);
	if (r < 0) {
		MODEL_CHECK(from == GUEST && r == -EADDRINUSE);
		return;
	}
	c->end[from] = r;
	slot->waiting = c;
	world.n_conns++;
}

static void op_accept(void)
{
	world_accept(world_below(2), world_below(WORLD_SLOTS));
}

static struct conn *pick(unsigned *ret_side)
{
	struct conn *c;

	if (!world.n_conns)
		return NULL;
	c = &world.conns[world.n_conns - 1 -
			 world_below(rf_min_u32(world.n_conns, world_below(4) ? 8 : WORLD_CONNS))];
	*ret_side = world_below(2);
	return world_usable(c, *ret_side) ? c : NULL;
}

static uint32_t some_bytes(void)
{
	return 1 + (world_below(3) ? world_below(WORLD_READ_MAX) : world_below(200));
}

static void op_send(void)
{
	unsigned side;
	struct conn *c = pick(&side);

	if (c)
		world_send(c, side, some_bytes(), false);
}

static void op_recv(void)
{
	unsigned side;
	struct conn *c = pick(&side);

	if (c)
		world_recv(c, side, some_bytes(), !world_below(8), false);
}

/* Host programs do not wait until the device has had its turn. */
static void meanwhile(void)
{
	struct conn *c;

	if (!world.n_conns || world_below(2))
		return;
	c = &world.conns[world.n_conns - 1 - world_below(rf_min_u32(world.n_conns, 8))];
	if (!world_usable(c, HOST))
		return;
	if (world_below(4))
		world_recv(c, HOST, some_bytes(), false, false);
	else
		world_send(c, HOST, some_bytes(), false);
}

static void op_shutdown(void)
{
	static const int hows[] = { RF_SHUT_RD, RF_SHUT_WR, RF_SHUT_RDWR };
	unsigned side, how = world_below(3);
	struct conn *c = pick(&side);
	int r;

	if (!c || world_below(3))
		return;
	if (side == GUEST)
		r = rf_shutdown(world.h.guest, c->end[side], hows[how]);
	else
		r = shutdown(c->end[side], hows[how]);
	model_note("shutdown", world_number(c), side, how, r);
	sock_model_shutdown(&c->m, side, how != 1, how != 0);
}

static void op_close(void)
{
	unsigned side = world_below(2);
	struct conn *c = world.n_conns ? &world.conns[world_below(world.n_conns)] : NULL;

	if (!c || c->end[side] == NONE || world_below(2))
		return;
	model_note("close", world_number(c), side, 0, 0);
	if (!c->decided || !c->accepted)
		c->m.reset = true;
	c->decided |= side == c->from;
	world_close(c, side);
}

/* The host half is killed and comes back. */
static void op_restart(void)
{
	if (world_below(12))
		return;
	model_note("restart", 0, 0, 0, 0);
	for (unsigned i = 0; i < world.n_conns; i++)
		world.conns[i].m.reset = true;
	halves_restart(&world.h);
	world_look();
}

/* Whether or not the host does anything, a guest's connect is decided in time. */
static void check_timeouts(void)
{
	while (world_turn(GUEST))
		world_pass_time(MS);
	for (unsigned i = 0; i < world.n_conns; i++)
		MODEL_CHECK(world.conns[i].decided || world.conns[i].from == HOST);
}

static void op_wait(void)
{
	uint64_t ns = world_below(30) ? world_below(30) * MS : (world_below(2) ? 2500 : 9000) * MS;

	model_note("wait", 0, 0, (long)(ns / MS), 0);
	world_pass_time(ns);
	if (ns > RF_VSOCK_HANDSHAKE_NS)
		check_timeouts();
}

static void op_turn(void)
{
	unsigned side = world_below(2), n = 1 + world_below(4);

	for (unsigned i = 0; i < n; i++)
		world_turn(side);
}

static bool read_all(void)
{
	bool any = false;

	for (unsigned side = 0; side < 2; side++)
		for (unsigned i = 0; i < WORLD_SLOTS; i++)
			while (world_accept(side, i))
				any = true;
	for (unsigned i = 0; i < world.n_conns; i++)
		for (unsigned side = 0; side < 2; side++)
			while (world_usable(&world.conns[i], side) &&
			       world_recv(&world.conns[i], side, WORLD_READ_MAX, false, false) > 0)
				any = true;
	return any;
}

/* Everybody reads until both halves sleep and nothing has come for a while. */
static void settle(void)
{
	unsigned quiet = 0;

	halves_meanwhile = NULL;
	for (unsigned rounds = 0; quiet < 16; rounds++) {
		bool busy = world_turn(HOST);

		MODEL_CHECK(rounds < 20000);
		busy |= world_turn(GUEST);
		busy |= read_all();
		quiet = busy ? 0 : quiet + 1;
		if (!busy)
			world_pass_time(quiet * MS);
	}
}

static void check_settled(void)
{
	for (unsigned i = 0; i < world.n_conns; i++) {
		struct conn *c = &world.conns[i];

		MODEL_CHECK(c->decided);
		model_check(sock_model_settled(&c->m));
		c->gone = c->over_ns || c->m.reset;
		for (unsigned side = 0; side < 2; side++)
			if (world_usable(c, side))
				world_recv(c, side, 1, false, true);
	}
	for (unsigned side = 0; side < 2; side++)
		for (unsigned i = 0; i < WORLD_SLOTS; i++)
			world.slots[side][i].waiting = NULL;
}

static void op_settle(void)
{
	model_note("settle", 0, 0, 0, 0);
	settle();
	check_settled();
	for (unsigned i = 0; i < world.n_conns; i++)
		for (unsigned side = 0; side < 2; side++)
			if (world_usable(&world.conns[i], side))
				world_send(&world.conns[i], side, 1 + world_below(100), true);
	settle();
	check_settled();
	halves_meanwhile = meanwhile;
}

static const struct model_op ops[] = {
	{ op_listen, 3 }, { op_connect, 6 }, { op_accept, 12 },  { op_send, 20 },
	{ op_recv, 20 },  { op_close, 4 },   { op_shutdown, 3 }, { op_restart, 1 },
	{ op_wait, 5 },   { op_turn, 25 },   { op_settle, 1 },
};

static void one_op(void)
{
	model_op(ops, RF_ARRAY_SIZE(ops), &world.seed);
	world_look();
}

static void begin(uint64_t seed)
{
	static const uint32_t windows[] = { 4096, 20000, 262144, 1u << 20 };
	static const uint32_t buffers[] = { 256, 4096, 65536 };

	memset(&world, 0, sizeof(world));
	world.seed = seed * UINT64_C(0x9e3779b97f4a7c15);
	halves_meanwhile = meanwhile;
	halves_open(&world.h, windows[world_below(4)], 2u << world_below(7),
		    buffers[world_below(3)], 1 << (11 + world_below(10)), (int)world_below(3));
	for (unsigned side = 0; side < 2; side++)
		for (unsigned i = 0; i < WORLD_SLOTS; i++)
			if (i > 0)
				world_listen(side, i);
			else
				world.slots[side][i].listener = NONE;
}

/* No more connections have ended in disorder than had a reason to. */
static void check_ends(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < world.n_conns; i++)
		n += world.conns[i].m.reset;
	MODEL_CHECK(halves_disorderly(&world.h) <= n);
}

static void finish(void)
{
	for (unsigned i = 0; i < world.n_conns; i++)
		for (unsigned side = 0; side < 2; side++)
			if (world.conns[i].end[side] != NONE)
				world_close(&world.conns[i], side);
	for (unsigned side = 0; side < 2; side++)
		for (unsigned i = 0; i < WORLD_SLOTS; i++)
			if (world.slots[side][i].listener != NONE)
				world_unlisten(side, i);
	settle();
	MODEL_CHECK(!halves_connections(&world.h, HOST));
	MODEL_CHECK(!halves_connections(&world.h, GUEST));
	check_ends();
	halves_close(&world.h);
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

	world_make_bytes();
	return model_main(&test, argc, argv);
}
