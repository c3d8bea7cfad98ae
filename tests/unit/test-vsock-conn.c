/* SPDX-License-Identifier: BSD-3-Clause */
#include "conn_lab.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"

#define LIVES(state)  RF_VSOCK_##state, RF_VSOCK_NONE
#define DIES(reason)  RF_VSOCK_DEAD, RF_VSOCK_##reason
#define IGNORED(owed) 0, owed

/* Every state and every operation; RW carries one byte, SHUTDOWN both bits. 0 and 8 are no
 * operations. */
static const struct matrix_row {
	enum from from;
	uint16_t op;
	enum rf_vsock_state state;
	enum rf_vsock_reason reason;
	unsigned events;
	uint32_t owed;
} matrix_rows[] = {
	/* 0: nothing can be an answer yet (hyperkit PR 33: a late SHUTDOWN killed the next one) */
	{ UNSENT, 0, LIVES(LOCAL_INIT), IGNORED(OWE(REQUEST)) },
	/* 1 */ { UNSENT, OP(REQUEST), LIVES(LOCAL_INIT), IGNORED(OWE(REQUEST)) },
	/* 2 */ { UNSENT, OP(RESPONSE), LIVES(LOCAL_INIT), IGNORED(OWE(REQUEST)) },
	/* 3 */ { UNSENT, OP(RST), LIVES(LOCAL_INIT), IGNORED(OWE(REQUEST)) },
	/* 4 */ { UNSENT, OP(SHUTDOWN), LIVES(LOCAL_INIT), IGNORED(OWE(REQUEST)) },
	/* 5 */ { UNSENT, OP(RW), LIVES(LOCAL_INIT), IGNORED(OWE(REQUEST)) },
	/* 6 */ { UNSENT, OP(CREDIT_UPDATE), LIVES(LOCAL_INIT), IGNORED(OWE(REQUEST)) },
	/* 7 */ { UNSENT, OP(CREDIT_REQUEST), LIVES(LOCAL_INIT), IGNORED(OWE(REQUEST)) },
	/* 8 */ { UNSENT, 8, LIVES(LOCAL_INIT), IGNORED(OWE(REQUEST)) },

	/* 9 */ { LOCAL, 0, DIES(BAD_STATE), EV(DEAD), OWE(RST) },
	/* 10 */ { LOCAL, OP(REQUEST), DIES(BAD_STATE), EV(DEAD), OWE(RST) },
	/* 11: its credit counts (hermit PR 2254) */
	{ LOCAL, OP(RESPONSE), LIVES(ESTABLISHED), EV(CONNECTED) | EV(CREDIT), 0 },
	/* 12: at once, as libkrun#684 asks */ { LOCAL, OP(RST), DIES(REFUSED), EV(DEAD), 0 },
	/* 13 */ { LOCAL, OP(SHUTDOWN), DIES(BAD_STATE), EV(DEAD), OWE(RST) },
	/* 14 */ { LOCAL, OP(RW), DIES(BAD_STATE), EV(DEAD), OWE(RST) },
	/* 15 */ { LOCAL, OP(CREDIT_UPDATE), DIES(BAD_STATE), EV(DEAD), OWE(RST) },
	/* 16: as Linux, which libkrun PR 267 found out */
	{ LOCAL, OP(CREDIT_REQUEST), DIES(BAD_STATE), EV(DEAD), OWE(RST) },
	/* 17 */ { LOCAL, 8, DIES(BAD_STATE), EV(DEAD), OWE(RST) },

	/* 18 */ { PEER, 0, DIES(BAD_OP), EV(DEAD), OWE(RST) },
	/* 19 */ { PEER, OP(REQUEST), DIES(BAD_STATE), EV(DEAD), OWE(RST) },
	/* 20 */ { PEER, OP(RESPONSE), DIES(BAD_STATE), EV(DEAD), OWE(RST) },
	/* 21 */ { PEER, OP(RST), DIES(PEER_RESET), EV(DEAD), 0 },
	/* 22: the peer gave up */
	{ PEER, OP(SHUTDOWN), DIES(CLOSED), EV(DEAD) | EV(SHUT_SEND) | EV(SHUT_RCV), OWE(RST) },
	/* 23 */ { PEER, OP(RW), DIES(DATA_EARLY), EV(DEAD), OWE(RST) },
	/* 24 */ { PEER, OP(CREDIT_UPDATE), LIVES(PEER_INIT), IGNORED(0) },
	/* 25 */ { PEER, OP(CREDIT_REQUEST), LIVES(PEER_INIT), IGNORED(0) },
	/* 26 */ { PEER, 8, DIES(BAD_OP), EV(DEAD), OWE(RST) },

	/* 27 */ { ACCEPTED, 0, DIES(BAD_OP), EV(DEAD), OWE(RST) },
	/* 28 */ { ACCEPTED, OP(REQUEST), DIES(BAD_STATE), EV(DEAD), OWE(RST) },
	/* 29 */ { ACCEPTED, OP(RESPONSE), DIES(BAD_STATE), EV(DEAD), OWE(RST) },
	/* 30 */ { ACCEPTED, OP(RST), DIES(PEER_RESET), EV(DEAD), 0 },
	/* 31 */
	{ ACCEPTED, OP(SHUTDOWN), DIES(CLOSED), EV(DEAD) | EV(SHUT_SEND) | EV(SHUT_RCV), OWE(RST) },
	/* 32: before the RESPONSE, whatever we have decided */
	{ ACCEPTED, OP(RW), DIES(DATA_EARLY), EV(DEAD), OWE(RST) },
	/* 33 */ { ACCEPTED, OP(CREDIT_UPDATE), LIVES(ESTABLISHED), IGNORED(OWE(RESPONSE)) },
	/* 34 */
	{ ACCEPTED, OP(CREDIT_REQUEST), LIVES(ESTABLISHED),
	  IGNORED(OWE(RESPONSE) | OWE(CREDIT_UPDATE)) },
	/* 35 */ { ACCEPTED, 8, DIES(BAD_OP), EV(DEAD), OWE(RST) },

	/* 36 */ { OPEN, 0, DIES(BAD_OP), EV(DEAD), OWE(RST) },
	/* 37 */ { OPEN, OP(REQUEST), DIES(BAD_STATE), EV(DEAD), OWE(RST) },
	/* 38 */ { OPEN, OP(RESPONSE), DIES(BAD_STATE), EV(DEAD), OWE(RST) },
	/* 39 */ { OPEN, OP(RST), DIES(PEER_RESET), EV(DEAD), 0 },
	/* 40: dead at once, so that the ports can be used again */
	{ OPEN, OP(SHUTDOWN), DIES(CLOSED), EV(DEAD) | EV(SHUT_SEND) | EV(SHUT_RCV), OWE(RST) },
	/* 41 */ { OPEN, OP(RW), LIVES(ESTABLISHED), EV(DATA), 0 },
	/* 42 */ { OPEN, OP(CREDIT_UPDATE), LIVES(ESTABLISHED), IGNORED(0) },
	/* 43 */ { OPEN, OP(CREDIT_REQUEST), LIVES(ESTABLISHED), IGNORED(OWE(CREDIT_UPDATE)) },
	/* 44 */ { OPEN, 8, DIES(BAD_OP), EV(DEAD), OWE(RST) },

	/* 45 */ { CLOSING, 0, LIVES(CLOSING), IGNORED(0) },
	/* 46 */ { CLOSING, OP(REQUEST), LIVES(CLOSING), IGNORED(0) },
	/* 47 */ { CLOSING, OP(RESPONSE), LIVES(CLOSING), IGNORED(0) },
	/* 48 */ { CLOSING, OP(RST), DIES(CLOSED), EV(DEAD), 0 },
	/* 49 */ { CLOSING, OP(SHUTDOWN), DIES(CLOSED), EV(DEAD), OWE(RST) },
	/* 50 */ { CLOSING, OP(RW), LIVES(CLOSING), IGNORED(0) },
	/* 51 */ { CLOSING, OP(CREDIT_UPDATE), LIVES(CLOSING), IGNORED(0) },
	/* 52 */ { CLOSING, OP(CREDIT_REQUEST), LIVES(CLOSING), IGNORED(0) },
	/* 53 */ { CLOSING, 8, LIVES(CLOSING), IGNORED(0) },

	/* 54 */ { DEAD_RST, 0, DIES(LOCAL_RESET), IGNORED(OWE(RST)) },
	/* 55 */ { DEAD_RST, OP(REQUEST), DIES(LOCAL_RESET), IGNORED(OWE(RST)) },
	/* 56 */ { DEAD_RST, OP(RESPONSE), DIES(LOCAL_RESET), IGNORED(OWE(RST)) },
	/* 57: the peer has forgotten it: RST would hit the next connection with these ports */
	{ DEAD_RST, OP(RST), DIES(LOCAL_RESET), EV(FORGOTTEN), 0 },
	/* 58 */ { DEAD_RST, OP(SHUTDOWN), DIES(LOCAL_RESET), IGNORED(OWE(RST)) },
	/* 59 */ { DEAD_RST, OP(RW), DIES(LOCAL_RESET), IGNORED(OWE(RST)) },
	/* 60 */ { DEAD_RST, OP(CREDIT_UPDATE), DIES(LOCAL_RESET), IGNORED(OWE(RST)) },
	/* 61 */ { DEAD_RST, OP(CREDIT_REQUEST), DIES(LOCAL_RESET), IGNORED(OWE(RST)) },
	/* 62 */ { DEAD_RST, 8, DIES(LOCAL_RESET), IGNORED(OWE(RST)) },
};

