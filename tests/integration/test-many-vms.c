/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several guests served by one process never disturb each other. VMs 1 and 2 move checksummed bytes
 * both ways all the time, VM 4 is idle with an open connection, and VM 3 does one wrong after the
 * other: no byte of the others is lost, and none of their connections hears of it.
 */
#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/fd.h"
#include "fake_guest.h"
#include "prng.h"
#include "rig_group.h"
#include "ringferry/client.h"
#include "ringferry/guest.h"
#include "ringferry/host.h"

#define N_VMS     4u
#define ROGUE     2u
#define IDLE      3u
#define PORT      1234u
#define MAX_CONNS 100u
/* More than any socket takes. */
#define ROGUE_WINDOW (4u << 20)
#define WAIT_MS      20000
#define GIVE_UP_S    150
#define CHUNK_BYTES  65536u
/* What each direction must move once a wrong is over, before it counts as survived. */
#define GO_ON_BYTES 100000u

/**
 * struct flow - One direction of a stream
 * @sock, @fd:	The sender's or the receiver's end: the guest's socket, or the host program's
 * @sent, @got:	Bytes so far
 * @hash_in, @hash_out: Of what was sent and received; valid when the threads have ended
 */
struct flow {
	struct rf_guest *guest;
	int sock, fd;
	bool to_guest;
	pthread_t sender, receiver;
	atomic_ulong sent, got;
	uint64_t hash_in, hash_out;
};

/**
 * struct vm - A guest and its device
 * @guest:	The guest; NULL for VM 3
 * @sock, @program: Its connection's two ends
 */
struct vm {
	char front[60], uds[60];
	struct rf_guest *guest;
	int sock, program;
	struct flow flows[2];
};

/**
 * struct house - All of them
 * @loop:	One that nothing is on: the device of VM 3 is turned elsewhere
 * @rogue:	VM 3
 * @before:	Counters of VM 4 before the first wrong
 */
static struct house {
	struct rf_host *host;
	pthread_t thread;
	struct vm vms[N_VMS];
	struct rf_loop *loop;
	struct fake_guest rogue;
	json_t *before;
	atomic_bool over;
	uint8_t noise[2 * CHUNK_BYTES];
} house;

static char house_dir[40];

static json_t *counters(unsigned vm)
{
	char *text = rf_host_counters_json(house.host);
	json_t *all, *one;

	assert_non_null(text);
	all = json_loads(text, 0, NULL);
	free(text);
	one = json_incref(json_array_get(json_object_get(all, "devices"), vm));
	json_decref(all);
	assert_non_null(one);
	return one;
}

static uint64_t count(unsigned vm, const char *table, const char *name)
{
	json_t *all = counters(vm);
	json_t *value = json_object_get(json_object_get(all, table), name);
	uint64_t n = (uint64_t)json_integer_value(value);

	assert_true(json_is_integer(value));
	json_decref(all);
	return n;
}

static unsigned connections(unsigned vm)
{
	json_t *all = counters(vm);
	unsigned n = (unsigned)json_integer_value(json_object_get(all, "connections"));

	json_decref(all);
	return n;
}

/* Wait until a counter of VM 3 has grown. */
static void wait_count(const char *table, const char *name, uint64_t at_least)
{
	uint64_t n;

	for (unsigned ms = 0; (n = count(ROGUE, table, name)) < at_least; ms++) {
		if (ms == WAIT_MS)
			fail_msg("%s is %lu after %u ms, not %lu", name, n, ms, at_least);
		usleep(1000);
	}
}

/* The streams of VMs 1 and 2. */

static size_t next_chunk(uint64_t *random, const uint8_t **ret_data)
{
	*ret_data = house.noise + prng_below(random, CHUNK_BYTES);
	return 1 + prng_below(random, prng_below(random, 2) ? 200 : CHUNK_BYTES);
}

static void *run_sender(void *arg)
{
	struct flow *flow = arg;
	XXH64_state_t *hash = XXH64_createState();
	uint64_t random = (uint64_t)(uintptr_t)flow;

	XXH64_reset(hash, 0);
	while (!house.over) {
		const uint8_t *data;
		size_t len = next_chunk(&random, &data);
		ssize_t n = flow->to_guest ? send(flow->fd, data, len, MSG_NOSIGNAL)
					   : rf_send(flow->guest, flow->sock, data, len, 0);

		if (n <= 0)
			break;
		XXH64_update(hash, data, (size_t)n);
		flow->sent += (unsigned long)n;
	}
	if (flow->to_guest)
		shutdown(flow->fd, SHUT_WR);
	else
		rf_shutdown(flow->guest, flow->sock, RF_SHUT_WR);
	flow->hash_in = XXH64_digest(hash);
	XXH64_freeState(hash);
	return NULL;
}

