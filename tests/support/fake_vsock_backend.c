/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_vsock_backend.h"

#include <assert.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_vsock_backend_priv.h"

#define BIT(n)   (UINT64_C(1) << (n))
#define RING_NUM 1024
#define BATCH    16

const struct fake_options fake_manual = { .cid = FAKE_CID, .queue_num = 3 };
const struct fake_options fake_automatic = { .automatic = true, .cid = FAKE_CID, .queue_num = 3 };

/* Calls into the loop's thread. */

void fake_call(struct fake_backend *fake, void (*fn)(struct fake_backend *, void *), void *arg)
{
	pthread_mutex_lock(&fake->mutex);
	fake->call = fn;
	fake->call_arg = arg;
	rf_loop_wake(fake->loop);
	while (fake->call)
		pthread_cond_wait(&fake->cond, &fake->mutex);
	pthread_mutex_unlock(&fake->mutex);
}

static void serve_call(struct fake_backend *fake)
{
	pthread_mutex_lock(&fake->mutex);
	if (fake->call) {
		pthread_mutex_unlock(&fake->mutex);
		fake->call(fake, fake->call_arg);
		pthread_mutex_lock(&fake->mutex);
		fake->call = NULL;
		pthread_cond_broadcast(&fake->cond);
	}
	pthread_mutex_unlock(&fake->mutex);
}

static void *run(void *arg)
{
	struct fake_backend *fake = arg;

	while (!fake->quit) {
		rf_loop_turn(fake->loop, -1);
		serve_call(fake);
	}
	return NULL;
}

/* The transmit ring. */

static void record(struct fake_backend *fake, const struct rf_vsock_hdr *hdr,
		   const struct iovec *iov, unsigned n)
{
	struct fake_packet *packet = malloc(sizeof(*packet) + hdr->len);

	assert_non_null(packet);
	packet->hdr = *hdr;
	rf_iov_copy_out(iov, n, RF_VSOCK_HDR_BYTES, packet->payload, hdr->len);
	pthread_mutex_lock(&fake->mutex);
	TAILQ_INSERT_TAIL(&fake->packets, packet, link);
	pthread_cond_broadcast(&fake->cond);
	pthread_mutex_unlock(&fake->mutex);
}

void fake_take_packet(struct fake_backend *fake, struct rf_devq *q, const struct rf_chain *chain)
{
	const struct iovec *iov = rf_devq_out(q, chain);
	uint8_t wire[RF_VSOCK_HDR_BYTES];
	struct rf_vsock_hdr hdr;

	assert(rf_iov_copy_out(iov, chain->n_out, 0, wire, sizeof(wire)) == sizeof(wire));
	rf_vsock_hdr_decode(wire, &hdr);
	assert(hdr.len <= chain->bytes_out - sizeof(wire));
	if (fake->options.automatic)
		fake_host_packet(fake, &hdr, iov, chain->n_out);
	else
		record(fake, &hdr, iov, chain->n_out);
}

void fake_serve_tx(struct fake_backend *fake)
{
	struct rf_devq *q = rf_vu_session_queue(fake->session, 1);
	const struct rf_chain *chains;
	int n;

	if (fake->hold_tx || !rf_devq_running(rf_vu_session_queue(fake->session, 1)))
		return;
	do {
		while ((n = rf_devq_look(q, BATCH, &chains)) > 0) {
			struct rf_chain batch[BATCH];

			memcpy(batch, chains, (unsigned)n * sizeof(*chains));
			for (int i = 0; i < n; i++)
				fake_take_packet(fake, q, &batch[i]);
			rf_devq_take(q, (unsigned)n);
			for (int i = 0; i < n; i++)
				rf_devq_push(q, &batch[i], 0);
			if (rf_devq_publish(q))
				rf_vu_session_signal(fake->session, 1);
		}
		assert(n == 0);
	} while (rf_devq_arm(q));
	if (fake->options.automatic)
		fake_host_pump(fake);
}