static void test_matrix(void **state RF_UNUSED)
{
	bool seen[N_FROM][9] = { 0 };

	for (size_t i = 0; i < RF_ARRAY_SIZE(matrix_rows); i++) {
		const struct matrix_row *row = &matrix_rows[i];

		print_message("# row %zu\n", i);
		seen[row->from][row->op] = true;
		conn_begin(row->from);
		assert_int_equal(conn_rx(row->op, row->op == OP(RW), BOTH), row->events);
		assert_int_equal(conn.state, row->state);
		assert_int_equal(conn.reason, row->reason);
		assert_int_equal(conn.owed, row->owed);
		assert_int_equal(rf_vsock_conn_done(&conn),
				 row->state == RF_VSOCK_DEAD && !row->owed);
		/* Only what still waits for the peer or for us has a deadline. */
		assert_int_equal(conn.wake_ns != 0, conn.state == RF_VSOCK_LOCAL_INIT ||
							    conn.state == RF_VSOCK_PEER_INIT ||
							    conn.state == RF_VSOCK_CLOSING);
		/* Whatever is owed goes out, then nothing. */
		for (int n = 0; n < 2; n++)
			conn_next_op();
		assert_false(rf_vsock_conn_owes(&conn));
		assert_int_equal(rf_vsock_conn_done(&conn), row->state == RF_VSOCK_DEAD);
	}
	for (unsigned from = 0; from < N_FROM; from++) {
		for (unsigned op = 0; op < 9; op++)
			assert_true(seen[from][op]);
	}
}

