/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams that end in this process: bytes, and how they end.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "embed_lab.h"
#include "vsock/limits.h"
#include "vsock_embed.h"

/* Bytes */

static void both_ways(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	struct embed_peer *peer = embed_open(rig, &c);
	uint64_t turns;

	for (uint32_t at = 0; at < 10 * 50000; at += 50000) {
		rig_guest_send(&c, at, 50000);
		rig_idle(rig);
		assert_int_equal(peer->taken, at + 50000);
		peer->have = 50000;
		embed_tell(peer, RF_EMBED_GIVE);
		rig_guest_read(rig, &c, at, 50000);
		fake_conn_control(&c, CREDIT_UPDATE, 0);
		rig_skip_updates(rig, &c);
	}
	assert_int_equal(rig_count(rig, "host", "bounced_bytes"), 0);
	assert_int_equal(rig_count(rig, "host", "from_guest_sends"), peer->n_takes);
	assert_int_equal(rig_count(rig, "host", "to_guest_reads"), peer->n_gives);
	/* Nothing is asked for ever and ever. */
	turns = rig_count(rig, "host", "turns");
	rig_idle(rig);
	assert_int_equal(rig_count(rig, "host", "turns"), turns);
	embed_guest_ends(peer, &c);
}

static void answers(struct embed_peer *peer)
{
	peer->have = 100;
	embed_tell(peer, RF_EMBED_GIVE);
}

/* What take() lets give() say leaves in the same turn. */
static void answer_in_the_same_turn(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	struct embed_peer *peer = embed_open(rig, &c);
	uint64_t turns = rig_count(rig, "host", "turns");

	peer->in_take = answers;
	rig_guest_send(&c, 0, 100);
	rig_guest_read(rig, &c, 0, 100);
	assert_int_equal(rig_count(rig, "host", "turns"), turns + 1);
	embed_guest_ends(peer, &c);
}

/* One call has the payloads of many packets, and room for many. */
static void many_packets_per_call(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	struct embed_peer *peer = embed_open(rig, &c);
	uint8_t buf[1000];
	unsigned gives = peer->n_gives;

	for (uint32_t i = 0; i < 50; i++) {
		rig_fill(buf, sizeof(buf), i * sizeof(buf));
		fake_conn_put(&c, buf, sizeof(buf), &fake_shape_one);
	}
	fake_guest_kick(&rig->guest, FAKE_TX);
	rig_idle(rig);
	assert_int_equal(peer->taken, 50000);
	assert_int_equal(peer->n_takes, 1);
	peer->have = 100000;
	embed_tell(peer, RF_EMBED_GIVE);
	rig_guest_read(rig, &c, 0, 100000);
	assert_in_range(peer->n_gives - gives, 2, 6);
	embed_guest_ends(peer, &c);
}

/* merge=off, split=off: one call for each packet. */
static void one_packet_per_call(void **state)
{
	struct vsock_rig *rig = *state;
	struct embed_peer *peer;
	struct fake_conn c;
	unsigned gives;

	rig->options.switches.merge = false;
	rig->options.switches.split = false;
	peer = embed_open(rig, &c);
	gives = peer->n_gives;
	for (uint32_t at = 0; at < 5000; at += 100) {
		static uint8_t buf[100];

		rig_fill(buf, sizeof(buf), at);
		fake_conn_put(&c, buf, sizeof(buf), &fake_shape_one);
	}
	fake_guest_kick(&rig->guest, FAKE_TX);
	rig_idle(rig);
	assert_int_equal(peer->taken, 5000);
	assert_int_equal(peer->n_takes, 50);
	peer->have = 20 * 4052;
	embed_tell(peer, RF_EMBED_GIVE);
	rig_guest_read(rig, &c, 0, 20 * 4052);
	assert_int_equal(peer->n_gives - gives, 21);
	assert_int_equal(rig_count(rig, "host", "to_guest_data_packets"), 20);
	embed_guest_ends(peer, &c);
}

