/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams that end in this process: how they begin, who takes a port, and callbacks that end what
 * they were called for.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "embed_lab.h"
#include "vsock/limits.h"
#include "vsock_embed.h"

/* Beginnings */

static void refused(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	struct embed_peer *peer;

	embed_start(rig);
	peer = embed_listen(rig, RIG_PORT);
	peer->refuse = -EPERM;
	fake_conn_init(&c, &rig->guest, EMBED_GUEST_PORT, RIG_PORT);
	fake_conn_control(&c, REQUEST, 0);
	rig_expect(rig, &c, RST);
	assert_int_equal(peer->n_accepted, 1);
	assert_int_equal(peer->n_ended, 0);
	assert_int_equal(rig_count(rig, "host", "refused_host"), 1);
	free(peer);
}

/* A port that the program serves is not the hybrid socket's; any other is. */
static void two_plugs(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c, served;
	struct embed_peer *peer;
	int listener, fd;

	peer = embed_open(rig, &served);
	listener = rig_listen(rig, RIG_PORT, 1);
	fake_conn_init(&c, &rig->guest, EMBED_GUEST_PORT + 1, RIG_PORT);
	peer->refuse = -EPERM;
	fake_conn_control(&c, REQUEST, 0);
	rig_expect(rig, &c, RST);
	assert_int_equal(rf_embed_unlisten(embed_plug(rig), RIG_PORT), 0);
	fake_conn_control(&c, REQUEST, 0);
	rig_expect(rig, &c, RESPONSE);
	fd = rig_accept(listener);
	rig_works(rig, &c, fd, 0);
	/* The one that was there goes on. */
	rig_guest_send(&served, 0, 100);
	rig_idle(rig);
	assert_int_equal(peer->taken, 100);
	close(fd);
	rig_expect(rig, &c, SHUTDOWN);
	fake_conn_control(&c, RST, 0);
	embed_guest_ends(peer, &served);
	close(listener);
}

static void no_other_plug(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;

	rig->options.plug_path = NULL;
	embed_start(rig);
	fake_conn_init(&c, &rig->guest, EMBED_GUEST_PORT, RIG_PORT);
	fake_conn_control(&c, REQUEST, 0);
	rig_expect(rig, &c, RST);
	assert_int_equal(rig_count(rig, "host", "refused_host"), 1);
	rig_expect_none(rig);
}

static void closes_conn(struct embed_peer *peer)
{
	embed_tell(peer, RF_EMBED_CLOSE);
}

static void stops_listening(struct embed_peer *peer)
{
	assert_int_equal(rf_embed_unlisten(embed_plug(peer->rig), RIG_PORT), 0);
}

/* One accept() takes away the port that the second has asked for. */
static void unlisten_meanwhile(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c, late;
	struct embed_peer *peer;

	embed_start(rig);
	peer = embed_listen(rig, RIG_PORT);
	peer->in_accept = stops_listening;
	fake_conn_init(&c, &rig->guest, EMBED_GUEST_PORT, RIG_PORT);
	fake_conn_init(&late, &rig->guest, EMBED_GUEST_PORT + 1, RIG_PORT);
	fake_conn_control(&c, REQUEST, 0);
	fake_conn_control(&late, REQUEST, 0);
	rig_expect(rig, &c, RESPONSE);
	rig_expect(rig, &late, RST);
	assert_int_equal(peer->n_accepted, 1);
	embed_guest_ends(peer, &c);
}

static void host_asks(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	struct embed_peer *peer;

	embed_start(rig);
	peer = embed_ask_received(rig, &c);
	assert_int_equal(peer->n_connected, 0);
	assert_int_equal(peer->n_gives, 0);
	peer->have = 2000;
	fake_conn_control(&c, RESPONSE, 0);
	rig_guest_read(rig, &c, 0, 2000);
	assert_int_equal(peer->n_connected, 1);
	rig_guest_send(&c, 0, 100);
	rig_idle(rig);
	assert_int_equal(peer->taken, 100);
	embed_guest_ends(peer, &c);
	assert_int_equal(rig_count(rig, "host", "host_connects"), 1);
}

static void host_asks_in_vain(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	struct embed_peer *peer;

	rig_serve(rig);
	peer = embed_ask(rig);
	rf_loop_turn(rig->loop, 0);
	assert_int_equal(peer->how, -ENOTCONN);
	free(peer);
	rig_boot(rig);
	peer = embed_ask_received(rig, &c);
	fake_conn_control(&c, RST, 0);
	embed_expect_ended(peer, -ECONNREFUSED);
	peer = embed_ask_received(rig, &c);
	rig_warp(rig, RF_VSOCK_HANDSHAKE_NS);
	rig_expect(rig, &c, RST);
	embed_expect_ended(peer, -ETIMEDOUT);
	/* Closed before the device has heard of it, and before the guest has answered. */
	peer = embed_ask(rig);
	embed_tell(peer, RF_EMBED_CLOSE);
	embed_expect_ended(peer, -ECONNABORTED);
	peer = embed_ask_received(rig, &c);
	embed_tell(peer, RF_EMBED_CLOSE);
	rig_expect(rig, &c, RST);
	embed_expect_ended(peer, -ECONNABORTED);
}

static void asks_again(struct embed_peer *peer)
{
	struct embed_peer *next = embed_ask(peer->rig);

	peer->conn = (void *)next;
}

