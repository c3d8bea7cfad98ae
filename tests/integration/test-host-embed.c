/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections of the program itself, ringferry/host.h, with guests of ringferry/guest.h: bytes,
 * threads, and callbacks that end what they were called for.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "host_lab.h"
#include "pattern.h"

/* Small, so that both directions have to wait all the time. */
#define PIPE_BYTES 5000u
#define BULK_BYTES (4u << 20)

/**
 * struct echo - A connection that sends back what it receives
 * @conn:	Connection
 * @lock:	Protects the rest, and that @conn is valid
 * @buf, @used:	What was taken and not given
 * @eof:	The guest has sent its end of file
 * @n_ended, @how: What ended() told
 * @device:	Its device
 * @remove_in:	The callback that removes the device
 */
struct echo {
	struct api *api;
	struct rf_host_conn *conn;
	pthread_mutex_t lock;
	uint8_t buf[PIPE_BYTES];
	size_t used;
	bool eof;
	atomic_int n_begun, n_ended, how;
	struct rf_host_device *device;
	const char *remove_in;
};

/* Every function may be called from every callback, but for those that serve. */
static void in_callback(struct echo *echo, const char *name)
{
	char *json;

	assert_int_equal(rf_host_dispatch(echo->api->host, 0), -EBUSY);
	assert_int_equal(rf_host_run(echo->api->host), -EBUSY);
	if (!echo->remove_in || strcmp(echo->remove_in, name) != 0)
		return;
	echo->remove_in = NULL;
	assert_int_equal(rf_host_remove(echo->device), 0);
	json = rf_host_counters_json(echo->api->host);
	assert_non_null(strstr(json, "\"devices\":[]"));
	free(json);
}

static int echo_accept(void *ctx, struct rf_host_conn *conn, uint32_t guest_port, void **ret_ctx)
{
	struct echo *echo = ctx;

	assert_true(guest_port > 1023);
	assert_ptr_equal(*ret_ctx, ctx);
	echo->conn = conn;
	echo->n_begun++;
	in_callback(echo, "accept");
	return 0;
}

static void echo_connected(void *ctx, struct rf_host_conn *conn)
{
	struct echo *echo = ctx;

	assert_ptr_equal(conn, echo->conn);
	echo->n_begun++;
	in_callback(echo, "connected");
}

static ssize_t echo_take(void *ctx, struct rf_host_conn *conn, const struct iovec *iov, int n)
{
	struct echo *echo = ctx;
	size_t len;

	pthread_mutex_lock(&echo->lock);
	len = rf_host_copy_out(iov, n, 0, echo->buf + echo->used, sizeof(echo->buf) - echo->used);
	echo->used += len;
	pthread_mutex_unlock(&echo->lock);
	rf_host_conn_ready(conn, RF_HOST_GIVE);
	in_callback(echo, "take");
	return len ? (ssize_t)len : -EAGAIN;
}

static ssize_t echo_give(void *ctx, struct rf_host_conn *conn, const struct iovec *iov, int n)
{
	struct echo *echo = ctx;
	size_t len;

	in_callback(echo, "give");
	pthread_mutex_lock(&echo->lock);
	len = rf_host_copy_in(iov, n, 0, echo->buf, echo->used);
	echo->used -= len;
	memmove(echo->buf, echo->buf + len, echo->used);
	pthread_mutex_unlock(&echo->lock);
	rf_host_conn_ready(conn, RF_HOST_TAKE);
	return len ? (ssize_t)len : echo->eof ? 0 : -EAGAIN;
}

static void echo_shut(void *ctx, struct rf_host_conn *conn, int what)
{
	struct echo *echo = ctx;

	if (what & RF_HOST_TAKE)
		echo->eof = true;
	rf_host_conn_ready(conn, RF_HOST_GIVE);
	in_callback(echo, "shut");
}

static void echo_ended(void *ctx, struct rf_host_conn *conn, int how)
{
	struct echo *echo = ctx;

	assert_ptr_equal(conn, echo->conn);
	pthread_mutex_lock(&echo->lock);
	echo->conn = NULL;
	pthread_mutex_unlock(&echo->lock);
	in_callback(echo, "ended");
	echo->how = how;
	echo->n_ended++;
}

static const struct rf_host_stream_ops echo_ops = {
	.size = sizeof(echo_ops),
	.accept = echo_accept,
	.connected = echo_connected,
	.take = echo_take,
	.give = echo_give,
	.shut = echo_shut,
	.ended = echo_ended,
};

/* A device without a hybrid socket, and a guest on it. */
static struct rf_guest *open_pair(struct api *api, struct rf_host_device **ret_device)
{
	struct rf_host_vsock_options options;
	int fd = api_pair_options(api, &options);