/* What take() leaves waits, bounded by the credit, and comes in order when it is asked for. */
static void taker_waits(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	struct embed_peer *peer = embed_open(rig, &c);
	uint32_t sent = 0;
	unsigned takes;

	peer->room = 1000;
	while (fake_conn_space(&c) >= 32768) {
		rig_guest_send(&c, sent, 32768);
		sent += 32768;
		rig_skip_updates(rig, &c);
	}
	assert_in_range(sent, RIG_WINDOW - 32768, RIG_WINDOW);
	assert_int_equal(peer->taken, 1000);
	assert_int_equal(rig_count(rig, "host", "bounced_bytes"), sent - 1000);
	/* It is not asked again before it says so. */
	takes = peer->n_takes;
	rig_idle(rig);
	assert_int_equal(peer->n_takes, takes);
	for (size_t room = 10; peer->taken < sent; room *= 3) {
		uint64_t end = rf_min_u64(peer->taken + room, sent);

		peer->room = room;
		embed_tell(peer, RF_EMBED_TAKE);
		rig_idle(rig);
		assert_int_equal(peer->taken, end);
	}
	peer->room = SIZE_MAX;
	rig_skip_updates(rig, &c);
	rig_guest_send(&c, sent, 50000);
	rig_idle(rig);
	assert_int_equal(peer->taken, sent + 50000);
	embed_guest_ends(peer, &c);
}

/* The end of the file is told behind the last byte. */
static void guest_half_closes(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	struct embed_peer *peer = embed_open(rig, &c);

	peer->room = 10;
	rig_guest_send(&c, 0, 100);
	fake_conn_control(&c, SHUTDOWN, RF_VSOCK_SHUT_SEND);
	rig_idle(rig);
	assert_int_equal(peer->shut, 0);
	peer->room = SIZE_MAX;
	embed_tell(peer, RF_EMBED_TAKE);
	rig_idle(rig);
	assert_int_equal(peer->taken, 100);
	assert_int_equal(peer->shut, RF_HOST_TAKE);
	/* The other direction goes on, and its end is the program's. */
	peer->have = 5000;
	embed_tell(peer, RF_EMBED_GIVE);
	rig_guest_read(rig, &c, 0, 5000);
	peer->give_error = 1;
	embed_tell(peer, RF_EMBED_GIVE);
	assert_int_equal(rig_expect_hdr(rig, &c, SHUTDOWN).flags, RF_VSOCK_SHUT_SEND);
	embed_guest_ends(peer, &c);
}

static void guest_stops_receiving(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	struct embed_peer *peer = embed_open(rig, &c);

	peer->have = SIZE_MAX;
	embed_tell(peer, RF_EMBED_GIVE);
	rig_idle(rig);
	fake_conn_control(&c, SHUTDOWN, RF_VSOCK_SHUT_RCV);
	rig_idle(rig);
	assert_int_equal(peer->shut, RF_HOST_GIVE);
	rig_drop_packets(rig);
	embed_tell(peer, RF_EMBED_GIVE | RF_EMBED_TAKE);
	rig_guest_send(&c, 0, 100);
	rig_idle(rig);
	assert_int_equal(peer->taken, 100);
	fake_conn_control(&c, RST, 0);
	embed_expect_ended(peer, -ECONNRESET);
}

/* The program's half-closes, by what a callback returns and by a call. */
static void program_half_closes(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	struct embed_peer *peer = embed_open(rig, &c);

	embed_tell(peer, RF_EMBED_SHUT_GIVE);
	assert_int_equal(rig_expect_hdr(rig, &c, SHUTDOWN).flags, RF_VSOCK_SHUT_SEND);
	rig_guest_send(&c, 0, 100);
	rig_idle(rig);
	assert_int_equal(peer->taken, 100);
	/* It is told with the next byte, as by a unix socket; what waits is dropped. */
	peer->room = 0;
	rig_guest_send(&c, 100, 100);
	rig_idle(rig);
	embed_tell(peer, RF_EMBED_SHUT_TAKE);
	rig_expect(rig, &c, SHUTDOWN);
	assert_int_equal(peer->taken, 100);
	assert_int_equal(rig_count(rig, "host", "discarded_bytes"), 100);
	fake_conn_control(&c, RST, 0);
	embed_expect_ended(peer, 0);
}

static void program_stops_taking(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	struct embed_peer *peer = embed_open(rig, &c);

	peer->take_error = -EPIPE;
	rig_guest_send(&c, 0, 100);
	assert_int_equal(rig_expect_hdr(rig, &c, SHUTDOWN).flags, RF_VSOCK_SHUT_RCV);
	peer->have = 3000;
	embed_tell(peer, RF_EMBED_GIVE);
	rig_guest_read(rig, &c, 0, 3000);
	fake_conn_control(&c, RST, 0);
	embed_expect_ended(peer, -ECONNRESET);
}

