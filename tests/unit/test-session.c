/* SPDX-License-Identifier: BSD-3-Clause */
#include "vhost/session.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/fd.h"
#include "vu_lab.h"
#include "vu_openings.h"

/*
 * Refusals. Each row is run twice: with need_reply, which is answered, and, unless it is fatal, the
 * session goes on as if nothing had happened; and without, which ends the session.
 */
static const struct {
	unsigned row;
	const char *before, *request, *reason;
	bool fatal;
} refusals[] = {
	/* features */
	{ 1, HELLO, "SET_FEATURES 0x170000003", "FEATURES", false },
	{ 2, HELLO, "SET_FEATURES 0x8000000000000000", "FEATURES", false },
	/* LOG_ALL was not offered: no migration. */
	{ 3, HELLO, "SET_FEATURES 0x174000002", "FEATURES", false },
	/* QEMU 7.2 acknowledges in-band notifications if they are offered; nobody else may. */
	{ 4, HELLO, "SET_PROTOCOL_FEATURES 0x4000", "FEATURES", false },
	/* requests that nobody serves */
	{ 10, HELLO, "REQUEST 0 0", "UNKNOWN", false },
	{ 11, HELLO, "REQUEST 22 0", "UNKNOWN", false },
	{ 12, HELLO, "REQUEST 45 0", "UNKNOWN", false },
	{ 13, HELLO, "REQUEST 0xffffffff 0", "UNKNOWN", false },
	{ 14, HELLO, "SET_LOG_FD", "UNKNOWN", false },
	{ 15, HELLO, "NET_SET_MTU 1500", "NOT_NEGOTIATED", false },
	{ 16, HELLO, "SEND_RARP 0", "NOT_NEGOTIATED", false },
	{ 17, HELLO, "SET_BACKEND_REQ_FD", "NOT_NEGOTIATED", false },
	/* The index is 32 bits wide, not 16: CVE-2020-10723. */
	{ 20, SHARE, "SET_VRING_NUM 2 256", "RING_INDEX", false },
	{ 21, SHARE, "SET_VRING_NUM 0x10000 256", "RING_INDEX", false },
	{ 22, SHARE, "SET_VRING_NUM 0xffffffff 256", "RING_INDEX", false },
	{ 23, SHARE, "SET_VRING_BASE 2 0", "RING_INDEX", false },
	{ 24, SHARE, "SET_VRING_ADDR 0x10001 0 " AREAS0 " 0", "RING_INDEX", false },
	{ 25, SHARE, "SET_VRING_ENABLE 2 1", "RING_INDEX", false },
	{ 26, SHARE, "SET_VRING_ENABLE 0x80000000 0", "RING_INDEX", false },
	{ 27, SHARE, "SET_VRING_KICK 2", "RING_INDEX", false },
	{ 28, SHARE, "SET_VRING_CALL 255", "RING_INDEX", false },
	{ 29, SHARE, "SET_VRING_ERR 2", "RING_INDEX", false },
	/* What would be ring 0 if only 8 bits were looked at. */
	{ 30, SHARE, "SET_VRING_CALL 0x200", "RING_INDEX", false },
	{ 31, SHARE, "SET_VRING_KICK 0x100000000", "RING_INDEX", false },
	/* ring sizes */
	{ 40, SHARE, "SET_VRING_NUM 0 0", "RING_NUM", false },
	{ 41, SHARE, "SET_VRING_NUM 0 3", "RING_NUM", false },
	{ 42, SHARE, "SET_VRING_NUM 0 2048", "RING_NUM", false },
	{ 43, SHARE, "SET_VRING_NUM 0 65536", "RING_NUM", false },
	{ 44, SHARE, "SET_VRING_NUM 0 0x80000000", "RING_NUM", false },
	{ 45, SHARE START0, "SET_VRING_NUM 0 128", "RING_STATE", false },
	/* indices: rust-vmm/vhost #211 */
	{ 50, SHARE, "SET_VRING_BASE 0 65536", "RING_BASE", false },
	{ 51, SHARE, "SET_VRING_BASE 0 0xffffffff", "RING_BASE", false },
	{ 52, SHARE START0, "SET_VRING_BASE 0 0", "RING_STATE", false },
	/* addresses: outside, across the end, wrapping, unaligned */
	{ 60, SHARE, "SET_VRING_ADDR 0 0 0x0 0x7f0000004000 0x7f0000003000 0", "RING_ADDR", false },
	{ 61, SHARE, "SET_VRING_ADDR 0 0 0x7f0000001000 0x0 0x7f0000003000 0", "RING_ADDR", false },
	{ 62, SHARE, "SET_VRING_ADDR 0 0 0x7f0000001000 0x7f0000004000 0x0 0", "RING_ADDR", false },
	{ 63, SHARE "SET_VRING_NUM 0 256\n",
	  "SET_VRING_ADDR 0 0 0x7f00000ff010 0x7f0000004000 0x7f0000003000 0", "RING_ADDR", false },
	{ 64, SHARE "SET_VRING_NUM 0 256\n",
	  "SET_VRING_ADDR 0 0 0x7f0000001000 0x7f00000ffffc 0x7f0000003000 0", "RING_ADDR", false },
	{ 65, SHARE "SET_VRING_NUM 0 256\n",
	  "SET_VRING_ADDR 0 0 0xfffffffffffffff0 0x7f0000004000 0x7f0000003000 0", "RING_ADDR",
	  false },
	{ 66, SHARE, "SET_VRING_ADDR 0 0 0x7f0000001008 0x7f0000004000 0x7f0000003000 0",
	  "RING_ADDR", false },
	{ 67, SHARE, "SET_VRING_ADDR 0 0 0x7f0000001000 0x7f0000004002 0x7f0000003000 0",
	  "RING_ADDR", false },
	{ 68, SHARE, "SET_VRING_ADDR 0 0 0x7f0000001000 0x7f0000004000 0x7f0000003001 0",
	  "RING_ADDR", false },
	{ 69, HELLO, "SET_VRING_ADDR 0 0 " AREAS0 " 0", "RING_ADDR", false },
	{ 70, SHARE START0, "SET_VRING_ADDR 0 0 0x0 0x0 0x0 0", "RING_ADDR", false },
	/* starting too early, or without a kick */
	{ 80, SHARE, "SET_VRING_KICK 0", "RING_STATE", false },
	{ 81, SHARE "SET_VRING_NUM 0 256\n", "SET_VRING_KICK 0", "RING_STATE", false },
	{ 82, SHARE "SET_VRING_ADDR 0 0 " AREAS0 " 0\n", "SET_VRING_KICK 0", "RING_STATE", false },
	{ 83, SHARE SETUP0, "SET_VRING_KICK 0 nofd", "FDS", false },
	/* The size comes after the addresses and makes the ring too long for its region. */
	{ 84,
	  SHARE "SET_VRING_ADDR 0 0 0x7f00000fff00 0x7f0000004000 0x7f0000003000 0\n"
		"SET_VRING_NUM 0 256\n",
	  "SET_VRING_KICK 0", "RING_ADDR", false },
	/* The memory went between the addresses and the start. */
	{ 85,
	  SHARE SETUP0 "REM_MEM_REG " MEM " need ack\n"
		       "ADD_MEM_REG " OTHER " need ack\n",
	  "SET_VRING_KICK 0", "RING_ADDR", false },
	{ 86, SHARE, "SET_VRING_ENABLE 0 2", "RING_STATE", false },
	/* the two ways to say "no descriptor" must agree */
	{ 87, SHARE SETUP0, "SET_VRING_KICK 0 fds=0", "FDS", false },
	{ 88, SHARE, "SET_VRING_CALL 0 fds=0", "FDS", false },
	{ 89, SHARE, "SET_VRING_CALL 0x100", "FDS", false },
	{ 90, SHARE, "SET_VRING_ERR 0 fds=0", "FDS", false },
	/* memory */
	{ 100, HELLO, "SET_MEM_TABLE 0x0,0x0,0x7f0000000000,0x0", "MEM_REGION", true },
	{ 101, HELLO, "SET_MEM_TABLE 0xfffffffffffff000,0x2000,0x7f0000000000,0x0", "MEM_REGION",
	  true },
	{ 102, HELLO, "SET_MEM_TABLE 0x0,0x2000,0xfffffffffffff000,0x0", "MEM_REGION", true },
	{ 103, HELLO, "SET_MEM_TABLE 0x0,0x2000,0x7f0000000000,0xfffffffffffff000", "MEM_REGION",
	  true },
	{ 104, HELLO, "SET_MEM_TABLE " MEM " 0xff000,0x1000,0x7f0000200000,0x0", "MEM_REGION",
	  true },
	{ 105, HELLO, "SET_MEM_TABLE " MEM " 0x100000,0x1000,0x7f00000ff000,0x0", "MEM_REGION",
	  true },
	/* Larger than the file: a small mapping must not be used as a large one. */
	{ 106, HELLO, "SET_MEM_TABLE 0x0,0x20000000000,0x7f0000000000,0x0", "MEM_MAP", true },
	{ 107, SHARE, "ADD_MEM_REG 0x0,0x2000,0x7f0000200000,0x0", "MEM_REGION", true },
	{ 108, SHARE, "ADD_MEM_REG 0x200000,0x20000000000,0x7f0000200000,0x0", "MEM_MAP", true },
	{ 109, SHARE, "REM_MEM_REG " OTHER, "MEM_REGION", true },
	/* all of guest address, front end's address and size must fit */
	{ 110, SHARE, "REM_MEM_REG 0x0,0x1000,0x7f0000000000,0x0", "MEM_REGION", true },
	{ 111, SHARE, "REM_MEM_REG 0x0,0x100000,0x7f0000100000,0x0", "MEM_REGION", true },
	{ 112, SHARE START0, "REM_MEM_REG " MEM, "RING_STATE", false },
	/* the configuration has nothing to write to */
	{ 120, HELLO, "SET_CONFIG 0 8", "CONFIG", false },
};

