/* SPDX-License-Identifier: BSD-3-Clause */
#include "vhost/front.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"

/* A reply carries nothing else: no need_reply, no other version. */
#define REPLY_FLAGS (RF_VU_PROTOCOL_VERSION | RF_VU_FLAG_REPLY)

struct rf_vu_front {
	int fd;
	uint64_t timeout_ns;
	const struct rf_log *log;
	enum rf_vu_reason reason;
	uint64_t offered;
	uint64_t protocol_features;
};

int rf_vu_front_new(int fd, uint64_t timeout_ns, const struct rf_log *log,
		    struct rf_vu_front **ret_front)
{
	struct rf_vu_front *f = calloc(1, sizeof(*f));
	int r = f ? rf_fd_set_nonblock(fd) : -ENOMEM;

	if (r < 0) {
		rf_fd_close(fd);
		free(f);
		return r;
	}
	f->fd = fd;
	f->timeout_ns = timeout_ns;
	f->log = log;
	*ret_front = f;
	return 0;
}

void rf_vu_front_free(struct rf_vu_front *f)
{
	if (!f)
		return;
	rf_fd_close(f->fd);
	free(f);
}

int rf_vu_front_fd(const struct rf_vu_front *f)
{
	return f->fd;
}

static int end(struct rf_vu_front *f, enum rf_vu_reason reason, uint32_t request)
{
	f->reason = reason;
	/* One try of several, perhaps: what it means is the caller's to say. */
	rf_log(f->log, RF_LOG_INFO, "vhost-user session ended at %s: %s",
	       rf_vu_request_name(request), rf_vu_reason_text(reason));
	return reason == RF_VU_STALLED ? -ETIMEDOUT : -EPROTO;
}

static enum rf_vu_reason reason_of_errno(int err)
{
	return err == -ECONNRESET || err == -EPIPE ? RF_VU_HANGUP : RF_VU_IO;
}

/* Wait for the socket until the deadline. */
static enum rf_vu_reason wait_for(struct rf_vu_front *f, short events, uint64_t deadline_ns)
{
	struct pollfd pfd = { .fd = f->fd, .events = events };

	for (;;) {
		uint64_t now = rf_clock_now();
		struct timespec left;
		int r;

		if (now >= deadline_ns)
			return RF_VU_STALLED;
		left.tv_sec = (time_t)((deadline_ns - now) / RF_NS_PER_SEC);
		left.tv_nsec = (long)((deadline_ns - now) % RF_NS_PER_SEC);
		r = ppoll(&pfd, 1, &left, NULL);
		if (r > 0)
			return RF_VU_NONE;
		if (r < 0 && errno != EINTR)
			return RF_VU_IO;
	}
}

static enum rf_vu_reason send_message(struct rf_vu_front *f, const struct rf_vu_message *msg,
				      uint64_t deadline_ns)
{
	uint8_t buf[RF_VU_HDR_BYTES + RF_VU_MAX_PAYLOAD];
	size_t len = RF_VU_HDR_BYTES + msg->hdr.size, sent = 0;
	enum rf_vu_reason reason = RF_VU_NONE;

	memcpy(buf, &msg->hdr, RF_VU_HDR_BYTES);
	memcpy(buf + RF_VU_HDR_BYTES, msg->payload.bytes, msg->hdr.size);
	while (sent < len && !reason) {
		ssize_t n =
			rf_fd_send(f->fd, buf + sent, len - sent, msg->fds, sent ? 0 : msg->n_fds);

		if (n == -EAGAIN)
			reason = wait_for(f, POLLOUT, deadline_ns);
		else if (n < 0)
			reason = reason_of_errno((int)n);
		else
			sent += (size_t)n;
	}
	return reason;
}

static enum rf_vu_reason receive(struct rf_vu_front *f, void *buf, size_t len, uint64_t deadline_ns)
{
	uint8_t *to = buf;
	size_t got = 0;

	while (got < len) {
		unsigned n_fds;
		/* No reply that we ask for carries a descriptor: one that does is -EMSGSIZE. */
		ssize_t n = rf_fd_recv(f->fd, to + got, len - got, NULL, 0, &n_fds);

		if (n == -EAGAIN) {
			enum rf_vu_reason reason = wait_for(f, POLLIN, deadline_ns);

			if (reason)
				return reason;
		} else if (n == -EMSGSIZE) {
			return RF_VU_FDS;
		} else if (n < 0) {
			return reason_of_errno((int)n);
		} else if (n == 0) {
			return RF_VU_HANGUP;
		} else {
			got += (size_t)n;
		}
	}
	return RF_VU_NONE;
}

/*
 * The reply to @msg goes into its payload: exactly @size bytes of it, or none at all if
 * @may_refuse, which is how GET_CONFIG fails.
 */
