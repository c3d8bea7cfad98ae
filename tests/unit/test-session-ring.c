/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests of session_ring.c. */

#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_ring.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "open_fds.h"
#include "vu_lab.h"
#include "vu_openings.h"

/* What is served, and what the device sees of it. */
static const struct {
	const char *name, *script;
} scenarios[] = {
	{ "start and stop", SHARE START0 START1 "kicks 0 0\n"
						"kick 0\nkicks 0 1\nkicks 1 0\n"
						"kick 1\nkick 1\nkicks 1 2\n"
						"avail 0 5\ntake 0 3\n"
						"GET_VRING_BASE 0 = 3\n"
						"expect stopping0 stop0@3\n"
						"GET_VRING_BASE 0 = 3\n"
						"kick 0\nkicks 0 0\n"
						"GET_VRING_BASE 1 = 0\n"
						"expect stopping1 stop1@0\n" },
	/* Pausing by ENABLE 0 alone, as cloud-hypervisor does: nothing is lost. */
	{ "pause", SHARE START0 "avail 0 5\ntake 0 2\n"
				"SET_VRING_ENABLE 0 0\nexpect stopping0 stop0@2\n"
				"SET_VRING_ENABLE 0 0\n"
				"kick 0\nkicks 0 0\n"
				"SET_VRING_ENABLE 0 1\nexpect start0@2\n"
				"SET_VRING_ENABLE 0 1\n"
				"kicks 0 1\n"
				"take 0 3\n"
				"GET_VRING_BASE 0 = 5\nexpect stopping0 stop0@5\n" },
	/* ENABLE counts while the ring does not exist and while it is stopped. */
	{ "enabled first", SHARE "SET_VRING_ENABLE 0 1\n" SETUP0 "SET_VRING_KICK 0\n"
				 "expect start0@0\n"
				 "GET_VRING_BASE 0 = 0\nexpect " STOP0 "\n"
				 "SET_VRING_BASE 0 17\n"
				 "SET_VRING_KICK 0\nexpect start0@17\n" },
	/* A base with its high bit set is the index of a ring that went around. */
	{ "base", SHARE SETUP0 "SET_VRING_BASE 0 65535\n"
			       "GET_VRING_BASE 0 = 65535\n"
			       "SET_VRING_KICK 0\nSET_VRING_ENABLE 0 1\nexpect start0@65535\n"
			       "GET_VRING_BASE 0 = 65535\nexpect stopping0 stop0@65535\n" },
	/* The kick was signalled before the ring started: it is looked at all the same. */
	{ "early kick", SHARE SETUP0 "SET_VRING_KICK 0\nkick 0\nkicks 0 0\n"
				     "SET_VRING_ENABLE 0 1\nexpect start0@0\nkicks 0 1\n" },
	/* A started ring takes a new kick descriptor, and serves it alone. */
	{ "kick replaced", SHARE START0 "SET_VRING_KICK 0\nkick 0\nkicks 0 1\n" },
	{ "kick replaced while disabled",
	  SHARE START0 "SET_VRING_ENABLE 0 0\nexpect " STOP0 "\n"
		       "SET_VRING_KICK 0\nkick 0\nkicks 0 0\n"
		       "SET_VRING_ENABLE 0 1\nexpect start0@0\nkicks 0 1\nkick 0\nkicks 0 1\n" },
	/* The call descriptor changes at any time; what the old one was signalled for is repeated.
	 */
	{ "call", SHARE "SET_VRING_CALL 0\ncalled 0 no\n" START0 "called 0 yes\n"
			"avail 0 1\ntake 0 1\ncalled 0 yes\ncalled 0 no\n"
			"SET_VRING_CALL 0\ncalled 0 yes\n"
			"avail 0 1\ntake 0 1\ncalled 0 yes\n"
			"SET_VRING_CALL 0 nofd\navail 0 1\ntake 0 1\n"
			"SET_VRING_CALL 0 nofd\n"
			"SET_VRING_CALL 0\ncalled 0 yes\n"
			"GET_VRING_BASE 0 = 3\nexpect stopping0 stop0@3\ncalled 0 no\n"
			"SET_VRING_CALL 0\ncalled 0 no\n" },
	/* The call descriptor outlives a stop: QEMU's network device sends it after the kick. */
	{ "call kept", SHARE START0 "called 0 yes\n"
				    "GET_VRING_BASE 0 = 0\nexpect " STOP0 "\n"
				    "SET_VRING_KICK 0\nexpect start0@0\ncalled 0 yes\n" },
	{ "err replaced", SHARE START0 "SET_VRING_ERR 0\nSET_VRING_ERR 0 nofd\nSET_VRING_ERR 0\n" },
	/* Sent again with other flags, as QEMU does when it begins to migrate; then really moved.
	 */
	{ "addresses again", SHARE START0 "SET_VRING_ADDR 0 1 " AREAS0 " 0x4000 need ack\n"
					  "avail 0 2\ntake 0 1\n"
					  "SET_VRING_ADDR 0 0 " AREAS1 " 0 need ack\n"
					  "zero 0\navail 0 4\ntake 0 3\n"
					  "GET_VRING_BASE 0 = 4\nexpect stopping0 stop0@4\n" },
	/* CVE-2020-10726's shape: the same request many times keeps nothing. */
	{ "num again", SHARE "SET_VRING_NUM 0 256\nSET_VRING_NUM 0 128\nSET_VRING_NUM 0 1\n" },
};

