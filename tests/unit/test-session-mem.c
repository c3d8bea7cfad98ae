/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests of session_mem.c. */

#include <errno.h>
#include <linux/virtio_ring.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "vu_lab.h"
#include "vu_openings.h"

/* What is served, and what the device sees of it. */
static const struct {
	const char *name, *script;
} scenarios[] = {
	/* Rings live through a new table that still has them, at the address they then have. */
	{ "new table", SHARE START0 "avail 0 3\ntake 0 1\n"
				    "SET_MEM_TABLE " OTHER " " MEM " need ack\n"
				    "take 0 1\navail 0 1\ntake 0 2\n"
				    "GET_VRING_BASE 0 = 4\nexpect stopping0 stop0@4\n" },
	{ "new table at another place",
	  SHARE START0 "avail 0 2\ntake 0 2\n"
		       "SET_MEM_TABLE 0x0,0x100000,0x7f0000000000,0x200000 need ack\n"
		       /* The same addresses, other memory: the index goes on. */
		       "avail 0 2\navail 0 2\ntake 0 2\n"
		       "GET_VRING_BASE 0 = 4\nexpect stopping0 stop0@4\n" },
	/* A ring that the new table leaves out is stopped; the other one goes on. */
	{ "new table without a ring",
	  SHARE START0 SETUP1 "ADD_MEM_REG " OTHER " need ack\n"
			      "SET_VRING_ADDR 1 0 0x7f0000205000 0x7f0000208000 0x7f0000207000 0\n"
			      "SET_VRING_KICK 1\nSET_VRING_ENABLE 1 1\nexpect start1@0\n"
			      "avail 1 2\ntake 1 1\n"
			      "SET_MEM_TABLE " MEM " need nack RING_ADDR\n"
			      "expect stopping1 stop1@1\n"
			      "avail 0 1\ntake 0 1\nkick 1\nkicks 1 0\n"
			      "GET_VRING_BASE 1 = 1\n" },
	{ "empty table", SHARE START0 "SET_MEM_TABLE need nack RING_ADDR\nexpect " STOP0 "\n" },
	/* A table that fails leaves no ring running, and nothing of the old memory is touched. */
	{ "failing table",
	  SHARE START0 "avail 0 1\n"
		       "SET_MEM_TABLE " MEM " 0x100000,0x20000000000,0x7f1000000000,0x0 need = 1\n"
		       "expect " STOP0 " closed=MEM_MAP\n" },
	/* QEMU 7.2 with queues=2 adds the same region once per queue pair. */
	{ "duplicate region",
	  HELLO "ADD_MEM_REG " MEM " need ack\n" START0 "ADD_MEM_REG " MEM " need ack\n"
		"avail 0 1\ntake 0 1\n"
		"ADD_MEM_REG " OTHER " need ack\n"
		"avail 0 1\ntake 0 1\n"
		"REM_MEM_REG " OTHER " need ack\n"
		"REM_MEM_REG " OTHER " need nack MEM_REGION\n"
		"expect stopping0 stop0@2 closed=MEM_REGION\n" },
	/* One descriptor too many is what older front ends send. */
	{ "remove with descriptor", SHARE "ADD_MEM_REG " OTHER "\n"
					  "REM_MEM_REG " OTHER " fds=1 need ack\n"
					  "REM_MEM_REG " MEM " need ack\n" },
	/* Started, but not served: a region may go, and the ring does not start without it. */
	{ "region of a paused ring", SHARE START0 "SET_VRING_ENABLE 0 0\nexpect " STOP0 "\n"
						  "REM_MEM_REG " MEM " need ack\n"
						  "SET_VRING_ENABLE 0 1 need nack RING_ADDR\n"
						  "ADD_MEM_REG " MEM " need ack\n"
						  /* What was refused has not enabled it. */
						  "GET_VRING_BASE 0 = 0\n"
						  "SET_VRING_KICK 0\nexpect\n"
						  "SET_VRING_ENABLE 0 1\nexpect start0@0\n" },
};

static void test_scenarios(void **state)
{
	(void)state;
	for (size_t i = 0; i < RF_ARRAY_SIZE(scenarios); i++)
		vu_lab_script(scenarios[i].name, scenarios[i].script);
}

/*
 * A table that comes while the device has buffers parsed, taken, and pushed but not published:
 * those are published when the ring goes on or is stopped.
 */