static enum rf_vu_reason receive_reply(struct rf_vu_front *f, struct rf_vu_message *msg,
				       uint32_t size, bool may_refuse, uint64_t deadline_ns)
{
	enum rf_vu_reason reason;
	struct rf_vu_hdr hdr;

	reason = receive(f, &hdr, sizeof(hdr), deadline_ns);
	if (reason)
		return reason;
	if (hdr.request != msg->hdr.request || hdr.flags != REPLY_FLAGS)
		return RF_VU_REPLY;
	if (!hdr.size && may_refuse)
		return RF_VU_REFUSED;
	if (hdr.size != size)
		return RF_VU_REPLY;
	return receive(f, msg->payload.bytes, size, deadline_ns);
}

/* Send a request and receive its reply of @size bytes into it. */
static int call(struct rf_vu_front *f, struct rf_vu_message *msg, uint32_t size)
{
	uint64_t deadline_ns = rf_clock_now() + f->timeout_ns;
	enum rf_vu_reason reason;

	if (f->reason)
		return -EPROTO;
	msg->hdr.flags |= RF_VU_PROTOCOL_VERSION;
	reason = send_message(f, msg, deadline_ns);
	if (!reason)
		reason = receive_reply(f, msg, size, msg->hdr.request == RF_VU_GET_CONFIG,
				       deadline_ns);
	return reason ? end(f, reason, msg->hdr.request) : 0;
}

static int get_u64(struct rf_vu_front *f, uint32_t request, uint64_t *ret_value)
{
	struct rf_vu_message msg = { .hdr = { .request = request } };
	int r = call(f, &msg, sizeof(msg.payload.u64));

	if (r < 0)
		return r;
	*ret_value = msg.payload.u64;
	return 0;
}

/* Send a request that has no reply of its own, and learn if it was accepted, if one can. */
static int tell(struct rf_vu_front *f, struct rf_vu_message *msg)
{
	enum rf_vu_reason reason;
	int r;

	if (f->protocol_features & UINT64_C(1) << RF_VU_PF_REPLY_ACK) {
		msg->hdr.flags = RF_VU_FLAG_NEED_REPLY;
		r = call(f, msg, sizeof(msg->payload.u64));
		if (r == 0 && msg->payload.u64)
			r = end(f, RF_VU_REFUSED, msg->hdr.request);
		return r;
	}
	if (f->reason)
		return -EPROTO;
	msg->hdr.flags = RF_VU_PROTOCOL_VERSION;
	reason = send_message(f, msg, rf_clock_now() + f->timeout_ns);
	return reason ? end(f, reason, msg->hdr.request) : 0;
}

/* Without REPLY_ACK: any reply shows that everything before was served. */
static int fence(struct rf_vu_front *f)
{
	uint64_t unused;

	if (f->protocol_features & UINT64_C(1) << RF_VU_PF_REPLY_ACK)
		return 0;
	return get_u64(f, RF_VU_GET_FEATURES, &unused);
}

static int tell_u64(struct rf_vu_front *f, uint32_t request, uint64_t value)
{
	struct rf_vu_message msg = { .hdr = { .request = request, .size = sizeof(value) },
				     .payload.u64 = value };

	return tell(f, &msg);
}

static int tell_state(struct rf_vu_front *f, uint32_t request, unsigned index, uint32_t num)
{
	struct rf_vu_message msg = { .hdr = { .request = request,
					      .size = sizeof(msg.payload.state) },
				     .payload.state = { .index = index, .num = num } };

	return tell(f, &msg);
}

static int tell_fd(struct rf_vu_front *f, uint32_t request, unsigned index, int fd)
{
	struct rf_vu_message msg = { .hdr = { .request = request, .size = sizeof(uint64_t) },
				     .payload.u64 = index,
				     .fds = { fd },
				     .n_fds = 1 };

	return tell(f, &msg);
}

static int negotiate_protocol(struct rf_vu_front *f, uint64_t want)
{
	uint64_t offered;
	int r = get_u64(f, RF_VU_GET_PROTOCOL_FEATURES, &offered);

	if (r == 0)
		r = tell_u64(f, RF_VU_SET_PROTOCOL_FEATURES, offered & want);
	if (r == 0)
		f->protocol_features = offered & want;
	return r;
}

int rf_vu_front_negotiate(struct rf_vu_front *f, uint64_t want, uint64_t need,
			  uint64_t want_protocol, uint64_t *ret_features, uint64_t *ret_protocol)
{
	struct rf_vu_message owner = { .hdr = { .request = RF_VU_SET_OWNER } };
	int r = tell(f, &owner);

	if (r == 0)
		r = get_u64(f, RF_VU_GET_FEATURES, &f->offered);
	if (r == 0 && f->offered & RF_VU_F_PROTOCOL_FEATURES)
		r = negotiate_protocol(f, want_protocol);
	if (r == 0 && need & ~f->offered)
		r = -ENOTSUP;
	if (r == 0)
		r = fence(f);
	if (r < 0)
		return r;
	*ret_features = (want | need) & f->offered & ~RF_VU_F_PROTOCOL_FEATURES;
	*ret_protocol = f->protocol_features;
	return 0;
}

