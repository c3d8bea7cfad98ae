/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets recorded from real Linux guests, against the rules of the vsock layer: one core on both
 * ends would hide its own mistakes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "linux_packets.h"
#include "op_name.h"
#include "vsock/conn.h"
#include "vsock/limits.h"

#define GUEST_CID 42

static const char *const fixtures[] = { "linux-6.1-packets.txt", "linux-6.12-packets.txt" };

static uint32_t buffer_bytes(const struct linux_packet *packet)
{
	uint32_t bytes = 0;

	for (unsigned i = 0; i < packet->n_pieces; i++)
		bytes += packet->piece_bytes[i];
	return bytes;
}

static void check_packet(const struct linux_packet *packet)
{
	const struct rf_vsock_hdr *hdr = &packet->hdr;
	uint8_t wire[RF_VSOCK_HDR_BYTES];

	rf_vsock_hdr_encode(hdr, wire);
	assert_memory_equal(wire, packet->wire, sizeof(wire));
	assert_int_equal(hdr->type, VIRTIO_VSOCK_TYPE_STREAM);
	assert_int_equal(hdr->src_cid, packet->from_guest ? GUEST_CID : RF_VSOCK_CID_HOST);
	assert_int_equal(hdr->dst_cid, packet->from_guest ? RF_VSOCK_CID_HOST : GUEST_CID);
	assert_string_not_equal(op_name(hdr->op), "?");
	if (packet->from_guest)
		assert_int_equal(buffer_bytes(packet), RF_VSOCK_HDR_BYTES + hdr->len);
	else
		assert_true(buffer_bytes(packet) >= RF_VSOCK_HDR_BYTES + hdr->len);
}

static void test_headers(void **state)
{
	(void)state;
	for (size_t f = 0; f < RF_ARRAY_SIZE(fixtures); f++) {
		struct linux_scenes all;

		linux_scenes_read(fixtures[f], &all);
		for (unsigned s = 0; s < all.n_scenes; s++)
			for (unsigned i = 0; i < all.scenes[s].n_packets; i++)
				check_packet(&all.scenes[s].packets[i]);
		linux_scenes_free(&all);
	}
}

/*
 * What each packet of the guest means to the host's end, a word each: "ask" REQUEST, "nobody" no
 * connection any more, else letters: c connected, d data, k more credit, s will not send, r will
 * not receive, x dead, f forgotten; "-" nothing. RSTs of the guest behind the last word find no
 * connection either.
 */
static const struct {
	const char *scene;
	const char *words;
	enum rf_vsock_reason reason;
} rows[] = {
	{ "connect-refused", "ask", RF_VSOCK_LOCAL_RESET },
	{ "connect-close", "ask srx", RF_VSOCK_CLOSED },
	{ "send-sizes", "ask d d d d d d d d d d d srx", RF_VSOCK_CLOSED },
	{ "send-64k", "ask d srx", RF_VSOCK_CLOSED },
	{ "send-64k-and-1", "ask d d srx", RF_VSOCK_CLOSED },
	{ "send-256k", "ask d d d d srx", RF_VSOCK_CLOSED },
	{ "send-small-window", "ask d d d srx", RF_VSOCK_CLOSED },
	{ "send-close", "ask d srx", RF_VSOCK_CLOSED },
	{ "shutdown-both", "ask d srx nobody", RF_VSOCK_CLOSED },
	/* The guest gave up after 2 s, so what we say later is news to it. */
	{ "late-response", "ask x", RF_VSOCK_PEER_RESET },
	/* The update behind our SHUTDOWN of both directions is of no use any more. */
	{ "shutdown-send", "ask d s - x", RF_VSOCK_CLOSED },
	/* shutdown(SHUT_RD) does not keep a Linux guest from sending. */
	{ "shutdown-receive", "ask r d sx", RF_VSOCK_CLOSED },
	{ "peer-shutdown-send", "ask d d srx", RF_VSOCK_CLOSED },
	{ "peer-shutdown-receive", "ask d srx", RF_VSOCK_CLOSED },
	{ "peer-reset", "ask d nobody", RF_VSOCK_LOCAL_RESET },
	{ "accept-close", "ck k d srx", RF_VSOCK_CLOSED },
	{ "accept-credit", "ck k srx", RF_VSOCK_CLOSED },
	{ "credit-request", "ask d - srx", RF_VSOCK_CLOSED },
	{ "accept-refused", "x", RF_VSOCK_REFUSED },
};

/**
 * struct replay - A scene played to a connection that is the host's end
 * @conn:	The connection
 * @params:	What it starts with
 * @alive:	It has begun and is not done
 * @words:	What is left to come, of the row
 */
struct replay {
	struct rf_vsock_conn conn;
	struct rf_vsock_params params;
	bool alive;
	const char *words;
};

static void next_word(struct replay *replay, char ret_word[static 16])
{
	size_t len = strcspn(replay->words, " ");

	assert_true(len < 16);
	memcpy(ret_word, replay->words, len);
	ret_word[len] = '\0';
	replay->words += len + (replay->words[len] == ' ');
}

static void spell_events(unsigned events, char ret_word[static 16])
{
	static const char letters[] = "cdksrxf";
	size_t n = 0;

	for (unsigned bit = 0; letters[bit]; bit++)
		if (events & 1u << bit)
			ret_word[n++] = letters[bit];
	if (!n)
		ret_word[n++] = '-';
	ret_word[n] = '\0';
}

