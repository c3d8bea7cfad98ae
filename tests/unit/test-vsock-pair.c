/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two connections joined by a link that delays but keeps the order; both ends send, consume, shut
 * down and close at random. Beside them a model that sees only the packets checks every one.
 */
#include "vsock/conn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "prng.h"
#include "vsock/limits.h"

#define RUNS     40000
#define STEPS    400
#define LINK_MAX 4096

struct packet {
	struct rf_vsock_hdr hdr;
	uint64_t pos; /* RW: place of its payload in the stream */
};

/**
 * struct end - One end, with what the model knows of it
 * @conn:	The connection under test
 * @params:	Its parameters
 * @base:	Where its count of sent bytes began, to let it wrap
 * @exists:	@conn was begun
 * @link, @head, @n: packets on their way to this end
 * @sent:	Bytes it has sent
 * @may_reach:	Byte up to which it may send, from the last header it got
 * @arrived:	Bytes that were admitted
 * @consumed:	Of these, bytes consumed
 * @updates, @requests: CREDIT_UPDATEs and CREDIT_REQUESTs that it sent
 * @queued, @first_queued, @n_queued: ends of the packets that arrived and were not consumed whole
 * @up:		It has handed out RESPONSE, or got it
 * @out_any, @out_rst, @out_shut: what it has handed out: any packet, RST, SHUTDOWN bits
 * @closed:	close() was called
 */
struct end {
	struct rf_vsock_conn conn;
	struct rf_vsock_params params;
	uint32_t base;
	bool exists;
	struct packet link[LINK_MAX];
	unsigned head, n;
	uint64_t sent, may_reach, arrived, consumed;
	uint32_t updates, requests;
	uint64_t queued[LINK_MAX];
	unsigned first_queued, n_queued;
	bool up, out_any, out_rst, closed;
	uint32_t out_shut;
};

/* ends[0] connects, ends[1] accepts. */
static struct end ends[2];
static uint64_t seed, run_seed;
static unsigned step;
/* No end reset the connection, or closed it before it was established. */
static bool orderly;