/* A packet of another socket type: refused while the connection is open, and an RST never answered.
 */
static const struct type_row {
	enum from from;
	uint16_t op;
	bool refused;
} type_rows[] = {
	/* 0 */ { UNSENT, OP(RESPONSE), false },   /* 1 */ { LOCAL, OP(RESPONSE), true },
	/* 2 */ { LOCAL, OP(RST), false },         /* 3 */ { PEER, OP(RW), true },
	/* 4 */ { PEER, OP(RST), false },          /* 5 */ { OPEN, OP(RW), true },
	/* 6 */ { OPEN, OP(CREDIT_UPDATE), true }, /* 7 */ { OPEN, OP(RST), false },
	/* 8 */ { CLOSING, OP(RW), false },        /* 9 */ { CLOSING, OP(RST), false },
	/* 10 */ { DEAD_RST, OP(RW), false },      /* 11 */ { DEAD_RST, OP(RST), false },
};

static void test_type(void **state RF_UNUSED)
{
	for (size_t i = 0; i < RF_ARRAY_SIZE(type_rows); i++) {
		const struct type_row *row = &type_rows[i];
		struct rf_vsock_hdr hdr = conn_packet(row->op);
		struct rf_vsock_conn before;

		print_message("# row %zu\n", i);
		conn_begin(row->from);
		before = conn;
		hdr.type = VIRTIO_VSOCK_TYPE_SEQPACKET;
		hdr.len = 1;
		if (!row->refused) {
			assert_int_equal(rf_vsock_conn_rx(&conn, &hdr), 0);
			assert_memory_equal(&conn, &before, sizeof(conn));
			continue;
		}
		assert_int_equal(rf_vsock_conn_rx(&conn, &hdr), EV(DEAD));
		assert_int_equal(conn.reason, RF_VSOCK_BAD_TYPE);
		conn_reached[conn.reason] = true;
		/* The RST is one for the connection that the peer knows. */
		assert_true(rf_vsock_conn_next(&conn, &hdr));
		assert_int_equal(hdr.op, OP(RST));
		assert_int_equal(hdr.type, VIRTIO_VSOCK_TYPE_STREAM);
	}
}

/*
 * Several packets and calls one after the other. A step is a received packet, a call, or what is to
 * be handed out next.
 */
enum step {
	STEP_END,
	STEP_RX,
	STEP_CONSUMED,
	STEP_RW_OUT,
	STEP_SHUT,
	STEP_CLOSE,
	STEP_ACCEPT,
	STEP_NEXT,
	STEP_DATA,
	STEP_IS,
};

#define RX(op, len, flags, events)              \
	{                                       \
		STEP_RX, op, len, flags, events \
	}
#define CONSUMED(len)              \
	{                          \
		STEP_CONSUMED, len \
	}
#define RW_OUT(len)              \
	{                        \
		STEP_RW_OUT, len \
	}
#define SHUT(flags)              \
	{                        \
		STEP_SHUT, flags \
	}
#define CLOSE()            \
	{                  \
		STEP_CLOSE \
	}
#define ACCEPT()            \
	{                   \
		STEP_ACCEPT \
	}
#define NEXT(op)              \
	{                     \
		STEP_NEXT, op \
	} /* 0: nothing */
#define NEXT_SHUTDOWN(flags)                   \
	{                                      \
		STEP_NEXT, OP(SHUTDOWN), flags \
	}
#define DATA(len)              \
	{                      \
		STEP_DATA, len \
	} /* as much may be sent */
