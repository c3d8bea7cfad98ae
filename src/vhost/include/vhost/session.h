/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The back-end side of a vhost-user session: one connected front end, its memory and its rings.
 *
 * DOC: Theory of operation. The session reads messages without ever blocking: a message that comes
 * in pieces is put together, with a deadline. It owns the guest memory, the descriptors of the
 * rings and the device queues, and tells the device when a ring may be served and when it must not
 * be any more. Stopping is synchronous: when ops->ring_stopping() returns, the device holds nothing
 * of that ring.
 *
 * A ring is served while it is started (SET_VRING_KICK came, or its VRING_BASE was not asked since)
 * and enabled (SET_VRING_ENABLE, or at once if bit 30 was not negotiated). Every request is legal
 * in any order or refused. A refused request is answered with an error if the front end asked for
 * an answer, and ends the session if not; RF_VU_MEM_* and codec errors always end it.
 *
 * Context: everything for the loop thread.
 */
#ifndef RF_VHOST_SESSION_H
#define RF_VHOST_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/counter.h"
#include "base/log.h"
#include "base/loop.h"
#include "ring/devq.h"
#include "ring/mem.h"
#include "vhost/message.h"
#include "vhost/reason.h"

struct rf_vu_session;

/* Most rings of one device that this implementation serves. */
#define RF_VU_MAX_RINGS 64

/**
 * struct rf_vu_device_ops - What a session asks of the device it serves
 * @get_config:		Copy @len bytes of the configuration space from @offset, which were checked
 *			against @config_bytes. NULL only if @config_bytes is 0.
 * @ring_started:	A ring may be served from now on: look at it at once, kicked or not. @base
 *		is the index it starts at.
 * @ring_stopping:	A ring must not be served any more: give back or forget what is held of it
 *			before returning. Its queue still stands; it is stopped right after.
 * @ring_stopped:	@base is the index at which it was stopped.
 * @ring_kicked:	The driver made buffers available.
 * @reset:		RESET_DEVICE, or SET_STATUS 0 after another status: the device's state is to
 *			be as new. The rings were stopped before.
 * @closed:		The session is over; its rings were stopped before. Called from the loop,
 *			never from within a call of this interface; the device frees the session.
 */
struct rf_vu_device_ops {
	int (*get_config)(void *ctx, uint32_t offset, void *buf, uint32_t len);
	void (*ring_started)(void *ctx, unsigned ring, uint16_t base);
	void (*ring_stopping)(void *ctx, unsigned ring);
	void (*ring_stopped)(void *ctx, unsigned ring, uint16_t base);
	void (*ring_kicked)(void *ctx, unsigned ring);
	void (*reset)(void *ctx);
	void (*closed)(void *ctx, enum rf_vu_reason reason);
};

/**
 * struct rf_vu_device - The device that a session serves
 * @features:		Virtio features offered, without bit 30, which the session adds
 * @protocol_features:	Protocol features offered, as a mask
 * @n_rings:		Rings it has, at most RF_VU_MAX_RINGS; a front end may use fewer
 * @max_num:		Largest ring size accepted
 * @queue_num:		Answer to GET_QUEUE_NUM
 * @config_bytes:	Size of the configuration space
 * @ops:		Operations
 * @ctx:		Passed to them
 * @log:		Log, or NULL
 * @log_limit:		Of its lines, for sessions that follow each other; NULL: each has its own
 */
struct rf_vu_device {
	uint64_t features;
	uint64_t protocol_features;
	unsigned n_rings;
	uint32_t max_num;
	uint64_t queue_num;
	uint32_t config_bytes;
	const struct rf_vu_device_ops *ops;
	void *ctx;
	const struct rf_log *log;
	struct rf_log_limit *log_limit;
};

#define RF_VU_COUNTERS(X)                                                   \
	X(vu_messages, "messages received")                                 \
	X(vu_refused, "requests refused")                                   \
	X(vu_kicks, "kicks received")                                       \
	X(vu_calls, "notifications sent to the driver")                     \
	X(vu_rings_broken, "rings given up because of what the driver did") \
	X(vu_sessions_broken, "sessions ended because of what the front end did")

struct rf_vu_counters {
	RF_VU_COUNTERS(RF_COUNTER_MEMBER)
};

extern const struct rf_counter_def rf_vu_counter_defs[];
extern const size_t rf_vu_n_counters;

/**
 * rf_vu_session_new() - Serve a connected front end
 * @loop:	Loop that runs it
 * @fd:		Connected unix stream socket; taken over, also on failure
 * @device:	Device; copied
 * @counters:	Where to count; outlives the session (counters are the device's)
 * @ret_session: The session
 *
 * Return: 0, or -errno.
 */
int rf_vu_session_new(struct rf_loop *loop, int fd, const struct rf_vu_device *device,
		      struct rf_vu_counters *counters, struct rf_vu_session **ret_session);

/**
 * rf_vu_session_free() - End a session and free everything of it
 *
 * Rings that run are stopped (ring_stopping and ring_stopped are called, closed is not). NULL may
 * be given. It may be called from within an operation; none is called afterwards.
 */
void rf_vu_session_free(struct rf_vu_session *session);

/**
 * rf_vu_session_break() - End a session because of what its peer did
 *
 * Rings are stopped now; ops->closed() is called from the loop soon. It may be called from within
 * an operation.
 */
void rf_vu_session_break(struct rf_vu_session *session, enum rf_vu_reason reason);

/* The queue of a ring; exists as long as the session, whether the ring is started or not. */
struct rf_devq *rf_vu_session_queue(struct rf_vu_session *session, unsigned ring);

/* Notify the driver (call eventfd, if there is one): after rf_devq_publish() said so. */
void rf_vu_session_signal(struct rf_vu_session *session, unsigned ring);

/**
 * rf_vu_session_ring_broken() - The ring's queue is broken (rf_devq_broken())
 *
 * Counted, logged at a limited rate, and told to the front end (err eventfd). The ring stays broken
 * until the front end stops and starts it again.
 */
void rf_vu_session_ring_broken(struct rf_vu_session *session, unsigned ring);

/* The guest memory. */
struct rf_mem *rf_vu_session_mem(struct rf_vu_session *session);

#endif
