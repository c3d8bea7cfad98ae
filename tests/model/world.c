/* SPDX-License-Identifier: BSD-3-Clause */
#include "world.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "model_run.h"
#include "prng.h"

#define PERIOD 65521u

struct world world;

/* The bytes of all streams: each begins at another place and comes round after PERIOD. */
static uint8_t pattern[PERIOD + WORLD_READ_MAX];
static uint8_t buf[WORLD_READ_MAX];

void world_make_bytes(void)
{
	uint64_t seed = 1;

	for (size_t i = 0; i < sizeof(pattern); i++)
		pattern[i] = i < PERIOD ? (uint8_t)prng_next(&seed) : pattern[i - PERIOD];
}

uint32_t world_below(uint32_t n)
{
	return prng_below(&world.seed, n);
}

unsigned world_number(const struct conn *c)
{
	return (unsigned)(c - world.conns);
}

static const uint8_t *bytes_of(const struct conn *c, unsigned side, uint64_t pos)
{
	return &pattern[(pos + world_number(c) * 7919 + side * 104729) % PERIOD];
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
		return rf_send(world.h.guest, c->end[side], data, len, RF_MSG_DONTWAIT);
	n = result(send(c->end[side], data, len, MSG_NOSIGNAL | MSG_DONTWAIT));
	/* What a unix socket calls a reset is that its peer was closed with bytes unread. */
	return n == -ECONNRESET ? -EPIPE : n;
}

static long do_recv(struct conn *c, unsigned side, uint32_t len, bool peek)
{
	long n;

	if (side == GUEST)
		return rf_recv(world.h.guest, c->end[side], buf, len,
			       RF_MSG_DONTWAIT | (peek ? RF_MSG_PEEK : 0));
	do
		n = result(recv(c->end[side], buf, len, MSG_DONTWAIT | (peek ? MSG_PEEK : 0)));
	while (n == -ECONNRESET);
	return n;
}

static void do_close(struct conn *c, unsigned side)
{
	if (side == GUEST)
		MODEL_CHECK(rf_close(world.h.guest, c->end[side]) == 0);
	else
		close(c->end[side]);
	c->end[side] = NONE;
}

void world_close(struct conn *c, unsigned side)
{
	do_close(c, side);
	sock_model_close(&c->m, side);
	c->closed_ns[side] = halves_now();
}

void world_send(struct conn *c, unsigned side, uint32_t len, bool settled)
{
	long n = do_send(c, side, len);

	/* There may be one place on the ring, and the peer may have to be asked for its credit. */
	for (unsigned ms = 0; settled && n == -EAGAIN && ms < 1000; ms++) {
		world_pass_time(MS);
		world_turn(HOST);
		world_turn(GUEST);
		n = do_send(c, side, len);
	}
	model_note("send", world_number(c), side, len, n);
	model_check(sock_model_send(&c->m, side, n, settled));
}

long world_recv(struct conn *c, unsigned side, uint32_t len, bool peek, bool settled)
{
	const uint8_t *wanted = bytes_of(c, !side, c->m.side[side].got);
	long n;

	/* A unix socket still has what came before shutdown(). */
	if (side == HOST && c->m.side[side].shut_rd)
		return 0;
	n = do_recv(c, side, len, peek);
	if (n != -EAGAIN || settled)
		model_note(peek ? "peek" : "recv", world_number(c), side, len, n);
	model_check(sock_model_recv(&c->m, side, n, peek, settled));
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

	if (rf_getpeername(world.h.guest, c->end[GUEST], &addr) == 0)
		return 0;
	MODEL_CHECK(rf_getsockopt(world.h.guest, c->end[GUEST], RF_SO_ERROR, &error) == 0);
	return error ? -(long)error : -EAGAIN;
}

