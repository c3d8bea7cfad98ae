/* SPDX-License-Identifier: BSD-3-Clause */
#include "vsock_host.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ids.h>
#include <linux/virtio_ring.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/fd.h"

/* How long a driver that kicks may leave its ring blank before we doubt that its memory is shared.
 */
#define CHECK_MEMORY_NS RF_NS_PER_SEC

#define FEATURES                                                                          \
	((UINT64_C(1) << VIRTIO_F_VERSION_1) | (UINT64_C(1) << VIRTIO_RING_F_EVENT_IDX) | \
	 (UINT64_C(1) << VIRTIO_RING_F_INDIRECT_DESC))

#define PROTOCOL_FEATURES                                                            \
	((UINT64_C(1) << RF_VU_PF_MQ) | (UINT64_C(1) << RF_VU_PF_REPLY_ACK) |        \
	 (UINT64_C(1) << RF_VU_PF_CONFIG) | (UINT64_C(1) << RF_VU_PF_RESET_DEVICE) | \
	 (UINT64_C(1) << RF_VU_PF_CONFIGURE_MEM_SLOTS))

void rf_device_wake(struct rf_vsock_device *device)
{
	rf_work_queue(device->loop, &device->turn);
}

unsigned rf_device_batch_min(const struct rf_vsock_device *device)
{
	switch ((enum rf_host_io)device->active.io) {
	case RF_HOST_IO_AUTO:
		return RF_HOST_BATCH_MIN;
	case RF_HOST_IO_URING:
		return 1;
	case RF_HOST_IO_SYSCALLS:
		break;
	}
	return UINT_MAX;
}

static bool rings_run(const struct rf_vsock_device *device)
{
	return device->running[RING_TO_GUEST] && device->running[RING_FROM_GUEST];
}

/* A queue that its driver broke is told once and not served again before it is started anew. */
static void check_rings(struct rf_vsock_device *device)
{
	unsigned ring;

	for (ring = RING_TO_GUEST; ring <= RING_FROM_GUEST; ring++) {
		struct rf_devq *q = rf_vu_session_queue(device->session, ring);

		if (!device->running[ring] || rf_devq_broken(q) == RF_RING_NONE)
			continue;
		if (rf_devq_broken(q) == RF_RING_MEM_FAULT)
			device->faulted = true;
		device->running[ring] = false;
		rf_vu_session_ring_broken(device->session, ring);
	}
	if (device->faulted || rf_mem_faulted(rf_vu_session_mem(device->session)))
		rf_vu_session_break(device->session, RF_VU_MEM_FAULT);
	device->faulted = false;
}

static void last_front_over(struct rf_vsock_device *device)
{
	rf_timer_stop(&device->linger);
	if (device->left)
		device->left(device->ctx, device->orderly);
}

static void device_turn(struct rf_work *work)
{
	struct rf_vsock_device *device = RF_CONTAINER_OF(work, struct rf_vsock_device, turn);
	bool more = false;

	rf_rings_idle_forget(device);
	rf_plugs_turn(device);
	rf_streams_drain_turn(device);
	if (device->session && rings_run(device)) {
		bool had_room = rf_vsock_sched_reset_room(&device->sched);

		rf_count(&device->counters.turns, 1);
		more = rf_from_guest_turn(device);
		had_room = had_room && rf_vsock_sched_reset_room(&device->sched);
		rf_plugs_turn(device);
		more |= rf_to_guest_turn(device);
		/* Packets were left because no RST could be owed: now one can. */
		more |= !had_room && rf_vsock_sched_reset_room(&device->sched);
		check_rings(device);
		more = more && device->session && rings_run(device);
	}
	rf_streams_reap(device);
	/* What was asked for since the turn began has been done, but for this. */
	rf_work_cancel(&device->turn);
	if (more || !TAILQ_EMPTY(&device->draining) || rf_plugs_wait(device))
		rf_device_wake(device);
	/* The device may be gone after this. */
	if (rf_timer_active(&device->linger) && TAILQ_EMPTY(&device->streams))
		last_front_over(device);
}

static void check_memory(struct rf_timer *timer)
{
	struct rf_vsock_device *device =
		RF_CONTAINER_OF(timer, struct rf_vsock_device, check_memory);

	if (rings_run(device) &&
	    rf_counter_read(&device->vu_counters.vu_kicks) > device->kicks_before &&
	    rf_devq_blank(rf_vu_session_queue(device->session, RING_TO_GUEST)))
		rf_log(&device->log, RF_LOG_ERROR,
		       "the guest kicks, but its rings are blank: its memory is probably private; "
		       "QEMU needs "
		       "-object memory-backend-memfd,id=mem,size=...,share=on -machine "
		       "memory-backend=mem");
}

