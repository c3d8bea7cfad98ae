/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of a served vsock device share: the device, its streams, and who calls whom.
 *
 * DOC: Theory of operation. Everything of a device runs on one loop and needs no lock. Events (a
 * kick, a readable socket, a timer) only change states and queue the device's turn; the turn passes
 * on what host programs had to wait for, then serves the guest's transmit ring (from_guest.c) and
 * its receive ring (to_guest.c), each with a budget, publishes each ring once, and queues itself
 * again if something is left.
 *
 * A stream joins a vsock connection (the protocol) and a line of the plug (the host program).
 * Either may end first: a connection that is dead leaves the table as soon as its RST is sent, and
 * its line stays until the bytes that were admitted are delivered. Ended streams are freed at the
 * end of the turn, so that nobody holds one that has gone.
 */
#ifndef RF_HOST_VSOCK_HOST_H
#define RF_HOST_VSOCK_HOST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/iov.h"
#include "base/log.h"
#include "base/loop.h"
#include "host/limits.h"
#include "host/listener.h"
#include "host/vsock_device.h"
#include "outbuf.h"
#include "vhost/session.h"
#include "vsock/conn.h"
#include "vsock/sched.h"
#include "vsock/table.h"

/* Rings of the device (virtio 1.2 5.10.2), named from here. */
enum {
	RING_TO_GUEST = 0,
	RING_FROM_GUEST = 1,
	RING_EVENT = 2,
	N_RINGS = 3,
};

#define NO_CHAIN UINT16_MAX

/**
 * struct rf_plugged - One plug of a device
 * @device:	The device
 * @ops:	Its operations
 * @plug:	It
 */
struct rf_plugged {
	struct rf_vsock_device *device;
	const struct rf_vsock_plug_ops *ops;
	struct rf_vsock_plug *plug;
};

/**
 * struct rf_vsock_stream - One connection of the guest with a host program
 * @device:	Its device
 * @ops:	The operations of the plug that @line is of
 * @line:	The plug's line, NULL once closed
 * @line_open:	Bytes may flow on it: it was dialled, or the guest has accepted
 * @in_table:	The connection can be found
 * @counted:	Its end was counted
 * @draining:	It is in device->draining, by @drain_link
 * @readable:	The line's recv() may return something
 * @eof:	recv() has returned end of file
 * @hangup:	The host program is gone
 * @discard:	The host program does not receive any more: what comes for it is dropped
 * @finish:	The guest will not send any more: tell the line when @out is empty
 * @finished:	It was told
 * @burst_first, @burst_last: Chains of this turn that carry its payload, NO_CHAIN for none
 * @served:	Bytes of its turn that were read before the guest's buffers ran out
 * @expected:	Bytes that the next recv() of the line has room for, if there are buffers
 * @timer:	Runs while conn.wake_ns is set
 * @out:	Bytes admitted that the line has not taken
 * @conn:	The vsock connection
 * @link:	In device->streams, or in device->ended
 *
 * What every packet has to look at comes first, next to that of @conn.
 */
struct rf_vsock_stream {
	struct rf_vsock_device *device;
	const struct rf_vsock_plug_ops *ops;
	struct rf_vsock_line *line;
	bool line_open, in_table, counted, draining;
	bool readable, eof, hangup, discard;
	bool finish, finished;
	uint16_t burst_first, burst_last;
	uint32_t expected;
	uint32_t served;
	struct rf_timer timer;
	struct rf_outbuf out;
	struct rf_vsock_conn conn;
	TAILQ_ENTRY(rf_vsock_stream) link;
	TAILQ_ENTRY(rf_vsock_stream) drain_link;
};

TAILQ_HEAD(rf_vsock_streams, rf_vsock_stream);

/**
 * struct rf_burst_batch - Sends to several streams
 * @n:		Streams
 * @streams:	They
 * @n_pkts:	Packets that the payload of each came in
 * @ios:	What goes to each
 * @n_iov, @iov: The pieces of them all
 */