#define IS(state, reason)                                    \
	{                                                    \
		STEP_IS, RF_VSOCK_##state, RF_VSOCK_##reason \
	}

static const struct script {
	const char *what;
	enum from from;
	struct {
		enum step step;
		uint32_t a, b, c;
		unsigned events;
	} steps[12];
} scripts[] = {
	/* 0 */ { "vhost-device#874: guest shuts down sending, we may still answer",
		  OPEN,
		  { RX(OP(RW), 100, 0, EV(DATA)), RX(OP(SHUTDOWN), 0, SEND, EV(SHUT_SEND)),
		    DATA(WINDOW), RW_OUT(100), IS(ESTABLISHED, NONE), CLOSE(), NEXT_SHUTDOWN(BOTH),
		    RX(OP(RST), 0, 0, EV(DEAD)), IS(DEAD, CLOSED) } },
	/* 1 */
	{ "cloud-hypervisor#8300: we shut down sending, the guest may still answer",
	  OPEN,
	  { RW_OUT(100), SHUT(SEND), DATA(0), NEXT_SHUTDOWN(SEND), NEXT(0),
	    RX(OP(RW), 100, 0, EV(DATA)),
	    RX(OP(SHUTDOWN), 0, BOTH, EV(SHUT_SEND) | EV(SHUT_RCV) | EV(DEAD)), NEXT(OP(RST)),
	    NEXT(0), IS(DEAD, CLOSED) } },
	/* 2 */
	{ "hyperkit PR 28: after the peer's SHUTDOWN credit is still told",
	  OPEN,
	  { RX(OP(RW), WINDOW, 0, EV(DATA)), RX(OP(SHUTDOWN), 0, RCV, EV(SHUT_RCV)), DATA(0),
	    CONSUMED(WINDOW), NEXT(OP(CREDIT_UPDATE)), NEXT(0) } },
	/* 3 */
	{ "hyperkit PR 28: and after ours",
	  OPEN,
	  { SHUT(SEND), NEXT_SHUTDOWN(SEND), RX(OP(RW), WINDOW, 0, EV(DATA)), CONSUMED(WINDOW),
	    NEXT(OP(CREDIT_UPDATE)) } },
	/* 4 */
	{ "no credit update after close: it would draw an RST that cuts off unread data",
	  OPEN,
	  { RX(OP(RW), WINDOW, 0, EV(DATA)), CONSUMED(WINDOW / 2), CLOSE(), NEXT_SHUTDOWN(BOTH),
	    NEXT(0), CONSUMED(WINDOW / 2), RX(OP(CREDIT_REQUEST), 0, 0, 0), NEXT(0) } },
	/* 5 */
	{ "nor after death",
	  OPEN,
	  { RX(OP(RW), WINDOW, 0, EV(DATA)),
	    RX(OP(SHUTDOWN), 0, BOTH, EV(SHUT_SEND) | EV(SHUT_RCV) | EV(DEAD)), CONSUMED(WINDOW),
	    NEXT(OP(RST)), NEXT(0) } },
	/* 6 */
	{ "SHUTDOWN bits are permanent, each is an event once",
	  OPEN,
	  { RX(OP(SHUTDOWN), 0, 0, 0), RX(OP(SHUTDOWN), 0, SEND | 0xfffffffc, EV(SHUT_SEND)),
	    RX(OP(SHUTDOWN), 0, SEND, 0), RX(OP(SHUTDOWN), 0, 0, 0), IS(ESTABLISHED, NONE),
	    RX(OP(SHUTDOWN), 0, RCV, EV(SHUT_RCV) | EV(DEAD)), NEXT(OP(RST)), IS(DEAD, CLOSED) } },
	/* 7 */
	{ "data after the peer said there would be none",
	  OPEN,
	  { RX(OP(SHUTDOWN), 0, SEND, EV(SHUT_SEND)), RX(OP(RW), 0, 0, 0),
	    RX(OP(RW), 1, 0, EV(DEAD)), IS(DEAD, DATA_LATE), NEXT(OP(RST)) } },
	/* 8 */
	{ "libkrun#772: no more than the window is admitted, however long the reader pauses",
	  OPEN,
	  { RX(OP(RW), WINDOW, 0, EV(DATA)), CONSUMED(10), RX(OP(RW), 10, 0, EV(DATA)),
	    RX(OP(RW), 1, 0, EV(DEAD)), IS(DEAD, CREDIT_OVERRUN), NEXT(OP(RST)),
	    CONSUMED(WINDOW) } },
	/* 9 */
	{ "CVE-2026-53132: packets without payload are nothing",
	  OPEN,
	  { RX(OP(RW), 0, 1, 0), RX(OP(RW), WINDOW, 0, EV(DATA)), RX(OP(RW), 0, 1, 0),
	    IS(ESTABLISHED, NONE), NEXT(0) } },
	/* 10 */
	{ "we do not receive any more: still admitted and counted",
	  OPEN,
	  { SHUT(RCV), NEXT_SHUTDOWN(RCV), RX(OP(RW), WINDOW, 0, EV(DATA)), CONSUMED(WINDOW),
	    NEXT(OP(CREDIT_UPDATE)), RW_OUT(1) } },
	/* 11 */
	{ "both ways told one by one: the peer's RST is the orderly end",
	  OPEN,
	  { SHUT(RCV), NEXT_SHUTDOWN(RCV), SHUT(SEND), IS(ESTABLISHED, NONE), NEXT_SHUTDOWN(BOTH),
	    IS(ESTABLISHED, NONE), RX(OP(RST), 0, 0, EV(DEAD)), IS(DEAD, CLOSED) } },
	/* 12 */
	{ "an RST before the peer was told is none",
	  OPEN,
	  { SHUT(BOTH), RX(OP(RST), 0, 0, EV(DEAD)), NEXT(0), IS(DEAD, PEER_RESET) } },
	/* 13 */
	{ "close after both ways were told tells nothing again",
	  OPEN,
	  { SHUT(BOTH), NEXT_SHUTDOWN(BOTH), SHUT(SEND), NEXT(0), CLOSE(), NEXT(0),
	    IS(CLOSING, NONE), CLOSE(), IS(CLOSING, NONE) } },
	/* 14 */
	{ "close after one way was told",
	  OPEN,
	  { SHUT(SEND), NEXT_SHUTDOWN(SEND), CLOSE(), NEXT_SHUTDOWN(BOTH), NEXT(0) } },
	/* 15 */
	{ "both ends close at once",
	  OPEN,
	  { CLOSE(), RX(OP(SHUTDOWN), 0, BOTH, EV(DEAD)), NEXT(OP(RST)), NEXT(0),
	    IS(DEAD, CLOSED) } },
	/* 16 */
	{ "closing, and the peer closes one way after the other",
	  OPEN,
	  { RX(OP(SHUTDOWN), 0, SEND, EV(SHUT_SEND)), CLOSE(), NEXT_SHUTDOWN(BOTH),
	    RX(OP(SHUTDOWN), 0, SEND, 0), IS(CLOSING, NONE), RX(OP(SHUTDOWN), 0, RCV, EV(DEAD)),
	    NEXT(OP(RST)) } },
	/* 17 */
	{ "closing: what still arrives is dropped and not counted",
	  CLOSING,
	  { RX(OP(RW), WINDOW, 0, 0), RX(OP(RW), WINDOW, 0, 0), IS(CLOSING, NONE) } },
	/* 18 */
	{ "libkrun PR 267: nothing goes before RESPONSE",
	  PEER,
	  { RX(OP(CREDIT_REQUEST), 0, 0, 0), SHUT(SEND), NEXT(0), ACCEPT(), DATA(0),
	    NEXT(OP(RESPONSE)), NEXT_SHUTDOWN(SEND), NEXT(0) } },
	/* 19 */
	{ "and data may go right after it",
	  PEER,
	  { DATA(0), ACCEPT(), DATA(0), NEXT(OP(RESPONSE)), DATA(WINDOW), RW_OUT(WINDOW),
	    DATA(0) } },
	/* 20 */
	{ "closed before RESPONSE went out: it goes first all the same",
	  ACCEPTED,
	  { CLOSE(), NEXT(OP(RESPONSE)), NEXT_SHUTDOWN(BOTH), NEXT(0) } },
	/* 21 */
	{ "nothing goes before REQUEST, and only RESPONSE lets the rest go",
	  UNSENT,
	  { SHUT(SEND), NEXT(OP(REQUEST)), NEXT(0), DATA(0),
	    RX(OP(RESPONSE), 0, 0, EV(CONNECTED) | EV(CREDIT)), NEXT_SHUTDOWN(SEND), DATA(0),
	    NEXT(0) } },
	/* 22 */
	{ "closed before REQUEST went out: the peer hears nothing",
	  UNSENT,
	  { CLOSE(), NEXT(0), IS(DEAD, LOCAL_RESET) } },
	/* 23 */
	{ "closed after REQUEST: RST behind it",
	  LOCAL,
	  { SHUT(SEND), CLOSE(), IS(DEAD, LOCAL_RESET), NEXT(OP(RST)), NEXT(0) } },
	/* 24 */
	{ "refused by closing", PEER, { CLOSE(), IS(DEAD, LOCAL_RESET), NEXT(OP(RST)), NEXT(0) } },
	/* 25 */
	{ "shut down before it was accepted",
	  PEER,
	  { RX(OP(SHUTDOWN), 0, SEND, EV(SHUT_SEND)), RX(OP(SHUTDOWN), 0, SEND, 0), ACCEPT(),
	    NEXT(OP(RESPONSE)), RX(OP(RW), 1, 0, EV(DEAD)), IS(DEAD, DATA_LATE) } },
	/* 26 */
	{ "nothing is owed once the connection is dead",
	  DEAD_RST,
	  { SHUT(BOTH), CLOSE(), NEXT(OP(RST)), SHUT(BOTH), CLOSE(), NEXT(0) } },
	/* 27 */
	{ "MigTD#453: who drains tells so, a few times per window",
	  OPEN,
	  { RX(OP(RW), WINDOW, 0, EV(DATA)), CONSUMED(WINDOW / 4 - 1), NEXT(0), CONSUMED(1),
	    CONSUMED(WINDOW / 4), NEXT(OP(CREDIT_UPDATE)), NEXT(0), CONSUMED(WINDOW / 4 - 1),
	    NEXT(0) } },
	/* 28 */
	{ "data takes an owed credit update with it",
	  OPEN,
	  { RX(OP(RW), WINDOW, 0, EV(DATA)), CONSUMED(WINDOW), RW_OUT(1), NEXT(0) } },
	/* 29 */
	{ "an asked-for credit update is sent though nothing is new",
	  OPEN,
	  { RX(OP(CREDIT_REQUEST), 0, 0, 0), NEXT(OP(CREDIT_UPDATE)), NEXT(0) } },
	/* 30 */
	{ "credit before SHUTDOWN, RST instead of both",
	  OPEN,
	  { SHUT(SEND), RX(OP(CREDIT_REQUEST), 0, 0, 0), NEXT(OP(CREDIT_UPDATE)),
	    RX(OP(CREDIT_REQUEST), 0, 0, 0), RX(9, 0, 0, EV(DEAD)), NEXT(OP(RST)), NEXT(0),
	    IS(DEAD, BAD_OP) } },
	/* 31 */
	{ "no credit update behind SHUTDOWN of both: its RST may meet the ports' next connection",
	  OPEN,
	  { RX(OP(RW), WINDOW, 0, EV(DATA)), SHUT(BOTH), NEXT_SHUTDOWN(BOTH), CONSUMED(WINDOW),
	    NEXT(0), RX(OP(CREDIT_REQUEST), 0, 0, 0), NEXT(0), RX(OP(RST), 0, 0, EV(DEAD)), NEXT(0),
	    IS(DEAD, CLOSED) } },
};