static void op_ring_started(void *ctx, unsigned ring, uint16_t base)
{
	struct rf_vsock_device *device = ctx;
	int32_t stopped = device->stopped_base[ring];

	if (ring == RING_EVENT)
		return;
	/* A guest that was paused goes on where it was; any other index is another guest. */
	if (stopped >= 0 && stopped != base)
		rf_streams_reset(device);
	device->stopped_base[ring] = -1;
	device->running[ring] = true;
	if (!rings_run(device))
		return;
	device->was_started = true;
	device->active = device->switches;
	device->params.tell = (enum rf_vsock_tell)device->active.credit;
	device->params.bound_packets = device->active.packets;
	device->kicks_before = rf_counter_read(&device->vu_counters.vu_kicks);
	(void)rf_timer_start(device->loop, &device->check_memory,
			     rf_loop_now(device->loop) + CHECK_MEMORY_NS);
	rf_device_wake(device);
}

static void op_ring_stopping(void *ctx, unsigned ring)
{
	struct rf_vsock_device *device = ctx;

	/* Nothing of a ring is held between turns. */
	device->running[ring] = false;
	rf_rings_idle_forget(device);
}

static void op_ring_stopped(void *ctx, unsigned ring, uint16_t base)
{
	struct rf_vsock_device *device = ctx;

	device->stopped_base[ring] = base;
}

static void op_ring_kicked(void *ctx, unsigned ring RF_UNUSED)
{
	rf_device_wake(ctx);
}

static int op_get_config(void *ctx, uint32_t offset, void *buf, uint32_t len)
{
	const struct rf_vsock_device *device = ctx;
	uint64_t cid = htole64(device->cid);

	memcpy(buf, (const uint8_t *)&cid + offset, len);
	return 0;
}

static void forget_guest(struct rf_vsock_device *device)
{
	unsigned ring;

	for (ring = 0; ring < N_RINGS; ring++)
		device->stopped_base[ring] = -1;
	device->was_started = false;
	rf_timer_stop(&device->check_memory);
	rf_streams_reset(device);
}

static void op_reset(void *ctx)
{
	forget_guest(ctx);
}

static void end_session(struct rf_vsock_device *device)
{
	rf_vu_session_free(device->session);
	device->session = NULL;
	rf_timer_stop(&device->silence);
	forget_guest(device);
}

static int begin_session(struct rf_vsock_device *device, int fd);

static void next_front(struct rf_vsock_device *device)
{
	int fd = device->waiting_fd;

	device->waiting_fd = -1;
	if (fd >= 0)
		(void)begin_session(device, fd);
	if (device->front.fd >= 0)
		(void)rf_listener_resume(&device->front);
}

/* Return: 0, or -errno if nothing can be waited for. */
static int start_linger(struct rf_vsock_device *device, uint64_t untaken_bytes)
{
	device->untaken_bytes = untaken_bytes;
	return rf_timer_start(device->loop, &device->linger,
			      rf_loop_now(device->loop) + RF_HOST_LINGER_NS);
}

static void linger_over(struct rf_timer *timer)
{
	struct rf_vsock_device *device = RF_CONTAINER_OF(timer, struct rf_vsock_device, linger);

	uint64_t bytes = rf_streams_drain(device);

	if (bytes < device->untaken_bytes && start_linger(device, bytes) == 0)
		return;
	rf_log(&device->log, RF_LOG_WARNING,
	       "host programs do not read: %" PRIu64 " bytes that the guest sent are lost", bytes);
	last_front_over(device);
}

/* What the guest sent before is still to be delivered; nobody else is served. */
static void last_front_left(struct rf_vsock_device *device, bool orderly)
{
	device->orderly = orderly;
	rf_listener_close(&device->front);
	device->waiting_fd = rf_fd_close(device->waiting_fd);
	if (start_linger(device, rf_streams_drain(device)) == 0)
		rf_device_wake(device);
	else
		last_front_over(device);
}

static bool front_silent(const struct rf_vsock_device *device)
{
	return rf_counter_read(&device->vu_counters.vu_messages) == device->said_before;
}

static void op_closed(void *ctx, enum rf_vu_reason reason)
{
	struct rf_vsock_device *device = ctx;
	/* Somebody looked whether there is a listener. */
	bool probe = reason == RF_VU_HANGUP && front_silent(device) && device->front.fd >= 0;

	end_session(device);
	rf_log_limited(&device->log, &device->front_limit,
		       reason == RF_VU_HANGUP ? RF_LOG_INFO : RF_LOG_WARNING,
		       "the front end has left: %s", rf_vu_reason_text(reason));
	if (!probe && (device->last_front || device->front.fd < 0)) {
		last_front_left(device, reason == RF_VU_HANGUP);
		return;
	}
	next_front(device);
	if (device->left && !probe)
		device->left(device->ctx, reason == RF_VU_HANGUP);
}

