/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors, their generations, and options: guest/socket.c, options.c. */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "guest_rig.h"

#define MAX_SOCKETS 32768

static void types(void **state)
{
	struct rig *rig = *state;
	int sock;

	assert_int_equal(rf_socket(rig->guest, 2), -ESOCKTNOSUPPORT);
	assert_int_equal(rf_socket(rig->guest, 0), -ESOCKTNOSUPPORT);
	assert_int_equal(rf_socket(rig->guest, RF_SOCK_STREAM | 0x1000), -ESOCKTNOSUPPORT);
	sock = rf_socket(rig->guest, RF_SOCK_STREAM | RF_SOCK_NONBLOCK);
	assert_int_equal(rig_option(rig, sock, RF_SO_NONBLOCK), 1);
	sock = rf_socket(rig->guest, RF_SOCK_STREAM);
	assert_int_equal(rig_option(rig, sock, RF_SO_NONBLOCK), 0);
}

/* As many as there are; then the slots again, under other names. */
static void descriptors_are_never_somebody_elses(void **state)
{
	static int socks[MAX_SOCKETS], again[MAX_SOCKETS];
	struct rig *rig = *state;

	for (unsigned i = 0; i < MAX_SOCKETS; i++) {
		socks[i] = rf_socket(rig->guest, RF_SOCK_STREAM);
		assert_true(socks[i] > 0);
	}
	assert_int_equal(rf_socket(rig->guest, RF_SOCK_STREAM), -EMFILE);
	for (unsigned i = 0; i < MAX_SOCKETS; i++)
		assert_int_equal(rf_close(rig->guest, socks[i]), 0);
	for (unsigned i = 0; i < MAX_SOCKETS; i++) {
		again[i] = rf_socket(rig->guest, RF_SOCK_STREAM);
		assert_true(again[i] > 0);
	}
	for (unsigned i = 0; i < MAX_SOCKETS; i++) {
		assert_int_equal(rf_close(rig->guest, socks[i]), -EBADF);
		assert_int_equal(rf_close(rig->guest, again[i]), 0);
	}
}

/* However many sockets there were, those that were open at once decide about memory. */
static void few_slots_for_few_sockets(void **state)
{
	static bool used[MAX_SOCKETS];
	struct rig *rig = *state;
	unsigned n_used = 0;

	for (unsigned i = 0; i < 10000; i++) {
		int sock = rf_socket(rig->guest, RF_SOCK_STREAM);

		assert_true(sock > 0);
		n_used += !used[sock % MAX_SOCKETS];
		used[sock % MAX_SOCKETS] = true;
		assert_int_equal(rf_close(rig->guest, sock), 0);
	}
	assert_in_range(n_used, 2, 100);
}

static void generations_go_round(void **state)
{
	struct rig *rig = *state;
	static int socks[MAX_SOCKETS];
	int first, sock = 0;

	for (unsigned i = 0; i < MAX_SOCKETS; i++)
		socks[i] = rf_socket(rig->guest, RF_SOCK_STREAM);
	first = sock = socks[0];
	/* One slot, all of its generations: 16 bits, never 0. */
	for (unsigned i = 1; i < 1u << 16; i++) {
		int before = sock;

		assert_int_equal(rf_close(rig->guest, sock), 0);
		sock = rf_socket(rig->guest, RF_SOCK_STREAM);
		assert_true(sock > 0 && sock != before);
	}
	assert_int_equal(sock, first);
}

/* Every function with a descriptor that is none, was one, or never could be. */
static void stale_descriptors(void **state)
{
	struct rig *rig = *state;
	struct rf_sockaddr addr = { RF_CID_HOST, 1 };
	int stale = rf_socket(rig->guest, RF_SOCK_STREAM);
	const int fds[] = { stale, 0, -1, INT_MIN, INT_MAX, 5 };
	uint64_t value;
	char byte;

	assert_int_equal(rf_close(rig->guest, stale), 0);
	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		struct rf_guest *g = rig->guest;
		int fd = fds[i];

		assert_int_equal(rf_bind(g, fd, &addr), -EBADF);
		assert_int_equal(rf_listen(g, fd, 1), -EBADF);
		assert_int_equal(rf_accept(g, fd, NULL, 0), -EBADF);
		assert_int_equal(rf_connect(g, fd, &addr), -EBADF);
		assert_int_equal(rf_send(g, fd, &byte, 1, 0), -EBADF);
		assert_int_equal(rf_recv(g, fd, &byte, 1, 0), -EBADF);
		assert_int_equal(rf_shutdown(g, fd, RF_SHUT_WR), -EBADF);
		assert_int_equal(rf_close(g, fd), -EBADF);
		assert_int_equal(rf_setsockopt(g, fd, RF_SO_NONBLOCK, 1), -EBADF);
		assert_int_equal(rf_getsockopt(g, fd, RF_SO_NONBLOCK, &value), -EBADF);
		assert_int_equal(rf_getsockname(g, fd, &addr), -EBADF);
		assert_int_equal(rf_getpeername(g, fd, &addr), -EBADF);
		assert_int_equal(rf_event_fd(g, fd, RF_POLLIN), -EBADF);
	}
}