/* Answered, and then as if nothing had come; or, if it is fatal, answered and over. */
static void refuse_with_answer(const char *name, unsigned i, bool running, const char *end)
{
	char line[256];
	struct vu_lab lab;

	vu_lab_init(&lab, name);
	vu_lab_run(&lab, refusals[i].before);
	if (refusals[i].fatal) {
		snprintf(line, sizeof(line), "%s need = 1\n", refusals[i].request);
		vu_lab_run(&lab, line);
		vu_lab_run(&lab, end);
	} else {
		snprintf(line, sizeof(line), "%s need nack %s\n", refusals[i].request,
			 refusals[i].reason);
		vu_lab_run(&lab, line);
		vu_lab_run(&lab, "GET_FEATURES = 0x10170000002\n");
		assert_int_equal(rf_devq_running(rf_vu_session_queue(lab.session, 0)), running);
		assert_int_equal(rf_counter_read(&lab.counters.vu_sessions_broken), 0);
	}
	assert_int_equal(rf_counter_read(&lab.counters.vu_refused), 1);
	vu_lab_expect(&lab, "");
	vu_lab_fini(&lab);
}

static void refuse_without_answer(const char *name, unsigned i, const char *end)
{
	char line[256];
	struct vu_lab lab;

	vu_lab_init(&lab, name);
	vu_lab_run(&lab, refusals[i].before);
	snprintf(line, sizeof(line), "%s\n", refusals[i].request);
	vu_lab_run(&lab, line);
	vu_lab_run(&lab, end);
	assert_null(lab.session);
	assert_int_equal(rf_counter_read(&lab.counters.vu_sessions_broken), 1);
	vu_lab_fini(&lab);
}