	options.uds_path = NULL;
	*ret_device = api_add(api, &options);
	return api_open_guest(fd);
}

static void echo_init(struct echo *echo, struct api *api, struct rf_host_device *device)
{
	*echo = (struct echo){ .api = api, .device = device, .how = 1 };
	pthread_mutex_init(&echo->lock, NULL);
}

static int guest_connect(struct rf_guest *guest)
{
	int sock = rf_socket(guest, RF_SOCK_STREAM);

	assert_true(sock > 0);
	assert_int_equal(rf_connect(guest, sock, &(struct rf_sockaddr){ RF_CID_HOST, API_PORT }),
			 0);
	return sock;
}

struct sender {
	struct rf_guest *guest;
	int sock;
};

static void *send_bulk(void *arg)
{
	const struct sender *sender = arg;
	static uint8_t buf[100000];

	for (size_t at = 0; at < BULK_BYTES;) {
		size_t len = BULK_BYTES - at < sizeof(buf) ? BULK_BYTES - at : sizeof(buf);

		pattern_fill(buf, at, len);
		assert_int_equal(rf_send(sender->guest, sender->sock, buf, len, 0), len);
		at += len;
	}
	assert_int_equal(rf_shutdown(sender->guest, sender->sock, RF_SHUT_WR), 0);
	return NULL;
}

/* All that the guest sends comes back, and the end of the file behind it. */
static void guest_exchanges(struct rf_guest *guest, int sock)
{
	static uint8_t buf[70000];
	struct sender sender = { guest, sock };
	pthread_t thread;
	size_t at = 0;
	ssize_t n;

	assert_int_equal(pthread_create(&thread, NULL, send_bulk, &sender), 0);
	while ((n = rf_recv(guest, sock, buf, sizeof(buf), 0)) > 0) {
		assert_int_equal(pattern_check(buf, at, (size_t)n), n);
		at += (size_t)n;
	}
	assert_int_equal(n, 0);
	assert_int_equal(at, BULK_BYTES);
	pthread_join(thread, NULL);
	rf_close(guest, sock);
}

static void test_guest_connects(void **state)
{
	struct api *api = *state;
	struct rf_host_device *device;
	struct rf_guest *guest;
	struct echo echo;

	api_begin(api);
	guest = open_pair(api, &device);
	echo_init(&echo, api, device);
	/* From another thread than serves. */
	assert_int_equal(rf_host_listen(device, API_PORT, &echo_ops, &echo), 0);
	guest_exchanges(guest, guest_connect(guest));
	api_wait_for(&echo.n_ended, 1);
	assert_int_equal(echo.how, 0);
	assert_int_equal(rf_host_unlisten(device, API_PORT), 0);
	api_end(api);
	rf_guest_close(guest);
}

static void test_host_connects(void **state)
{
	struct api *api = *state;
	struct rf_host_device *device;
	struct rf_guest *guest;
	struct echo echo;
	int listener, sock;

	api_begin(api);
	guest = open_pair(api, &device);
	listener = api_guest_listen(guest);
	echo_init(&echo, api, device);
	assert_int_equal(rf_host_connect(device, API_PORT, &echo_ops, &echo, &echo.conn), 0);
	sock = rf_accept(guest, listener, NULL, 0);
	assert_true(sock > 0);
	guest_exchanges(guest, sock);
	api_wait_for(&echo.n_ended, 1);
	assert_int_equal(echo.n_begun, 1);
	assert_int_equal(echo.how, 0);
	api_end(api);
	rf_guest_close(guest);
}

/* Beside the hybrid socket. */
static void test_beside_a_socket(void **state)
{
	struct api *api = *state;
	struct rf_host_device *device;
	struct rf_guest *guest;
	struct echo echo;
	int sock, fd;

	api_begin(api);
	guest = api_open_pair(api, &device);
	echo_init(&echo, api, device);
	assert_int_equal(rf_host_listen(device, API_PORT, &echo_ops, &echo), 0);
	sock = api_open_conn(api, guest, &fd);
	guest_exchanges(guest, guest_connect(guest));
	api_move_bytes(guest, sock, fd);
	rf_close(guest, sock);
	close(fd);
	api_wait_for(&echo.n_ended, 1);
	api_end(api);
	rf_guest_close(guest);
}

