/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the parts of a session share: session.c (life, device-wide requests), session_io.c (bytes in
 * and out), session_ring.c (rings) and session_mem.c (guest memory).
 *
 * DOC: Re-entrancy. A device may call rf_vu_session_break() and even rf_vu_session_free() from
 * within its operations. Whoever calls an operation therefore does so between rf_vu_session_enter()
 * and rf_vu_session_leave(), which keep the memory, and looks at session->reason afterwards: it is
 * set as soon as the session is over.
 */
#ifndef RF_VHOST_SESSION_PRIV_H
#define RF_VHOST_SESSION_PRIV_H

#include "vhost/session.h"

/* Time for the rest of a message: a front end that stalls may not hold descriptors for ever. */
#define RF_VU_MESSAGE_NS (5 * RF_NS_PER_SEC)
/* Messages of one turn: a front end that floods us may not starve other devices. */
#define RF_VU_TURN_MESSAGES 16
/* Replies that the front end has not read and its socket does not hold: beyond that it is lost. */
#define RF_VU_OUT_BYTES 4096

/**
 * struct rf_vu_areas - Where a ring lies in the front end's address space
 */
struct rf_vu_areas {
	struct rf_uva desc, driver, device;
};

/**
 * struct rf_vu_mapped - Where it lies in ours
 */
struct rf_vu_mapped {
	void *desc, *driver, *device;
};

/**
 * struct rf_vu_ring - A ring of the session
 * @session:	Whose ring
 * @index:	Its number
 * @queue:	Its queue
 * @num:	SET_VRING_NUM; 0 before
 * @base:	Where it starts; while it runs, where it was started
 * @has_addr:	SET_VRING_ADDR came
 * @areas:	From it
 * @started:	SET_VRING_KICK came, and no GET_VRING_BASE since
 * @enabled:	SET_VRING_ENABLE 1 came, or bit 30 was not negotiated
 * @running:	Both, and the device serves it
 * @broken_told: The driver's fault was counted, logged and signalled since it started
 * @kick_fd, @call_fd, @err_fd: From the front end, non-blocking; -1 without
 * @kick:	Watch of @kick_fd; active while it runs
 */
struct rf_vu_ring {
	struct rf_vu_session *session;
	unsigned index;
	struct rf_devq *queue;
	uint32_t num;
	uint16_t base;
	bool has_addr, started, enabled, running, broken_told;
	struct rf_vu_areas areas;
	int kick_fd, call_fd, err_fd;
	struct rf_watch kick;
};

/**
 * struct rf_vu_session - A session
 * @sock:	Socket; -1 once the session is over
 * @reason:	Why it is over
 * @depth:	Calls between enter and leave
 * @freed:	rf_vu_session_free() was called: no operation may be called any more
 * @features:	SET_FEATURES, bit 30 taken out
 * @protocol_features: SET_PROTOCOL_FEATURES
 * @status:	SET_STATUS
 * @mem:	Guest memory
 * @regions:	What @mem holds, to replace it as a whole
 * @in:		Message that is being received
 * @in_bytes:	How much of it is there, header included
 * @out:	Replies that the socket did not take
 */
struct rf_vu_session {
	struct rf_loop *loop;
	struct rf_vu_device device;
	struct rf_vu_counters *counters;
	int sock;
	struct rf_watch watch;
	struct rf_timer deadline;
	struct rf_work closed;
	enum rf_vu_reason reason;
	unsigned depth;
	bool freed;

	uint64_t features;
	uint64_t protocol_features;
	uint8_t status;

	struct rf_mem *mem;
	struct rf_mem_region regions[RF_MEM_MAX_REGIONS];
	unsigned n_regions;

	struct rf_vu_message in;
	size_t in_bytes;
	uint8_t out[RF_VU_OUT_BYTES];
	size_t out_bytes;

	struct rf_log_limit log_limit;
	struct rf_vu_ring rings[];
};

/* Handlers: they may change the message into its reply. Return: RF_VU_NONE, or why it is refused.
 */
typedef enum rf_vu_reason rf_vu_handler(struct rf_vu_session *s, struct rf_vu_message *msg);

rf_vu_handler rf_vu_set_mem_table, rf_vu_get_max_mem_slots, rf_vu_add_mem_reg, rf_vu_rem_mem_reg;
rf_vu_handler rf_vu_set_vring_num, rf_vu_set_vring_addr, rf_vu_set_vring_base, rf_vu_get_vring_base;
rf_vu_handler rf_vu_set_vring_kick, rf_vu_set_vring_call, rf_vu_set_vring_err;
rf_vu_handler rf_vu_set_vring_enable;

/* session.c */
void rf_vu_session_enter(struct rf_vu_session *s);
void rf_vu_session_leave(struct rf_vu_session *s);
/* A message is complete in s->in: serve it and take its descriptors away. */
void rf_vu_session_dispatch(struct rf_vu_session *s);
void rf_vu_session_log_refusal(struct rf_vu_session *s, const struct rf_vu_hdr *hdr,
			       enum rf_vu_reason reason);

/* session_io.c */
void rf_vu_io_ready(struct rf_watch *watch, uint32_t events);
void rf_vu_io_stalled(struct rf_timer *timer);
/* Answer with the payload in @msg, msg->hdr.size bytes of it. */
void rf_vu_io_reply(struct rf_vu_session *s, const struct rf_vu_message *msg);
void rf_vu_io_close_fds(struct rf_vu_message *msg);

/* session_ring.c */
int rf_vu_ring_init(struct rf_vu_session *s, unsigned index);
void rf_vu_ring_fini(struct rf_vu_ring *ring);
/* Begin or cease to serve a ring, as its state demands. */
enum rf_vu_reason rf_vu_ring_update(struct rf_vu_ring *ring);
void rf_vu_ring_stop(struct rf_vu_ring *ring);
void rf_vu_rings_stop(struct rf_vu_session *s);
void rf_vu_rings_disable(struct rf_vu_session *s);
/* Disable them and forget that they were started; their indices stay. */
void rf_vu_rings_reset(struct rf_vu_session *s);
/* Translate areas. Return: false, and a line in the log, if they are not mapped or not aligned. */
bool rf_vu_ring_map(const struct rf_vu_ring *ring, const struct rf_vu_areas *areas,
		    struct rf_vu_mapped *ret_mapped);

#endif