static void names(void **state)
{
	struct rig *rig = *state;
	int sock = rf_socket(rig->guest, RF_SOCK_STREAM);
	struct rf_sockaddr addr;

	assert_int_equal(rf_getsockname(rig->guest, sock, &addr), 0);
	assert_int_equal(addr.cid, RF_CID_ANY);
	assert_int_equal(addr.port, RF_PORT_ANY);
	assert_int_equal(rf_getpeername(rig->guest, sock, &addr), -ENOTCONN);
	assert_int_equal(rf_getpeername(rig->guest, rig_listen(rig, 1, 1), &addr), -ENOTCONN);
}

/* Linux: raise to the smallest, then cut to the largest (d114bfdc9b76). */
static void buffer_sizes(void **state)
{
	static const struct {
		int row;
		enum rf_sockopt opt;
		uint64_t value;
		int result;
		uint64_t size;
	} rows[] = {
		{ 1, RF_SO_BUFFER_SIZE, 8192, 0, 8192 },
		{ 2, RF_SO_BUFFER_SIZE, 4095, -ERANGE, 8192 },
		{ 3, RF_SO_BUFFER_SIZE, (1u << 30) + 1, -ERANGE, 8192 },
		{ 4, RF_SO_BUFFER_SIZE, 1u << 30, 0, 262144 },
		{ 5, RF_SO_BUFFER_MAX_SIZE, 1u << 30, 0, 262144 },
		{ 6, RF_SO_BUFFER_SIZE, 1u << 30, 0, 1u << 30 },
		{ 7, RF_SO_BUFFER_MAX_SIZE, 100000, 0, 100000 },
		{ 8, RF_SO_BUFFER_MIN_SIZE, 50000, 0, 100000 },
		{ 9, RF_SO_BUFFER_SIZE, 8192, 0, 50000 },
		{ 10, RF_SO_BUFFER_MIN_SIZE, 200000, 0, 100000 },
		{ 11, RF_SO_BUFFER_MIN_SIZE, 0, -ERANGE, 100000 },
		{ 12, RF_SO_BUFFER_MAX_SIZE, UINT64_MAX, -ERANGE, 100000 },
	};
	struct rig *rig = *state;
	int sock = rf_socket(rig->guest, RF_SOCK_STREAM);
	struct rig_conn c = rig_connect(rig, 1, 1000);

	assert_int_equal(rig_option(rig, sock, RF_SO_BUFFER_SIZE), 262144);
	assert_int_equal(rig_option(rig, sock, RF_SO_BUFFER_MIN_SIZE), 4096);
	assert_int_equal(rig_option(rig, sock, RF_SO_BUFFER_MAX_SIZE), 262144);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (rf_setsockopt(rig->guest, sock, rows[i].opt, rows[i].value) != rows[i].result ||
		    rig_option(rig, sock, RF_SO_BUFFER_SIZE) != rows[i].size)
			fail_msg("row %d", rows[i].row);
	}
	/* A connection's window has been told to its peer. */
	assert_int_equal(rf_setsockopt(rig->guest, c.sock, RF_SO_BUFFER_SIZE, 8192), -EINVAL);
}

static void other_options(void **state)
{
	struct rig *rig = *state;
	int sock = rf_socket(rig->guest, RF_SOCK_STREAM);
	uint64_t value;

	assert_int_equal(rig_option(rig, sock, RF_SO_CONNECT_TIMEOUT_MS), 2000);
	assert_int_equal(rf_setsockopt(rig->guest, sock, RF_SO_CONNECT_TIMEOUT_MS, 5), 0);
	assert_int_equal(rig_option(rig, sock, RF_SO_CONNECT_TIMEOUT_MS), 5);
	assert_int_equal(rf_setsockopt(rig->guest, sock, RF_SO_CONNECT_TIMEOUT_MS, 0), 0);
	assert_int_equal(rig_option(rig, sock, RF_SO_CONNECT_TIMEOUT_MS), 2000);
	assert_int_equal(rf_setsockopt(rig->guest, sock, RF_SO_CONNECT_TIMEOUT_MS, UINT64_MAX),
			 -ERANGE);
	assert_int_equal(rf_setsockopt(rig->guest, sock, RF_SO_NONBLOCK, 2), -EINVAL);
	assert_int_equal(rf_setsockopt(rig->guest, sock, RF_SO_ERROR, 0), -ENOPROTOOPT);
	assert_int_equal(rf_setsockopt(rig->guest, sock, RF_SO_INQ, 0), -ENOPROTOOPT);
	assert_int_equal(rf_setsockopt(rig->guest, sock, RF_SO_OUTQ, 0), -ENOPROTOOPT);
	assert_int_equal(rf_setsockopt(rig->guest, sock, (enum rf_sockopt)77, 0), -ENOPROTOOPT);
	assert_int_equal(rf_getsockopt(rig->guest, sock, (enum rf_sockopt)77, &value),
			 -ENOPROTOOPT);
	assert_int_equal(rig_option(rig, sock, RF_SO_INQ), 0);
	assert_int_equal(rig_option(rig, sock, RF_SO_OUTQ), 0);
	assert_int_equal(rig_option(rig, sock, RF_SO_ERROR), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_CASE(types),
		RIG_CASE(descriptors_are_never_somebody_elses),
		RIG_CASE(few_slots_for_few_sockets),
		RIG_CASE(generations_go_round),
		RIG_CASE(stale_descriptors),
		RIG_CASE(names),
		RIG_CASE(buffer_sizes),
		RIG_CASE(other_options),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