#define CHECK(what)                                                          \
	do {                                                                 \
		if (!(what))                                                 \
			fail_msg("line %d, run %llu, step %u: %s", __LINE__, \
				 (unsigned long long)run_seed, step, #what); \
	} while (0)

static struct end *other(struct end *e)
{
	return e == &ends[0] ? &ends[1] : &ends[0];
}

static void post(struct end *to, const struct rf_vsock_hdr *hdr, uint64_t pos)
{
	CHECK(to->n < LINK_MAX);
	to->link[(to->head + to->n++) % LINK_MAX] = (struct packet){ *hdr, pos };
}

/* A connection's packet goes out: check its place in the order, and its credit. */
static void post_checked(struct end *e, const struct rf_vsock_hdr *hdr)
{
	uint64_t pos = e->sent;

	CHECK(!e->out_rst);
	CHECK(hdr->src_cid == e->conn.key.local_cid && hdr->dst_port == e->conn.key.peer_port);
	CHECK(hdr->buf_alloc == e->params.window);
	CHECK(hdr->fwd_cnt == (uint32_t)(other(e)->base + e->consumed));
	switch (hdr->op) {
	case VIRTIO_VSOCK_OP_REQUEST:
		CHECK(e == &ends[0] && !e->out_any);
		break;
	case VIRTIO_VSOCK_OP_RESPONSE:
		CHECK(e == &ends[1] && !e->out_any);
		e->up = true;
		break;
	case VIRTIO_VSOCK_OP_RST:
		CHECK(e->out_any || e == &ends[1]);
		e->out_rst = true;
		break;
	case VIRTIO_VSOCK_OP_RW:
		CHECK(e->up && hdr->len > 0 && !(e->out_shut & RF_VSOCK_SHUT_SEND));
		e->sent += hdr->len;
		CHECK(e->sent <= e->may_reach);
		break;
	case VIRTIO_VSOCK_OP_SHUTDOWN:
		CHECK(e->up && (hdr->flags & ~e->out_shut));
		e->out_shut |= hdr->flags;
		break;
	case VIRTIO_VSOCK_OP_CREDIT_UPDATE:
		CHECK(e->up && !e->closed);
		e->updates++;
		break;
	case VIRTIO_VSOCK_OP_CREDIT_REQUEST:
		CHECK(e->up && !e->closed && !(e->out_shut & RF_VSOCK_SHUT_SEND));
		e->requests++;
		break;
	default:
		CHECK(false);
	}
	e->out_any = true;
	post(other(e), hdr, pos);
}

static bool hand_out(struct end *e)
{
	struct rf_vsock_hdr hdr;
	bool owes = e->exists && rf_vsock_conn_owes(&e->conn);

	if (!e->exists)
		return false;
	CHECK(rf_vsock_conn_next(&e->conn, &hdr) == owes);
	if (owes)
		post_checked(e, &hdr);
	return owes;
}

static bool send_some(struct end *e)
{
	uint32_t may = e->exists ? rf_vsock_conn_data(&e->conn) : 0;
	struct rf_vsock_hdr hdr;
	uint32_t len;

	if (!may || other(e)->n > LINK_MAX / 2)
		return false;
	len = rf_min_u32(may, RF_VSOCK_MAX_PAYLOAD);
	if (prng_below(&seed, 2))
		len = 1 + (uint32_t)prng_below(&seed, len);
	rf_vsock_conn_rw(&e->conn, len, &hdr);
	CHECK(hdr.len == len);
	post_checked(e, &hdr);
	return true;
}

static void consume(struct end *e, uint64_t len)
{
	if (len)
		rf_vsock_conn_consumed(&e->conn, (uint32_t)len);
	e->consumed += len;
}

/* Let the counts begin near 2^32. */
static void set_base(struct end *e)
{
	struct rf_vsock_credit *credit = &e->conn.credit;

	credit->tx_cnt = credit->peer_fwd_cnt = e->base;
	credit->rx_cnt = credit->fwd_cnt = credit->told_fwd_cnt = other(e)->base;
}

static void take_credit(struct end *e, const struct rf_vsock_hdr *hdr)
{
	uint32_t in_flight = (uint32_t)(e->base + e->sent) - hdr->fwd_cnt;

	e->may_reach = e->sent - in_flight + rf_min_u32(hdr->buf_alloc, e->params.tx_limit);
}

/*
 * What Linux 6.12.92 drops (CVE-2026-53132's fix): packets that cost more than the buffer. Smaller
 * buffers than one packet costs hold one all the same. The second form of it allows more.
 */
static void check_packets(struct end *e, const struct packet *p)
{
	uint64_t cost;

	while (e->n_queued && e->queued[e->first_queued] <= e->consumed) {
		e->first_queued = (e->first_queued + 1) % LINK_MAX;
		e->n_queued--;
	}
	CHECK(e->n_queued < LINK_MAX);
	cost = UINT64_C(576) * (e->n_queued + 1) + (e->arrived - e->consumed) + p->hdr.len;
	if (other(e)->params.bound_packets && e->params.window > RF_VSOCK_PACKET_COST)
		CHECK(cost <= e->params.window);
	e->queued[(e->first_queued + e->n_queued++) % LINK_MAX] = p->pos + p->hdr.len;
}

static void deliver_to_conn(struct end *e, const struct packet *p)
{
	bool open = e->conn.state == RF_VSOCK_ESTABLISHED;
	bool was_dead = e->conn.state == RF_VSOCK_DEAD;
	unsigned events = rf_vsock_conn_rx(&e->conn, &p->hdr);

	take_credit(e, &p->hdr);
	if (events & RF_VSOCK_EV_CONNECTED) {
		CHECK(e == &ends[0] && !e->up);
		e->up = true;
	}
	CHECK(!!(events & RF_VSOCK_EV_DATA) == (open && p->hdr.op == VIRTIO_VSOCK_OP_RW));
	if (events & RF_VSOCK_EV_DATA) {
		CHECK(p->pos == e->arrived);
		check_packets(e, p);
		e->arrived += p->hdr.len;
		CHECK(e->arrived - e->consumed <= e->params.window);
	}
	/* End of file comes after the last byte. */
	if (events & RF_VSOCK_EV_SHUT_SEND)
		CHECK(e->arrived == other(e)->sent);
	CHECK(!!(events & RF_VSOCK_EV_DEAD) == (e->conn.state == RF_VSOCK_DEAD && !was_dead));
	CHECK(!!(events & RF_VSOCK_EV_FORGOTTEN) == (was_dead && p->hdr.op == VIRTIO_VSOCK_OP_RST));
}

static bool deliver(struct end *e)
{
	struct packet *p = &e->link[e->head];
	struct rf_vsock_hdr reset;

	if (!e->n)
		return false;
	e->head = (e->head + 1) % LINK_MAX;
	e->n--;
	if (!e->exists && p->hdr.op == VIRTIO_VSOCK_OP_REQUEST) {
		rf_vsock_conn_request(&e->conn, &p->hdr, &e->params, 0);
		set_base(e);
		take_credit(e, &p->hdr);
		e->exists = true;
	} else if (e->exists && !rf_vsock_conn_done(&e->conn)) {
		deliver_to_conn(e, p);
	} else if (rf_vsock_hdr_reset(&p->hdr, &reset)) {
		/* As the owner does for a packet that has no connection. */
		post(other(e), &reset, 0);
	}
	return true;
}

static void close_end(struct end *e)
{
	if (e->conn.state <= RF_VSOCK_PEER_INIT)
		orderly = false;
	rf_vsock_conn_close(&e->conn, &e->params, 0);
	e->closed = true;
}

static void act(struct end *e)
{
	unsigned what = (unsigned)prng_below(&seed, 100);

	if (what < 30)
		send_some(e);
	else if (what < 50)
		hand_out(e);
	else if (what < 75)
		deliver(e);
	else if (what < 96)
		consume(e, prng_below(&seed, e->arrived - e->consumed + 1));
	else if (!e->exists)
		return;
	else if (what < 97 && e->conn.state == RF_VSOCK_PEER_INIT)
		rf_vsock_conn_accept(&e->conn);
	else if (prng_below(&seed, 20) == 0)
		rf_vsock_conn_shutdown(&e->conn, (uint32_t)prng_below(&seed, 4));
	else if (prng_below(&seed, 40) == 0)
		close_end(e);
	else if (prng_below(&seed, 200) == 0) {
		rf_vsock_conn_reset(&e->conn, RF_VSOCK_LOCAL_RESET);
		orderly = false;
	}
}

/* Everything owed goes out, everything on its way arrives, everything that arrived is consumed. */
static void settle(void)
{
	bool more = true;

	while (more) {
		more = false;
		for (unsigned i = 0; i < 2; i++) {
			more |= hand_out(&ends[i]);
			more |= deliver(&ends[i]);
			more |= ends[i].arrived > ends[i].consumed;
			consume(&ends[i], ends[i].arrived - ends[i].consumed);
		}
	}
}

/* With a reader that has read everything, nobody waits for credit. */
static void check_nobody_stuck(struct end *e)
{
	if (e->conn.state != RF_VSOCK_ESTABLISHED || (e->conn.local_shut & RF_VSOCK_SHUT_SEND) ||
	    (e->conn.peer_shut & RF_VSOCK_SHUT_RCV))
		return;
	if (rf_vsock_conn_data(&e->conn) > 0)
		return;
	/* Or asks. */
	rf_vsock_conn_wait(&e->conn, 1);
	CHECK(e->conn.wake_ns);
	rf_vsock_conn_wake(&e->conn, e->conn.wake_ns);
	settle();
	CHECK(rf_vsock_conn_data(&e->conn) > 0);
}

static void check_updates(struct end *e)
{
	uint32_t smaller = rf_min_u32(ends[0].params.window, ends[1].params.window);
	uint64_t at = rf_min_u32(smaller, RF_VSOCK_TX_LIMIT_DEFAULT) / RF_VSOCK_CREDIT_FRACTION;

	/* At most 4 per window, one for the rest, and those asked for. */
	if (at && e->params.tell == RF_VSOCK_TELL_BATCHED)
		CHECK(e->updates <= e->consumed / at + 1 + other(e)->requests);
}

static void check_end(struct end *e)
{
	if (!e->exists)
		return;
	CHECK(rf_vsock_conn_done(&e->conn));
	CHECK(e->conn.reason != RF_VSOCK_NONE);
	/* Neither end ever breaks a rule of the other. */
	CHECK(e->conn.reason < RF_VSOCK_CREDIT_OVERRUN);
	if (orderly)
		CHECK(e->conn.reason == RF_VSOCK_CLOSED);
	check_updates(e);
}

static void begin_end(struct end *e)
{
	static const uint32_t windows[] = { 1, 3, 128, 4096, 65536, 262144, 1u << 20, 16u << 20 };

	memset(e, 0, offsetof(struct end, link));
	memset(&e->head, 0, sizeof(*e) - offsetof(struct end, head));
	e->base = (uint32_t)(0 - prng_below(&seed, 100000));
	rf_vsock_params_default(&e->params);
	e->params.window = windows[prng_below(&seed, RF_ARRAY_SIZE(windows))];
	e->params.tell = (enum rf_vsock_tell)prng_below(&seed, 3);
	e->params.bound_packets = prng_below(&seed, 4);
	/* Linux keeps no more in flight than it can receive. */
	if (prng_below(&seed, 2))
		e->params.tx_limit = rf_min_u32(e->params.window, RF_VSOCK_TX_LIMIT_DEFAULT);
}

static void run(void)
{
	const struct rf_vsock_key key = {
		.local_cid = 3, .peer_cid = 2, .local_port = 1024, .peer_port = 80
	};

	orderly = true;
	begin_end(&ends[0]);
	begin_end(&ends[1]);
	rf_vsock_conn_connect(&ends[0].conn, &key, &ends[0].params, 0);
	set_base(&ends[0]);
	ends[0].exists = true;
	for (step = 0; step < STEPS; step++)
		act(&ends[prng_below(&seed, 2)]);
	settle();
	for (unsigned i = 0; i < 2; i++)
		check_nobody_stuck(&ends[i]);
	for (unsigned i = 0; i < 2; i++) {
		struct end *e = &ends[i];

		if (e->exists && e->conn.state < RF_VSOCK_CLOSING)
			close_end(e);
		if (prng_below(&seed, 2))
			settle();
	}
	settle();
	for (unsigned i = 0; i < 2; i++)
		check_end(&ends[i]);
}

/* RF_TEST_SEED repeats one run. */
static void test_random(void **state RF_UNUSED)
{
	const char *only = getenv("RF_TEST_SEED");
	uint64_t bytes = 0, orderly_runs = 0;

	if (only) {
		run_seed = seed = strtoull(only, NULL, 10);
		run();
		return;
	}
	for (run_seed = 1; run_seed <= RUNS; run_seed++) {
		seed = run_seed;
		run();
		bytes += ends[0].arrived + ends[1].arrived;
		orderly_runs += orderly && ends[0].up && ends[1].up;
	}
	print_message("# %llu MiB, %llu of %d runs closed in order\n",
		      (unsigned long long)(bytes >> 20), (unsigned long long)orderly_runs, RUNS);
	/* It is no test if hardly anything happens. */
	assert_true(bytes > (UINT64_C(100) << 20));
	assert_true(orderly_runs > RUNS / 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