static void test_refusals(void **state)
{
	char name[32], end[64];

	(void)state;
	for (unsigned i = 0; i < RF_ARRAY_SIZE(refusals); i++) {
		bool running = strstr(refusals[i].before, START0);

		snprintf(name, sizeof(name), "refusal %u", refusals[i].row);
		snprintf(end, sizeof(end), "expect %sclosed=%s\n", running ? STOP0 " " : "",
			 refusals[i].reason);
		refuse_with_answer(name, i, running, end);
		refuse_without_answer(name, i, end);
	}
}

/* Send a request of zeros with as many descriptors as it needs. Return: was it refused? */
static bool refused(struct vu_lab *lab, uint32_t request)
{
	const struct rf_vu_request_def *def = rf_vu_request_def(request);
	uint64_t before = rf_counter_read(&lab->counters.vu_refused);
	uint8_t payload[64] = { 0 }, buf[128];
	struct rf_vu_message reply;
	size_t len = vu_lab_encode(buf, request, 0x9, payload, def ? def->min_size : 8);

	vu_lab_send(lab, buf, len, &lab->memfd, def ? def->min_fds : 0);
	vu_lab_pump(lab);
	return vu_lab_recv(lab, &reply) && reply.hdr.size == 8 && reply.payload.u64 == 1 &&
	       rf_counter_read(&lab->counters.vu_refused) == before + 1;
}

