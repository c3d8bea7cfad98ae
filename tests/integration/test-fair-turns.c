/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long one guest waits for another on the same loop: counted in turns of the loop, and what
 * the other one may do in a turn in packets and bytes. Nothing here depends on time.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "host/limits.h"
#include "vsock_rig.h"

/* The other one's connections where it has many: more than events of one turn. */
#define MANY 300u
/* Events of one turn (base/loop.c). */
#define BATCH        64u
#define ROUNDS       10u
#define STREAM_BYTES 65536u

/* A kick, or a readable socket, and the device's work come in the same turn; credit may take one
 * more. */
#define SOON 2u

struct other_conn {
	struct fake_conn c;
	int fd;
};

/**
 * struct street - Two guests on one loop
 * @quiet:	Sends and receives a little now and then
 * @loud:	Keeps its device busy; has @n_conns connections
 * @n_turns:	Turns so far
 * @worst:	Most turns that the quiet one waited
 */
struct street {
	struct vsock_rig *quiet, *loud;
	struct fake_conn c;
	int fd;
	struct other_conn *conns;
	unsigned n_conns;
	int asking[64];
	unsigned n_turns, worst;
};

static int setup(void **state)
{
	struct street *street = calloc(1, sizeof(*street));
	struct vsock_rig *loud = calloc(1, sizeof(*loud));
	void *quiet;

	assert_non_null(street);
	assert_non_null(loud);
	assert_int_equal(rig_setup(&quiet), 0);
	street->quiet = quiet;
	street->loud = loud;
	loud->loop = street->quiet->loop;
	snprintf(loud->front, sizeof(loud->front), "%s/front-b", street->quiet->dir);
	snprintf(loud->uds, sizeof(loud->uds), "%s/uds-b", street->quiet->dir);
	loud->options = street->quiet->options;
	loud->options.guest_cid = FAKE_CID + 1;
	loud->options.socket_path = loud->front;
	loud->options.plug_path = loud->uds;
	loud->options.log = NULL;
	fake_guest_init(&loud->guest, loud->loop);
	loud->guest.cid = FAKE_CID + 1;
	loud->guest.num = 1024;
	rig_start(loud);
	rig_start(street->quiet);
	street->fd = rig_open_from_guest(street->quiet, &street->c, 1000);
	for (size_t i = 0; i < RF_ARRAY_SIZE(street->asking); i++)
		street->asking[i] = -1;
	*state = street;
	return 0;
}

static int teardown(void **state)
{
	struct street *street = *state;
	void *quiet = street->quiet;

	for (unsigned i = 0; i < street->n_conns; i++)
		close(street->conns[i].fd);
	for (size_t i = 0; i < RF_ARRAY_SIZE(street->asking); i++)
		rf_fd_close(street->asking[i]);
	close(street->fd);
	fake_guest_fini(&street->loud->guest);
	rf_vsock_device_free(street->loud->device);
	rig_teardown(&quiet);
	free(street->loud);
	free(street->conns);
	free(street);
	return 0;
}

static void open_conns(struct street *street, unsigned n)
{
	street->conns = calloc(n, sizeof(*street->conns));
	assert_non_null(street->conns);
	for (unsigned i = 0; i < n; i++)
		street->conns[i].fd =
			rig_open_from_guest(street->loud, &street->conns[i].c, 1000 + i);
	street->n_conns = n;
}

/* The loud guest takes all that has come. */
static void loud_receives(struct street *street)
{
	struct fake_packet packet;

	while (fake_guest_recv(&street->loud->guest, &packet, NULL)) {
		struct fake_conn *c;

		if (packet.hdr.op == RST)
			continue;
		assert_in_range(packet.hdr.dst_port, 1000, 1000 + street->n_conns - 1);
		c = &street->conns[packet.hdr.dst_port - 1000].c;
		c->peer_buf_alloc = packet.hdr.buf_alloc;
		c->peer_fwd_cnt = packet.hdr.fwd_cnt;
		c->rx_cnt += packet.hdr.len;
		c->fwd_cnt += packet.hdr.len;
	}
}

/* What the loud one does before each turn. */