struct rf_burst_batch {
	unsigned n;
	struct rf_vsock_stream *streams[RF_VSOCK_IO_MAX];
	unsigned n_pkts[RF_VSOCK_IO_MAX];
	struct rf_vsock_io ios[RF_VSOCK_IO_MAX];
	unsigned n_iov;
	struct iovec iov[RF_IOV_MAX];
};

/**
 * struct rf_vsock_device - A served device
 * @loop, @log, @cid, @name, @last_front, @left, @ctx: from the options
 * @params:	What connections start with
 * @max_conns:	Streams at once
 * @switches:	As set; @active: as read when the rings were started
 * @front:	Where front ends connect
 * @vu:		What a session serves
 * @session:	The front end's session, or NULL
 * @waiting_fd:	The next front end, which waits until this one has left, or -1
 * @silence:	When a front end that has said nothing has to leave for the next
 * @said_before: Messages counted before the session began
 * @linger:	Runs after the last front end, while host programs have not taken all
 * @untaken_bytes: What they had not taken when it was started
 * @orderly:	How that front end ended
 * @plugs, @n_plugs: What streams may be plugged into
 * @running:	Rings that may be served
 * @was_started: Both rings have run since the front end came or the device was reset
 * @stopped_base: Index at which each ring was stopped, -1 if it was not
 * @faulted:	Guest memory vanished in this turn
 * @turn:	The turn
 * @idle:	Looks at rings before the loop sleeps
 * @empty:	Rings on which it has found nothing and that it looks at
 * @check_memory: Looks once whether the guest's memory is really shared
 * @kicks_before: Kicks counted before the rings were started
 * @table, @buckets, @sched: Connections
 * @streams, @n_streams: All streams
 * @draining:	Streams whose host programs may take some of what waits for them
 * @ended:	Streams to be freed at the end of the turn
 * @burst_next, @burst_len: Per chain of the window: next chain of the same stream, payload length
 * @burst:	Streams with chains in this turn
 * @n_burst:	Their number
 * @batch:	Those of them that are to be sent to in one system call, and where the payload is
 */
struct rf_vsock_device {
	struct rf_loop *loop;
	struct rf_log log;
	char *name;
	uint64_t cid;
	bool last_front;
	void (*left)(void *ctx, bool orderly);
	void *ctx;
	struct rf_vsock_params params;
	unsigned max_conns;
	struct rf_host_switches switches, active;

	struct rf_listener front;
	struct rf_vu_device vu;
	struct rf_vu_session *session;
	int waiting_fd;
	struct rf_timer silence;
	uint64_t said_before;
	struct rf_timer linger;
	uint64_t untaken_bytes;
	bool orderly;
	struct rf_plugged plugs[RF_VSOCK_PLUGS_MAX];
	unsigned n_plugs;

	bool running[N_RINGS];
	bool was_started;
	int32_t stopped_base[N_RINGS];
	bool faulted;
	struct rf_work turn;
	struct rf_idle idle;
	bool empty[N_RINGS];
	struct rf_timer check_memory;
	uint64_t kicks_before;
	struct rf_log_limit front_limit, bad_limit, ended_limit;

	struct rf_vsock_table table;
	struct rf_vsock_bucket *buckets;
	struct rf_vsock_sched sched;
	struct rf_vsock_streams streams, draining, ended;
	unsigned n_streams;

	uint16_t burst_next[RF_DEVQ_WINDOW];
	uint32_t burst_len[RF_DEVQ_WINDOW];
	struct rf_vsock_stream *burst[RF_DEVQ_WINDOW];
	unsigned n_burst;
	struct rf_burst_batch batch;

	struct rf_host_counters counters;
	struct rf_vu_counters vu_counters;
};

static inline struct rf_vsock_stream *rf_stream_of(struct rf_vsock_conn *conn)
{
	return RF_CONTAINER_OF(conn, struct rf_vsock_stream, conn);
}

/* vsock_plugs.c */

