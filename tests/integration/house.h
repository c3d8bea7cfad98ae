/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Four VMs that one process serves: 1 and 2 move checksummed bytes both ways all the time, 4 is
 * idle with an open connection, and 3 is the test's to do wrong. To be used with cmocka.
 */
#ifndef HOUSE_H
#define HOUSE_H

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "ringferry/guest.h"
#include "ringferry/host.h"

#define HOUSE_VMS 4u
#define ROGUE     2u
#define IDLE      3u

#define HOUSE_PORT        1234u
#define HOUSE_MAX_CONNS   100u
#define HOUSE_WAIT_MS     20000
#define HOUSE_CHUNK_BYTES 65536u
/* What each direction must move once a wrong is over, before it counts as survived. */
#define HOUSE_GO_ON_BYTES 100000u
/* The guests' windows: more than any socket takes. */
#define HOUSE_WINDOW (4u << 20)

/**
 * struct flow - One direction of a stream
 * @sock, @fd:	The sender's or the receiver's end: the guest's socket, or the host program's
 * @reads:	The receiver may begin
 * @sent, @got:	Bytes so far
 * @hash_in, @hash_out: Of what was sent and received; valid when the threads have ended
 */
struct flow {
	struct rf_guest *guest;
	int sock, fd;
	bool to_guest;
	atomic_bool reads;
	pthread_t sender, receiver;
	atomic_ulong sent, got;
	uint64_t hash_in, hash_out;
};

/**
 * struct vm - A guest and its device
 * @guest:	The guest; NULL for VM 3
 * @sock, @program: Its connection's two ends
 */
struct vm {
	char front[60], uds[60];
	struct rf_guest *guest;
	int sock, program;
	struct flow flows[2];
};

/**
 * struct house - All of them
 * @over:	Set to end the flows
 * @noise:	Bytes to send
 */
extern struct house {
	struct rf_host *host;
	pthread_t thread;
	struct vm vms[HOUSE_VMS];
	atomic_bool over;
	uint8_t noise[2 * HOUSE_CHUNK_BYTES];
} house;

/* Begin to serve all; VMs 1, 2 and 4 get a guest and a connection. */
void house_open(void);
void house_close(void);

/* VM 3 may get them, too. */
void house_open_guest(struct vm *vm);

/* A connection from a host program to the guest; a byte there and back. */
void house_open_conn(struct vm *vm);
void house_close_conn(struct vm *vm);
void house_check_conn(struct vm *vm);

/*
 * Both directions of a connection, until house.over is set; then all that was sent has come. The
 * host program does not read before bytes had to wait in the device.
 */
void house_begin_flows(unsigned number);
void house_end_flows(struct vm *vm);

/* Wait until it has moved HOUSE_GO_ON_BYTES more. */
void house_wait_flow(const struct flow *flow);

/* A device's counters, one of them, and its connections. */
json_t *house_counters(unsigned vm);
uint64_t house_count(unsigned vm, const char *table, const char *name);
unsigned house_connections(unsigned vm);

/*
 * cmocka puts its own handler of SIGBUS in place for each test; the library's is known from the
 * test in which the house was opened. To be called in each test that needs it.
 */
void house_guard_memory(void);

#endif
