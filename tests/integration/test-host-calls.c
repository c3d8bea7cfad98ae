/* SPDX-License-Identifier: BSD-3-Clause */
/* Who may call what of ringferry/host.h when: every state, thread, callback, and the own loop. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "host_lab.h"
#include "open_fds.h"

/* One end of a life of a device; the host is freed in the api_teardown, or the device removed. */
enum stage { EMPTY, LISTENS, CONNECTED, ATTACHED, OPEN, FULL, LEFT, N_STAGES };

static void free_at(struct api *api, enum stage stage, bool removed)
{
	struct rf_host_vsock_options options;
	struct rf_host_device *device = NULL;
	struct rf_guest *guest = NULL;
	int fd = -1, program = -1, sock = 0;
	uint8_t *buf = calloc(1, API_BULK);

	api_begin(api);
	if (stage > EMPTY) {
		fd = api_pair_options(api, &options);
		if (stage == LISTENS) {
			close(options.socket_fd);
			options.socket_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
			assert_int_equal(bind(options.socket_fd,
					      &(struct sockaddr){ .sa_family = AF_UNIX },
					      sizeof(sa_family_t)),
					 0);
			assert_int_equal(listen(options.socket_fd, 1), 0);
		}
		device = api_add(api, &options);
	}
	if (stage >= ATTACHED) {
		guest = api_open_guest(fd);
		fd = -1;
	}
	if (stage >= OPEN)
		sock = api_open_conn(api, guest, &program);
	/* Nobody reads: the program's socket, our buffers and the guest's credit are used up. */
	while (stage == FULL && rf_send(guest, sock, buf, API_BULK, RF_MSG_DONTWAIT) > 0)
		usleep(1000);
	if (stage == LEFT) {
		rf_guest_close(guest);
		guest = NULL;
		api_wait_for(&api->n_left, 1);
	}
	if (removed && device)
		assert_int_equal(rf_host_remove(device), 0);
	api_end(api);
	rf_host_free(api->host);
	if (guest)
		rf_guest_close(guest);
	if (program >= 0)
		close(program);
	if (fd >= 0)
		close(fd);
	free(buf);
	assert_int_equal(open_fds(), api->n_fds);
	api_new_host(api);
}

static void test_freed_in_every_state(void **state)
{
	struct api *api = *state;

	for (int removed = 0; removed <= 1; removed++) {
		for (enum stage stage = EMPTY; stage < N_STAGES; stage++) {
			api->n_left = 0;
			free_at(api, stage, removed);
			/* Only a front end that goes by itself is told. */
			assert_int_equal(api->n_left, stage == LEFT);
		}
	}
	rf_host_free(NULL);
}

/* Devices come and go in other threads while a stream of another one goes on. */
static void *come_and_go(void *arg)
{
	struct api *other = arg;

	for (unsigned i = 0; i < 20; i++) {
		struct rf_host_device *device;
		struct rf_guest *guest = api_open_pair(other, &device);
		char *json = rf_host_counters_json(other->host);

		assert_non_null(json);
		free(json);
		if (i % 2)
			rf_guest_close(guest);
		assert_int_equal(rf_host_remove(device), 0);
		if (!(i % 2))
			rf_guest_close(guest);
	}
	return NULL;
}

static void test_add_and_remove_while_it_runs(void **state)
{
	struct api *api = *state;
	struct rf_host_device *device;
	struct api others[2] = { *api, *api };
	pthread_t threads[2];
	struct rf_guest *guest;
	int sock, fd;

	api_begin(api);
	guest = api_open_pair(api, &device);
	sock = api_open_conn(api, guest, &fd);
	for (unsigned i = 0; i < 2; i++) {
		snprintf(others[i].uds, sizeof(others[i].uds), "%s/%u", api->dir, i);
		assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, &others[i]), 0);
	}
	for (unsigned i = 0; i < 4; i++)
		api_move_bytes(guest, sock, fd);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	api_move_bytes(guest, sock, fd);
	close(fd);
	rf_guest_close(guest);
	api_end(api);
}