static void test_scenarios(void **state)
{
	(void)state;
	for (size_t i = 0; i < RF_ARRAY_SIZE(scenarios); i++)
		vu_lab_script(scenarios[i].name, scenarios[i].script);
}

/* Send a descriptor of our choice for ring 0. */
static void send_vring_fd(struct vu_lab *lab, uint32_t request, uint32_t flags, int fd)
{
	uint64_t ring = 0;
	uint8_t buf[64];
	size_t len = vu_lab_encode(buf, request, flags, &ring, sizeof(ring));

	vu_lab_send(lab, buf, len, &fd, 1);
	vu_lab_pump(lab);
}

/* What the guest acknowledged last before the ring was started is how it is served. */
static void test_features(void **state)
{
	static const struct {
		const char *features;
		bool indirect;
	} rows[] = {
		{ "SET_FEATURES 0x140000000\n", false },
		{ "SET_FEATURES 0x150000000\n", true },
		{ "SET_FEATURES 0x150000000\nSET_FEATURES 0x140000000\n", false },
	};

	(void)state;
	for (size_t i = 0; i < RF_ARRAY_SIZE(rows); i++) {
		const struct rf_chain *chains;
		struct vring_desc *desc;
		struct rf_devq *q;
		struct vu_lab lab;

		vu_lab_init(&lab, rows[i].features);
		vu_lab_run(&lab, SHARE);
		vu_lab_run(&lab, rows[i].features);
		vu_lab_run(&lab, START0 "avail 0 1\n");
		desc = vu_lab_map(&lab, 0x7f0000001000, sizeof(*desc));
		*desc = (struct vring_desc){ .addr = 0x9000,
					     .len = sizeof(*desc),
					     .flags = VRING_DESC_F_INDIRECT };
		vu_lab_unmap(desc, sizeof(*desc));
		desc = vu_lab_map(&lab, 0x7f0000009000, sizeof(*desc));
		*desc = (struct vring_desc){ .addr = 0xa000, .len = 10 };
		vu_lab_unmap(desc, sizeof(*desc));
		q = rf_vu_session_queue(lab.session, 0);
		assert_int_equal(rf_devq_look(q, 1, &chains), rows[i].indirect ? 1 : -EPROTO);
		assert_int_equal(rf_devq_broken(q),
				 rows[i].indirect ? RF_RING_NONE : RF_RING_INDIRECT_FEATURE);
		vu_lab_fini(&lab);
	}
}

/* What a ring holds of the front end's while it runs, after GET_VRING_BASE, and after it. */
static void test_ring_fds(void **state)
{
	struct vu_lab lab;
	unsigned fds;

	(void)state;
	vu_lab_init(&lab, "descriptors of a ring");
	vu_lab_run(&lab, SHARE);
	fds = open_fds();
	/* Each is there twice: the lab has its own. */
	vu_lab_run(&lab, START0);
	assert_int_equal(open_fds(), fds + 6);
	vu_lab_run(&lab, "SET_VRING_KICK 0\nSET_VRING_CALL 0\nSET_VRING_ERR 0\n");
	assert_int_equal(open_fds(), fds + 6);
	vu_lab_run(&lab, "GET_VRING_BASE 0 = 0\nexpect " STOP0 "\n");
	assert_int_equal(open_fds(), fds + 5);
	vu_lab_run(&lab, "SET_VRING_CALL 0 nofd\nSET_VRING_ERR 0 nofd\n");
	assert_int_equal(open_fds(), fds + 3);
	vu_lab_fini(&lab);
}