/* Open the plugs that the options ask for. Return: 0, or -errno; rf_plugs_free() is due. */
int rf_plugs_open(struct rf_vsock_device *device, const struct rf_vsock_device_options *options);
void rf_plugs_free(struct rf_vsock_device *device);

/* Let the plugs tell what has become true. */
void rf_plugs_turn(struct rf_vsock_device *device);
/* Has one of them more to tell? */
bool rf_plugs_wait(const struct rf_vsock_device *device);

/* Dial for a stream on the first plug that has the port. Return: as the operation dial(). */
int rf_plugs_dial(struct rf_vsock_stream *stream);

/* vsock_stream.c */

extern const struct rf_vsock_plug_user rf_stream_plug_user;

/* Open a stream for the guest's REQUEST, or owe an RST. */
void rf_stream_request(struct rf_vsock_device *device, const struct rf_vsock_hdr *hdr);

/* Act on what a packet meant (RF_VSOCK_EV_* bits but DATA); payload before it was passed on. */
void rf_stream_events(struct rf_vsock_stream *stream, unsigned events);

/* May payload go to the line now, or does it have to wait, or to be dropped? */
bool rf_stream_may_send(struct rf_vsock_stream *stream);

/**
 * rf_stream_sent() - The line's send() of admitted payload returned @result
 *
 * rf_stream_may_send() was true; the other parameters are those of rf_stream_deliver().
 */
void rf_stream_sent(struct rf_vsock_stream *stream, const struct iovec *iov, unsigned n,
		    unsigned n_pkts, ssize_t result);

/* From how many sends or reads on one system call is made for all? UINT_MAX: never. */
unsigned rf_device_batch_min(const struct rf_vsock_device *device);

/**
 * rf_stream_deliver() - Pass admitted payload on to the host program
 * @iov:	Payload, in guest memory
 * @n:		Pieces, at most RF_IOV_MAX
 * @n_pkts:	Packets it came in
 */
void rf_stream_deliver(struct rf_vsock_stream *stream, const struct iovec *iov, unsigned n,
		       unsigned n_pkts);

/* recv() returned end of file: tell the guest. */
void rf_stream_eof(struct rf_vsock_stream *stream);

/**
 * rf_stream_settle() - Draw the conclusions after a stream changed
 *
 * Queues owed packets and waiting data, sets the timer, takes a dead connection out of the table,
 * closes its line when that has been served, and hands the stream over to device->ended when both
 * are done.
 */
void rf_stream_settle(struct rf_vsock_stream *stream);

/* All connections end, and no packet is owed any more: the guest restarted or left. */
void rf_streams_reset(struct rf_vsock_device *device);

/* Pass on what host programs had to wait for; what is left to do stays in device->draining. */
void rf_streams_drain_turn(struct rf_vsock_device *device);

/*
 * Offer host programs what waits for them, however little room their sockets have.
 * Return: bytes that still wait.
 */
uint64_t rf_streams_drain(struct rf_vsock_device *device);

/* Free ended streams. */
void rf_streams_reap(struct rf_vsock_device *device);

/* from_guest.c: serve the guest's transmit ring. Return: true if something is left to do. */
bool rf_from_guest_turn(struct rf_vsock_device *device);

/* to_guest.c: serve the guest's receive ring. Return: true if something is left to do. */
bool rf_to_guest_turn(struct rf_vsock_device *device);

/* rings_idle.c */

void rf_rings_idle_init(struct rf_vsock_device *device);

/* Rings are not looked at any more before the next turn, nor is the guest asked to kick. */
void rf_rings_idle_forget(struct rf_vsock_device *device);

/**
 * rf_ring_empty() - The guest has left nothing (more) on a ring that is waited for
 *
 * The ring is looked at for a while, or the guest is asked to kick at once.
 *
 * Return: true if something has come meanwhile.
 */
bool rf_ring_empty(struct rf_vsock_device *device, unsigned ring);

/* vsock_device.c: have the rings served before the loop sleeps. */
void rf_device_wake(struct rf_vsock_device *device);

#endif
