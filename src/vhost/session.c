/* SPDX-License-Identifier: BSD-3-Clause */
#include "vhost/session.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "session_priv.h"

#define SERVED_PROTOCOL_FEATURES                                                 \
	(UINT64_C(1) << RF_VU_PF_MQ | UINT64_C(1) << RF_VU_PF_REPLY_ACK |        \
	 UINT64_C(1) << RF_VU_PF_CONFIG | UINT64_C(1) << RF_VU_PF_RESET_DEVICE | \
	 UINT64_C(1) << RF_VU_PF_CONFIGURE_MEM_SLOTS | UINT64_C(1) << RF_VU_PF_STATUS)

const struct rf_counter_def rf_vu_counter_defs[] = {
#define X(name, help) RF_COUNTER_ROW(struct rf_vu_counters, name, help)
	RF_VU_COUNTERS(X)
#undef X
};
const size_t rf_vu_n_counters = RF_ARRAY_SIZE(rf_vu_counter_defs);

static enum rf_vu_reason reply_u64(struct rf_vu_message *msg, uint64_t value)
{
	msg->payload.u64 = value;
	msg->hdr.size = sizeof(msg->payload.u64);
	return RF_VU_NONE;
}

static enum rf_vu_reason get_features(struct rf_vu_session *s, struct rf_vu_message *msg)
{
	return reply_u64(msg, s->device.features | RF_VU_F_PROTOCOL_FEATURES);
}

static enum rf_vu_reason set_features(struct rf_vu_session *s, struct rf_vu_message *msg)
{
	uint64_t features = msg->payload.u64;
	enum rf_vu_reason reason = RF_VU_NONE;

	if (features & ~(s->device.features | RF_VU_F_PROTOCOL_FEATURES))
		return RF_VU_FEATURES;
	s->features = features & ~RF_VU_F_PROTOCOL_FEATURES;
	/* With bit 30, rings are left alone: it may be sent again while they run. */
	if (features & RF_VU_F_PROTOCOL_FEATURES)
		return RF_VU_NONE;
	for (unsigned i = 0; i < s->device.n_rings && !reason && !s->reason; i++) {
		s->rings[i].enabled = true;
		reason = rf_vu_ring_update(&s->rings[i]);
	}
	return reason;
}

static enum rf_vu_reason set_owner(struct rf_vu_session *s, struct rf_vu_message *msg)
{
	(void)s;
	(void)msg;
	return RF_VU_NONE;
}

/* Of the two things that it ever meant, the one that loses nothing. */
static enum rf_vu_reason reset_owner(struct rf_vu_session *s, struct rf_vu_message *msg)
{
	(void)msg;
	rf_vu_rings_disable(s);
	return RF_VU_NONE;
}

static enum rf_vu_reason get_protocol_features(struct rf_vu_session *s, struct rf_vu_message *msg)
{
	return reply_u64(msg, s->device.protocol_features);
}

static enum rf_vu_reason set_protocol_features(struct rf_vu_session *s, struct rf_vu_message *msg)
{
	if (msg->payload.u64 & ~s->device.protocol_features)
		return RF_VU_FEATURES;
	s->protocol_features = msg->payload.u64;
	return RF_VU_NONE;
}

static enum rf_vu_reason get_queue_num(struct rf_vu_session *s, struct rf_vu_message *msg)
{
	return reply_u64(msg, s->device.queue_num);
}

/* An error is a reply without payload; the session goes on. */
static enum rf_vu_reason get_config(struct rf_vu_session *s, struct rf_vu_message *msg)
{
	struct rf_vu_config *config = &msg->payload.config;
	uint32_t room = msg->hdr.size - (uint32_t)offsetof(struct rf_vu_config, data);

	if (config->size != room || config->offset > s->device.config_bytes ||
	    config->size > s->device.config_bytes - config->offset ||
	    (config->size && s->device.ops->get_config(s->device.ctx, config->offset, config->data,
						       config->size) < 0)) {
		msg->hdr.size = 0;
		return RF_VU_CONFIG;
	}
	return RF_VU_NONE;
}

/* No device here has a field that its driver may write. */
static enum rf_vu_reason set_config(struct rf_vu_session *s, struct rf_vu_message *msg)
{
	(void)s;
	(void)msg;
	return RF_VU_CONFIG;
}

static void reset_device(struct rf_vu_session *s)
{
	rf_vu_rings_reset(s);
	s->status = 0;
	if (!s->reason)
		s->device.ops->reset(s->device.ctx);
}

