/* SPDX-License-Identifier: BSD-3-Clause */
/* ringferry/host.h as an embedder uses it: both halves in one process, over a socketpair. */
#include <errno.h>
#include <fcntl.h>
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
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "open_fds.h"
#include "ringferry/client.h"
#include "ringferry/guest.h"
#include "ringferry/host.h"

#define CID       4u
#define PORT      1234u
#define WAIT_MS   5000
#define BULK      (1u << 20)
#define GIVE_UP_S 60

/**
 * struct api - A host and what it told
 * @dir, @uds:	A directory of its own; the hybrid socket in it
 * @thread:	Runs the host between api_begin() and api_end()
 * @text:	What was logged
 * @n_left, @orderly: Calls of the callback; what the last one said
 * @in_left:	Called from it
 * @device:	A device for @in_left
 * @n_fds:	Descriptors that were open before
 */
struct api {
	struct rf_host *host;
	char dir[40], uds[60];
	pthread_t thread;
	char text[4096];
	atomic_int n_left, orderly;
	void (*in_left)(struct api *api, struct rf_host_device *device);
	void (*in_log)(struct api *api);
	struct rf_host_device *device;
	unsigned n_fds;
};

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

static void new_host(struct api *api)
{
	struct rf_host_options options;

	rf_host_options_init(&options);
	options.log = take_line;
	options.log_ctx = api;
	assert_int_equal(rf_host_new(&options, &api->host), 0);
}

static int setup(void **state)
{
	struct api *api = calloc(1, sizeof(*api));

	assert_non_null(api);
	alarm(GIVE_UP_S);
	api->n_fds = open_fds();
	strcpy(api->dir, "/tmp/rf-api-XXXXXX");
	assert_non_null(mkdtemp(api->dir));
	snprintf(api->uds, sizeof(api->uds), "%s/uds", api->dir);
	new_host(api);
	*state = api;
	return 0;
}

