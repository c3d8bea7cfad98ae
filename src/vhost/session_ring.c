/* SPDX-License-Identifier: BSD-3-Clause */
#include <assert.h>
#include <errno.h>
#include <linux/virtio_ring.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/probe.h"
#include "session_priv.h"

#define F_INDIRECT_DESC (UINT64_C(1) << VIRTIO_RING_F_INDIRECT_DESC)
#define F_EVENT_IDX     (UINT64_C(1) << VIRTIO_RING_F_EVENT_IDX)

/*
 * A kick. The watch is edge-triggered and the descriptor is never read: an eventfd reports each
 * write anyway (the kernel's vhost does not read it either), and a descriptor that is always
 * readable reports itself once and cannot make us spin.
 */
static void kick_ready(struct rf_watch *watch, uint32_t events)
{
	struct rf_vu_ring *ring = RF_CONTAINER_OF(watch, struct rf_vu_ring, kick);
	struct rf_vu_session *s = ring->session;

	if (!(events & EPOLLIN))
		return;
	rf_vu_session_enter(s);
	rf_count(&s->counters->vu_kicks, 1);
	RF_PROBE(vu_kicks, s, ring->index);
	s->device.ops->ring_kicked(s->device.ctx, ring->index);
	rf_vu_session_leave(s);
}

int rf_vu_ring_init(struct rf_vu_session *s, unsigned index)
{
	struct rf_vu_ring *ring = &s->rings[index];

	*ring = (struct rf_vu_ring){ .session = s,
				     .index = index,
				     .kick_fd = -1,
				     .call_fd = -1,
				     .err_fd = -1,
				     .kick = { .ready = kick_ready } };
	return rf_devq_new(s->mem, &ring->queue);
}

void rf_vu_ring_fini(struct rf_vu_ring *ring)
{
	/* A session that could not be made has rings that were never initialised. */
	if (!ring->session)
		return;
	ring->kick_fd = rf_fd_close(ring->kick_fd);
	ring->call_fd = rf_fd_close(ring->call_fd);
	ring->err_fd = rf_fd_close(ring->err_fd);
	rf_devq_free(ring->queue);
}

static bool is_aligned(const void *p, uint32_t align)
{
	return (uintptr_t)p % align == 0;
}

bool rf_vu_ring_map(const struct rf_vu_ring *ring, const struct rf_vu_areas *areas,
		    struct rf_vu_mapped *ret_mapped)
{
	struct rf_vu_session *s = ring->session;
	struct rf_ring_extent extent;
	struct rf_vu_mapped mapped;
	/* The size may come after the addresses; it is all judged again when the ring starts. */
	int r = rf_ring_extent_get(RF_RING_SPLIT, ring->num ? ring->num : 1, &extent);

	assert(r == 0);
	(void)r;
	mapped.desc = rf_mem_from_uva(s->mem, areas->desc, extent.desc_bytes);
	mapped.driver = rf_mem_from_uva(s->mem, areas->driver, extent.driver_bytes);
	mapped.device = rf_mem_from_uva(s->mem, areas->device, extent.device_bytes);
	if (!mapped.desc || !mapped.driver || !mapped.device) {
		rf_log_limited(s->device.log, s->device.log_limit, RF_LOG_ERROR,
			       "ring %u is not in the memory that the VM shared (%u regions); QEMU "
			       "needs -object memory-backend-memfd,id=mem,share=on,size=... and "
			       "-machine memory-backend=mem",
			       ring->index, rf_mem_n_regions(s->mem));
		return false;
	}
	if (!is_aligned(mapped.desc, extent.desc_align) ||
	    !is_aligned(mapped.driver, extent.driver_align) ||
	    !is_aligned(mapped.device, extent.device_align)) {
		rf_log_limited(s->device.log, s->device.log_limit, RF_LOG_ERROR,
			       "ring %u is not aligned", ring->index);
		return false;
	}
	*ret_mapped = mapped;
	return true;
}

static enum rf_vu_reason ring_start(struct rf_vu_ring *ring)
{
	struct rf_vu_session *s = ring->session;
	struct rf_ring_config config = {
		.layout = RF_RING_SPLIT,
		.num = ring->num,
		.base = ring->base,
		.event_idx = s->features & F_EVENT_IDX,
		.indirect = s->features & F_INDIRECT_DESC,
	};
	struct rf_vu_mapped mapped;

	if (!rf_vu_ring_map(ring, &ring->areas, &mapped))
		return RF_VU_RING_ADDR;
	config.desc = mapped.desc;
	config.driver = mapped.driver;
	config.device = mapped.device;
	if (rf_devq_start(ring->queue, &config) < 0)
		return RF_VU_RING_ADDR;
	if (rf_watch_add(s->loop, &ring->kick, ring->kick_fd, EPOLLIN | EPOLLET) < 0) {
		rf_devq_stop(ring->queue);
		return RF_VU_FDS;
	}
	ring->running = true;
	ring->broken_told = false;
	/* What was published right before the ring was stopped last was not notified. */
	rf_vu_session_signal(s, ring->index);
	s->device.ops->ring_started(s->device.ctx, ring->index, ring->base);
	return RF_VU_NONE;
}