/* A kick descriptor that is always readable must not make us spin. */
static void test_readable_kick(void **state)
{
	struct vu_lab lab;
	int pair[2];

	(void)state;
	vu_lab_init(&lab, "readable kick");
	vu_lab_run(&lab, SHARE START0);
	assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
	assert_int_equal(write(pair[1], "x", 1), 1);
	send_vring_fd(&lab, RF_VU_SET_VRING_KICK, 0x1, pair[0]);
	assert_true(lab.rings[0].kicks <= 2);
	for (unsigned i = 0; i < 1000; i++)
		rf_loop_turn(lab.loop, 0);
	assert_true(lab.rings[0].kicks <= 2);
	/* Hung up, for ever. */
	close(pair[1]);
	for (unsigned i = 0; i < 1000; i++)
		rf_loop_turn(lab.loop, 0);
	assert_true(lab.rings[0].kicks <= 3);
	close(pair[0]);
	vu_lab_run(&lab, "SET_VRING_KICK 0\nkick 0\n");
	vu_lab_fini(&lab);
}

/* A kick descriptor that cannot be watched at all. */
static void test_unwatchable_kick(void **state)
{
	struct rf_vu_message reply;
	struct vu_lab lab;

	(void)state;
	vu_lab_init(&lab, "unwatchable kick");
	vu_lab_run(&lab, SHARE START0);
	send_vring_fd(&lab, RF_VU_SET_VRING_KICK, 0x1, lab.memfd);
	vu_lab_expect(&lab, STOP0 " closed=FDS");
	vu_lab_fini(&lab);

	/* Refused at the start; the next one starts the ring. */
	vu_lab_init(&lab, "unwatchable kick at start");
	vu_lab_run(&lab, SHARE SETUP0 "SET_VRING_ENABLE 0 1\n");
	send_vring_fd(&lab, RF_VU_SET_VRING_KICK, 0x9, lab.memfd);
	assert_true(vu_lab_recv(&lab, &reply));
	assert_int_equal(reply.payload.u64, 1);
	vu_lab_run(&lab, "SET_VRING_ENABLE 0 0 need ack\nSET_VRING_ENABLE 0 1 need ack\n"
			 "SET_VRING_KICK 0\nexpect start0@0\n");
	/* And in place of a good one. */
	send_vring_fd(&lab, RF_VU_SET_VRING_KICK, 0x9, lab.memfd);
	assert_true(vu_lab_recv(&lab, &reply));
	assert_int_equal(reply.payload.u64, 1);
	vu_lab_run(&lab, "expect " STOP0 "\nSET_VRING_KICK 0\nexpect start0@0\n");
	vu_lab_fini(&lab);
}

/* Call descriptors that are full, no eventfds, or nobody's any more: signalling never blocks. */
static void test_odd_calls(void **state)
{
	uint64_t full = UINT64_MAX - 1;
	struct vu_lab lab;
	char fill[4096] = "";
	int fd, pair[2];

	(void)state;
	vu_lab_init(&lab, "odd calls");
	vu_lab_run(&lab, SHARE START0);
	fd = rf_eventfd_new();
	assert_int_equal(write(fd, &full, sizeof(full)), sizeof(full));
	/* Blocking, as a hostile front end has it. */
	fcntl(fd, F_SETFL, 0);
	send_vring_fd(&lab, RF_VU_SET_VRING_CALL, 0x1, fd);
	vu_lab_run(&lab, "avail 0 1\ntake 0 1\n");
	/* And again: the flag belongs to both. */
	fcntl(fd, F_SETFL, 0);
	alarm(10);
	vu_lab_run(&lab, "avail 0 1\ntake 0 1\n");
	rf_devq_break(rf_vu_session_queue(lab.session, 0), RF_RING_CHAIN_LOOP);
	send_vring_fd(&lab, RF_VU_SET_VRING_ERR, 0x1, fd);
	fcntl(fd, F_SETFL, 0);
	rf_vu_session_ring_broken(lab.session, 0);
	alarm(0);
	vu_lab_run(&lab, "GET_VRING_BASE 0 = 2\nSET_VRING_KICK 0\n"
			 "expect stopping0 stop0@2 start0@2\n");
	close(fd);
	assert_int_equal(pipe2(pair, O_CLOEXEC | O_NONBLOCK), 0);
	while (write(pair[1], fill, sizeof(fill)) > 0)
		;
	fcntl(pair[1], F_SETFL, 0);
	send_vring_fd(&lab, RF_VU_SET_VRING_CALL, 0x1, pair[1]);
	vu_lab_run(&lab, "avail 0 1\ntake 0 1\n");
	close(pair[0]);
	close(pair[1]);
	vu_lab_run(&lab, "avail 0 1\ntake 0 1\n");
	vu_lab_fini(&lab);
}