static void *run_receiver(void *arg)
{
	struct flow *flow = arg;
	XXH64_state_t *hash = XXH64_createState();
	uint8_t *buf = malloc(CHUNK_BYTES);
	uint64_t random = (uint64_t)(uintptr_t)flow;

	XXH64_reset(hash, 0);
	for (;;) {
		ssize_t n = flow->to_guest ? rf_recv(flow->guest, flow->sock, buf, CHUNK_BYTES, 0)
					   : recv(flow->fd, buf, CHUNK_BYTES, 0);

		if (n <= 0)
			break;
		XXH64_update(hash, buf, (size_t)n);
		flow->got += (unsigned long)n;
		/* Long enough for all that lies in between to fill up. */
		if (!prng_below(&random, 64))
			usleep(5000);
	}
	flow->hash_out = XXH64_digest(hash);
	XXH64_freeState(hash);
	free(buf);
	return NULL;
}

static void begin_flows(struct vm *vm)
{
	for (unsigned i = 0; i < 2; i++) {
		struct flow *flow = &vm->flows[i];

		flow->guest = vm->guest;
		flow->sock = vm->sock;
		flow->fd = vm->program;
		flow->to_guest = i == 0;
		assert_int_equal(pthread_create(&flow->sender, NULL, run_sender, flow), 0);
		assert_int_equal(pthread_create(&flow->receiver, NULL, run_receiver, flow), 0);
	}
}

static void end_flows(struct vm *vm)
{
	for (unsigned i = 0; i < 2; i++) {
		struct flow *flow = &vm->flows[i];

		pthread_join(flow->sender, NULL);
		pthread_join(flow->receiver, NULL);
		assert_true(flow->sent > GO_ON_BYTES);
		assert_int_equal(flow->got, flow->sent);
		assert_true(flow->hash_in == flow->hash_out);
	}
}