static void remove_and_add(struct api *api, struct rf_host_device *device)
{
	struct rf_host_vsock_options options;
	char *json = rf_host_counters_json(api->host);

	assert_non_null(json);
	free(json);
	assert_int_equal(rf_host_run(api->host), -EBUSY);
	assert_int_equal(rf_host_dispatch(api->host, 0), -EBUSY);
	assert_true(rf_host_fd(api->host) >= 0);
	assert_int_equal(rf_host_remove(device), 0);
	close(api_pair_options(api, &options));
	api->device = api_add(api, &options);
}

/* The new device's front end is gone already, so that it goes on for ever until it is stopped. */
static void remove_add_and_stop(struct api *api, struct rf_host_device *device)
{
	remove_and_add(api, device);
	if (api->n_left == 9)
		rf_host_stop(api->host);
}

static void test_calls_from_left(void **state)
{
	struct api *api = *state;
	struct rf_host_vsock_options options;

	api->in_left = remove_add_and_stop;
	close(api_pair_options(api, &options));
	api_add(api, &options);
	assert_int_equal(rf_host_run(api->host), 0);
	assert_int_equal(api->n_left, 10);
	assert_int_equal(api->orderly, 1);
	api->in_left = NULL;
}

static void test_left_because_of_what_it_did(void **state)
{
	struct api *api = *state;
	static const uint8_t garbage[64] = { 0xff, 0xff, 0xff, 0xff, 0xff };
	struct rf_host_vsock_options options;
	int fd = api_pair_options(api, &options);

	api->orderly = -1;
	api_begin(api);
	api_add(api, &options);
	assert_int_equal(write(fd, garbage, sizeof(garbage)), sizeof(garbage));
	api_wait_for(&api->n_left, 1);
	assert_int_equal(api->orderly, 0);
	close(fd);
	api_end(api);
}

/* A device that listens serves the next one, and tells of each. */
static void test_next_front_end(void **state)
{
	struct api *api = *state;
	struct rf_host_vsock_options options;
	struct rf_guest_options guest_options;
	struct rf_host_device *device;
	struct rf_guest *guest;
	char path[60];

	close(api_pair_options(api, &options));
	close(options.socket_fd);
	options.socket_fd = -1;
	snprintf(path, sizeof(path), "%s/front", api->dir);
	options.socket_path = path;
	options.socket_mode = 0600;
	device = api_add(api, &options);
	api_begin(api);
	rf_guest_options_init(&guest_options);
	guest_options.socket_path = path;
	for (int i = 1; i <= 3; i++) {
		assert_int_equal(rf_guest_open(&guest_options, &guest), 0);
		rf_guest_close(guest);
		api_wait_for(&api->n_left, i);
	}
	assert_int_equal(rf_host_remove(device), 0);
	assert_int_equal(api_n_files(api), 0);
	api_end(api);
}

static void refused_in_log(struct api *api)
{
	struct rf_host_vsock_options options;
	struct rf_host_device *device;
	int fd = api_pair_options(api, &options);

	assert_int_equal(rf_host_add_vsock(api->host, &options, &device), -EBUSY);
	close(fd);
	assert_int_equal(rf_host_remove(api->device), -EBUSY);
	assert_int_equal(rf_host_dispatch(api->host, 0), -EBUSY);
	assert_int_equal(rf_host_fd(api->host), -EBUSY);
	assert_null(rf_host_counters_json(api->host));
	rf_host_stop(api->host);
}

static void test_calls_from_log(void **state)
{
	struct api *api = *state;
	struct rf_host_vsock_options options;

	close(api_pair_options(api, &options));
	api->device = api_add(api, &options);
	api->in_log = refused_in_log;
	/* That the front end has left is told in a line. */
	assert_int_equal(rf_host_run(api->host), 0);
	api->in_log = NULL;
	assert_int_equal(rf_host_remove(api->device), 0);
}