static enum rf_vu_reason reset_device_requested(struct rf_vu_session *s, struct rf_vu_message *msg)
{
	(void)msg;
	reset_device(s);
	return RF_VU_NONE;
}

static enum rf_vu_reason set_status(struct rf_vu_session *s, struct rf_vu_message *msg)
{
	uint8_t status = (uint8_t)msg->payload.u64;

	if (!status && s->status)
		reset_device(s);
	s->status = status;
	return RF_VU_NONE;
}

static enum rf_vu_reason get_status(struct rf_vu_session *s, struct rf_vu_message *msg)
{
	return reply_u64(msg, s->status);
}

static rf_vu_handler *const handlers[] = {
	[RF_VU_GET_FEATURES] = get_features,
	[RF_VU_SET_FEATURES] = set_features,
	[RF_VU_SET_OWNER] = set_owner,
	[RF_VU_RESET_OWNER] = reset_owner,
	[RF_VU_SET_MEM_TABLE] = rf_vu_set_mem_table,
	[RF_VU_SET_VRING_NUM] = rf_vu_set_vring_num,
	[RF_VU_SET_VRING_ADDR] = rf_vu_set_vring_addr,
	[RF_VU_SET_VRING_BASE] = rf_vu_set_vring_base,
	[RF_VU_GET_VRING_BASE] = rf_vu_get_vring_base,
	[RF_VU_SET_VRING_KICK] = rf_vu_set_vring_kick,
	[RF_VU_SET_VRING_CALL] = rf_vu_set_vring_call,
	[RF_VU_SET_VRING_ERR] = rf_vu_set_vring_err,
	[RF_VU_GET_PROTOCOL_FEATURES] = get_protocol_features,
	[RF_VU_SET_PROTOCOL_FEATURES] = set_protocol_features,
	[RF_VU_GET_QUEUE_NUM] = get_queue_num,
	[RF_VU_SET_VRING_ENABLE] = rf_vu_set_vring_enable,
	[RF_VU_GET_CONFIG] = get_config,
	[RF_VU_SET_CONFIG] = set_config,
	[RF_VU_RESET_DEVICE] = reset_device_requested,
	[RF_VU_GET_MAX_MEM_SLOTS] = rf_vu_get_max_mem_slots,
	[RF_VU_ADD_MEM_REG] = rf_vu_add_mem_reg,
	[RF_VU_REM_MEM_REG] = rf_vu_rem_mem_reg,
	[RF_VU_SET_STATUS] = set_status,
	[RF_VU_GET_STATUS] = get_status,
};

static enum rf_vu_reason handle(struct rf_vu_session *s, struct rf_vu_message *msg, bool *ret_fatal)
{
	enum rf_vu_reason reason = rf_vu_check_request(msg, s->protocol_features);

	*ret_fatal = reason == RF_VU_SIZE || reason == RF_VU_FDS;
	if (reason)
		return reason;
	if (msg->hdr.request >= RF_ARRAY_SIZE(handlers) || !handlers[msg->hdr.request])
		return RF_VU_UNKNOWN;
	reason = handlers[msg->hdr.request](s, msg);
	*ret_fatal = reason == RF_VU_MEM_REGION || reason == RF_VU_MEM_MAP;
	return reason;
}

/* Is the answer to a request part of its protocol, so that it needs no need_reply? */
static bool always_replies(uint32_t request)
{
	const struct rf_vu_request_def *def = rf_vu_request_def(request);

	return def && def->reply == RF_VU_REPLY_ALWAYS;
}

void rf_vu_session_log_refusal(struct rf_vu_session *s, const struct rf_vu_hdr *hdr,
			       enum rf_vu_reason reason)
{
	rf_log_limited(s->device.log, s->device.log_limit, RF_LOG_WARNING,
		       "the front end's %s (request %u, %u bytes) is refused: %s",
		       rf_vu_request_name(hdr->request), hdr->request, hdr->size,
		       rf_vu_reason_text(reason));
}