static void rw_out(uint32_t len)
{
	struct rf_vsock_hdr hdr;

	rf_vsock_conn_rw(&conn, len, &hdr);
	assert_int_equal(hdr.op, OP(RW));
	assert_int_equal(hdr.len, len);
	assert_int_equal(hdr.fwd_cnt, conn.credit.fwd_cnt);
	assert_int_equal(hdr.buf_alloc, WINDOW);
}

static void hand_out(uint32_t op, uint32_t flags)
{
	struct rf_vsock_hdr hdr = { 0 };

	assert_int_equal(rf_vsock_conn_owes(&conn), op != 0);
	assert_int_equal(rf_vsock_conn_next(&conn, &hdr), op != 0);
	assert_int_equal(hdr.op, op);
	if (op == OP(SHUTDOWN))
		assert_int_equal(hdr.flags, flags);
	if (op)
		assert_int_equal(hdr.fwd_cnt, conn.credit.fwd_cnt);
}

static void run_step(enum step step, uint32_t a, uint32_t b, uint32_t c, unsigned events)
{
	switch (step) {
	case STEP_RX:
		assert_int_equal(conn_rx((uint16_t)a, b, c), events);
		break;
	case STEP_CONSUMED:
		rf_vsock_conn_consumed(&conn, a);
		break;
	case STEP_RW_OUT:
		rw_out(a);
		break;
	case STEP_SHUT:
		rf_vsock_conn_shutdown(&conn, a);
		break;
	case STEP_CLOSE:
		rf_vsock_conn_close(&conn, &conn_params, T0);
		break;
	case STEP_ACCEPT:
		rf_vsock_conn_accept(&conn);
		break;
	case STEP_NEXT:
		hand_out(a, b);
		break;
	case STEP_DATA:
		assert_int_equal(rf_vsock_conn_data(&conn), a);
		break;
	case STEP_IS:
		assert_int_equal(conn.state, a);
		assert_int_equal(conn.reason, b);
		conn_reached[b] = true;
		break;
	case STEP_END:
		break;
	}
}