/* A program that connects anew whenever a connection has ended. */
static void connects_in_ended(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	struct embed_peer *peer, *next;

	embed_start(rig);
	peer = embed_ask_received(rig, &c);
	peer->in_ended = asks_again;
	fake_conn_control(&c, RESPONSE, 0);
	rig_idle(rig);
	fake_guest_hangup(&rig->guest);
	rig_idle(rig);
	assert_int_equal(peer->how, -ENETRESET);
	next = (void *)peer->conn;
	assert_int_equal(next->how, -ENOTCONN);
	free(next);
	free(peer);
}

/* Row: where a callback closes its own connection. */
static void closed_by_callbacks(void **state)
{
	struct vsock_rig *rig = *state;

	embed_start(rig);
	for (unsigned row = 0; row < 5; row++) {
		struct embed_peer *peer = embed_listen(rig, RIG_PORT);
		struct fake_conn c;

		peer->in_accept = row == 0 ? closes_conn : NULL;
		peer->in_give = row == 1 ? closes_conn : NULL;
		peer->in_take = row == 2 || row == 3 ? closes_conn : NULL;
		peer->in_shut = row == 4 ? closes_conn : NULL;
		peer->room = row == 3 ? 10 : SIZE_MAX;
		peer->have = 100;
		fake_conn_init(&c, &rig->guest, EMBED_GUEST_PORT, RIG_PORT);
		fake_conn_control(&c, REQUEST, 0);
		rig_idle(rig);
		rig_expect(rig, &c, RESPONSE);
		if (row)
			rig_guest_read(rig, &c, 0, 100);
		if (row == 2 || row == 3) {
			rig_guest_send(&c, 0, 100);
			rig_guest_send(&c, 100, 100);
		}
		if (row == 4)
			fake_conn_control(&c, SHUTDOWN, RF_VSOCK_SHUT_SEND);
		assert_int_equal(rig_expect_hdr(rig, &c, SHUTDOWN).flags, RF_VSOCK_SHUT_BOTH);
		assert_in_range(peer->n_takes, 0, 1);
		fake_conn_control(&c, RST, 0);
		assert_int_equal(rf_embed_unlisten(embed_plug(rig), RIG_PORT), 0);
		embed_expect_ended(peer, 0);
	}
}

static void connected_closes(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	struct embed_peer *peer;

	embed_start(rig);
	peer = embed_ask_received(rig, &c);
	peer->in_connected = closes_conn;
	fake_conn_control(&c, RESPONSE, 0);
	rig_expect(rig, &c, SHUTDOWN);
	fake_conn_control(&c, RST, 0);
	assert_int_equal(peer->n_gives, 0);
	embed_expect_ended(peer, 0);
}

/* Limits */

static void too_many(void **state)
{
	struct vsock_rig *rig = *state;
	struct embed_peer *peers[4], *peer;
	struct fake_conn c;
	struct rf_host_conn *conn;

	rig->options.max_conns = 4;
	embed_start(rig);
	peer = embed_listen(rig, RIG_PORT);
	for (unsigned i = 0; i < 4; i++)
		peers[i] = embed_ask(rig);
	assert_int_equal(rf_embed_connect(embed_plug(rig), 9, &embed_ops, NULL, &conn), -ENOSPC);
	rig_drop_packets(rig);
	fake_conn_init(&c, &rig->guest, EMBED_GUEST_PORT, RIG_PORT);
	fake_conn_control(&c, REQUEST, 0);
	rig_expect(rig, &c, RST);
	assert_int_equal(rig_count(rig, "host", "refused_limit"), 1);
	assert_int_equal(peer->n_accepted, 0);
	for (unsigned i = 0; i < 4; i++)
		embed_tell(peers[i], RF_EMBED_CLOSE);
	rig_drop_packets(rig);
	for (unsigned i = 0; i < 4; i++)
		embed_expect_ended(peers[i], -ECONNABORTED);
	fake_conn_control(&c, REQUEST, 0);
	rig_expect(rig, &c, RESPONSE);
	embed_guest_ends(peer, &c);
}

/* A guest that opens and resets, in one go, before the program was asked, many times. */
static void opens_and_resets(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	struct embed_peer *peer;

	embed_start(rig);
	peer = embed_listen(rig, RIG_PORT);
	for (unsigned i = 0; i < 1000; i++) {
		fake_conn_init(&c, &rig->guest, i, RIG_PORT);
		fake_conn_control(&c, REQUEST, 0);
		fake_conn_control(&c, RST, 0);
		if (i % 20 == 19)
			rig_drop_packets(rig);
	}
	rig_drop_packets(rig);
	assert_int_equal(rig_connections(rig), 0);
	/* Where the RST came first, nobody was asked. */
	assert_true(peer->n_ended <= 1000);
	free(peer);
}

static const struct CMUnitTest tests[] = {
	RIG_TEST(refused),           RIG_TEST(two_plugs),
	RIG_TEST(no_other_plug),     RIG_TEST(unlisten_meanwhile),
	RIG_TEST(host_asks),         RIG_TEST(host_asks_in_vain),
	RIG_TEST(connects_in_ended), RIG_TEST(closed_by_callbacks),
	RIG_TEST(connected_closes),  RIG_TEST(too_many),
	RIG_TEST(opens_and_resets),
};

int main(void)
{
	static struct rig_group group;

	rig_group_add(&group, tests, RF_ARRAY_SIZE(tests));
	return rig_group_run(&group, "vsock-embed-open");
}