void rf_vu_session_dispatch(struct rf_vu_session *s)
{
	struct rf_vu_message *msg = &s->in;
	uint64_t protocol_features = s->protocol_features;
	bool natural = always_replies(msg->hdr.request), fatal, ack;
	enum rf_vu_reason reason;

	rf_count(&s->counters->vu_messages, 1);
	reason = handle(s, msg, &fatal);
	rf_vu_io_close_fds(msg);
	if (s->reason)
		return;
	/* Also for the very message that negotiates it. */
	protocol_features |= s->protocol_features;
	ack = !natural && msg->hdr.flags & RF_VU_FLAG_NEED_REPLY &&
	      protocol_features & UINT64_C(1) << RF_VU_PF_REPLY_ACK;
	if (reason) {
		rf_count(&s->counters->vu_refused, 1);
		rf_vu_session_log_refusal(s, &msg->hdr, reason);
	}
	if (ack)
		reply_u64(msg, reason ? 1 : 0);
	if (ack || (natural && (!reason || reason == RF_VU_CONFIG)))
		rf_vu_io_reply(s, msg);
	else if (reason)
		fatal = true;
	if (fatal && reason)
		rf_vu_session_break(s, reason);
}

void rf_vu_session_enter(struct rf_vu_session *s)
{
	s->depth++;
}

static void destroy(struct rf_vu_session *s)
{
	for (unsigned i = 0; i < s->device.n_rings; i++)
		rf_vu_ring_fini(&s->rings[i]);
	rf_mem_free(s->mem);
	free(s);
}

void rf_vu_session_leave(struct rf_vu_session *s)
{
	assert(s->depth);
	if (!--s->depth && s->freed)
		destroy(s);
}

/* Over: rings stopped, nothing received any more. */
static void end(struct rf_vu_session *s, enum rf_vu_reason reason)
{
	s->reason = reason;
	rf_vu_rings_stop(s);
	rf_watch_remove(&s->watch);
	rf_timer_stop(&s->deadline);
	rf_vu_io_close_fds(&s->in);
	s->sock = rf_fd_close(s->sock);
}

void rf_vu_session_break(struct rf_vu_session *s, enum rf_vu_reason reason)
{
	assert(reason != RF_VU_NONE);
	if (s->reason)
		return;
	rf_vu_session_enter(s);
	if (reason != RF_VU_HANGUP && reason != RF_VU_CLOSED)
		rf_count(&s->counters->vu_sessions_broken, 1);
	end(s, reason);
	if (!s->freed)
		rf_work_queue(s->loop, &s->closed);
	rf_vu_session_leave(s);
}

static void run_closed(struct rf_work *work)
{
	struct rf_vu_session *s = RF_CONTAINER_OF(work, struct rf_vu_session, closed);

	rf_vu_session_enter(s);
	s->device.ops->closed(s->device.ctx, s->reason);
	rf_vu_session_leave(s);
}

void rf_vu_session_free(struct rf_vu_session *s)
{
	if (!s)
		return;
	rf_vu_session_enter(s);
	/* Again if it was broken: this call may come from within, half-way through its rings. */
	end(s, s->reason ? s->reason : RF_VU_CLOSED);
	s->freed = true;
	rf_work_cancel(&s->closed);
	rf_vu_session_leave(s);
}

static int init(struct rf_vu_session *s)
{
	int r = rf_fd_set_nonblock(s->sock);

	if (r < 0)
		return r;
	r = rf_mem_new(&s->mem);
	for (unsigned i = 0; i < s->device.n_rings && r >= 0; i++)
		r = rf_vu_ring_init(s, i);
	if (r < 0)
		return r;
	return rf_watch_add(s->loop, &s->watch, s->sock, EPOLLIN);
}

int rf_vu_session_new(struct rf_loop *loop, int fd, const struct rf_vu_device *device,
		      struct rf_vu_counters *counters, struct rf_vu_session **ret_session)
{
	struct rf_vu_session *s;
	int r;

	assert(device->n_rings && device->n_rings <= RF_VU_MAX_RINGS);
	assert(!(device->protocol_features & ~SERVED_PROTOCOL_FEATURES));
	s = calloc(1, sizeof(*s) + device->n_rings * sizeof(s->rings[0]));
	if (!s) {
		rf_fd_close(fd);
		return -ENOMEM;
	}
	s->loop = loop;
	s->device = *device;
	if (!s->device.log_limit)
		s->device.log_limit = &s->log_limit;
	s->counters = counters;
	s->sock = fd;
	s->watch.ready = rf_vu_io_ready;
	s->deadline.expired = rf_vu_io_stalled;
	s->closed.run = run_closed;
	r = init(s);
	if (r < 0) {
		rf_fd_close(fd);
		destroy(s);
		return r;
	}
	*ret_session = s;
	return 0;
}

struct rf_devq *rf_vu_session_queue(struct rf_vu_session *s, unsigned ring)
{
	assert(ring < s->device.n_rings);
	return s->rings[ring].queue;
}

struct rf_mem *rf_vu_session_mem(struct rf_vu_session *s)
{
	return s->mem;
}