/* What this back end does not offer (dirty log, in-flight area, postcopy): refused, and no more. */
static void test_unserved(void **state)
{
	static const uint32_t served[] = { 1,  2,  3,  4,  5,  8,  9,  10, 11, 12, 13, 14,
					   15, 16, 17, 18, 24, 25, 34, 36, 37, 38, 39, 40 };
	struct vu_lab lab;

	(void)state;
	vu_lab_init(&lab, "unserved");
	vu_lab_run(&lab, SHARE START0);
	for (uint32_t request = 0, next = 0; request < 64; request++) {
		if (next < RF_ARRAY_SIZE(served) && served[next] == request)
			next++;
		else if (request != RF_VU_SET_LOG_BASE && !refused(&lab, request))
			fail_msg("request %u", request);
	}
	/* One that has a reply of its own cannot be refused. Nothing of it all touched the ring. */
	vu_lab_run(&lab, "avail 0 2\ntake 0 2\nSET_LOG_BASE 0 size=16 fds=1\n"
			 "expect stopping0 stop0@2 closed=NOT_NEGOTIATED\n");
	vu_lab_fini(&lab);
}

/* What always ends a session. */
static const struct {
	unsigned row;
	const char *before, *request, *reason;
} fatal_rows[] = {
	{ 1, HELLO, "SET_OWNER flags=0x2", "VERSION" },
	{ 2, HELLO, "SET_OWNER flags=0x0", "VERSION" },
	{ 3, HELLO, "SET_OWNER flags=0x5", "VERSION" },
	/* replies cannot say "no" */
	{ 4, HELLO, "GET_VRING_BASE 2", "RING_INDEX" },
	{ 5, HELLO, "GET_VRING_BASE 0xffffffff need", "RING_INDEX" },
	{ 6, "", "GET_QUEUE_NUM", "NOT_NEGOTIATED" },
	{ 7, "", "GET_CONFIG 0 8", "NOT_NEGOTIATED" },
	{ 8, HELLO, "SET_LOG_BASE 0 size=16 fds=1", "NOT_NEGOTIATED" },
	/* need_reply without REPLY_ACK is not honoured */
	{ 9, "", "SET_VRING_NUM 0 3 need", "RING_NUM" },
	{ 10, "SET_PROTOCOL_FEATURES 0x8200\n", "SET_VRING_NUM 0 3 need", "RING_NUM" },
	{ 11, HELLO "SET_PROTOCOL_FEATURES 0x0\n", "SET_VRING_NUM 0 3 need", "RING_NUM" },
	/* sizes that no payload may have */
	{ 12, HELLO, "SET_OWNER size=0xffffffff", "SIZE" },
	{ 13, HELLO, "REQUEST 99 0 size=521", "SIZE" },
	{ 14, HELLO, "SET_MEM_TABLE " MEM " size=72", "SIZE" },
	{ 15, HELLO, "SET_MEM_TABLE " MEM " fds=2", "FDS" },
	{ 16, HELLO, "SET_MEM_TABLE " MEM " fds=0", "FDS" },
	{ 17, HELLO, "SET_MEM_TABLE " MEM " fds=9", "FDS" },
	/* Answered, and over. */
	{ 19, HELLO, "SET_OWNER fds=1 need = 1", "FDS" },
	{ 20, HELLO, "SET_MEM_TABLE " MEM " size=72 need = 1", "SIZE" },
	/* The 1-fd and the 0-fd form of the same thing, in a request that needs one. */
	{ 18, SHARE, "ADD_MEM_REG " OTHER " fds=0", "FDS" },
};

