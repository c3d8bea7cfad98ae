/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several guests served by one process never disturb each other. VMs 1 and 2 move checksummed bytes
 * both ways all the time, VM 4 is idle with an open connection, and VM 3 does one wrong after the
 * other: no byte of the others is lost, and none of their connections hears of it.
 */
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "fake_guest.h"
#include "house.h"
#include "prng.h"
#include "rig_group.h"
#include "ringferry/client.h"

#define GIVE_UP_S 150

/* VM 3, and a loop that nothing is on: its device is served in another thread. */
static struct fake_guest rogue;
static struct rf_loop *loop;
static struct vm *const rogue_vm = &house.vms[ROGUE];

/* Counters of VM 4 before the first wrong. */
static json_t *idle_before;

/* Wait until a counter of VM 3 has grown. */
static void wait_count(const char *table, const char *name, uint64_t at_least)
{
	uint64_t n;

	for (unsigned ms = 0; (n = house_count(ROGUE, table, name)) < at_least; ms++) {
		if (ms == HOUSE_WAIT_MS)
			fail_msg("%s is %lu after %u ms, not %lu", name, n, ms, at_least);
		usleep(1000);
	}
}

/* Nothing that happened to VM 3 shows in the counters of the others, of which these stay 0. */
static void check_others(void)
{
	static const char *const zero[][2] = {
		{ "host", "resets" },           { "host", "device_resets" },
		{ "host", "discarded_bytes" },  { "host", "refused_limit" },
		{ "host", "bad_packets" },      { "host", "back_pressure" },
		{ "vhost", "vu_rings_broken" }, { "vhost", "vu_sessions_broken" },
	};
	json_t *idle = house_counters(IDLE);

	for (unsigned vm = 0; vm < 2; vm++) {
		for (size_t i = 0; i < RF_ARRAY_SIZE(zero); i++)
			assert_int_equal(house_count(vm, zero[i][0], zero[i][1]), 0);
		assert_int_equal(house_count(vm, "host", "front_ends"), 1);
		assert_int_equal(house_connections(vm), 1);
		for (unsigned i = 0; i < 2; i++)
			house_wait_flow(&house.vms[vm].flows[i]);
	}
	assert_true(json_equal(idle, idle_before));
	json_decref(idle);
}

static void test_all_begin(void **state)
{
	(void)state;
	alarm(GIVE_UP_S);
	assert_int_equal(rf_loop_new(&loop), 0);
	house_open();
	house_check_conn(&house.vms[IDLE]);
	house_begin_flows(0);
	house_begin_flows(1);
	idle_before = house_counters(IDLE);
}

static void test_all_end(void **state)
{
	(void)state;
	house_close();
	rf_loop_free(loop);
	json_decref(idle_before);
	alarm(0);
}

/* What VM 3 does. */

/* Connect and say all that a front end says; nobody may have listened yet. */
static void rogue_start(void)
{
	struct fake_guest *g = &rogue;

	fake_guest_init(g, loop);
	g->cid = 10 + ROGUE;
	fake_guest_connect(g, rogue_vm->front);
	fake_guest_boot(g);
}

/* Nothing is left of it then. */
static void rogue_leave(void)
{
	fake_guest_fini(&rogue);
	for (unsigned ms = 0; house_connections(ROGUE); ms++) {
		assert_true(ms < HOUSE_WAIT_MS);
		usleep(1000);
	}
}

/*
 * Take what has come. The device is turned in another thread: a notification says nothing here.
 * Return: was a packet of this kind among it?
 */
static bool rogue_receive(uint16_t wanted)
{
	struct fake_packet packet;
	bool found = false;

	for (;;) {
		rogue.rings[FAKE_RX].armed = false;
		if (!fake_guest_recv(&rogue, &packet, NULL))
			return found;
		found = found || packet.hdr.op == wanted;
	}
}

static void rogue_wait_room(bool receive)
{
	while (fake_guest_unsent(&rogue) == rogue.num) {
		if (receive)
			(void)rogue_receive(0);
		usleep(100);
	}
}