void rf_vu_ring_stop(struct rf_vu_ring *ring)
{
	struct rf_vu_session *s = ring->session;

	if (!ring->running)
		return;
	ring->running = false;
	rf_watch_remove(&ring->kick);
	s->device.ops->ring_stopping(s->device.ctx, ring->index);
	ring->base = rf_devq_stop(ring->queue);
	if (!s->freed)
		s->device.ops->ring_stopped(s->device.ctx, ring->index, ring->base);
}

enum rf_vu_reason rf_vu_ring_update(struct rf_vu_ring *ring)
{
	if (!ring->started || !ring->enabled)
		rf_vu_ring_stop(ring);
	else if (!ring->running)
		return ring_start(ring);
	return RF_VU_NONE;
}

/* The ring is not started any more. */
static void forget_kick(struct rf_vu_ring *ring)
{
	ring->started = false;
	rf_vu_ring_stop(ring);
	ring->kick_fd = rf_fd_close(ring->kick_fd);
}

void rf_vu_rings_stop(struct rf_vu_session *s)
{
	for (unsigned i = 0; i < s->device.n_rings; i++)
		rf_vu_ring_stop(&s->rings[i]);
}

void rf_vu_rings_disable(struct rf_vu_session *s)
{
	for (unsigned i = 0; i < s->device.n_rings; i++) {
		s->rings[i].enabled = false;
		rf_vu_ring_stop(&s->rings[i]);
	}
}

/* A front end may ask for the index after it has reset the device. */
void rf_vu_rings_reset(struct rf_vu_session *s)
{
	rf_vu_rings_disable(s);
	for (unsigned i = 0; i < s->device.n_rings; i++)
		forget_kick(&s->rings[i]);
}

static struct rf_vu_ring *ring_of(struct rf_vu_session *s, uint64_t index)
{
	return index < s->device.n_rings ? &s->rings[index] : NULL;
}

enum rf_vu_reason rf_vu_set_vring_num(struct rf_vu_session *s, struct rf_vu_message *msg)
{
	struct rf_vu_ring *ring = ring_of(s, msg->payload.state.index);
	uint32_t num = msg->payload.state.num;

	if (!ring)
		return RF_VU_RING_INDEX;
	if (!rf_is_power_of_2(num) || num > RF_RING_MAX_NUM || num > s->device.max_num)
		return RF_VU_RING_NUM;
	if (ring->running)
		return RF_VU_RING_STATE;
	ring->num = num;
	return RF_VU_NONE;
}

static bool same_areas(const struct rf_vu_areas *a, const struct rf_vu_areas *b)
{
	return a->desc.v == b->desc.v && a->driver.v == b->driver.v && a->device.v == b->device.v;
}

enum rf_vu_reason rf_vu_set_vring_addr(struct rf_vu_session *s, struct rf_vu_message *msg)
{
	const struct rf_vu_vring_addr *addr = &msg->payload.addr;
	struct rf_vu_ring *ring = ring_of(s, addr->index);
	struct rf_vu_areas areas = { { addr->desc }, { addr->avail }, { addr->used } };
	struct rf_vu_mapped mapped;

	if (!ring)
		return RF_VU_RING_INDEX;
	if (!rf_vu_ring_map(ring, &areas, &mapped))
		return RF_VU_RING_ADDR;
	/* Front ends send it again for its flags alone. */
	if (ring->running && !same_areas(&areas, &ring->areas)) {
		rf_devq_forget(ring->queue);
		rf_devq_rebase(ring->queue, mapped.desc, mapped.driver, mapped.device);
	}
	ring->areas = areas;
	ring->has_addr = true;
	return RF_VU_NONE;
}

enum rf_vu_reason rf_vu_set_vring_base(struct rf_vu_session *s, struct rf_vu_message *msg)
{
	struct rf_vu_ring *ring = ring_of(s, msg->payload.state.index);

	if (!ring)
		return RF_VU_RING_INDEX;
	if (msg->payload.state.num > UINT16_MAX)
		return RF_VU_RING_BASE;
	if (ring->running)
		return RF_VU_RING_STATE;
	ring->base = (uint16_t)msg->payload.state.num;
	return RF_VU_NONE;
}

enum rf_vu_reason rf_vu_get_vring_base(struct rf_vu_session *s, struct rf_vu_message *msg)
{
	struct rf_vu_ring *ring = ring_of(s, msg->payload.state.index);

	if (!ring)
		return RF_VU_RING_INDEX;
	forget_kick(ring);
	msg->payload.state.num = ring->base;
	return RF_VU_NONE;
}

/* A front end that gave us its own end of the session would never be seen to leave. */
static bool is_socket(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
}

/* The ring and the descriptor (-1 for none) of a SET_VRING_KICK, _CALL or _ERR. */
static enum rf_vu_reason take_vring_fd(struct rf_vu_session *s, struct rf_vu_message *msg,
				       struct rf_vu_ring **ret_ring, int *ret_fd)
{
	uint64_t u64 = msg->payload.u64;