/* What was its own it has closed and unlinked. */
static int teardown(void **state)
{
	struct api *api = *state;

	rf_host_free(api->host);
	assert_int_equal(rmdir(api->dir), 0);
	assert_int_equal(open_fds(), api->n_fds);
	free(api);
	alarm(0);
	return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static void *run(void *arg)
{
	struct api *api = arg;

	return (void *)(intptr_t)rf_host_run(api->host);
}

static void begin(struct api *api)
{
	assert_int_equal(pthread_create(&api->thread, NULL, run, api), 0);
}

static void join(struct api *api)
{
	void *result;

	assert_int_equal(pthread_join(api->thread, &result), 0);
	assert_null(result);
}

static void end(struct api *api)
{
	rf_host_stop(api->host);
	join(api);
}

/* Options of a device that is handed one end of a socketpair. Return: the other end. */
static int pair_options(struct api *api, struct rf_host_vsock_options *options)
{
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	rf_host_vsock_options_init(options);
	options->guest_cid = CID;
	options->socket_fd = pair[0];
	options->uds_path = api->uds;
	options->left = take_left;
	options->left_ctx = api;
	return pair[1];
}

static struct rf_host_device *add(struct api *api, const struct rf_host_vsock_options *options)
{
	struct rf_host_device *device = NULL;

	assert_int_equal(rf_host_add_vsock(api->host, options, &device), 0);
	assert_non_null(device);
	return device;
}

static struct rf_guest *open_guest(int fd)
{
	struct rf_guest_options options;
	struct rf_guest *guest;

	rf_guest_options_init(&options);
	options.socket_fd = fd;
	assert_int_equal(rf_guest_open(&options, &guest), 0);
	return guest;
}

/* A device and a guest on it, while the host runs in its thread. */
static struct rf_guest *open_pair(struct api *api, struct rf_host_device **ret_device)
{
	struct rf_host_vsock_options options;
	int fd = pair_options(api, &options);

	*ret_device = add(api, &options);
	return open_guest(fd);
}

static int guest_listen(struct rf_guest *guest)
{
	int sock = rf_socket(guest, RF_SOCK_STREAM);

	assert_true(sock > 0);
	assert_int_equal(rf_bind(guest, sock, &(struct rf_sockaddr){ RF_CID_ANY, PORT }), 0);
	assert_int_equal(rf_listen(guest, sock, 8), 0);
	return sock;
}

/* A connection that a host program asked for. Return: the guest's socket. */
static int open_conn(struct api *api, struct rf_guest *guest, int *ret_fd)
{
	int listener = guest_listen(guest), sock;

	*ret_fd = rf_client_connect(api->uds, PORT, WAIT_MS);
	assert_true(*ret_fd >= 0);
	sock = rf_accept(guest, listener, NULL, 0);
	assert_true(sock > 0);
	rf_close(guest, listener);
	return sock;
}

static void wait_for(atomic_int *what, int value)
{
	for (int ms = 0; *what != value; ms++) {
		assert_true(ms < WAIT_MS);
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
	uint8_t *buf = malloc(BULK);

	fill(buf, BULK, 1);
	assert_int_equal(rf_send(bulk->guest, bulk->sock, buf, BULK, 0), BULK);
	free(buf);
	return NULL;
}

static void *guest_receives(void *arg)
{
	const struct bulk *bulk = arg;
	uint8_t *buf = malloc(BULK), *want = malloc(BULK);

	fill(want, BULK, 2);
	assert_int_equal(rf_recv(bulk->guest, bulk->sock, buf, BULK, RF_MSG_WAITALL), BULK);
	assert_memory_equal(buf, want, BULK);
	free(buf);
	free(want);
	return NULL;
}

static void *host_sends(void *arg)
{
	const int *fd = arg;
	uint8_t *buf = malloc(BULK);
	size_t sent = 0;

	fill(buf, BULK, 2);
	while (sent < BULK) {
		ssize_t n = send(*fd, buf + sent, BULK - sent, MSG_NOSIGNAL);

		assert_true(n > 0);
		sent += (size_t)n;
	}
	free(buf);
	return NULL;
}

/* A mebibyte each way at once. */
static void move_bytes(struct rf_guest *guest, int sock, int fd)
{
	struct bulk bulk = { guest, sock };
	uint8_t *buf = malloc(BULK), *want = malloc(BULK);
	pthread_t threads[3];

	assert_int_equal(pthread_create(&threads[0], NULL, guest_sends, &bulk), 0);
	assert_int_equal(pthread_create(&threads[1], NULL, guest_receives, &bulk), 0);
	assert_int_equal(pthread_create(&threads[2], NULL, host_sends, &fd), 0);
	fill(want, BULK, 1);
	assert_int_equal(recv(fd, buf, BULK, MSG_WAITALL), BULK);
	assert_memory_equal(buf, want, BULK);
	for (unsigned i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	free(buf);
	free(want);
}

static unsigned n_files(const struct api *api)
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

static void test_both_halves(void **state)
{
	struct api *api = *state;
	struct rf_host_device *device;
	struct rf_guest *guest;
	int sock, fd, listener;
	char *json;

	begin(api);
	guest = open_pair(api, &device);
	assert_int_equal(rf_guest_cid(guest), CID);
	/* No file but the hybrid socket. */
	assert_int_equal(n_files(api), 1);
	sock = open_conn(api, guest, &fd);
	move_bytes(guest, sock, fd);
	close(fd);
	rf_close(guest, sock);
	/* The same, the guest asking. */
	listener = rf_client_listen(api->uds, PORT, 1);
	assert_true(listener >= 0);
	sock = rf_socket(guest, RF_SOCK_STREAM);
	assert_int_equal(rf_connect(guest, sock, &(struct rf_sockaddr){ RF_CID_HOST, PORT }), 0);
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	move_bytes(guest, sock, fd);
	close(fd);
	rf_client_unlisten(listener, api->uds, PORT);
	rf_guest_close(guest);
	wait_for(&api->n_left, 1);
	json = rf_host_counters_json(api->host);
	assert_non_null(strstr(json, "\"device\":\"cid 4\""));
	assert_non_null(strstr(json, "\"from_guest_bytes\":2097152,"));
	assert_non_null(strstr(json, "\"to_guest_bytes\":2097152,"));
	assert_non_null(strstr(json, "\"loop_wakeups\":"));
	free(json);
	assert_int_equal(rf_host_remove(device), 0);
	assert_int_equal(n_files(api), 0);
	end(api);
}

/* Row: an option changed, and what the log says of it. */
struct bad_option {
	int row;
	void (*change)(struct rf_host_vsock_options *options);
	const char *said;
	int result;
};

#define BAD(n, code)                                         \
	static void bad_##n(struct rf_host_vsock_options *o) \
	{                                                    \
		code;                                        \
	}
BAD(1, o->guest_cid = 2)
BAD(2, o->guest_cid = UINT32_MAX)
BAD(3, o->socket_path = "/tmp/x")
BAD(4, (close(o->socket_fd), o->socket_fd = -1))
BAD(5, o->uds_path = NULL)
BAD(6, o->uds_mode = 01000)
BAD(7, o->socket_mode = -2)
BAD(8, o->window_bytes = 4095)
BAD(9, o->queue_size = 100)
BAD(10, o->queue_size = 65536)
BAD(11, o->max_connections = 0)
BAD(12, o->handshake_ms = 9)
BAD(13, o->shutdown_ms = 3600001)
BAD(14, o->connect_line_ms = 0)
BAD(15, o->ok_port = 2)
BAD(16, o->tune = "merge=off,credit=never")
BAD(17, o->tune = "merge")
BAD(18, o->tune = "merge=off,")
BAD(19, o->uds_path = "/tmp/01234567890123456789012345678901234567890123456789"
		      "012345678901234567890123456789012345678901")
BAD(20, o->uds_path = "/proc/no/such/directory")
BAD(21, (dup2(STDIN_FILENO, o->socket_fd)))
BAD(22, (close(o->socket_fd), o->socket_fd = -1, o->socket_path = o->uds_path = "/tmp/rf-api-same"))
#undef BAD

static const struct bad_option bad_options[] = {
	{ 1, bad_1, "guest_cid: 2 is not allowed; 3 to 4294967294 is", -EINVAL },
	{ 2, bad_2, "guest_cid", -EINVAL },
	{ 3, bad_3, "one of the two", -EINVAL },
	{ 4, bad_4, "one of the two", -EINVAL },
	{ 5, bad_5, "uds_path: required", -EINVAL },
	{ 6, bad_6, "uds_mode", -EINVAL },
	{ 7, bad_7, "socket_mode", -EINVAL },
	{ 8, bad_8, "window_bytes", -EINVAL },
	{ 9, bad_9, "queue_size: no power of two", -EINVAL },
	{ 10, bad_10, "queue_size", -EINVAL },
	{ 11, bad_11, "max_connections", -EINVAL },
	{ 12, bad_12, "handshake_ms", -EINVAL },
	{ 13, bad_13, "shutdown_ms", -EINVAL },
	{ 14, bad_14, "connect_line_ms", -EINVAL },
	{ 15, bad_15, "ok_port", -EINVAL },
	{ 16, bad_16, "tune: credit=never is not allowed; credit=batched|eager", -EINVAL },
	{ 17, bad_17, "tune: merge is no switch", -EINVAL },
	{ 18, bad_18, "tune:  is no switch", -EINVAL },
	{ 19, bad_19, "uds_path: longer", -EINVAL },
	{ 20, bad_20, "/proc/no/such/directory", -ENOENT },
	{ 21, bad_21, "is no socket", -ENOTSOCK },
	{ 22, bad_22, "the same as socket_path", -EINVAL },
};

/* Each is told in one line, and the socket that was given is closed. */
static void test_options_not_allowed(void **state)
{
	struct api *api = *state;

	for (size_t i = 0; i < sizeof(bad_options) / sizeof(bad_options[0]); i++) {
		const struct bad_option *row = &bad_options[i];
		struct rf_host_vsock_options options;
		struct rf_host_device *device = NULL;
		unsigned n_fds = open_fds();
		int fd = pair_options(api, &options), r;

		api->text[0] = '\0';
		row->change(&options);
		r = rf_host_add_vsock(api->host, &options, &device);
		close(fd);
		if (r != row->result || device || open_fds() != n_fds)
			fail_msg("row %d: %d", row->row, r);
		if (!strstr(api->text, row->said) || strncmp(api->text, "0 ", 2) != 0 ||
		    strchr(api->text, '\n')[1])
			fail_msg("row %d: %s", row->row, api->text);
	}
}

static void test_sizes_not_allowed(void **state)
{
	struct api *api = *state;
	struct rf_host_vsock_options vsock;
	struct rf_host_options options;
	struct rf_host_device *device;
	struct rf_host *host;

	rf_host_options_init(&options);
	options.size--;
	assert_int_equal(rf_host_new(&options, &host), -EINVAL);
	rf_host_options_init(&options);
	options.log_level = 4;
	assert_int_equal(rf_host_new(&options, &host), -EINVAL);
	rf_host_vsock_options_init(&vsock);
	vsock.size++;
	assert_int_equal(rf_host_add_vsock(api->host, &vsock, &device), -EINVAL);
	assert_int_equal(rf_host_dispatch(api->host, -2), -EINVAL);
}

static int connect_to(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	return fd;
}

/* What options there are reaches the device. */
static void test_options_matter(void **state)
{
	struct api *api = *state;
	struct rf_host_vsock_options options;
	struct rf_guest *guest;
	struct stat st;
	char *json, ok[32] = "";
	int listener, fd, pair = pair_options(api, &options);

	options.name = "first";
	options.uds_mode = 0600;
	options.ok_port = RF_HOST_OK_HOST;
	options.tune = "merge=off,credit=eager";
	options.max_connections = 1;
	add(api, &options);
	assert_int_equal(stat(api->uds, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	begin(api);
	guest = open_guest(pair);
	listener = guest_listen(guest);
	fd = connect_to(api->uds);
	assert_int_equal(send(fd, "CONNECT 1234\n", 13, MSG_NOSIGNAL), 13);
	assert_true(read(fd, ok, sizeof(ok)) > 4);
	/* The host's ports begin at 2^30. */
	assert_true(strtoul(ok + 3, NULL, 10) >= 1u << 30);
	assert_int_equal(rf_client_connect(api->uds, PORT, 0), -ECONNREFUSED);
	close(fd);
	rf_close(guest, listener);
	json = rf_host_counters_json(api->host);
	assert_non_null(strstr(json, "\"device\":\"first\""));
	assert_non_null(strstr(json, "\"merge\":false"));
	assert_non_null(strstr(json, "\"eager\""));
	free(json);
	assert_non_null(strstr(api->text, " first: "));
	rf_guest_close(guest);
	end(api);
}

/* One end of a life of a device; the host is freed in the teardown, or the device removed. */
enum stage { EMPTY, LISTENS, CONNECTED, ATTACHED, OPEN, FULL, LEFT, N_STAGES };

static void free_at(struct api *api, enum stage stage, bool removed)
{
	struct rf_host_vsock_options options;
	struct rf_host_device *device = NULL;
	struct rf_guest *guest = NULL;
	int fd = -1, program = -1, sock = 0;
	uint8_t *buf = calloc(1, BULK);

	begin(api);
	if (stage > EMPTY) {
		fd = pair_options(api, &options);
		if (stage == LISTENS) {
			close(options.socket_fd);
			options.socket_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
			assert_int_equal(bind(options.socket_fd,
					      &(struct sockaddr){ .sa_family = AF_UNIX },
					      sizeof(sa_family_t)),
					 0);
			assert_int_equal(listen(options.socket_fd, 1), 0);
		}
		device = add(api, &options);
	}
	if (stage >= ATTACHED) {
		guest = open_guest(fd);
		fd = -1;
	}
	if (stage >= OPEN)
		sock = open_conn(api, guest, &program);
	/* Nobody reads: the program's socket, our buffers and the guest's credit are used up. */
	while (stage == FULL && rf_send(guest, sock, buf, BULK, RF_MSG_DONTWAIT) > 0)
		usleep(1000);
	if (stage == LEFT) {
		rf_guest_close(guest);
		guest = NULL;
		wait_for(&api->n_left, 1);
	}
	if (removed && device)
		assert_int_equal(rf_host_remove(device), 0);
	end(api);
	rf_host_free(api->host);
	if (guest)
		rf_guest_close(guest);
	if (program >= 0)
		close(program);
	if (fd >= 0)
		close(fd);
	free(buf);
	assert_int_equal(open_fds(), api->n_fds);
	new_host(api);
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
		struct rf_guest *guest = open_pair(other, &device);
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

	begin(api);
	guest = open_pair(api, &device);
	sock = open_conn(api, guest, &fd);
	for (unsigned i = 0; i < 2; i++) {
		snprintf(others[i].uds, sizeof(others[i].uds), "%s/%u", api->dir, i);
		assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, &others[i]), 0);
	}
	for (unsigned i = 0; i < 4; i++)
		move_bytes(guest, sock, fd);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	move_bytes(guest, sock, fd);
	close(fd);
	rf_guest_close(guest);
	end(api);
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
	close(pair_options(api, &options));
	api->device = add(api, &options);
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
	close(pair_options(api, &options));
	add(api, &options);
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
	int fd = pair_options(api, &options);

	api->orderly = -1;
	begin(api);
	add(api, &options);
	assert_int_equal(write(fd, garbage, sizeof(garbage)), sizeof(garbage));
	wait_for(&api->n_left, 1);
	assert_int_equal(api->orderly, 0);
	close(fd);
	end(api);
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

	close(pair_options(api, &options));
	close(options.socket_fd);
	options.socket_fd = -1;
	snprintf(path, sizeof(path), "%s/front", api->dir);
	options.socket_path = path;
	options.socket_mode = 0600;
	device = add(api, &options);
	begin(api);
	rf_guest_options_init(&guest_options);
	guest_options.socket_path = path;
	for (int i = 1; i <= 3; i++) {
		assert_int_equal(rf_guest_open(&guest_options, &guest), 0);
		rf_guest_close(guest);
		wait_for(&api->n_left, i);
	}
	assert_int_equal(rf_host_remove(device), 0);
	assert_int_equal(n_files(api), 0);
	end(api);
}

static void refused_in_log(struct api *api)
{
	struct rf_host_vsock_options options;
	struct rf_host_device *device;
	int fd = pair_options(api, &options);

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

	close(pair_options(api, &options));
	api->device = add(api, &options);
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
	begin(api);
	usleep(10000);
	end(api);
	/* From a signal handler of the thread that runs it. */
	signalled_host = api->host;
	assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
	begin(api);
	usleep(10000);
	assert_int_equal(pthread_kill(api->thread, SIGUSR1), 0);
	join(api);
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
	int pair = pair_options(api, &options), silent, sock, fd;
	unsigned before;
	pthread_t thread;
	char c;

	options.connect_line_ms = 50;
	assert_int_equal(pthread_create(&thread, NULL, own_loop_run, &own), 0);
	usleep(10000);
	/* From another thread, while the loop waits. */
	add(api, &options);
	guest = open_guest(pair);
	sock = open_conn(api, guest, &fd);
	move_bytes(guest, sock, fd);
	silent = connect_to(api->uds);
	assert_int_equal(read(silent, &c, 1), 0);
	close(silent);
	/* What has nothing to do does nothing; the check of the guest's memory is one timer. */
	usleep(20000);
	before = own.n_dispatches;
	usleep(100000);
	assert_in_range(own.n_dispatches - before, 0, 2);
	close(fd);
	rf_guest_close(guest);
	wait_for(&api->n_left, 1);
	own.over = true;
	rf_host_stop(api->host);
	pthread_join(thread, NULL);
}

/* The program dispatches itself; nothing else serves. */
static void test_dispatch(void **state)
{
	struct api *api = *state;
	struct rf_host_vsock_options options;
	int fd = pair_options(api, &options);

	add(api, &options);
	close(fd);
	for (unsigned i = 0; i < 1000 && !api->n_left; i++)
		assert_int_equal(rf_host_dispatch(api->host, 1000), 0);
	assert_int_equal(api->n_left, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_both_halves),
		TEST(test_options_not_allowed),
		TEST(test_sizes_not_allowed),
		TEST(test_options_matter),
		TEST(test_freed_in_every_state),
		TEST(test_add_and_remove_while_it_runs),
		TEST(test_calls_from_left),
		TEST(test_left_because_of_what_it_did),
		TEST(test_next_front_end),
		TEST(test_calls_from_log),
		TEST(test_stop),
		TEST(test_own_loop),
		TEST(test_dispatch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