static struct rf_host *signalled_host;

static void stop_it(int sig)
{
	(void)sig;
	rf_host_stop(signalled_host);
}

static void test_stop(void **state)
{
	struct api *api = *state;
	struct sigaction action = { .sa_handler = stop_it }, before;

	/* Before it runs; from another thread. */
	rf_host_stop(api->host);
	assert_int_equal(rf_host_run(api->host), 0);
	api_begin(api);
	usleep(10000);
	api_end(api);
	/* From a signal handler of the thread that runs it. */
	signalled_host = api->host;
	assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
	api_begin(api);
	usleep(10000);
	assert_int_equal(pthread_kill(api->thread, SIGUSR1), 0);
	api_join(api);
	assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
	/* It also ends the wait of a dispatch, be it the next one. */
	rf_host_stop(api->host);
	assert_int_equal(rf_host_dispatch(api->host, -1), 0);
}

/**
 * struct own_loop - A program's own loop around rf_host_fd()
 * @n_dispatches: Times the descriptor was readable
 */
struct own_loop {
	struct api *api;
	atomic_bool over;
	atomic_uint n_dispatches;
};

static void *own_loop_run(void *arg)
{
	struct own_loop *own = arg;
	struct pollfd pfd = { .fd = rf_host_fd(own->api->host), .events = POLLIN };

	assert_true(pfd.fd >= 0);
	while (!own->over) {
		assert_int_not_equal(poll(&pfd, 1, -1), -1);
		own->n_dispatches++;
		assert_int_equal(rf_host_dispatch(own->api->host, 0), 0);
	}
	return NULL;
}

/* The descriptor alone says when there is something to do: events, timers, and what was left. */
static void test_own_loop(void **state)
{
	struct api *api = *state;
	struct own_loop own = { .api = api };
	struct rf_host_vsock_options options;
	struct rf_guest *guest;
	int pair = api_pair_options(api, &options), silent, sock, fd;
	unsigned before;
	pthread_t thread;
	char c;

	options.connect_line_ms = 50;
	assert_int_equal(pthread_create(&thread, NULL, own_loop_run, &own), 0);
	usleep(10000);
	/* From another thread, while the loop waits. */
	api_add(api, &options);
	guest = api_open_guest(pair);
	sock = api_open_conn(api, guest, &fd);
	api_move_bytes(guest, sock, fd);
	silent = api_connect_to(api->uds);
	assert_int_equal(read(silent, &c, 1), 0);
	close(silent);
	/* What has nothing to do does nothing; the check of the guest's memory is one timer. */
	usleep(20000);
	before = own.n_dispatches;
	usleep(100000);
	assert_in_range(own.n_dispatches - before, 0, 2);
	close(fd);
	rf_guest_close(guest);
	api_wait_for(&api->n_left, 1);
	own.over = true;
	rf_host_stop(api->host);
	pthread_join(thread, NULL);
}

/* The program dispatches itself; nothing else serves. */
static void test_dispatch(void **state)
{
	struct api *api = *state;
	struct rf_host_vsock_options options;
	int fd = api_pair_options(api, &options);

	api_add(api, &options);
	close(fd);
	for (unsigned i = 0; i < 1000 && !api->n_left; i++)
		assert_int_equal(rf_host_dispatch(api->host, 1000), 0);
	assert_int_equal(api->n_left, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		API_TEST(test_freed_in_every_state),
		API_TEST(test_add_and_remove_while_it_runs),
		API_TEST(test_calls_from_left),
		API_TEST(test_left_because_of_what_it_did),
		API_TEST(test_next_front_end),
		API_TEST(test_calls_from_log),
		API_TEST(test_stop),
		API_TEST(test_own_loop),
		API_TEST(test_dispatch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
