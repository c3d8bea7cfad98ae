/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_lab.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "open_fds.h"
#include "ringferry/client.h"

#define GIVE_UP_S 60

static void take_line(void *ctx, int level, const char *device, const char *line)
{
	struct api *api = ctx;
	size_t used = strlen(api->text);

	snprintf(api->text + used, sizeof(api->text) - used, "%d %s: %s\n", level, device, line);
	if (api->in_log)
		api->in_log(api);
}

static void take_left(void *ctx, struct rf_host_device *device, int orderly)
{
	struct api *api = ctx;

	if (api->in_left)
		api->in_left(api, device);
	api->orderly = orderly;
	api->n_left++;
}

void api_new_host(struct api *api)
{
	struct rf_host_options options;

	rf_host_options_init(&options);
	options.log = take_line;
	options.log_ctx = api;
	options.poll_us = api->poll_us;
	assert_int_equal(rf_host_new(&options, &api->host), 0);
}

int api_setup(void **state)
{
	struct api *api = calloc(1, sizeof(*api));

	assert_non_null(api);
	alarm(GIVE_UP_S);
	api->n_fds = open_fds();
	strcpy(api->dir, "/tmp/rf-api-XXXXXX");
	assert_non_null(mkdtemp(api->dir));
	snprintf(api->uds, sizeof(api->uds), "%s/uds", api->dir);
	api_new_host(api);
	*state = api;
	return 0;
}

/* What was its own it has closed and unlinked. */
int api_teardown(void **state)
{
	struct api *api = *state;

	rf_host_free(api->host);
	assert_int_equal(rmdir(api->dir), 0);
	assert_int_equal(open_fds(), api->n_fds);
	free(api);
	alarm(0);
	return 0;
}

static void *run(void *arg)
{
	struct api *api = arg;

	return (void *)(intptr_t)rf_host_run(api->host);
}

void api_begin(struct api *api)
{
	assert_int_equal(pthread_create(&api->thread, NULL, run, api), 0);
}

void api_join(struct api *api)
{
	void *result;

	assert_int_equal(pthread_join(api->thread, &result), 0);
	assert_null(result);
}

void api_end(struct api *api)
{
	rf_host_stop(api->host);
	api_join(api);
}

/* Options of a device that is handed one end of a socketpair. Return: the other end. */
int api_pair_options(struct api *api, struct rf_host_vsock_options *options)
{
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	rf_host_vsock_options_init(options);
	options->guest_cid = API_CID;
	options->socket_fd = pair[0];
	options->uds_path = api->uds;
	options->left = take_left;
	options->left_ctx = api;
	return pair[1];
}

struct rf_host_device *api_add(struct api *api, const struct rf_host_vsock_options *options)
{
	struct rf_host_device *device = NULL;

	assert_int_equal(rf_host_add_vsock(api->host, options, &device), 0);
	assert_non_null(device);
	return device;
}

struct rf_guest *api_open_guest(int fd)
{
	struct rf_guest_options options;
	struct rf_guest *guest;

	rf_guest_options_init(&options);
	options.socket_fd = fd;
	assert_int_equal(rf_guest_open(&options, &guest), 0);
	return guest;
}

/* A device and a guest on it, while the host runs in its thread. */
struct rf_guest *api_open_pair(struct api *api, struct rf_host_device **ret_device)
{
	struct rf_host_vsock_options options;
	int fd = api_pair_options(api, &options);

	*ret_device = api_add(api, &options);
	return api_open_guest(fd);
}

int api_guest_listen(struct rf_guest *guest)
{
	int sock = rf_socket(guest, RF_SOCK_STREAM);

	assert_true(sock > 0);
	assert_int_equal(rf_bind(guest, sock, &(struct rf_sockaddr){ RF_CID_ANY, API_PORT }), 0);
	assert_int_equal(rf_listen(guest, sock, 8), 0);
	return sock;
}

/* A connection that a host program asked for. Return: the guest's socket. */
int api_open_conn(struct api *api, struct rf_guest *guest, int *ret_fd)
{
	int listener = api_guest_listen(guest), sock;

	*ret_fd = rf_client_connect(api->uds, API_PORT, API_WAIT_MS);
	assert_true(*ret_fd >= 0);
	sock = rf_accept(guest, listener, NULL, 0);
	assert_true(sock > 0);
	rf_close(guest, listener);
	return sock;
}

void api_wait_for(atomic_int *what, int value)
{
	for (int ms = 0; *what != value; ms++) {
		assert_true(ms < API_WAIT_MS);
		usleep(1000);
	}
}

static void fill(uint8_t *buf, size_t len, uint32_t seed)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = (uint8_t)((i + seed) * 31 + ((i + seed) >> 9));
}

struct bulk {
	struct rf_guest *guest;
	int sock;
};

static void *guest_sends(void *arg)
{
	const struct bulk *bulk = arg;
	uint8_t *buf = malloc(API_BULK);

	fill(buf, API_BULK, 1);
	assert_int_equal(rf_send(bulk->guest, bulk->sock, buf, API_BULK, 0), API_BULK);
	free(buf);
	return NULL;
}

static void *guest_receives(void *arg)
{
	const struct bulk *bulk = arg;
	uint8_t *buf = malloc(API_BULK), *want = malloc(API_BULK);

	fill(want, API_BULK, 2);
	assert_int_equal(rf_recv(bulk->guest, bulk->sock, buf, API_BULK, RF_MSG_WAITALL), API_BULK);
	assert_memory_equal(buf, want, API_BULK);
	free(buf);
	free(want);
	return NULL;
}

static void *host_sends(void *arg)
{
	const int *fd = arg;
	uint8_t *buf = malloc(API_BULK);
	size_t sent = 0;

	fill(buf, API_BULK, 2);
	while (sent < API_BULK) {
		ssize_t n = send(*fd, buf + sent, API_BULK - sent, MSG_NOSIGNAL);

		assert_true(n > 0);
		sent += (size_t)n;
	}
	free(buf);
	return NULL;
}

/* A mebibyte each way at once. */
void api_move_bytes(struct rf_guest *guest, int sock, int fd)
{
	struct bulk bulk = { guest, sock };
	uint8_t *buf = malloc(API_BULK), *want = malloc(API_BULK);
	pthread_t threads[3];

	assert_int_equal(pthread_create(&threads[0], NULL, guest_sends, &bulk), 0);
	assert_int_equal(pthread_create(&threads[1], NULL, guest_receives, &bulk), 0);
	assert_int_equal(pthread_create(&threads[2], NULL, host_sends, &fd), 0);
	fill(want, API_BULK, 1);
	assert_int_equal(recv(fd, buf, API_BULK, MSG_WAITALL), API_BULK);
	assert_memory_equal(buf, want, API_BULK);
	for (unsigned i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	free(buf);
	free(want);
}

unsigned api_n_files(const struct api *api)
{
	DIR *dir = opendir(api->dir);
	unsigned n = 0;
	struct dirent *entry;

	assert_non_null(dir);
	while ((entry = readdir(dir)))
		n += entry->d_name[0] != '.';
	closedir(dir);
	return n;
}

int api_connect_to(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	return fd;
}