static void rogue_send(uint32_t port, uint16_t op, uint32_t bytes)
{
	struct fake_conn c;
	struct rf_vsock_hdr hdr;

	fake_conn_init(&c, &rogue, port, HOUSE_PORT);
	hdr = fake_conn_hdr(&c, op, bytes);
	fake_guest_send(&rogue, &hdr, house.noise, bytes, &fake_shape_one);
}

static void rogue_wait(uint16_t op)
{
	for (unsigned ms = 0; !rogue_receive(op); ms++) {
		assert_true(ms < HOUSE_WAIT_MS);
		usleep(1000);
	}
}

/* The device serves its rings then. */
static void rogue_boot(void)
{
	rogue_start();
	rogue_send(1, VIRTIO_VSOCK_OP_RW, 0);
	rogue_wait(VIRTIO_VSOCK_OP_RST);
}

static int rogue_listen(int backlog)
{
	int fd = rf_client_listen(rogue_vm->uds, HOUSE_PORT, backlog);

	assert_true(fd >= 0);
	return fd;
}

/* A connection to a listening host program, as the guest asks for it. Return: its descriptor. */
static int rogue_open(int listener, uint32_t port)
{
	int fd;

	rogue_send(port, VIRTIO_VSOCK_OP_REQUEST, 0);
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	assert_true(fd >= 0);
	rogue_wait(VIRTIO_VSOCK_OP_RESPONSE);
	return fd;
}

static int rogue_program(void)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_true(fd >= 0);
	memcpy(addr.sun_path, rogue_vm->uds, strlen(rogue_vm->uds));
	/* A full backlog is the device's way of saying later. */
	for (unsigned ms = 0; connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0; ms++) {
		assert_int_equal(errno, EAGAIN);
		assert_true(ms < HOUSE_WAIT_MS);
		usleep(1000);
	}
	return fd;
}

/* Every packet asks for an RST. */
static void flood_resets(void)
{
	uint64_t before = house_count(ROGUE, "host", "resets");

	for (unsigned i = 0; i < 20000; i++) {
		rogue_wait_room(true);
		rogue_send(i, VIRTIO_VSOCK_OP_RW, 1);
	}
	while (fake_guest_unsent(&rogue)) {
		(void)rogue_receive(0);
		usleep(100);
	}
	wait_count("host", "resets", before + 19000);
}

/* The same, and the RSTs find no room: all that may be owed is owed, and the rest is not taken. */
static void flood_resets_unheard(void)
{
	uint64_t before = house_count(ROGUE, "host", "back_pressure");

	for (unsigned i = 0; i < 2 * rogue.num; i++) {
		rogue_wait_room(false);
		rogue_send(i, VIRTIO_VSOCK_OP_RW, 1);
	}
	wait_count("host", "back_pressure", before + 1);
}

/* Connections up to the limit and far beyond, again and again. */
static void flood_requests(void)
{
	uint64_t before = house_count(ROGUE, "host", "refused_limit");
	int listener = rogue_listen(2 * HOUSE_MAX_CONNS);

	for (unsigned i = 0; i < 30 * HOUSE_MAX_CONNS; i++) {
		rogue_wait_room(true);
		rogue_send(i, VIRTIO_VSOCK_OP_REQUEST, 0);
	}
	wait_count("host", "refused_limit", before + 20 * HOUSE_MAX_CONNS);
	rf_client_unlisten(listener, rogue_vm->uds, HOUSE_PORT);
}

static void break_ring(void)
{
	uint64_t before = house_count(ROGUE, "vhost", "vu_rings_broken");

	*fake_guest_avail(&rogue, FAKE_TX) += (uint16_t)(rogue.num + 1);
	rf_eventfd_signal(rogue.rings[FAKE_TX].kick);
	wait_count("vhost", "vu_rings_broken", before + 1);
}