int rf_vu_front_get_queue_num(struct rf_vu_front *f, uint64_t *ret_num)
{
	return get_u64(f, RF_VU_GET_QUEUE_NUM, ret_num);
}

int rf_vu_front_get_config(struct rf_vu_front *f, uint32_t offset, void *buf, uint32_t len)
{
	uint32_t size = (uint32_t)offsetof(struct rf_vu_config, data) + len;
	struct rf_vu_message msg = { .hdr = { .request = RF_VU_GET_CONFIG, .size = size },
				     .payload.config = { .offset = offset, .size = len } };
	int r;

	assert(len <= RF_VU_MAX_CONFIG);
	r = call(f, &msg, size);
	if (r < 0)
		return r;
	memcpy(buf, msg.payload.config.data, len);
	return 0;
}

int rf_vu_front_set_features(struct rf_vu_front *f, uint64_t features)
{
	int r = tell_u64(f, RF_VU_SET_FEATURES,
			 features | (f->offered & RF_VU_F_PROTOCOL_FEATURES));

	return r < 0 ? r : fence(f);
}

static struct rf_vu_mem_region wire_region(const struct rf_mem_region *region)
{
	return (struct rf_vu_mem_region){ .gpa = region->gpa.v,
					  .size = region->size,
					  .uva = region->uva.v,
					  .mmap_offset = region->offset };
}

static int add_regions(struct rf_vu_front *f, const struct rf_mem_region *regions, const int *fds,
		       unsigned n)
{
	int r = 0;

	for (unsigned i = 0; i < n && r == 0; i++) {
		struct rf_vu_message msg = { .hdr = { .request = RF_VU_ADD_MEM_REG,
						      .size = sizeof(msg.payload.single) },
					     .payload.single.region = wire_region(&regions[i]),
					     .fds = { fds[i] },
					     .n_fds = 1 };

		r = tell(f, &msg);
	}
	return r;
}

static int set_table(struct rf_vu_front *f, const struct rf_mem_region *regions, const int *fds,
		     unsigned n)
{
	struct rf_vu_message msg = { .hdr = { .request = RF_VU_SET_MEM_TABLE } };

	msg.payload.table.n_regions = n;
	for (unsigned i = 0; i < n; i++) {
		msg.payload.table.regions[i] = wire_region(&regions[i]);
		msg.fds[i] = fds[i];
	}
	msg.hdr.size = (uint32_t)offsetof(struct rf_vu_mem_table, regions[n]);
	msg.n_fds = n;
	return tell(f, &msg);
}

int rf_vu_front_set_mem(struct rf_vu_front *f, const struct rf_mem_region *regions, const int *fds,
			unsigned n)
{
	bool slots = f->protocol_features & UINT64_C(1) << RF_VU_PF_CONFIGURE_MEM_SLOTS;
	int r;

	assert(n >= 1 && n <= RF_VU_MAX_TABLE_REGIONS);
	r = slots ? add_regions(f, regions, fds, n) : set_table(f, regions, fds, n);
	return r < 0 ? r : fence(f);
}

static int tell_addr(struct rf_vu_front *f, unsigned index, const struct rf_vhost_vring *ring)
{
	struct rf_vu_message msg = { .hdr = { .request = RF_VU_SET_VRING_ADDR,
					      .size = sizeof(msg.payload.addr) },
				     .payload.addr = { .index = index,
						       .desc = ring->desc.v,
						       .used = ring->device.v,
						       .avail = ring->driver.v } };

	return tell(f, &msg);
}

int rf_vu_front_start_ring(struct rf_vu_front *f, unsigned index, const struct rf_vhost_vring *ring)
{
	int r = tell_state(f, RF_VU_SET_VRING_NUM, index, ring->num);

	if (r == 0)
		r = tell_state(f, RF_VU_SET_VRING_BASE, index, ring->base);
	if (r == 0)
		r = tell_addr(f, index, ring);
	if (r == 0)
		r = tell_fd(f, RF_VU_SET_VRING_CALL, index, ring->call_fd);
	if (r == 0 && ring->err_fd >= 0)
		r = tell_fd(f, RF_VU_SET_VRING_ERR, index, ring->err_fd);
	if (r == 0)
		r = tell_fd(f, RF_VU_SET_VRING_KICK, index, ring->kick_fd);
	if (r == 0 && f->offered & RF_VU_F_PROTOCOL_FEATURES)
		r = tell_state(f, RF_VU_SET_VRING_ENABLE, index, 1);
	return r < 0 ? r : fence(f);
}