/* The receive ring. */

bool fake_rx_put(struct fake_backend *fake, const struct rf_vsock_hdr *hdr, const void *payload,
		 uint32_t used)
{
	struct rf_devq *q = rf_vu_session_queue(fake->session, 0);
	uint8_t wire[RF_VSOCK_HDR_BYTES];
	const struct rf_chain *chains;
	struct rf_chain chain;

	if (!rf_devq_running(rf_vu_session_queue(fake->session, 0)) ||
	    rf_devq_look(q, 1, &chains) < 1)
		return false;
	rf_vsock_hdr_encode(hdr, wire);
	rf_iov_copy_in(rf_devq_in(q, chains), chains->n_in, 0, wire, sizeof(wire));
	if (used > sizeof(wire))
		rf_iov_copy_in(rf_devq_in(q, chains), chains->n_in, sizeof(wire), payload,
			       rf_min_u32(hdr->len, used - (uint32_t)sizeof(wire)));
	chain = *chains;
	rf_devq_take(q, 1);
	rf_devq_push(q, &chain, used);
	if (rf_devq_publish(q))
		rf_vu_session_signal(fake->session, 0);
	return true;
}

/* The device. */

static int get_config(void *ctx, uint32_t offset, void *buf, uint32_t len)
{
	struct fake_backend *fake = ctx;
	uint64_t cid = fake->options.cid;

	memcpy(buf, (const uint8_t *)&cid + offset, len);
	return 0;
}

static void attached_set(struct fake_backend *fake, bool attached)
{
	pthread_mutex_lock(&fake->mutex);
	fake->attached = attached;
	pthread_cond_broadcast(&fake->cond);
	pthread_mutex_unlock(&fake->mutex);
}

static void ring_started(void *ctx, unsigned ring, uint16_t base)
{
	struct fake_backend *fake = ctx;

	(void)base;
	if (ring == 1)
		fake_serve_tx(fake);
	if (rf_devq_running(rf_vu_session_queue(fake->session, 0)) &&
	    rf_devq_running(rf_vu_session_queue(fake->session, 1)))
		attached_set(fake, true);
}

static void ring_stopping(void *ctx, unsigned ring)
{
	(void)ring;
	attached_set(ctx, false);
}

static void ring_stopped(void *ctx, unsigned ring, uint16_t base)
{
	(void)ctx;
	(void)ring;
	(void)base;
}

static void ring_kicked(void *ctx, unsigned ring)
{
	struct fake_backend *fake = ctx;

	if (ring == 1)
		fake_serve_tx(fake);
	else if (ring == 0 && fake->options.automatic)
		fake_host_pump(fake);
}

static void reset(void *ctx)
{
	fake_host_reset(ctx);
}

static void session_end(struct fake_backend *fake)
{
	rf_vu_session_free(fake->session);
	fake->session = NULL;
	fake_host_reset(fake);
	attached_set(fake, false);
}

static void closed(void *ctx, enum rf_vu_reason reason)
{
	(void)reason;
	session_end(ctx);
}

static const struct rf_vu_device_ops ops = {
	.get_config = get_config,
	.ring_started = ring_started,
	.ring_stopping = ring_stopping,
	.ring_stopped = ring_stopped,
	.ring_kicked = ring_kicked,
	.reset = reset,
	.closed = closed,
};

static void session_begin(struct fake_backend *fake, int fd)
{
	const struct fake_options *o = &fake->options;
	const struct rf_vu_device device = {
		.features = (o->no_version_1 ? 0 : BIT(VIRTIO_F_VERSION_1)) |
			    (o->no_event_idx ? 0 : BIT(VIRTIO_RING_F_EVENT_IDX)),
		.protocol_features = BIT(RF_VU_PF_REPLY_ACK) |
				     (o->queue_num ? BIT(RF_VU_PF_MQ) : 0) |
				     (o->no_config ? 0 : BIT(RF_VU_PF_CONFIG)),
		.n_rings = 3,
		.max_num = RING_NUM,
		.queue_num = o->queue_num,
		.config_bytes = sizeof(o->cid),
		.ops = &ops,
		.ctx = fake,
	};

	assert(rf_vu_session_new(fake->loop, fd, &device, &fake->counters, &fake->session) == 0);
}