static void no_callbacks(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	struct rf_vsock_hdr hdr;

	embed_start(rig);
	assert_int_equal(rf_embed_listen(embed_plug(rig), RIG_PORT, &embed_no_ops, NULL), 0);
	fake_conn_init(&c, &rig->guest, EMBED_GUEST_PORT, RIG_PORT);
	fake_conn_control(&c, REQUEST, 0);
	rig_expect(rig, &c, RESPONSE);
	assert_int_equal(rig_expect_hdr(rig, &c, SHUTDOWN).flags, RF_VSOCK_SHUT_SEND);
	rig_guest_send(&c, 0, 10);
	hdr = rig_expect_hdr(rig, &c, SHUTDOWN);
	assert_int_equal(hdr.flags, RF_VSOCK_SHUT_BOTH);
	fake_conn_control(&c, RST, 0);
	rig_expect_none(rig);
	assert_int_equal(rig_connections(rig), 0);
}

/* Ends */

static void program_closes(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	struct embed_peer *peer = embed_open(rig, &c);
	unsigned calls;

	peer->room = 0;
	peer->have = SIZE_MAX;
	rig_guest_send(&c, 0, 1000);
	embed_tell(peer, RF_EMBED_GIVE);
	rig_idle(rig);
	rig_drop_packets(rig);
	calls = peer->n_takes + peer->n_gives;
	/* Twice does no harm, and nothing comes after it. */
	embed_tell(peer, RF_EMBED_CLOSE | RF_EMBED_TAKE | RF_EMBED_GIVE);
	embed_tell(peer, RF_EMBED_CLOSE);
	assert_int_equal(rig_expect_hdr(rig, &c, SHUTDOWN).flags, RF_VSOCK_SHUT_BOTH);
	embed_tell(peer, RF_EMBED_CLOSE | RF_EMBED_TAKE | RF_EMBED_GIVE);
	fake_conn_control(&c, CREDIT_UPDATE, 0);
	rig_expect_none(rig);
	assert_int_equal(peer->n_ended, 0);
	assert_int_equal(peer->n_takes + peer->n_gives, calls);
	fake_conn_control(&c, RST, 0);
	embed_expect_ended(peer, 0);
}

static void guest_does_not_answer_the_end(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	struct embed_peer *peer = embed_open(rig, &c);

	embed_tell(peer, RF_EMBED_CLOSE);
	rig_expect(rig, &c, SHUTDOWN);
	rig_warp(rig, RF_VSOCK_SHUTDOWN_NS);
	rig_expect(rig, &c, RST);
	embed_expect_ended(peer, -ETIMEDOUT);
}

/* What was admitted before a reset is still for the program, until it does not want it. */
static void guest_resets(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	struct embed_peer *peer = embed_open(rig, &c);

	peer->room = 10;
	rig_guest_send(&c, 0, 1000);
	fake_conn_control(&c, RST, 0);
	rig_idle(rig);
	assert_int_equal(peer->shut, RF_HOST_GIVE);
	peer->room = 500;
	embed_tell(peer, RF_EMBED_TAKE);
	rig_idle(rig);
	assert_int_equal(peer->taken, 510);
	assert_int_equal(peer->n_ended, 0);
	embed_tell(peer, RF_EMBED_CLOSE);
	embed_expect_ended(peer, -ECONNRESET);
}

static void guest_breaks_a_rule(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	struct embed_peer *peer = embed_open(rig, &c);

	fake_conn_control(&c, SHUTDOWN, RF_VSOCK_SHUT_SEND);
	rig_guest_send(&c, 0, 10);
	rig_expect(rig, &c, RST);
	embed_expect_ended(peer, -EPROTO);
}

/* Row: a callback's error, and where it goes. */
static void callbacks_fail(void **state)
{
	static const struct {
		int row, take, give;
	} rows[] = { { 1, -EIO, 0 }, { 2, 0, -EIO }, { 3, -ENOMEM, 0 }, { 4, 0, -EPIPE } };
	struct vsock_rig *rig = *state;

	embed_start(rig);
	for (size_t i = 0; i < RF_ARRAY_SIZE(rows); i++) {
		struct embed_peer *peer = embed_listen(rig, RIG_PORT);
		struct fake_conn c;

		fake_conn_init(&c, &rig->guest, EMBED_GUEST_PORT, RIG_PORT);
		fake_conn_control(&c, REQUEST, 0);
		rig_expect(rig, &c, RESPONSE);
		peer->take_error = rows[i].take;
		peer->give_error = rows[i].give;
		rig_guest_send(&c, 0, 10);
		embed_tell(peer, RF_EMBED_GIVE);
		rig_expect(rig, &c, RST);
		assert_int_equal(rf_embed_unlisten(embed_plug(rig), RIG_PORT), 0);
		embed_expect_ended(peer, -ECONNABORTED);
	}
}

