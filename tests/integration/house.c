/* SPDX-License-Identifier: BSD-3-Clause */
#include "house.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmocka.h>

#include "base/util.h"
#include "prng.h"
#include "ringferry/client.h"

struct house house;

static char house_dir[40];

json_t *house_counters(unsigned vm)
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

uint64_t house_count(unsigned vm, const char *table, const char *name)
{
	json_t *all = house_counters(vm);
	json_t *value = json_object_get(json_object_get(all, table), name);
	uint64_t n = (uint64_t)json_integer_value(value);

	assert_true(json_is_integer(value));
	json_decref(all);
	return n;
}

unsigned house_connections(unsigned vm)
{
	json_t *all = house_counters(vm);
	unsigned n = (unsigned)json_integer_value(json_object_get(all, "connections"));

	json_decref(all);
	return n;
}

static size_t next_chunk(uint64_t *random, const uint8_t **ret_data)
{
	*ret_data = house.noise + prng_below(random, HOUSE_CHUNK_BYTES);
	return 1 + prng_below(random, prng_below(random, 2) ? 200 : HOUSE_CHUNK_BYTES);
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
	uint8_t *buf = malloc(HOUSE_CHUNK_BYTES);
	uint64_t random = (uint64_t)(uintptr_t)flow;

	XXH64_reset(hash, 0);
	while (!flow->reads)
		usleep(1000);
	for (;;) {
		ssize_t n = flow->to_guest
				    ? rf_recv(flow->guest, flow->sock, buf, HOUSE_CHUNK_BYTES, 0)
				    : recv(flow->fd, buf, HOUSE_CHUNK_BYTES, 0);

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

void house_begin_flows(unsigned number)
{
	struct vm *vm = &house.vms[number];

	for (unsigned i = 0; i < 2; i++) {
		struct flow *flow = &vm->flows[i];

		flow->guest = vm->guest;
		flow->sock = vm->sock;
		flow->fd = vm->program;
		flow->to_guest = i == 0;
		flow->reads = flow->to_guest;
		assert_int_equal(pthread_create(&flow->sender, NULL, run_sender, flow), 0);
		assert_int_equal(pthread_create(&flow->receiver, NULL, run_receiver, flow), 0);
	}
	for (unsigned ms = 0; !house_count(number, "host", "bounced_bytes"); ms++) {
		assert_true(ms < HOUSE_WAIT_MS);
		usleep(1000);
	}
	vm->flows[1].reads = true;
}

void house_end_flows(struct vm *vm)
{
	for (unsigned i = 0; i < 2; i++) {
		struct flow *flow = &vm->flows[i];

		pthread_join(flow->sender, NULL);
		pthread_join(flow->receiver, NULL);
		assert_true(flow->sent > HOUSE_GO_ON_BYTES);
		assert_int_equal(flow->got, flow->sent);
		assert_true(flow->hash_in == flow->hash_out);
	}
}

void house_wait_flow(const struct flow *flow)
{
	unsigned long end = flow->got + HOUSE_GO_ON_BYTES;

	for (unsigned ms = 0; flow->got < end; ms++) {
		assert_true(ms < HOUSE_WAIT_MS);
		usleep(1000);
	}
}

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
	options.max_connections = HOUSE_MAX_CONNS;
	options.window_bytes = HOUSE_WINDOW;
	assert_int_equal(rf_host_add_vsock(house.host, &options, &device), 0);
}

void house_open_conn(struct vm *vm)
{
	int listener = rf_socket(vm->guest, RF_SOCK_STREAM);

	assert_true(listener > 0);
	assert_int_equal(
		rf_bind(vm->guest, listener, &(struct rf_sockaddr){ RF_CID_ANY, HOUSE_PORT }), 0);
	assert_int_equal(rf_listen(vm->guest, listener, 1), 0);
	vm->program = rf_client_connect(vm->uds, HOUSE_PORT, HOUSE_WAIT_MS);
	assert_true(vm->program >= 0);
	vm->sock = rf_accept(vm->guest, listener, NULL, 0);
	assert_true(vm->sock > 0);
	rf_close(vm->guest, listener);
}

void house_close_conn(struct vm *vm)
{
	rf_close(vm->guest, vm->sock);
	close(vm->program);
}

void house_open_guest(struct vm *vm)
{
	struct rf_guest_options options;

	rf_guest_options_init(&options);
	options.socket_path = vm->front;
	assert_int_equal(rf_guest_open(&options, &vm->guest), 0);
	house_open_conn(vm);
}

void house_check_conn(struct vm *vm)
{
	char c = 0;

	assert_int_equal(send(vm->program, "x", 1, MSG_NOSIGNAL), 1);
	assert_int_equal(rf_recv(vm->guest, vm->sock, &c, 1, 0), 1);
	assert_int_equal(rf_send(vm->guest, vm->sock, &c, 1, 0), 1);
	assert_int_equal(recv(vm->program, &c, 1, 0), 1);
	assert_int_equal(c, 'x');
}

void house_guard_memory(void)
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

void house_open(void)
{
	uint64_t random = 1;

	for (size_t i = 0; i < sizeof(house.noise); i++)
		house.noise[i] = (uint8_t)prng_next(&random);
	strcpy(house_dir, "/tmp/rf-many-XXXXXX");
	assert_non_null(mkdtemp(house_dir));
	assert_int_equal(rf_host_new(NULL, &house.host), 0);
	assert_int_equal(pthread_create(&house.thread, NULL, run_host, NULL), 0);
	for (unsigned i = 0; i < HOUSE_VMS; i++) {
		new_device(i);
		if (i != ROGUE)
			house_open_guest(&house.vms[i]);
	}
	house_guard_memory();
}

void house_close(void)
{
	for (unsigned i = 0; i < HOUSE_VMS; i++)
		rf_guest_close(house.vms[i].guest);
	rf_host_stop(house.host);
	pthread_join(house.thread, NULL);
	rf_host_free(house.host);
	assert_int_equal(rmdir(house_dir), 0);
}