static const struct rf_vu_device_ops device_ops = {
	.get_config = op_get_config,
	.ring_started = op_ring_started,
	.ring_stopping = op_ring_stopping,
	.ring_stopped = op_ring_stopped,
	.ring_kicked = op_ring_kicked,
	.reset = op_reset,
	.closed = op_closed,
};

static int begin_session(struct rf_vsock_device *device, int fd)
{
	int r = rf_vu_session_new(device->loop, fd, &device->vu, &device->vu_counters,
				  &device->session);

	if (r < 0) {
		rf_log_limited(&device->log, &device->front_limit, RF_LOG_ERROR,
			       "cannot serve a front end: %s", strerror(-r));
		return r;
	}
	device->said_before = rf_counter_read(&device->vu_counters.vu_messages);
	rf_count(&device->counters.front_ends, 1);
	return 0;
}

static void silence_over(struct rf_timer *timer)
{
	struct rf_vsock_device *device = RF_CONTAINER_OF(timer, struct rf_vsock_device, silence);

	if (!front_silent(device))
		return;
	rf_log(&device->log, RF_LOG_WARNING,
	       "the front end has said nothing and another one waits; closed it");
	end_session(device);
	next_front(device);
}

/*
 * One front end at a time: the next waits until this one has left. So a probe that connects and
 * closes, or a VMM that is restarted, costs nobody anything; nor does one that never says a word.
 */
static void front_accepted(struct rf_listener *listener, int fd)
{
	struct rf_vsock_device *device = RF_CONTAINER_OF(listener, struct rf_vsock_device, front);

	if (!device->session) {
		(void)begin_session(device, fd);
		return;
	}
	/* Nobody waits for one that would never have to leave. */
	if (front_silent(device) &&
	    rf_timer_start(device->loop, &device->silence,
			   rf_loop_now(device->loop) + RF_HOST_SILENCE_NS) < 0) {
		rf_fd_close(fd);
		return;
	}
	device->waiting_fd = fd;
	rf_listener_pause(listener);
}

static int open_front(struct rf_vsock_device *device, const struct rf_vsock_device_options *options)
{
	const struct rf_listener_access access = {
		.mode = options->socket_mode,
		.uid = RF_LISTENER_OWNER_DEFAULT,
		.gid = RF_LISTENER_GROUP_DEFAULT,
	};
	socklen_t size = sizeof(int);
	int listening = 0;
	int r;

	device->front.accepted = front_accepted;
	if (options->socket_path) {
		r = rf_listener_open(&device->front, device->loop, &device->log,
				     options->socket_path, &access);
		return r < 0 ? r : rf_listener_resume(&device->front);
	}
	if (getsockopt(options->socket_fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) < 0) {
		r = -errno;
		rf_log(&device->log, RF_LOG_ERROR, "descriptor %d is no socket",
		       options->socket_fd);
		rf_fd_close(options->socket_fd);
		return r;
	}
	if (!listening)
		return begin_session(device, options->socket_fd);
	r = rf_listener_adopt(&device->front, device->loop, &device->log, options->socket_fd);
	return r < 0 ? r : rf_listener_resume(&device->front);
}

static void init_vu(struct rf_vsock_device *device, uint32_t queue_size)
{
	device->vu = (struct rf_vu_device){
		.features = FEATURES,
		.protocol_features = PROTOCOL_FEATURES,
		.n_rings = N_RINGS,
		.max_num = queue_size,
		.queue_num = N_RINGS,
		.config_bytes = sizeof(uint64_t),
		.ops = &device_ops,
		.ctx = device,
		.log = &device->log,
		.log_limit = &device->front_limit,
	};
}

static void drop_line(void *ctx RF_UNUSED, enum rf_log_level level RF_UNUSED,
		      const char *name RF_UNUSED, const char *line RF_UNUSED)
{
}

/* As many buckets as connections, or a few more: chains stay short. */
static int init_table(struct rf_vsock_device *device)
{
	uint32_t n = RF_HOST_MIN_BUCKETS;
	uint64_t seed;

	while (n < device->max_conns && n < RF_HOST_CONNS_LIMIT)
		n *= 2;
	device->buckets = calloc(n, sizeof(*device->buckets));
	if (!device->buckets)
		return -ENOMEM;
	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		return -EIO;
	rf_vsock_table_init(&device->table, device->buckets, n, seed);
	return 0;
}