static void test_table_in_turn(void **state)
{
	static const char *const scripts[] = {
		"SET_MEM_TABLE " MEM " need ack\ntake 0 2\n"
		"GET_VRING_BASE 0 = 3\nexpect stopping0 stop0@3\n",
		"SET_MEM_TABLE " MEM " 0x100000,0x20000000000,0x7f1000000000,0x0 need = 1\n"
		"expect stopping0 stop0@1 closed=MEM_MAP\n",
		"SET_MEM_TABLE need nack RING_ADDR\nexpect stopping0 stop0@1\n",
	};

	(void)state;
	for (size_t i = 0; i < RF_ARRAY_SIZE(scripts); i++) {
		const struct rf_chain *chains;
		struct rf_chain chain;
		struct rf_devq *q;
		struct vu_lab lab;

		vu_lab_init(&lab, "a table in the middle of a turn");
		vu_lab_run(&lab, SHARE START0 "avail 0 3\n");
		q = rf_vu_session_queue(lab.session, 0);
		assert_int_equal(rf_devq_look(q, 3, &chains), 3);
		chain = chains[0];
		rf_devq_take(q, 1);
		rf_devq_push(q, &chain, 0);
		vu_lab_run(&lab, scripts[i]);
		vu_lab_fini(&lab);
	}
}

/* What was parsed of a region is forgotten with it, also where the ring lies elsewhere. */
static void test_removed_under_window(void **state)
{
	const struct rf_chain *chains;
	struct vring_desc *desc;
	struct rf_devq *q;
	struct vu_lab lab;

	(void)state;
	vu_lab_init(&lab, "removed under the window");
	vu_lab_run(&lab, SHARE START0 "ADD_MEM_REG " OTHER " need ack\navail 0 1\n");
	desc = vu_lab_map(&lab, 0x7f0000001000, sizeof(*desc));
	desc->addr = 0x100000;
	vu_lab_unmap(desc, sizeof(*desc));
	q = rf_vu_session_queue(lab.session, 0);
	assert_int_equal(rf_devq_look(q, 1, &chains), 1);
	vu_lab_run(&lab, "REM_MEM_REG " OTHER " need ack\n");
	assert_int_equal(rf_devq_look(q, 1, &chains), -EPROTO);
	assert_int_equal(rf_devq_broken(q), RF_RING_DESC_ADDR);
	vu_lab_fini(&lab);
}

/* As many regions as GET_MAX_MEM_SLOTS says and not one more, however often they come and go. */
static void test_many_regions(void **state)
{
	char script[256];
	struct vu_lab lab;

	(void)state;
	vu_lab_init(&lab, "many regions");
	vu_lab_run(&lab, HELLO);
	for (unsigned i = 0; i < 600; i++) {
		vu_lab_run(&lab, "ADD_MEM_REG " MEM " need ack\nREM_MEM_REG " MEM " need ack\n");
		lab.journal[0] = '\0';
	}
	for (unsigned i = 0; i <= RF_MEM_MAX_REGIONS; i++) {
		snprintf(script, sizeof(script), "ADD_MEM_REG 0x%x,0x1000,0x7f00%08x,0x0 need %s\n",
			 i * 4096, i * 4096, i < RF_MEM_MAX_REGIONS ? "ack" : "= 1");
		lab.n_regions = 0;
		vu_lab_run(&lab, script);
		if (i < RF_MEM_MAX_REGIONS)
			lab.journal[0] = '\0';
	}
	vu_lab_expect(&lab, "closed=MEM_REGION");
	vu_lab_fini(&lab);
}

/* The line that a user without shared memory reads. */
static void test_diagnosis(void **state)
{
	struct vu_lab lab;

	(void)state;
	vu_lab_init(&lab, "diagnosis");
	vu_lab_run(&lab, HELLO "SET_VRING_ADDR 0 0 " AREAS0 " 0 need nack RING_ADDR\n");
	assert_non_null(strstr(lab.log_text, "not in the memory that the VM shared"));
	assert_non_null(strstr(lab.log_text, "memory-backend-memfd"));
	assert_non_null(strstr(lab.log_text, "share=on"));
	vu_lab_fini(&lab);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scenarios),
		cmocka_unit_test(test_table_in_turn),
		cmocka_unit_test(test_removed_under_window),
		cmocka_unit_test(test_many_regions),
		cmocka_unit_test(test_diagnosis),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