static void test_fatal(void **state)
{
	char name[32], script[1024];

	(void)state;
	for (size_t i = 0; i < RF_ARRAY_SIZE(fatal_rows); i++) {
		snprintf(name, sizeof(name), "fatal %u", fatal_rows[i].row);
		snprintf(script, sizeof(script), "%s%s\nexpect closed=%s\n", fatal_rows[i].before,
			 fatal_rows[i].request, fatal_rows[i].reason);
		vu_lab_script(name, script);
	}
}

/* A legal instance of each request that is served, where ring 1 runs and ring 0 does not. */
static const char *const instances[] = {
	"GET_FEATURES",
	"SET_FEATURES 0x170000002",
	"SET_OWNER",
	"RESET_OWNER",
	("SET_MEM_TABLE " MEM),
	"SET_VRING_NUM 0 256",
	("SET_VRING_ADDR 0 0 " AREAS0 " 0"),
	"SET_VRING_BASE 0 7",
	"GET_VRING_BASE 0",
	"GET_VRING_BASE 1",
	"SET_VRING_KICK 0",
	"SET_VRING_KICK 1",
	"SET_VRING_CALL 0",
	"SET_VRING_CALL 1",
	"SET_VRING_CALL 1 nofd",
	"SET_VRING_ERR 1",
	"SET_VRING_ERR 1 nofd",
	"GET_PROTOCOL_FEATURES",
	"SET_PROTOCOL_FEATURES 0x1a209",
	"GET_QUEUE_NUM",
	"SET_VRING_ENABLE 0 1",
	"SET_VRING_ENABLE 1 0",
	"GET_CONFIG 0 8",
	"RESET_DEVICE",
	"GET_MAX_MEM_SLOTS",
	("ADD_MEM_REG " MEM),
	("ADD_MEM_REG " OTHER),
	"SET_STATUS 15",
	"GET_STATUS",
};

/* How each of them is bent, and why it then ends the session; NULL: it does not. */
static const struct {
	const char *how, *reason;
} bends[] = {
	{ "", NULL },
	{ "need", NULL },
	{ "fds=2", "FDS" },
	{ "fds=8", "FDS" },
	{ "size=600", "SIZE" },
	{ "size=3", "SIZE" },
	{ "flags=0x3", "VERSION" },
};

static void bend_instance(const char *request, unsigned bend)
{
	struct vu_lab lab;
	char line[256];

	vu_lab_init(&lab, request);
	vu_lab_run(&lab, SHARE START1 SETUP0);
	snprintf(line, sizeof(line), "%s %s anyreply\n", request, bends[bend].how);
	vu_lab_run(&lab, line);
	if (bends[bend].reason) {
		snprintf(line, sizeof(line), "closed=%s", bends[bend].reason);
		if (!strstr(lab.journal, line))
			fail_msg("%s %s: %s", request, bends[bend].how, lab.journal);
	} else if (strstr(lab.journal, "closed") || rf_counter_read(&lab.counters.vu_refused)) {
		fail_msg("%s %s: %s", request, bends[bend].how, lab.journal);
	}
	vu_lab_fini(&lab);
}

static void test_matrix(void **state)
{
	(void)state;
	for (size_t i = 0; i < RF_ARRAY_SIZE(instances); i++)
		for (unsigned bend = 0; bend < RF_ARRAY_SIZE(bends); bend++)
			bend_instance(instances[i], bend);
}