/* DPDK 22.11 and libvhost-user die of this with SIGBUS, and all their devices with them. */
static void truncate_memory(void)
{
	uint64_t before = house_count(ROGUE, "vhost", "vu_sessions_broken");

	house_guard_memory();
	rogue_send(1, VIRTIO_VSOCK_OP_RW, 1000);
	assert_int_equal(ftruncate(rogue.memfd, 0), 0);
	rf_eventfd_signal(rogue.rings[FAKE_TX].kick);
	wait_count("vhost", "vu_sessions_broken", before + 1);
}

static void send_garbage(void)
{
	uint64_t before = house_count(ROGUE, "vhost", "vu_sessions_broken");
	uint64_t random = 7;

	fake_guest_fini(&rogue);
	for (unsigned i = 0; i < 50; i++) {
		size_t len = 12 + prng_below(&random, 300);

		fake_guest_init(&rogue, loop);
		fake_guest_connect(&rogue, rogue_vm->front);
		(void)!send(rogue.sock, house.noise + prng_below(&random, HOUSE_CHUNK_BYTES), len,
			    MSG_NOSIGNAL);
		wait_count("vhost", "vu_sessions_broken", before + i + 1);
		fake_guest_fini(&rogue);
	}
	fake_guest_init(&rogue, loop);
}

/* Half a message, and then nothing. */
static void fall_silent(void)
{
	uint64_t before = house_count(ROGUE, "host", "front_ends");

	fake_guest_fini(&rogue);
	fake_guest_init(&rogue, loop);
	fake_guest_connect(&rogue, rogue_vm->front);
	assert_int_equal(send(rogue.sock, "\1\0\0\0\1", 5, MSG_NOSIGNAL), 5);
	wait_count("host", "front_ends", before + 1);
	for (unsigned vm = 0; vm < 2; vm++)
		house_wait_flow(&house.vms[vm].flows[0]);
}

static void die_in_a_burst(void)
{
	uint64_t before = house_count(ROGUE, "host", "device_resets");
	int listener = rogue_listen(10), program;

	for (unsigned i = 0; i < 20; i++) {
		program = rogue_open(listener, 1);
		for (unsigned n = 0; n < 16; n++)
			rogue_send(1, VIRTIO_VSOCK_OP_RW, 4096);
		fake_guest_hangup(&rogue);
		wait_count("host", "device_resets", before + i + 1);
		close(program);
		fake_guest_fini(&rogue);
		rogue_boot();
	}
	rf_client_unlisten(listener, rogue_vm->uds, HOUSE_PORT);
}

static void reconnect(void)
{
	uint64_t before = house_count(ROGUE, "host", "front_ends");

	for (unsigned i = 0; i < 50; i++) {
		fake_guest_fini(&rogue);
		rogue_start();
	}
	wait_count("host", "front_ends", before + 50);
}

/* A host program writes to it until nothing goes any more; others ask and ask. */
static void keep_receive_buffers(void)
{
	uint64_t before = house_count(ROGUE, "host", "to_guest_full");
	int listener = rogue_listen(10), program, asking[50];

	program = rogue_open(listener, 1);
	for (unsigned i = 0; i < RF_ARRAY_SIZE(asking); i++) {
		asking[i] = rogue_program();
		assert_true(send(asking[i], "CONNECT 5\n", 10, MSG_NOSIGNAL) == 10);
	}
	for (unsigned idle = 0; idle < 20; idle++) {
		while (send(program, house.noise, HOUSE_CHUNK_BYTES, MSG_NOSIGNAL) > 0)
			idle = 0;
		usleep(1000);
	}
	wait_count("host", "to_guest_full", before + 1);
	for (unsigned i = 0; i < RF_ARRAY_SIZE(asking); i++)
		close(asking[i]);
	close(program);
	rf_client_unlisten(listener, rogue_vm->uds, HOUSE_PORT);
}

