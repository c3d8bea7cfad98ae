/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A connection under test, whose peer is the test. To be used with cmocka.
 */
#ifndef RF_TESTS_CONN_LAB_H
#define RF_TESTS_CONN_LAB_H

#include <stdbool.h>
#include <stdint.h>

#include "vsock/conn.h"
#include "vsock/limits.h"

#define T0     UINT64_C(1000)
#define WINDOW 4096u

#define OP(x)  VIRTIO_VSOCK_OP_##x
#define OWE(x) RF_VSOCK_OWE_##x
#define EV(x)  RF_VSOCK_EV_##x
#define RCV    RF_VSOCK_SHUT_RCV
#define SEND   RF_VSOCK_SHUT_SEND
#define BOTH   RF_VSOCK_SHUT_BOTH

/* What it starts with. */
extern const struct rf_vsock_params conn_params;

extern struct rf_vsock_conn conn;

/* Reasons for which it has ended so far. */
extern bool conn_reached[RF_VSOCK_N_REASONS];

/* Where a row of a table begins. */
enum from {
	UNSENT,   /* connect(), REQUEST owed */
	LOCAL,    /* REQUEST handed out */
	PEER,     /* REQUEST received */
	ACCEPTED, /* accept(), RESPONSE owed */
	OPEN,
	CLOSING,  /* close(), SHUTDOWN handed out */
	DEAD_RST, /* reset(), RST owed */
	N_FROM
};

void conn_begin(enum from from);

/* A packet of its peer, with the credit that is right. */
struct rf_vsock_hdr conn_packet(uint16_t op);

/* Receive one. Return: events. */
unsigned conn_rx(uint16_t op, uint32_t len, uint32_t flags);

/* The next control packet; 0 when none is owed. */
uint16_t conn_next_op(void);
void conn_expect(uint16_t op);

#endif