static void test_scripts(void **state RF_UNUSED)
{
	for (size_t i = 0; i < RF_ARRAY_SIZE(scripts); i++) {
		print_message("# row %zu: %s\n", i, scripts[i].what);
		conn_begin(scripts[i].from);
		for (size_t k = 0; k < RF_ARRAY_SIZE(scripts[i].steps); k++) {
			print_message("#   step %zu\n", k);
			run_step(scripts[i].steps[k].step, scripts[i].steps[k].a,
				 scripts[i].steps[k].b, scripts[i].steps[k].c,
				 scripts[i].steps[k].events);
		}
	}
}

/* Credit comes with every packet (tgoskits#1724), and bounds what may be sent. */
static void test_credit_of_every_packet(void **state RF_UNUSED)
{
	static const uint16_t ops[] = { OP(RW), OP(SHUTDOWN), OP(CREDIT_UPDATE),
					OP(CREDIT_REQUEST) };

	for (size_t i = 0; i < RF_ARRAY_SIZE(ops); i++) {
		struct rf_vsock_hdr hdr = conn_packet(ops[i]);

		print_message("# row %zu\n", i);
		conn_begin(OPEN);
		rw_out(WINDOW);
		assert_int_equal(rf_vsock_conn_data(&conn), 0);
		hdr.fwd_cnt = 100;
		assert_int_equal(rf_vsock_conn_rx(&conn, &hdr), EV(CREDIT));
		assert_int_equal(rf_vsock_conn_data(&conn), 100);
		/* CVE-2026-23086: 4 GiB are offered, our own limit holds. */
		hdr.buf_alloc = UINT32_MAX;
		assert_int_equal(rf_vsock_conn_rx(&conn, &hdr), EV(CREDIT));
		assert_int_equal(rf_vsock_conn_data(&conn), 2 * WINDOW - (WINDOW - 100));
		/* CVE-2026-23069: less than what is in flight. */
		hdr.buf_alloc = 1;
		assert_int_equal(rf_vsock_conn_rx(&conn, &hdr), 0);
		assert_int_equal(rf_vsock_conn_data(&conn), 0);
	}
}