/* The same requests with nothing set up at all: served or refused, never more than that. */
static void test_matrix_bare(void **state)
{
	(void)state;
	for (size_t i = 0; i < RF_ARRAY_SIZE(instances); i++) {
		struct vu_lab lab;
		char line[256];

		vu_lab_init(&lab, instances[i]);
		snprintf(line, sizeof(line), "SET_PROTOCOL_FEATURES 0x1a209\n%s need anyreply\n",
			 instances[i]);
		vu_lab_run(&lab, line);
		vu_lab_run(&lab, "GET_FEATURES = any\n");
		vu_lab_fini(&lab);
	}
}

/* What is served, and what the device sees of it. */
static const struct {
	const char *name, *script;
} scenarios[] = {
	{ "features", "device features=0x10130000002 protocol=0x8 queue_num=7\n"
		      "GET_FEATURES = 0x10170000002\n"
		      "GET_PROTOCOL_FEATURES = 0x8\n"
		      "GET_FEATURES need = 0x10170000002\n"
		      "SET_FEATURES 0x100000000\n" },
	/* need_reply counts once REPLY_ACK was set, whether or not GET_PROTOCOL_FEATURES was sent
	   (rust-vmm/vhost #290), for the message that sets it and for the one that takes it back.
	 */
	{ "need_reply", "SET_OWNER need\n"
			"SET_PROTOCOL_FEATURES 0x8 need ack\n"
			"SET_OWNER need ack\n"
			"SET_OWNER\n"
			"SET_PROTOCOL_FEATURES 0x0 need ack\n"
			"SET_OWNER need\n" },
	/* One reply, not two, to a request that replies anyway. */
	{ "natural replies", HELLO "GET_QUEUE_NUM need = 2\n"
				   "GET_MAX_MEM_SLOTS need = 509\n"
				   "GET_STATUS need = 0\n"
				   "GET_VRING_BASE 0 need = 0\n"
				   "GET_CONFIG 0 8 need = 2a00000000000000\n" },
	{ "configuration", HELLO "GET_CONFIG 0 8 = 2a00000000000000\n"
				 "GET_CONFIG 0 4 = 2a000000\n"
				 "GET_CONFIG 4 4 = 00000000\n"
				 "GET_CONFIG 8 0 = -\n"
				 "GET_CONFIG 0 9 empty\n"
				 "GET_CONFIG 7 2 empty\n"
				 "GET_CONFIG 9 0 empty\n"
				 "GET_CONFIG 0xffffffff 8 empty\n"
				 "GET_CONFIG 0 8 size=19 empty\n"
				 "GET_CONFIG 0 8 size=21 empty\n"
				 "GET_CONFIG 0 8 = 2a00000000000000\n" },
	/* Without bit 30: no ENABLE. */
	{ "enabled by features",
	  "SET_MEM_TABLE " MEM "\n"
	  "SET_FEATURES 0x100000000\n" SETUP0 "SET_VRING_KICK 0\nexpect start0@0\n"
	  "GET_VRING_BASE 0 = 0\nexpect " STOP0 "\n" },
	{ "enabled by late features", "SET_MEM_TABLE " MEM "\n" SETUP0 "SET_VRING_KICK 0\n" SETUP1
				      "SET_FEATURES 0x100000000\nexpect start0@0\n" },
	/* With bit 30, features sent again while rings run do not stop or start any. */
	{ "features again", SHARE START0 "SET_FEATURES 0x140000000\n"
					 "kick 0\nkicks 0 1\n"
					 "SET_VRING_KICK 1 need nack RING_STATE\n" },
	{ "reset device",
	  HELLO "SET_MEM_TABLE " MEM "\n" START0 START1 "avail 1 4\ntake 1 4\n"
		"RESET_DEVICE need ack\nexpect stopping0 stop0@0 stopping1 stop1@4 reset\n"
		"GET_VRING_BASE 1 = 4\n"
		"SET_VRING_NUM 1 128\n"
		/* Neither enabling nor a kick descriptor alone starts what was reset. */
		"SET_VRING_ENABLE 0 1\nexpect\nSET_VRING_ENABLE 0 0\n"
		"SET_VRING_KICK 0\nexpect\n"
		"SET_VRING_ENABLE 0 1\nexpect start0@0\n"
		"RESET_DEVICE\nexpect " STOP0 " reset\n"
		"RESET_DEVICE\nexpect reset\n" },
	/* It means "disable" at most, never "forget". */
	{ "reset owner", SHARE START0 "RESET_OWNER need ack\nexpect " STOP0 "\n"
				      "SET_VRING_KICK 0\nexpect\n"
				      "SET_VRING_ENABLE 0 1\nexpect start0@0\n" },
	{ "status", SHARE START0 "SET_STATUS 0\nSET_STATUS 11 need ack\nGET_STATUS = 11\n"
				 "SET_STATUS 15\nGET_STATUS = 15\n"
				 "SET_STATUS 0\nexpect " STOP0 " reset\nGET_STATUS = 0\n"
				 "SET_STATUS 0\n"
				 "SET_STATUS 1\nRESET_DEVICE\nexpect reset\nGET_STATUS = 0\n" },
	{ "hangup", SHARE START0 "hangup\nexpect " STOP0 " closed=HANGUP\n" },
	{ "hangup at once", "SET_OWNER\nhangup\nexpect closed=HANGUP\n" },
};

