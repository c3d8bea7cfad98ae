/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests of session_io.c. */

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "vu_lab.h"
#include "vu_openings.h"
#include "warp_clock.h"

/* Any piece of a message may be all there is for the moment. */
static void test_byte_by_byte(void **state)
{
	struct rf_vu_mem_single single = { .region = { 0, 0x1000, 0x7f0000000000, 0 } };
	struct rf_vu_message reply;
	struct vu_lab lab;
	uint8_t buf[64];
	size_t len = vu_lab_encode(buf, RF_VU_ADD_MEM_REG, 0x9, &single, sizeof(single));

	(void)state;
	vu_lab_init(&lab, "byte by byte");
	vu_lab_run(&lab, HELLO);
	assert_int_equal(ftruncate(lab.memfd, 0x1000), 0);
	for (size_t i = 0; i < len; i++) {
		assert_int_equal(rf_mem_n_regions(rf_vu_session_mem(lab.session)), 0);
		assert_false(vu_lab_recv(&lab, &reply));
		vu_lab_send(&lab, buf + i, 1, &lab.memfd, i == 0);
		vu_lab_pump(&lab);
	}
	assert_true(vu_lab_recv(&lab, &reply));
	assert_int_equal(reply.payload.u64, 0);
	assert_int_equal(rf_mem_n_regions(rf_vu_session_mem(lab.session)), 1);
	vu_lab_fini(&lab);
}

/* Descriptors on a later byte than the first are not the message's, and do not stay open. */
static void test_late_fds(void **state)
{
	struct rf_vu_mem_single single = { .region = { 0, 0x1000, 0x7f0000000000, 0 } };
	static const size_t splits[] = { 1, 11, 12, 30 };
	uint8_t buf[64];
	size_t len = vu_lab_encode(buf, RF_VU_ADD_MEM_REG, 0x1, &single, sizeof(single));

	(void)state;
	for (size_t i = 0; i < RF_ARRAY_SIZE(splits); i++) {
		struct vu_lab lab;

		vu_lab_init(&lab, "late descriptors");
		vu_lab_run(&lab, HELLO);
		vu_lab_send(&lab, buf, splits[i], NULL, 0);
		vu_lab_pump(&lab);
		vu_lab_send(&lab, buf + splits[i], len - splits[i], &lab.memfd, 1);
		vu_lab_pump(&lab);
		vu_lab_expect(&lab, "closed=FDS");
		vu_lab_fini(&lab);
	}
}

/* As many descriptors as the kernel lets through: CVE-2019-14818. */
static void test_fd_flood(void **state)
{
	static const unsigned counts[] = { 9, 16, 253 };
	int fds[253];
	uint8_t buf[64];
	size_t len = vu_lab_encode(buf, RF_VU_SET_OWNER, 0x1, NULL, 0);

	(void)state;
	for (size_t i = 0; i < RF_ARRAY_SIZE(counts); i++) {
		struct vu_lab lab;

		vu_lab_init(&lab, "flood");
		vu_lab_run(&lab, HELLO);
		for (unsigned k = 0; k < counts[i]; k++)
			fds[k] = lab.memfd;
		vu_lab_send(&lab, buf, len, fds, counts[i]);
		vu_lab_pump(&lab);
		vu_lab_expect(&lab, "closed=FDS");
		vu_lab_fini(&lab);
	}
}

/* Half a message with descriptors, then the end: they are closed. */
static void test_half_message(void **state)
{
	static const size_t lengths[] = { 1, 11, 12, 51 };
	struct rf_vu_mem_single single = { .region = { 0, 0x1000, 0x7f0000000000, 0 } };
	uint8_t buf[64];

	(void)state;
	vu_lab_encode(buf, RF_VU_ADD_MEM_REG, 0x1, &single, sizeof(single));
	for (size_t i = 0; i < RF_ARRAY_SIZE(lengths); i++) {
		struct vu_lab lab;

		vu_lab_init(&lab, "half a message");
		vu_lab_run(&lab, HELLO);
		vu_lab_send(&lab, buf, lengths[i], &lab.memfd, 1);
		vu_lab_run(&lab, "hangup\nexpect closed=HANGUP\n");
		vu_lab_fini(&lab);
	}
}

/* Half a message and then nothing, or a byte now and then: five seconds from its first byte. */
static void test_stalled(void **state)
{
	uint8_t buf[64];
	struct vu_lab lab;

	(void)state;
	vu_lab_encode(buf, RF_VU_SET_OWNER, 0x1, NULL, 0);
	vu_lab_init(&lab, "stalled");
	vu_lab_run(&lab, HELLO);
	/* A message that is whole leaves no deadline behind. */
	vu_lab_send(&lab, buf, 6, NULL, 0);
	vu_lab_pump(&lab);
	vu_lab_send(&lab, buf + 6, 6, NULL, 0);
	vu_lab_pump(&lab);
	warp_clock(60 * RF_NS_PER_SEC);
	vu_lab_pump(&lab);
	vu_lab_send(&lab, buf, 1, &lab.memfd, 1);
	vu_lab_pump(&lab);
	for (unsigned i = 1; i < 10; i++) {
		vu_lab_expect(&lab, "");
		warp_clock(RF_NS_PER_SEC / 2);
		vu_lab_send(&lab, &buf[i], 1, NULL, 0);
		vu_lab_pump(&lab);
	}
	vu_lab_expect(&lab, "");
	warp_clock(RF_NS_PER_SEC / 2);
	vu_lab_pump(&lab);
	vu_lab_expect(&lab, "closed=STALLED");
	vu_lab_fini(&lab);
}