/*
 * A peer that shrinks its buffer may keep less in flight than before, and wait for an update that
 * we have been saving up.
 */
static void test_peer_shrinks(void **state RF_UNUSED)
{
	struct rf_vsock_hdr hdr = conn_packet(OP(CREDIT_UPDATE));

	conn_begin(OPEN);
	conn_rx(OP(RW), 100, 0);
	rf_vsock_conn_consumed(&conn, 100);
	conn_expect(0);
	hdr.buf_alloc = 100;
	rf_vsock_conn_rx(&conn, &hdr);
	conn_expect(OP(CREDIT_UPDATE));
	conn_expect(0);
}

static void test_eager(void **state RF_UNUSED)
{
	struct rf_vsock_params eager = conn_params;
	struct rf_vsock_hdr hdr = conn_packet(OP(REQUEST));

	eager.tell = RF_VSOCK_TELL_EAGER;
	rf_vsock_conn_request(&conn, &hdr, &eager, T0);
	rf_vsock_conn_accept(&conn);
	conn_expect(OP(RESPONSE));
	conn_rx(OP(RW), 2, 0);
	for (int i = 0; i < 2; i++) {
		rf_vsock_conn_consumed(&conn, 1);
		conn_expect(OP(CREDIT_UPDATE));
		conn_expect(0);
	}
}

static void test_headers(void **state RF_UNUSED)
{
	struct rf_vsock_hdr hdr;

	conn_begin(UNSENT);
	assert_true(rf_vsock_conn_next(&conn, &hdr));
	assert_true(hdr.src_cid == 2 && hdr.dst_cid == 3);
	assert_int_equal(hdr.src_port, 1024);
	assert_int_equal(hdr.dst_port, 80);
	assert_int_equal(hdr.op, OP(REQUEST));
	assert_int_equal(hdr.type, VIRTIO_VSOCK_TYPE_STREAM);
	assert_int_equal(hdr.len, 0);
	assert_int_equal(hdr.flags, 0);
	assert_int_equal(hdr.buf_alloc, WINDOW);
	assert_int_equal(hdr.fwd_cnt, 0);

	conn_begin(OPEN);
	assert_true(conn.key.local_cid == 2 && conn.key.peer_cid == 3);
	assert_int_equal(conn.key.local_port, 1024);
	assert_int_equal(conn.key.peer_port, 80);
	conn_rx(OP(RW), 100, 0);
	rf_vsock_conn_consumed(&conn, 60);
	rf_vsock_conn_rw(&conn, 7, &hdr);
	assert_true(hdr.src_cid == 2 && hdr.dst_cid == 3);
	assert_int_equal(hdr.src_port, 1024);
	assert_int_equal(hdr.dst_port, 80);
	assert_int_equal(hdr.len, 7);
	assert_int_equal(hdr.fwd_cnt, 60);
}