static void wait_flow(const struct flow *flow)
{
	unsigned long end = flow->got + GO_ON_BYTES;

	for (unsigned ms = 0; flow->got < end; ms++) {
		assert_true(ms < WAIT_MS);
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
	json_t *idle = counters(IDLE);

	for (unsigned vm = 0; vm < 2; vm++) {
		for (size_t i = 0; i < RF_ARRAY_SIZE(zero); i++)
			assert_int_equal(count(vm, zero[i][0], zero[i][1]), 0);
		assert_int_equal(count(vm, "host", "front_ends"), 1);
		assert_int_equal(connections(vm), 1);
		for (unsigned i = 0; i < 2; i++)
			wait_flow(&house.vms[vm].flows[i]);
	}
	assert_true(json_equal(idle, house.before));
	json_decref(idle);
}

/* Setting up. */

static void new_device(unsigned i)
{
	struct vm *vm = &house.vms[i];
	struct rf_host_vsock_options options;
	struct rf_host_device *device;

	snprintf(vm->front, sizeof(vm->front), "%s/front%u", house_dir, i + 1);
	snprintf(vm->uds, sizeof(vm->uds), "%s/uds%u", house_dir, i + 1);
	rf_host_vsock_options_init(&options);
	options.guest_cid = 10 + i;
	options.socket_path = vm->front;
	options.uds_path = vm->uds;
	options.max_connections = MAX_CONNS;
	if (i == ROGUE)
		options.window_bytes = ROGUE_WINDOW;
	assert_int_equal(rf_host_add_vsock(house.host, &options, &device), 0);
}

static void open_conn(struct vm *vm)
{
	int listener = rf_socket(vm->guest, RF_SOCK_STREAM);

	assert_true(listener > 0);
	assert_int_equal(rf_bind(vm->guest, listener, &(struct rf_sockaddr){ RF_CID_ANY, PORT }),
			 0);
	assert_int_equal(rf_listen(vm->guest, listener, 1), 0);
	vm->program = rf_client_connect(vm->uds, PORT, WAIT_MS);
	assert_true(vm->program >= 0);
	vm->sock = rf_accept(vm->guest, listener, NULL, 0);
	assert_true(vm->sock > 0);
	rf_close(vm->guest, listener);
}

static void close_conn(struct vm *vm)
{
	rf_close(vm->guest, vm->sock);
	close(vm->program);
}

static void open_guest(struct vm *vm)
{
	struct rf_guest_options options;

	rf_guest_options_init(&options);
	options.socket_path = vm->front;
	assert_int_equal(rf_guest_open(&options, &vm->guest), 0);
	open_conn(vm);
}

static void check_conn(struct vm *vm)
{
	char c = 0;

	assert_int_equal(send(vm->program, "x", 1, MSG_NOSIGNAL), 1);
	assert_int_equal(rf_recv(vm->guest, vm->sock, &c, 1, 0), 1);
	assert_int_equal(rf_send(vm->guest, vm->sock, &c, 1, 0), 1);
	assert_int_equal(recv(vm->program, &c, 1, 0), 1);
	assert_int_equal(c, 'x');
}

/*
 * cmocka puts its own handler of SIGBUS in place for each test; the library's is known from the test
 * in which the first device was added.
 */
static void guard_memory(void)
{
	static struct sigaction guard;

	if (!guard.sa_sigaction)
		assert_int_equal(sigaction(SIGBUS, NULL, &guard), 0);
	assert_int_equal(sigaction(SIGBUS, &guard, NULL), 0);
}

static void *run_host(void *arg)
{
	(void)arg;
	return (void *)(intptr_t)rf_host_run(house.host);
}

static void test_all_begin(void **state)
{
	uint64_t random = 1;

	(void)state;
	alarm(GIVE_UP_S);
	for (size_t i = 0; i < sizeof(house.noise); i++)
		house.noise[i] = (uint8_t)prng_next(&random);
	strcpy(house_dir, "/tmp/rf-many-XXXXXX");
	assert_non_null(mkdtemp(house_dir));
	assert_int_equal(rf_loop_new(&house.loop), 0);
	assert_int_equal(rf_host_new(NULL, &house.host), 0);
	assert_int_equal(pthread_create(&house.thread, NULL, run_host, NULL), 0);
	for (unsigned i = 0; i < N_VMS; i++) {
		new_device(i);
		if (i != ROGUE)
			open_guest(&house.vms[i]);
	}
	guard_memory();
	check_conn(&house.vms[IDLE]);
	begin_flows(&house.vms[0]);
	begin_flows(&house.vms[1]);
	house.before = counters(IDLE);
}

static void test_all_end(void **state)
{
	(void)state;
	for (unsigned i = 0; i < N_VMS; i++)
		rf_guest_close(house.vms[i].guest);
	rf_host_stop(house.host);
	pthread_join(house.thread, NULL);
	rf_host_free(house.host);
	rf_loop_free(house.loop);
	json_decref(house.before);
	assert_int_equal(rmdir(house_dir), 0);
	alarm(0);
}

/* What VM 3 does. */

static struct vm *const rogue_vm = &house.vms[ROGUE];

/* Connect and say all that a front end says; nobody may have listened yet. */
static void rogue_start(void)
{
	struct fake_guest *g = &house.rogue;

	fake_guest_init(g, house.loop);
	g->cid = 10 + ROGUE;
	fake_guest_connect(g, rogue_vm->front);
	fake_guest_boot(g);
}

/* Nothing is left of it then. */
static void rogue_leave(void)
{
	fake_guest_fini(&house.rogue);
	for (unsigned ms = 0; connections(ROGUE); ms++) {
		assert_true(ms < WAIT_MS);
		usleep(1000);
	}
}

/* Take what has come. Return: was a packet of this kind among it? The device is turned in another thread: a notification says nothing here. */
static bool rogue_receive(uint16_t wanted)
{
	struct fake_packet packet;
	bool found = false;

	for (;;) {
		house.rogue.rings[FAKE_RX].armed = false;
		if (!fake_guest_recv(&house.rogue, &packet, NULL))
			return found;
		found = found || packet.hdr.op == wanted;
	}
}

static void rogue_wait_room(bool receive)
{
	while (fake_guest_unsent(&house.rogue) == house.rogue.num) {
		if (receive)
			(void)rogue_receive(0);
		usleep(100);
	}
}

static void rogue_send(uint32_t port, uint16_t op, uint32_t bytes)
{
	struct fake_conn c;
	struct rf_vsock_hdr hdr;

	fake_conn_init(&c, &house.rogue, port, PORT);
	hdr = fake_conn_hdr(&c, op, bytes);
	fake_guest_send(&house.rogue, &hdr, house.noise, bytes, &fake_shape_one);
}

static void rogue_wait(uint16_t op)
{
	for (unsigned ms = 0; !rogue_receive(op); ms++) {
		assert_true(ms < WAIT_MS);
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
	int fd = rf_client_listen(rogue_vm->uds, PORT, backlog);

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
		assert_true(ms < WAIT_MS);
		usleep(1000);
	}
	return fd;
}

/* Every packet asks for an RST. */
static void flood_resets(void)
{
	uint64_t before = count(ROGUE, "host", "resets");

	for (unsigned i = 0; i < 20000; i++) {
		rogue_wait_room(true);
		rogue_send(i, VIRTIO_VSOCK_OP_RW, 1);
	}
	while (fake_guest_unsent(&house.rogue)) {
		(void)rogue_receive(0);
		usleep(100);
	}
	wait_count("host", "resets", before + 19000);
}

/* The same, and the RSTs find no room: all that may be owed is owed, and the rest is not taken. */
static void flood_resets_unheard(void)
{
	uint64_t before = count(ROGUE, "host", "back_pressure");

	for (unsigned i = 0; i < 2 * house.rogue.num; i++) {
		rogue_wait_room(false);
		rogue_send(i, VIRTIO_VSOCK_OP_RW, 1);
	}
	wait_count("host", "back_pressure", before + 1);
}

/* Connections up to the limit and far beyond, again and again. */
static void flood_requests(void)
{
	uint64_t before = count(ROGUE, "host", "refused_limit");
	int listener = rogue_listen(2 * MAX_CONNS);

	for (unsigned i = 0; i < 30 * MAX_CONNS; i++) {
		rogue_wait_room(true);
		rogue_send(i, VIRTIO_VSOCK_OP_REQUEST, 0);
	}
	wait_count("host", "refused_limit", before + 20 * MAX_CONNS);
	rf_client_unlisten(listener, rogue_vm->uds, PORT);
}

static void break_ring(void)
{
	uint64_t before = count(ROGUE, "vhost", "vu_rings_broken");

	*fake_guest_avail(&house.rogue, FAKE_TX) += (uint16_t)(house.rogue.num + 1);
	rf_eventfd_signal(house.rogue.rings[FAKE_TX].kick);
	wait_count("vhost", "vu_rings_broken", before + 1);
}

/* DPDK 22.11 and libvhost-user die of this with SIGBUS, and all their devices with them. */
static void truncate_memory(void)
{
	uint64_t before = count(ROGUE, "vhost", "vu_sessions_broken");

	guard_memory();
	rogue_send(1, VIRTIO_VSOCK_OP_RW, 1000);
	assert_int_equal(ftruncate(house.rogue.memfd, 0), 0);
	rf_eventfd_signal(house.rogue.rings[FAKE_TX].kick);
	wait_count("vhost", "vu_sessions_broken", before + 1);
}

static void send_garbage(void)
{
	uint64_t before = count(ROGUE, "vhost", "vu_sessions_broken");
	uint64_t random = 7;

	fake_guest_fini(&house.rogue);
	for (unsigned i = 0; i < 50; i++) {
		size_t len = 12 + prng_below(&random, 300);

		fake_guest_init(&house.rogue, house.loop);
		fake_guest_connect(&house.rogue, rogue_vm->front);
		(void)!send(house.rogue.sock, house.noise + prng_below(&random, CHUNK_BYTES), len,
			    MSG_NOSIGNAL);
		wait_count("vhost", "vu_sessions_broken", before + i + 1);
		fake_guest_fini(&house.rogue);
	}
	fake_guest_init(&house.rogue, house.loop);
}

/* Half a message, and then nothing. */
static void fall_silent(void)
{
	uint64_t before = count(ROGUE, "host", "front_ends");

	fake_guest_fini(&house.rogue);
	fake_guest_init(&house.rogue, house.loop);
	fake_guest_connect(&house.rogue, rogue_vm->front);
	assert_int_equal(send(house.rogue.sock, "\1\0\0\0\1", 5, MSG_NOSIGNAL), 5);
	wait_count("host", "front_ends", before + 1);
	for (unsigned vm = 0; vm < 2; vm++)
		wait_flow(&house.vms[vm].flows[0]);
}

static void die_in_a_burst(void)
{
	uint64_t before = count(ROGUE, "host", "device_resets");
	int listener = rogue_listen(10), program;

	for (unsigned i = 0; i < 20; i++) {
		program = rogue_open(listener, 1);
		for (unsigned n = 0; n < 16; n++)
			rogue_send(1, VIRTIO_VSOCK_OP_RW, 4096);
		fake_guest_hangup(&house.rogue);
		wait_count("host", "device_resets", before + i + 1);
		close(program);
		fake_guest_fini(&house.rogue);
		rogue_boot();
	}
	rf_client_unlisten(listener, rogue_vm->uds, PORT);
}

static void reconnect(void)
{
	uint64_t before = count(ROGUE, "host", "front_ends");

	for (unsigned i = 0; i < 50; i++) {
		fake_guest_fini(&house.rogue);
		rogue_start();
	}
	wait_count("host", "front_ends", before + 50);
}

/* A host program writes to it until nothing goes any more; others ask and ask. */
static void keep_receive_buffers(void)
{
	uint64_t before = count(ROGUE, "host", "to_guest_full");
	int listener = rogue_listen(10), program, asking[50];

	program = rogue_open(listener, 1);
	for (unsigned i = 0; i < RF_ARRAY_SIZE(asking); i++) {
		asking[i] = rogue_program();
		assert_true(send(asking[i], "CONNECT 5\n", 10, MSG_NOSIGNAL) == 10);
	}
	for (unsigned idle = 0; idle < 20; idle++) {
		while (send(program, house.noise, CHUNK_BYTES, MSG_NOSIGNAL) > 0)
			idle = 0;
		usleep(1000);
	}
	wait_count("host", "to_guest_full", before + 1);
	for (unsigned i = 0; i < RF_ARRAY_SIZE(asking); i++)
		close(asking[i]);
	close(program);
	rf_client_unlisten(listener, rogue_vm->uds, PORT);
}

/* Host programs that say nothing, more than may be connected. */
static void ask_for_nothing(void)
{
	int programs[3 * MAX_CONNS];
	unsigned closed = 0;

	for (unsigned i = 0; i < RF_ARRAY_SIZE(programs); i++)
		programs[i] = rogue_program();
	for (unsigned ms = 0; closed < 2 * MAX_CONNS && ms < WAIT_MS; ms++) {
		closed = 0;
		for (unsigned i = 0; i < RF_ARRAY_SIZE(programs); i++) {
			char c;

			closed += recv(programs[i], &c, 1, MSG_PEEK) == 0;
		}
		usleep(1000);
	}
	assert_int_equal(closed, 2 * MAX_CONNS);
	for (unsigned i = 0; i < RF_ARRAY_SIZE(programs); i++)
		close(programs[i]);
}

/* As many bytes as its credit allows, to programs that read none of them. */
static void send_to_nobody(void)
{
	uint64_t before = count(ROGUE, "host", "bounced_bytes");
	int listener = rogue_listen(10), programs[5];

	for (unsigned i = 0; i < RF_ARRAY_SIZE(programs); i++) {
		programs[i] = rogue_open(listener, i);
		for (unsigned n = 0; n < ROGUE_WINDOW / CHUNK_BYTES; n++) {
			rogue_wait_room(true);
			rogue_send(i, VIRTIO_VSOCK_OP_RW, CHUNK_BYTES);
		}
	}
	wait_count("host", "bounced_bytes", before + 1);
	for (unsigned i = 0; i < RF_ARRAY_SIZE(programs); i++)
		close(programs[i]);
	rf_client_unlisten(listener, rogue_vm->uds, PORT);
}

static void kick_for_nothing(void)
{
	for (unsigned i = 0; i < 100000; i++)
		rf_eventfd_signal(house.rogue.rings[i % 2].kick);
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
	open_guest(rogue_vm);
	check_conn(rogue_vm);
	close_conn(rogue_vm);
}

static void test_idle_works(void **state)
{
	struct vm *vm = &house.vms[IDLE];

	(void)state;
	check_conn(vm);
	close_conn(vm);
	open_conn(vm);
	check_conn(vm);
	close_conn(vm);
}

static void test_all_bytes_arrived(void **state)
{
	(void)state;
	house.over = true;
	end_flows(&house.vms[0]);
	end_flows(&house.vms[1]);
	/* Programs read slowly now and then, so that bytes also went the long way. */
	assert_true(count(0, "host", "bounced_bytes") + count(1, "host", "bounced_bytes") > 0);
	close_conn(&house.vms[0]);
	close_conn(&house.vms[1]);
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