/* A flood of requests is served in turns, and what is complete is served before the end is seen. */
static void test_budget(void **state)
{
	uint8_t buf[64];
	size_t len = vu_lab_encode(buf, RF_VU_SET_OWNER, 0x1, NULL, 0);
	struct vu_lab lab;

	(void)state;
	vu_lab_init(&lab, "budget");
	vu_lab_open(&lab);
	for (unsigned i = 0; i < 100; i++)
		vu_lab_send(&lab, buf, len, NULL, 0);
	lab.peer = rf_fd_close(lab.peer);
	rf_loop_turn(lab.loop, 0);
	assert_int_equal(rf_counter_read(&lab.counters.vu_messages), 16);
	vu_lab_pump(&lab);
	assert_int_equal(rf_counter_read(&lab.counters.vu_messages), 100);
	vu_lab_expect(&lab, "closed=HANGUP");
	vu_lab_fini(&lab);
}

/* A session on a socket that takes little: what it does not take is split anywhere. */
static void open_small(struct vu_lab *lab)
{
	int sv[2], small = 1;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sv), 0);
	assert_int_equal(setsockopt(sv[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
	lab->peer = sv[0];
	assert_int_equal(
		rf_vu_session_new(lab->loop, sv[1], &lab->device, &lab->counters, &lab->session),
		0);
}

/* Ask for the index of ring 0, which was set to @base before: each reply is another. */
static void ask(struct vu_lab *lab, uint32_t base)
{
	struct rf_vu_vring_state state = { .num = base };
	uint8_t buf[64];
	size_t len = vu_lab_encode(buf, RF_VU_SET_VRING_BASE, 0x1, &state, sizeof(state));

	len += vu_lab_encode(buf + len, RF_VU_GET_VRING_BASE, 0x1, &state, sizeof(state));
	/* The session may be over. */
	(void)rf_fd_send(lab->peer, buf, len, NULL, 0);
	rf_loop_turn(lab->loop, 0);
}

/* A front end that asks and does not read: replies wait, bounded, and then it is lost. */
static void test_unread_replies(void **state)
{
	static uint8_t replies[180 * 20], expected[20];
	size_t got = 0;
	uint32_t n;
	struct vu_lab lab;

	(void)state;
	vu_lab_init(&lab, "unread");
	open_small(&lab);
	/* More than the socket holds waits in the session, and nothing is lost of it. */
	for (n = 0; n < 180; n++)
		ask(&lab, n);
	vu_lab_pump(&lab);
	vu_lab_expect(&lab, "");
	for (unsigned i = 0; i < 1000 && got < sizeof(replies); i++) {
		ssize_t r = recv(lab.peer, replies + got, sizeof(replies) - got, 0);

		got += r > 0 ? (size_t)r : 0;
		vu_lab_pump(&lab);
	}
	for (n = 0; n < 180; n++) {
		struct rf_vu_vring_state base = { .num = n };

		vu_lab_encode(expected, RF_VU_GET_VRING_BASE, 0x5, &base, sizeof(base));
		assert_memory_equal(replies + (size_t)20 * n, expected, 20);
	}
	/* And now without end. */
	for (n = 0; n < 1000 && !lab.journal[0]; n++)
		ask(&lab, n);
	assert_in_range(n, 200, 900);
	vu_lab_pump(&lab);
	vu_lab_expect(&lab, "closed=IO");
	vu_lab_fini(&lab);
}

/* All the ways in which a front end goes are the same to the device. */
static void test_hangup(void **state)
{
	uint8_t buf[64];
	size_t len = vu_lab_encode(buf, RF_VU_GET_FEATURES, 0x1, NULL, 0);

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		struct vu_lab lab;

		vu_lab_init(&lab, "hang-up");
		vu_lab_open(&lab);
		vu_lab_send(&lab, buf, len, NULL, 0);
		/* 0: it is gone when the reply is sent; 1: it has not read the reply. */
		if (i == 1)
			vu_lab_pump(&lab);
		if (i == 2)
			shutdown(lab.peer, SHUT_WR);
		else
			lab.peer = rf_fd_close(lab.peer);
		vu_lab_pump(&lab);
		vu_lab_expect(&lab, "closed=HANGUP");
		assert_int_equal(rf_counter_read(&lab.counters.vu_sessions_broken), 0);
		vu_lab_fini(&lab);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_byte_by_byte),   cmocka_unit_test(test_late_fds),
		cmocka_unit_test(test_fd_flood),       cmocka_unit_test(test_half_message),
		cmocka_unit_test(test_stalled),        cmocka_unit_test(test_budget),
		cmocka_unit_test(test_unread_replies), cmocka_unit_test(test_hangup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