static void test_wrong_arguments(void **state)
{
	struct api *api = *state;
	struct rf_host_stream_ops ops = echo_ops;
	struct rf_host_device *device;
	struct rf_guest *guest = NULL;
	struct rf_host_conn *conn;
	struct rf_host_vsock_options options;
	int fd = api_pair_options(api, &options);

	device = api_add(api, &options);
	assert_int_equal(rf_host_listen(device, UINT32_MAX, &echo_ops, NULL), -EINVAL);
	assert_int_equal(rf_host_connect(device, UINT32_MAX, &echo_ops, NULL, &conn), -EINVAL);
	assert_int_equal(rf_host_listen(device, 1, NULL, NULL), -EINVAL);
	ops.size--;
	assert_int_equal(rf_host_listen(device, 1, &ops, NULL), -EINVAL);
	assert_int_equal(rf_host_connect(device, 1, &ops, NULL, &conn), -EINVAL);
	assert_int_equal(rf_host_listen(device, 1, &echo_ops, NULL), 0);
	assert_int_equal(rf_host_listen(device, 1, &echo_ops, NULL), -EADDRINUSE);
	assert_int_equal(rf_host_unlisten(device, 2), -ENOENT);
	assert_null(guest);
	close(fd);
}

static struct rf_host_device *log_device;

static void log_calls(struct api *api)
{
	struct rf_host_conn *conn;

	(void)api;
	assert_int_equal(rf_host_listen(log_device, 2, &echo_ops, NULL), -EBUSY);
	assert_int_equal(rf_host_unlisten(log_device, 2), -EBUSY);
	assert_int_equal(rf_host_connect(log_device, 2, &echo_ops, NULL, &conn), -EBUSY);
}

static void test_calls_from_log(void **state)
{
	struct api *api = *state;
	struct rf_host_vsock_options options, bad;
	struct rf_host_device *other;
	int fd = api_pair_options(api, &options);

	log_device = api_add(api, &options);
	api->in_log = log_calls;
	rf_host_vsock_options_init(&bad);
	assert_int_equal(rf_host_add_vsock(api->host, &bad, &other), -EINVAL);
	assert_true(*api->text);
	close(fd);
}

/* Row: a callback removes its device. */
static void run_removing(struct api *api, const char *callback)
{
	bool connects = !strcmp(callback, "connected");
	struct rf_host_device *device;
	struct rf_guest *guest;
	struct echo echo;
	uint8_t byte = 0;
	int sock;

	api_begin(api);
	guest = open_pair(api, &device);
	echo_init(&echo, api, device);
	echo.remove_in = callback;
	if (connects) {
		int listener = api_guest_listen(guest);

		assert_int_equal(rf_host_connect(device, API_PORT, &echo_ops, &echo, &echo.conn),
				 0);
		sock = rf_accept(guest, listener, NULL, 0);
	} else {
		assert_int_equal(rf_host_listen(device, API_PORT, &echo_ops, &echo), 0);
		sock = rf_socket(guest, RF_SOCK_STREAM);
		(void)rf_connect(guest, sock, &(struct rf_sockaddr){ RF_CID_HOST, API_PORT });
	}
	(void)rf_send(guest, sock, "x", 1, 0);
	(void)rf_shutdown(guest, sock, RF_SHUT_WR);
	if (!strcmp(callback, "ended"))
		(void)rf_close(guest, sock);
	else
		while (rf_recv(guest, sock, &byte, 1, 0) > 0)
			;
	api_wait_for(&echo.n_ended, 1);
	assert_null(echo.remove_in);
	assert_int_equal(echo.how, strcmp(callback, "ended") ? -ENETRESET : 0);
	/* What is left of it was told to leave. */
	assert_int_equal(api->n_left, 0);
	api_end(api);
	rf_guest_close(guest);
}