static void test_scenarios(void **state)
{
	(void)state;
	for (size_t i = 0; i < RF_ARRAY_SIZE(scenarios); i++)
		vu_lab_script(scenarios[i].name, scenarios[i].script);
}

/* A probe connects and leaves: no event but the end, and nothing is counted as broken. */
static void test_probe(void **state)
{
	struct vu_lab lab;

	(void)state;
	vu_lab_init(&lab, "probe");
	vu_lab_open(&lab);
	vu_lab_run(&lab, "hangup\nexpect closed=HANGUP\n");
	assert_int_equal(rf_counter_read(&lab.counters.vu_sessions_broken), 0);
	vu_lab_fini(&lab);
}

/* The device ends the session: rings at once, closed() from the loop. */
static void test_break(void **state)
{
	struct vu_lab lab;

	(void)state;
	vu_lab_init(&lab, "break");
	vu_lab_run(&lab, SHARE START0);
	rf_vu_session_break(lab.session, RF_VU_CLOSED);
	rf_vu_session_break(lab.session, RF_VU_IO);
	vu_lab_expect(&lab, STOP0);
	assert_false(rf_devq_running(rf_vu_session_queue(lab.session, 0)));
	rf_vu_session_signal(lab.session, 0);
	vu_lab_pump(&lab);
	vu_lab_expect(&lab, "closed=CLOSED");
	assert_int_equal(rf_counter_read(&lab.counters.vu_sessions_broken), 0);
	vu_lab_fini(&lab);

	/* Freed before that: closed() never comes. */
	vu_lab_init(&lab, "break and free");
	vu_lab_run(&lab, SHARE START0);
	rf_vu_session_break(lab.session, RF_VU_MEM_FAULT);
	rf_vu_session_free(lab.session);
	lab.session = NULL;
	vu_lab_pump(&lab);
	vu_lab_expect(&lab, STOP0);
	vu_lab_fini(&lab);

	vu_lab_init(&lab, "free");
	vu_lab_run(&lab, SHARE START0 START1);
	rf_vu_session_free(lab.session);
	lab.session = NULL;
	vu_lab_pump(&lab);
	vu_lab_expect(&lab, STOP0 " stopping1 stop1@0");
	vu_lab_fini(&lab);
}

static const char *hook_at;
static bool hook_frees;

static void hook(struct vu_lab *lab, const char *event)
{
	if (strcmp(event, hook_at) != 0)
		return;
	lab->hook = NULL;
	if (hook_frees) {
		rf_vu_session_free(lab->session);
		lab->session = NULL;
	} else {
		rf_vu_session_break(lab->session, RF_VU_CLOSED);
	}
}

