/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ends of streams: sockets of a guest, or descriptors of the host.
 *
 * What goes wrong ends the process that holds them, with its reason told to the measuring one.
 */
#ifndef RF_BENCH_END_H
#define RF_BENCH_END_H

#include "team.h"

struct rf_guest;

/**
 * struct rf_bench_end - One end
 * @guest:	The guest whose socket it is; NULL for a descriptor of the host
 * @fd:		Socket, or descriptor
 */
struct rf_bench_end {
	struct rf_guest *guest;
	int fd;
};

/* Send all of it. */
void rf_bench_end_send(struct rf_bench_team *team, const struct rf_bench_end *end, const void *buf,
		       size_t len);

/* Receive what is there. Return: bytes, 0 at the end of file. */
size_t rf_bench_end_recv(struct rf_bench_team *team, const struct rf_bench_end *end, void *buf,
			 size_t len);

/* Receive so many bytes. Return: bytes; fewer only at the end of file. */
size_t rf_bench_end_recv_all(struct rf_bench_team *team, const struct rf_bench_end *end, void *buf,
			     size_t len);

/* No more will be sent. */
void rf_bench_end_shutdown(const struct rf_bench_end *end);

/**
 * rf_bench_ends_open() - In the guest's or the host program's process: make all connections
 * @guest:	The guest; NULL in the host program
 * @connects:	This side connects; the other one accepts
 * @ends:	Where they go, in the same order on both sides
 * @n:		Their number
 */
void rf_bench_ends_open(struct rf_bench_team *team, struct rf_guest *guest, bool connects,
			struct rf_bench_end *ends, unsigned n);

/* In the guest's process: answer who asks for its counters, from a thread of its own. */
void rf_bench_guest_answer(struct rf_bench_team *team, struct rf_guest *guest);

#endif
