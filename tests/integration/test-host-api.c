/* SPDX-License-Identifier: BSD-3-Clause */
/* What ringferry/host.h serves: both halves in one process, over a socketpair, and the options. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "host_lab.h"
#include "open_fds.h"
#include "ringferry/client.h"

static void test_both_halves(void **state)
{
	struct api *api = *state;
	struct rf_host_device *device;
	struct rf_guest *guest;
	int sock, fd, listener;
	char *json;

	api_begin(api);
	guest = api_open_pair(api, &device);
	assert_int_equal(rf_guest_cid(guest), API_CID);
	/* No file but the hybrid socket. */
	assert_int_equal(api_n_files(api), 1);
	sock = api_open_conn(api, guest, &fd);
	api_move_bytes(guest, sock, fd);
	close(fd);
	rf_close(guest, sock);
	/* The same, the guest asking. */
	listener = rf_client_listen(api->uds, API_PORT, 1);
	assert_true(listener >= 0);
	sock = rf_socket(guest, RF_SOCK_STREAM);
	assert_int_equal(rf_connect(guest, sock, &(struct rf_sockaddr){ RF_CID_HOST, API_PORT }),
			 0);
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	api_move_bytes(guest, sock, fd);
	close(fd);
	rf_client_unlisten(listener, api->uds, API_PORT);
	rf_guest_close(guest);
	api_wait_for(&api->n_left, 1);
	json = rf_host_counters_json(api->host);
	assert_non_null(strstr(json, "\"device\":\"cid 4\""));
	assert_non_null(strstr(json, "\"from_guest_bytes\":2097152,"));
	assert_non_null(strstr(json, "\"to_guest_bytes\":2097152,"));
	assert_non_null(strstr(json, "\"loop_wakeups\":"));
	free(json);
	assert_int_equal(rf_host_remove(device), 0);
	assert_int_equal(api_n_files(api), 0);
	api_end(api);
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
BAD(5, o->tune = "packets=2")
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
	{ 5, bad_5, "tune: packets=2 is not allowed; packets=on|off is", -EINVAL },
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
		int fd = api_pair_options(api, &options), r;

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
	rf_host_options_init(&options);
	options.poll_us = -3;
	assert_int_equal(rf_host_new(&options, &host), -EINVAL);
	options.poll_us = 1001;
	assert_int_equal(rf_host_new(&options, &host), -EINVAL);
	rf_host_vsock_options_init(&vsock);
	vsock.size++;
	api->text[0] = '\0';
	assert_int_equal(rf_host_add_vsock(api->host, &vsock, &device), -EINVAL);
	assert_non_null(strstr(api->text, "option size"));
	assert_int_equal(rf_host_dispatch(api->host, -2), -EINVAL);
}

/* What options there are reaches the device. */
static void test_options_matter(void **state)
{
	struct api *api = *state;
	struct rf_host_vsock_options options;
	struct rf_guest *guest;
	struct stat st;
	char *json, ok[32] = "";
	int listener, fd, pair = api_pair_options(api, &options);

	options.name = "first";
	options.uds_mode = 0600;
	options.ok_port = RF_HOST_OK_HOST;
	options.tune = "merge=off,credit=eager";
	options.max_connections = 1;
	api_add(api, &options);
	assert_int_equal(stat(api->uds, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	api_begin(api);
	guest = api_open_guest(pair);
	listener = api_guest_listen(guest);
	fd = api_connect_to(api->uds);
	assert_int_equal(send(fd, "CONNECT 1234\n", 13, MSG_NOSIGNAL), 13);
	assert_true(read(fd, ok, sizeof(ok)) > 4);
	/* The host's ports begin at 2^30. */
	assert_true(strtoul(ok + 3, NULL, 10) >= 1u << 30);
	assert_int_equal(rf_client_connect(api->uds, API_PORT, 0), -ECONNREFUSED);
	close(fd);
	rf_close(guest, listener);
	json = rf_host_counters_json(api->host);
	assert_non_null(strstr(json, "\"device\":\"first\""));
	assert_non_null(strstr(json, "\"merge\":false"));
	assert_non_null(strstr(json, "\"eager\""));
	free(json);
	assert_non_null(strstr(api->text, " first: "));
	rf_guest_close(guest);
	api_end(api);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		API_TEST(test_both_halves),
		API_TEST(test_options_not_allowed),
		API_TEST(test_sizes_not_allowed),
		API_TEST(test_options_matter),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