static void test_removed_in_callbacks(void **state)
{
	static const char *const rows[] = {
		"accept", "connected", "take", "give", "shut", "ended"
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		run_removing(*state, rows[i]);
}

/* Freed or removed from outside with connections open: each hears so, and may not begin anew. */
static void tries_again(void *ctx, struct rf_host_conn *conn, int how)
{
	struct echo *echo = ctx;

	(void)conn;
	echo->how = how;
	echo->n_ended++;
	assert_int_equal(rf_host_connect(echo->device, 1, &echo_ops, echo, &echo->conn), -ENODEV);
	assert_int_equal(rf_host_listen(echo->device, 1, &echo_ops, echo), -ENODEV);
}

static void test_freed_with_connections(void **state)
{
	static const struct rf_host_stream_ops ops = {
		.size = sizeof(ops),
		.take = echo_take,
		.ended = tries_again,
	};
	struct api *api = *state;

	for (int removed = 0; removed <= 1; removed++) {
		struct rf_host_device *device;
		struct rf_guest *guest;
		struct echo echo;

		api_begin(api);
		guest = open_pair(api, &device);
		echo_init(&echo, api, device);
		assert_int_equal(rf_host_listen(device, API_PORT, &ops, &echo), 0);
		guest_connect(guest);
		api_end(api);
		/* One that nobody but the program has heard of. */
		assert_int_equal(rf_host_connect(device, 1, &ops, &echo, &echo.conn), 0);
		if (removed)
			assert_int_equal(rf_host_remove(device), 0);
		rf_host_free(api->host);
		assert_int_equal(echo.n_ended, 2);
		assert_int_equal(echo.how, -ENETRESET);
		rf_guest_close(guest);
		api_new_host(api);
	}
}

/* Other threads say all the time what needs not be said, until the connection has ended. */
static void *tell_always(void *arg)
{
	struct echo *echo = arg;
	bool valid = true;

	for (unsigned i = 0; valid; i++) {
		pthread_mutex_lock(&echo->lock);
		valid = echo->conn;
		if (valid)
			rf_host_conn_ready(echo->conn, (int)(i % 3) + 1);
		pthread_mutex_unlock(&echo->lock);
		if (i % 64 == 0)
			usleep(50);
	}
	return NULL;
}

static void test_told_by_other_threads(void **state)
{
	struct api *api = *state;
	struct rf_host_device *device;
	pthread_t threads[3];
	struct rf_guest *guest;
	struct echo echo;
	int sock;

	api_begin(api);
	guest = open_pair(api, &device);
	echo_init(&echo, api, device);
	assert_int_equal(rf_host_listen(device, API_PORT, &echo_ops, &echo), 0);
	sock = guest_connect(guest);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, tell_always, &echo), 0);
	guest_exchanges(guest, sock);
	for (unsigned i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(echo.n_ended, 1);
	api_end(api);
	rf_guest_close(guest);
}

/* Another thread closes; the guest reads the end of the file. */
static void test_closed_by_another_thread(void **state)
{
	struct api *api = *state;
	struct rf_host_device *device;
	struct rf_guest *guest;
	struct echo echo;
	char byte;
	int sock;

	api_begin(api);
	guest = open_pair(api, &device);
	echo_init(&echo, api, device);
	assert_int_equal(rf_host_listen(device, API_PORT, &echo_ops, &echo), 0);
	sock = guest_connect(guest);
	pthread_mutex_lock(&echo.lock);
	rf_host_conn_close(echo.conn);
	pthread_mutex_unlock(&echo.lock);
	assert_int_equal(rf_recv(guest, sock, &byte, 1, 0), 0);
	api_wait_for(&echo.n_ended, 1);
	assert_int_equal(echo.how, 0);
	api_end(api);
	rf_guest_close(guest);
}

static bool readable(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };

	return poll(&pfd, 1, 0) == 1;
}

/* Who waits for rf_host_fd() learns of what another thread, or the same one, has told. */
static void test_own_loop_hears(void **state)
{
	struct api *api = *state;
	struct rf_host_device *device;
	struct rf_guest *guest;
	/* The connection ends with the host, after this function. */
	static struct echo echo;
	int sock, fd;
	char byte;

	api_begin(api);
	guest = open_pair(api, &device);
	echo_init(&echo, api, device);
	assert_int_equal(rf_host_listen(device, API_PORT, &echo_ops, &echo), 0);
	sock = guest_connect(guest);
	api_end(api);
	fd = rf_host_fd(api->host);
	assert_true(fd >= 0);
	while (readable(fd))
		assert_int_equal(rf_host_dispatch(api->host, 0), 0);
	pthread_mutex_lock(&echo.lock);
	echo.buf[0] = 'y';
	echo.used = 1;
	rf_host_conn_ready(echo.conn, RF_HOST_GIVE);
	pthread_mutex_unlock(&echo.lock);
	assert_true(readable(fd));
	while (readable(fd))
		assert_int_equal(rf_host_dispatch(api->host, 0), 0);
	assert_int_equal(rf_recv(guest, sock, &byte, 1, 0), 1);
	assert_int_equal(byte, 'y');
	rf_guest_close(guest);
}

static const struct CMUnitTest tests[] = {
	API_TEST(test_guest_connects),           API_TEST(test_host_connects),
	API_TEST(test_beside_a_socket),          API_TEST(test_wrong_arguments),
	API_TEST(test_calls_from_log),           API_TEST(test_removed_in_callbacks),
	API_TEST(test_freed_with_connections),   API_TEST(test_told_by_other_threads),
	API_TEST(test_closed_by_another_thread), API_TEST(test_own_loop_hears),
};

int main(void)
{
	return cmocka_run_group_tests_name("host-embed", tests, NULL, NULL);
}