/* When each state is given up, and what the peer is told. */
static const struct expire_row {
	enum from from;
	uint64_t wake_ns;
	enum rf_vsock_reason reason;
	uint32_t owed;
} expire_rows[] = {
	/* 0 */ { UNSENT, T0 + 100, RF_VSOCK_HANDSHAKE_TIMEOUT, 0 },
	/* 1 */ { LOCAL, T0 + 100, RF_VSOCK_HANDSHAKE_TIMEOUT, OWE(RST) },
	/* 2 */ { PEER, T0 + 100, RF_VSOCK_HANDSHAKE_TIMEOUT, OWE(RST) },
	/* 3: no timeout tears down what is established (CVE-2025-40248) */
	{ ACCEPTED, 0, RF_VSOCK_NONE, OWE(RESPONSE) },
	/* 4 */ { OPEN, 0, RF_VSOCK_NONE, 0 },
	/* 5 */ { CLOSING, T0 + 200, RF_VSOCK_SHUTDOWN_TIMEOUT, OWE(RST) },
	/* 6 */ { DEAD_RST, 0, RF_VSOCK_LOCAL_RESET, OWE(RST) },
};

static void test_expire(void **state RF_UNUSED)
{
	for (size_t i = 0; i < RF_ARRAY_SIZE(expire_rows); i++) {
		const struct expire_row *row = &expire_rows[i];
		enum rf_vsock_state state_before;

		print_message("# row %zu\n", i);
		conn_begin(row->from);
		state_before = conn.state;
		assert_true(conn.wake_ns == row->wake_ns);
		if (!row->wake_ns) {
			assert_false(rf_vsock_conn_wake(&conn, UINT64_MAX));
			assert_int_equal(conn.state, state_before);
		} else {
			assert_false(rf_vsock_conn_wake(&conn, row->wake_ns - 1));
			assert_int_equal(conn.state, state_before);
			assert_true(rf_vsock_conn_wake(&conn, row->wake_ns));
			assert_int_equal(conn.state, RF_VSOCK_DEAD);
			assert_true(conn.wake_ns == 0);
		}
		assert_int_equal(conn.reason, row->reason);
		assert_int_equal(conn.owed, row->owed);
		conn_reached[conn.reason] = true;
	}
	/* RESPONSE ends the wait for it. */
	conn_begin(LOCAL);
	conn_rx(OP(RESPONSE), 0, 0);
	assert_false(rf_vsock_conn_wake(&conn, UINT64_MAX));
}

static void test_reset(void **state RF_UNUSED)
{
	for (unsigned from = 0; from < DEAD_RST; from++) {
		print_message("# row %u\n", from);
		conn_begin((enum from)from);
		rf_vsock_conn_reset(&conn, RF_VSOCK_LOCAL_RESET);
		assert_int_equal(conn.reason, RF_VSOCK_LOCAL_RESET);
		conn_reached[conn.reason] = true;
		/* Once more changes nothing. */
		rf_vsock_conn_reset(&conn, RF_VSOCK_CLOSED);
		assert_int_equal(conn.reason, RF_VSOCK_LOCAL_RESET);
		conn_expect(from == UNSENT ? 0 : OP(RST));
		assert_true(rf_vsock_conn_done(&conn));
		rf_vsock_conn_reset(&conn, RF_VSOCK_CLOSED);
		assert_true(rf_vsock_conn_done(&conn));
	}
}

static void test_abandon(void **state RF_UNUSED)
{
	for (unsigned from = 0; from < N_FROM; from++) {
		print_message("# row %u\n", from);
		conn_begin((enum from)from);
		rf_vsock_conn_abandon(&conn, RF_VSOCK_TRANSPORT_RESET);
		/* Why it had ended before stays. */
		assert_int_equal(conn.reason, from == DEAD_RST ? RF_VSOCK_LOCAL_RESET
							       : RF_VSOCK_TRANSPORT_RESET);
		conn_reached[conn.reason] = true;
		assert_true(rf_vsock_conn_done(&conn));
		conn_expect(0);
	}
}

static void test_params_default(void **state RF_UNUSED)
{
	struct rf_vsock_params defaults;

	rf_vsock_params_default(&defaults);
	assert_int_equal(defaults.window, 1048576);
	assert_int_equal(defaults.tx_limit, RF_VSOCK_TX_LIMIT_DEFAULT);
	assert_int_equal(defaults.tell, RF_VSOCK_TELL_BATCHED);
	assert_true(defaults.bound_packets);
	assert_true(defaults.handshake_ns == UINT64_C(2000000000));
	assert_true(defaults.shutdown_ns == UINT64_C(8000000000));
}

/* Runs last. */
static void test_every_reason_reached(void **state RF_UNUSED)
{
	for (int i = 0; i < RF_VSOCK_N_REASONS; i++) {
		print_message("# %s\n", rf_vsock_reason_text((enum rf_vsock_reason)i));
		assert_true(conn_reached[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_matrix),
		cmocka_unit_test(test_type),
		cmocka_unit_test(test_scripts),
		cmocka_unit_test(test_credit_of_every_packet),
		cmocka_unit_test(test_peer_shrinks),
		cmocka_unit_test(test_eager),
		cmocka_unit_test(test_headers),
		cmocka_unit_test(test_expire),
		cmocka_unit_test(test_reset),
		cmocka_unit_test(test_abandon),
		cmocka_unit_test(test_params_default),
		cmocka_unit_test(test_every_reason_reached),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