/* Every operation of the device may end the session or free it. */
static const struct {
	unsigned row;
	const char *at, *before, *request;
} reentries[] = {
	{ 3, "start0@0", SHARE SETUP0 "SET_VRING_ENABLE 0 1\n", "SET_VRING_KICK 0" },
	{ 4, "start0@0", SHARE SETUP0 "SET_VRING_KICK 0\n" SETUP1 "SET_VRING_KICK 1\n",
	  "SET_FEATURES 0x100000000" },
	{ 5, "stopping0", SHARE START0, "GET_VRING_BASE 0" },
	{ 6, "stop0@0", SHARE START0, "GET_VRING_BASE 0" },
	{ 7, "stopping0", SHARE START0 START1, "RESET_DEVICE" },
	{ 8, "stop0@0", SHARE START0 START1, "RESET_DEVICE" },
	{ 9, "reset", SHARE START0, "RESET_DEVICE" },
	{ 12, "stopping0", SHARE START0 START1, "SET_MEM_TABLE" },
	{ 13, "stop0@0", SHARE START0 START1, "SET_MEM_TABLE " OTHER },
	{ 14, "stopping0", SHARE START0 START1, "SET_VRING_NUM 0 3" },
	{ 15, "stop1@0", SHARE START0 START1, "SET_VRING_NUM 0 3" },
	{ 16, "stopping0", SHARE START0, "SET_VRING_ENABLE 0 0" },
	{ 17, "stop0@0", SHARE START0,
	  "SET_MEM_TABLE " MEM " 0x100000,0x20000000000,0x7f1000000000,0x0" },
	{ 18, "stopping1", SHARE START0 START1, "SET_STATUS 1\nSET_STATUS 0" },
};

static void run_reentry(unsigned row, bool frees)
{
	static const char *const beginnings[] = { "start", "reset" };
	char name[32], script[1024], *after;
	struct vu_lab lab;

	snprintf(name, sizeof(name), "re-entry %u %s", reentries[row].row,
		 frees ? "free" : "break");
	vu_lab_init(&lab, name);
	vu_lab_run(&lab, reentries[row].before);
	hook_at = reentries[row].at;
	hook_frees = frees;
	lab.hook = hook;
	snprintf(script, sizeof(script), "%s anyreply\n", reentries[row].request);
	vu_lab_run(&lab, script);
	if (lab.hook)
		fail_msg("%s: not reached: %s", name, lab.journal);
	if (lab.session)
		fail_msg("%s: still there: %s", name, lab.journal);
	/* Nothing begins any more. */
	after = strstr(lab.journal, hook_at) + strlen(hook_at);
	for (size_t i = 0; i < RF_ARRAY_SIZE(beginnings); i++)
		if (strstr(after, beginnings[i]))
			fail_msg("%s: %s", name, lab.journal);
	vu_lab_fini(&lab);
}

static void test_reentry(void **state)
{
	(void)state;
	for (unsigned i = 0; i < RF_ARRAY_SIZE(reentries); i++) {
		run_reentry(i, false);
		run_reentry(i, true);
	}
}

static void test_reentry_kick(void **state)
{
	(void)state;
	for (unsigned frees = 0; frees < 2; frees++) {
		struct vu_lab lab;

		vu_lab_init(&lab, "re-entry kick");
		vu_lab_run(&lab, SHARE START0);
		hook_at = "kick";
		hook_frees = frees;
		lab.hook = hook;
		vu_lab_run(&lab, "kick 0\n");
		assert_null(lab.session);
		vu_lab_fini(&lab);
	}
}

/* A thousand sessions keep nothing. */
static void test_many(void **state)
{
	struct vu_lab lab;

	(void)state;
	vu_lab_init(&lab, "many");
	for (unsigned i = 0; i < 1000; i++) {
		vu_lab_open(&lab);
		lab.peer = rf_fd_close(lab.peer);
		while (lab.session)
			rf_loop_turn(lab.loop, 0);
		lab.journal[0] = '\0';
	}
	vu_lab_fini(&lab);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refusals),    cmocka_unit_test(test_unserved),
		cmocka_unit_test(test_fatal),       cmocka_unit_test(test_matrix),
		cmocka_unit_test(test_matrix_bare), cmocka_unit_test(test_scenarios),
		cmocka_unit_test(test_probe),       cmocka_unit_test(test_break),
		cmocka_unit_test(test_reentry),     cmocka_unit_test(test_reentry_kick),
		cmocka_unit_test(test_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
