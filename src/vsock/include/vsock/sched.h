/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who sends next: owed RSTs and control packets first, then connections with data in turn, each
 * with an equal budget of bytes.
 *
 * Context: exclusive access.
 */
#ifndef RF_VSOCK_SCHED_H
#define RF_VSOCK_SCHED_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "vsock/conn.h"
#include "vsock/limits.h"

TAILQ_HEAD(rf_vsock_queue, rf_vsock_conn);

/**
 * struct rf_vsock_sched - Queues of one device
 * @control:	Connections that owe control packets, first come first served
 * @data:	Connections that may have data to send, in turn
 * @resets:	RSTs owed to packets that have no connection; a ring of RF_VSOCK_RESETS
 * @first_reset, @n_resets: its oldest entry and their number
 * @reset_went_last: A connection's control packet is next, if there is one
 */
struct rf_vsock_sched {
	struct rf_vsock_queue control;
	struct rf_vsock_queue data;
	struct rf_vsock_hdr resets[RF_VSOCK_RESETS];
	uint32_t first_reset;
	uint32_t n_resets;
	bool reset_went_last;
};

void rf_vsock_sched_init(struct rf_vsock_sched *sched);

/*
 * Queue a connection behind the others if it owes control packets (rf_vsock_conn_owes()); one that
 * is queued keeps its place. Call it after whatever may have made the connection owe one.
 */
void rf_vsock_sched_control(struct rf_vsock_sched *sched, struct rf_vsock_conn *conn);

/* Queue a connection behind the others that have data; one that is queued keeps its place. */
void rf_vsock_sched_data(struct rf_vsock_sched *sched, struct rf_vsock_conn *conn);

/* Queue a connection whose turn is not over before the others that have data. */
void rf_vsock_sched_data_first(struct rf_vsock_sched *sched, struct rf_vsock_conn *conn);

/* Take a connection off both queues. */
void rf_vsock_sched_remove(struct rf_vsock_sched *sched, struct rf_vsock_conn *conn);

/**
 * rf_vsock_sched_reset() - Owe an RST for a packet that has no connection
 * @hdr:	The packet; an RST is not answered
 *
 * Return: false if RF_VSOCK_RESETS are owed already: the packet must not be taken.
 */
bool rf_vsock_sched_reset(struct rf_vsock_sched *sched, const struct rf_vsock_hdr *hdr);

/**
 * rf_vsock_sched_forget_resets() - A connection begins: forget RSTs for stray packets of its name
 *
 * They answer an earlier use of the ports, but would come behind this connection's first packet.
 */
void rf_vsock_sched_forget_resets(struct rf_vsock_sched *sched, const struct rf_vsock_key *key);

/* Is there room for another owed RST? */
bool rf_vsock_sched_reset_room(const struct rf_vsock_sched *sched);

/**
 * rf_vsock_sched_next_control() - The next control packet to send
 * @ret_hdr:	Its header, final: send it
 * @ret_conn:	The connection it belongs to (ask rf_vsock_conn_done() afterwards), NULL for an owed
 *		RST
 *
 * Return: false if there is none.
 */
bool rf_vsock_sched_next_control(struct rf_vsock_sched *sched, struct rf_vsock_hdr *ret_hdr,
				 struct rf_vsock_conn **ret_conn);

/* Does rf_vsock_sched_next_control() have something to hand out? */
bool rf_vsock_sched_has_control(struct rf_vsock_sched *sched);

/* Take the connection whose turn it is off the data queue; NULL if there is none. */
struct rf_vsock_conn *rf_vsock_sched_next_data(struct rf_vsock_sched *sched);

bool rf_vsock_sched_has_data(const struct rf_vsock_sched *sched);

#endif
