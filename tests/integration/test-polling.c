/* SPDX-License-Identifier: BSD-3-Clause */
/* Both halves in one process, and a host that polls in each of the ways there are. */
#include <jansson.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "host_lab.h"

#define ROUNDS 500u
#define BYTES  64

/* @table is "loop" or one of the first device's. */
static uint64_t counter(const struct api *api, const char *table, const char *name)
{
	char *text = rf_host_counters_json(api->host);
	json_t *json = json_loads(text, 0, NULL), *value = json_object_get(json, table);
	uint64_t count;

	if (!value)
		value = json_object_get(json_array_get(json_object_get(json, "devices"), 0), table);
	value = json_object_get(value, name);
	assert_true(json_is_integer(value));
	count = (uint64_t)json_integer_value(value);
	json_decref(json);
	free(text);
	return count;
}

static void poll_host(struct api *api, int poll_us)
{
	rf_host_free(api->host);
	api->poll_us = poll_us;
	api_new_host(api);
}

static void ping_pong(struct rf_guest *guest, int sock, int fd)
{
	char ping[BYTES], pong[BYTES];

	for (unsigned i = 0; i < ROUNDS; i++) {
		memset(ping, (int)i, sizeof(ping));
		assert_int_equal(rf_send(guest, sock, ping, BYTES, 0), BYTES);
		assert_int_equal(recv(fd, pong, BYTES, MSG_WAITALL), BYTES);
		assert_int_equal(send(fd, pong, BYTES, MSG_NOSIGNAL), BYTES);
		memset(pong, 0, sizeof(pong));
		assert_int_equal(rf_recv(guest, sock, pong, BYTES, RF_MSG_WAITALL), BYTES);
		assert_memory_equal(ping, pong, BYTES);
	}
}

/*
 * After a while without packets the host rests: its only wake-up is that of the counters, and there
 * is one timer in the first second.
 */
static void assert_rests(const struct api *api)
{
	uint64_t wakeups, polls;
	unsigned attempts = 0;

	do {
		assert_true(attempts++ < 10);
		usleep(100000);
		polls = counter(api, "loop", "loop_polls");
		wakeups = counter(api, "loop", "loop_wakeups");
		usleep(200000);
	} while (counter(api, "loop", "loop_wakeups") > wakeups + 1 ||
		 counter(api, "loop", "loop_polls") != polls);
}

static void test_run(void **state)
{
	static const struct {
		int poll_us;
		/* A round trip is so fast that a poll sees its end, even if the machine is busy. */
		bool finds;
	} rows[] = { { 0, false }, { 20, false }, { 1000, true }, { RF_HOST_POLL_AUTO, false } };
	struct api *api = *state;

	for (size_t i = 0; i < RF_ARRAY_SIZE(rows); i++) {
		struct rf_host_device *device;
		struct rf_guest *guest;
		int sock, fd;

		poll_host(api, rows[i].poll_us);
		api_begin(api);
		guest = api_open_pair(api, &device);
		sock = api_open_conn(api, guest, &fd);
		ping_pong(guest, sock, fd);
		if (rows[i].finds)
			assert_in_range(counter(api, "vhost", "vu_kicks"), 1, ROUNDS / 2);
		if (rows[i].poll_us >= 0)
			assert_int_equal(counter(api, "loop", "loop_polls") > 0,
					 rows[i].poll_us > 0);
		assert_rests(api);
		api_move_bytes(guest, sock, fd);
		assert_rests(api);
		close(fd);
		rf_close(guest, sock);
		rf_guest_close(guest);
		api_end(api);
	}
}

/* It is served all the time: its guest never kicks, once it is up. */
static void test_busy(void **state)
{
	struct api *api = *state;
	struct rf_host_device *device;
	struct rf_guest *guest;
	int sock, fd;

	poll_host(api, RF_HOST_POLL_BUSY);
	api_begin(api);
	guest = api_open_pair(api, &device);
	sock = api_open_conn(api, guest, &fd);
	ping_pong(guest, sock, fd);
	api_move_bytes(guest, sock, fd);
	assert_in_range(counter(api, "vhost", "vu_kicks"), 0, 2);
	assert_int_equal(counter(api, "loop", "loop_wakeups"), 0);
	close(fd);
	rf_close(guest, sock);
	rf_guest_close(guest);
	api_wait_for(&api->n_left, 1);
	api_end(api);
}

/* The program waits by itself, now and then. */
static void *own_loop(void *arg)
{
	struct api *api = arg;
	unsigned turns = 0;

	while (!api->stop) {
		struct pollfd pfd = { .fd = rf_host_fd(api->host), .events = POLLIN };

		if (turns++ % 3) {
			assert_int_equal(poll(&pfd, 1, -1), 1);
			assert_int_equal(rf_host_dispatch(api->host, 0), 0);
		} else {
			assert_int_equal(rf_host_dispatch(api->host, 10), 0);
		}
	}
	return NULL;
}

static void test_own_loop(void **state)
{
	static const int rows[] = { 0, 20, 1000, RF_HOST_POLL_AUTO };
	struct api *api = *state;

	for (size_t i = 0; i < RF_ARRAY_SIZE(rows); i++) {
		struct rf_host_device *device;
		struct rf_guest *guest;
		int sock, fd;

		poll_host(api, rows[i]);
		api->stop = false;
		assert_int_equal(pthread_create(&api->thread, NULL, own_loop, api), 0);
		guest = api_open_pair(api, &device);
		sock = api_open_conn(api, guest, &fd);
		ping_pong(guest, sock, fd);
		api_move_bytes(guest, sock, fd);
		close(fd);
		rf_close(guest, sock);
		rf_guest_close(guest);
		api_wait_for(&api->n_left, (int)i + 1);
		api->stop = true;
		rf_host_stop(api->host);
		api_join(api);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		API_TEST(test_run),
		API_TEST(test_busy),
		API_TEST(test_own_loop),
	};

	return cmocka_run_group_tests_name("polling", tests, NULL, NULL);
}