/* The front end's own end of the session: kept by us, it would outlive the front end. */
static void test_own_socket(void **state)
{
	static const uint32_t requests[] = { RF_VU_SET_VRING_KICK, RF_VU_SET_VRING_CALL,
					     RF_VU_SET_VRING_ERR };

	(void)state;
	for (unsigned i = 0; i < RF_ARRAY_SIZE(requests); i++) {
		struct rf_vu_message reply;
		struct vu_lab lab;

		vu_lab_init(&lab, "own socket");
		vu_lab_run(&lab, SHARE SETUP0);
		send_vring_fd(&lab, requests[i], 0x9, lab.peer);
		assert_true(vu_lab_recv(&lab, &reply));
		assert_int_equal(reply.payload.u64, 1);
		vu_lab_run(&lab, "hangup\nexpect closed=HANGUP\n");
		vu_lab_fini(&lab);
	}
}

/* A driver that breaks a rule loses its ring, and the front end hears of it, once. */
static void test_ring_broken(void **state)
{
	const struct rf_chain *chains;
	struct vu_lab lab;

	(void)state;
	vu_lab_init(&lab, "broken ring");
	vu_lab_run(&lab, SHARE START0 START1 "err 0 no\navail 0 200\navail 0 200\n");
	assert_int_equal(rf_devq_look(rf_vu_session_queue(lab.session, 0), 1, &chains), -EPROTO);
	rf_vu_session_ring_broken(lab.session, 0);
	rf_vu_session_ring_broken(lab.session, 0);
	assert_int_equal(rf_counter_read(&lab.counters.vu_rings_broken), 1);
	assert_non_null(strstr(lab.last_log, rf_ring_reason_text(RF_RING_AVAIL_JUMP)));
	vu_lab_run(&lab, "err 0 yes\nerr 0 no\navail 1 1\ntake 1 1\n"
			 "GET_VRING_BASE 0 = 0\nexpect stopping0 stop0@0\n"
			 "zero 0\n"
			 "SET_VRING_KICK 0\nexpect start0@0\navail 0 1\ntake 0 1\nerr 0 no\n");
	/* Broken again: told again. */
	rf_devq_break(rf_vu_session_queue(lab.session, 0), RF_RING_CHAIN_LOOP);
	rf_vu_session_ring_broken(lab.session, 0);
	vu_lab_run(&lab, "err 0 yes\n");
	assert_int_equal(rf_counter_read(&lab.counters.vu_rings_broken), 2);
	/* Memory that vanished is the front end's doing. */
	rf_devq_break(rf_vu_session_queue(lab.session, 1), RF_RING_MEM_FAULT);
	rf_vu_session_ring_broken(lab.session, 1);
	vu_lab_expect(&lab, "stopping0 stop0@1 stopping1 stop1@1");
	vu_lab_pump(&lab);
	vu_lab_expect(&lab, "closed=MEM_FAULT");
	vu_lab_fini(&lab);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scenarios),        cmocka_unit_test(test_features),
		cmocka_unit_test(test_ring_fds),         cmocka_unit_test(test_readable_kick),
		cmocka_unit_test(test_unwatchable_kick), cmocka_unit_test(test_odd_calls),
		cmocka_unit_test(test_own_socket),       cmocka_unit_test(test_ring_broken),
	};

	/* As the program does: a call descriptor may be a pipe that nobody reads. */
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