static void play_guest(struct replay *replay, const struct rf_vsock_hdr *hdr)
{
	char want[16], seen[16];
	struct rf_vsock_hdr answer;

	next_word(replay, want);
	if (strcmp(want, "ask") == 0) {
		rf_vsock_conn_request(&replay->conn, hdr, &replay->params, 0);
		replay->alive = true;
		return;
	}
	if (!replay->alive) {
		assert_true(strcmp(want, "nobody") == 0 || !want[0]);
		assert_int_equal(hdr->op, VIRTIO_VSOCK_OP_RST);
		assert_false(rf_vsock_hdr_reset(hdr, &answer));
		return;
	}
	spell_events(rf_vsock_conn_rx(&replay->conn, hdr), seen);
	assert_string_equal(seen, want);
	if (strchr(seen, 'd'))
		rf_vsock_conn_consumed(&replay->conn, hdr->len);
	replay->alive = !rf_vsock_conn_done(&replay->conn);
}

/* The host's end begins with its REQUEST, and has told of its window there. */
static void play_request(struct replay *replay, const struct rf_vsock_hdr *hdr)
{
	struct rf_vsock_key key = {
		.local_cid = hdr->src_cid,
		.peer_cid = hdr->dst_cid,
		.local_port = hdr->src_port,
		.peer_port = hdr->dst_port,
	};

	rf_vsock_conn_connect(&replay->conn, &key, &replay->params, 0);
	replay->alive = true;
}

/* Do to the connection what made the recording host send this packet. */
static void cause(struct replay *replay, const struct rf_vsock_hdr *hdr)
{
	struct rf_vsock_conn *conn = &replay->conn;

	if (hdr->op == VIRTIO_VSOCK_OP_REQUEST)
		play_request(replay, hdr);
	else if (hdr->op == VIRTIO_VSOCK_OP_RESPONSE)
		rf_vsock_conn_accept(conn);
	else if (hdr->op == VIRTIO_VSOCK_OP_SHUTDOWN && hdr->flags == RF_VSOCK_SHUT_BOTH)
		rf_vsock_conn_close(conn, &replay->params, 0);
	else if (hdr->op == VIRTIO_VSOCK_OP_SHUTDOWN)
		rf_vsock_conn_shutdown(conn, hdr->flags);
	else if (hdr->op == VIRTIO_VSOCK_OP_RST && conn->state != RF_VSOCK_DEAD)
		rf_vsock_conn_reset(conn, RF_VSOCK_LOCAL_RESET);
}

static void play_host(struct replay *replay, const struct linux_packet *packet)
{
	const struct rf_vsock_hdr *hdr = &packet->hdr;
	uint8_t wire[RF_VSOCK_HDR_BYTES];
	struct rf_vsock_hdr sent;

	/* The recording host asked for credit that it did not need. */
	if (hdr->op == VIRTIO_VSOCK_OP_CREDIT_REQUEST)
		return;
	cause(replay, hdr);
	if (hdr->op == VIRTIO_VSOCK_OP_RW)
		rf_vsock_conn_rw(&replay->conn, hdr->len, &sent);
	else
		assert_true(rf_vsock_conn_next(&replay->conn, &sent));
	rf_vsock_hdr_encode(&sent, wire);
	assert_memory_equal(wire, packet->wire, sizeof(wire));
	replay->alive = !rf_vsock_conn_done(&replay->conn);
}

/* The window that the host of a scene offered. */
static uint32_t scene_window(const struct linux_scene *scene)
{
	for (unsigned i = 0; i < scene->n_packets; i++)
		if (!scene->packets[i].from_guest)
			return scene->packets[i].hdr.buf_alloc;
	return RF_VSOCK_WINDOW_DEFAULT;
}

static void play_scene(const struct linux_scene *scene, const char *words,
		       enum rf_vsock_reason reason)
{
	struct replay replay = { .words = words };

	rf_vsock_params_default(&replay.params);
	replay.params.window = scene_window(scene);
	/* The host of the recording did not bound packets. */
	replay.params.bound_packets = false;
	for (unsigned i = 0; i < scene->n_packets; i++) {
		if (scene->packets[i].from_guest)
			play_guest(&replay, &scene->packets[i].hdr);
		else
			play_host(&replay, &scene->packets[i]);
	}
	assert_string_equal(replay.words, "");
	assert_false(replay.alive);
	assert_int_equal(replay.conn.reason, reason);
}

static void test_scenes(void **state)
{
	(void)state;
	for (size_t f = 0; f < RF_ARRAY_SIZE(fixtures); f++) {
		struct linux_scenes all;

		linux_scenes_read(fixtures[f], &all);
		assert_int_equal(all.n_scenes, RF_ARRAY_SIZE(rows));
		for (size_t row = 0; row < RF_ARRAY_SIZE(rows); row++) {
			print_message("# %s row %zu: %s\n", fixtures[f], row, rows[row].scene);
			play_scene(linux_scene_find(&all, rows[row].scene), rows[row].words,
				   rows[row].reason);
		}
		linux_scenes_free(&all);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_headers),
		cmocka_unit_test(test_scenes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