static void flood_resets(struct street *street)
{
	struct fake_guest *g = &street->loud->guest;
	struct fake_conn c;
	struct rf_vsock_hdr hdr;

	loud_receives(street);
	fake_conn_init(&c, g, 5, 5);
	hdr = fake_conn_hdr(&c, RW, 0);
	for (unsigned n = fake_guest_unsent(g); n < g->num; n++)
		fake_guest_put(g, &hdr, NULL, 0, &fake_shape_one);
	fake_guest_kick(g, FAKE_TX);
}

/* Packets that mean nothing: the limit is on packets. */
static void flood_nothings(struct street *street)
{
	struct fake_guest *g = &street->loud->guest;
	struct rf_vsock_hdr hdr;

	loud_receives(street);
	hdr = fake_conn_hdr(&street->conns[0].c, CREDIT_UPDATE, 0);
	for (unsigned n = fake_guest_unsent(g); n < g->num; n++)
		fake_guest_put(g, &hdr, NULL, 0, &fake_shape_one);
	fake_guest_kick(g, FAKE_TX);
}

static void send_bulk(struct street *street)
{
	static uint8_t buf[STREAM_BYTES];
	struct fake_guest *g = &street->loud->guest;

	loud_receives(street);
	for (unsigned i = 0; i < street->n_conns; i++) {
		struct other_conn *conn = &street->conns[i];

		while (read(conn->fd, buf, sizeof(buf)) > 0)
			continue;
		while (fake_conn_space(&conn->c) >= sizeof(buf) && fake_guest_unsent(g) < g->num)
			fake_conn_put(&conn->c, buf, sizeof(buf), &fake_shape_one);
	}
	fake_guest_kick(g, FAKE_TX);
}

static void receive_bulk(struct street *street)
{
	static uint8_t buf[STREAM_BYTES];

	loud_receives(street);
	for (unsigned i = 0; i < street->n_conns; i++) {
		struct fake_conn *c = &street->conns[i].c;

		while (send(street->conns[i].fd, buf, sizeof(buf), MSG_NOSIGNAL) > 0)
			continue;
		/* Small reads there are, too: credit comes back in every turn. */
		if (fake_guest_unsent(c->guest) < c->guest->num)
			fake_conn_control(c, CREDIT_UPDATE, 0);
	}
}

/* All of its sockets are ready at once. */
static void wake_all(struct street *street)
{
	loud_receives(street);
	for (unsigned i = 0; i < street->n_conns; i++)
		(void)!send(street->conns[i].fd, "x", 1, MSG_NOSIGNAL);
}

/* Host programs come and go without a word. */
static void ask_for_nothing(struct street *street)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };

	loud_receives(street);
	memcpy(addr.sun_path, street->loud->uds, strlen(street->loud->uds));
	for (size_t i = 0; i < RF_ARRAY_SIZE(street->asking); i++) {
		rf_fd_close(street->asking[i]);
		street->asking[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		(void)connect(street->asking[i], (struct sockaddr *)&addr, sizeof(addr));
	}
}

/**
 * struct load - What the loud one does
 * @n_conns:	Connections it needs
 * @busy:	Its device has rings to serve in each turn
 * @turns:	How long the quiet one may wait
 */
static const struct load {
	const char *name;
	void (*act)(struct street *street);
	unsigned n_conns;
	bool busy;
	unsigned turns;
} loads[] = {
	{ "floods packets that want an RST", flood_resets, 0, true, SOON },
	{ "floods packets that mean nothing", flood_nothings, 1, true, SOON },
	{ "sends as much as it may", send_bulk, 16, true, SOON },
	{ "receives as much as there is", receive_bulk, 16, true, SOON },
	{ "has many ready sockets", wake_all, MANY, true, MANY / BATCH + 1 + SOON },
	{ "has host programs that come and go", ask_for_nothing, 0, false, SOON },
};

static uint64_t loud_count(const struct street *street, const char *name)
{
	return rig_count(street->loud, "host", name);
}

/* One turn, of which the loud one has no more than its share. */
static void turn(struct street *street, const struct load *load)
{
	static const char *const packets[] = { "from_guest_packets", "to_guest_packets" };
	static const char *const bytes[] = { "from_guest_bytes", "to_guest_bytes" };
	uint64_t before[2][2], turns = loud_count(street, "turns");

	for (unsigned i = 0; i < 2; i++) {
		before[0][i] = loud_count(street, packets[i]);
		before[1][i] = loud_count(street, bytes[i]);
	}
	load->act(street);
	assert_int_equal(rf_loop_turn(street->loud->loop, 0), 0);
	street->n_turns++;
	for (unsigned i = 0; i < 2; i++) {
		/* A window that was begun is finished. */
		assert_in_range(loud_count(street, packets[i]) - before[0][i], 0,
				RF_HOST_TURN_PACKETS + RF_DEVQ_WINDOW);
		assert_in_range(loud_count(street, bytes[i]) - before[1][i], 0,
				RF_HOST_TURN_BYTES + RF_HOST_CONN_BUDGET_BYTES);
	}
	assert_in_range(loud_count(street, "turns") - turns, load->busy, 1);
}

