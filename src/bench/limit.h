/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the machine can do without us: each function is one run of one of the things that a stream
 * is made of. `bench limits` repeats them and prints medians.
 */
#ifndef RF_BENCH_LIMIT_H
#define RF_BENCH_LIMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that a guest half's slot has for a packet's payload, and what stands before it. */
#define RF_BENCH_LIMIT_SLOT_BYTES 65536u
#define RF_BENCH_LIMIT_SLOT_AHEAD 64u

/**
 * rf_bench_limit_memcpy() - Copy memory
 * @size:	Bytes per copy
 * @area:	Bytes of the source and of the destination, through which the copies pass in turn;
 *		at least @size
 * @seconds:	How long, about
 * @ret_gbps:	GB/s
 *
 * Return: 0, -ENOMEM.
 */
int rf_bench_limit_memcpy(size_t size, size_t area, double seconds, double *ret_gbps);

/**
 * struct rf_bench_limit_pipeline - The copies of a stream from guest to host, without ring, packets
 * and rules
 * @size:	Bytes per message; larger ones than a slot are sent in pieces
 * @slots:	Slots of shared memory, as the ring has
 * @window:	Bytes under way
 * @two_threads: One copies in, the other copies out; otherwise one thread does both
 * @cores:	Of the sender and the receiver, as counted in struct rf_bench_place
 * @check:	Compare what arrives with what was sent, as the receivers of streams do
 * @seconds:	How long, about
 */
struct rf_bench_limit_pipeline {
	size_t size;
	unsigned slots;
	size_t window;
	bool two_threads;
	bool check;
	int cores[2];
	double seconds;
};

/**
 * rf_bench_limit_pipeline() - One run of it: copy into a slot, hand over by an index, copy out
 * @how:	Parameters
 * @ret_gbps:	GB/s at the receiver
 *
 * Both threads wait by looking.
 *
 * Return: 0, -errno; -EBADMSG if what was checked is not what was sent.
 */
int rf_bench_limit_pipeline(const struct rf_bench_limit_pipeline *how, double *ret_gbps);

enum rf_bench_limit_signal {
	RF_BENCH_LIMIT_EVENTFD, /* two threads, an eventfd each way */
	RF_BENCH_LIMIT_SOCKET,  /* two processes, messages over an AF_UNIX stream socket */
};

/**
 * rf_bench_limit_pingpong() - Send something there and back, sleeping in between
 * @signal:	What goes there
 * @size:	Bytes per message; an eventfd has none
 * @cores:	Of the two ends, as counted in struct rf_bench_place
 * @ret_ns:	Time of each round trip
 * @n:		Their number; as many as a tenth of them run before, uncounted
 *
 * Return: 0, -errno.
 */
int rf_bench_limit_pingpong(enum rf_bench_limit_signal signal, size_t size, const int cores[2],
			    uint32_t *ret_ns, size_t n);

#endif