/* Host programs that say nothing, more than may be connected. */
static void ask_for_nothing(void)
{
	int programs[3 * HOUSE_MAX_CONNS];
	unsigned closed = 0;

	for (unsigned i = 0; i < RF_ARRAY_SIZE(programs); i++)
		programs[i] = rogue_program();
	for (unsigned ms = 0; closed < 2 * HOUSE_MAX_CONNS && ms < HOUSE_WAIT_MS; ms++) {
		closed = 0;
		for (unsigned i = 0; i < RF_ARRAY_SIZE(programs); i++) {
			char c;

			closed += recv(programs[i], &c, 1, MSG_PEEK) == 0;
		}
		usleep(1000);
	}
	assert_int_equal(closed, 2 * HOUSE_MAX_CONNS);
	for (unsigned i = 0; i < RF_ARRAY_SIZE(programs); i++)
		close(programs[i]);
}

/* As many bytes as its credit allows, to programs that read none of them. */
static void send_to_nobody(void)
{
	uint64_t before = house_count(ROGUE, "host", "bounced_bytes");
	int listener = rogue_listen(10), programs[5];

	for (unsigned i = 0; i < RF_ARRAY_SIZE(programs); i++) {
		programs[i] = rogue_open(listener, i);
		for (unsigned n = 0; n < HOUSE_WINDOW / HOUSE_CHUNK_BYTES; n++) {
			rogue_wait_room(true);
			rogue_send(i, VIRTIO_VSOCK_OP_RW, HOUSE_CHUNK_BYTES);
		}
	}
	wait_count("host", "bounced_bytes", before + 1);
	for (unsigned i = 0; i < RF_ARRAY_SIZE(programs); i++)
		close(programs[i]);
	rf_client_unlisten(listener, rogue_vm->uds, HOUSE_PORT);
}

static void kick_for_nothing(void)
{
	for (unsigned i = 0; i < 100000; i++)
		rf_eventfd_signal(rogue.rings[i % 2].kick);
}

static const struct wrong {
	const char *name;
	void (*act)(void);
} wrongs[] = {
	{ "floods packets that want an RST", flood_resets },
	{ "floods such packets and takes no RST", flood_resets_unheard },
	{ "floods connection requests", flood_requests },
	{ "breaks its ring", break_ring },
	{ "truncates its memory", truncate_memory },
	{ "sends garbage instead of vhost-user messages", send_garbage },
	{ "falls silent in the middle of a message", fall_silent },
	{ "dies in the middle of a burst", die_in_a_burst },
	{ "reconnects 50 times", reconnect },
	{ "never gives receive buffers back", keep_receive_buffers },
	{ "has host programs that say nothing", ask_for_nothing },
	{ "has host programs that never read", send_to_nobody },
	{ "kicks for nothing", kick_for_nothing },
};

static void test_wrong(void **state)
{
	const struct wrong *wrong = *state;

	rogue_boot();
	wrong->act();
	check_others();
	rogue_leave();
	check_others();
}

/* VM 3, were it to behave, is as good as new. */
static void test_rogue_reforms(void **state)
{
	(void)state;
	house_open_guest(rogue_vm);
	house_check_conn(rogue_vm);
	house_close_conn(rogue_vm);
}

static void test_idle_works(void **state)
{
	struct vm *vm = &house.vms[IDLE];

	(void)state;
	house_check_conn(vm);
	house_close_conn(vm);
	house_open_conn(vm);
	house_check_conn(vm);
	house_close_conn(vm);
}

static void test_all_bytes_arrived(void **state)
{
	(void)state;
	house.over = true;
	house_end_flows(&house.vms[0]);
	house_end_flows(&house.vms[1]);
	house_close_conn(&house.vms[0]);
	house_close_conn(&house.vms[1]);
}

int main(void)
{
	static const struct CMUnitTest first = cmocka_unit_test(test_all_begin);
	static const struct CMUnitTest last[] = {
		cmocka_unit_test(test_rogue_reforms),
		cmocka_unit_test(test_idle_works),
		cmocka_unit_test(test_all_bytes_arrived),
		cmocka_unit_test(test_all_end),
	};
	static struct rig_group group;

	rig_group_add(&group, &first, 1);
	rig_group_add_rows(&group, test_wrong, wrongs, RF_ARRAY_SIZE(wrongs), sizeof(wrongs[0]));
	rig_group_add(&group, last, RF_ARRAY_SIZE(last));
	return rig_group_run(&group, "many-vms");
}