	*ret_ring = ring_of(s, u64 & ~(uint64_t)RF_VU_VRING_NOFD);
	if (!*ret_ring)
		return RF_VU_RING_INDEX;
	if (msg->n_fds != (u64 & RF_VU_VRING_NOFD ? 0 : 1))
		return RF_VU_FDS;
	if (msg->n_fds && (is_socket(msg->fds[0]) || rf_fd_set_nonblock(msg->fds[0]) < 0))
		return RF_VU_FDS;
	*ret_fd = msg->n_fds ? rf_fd_steal(&msg->fds[0]) : -1;
	return RF_VU_NONE;
}

static enum rf_vu_reason replace_kick(struct rf_vu_ring *ring, int fd)
{
	rf_watch_remove(&ring->kick);
	rf_fd_close(ring->kick_fd);
	ring->kick_fd = fd;
	if (!ring->running)
		return RF_VU_NONE;
	if (rf_watch_add(ring->session->loop, &ring->kick, fd, EPOLLIN | EPOLLET) == 0)
		return RF_VU_NONE;
	forget_kick(ring);
	return RF_VU_FDS;
}

enum rf_vu_reason rf_vu_set_vring_kick(struct rf_vu_session *s, struct rf_vu_message *msg)
{
	struct rf_vu_ring *ring;
	struct rf_vu_mapped mapped;
	enum rf_vu_reason reason;
	int fd;

	reason = take_vring_fd(s, msg, &ring, &fd);
	if (reason)
		return reason;
	/* Polling a ring that nobody kicks is not offered. */
	if (fd < 0)
		return RF_VU_FDS;
	reason = replace_kick(ring, fd);
	if (reason)
		return reason;
	if (!ring->num || !ring->has_addr)
		return RF_VU_RING_STATE;
	if (!rf_vu_ring_map(ring, &ring->areas, &mapped))
		return RF_VU_RING_ADDR;
	ring->started = true;
	reason = rf_vu_ring_update(ring);
	if (reason)
		ring->started = false;
	return reason;
}

enum rf_vu_reason rf_vu_set_vring_call(struct rf_vu_session *s, struct rf_vu_message *msg)
{
	struct rf_vu_ring *ring;
	enum rf_vu_reason reason;
	int fd;

	reason = take_vring_fd(s, msg, &ring, &fd);
	if (reason)
		return reason;
	rf_fd_close(ring->call_fd);
	ring->call_fd = fd;
	/* What the old one was signalled for may never be seen. */
	if (ring->running)
		rf_vu_session_signal(s, ring->index);
	return RF_VU_NONE;
}

enum rf_vu_reason rf_vu_set_vring_err(struct rf_vu_session *s, struct rf_vu_message *msg)
{
	struct rf_vu_ring *ring;
	enum rf_vu_reason reason;
	int fd;

	reason = take_vring_fd(s, msg, &ring, &fd);
	if (reason)
		return reason;
	rf_fd_close(ring->err_fd);
	ring->err_fd = fd;
	return RF_VU_NONE;
}

enum rf_vu_reason rf_vu_set_vring_enable(struct rf_vu_session *s, struct rf_vu_message *msg)
{
	struct rf_vu_ring *ring = ring_of(s, msg->payload.state.index);
	enum rf_vu_reason reason;

	if (!ring)
		return RF_VU_RING_INDEX;
	if (msg->payload.state.num > 1)
		return RF_VU_RING_STATE;
	ring->enabled = msg->payload.state.num;
	reason = rf_vu_ring_update(ring);
	if (reason)
		ring->enabled = false;
	return reason;
}

void rf_vu_session_signal(struct rf_vu_session *s, unsigned ring)
{
	assert(ring < s->device.n_rings);
	if (!s->rings[ring].running || s->rings[ring].call_fd < 0)
		return;
	rf_eventfd_signal_peer(s->rings[ring].call_fd);
	rf_count(&s->counters->vu_calls, 1);
	RF_PROBE(vu_calls, s, ring);
}

void rf_vu_session_ring_broken(struct rf_vu_session *s, unsigned ring)
{
	struct rf_vu_ring *broken;
	enum rf_ring_reason reason;

	assert(ring < s->device.n_rings);
	broken = &s->rings[ring];
	reason = rf_devq_broken(broken->queue);
	assert(reason != RF_RING_NONE);
	if (broken->broken_told)
		return;
	broken->broken_told = true;
	rf_count(&s->counters->vu_rings_broken, 1);
	rf_log_limited(s->device.log, s->device.log_limit, RF_LOG_WARNING, "ring %u given up: %s",
		       ring, rf_ring_reason_text(reason));
	if (broken->err_fd >= 0)
		rf_eventfd_signal_peer(broken->err_fd);
	if (reason == RF_RING_MEM_FAULT)
		rf_vu_session_break(s, RF_VU_MEM_FAULT);
}