static void accept_ready(struct rf_watch *watch, uint32_t events)
{
	struct fake_backend *fake = RF_CONTAINER_OF(watch, struct fake_backend, listen_watch);
	int fd = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)events;
	if (fd < 0)
		return;
	if (fake->session)
		rf_fd_close(fd);
	else
		session_begin(fake, fd);
}

/* Life. */

static void up(struct fake_backend *fake, void *arg)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	const uint64_t *cid = arg;

	fake->options.cid = *cid;
	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", fake->path);
	fake->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert(fake->listen_fd >= 0);
	assert(bind(fake->listen_fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
	assert(listen(fake->listen_fd, 8) == 0);
	fake->listen_watch.ready = accept_ready;
	assert(rf_watch_add(fake->loop, &fake->listen_watch, fake->listen_fd, EPOLLIN) == 0);
}

static void hang_up(struct fake_backend *fake, void *arg)
{
	(void)arg;
	if (fake->session)
		session_end(fake);
}

static void down(struct fake_backend *fake, void *arg)
{
	hang_up(fake, arg);
	if (fake->listen_fd < 0)
		return;
	rf_watch_remove(&fake->listen_watch);
	fake->listen_fd = rf_fd_close(fake->listen_fd);
	unlink(fake->path);
}

void fake_up(struct fake_backend *fake, uint64_t cid)
{
	fake_call(fake, up, &cid);
}

void fake_down(struct fake_backend *fake)
{
	fake_call(fake, down, NULL);
}

void fake_hang_up(struct fake_backend *fake)
{
	fake_call(fake, hang_up, NULL);
}

const char *fake_path(const struct fake_backend *fake)
{
	return fake->path;
}

struct fake_backend *fake_new(const struct fake_options *options)
{
	struct fake_backend *fake = calloc(1, sizeof(*fake));
	pthread_condattr_t attr;

	assert_non_null(fake);
	assert_int_equal(rf_mem_guard_install(), 0);
	fake->options = *options;
	fake->listen_fd = -1;
	memcpy(fake->dir, "/tmp/rf-fake-XXXXXX", sizeof("/tmp/rf-fake-XXXXXX"));
	assert_non_null(mkdtemp(fake->dir));
	snprintf(fake->path, sizeof(fake->path), "%s/s", fake->dir);
	TAILQ_INIT(&fake->packets);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&fake->cond, &attr);
	pthread_condattr_destroy(&attr);
	pthread_mutex_init(&fake->mutex, NULL);
	assert_int_equal(rf_loop_new(&fake->loop), 0);
	fake_host_init(fake);
	assert_int_equal(pthread_create(&fake->thread, NULL, run, fake), 0);
	fake_up(fake, options->cid);
	return fake;
}

void fake_forget(struct fake_backend *fake)
{
	struct fake_packet *packet;

	pthread_mutex_lock(&fake->mutex);
	while ((packet = TAILQ_FIRST(&fake->packets))) {
		TAILQ_REMOVE(&fake->packets, packet, link);
		free(packet);
	}
	pthread_mutex_unlock(&fake->mutex);
}

void fake_free(struct fake_backend *fake)
{
	fake_down(fake);
	atomic_store(&fake->quit, true);
	rf_loop_wake(fake->loop);
	pthread_join(fake->thread, NULL);
	/* Connections that were made while there was no session. */
	fake_host_reset(fake);
	rf_loop_free(fake->loop);
	fake_forget(fake);
	pthread_cond_destroy(&fake->cond);
	pthread_mutex_destroy(&fake->mutex);
	rmdir(fake->dir);
	free(fake);
}