/* The guest restarts; it leaves; the device is freed. */
static void guest_goes(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	struct embed_peer *peer = embed_open(rig, &c), *other;

	fake_guest_hangup(&rig->guest);
	embed_expect_ended(peer, -ENETRESET);
	rig_boot(rig);
	assert_int_equal(rf_embed_unlisten(embed_plug(rig), RIG_PORT), 0);
	peer = embed_listen(rig, RIG_PORT);
	fake_conn_init(&c, &rig->guest, EMBED_GUEST_PORT, RIG_PORT);
	fake_conn_control(&c, REQUEST, 0);
	rig_expect(rig, &c, RESPONSE);
	/* Of this one the device has not heard. */
	other = embed_ask(rig);
	rf_vsock_device_free(rig->device);
	rig->device = NULL;
	assert_int_equal(peer->how, -ENETRESET);
	assert_int_equal(other->how, -ENETRESET);
	free(peer);
	free(other);
}

/* Zeros are read where memory vanished: no more is taken, and the session ends. */
static void truncate_memory(struct embed_peer *peer)
{
	assert_int_equal(ftruncate(peer->rig->guest.memfd, 0), 0);
	/* What is read now is not the pattern. */
	peer->take_error = -EAGAIN;
}

static ssize_t take_blindly(void *ctx, struct rf_host_conn *conn RF_UNUSED, const struct iovec *iov,
			    int n)
{
	struct embed_peer *peer = ctx;
	uint8_t buf[1000];

	peer->n_takes++;
	truncate_memory(peer);
	return (ssize_t)rf_host_copy_out(iov, n, 0, buf, sizeof(buf));
}

static ssize_t give_blindly(void *ctx, struct rf_host_conn *conn RF_UNUSED, const struct iovec *iov,
			    int n)
{
	static const uint8_t buf[1000];
	struct embed_peer *peer = ctx;

	if (!peer->have)
		return -EAGAIN;
	truncate_memory(peer);
	return (ssize_t)rf_host_copy_in(iov, n, 0, buf, sizeof(buf));
}

static const struct rf_host_stream_ops blind_ops = {
	.size = sizeof(blind_ops),
	.accept = embed_on_accept,
	.take = take_blindly,
	.give = give_blindly,
	.ended = embed_on_ended,
};

static void run_vanishing(struct vsock_rig *rig, bool give)
{
	struct embed_peer *peer = calloc(1, sizeof(*peer));
	struct fake_conn c;

	rig_start(rig);
	peer->rig = rig;
	assert_int_equal(rf_embed_listen(embed_plug(rig), RIG_PORT, &blind_ops, peer), 0);
	fake_conn_init(&c, &rig->guest, EMBED_GUEST_PORT, RIG_PORT);
	fake_conn_control(&c, REQUEST, 0);
	rig_expect(rig, &c, RESPONSE);
	if (give) {
		peer->have = 1;
		embed_tell(peer, RF_EMBED_GIVE);
	} else {
		rig_guest_send(&c, 0, 3000);
	}
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(rf_loop_turn(rig->loop, 0), 0);
	assert_int_equal(peer->n_ended, 1);
	assert_int_equal(peer->how, -ENETRESET);
	assert_in_range(peer->n_takes, 0, 1);
	assert_int_equal(rig_count(rig, "vhost", "vu_sessions_broken"), 1);
	fake_guest_hangup(&rig->guest);
	free(peer);
}

static void memory_vanishes_in_take(void **state)
{
	run_vanishing(*state, false);
}

static void memory_vanishes_in_give(void **state)
{
	run_vanishing(*state, true);
}

static const struct CMUnitTest tests[] = {
	RIG_TEST(both_ways),
	RIG_TEST(answer_in_the_same_turn),
	RIG_TEST(many_packets_per_call),
	RIG_TEST(one_packet_per_call),
	RIG_TEST(taker_waits),
	RIG_TEST(guest_half_closes),
	RIG_TEST(guest_stops_receiving),
	RIG_TEST(program_half_closes),
	RIG_TEST(program_stops_taking),
	RIG_TEST(no_callbacks),
	RIG_TEST(program_closes),
	RIG_TEST(guest_does_not_answer_the_end),
	RIG_TEST(guest_resets),
	RIG_TEST(guest_breaks_a_rule),
	RIG_TEST(callbacks_fail),
	RIG_TEST(guest_goes),
	RIG_TEST(memory_vanishes_in_take),
	RIG_TEST(memory_vanishes_in_give),
};

int main(void)
{
	static struct rig_group group;

	rig_group_add(&group, tests, RF_ARRAY_SIZE(tests));
	return rig_group_run(&group, "vsock-plug-embed");
}