static void note_wait(struct street *street, const struct load *load, unsigned since)
{
	unsigned waited = street->n_turns - since;

	if (waited > load->turns)
		fail_msg("waited for %u turns, %u are allowed", waited, load->turns);
	if (waited > street->worst)
		street->worst = waited;
}

static void from_guest(struct street *street, const struct load *load, uint32_t at)
{
	unsigned since = street->n_turns;
	char c;

	rig_guest_send(&street->c, at, 100);
	while (recv(street->fd, &c, 1, MSG_PEEK) < 0) {
		assert_int_equal(errno, EAGAIN);
		turn(street, load);
	}
	rig_host_read(street->fd, at, 100);
	note_wait(street, load, since);
}

static void to_guest(struct street *street, const struct load *load, uint32_t at)
{
	struct fake_packet packet = { 0 };
	unsigned since = street->n_turns;

	rig_host_write(street->quiet, street->fd, at, 100);
	while (!fake_conn_recv(&street->c, &packet) || packet.hdr.op != RW)
		turn(street, load);
	assert_int_equal(packet.hdr.len, 100);
	rig_check(packet.data, 100, at);
	street->c.fwd_cnt += 100;
	note_wait(street, load, since);
}

static void test_load(void **state)
{
	const struct load *load = *state;
	struct street *street;
	void *opened;

	setup(&opened);
	street = opened;
	open_conns(street, load->n_conns);
	for (unsigned i = 0; i < ROUNDS; i++) {
		from_guest(street, load, i * 100);
		to_guest(street, load, i * 100);
	}
	printf("# %s: waited for %u turns at most\n", load->name, street->worst);
	/* The load is one: in each of these turns there was something to do for the loud one. */
	assert_true(street->n_turns >= 2 * ROUNDS);
	teardown(&opened);
}

/* Bytes that the loud one's host programs could read. */
static uint64_t loud_unread(const struct street *street)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < street->n_conns; i++) {
		int n;

		assert_int_equal(ioctl(street->conns[i].fd, FIONREAD, &n), 0);
		bytes += (uint64_t)n;
	}
	return bytes;
}

/* What many host programs had to wait for, all of whom read at once. */
static void drained_in_turns(void **state)
{
	static uint8_t buf[STREAM_BYTES];
	struct street *street = *state;
	uint64_t drained, all = 0;

	street->loud->options.window = 1 << 20;
	rf_vsock_device_free(street->loud->device);
	street->loud->device = NULL;
	fake_guest_hangup(&street->loud->guest);
	rig_start(street->loud);
	open_conns(street, 32);
	for (unsigned i = 0; i < street->n_conns; i++)
		while (fake_conn_space(&street->conns[i].c) >= sizeof(buf)) {
			fake_conn_send(&street->conns[i].c, buf, sizeof(buf));
			rig_idle(street->loud);
			loud_receives(street);
		}
	assert_true(loud_count(street, "bounced_bytes") > 8 * RF_HOST_TURN_BYTES);
	for (unsigned i = 0; i < street->n_conns; i++)
		while (read(street->conns[i].fd, buf, sizeof(buf)) > 0)
			continue;
	do {
		assert_int_equal(rf_loop_turn(street->loud->loop, 0), 0);
		drained = loud_unread(street) - all;
		assert_in_range(drained, 0, RF_HOST_TURN_BYTES + RF_HOST_CONN_BUDGET_BYTES);
		all += drained;
	} while (drained);
	assert_true(all > 4 * RF_HOST_TURN_BYTES);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(drained_in_turns, setup, teardown),
	};
	static struct rig_group group;

	rig_group_add_rows(&group, test_load, loads, RF_ARRAY_SIZE(loads), sizeof(loads[0]));
	rig_group_add(&group, tests, RF_ARRAY_SIZE(tests));
	return rig_group_run(&group, "fair-turns");
}