static int init_device(struct rf_vsock_device *device, struct rf_loop *loop,
		       const struct rf_vsock_device_options *options)
{
	unsigned ring;
	int r;

	device->loop = loop;
	device->front.fd = -1;
	device->waiting_fd = -1;
	device->silence.expired = silence_over;
	device->linger.expired = linger_over;
	TAILQ_INIT(&device->streams);
	TAILQ_INIT(&device->draining);
	TAILQ_INIT(&device->ended);
	rf_vsock_sched_init(&device->sched);
	device->turn.run = device_turn;
	rf_rings_idle_init(device);
	device->check_memory.expired = check_memory;
	device->cid = options->guest_cid;
	device->last_front = options->last_front;
	device->left = options->left;
	device->ctx = options->ctx;
	device->max_conns = options->max_conns;
	device->switches = device->active = options->switches;
	rf_vsock_params_default(&device->params);
	device->params.window = options->window;
	device->params.handshake_ns = options->handshake_ns;
	device->params.shutdown_ns = options->shutdown_ns;
	for (ring = 0; ring < N_RINGS; ring++)
		device->stopped_base[ring] = -1;
	init_vu(device, options->queue_size);
	device->name = strdup(options->name);
	if (!device->name)
		return -ENOMEM;
	device->log = options->log ? *options->log : (struct rf_log){ .sink = drop_line };
	device->log.name = device->name;
	r = init_table(device);
	return r < 0 ? r : rf_mem_guard_install();
}

void rf_vsock_device_options_init(struct rf_vsock_device_options *options)
{
	*options = (struct rf_vsock_device_options){
		.name = "vsock",
		.socket_mode = RF_LISTENER_MODE_DEFAULT,
		.socket_fd = -1,
		.plugs = rf_vsock_plugs,
		.plug_mode = RF_LISTENER_MODE_DEFAULT,
		.plug_uid = RF_LISTENER_OWNER_DEFAULT,
		.plug_gid = RF_LISTENER_GROUP_DEFAULT,
		.window = RF_VSOCK_WINDOW_DEFAULT,
		.queue_size = RF_VSOCK_QUEUE_DEFAULT,
		.max_conns = RF_HOST_MAX_CONNS,
		.handshake_ns = RF_VSOCK_HANDSHAKE_NS,
		.shutdown_ns = RF_VSOCK_SHUTDOWN_NS,
		.line_ns = RF_HOST_LINE_NS,
		.ok_port = RF_HOST_OK_PORT_GUEST,
	};
	rf_switches_default(rf_host_switch_defs, rf_host_n_switches, &options->switches);
}

static bool options_allowed(const struct rf_vsock_device_options *options)
{
	return rf_vsock_cid_usable(options->guest_cid) && options->max_conns &&
	       options->handshake_ns && options->shutdown_ns && options->line_ns &&
	       (options->socket_path || options->socket_fd >= 0) &&
	       options->window >= RF_VSOCK_WINDOW_MIN && options->window <= RF_VSOCK_WINDOW_MAX &&
	       options->queue_size >= RF_VSOCK_QUEUE_MIN &&
	       options->queue_size <= RF_VSOCK_QUEUE_MAX;
}

int rf_vsock_device_new(struct rf_loop *loop, const struct rf_vsock_device_options *options,
			struct rf_vsock_device **ret_device)
{
	struct rf_vsock_device *device =
		options_allowed(options) ? calloc(1, sizeof(*device)) : NULL;
	int r;

	if (!device) {
		rf_fd_close(options->socket_fd);
		return options_allowed(options) ? -ENOMEM : -EINVAL;
	}
	r = init_device(device, loop, options);
	/* Host programs first: once a front end can connect, its guest may be up at any moment. */
	if (r == 0)
		r = rf_plugs_open(device, options);
	if (r < 0)
		rf_fd_close(options->socket_fd);
	else
		r = open_front(device, options);
	if (r < 0) {
		rf_vsock_device_free(device);
		return r;
	}
	*ret_device = device;
	return 0;
}

void rf_vsock_device_free(struct rf_vsock_device *device)
{
	struct rf_vsock_stream *stream;

	if (!device)
		return;
	rf_listener_close(&device->front);
	rf_fd_close(device->waiting_fd);
	end_session(device);
	rf_timer_stop(&device->linger);
	rf_streams_reap(device);
	/* What is left waits for a host program to read. */
	while ((stream = TAILQ_FIRST(&device->streams))) {
		rf_outbuf_clear(&stream->out);
		rf_stream_settle(stream);
		rf_streams_reap(device);
	}
	rf_plugs_free(device);
	rf_work_cancel(&device->turn);
	rf_idle_cancel(&device->idle);
	free(device->buckets);
	free(device->name);
	free(device);
}