/* The same for a host program: "OK <port>", and not a byte more of the line than that is read. */
static long host_connect_result(const struct conn *c)
{
	char ok[32], text[32];
	long n = result(recv(c->end[HOST], text, sizeof(text), MSG_DONTWAIT | MSG_PEEK));
	size_t len = (size_t)snprintf(ok, sizeof(ok), "OK %u\n", WORLD_PORT_FIRST + c->slot);

	if (n <= 0)
		return n == -EAGAIN ? n : -ECONNRESET;
	MODEL_CHECK(n >= (long)len && memcmp(text, ok, len) == 0);
	MODEL_CHECK(recv(c->end[HOST], text, len, MSG_DONTWAIT) == (ssize_t)len);
	return 0;
}

static void look_at_connect(struct conn *c)
{
	struct slot *slot = &world.slots[!c->from][c->slot];
	long r;

	if (c->decided || c->end[c->from] == NONE)
		return;
	r = c->from == GUEST ? guest_connect_result(c) : host_connect_result(c);
	if (r == -EAGAIN)
		return;
	model_note("connected", world_number(c), c->from, 0, r);
	c->decided = true;
	if (!c->m.reset) {
		MODEL_CHECK(r == 0 || r == -ECONNRESET);
		model_check(port_model_answer(&slot->m, c->began_op, r));
	}
	if (r == 0)
		return;
	if (!c->m.reset && slot->waiting == c)
		slot->waiting = NULL;
	c->m.reset = true;
	world_close(c, c->from);
}

void world_look(void)
{
	for (unsigned i = 0; i < world.n_conns; i++) {
		look_at_time(&world.conns[i]);
		look_at_connect(&world.conns[i]);
	}
}

void world_pass_time(uint64_t ns)
{
	halves_pass_time(ns);
	model_time(halves_now());
	world_look();
}

bool world_turn(unsigned side)
{
	bool had = halves_turn(&world.h, side);

	if (had)
		world_look();
	return had;
}

static int guest_listen(uint32_t port)
{
	const struct rf_sockaddr addr = { RF_CID_ANY, port };
	int sock = rf_socket(world.h.guest, RF_SOCK_STREAM | RF_SOCK_NONBLOCK);

	MODEL_CHECK(sock > 0);
	MODEL_CHECK(rf_bind(world.h.guest, sock, &addr) == 0);
	MODEL_CHECK(rf_listen(world.h.guest, sock, 4) == 0);
	return sock;
}

void world_listen(unsigned side, unsigned i)
{
	struct slot *slot = &world.slots[side][i];

	slot->listener = side == GUEST ? guest_listen(WORLD_PORT_FIRST + i)
				       : halves_listen(&world.h, WORLD_PORT_FIRST + i);
	port_model_listen(&slot->m, true, 4, model_ops());
}

void world_unlisten(unsigned side, unsigned i)
{
	struct slot *slot = &world.slots[side][i];

	if (slot->waiting)
		slot->waiting->m.reset = true;
	if (side == GUEST)
		MODEL_CHECK(rf_close(world.h.guest, slot->listener) == 0);
	else
		halves_unlisten(&world.h, WORLD_PORT_FIRST + i, slot->listener);
	slot->listener = NONE;
	port_model_listen(&slot->m, false, 0, model_ops());
}

bool world_accept(unsigned side, unsigned i)
{
	struct slot *slot = &world.slots[side][i];
	struct conn *c = slot->waiting;
	long r;

	if (slot->listener == NONE)
		return false;
	if (side == GUEST)
		r = rf_accept(world.h.guest, slot->listener, NULL, RF_SOCK_NONBLOCK);
	else
		r = result(accept4(slot->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
	if (r == -EAGAIN)
		return false;
	model_note("accept", c ? world_number(c) : 99, side, i, r);
	MODEL_CHECK(r >= 0 && c);
	c->end[side] = (int)r;
	c->accepted = true;
	slot->waiting = NULL;
	return true;
}

bool world_usable(const struct conn *c, unsigned side)
{
	return c->end[side] != NONE && (side != c->from || c->decided);
}
