/* SPDX-License-Identifier: BSD-3-Clause */
#include "device.h"

#include <endian.h>
#include <errno.h>
#include <linux/virtio_vsock.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/fd.h"

static int back_end_connect(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	RF_AUTO_FD int fd = -1;

	size_t len = strlen(path);

	if (len >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;
	memcpy(addr.sun_path, path, len);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0)
		return -errno;
	return rf_fd_steal(&fd);
}

static int fds_init(struct rf_device *device)
{
	int *const fds[] = { &device->kick_fds[0], &device->kick_fds[1], &device->kick_fds[2],
			     &device->call_fds[0], &device->call_fds[1], &device->call_fds[2],
			     &device->err_fd };

	for (size_t i = 0; i < RF_ARRAY_SIZE(fds); i++) {
		*fds[i] = rf_eventfd_new();
		if (*fds[i] < 0)
			return *fds[i];
	}
	return 0;
}

static uint8_t *event_at(const struct rf_device *device, uint32_t i)
{
	return device->mem.base + device->mem.events + (size_t)i * RF_GUEST_EVENT_BYTES;
}

static void event_post(struct rf_device *device, uint8_t *at)
{
	struct rf_drvq_piece piece = { rf_guest_mem_gpa(&device->mem, at), RF_GUEST_EVENT_BYTES };

	/* Fails only on a broken ring. */
	(void)rf_drvq_add(device->event_q, &piece, 0, 1, at);
}

static int event_init(struct rf_device *device, bool event_idx)
{
	const struct rf_ring_config ring =
		rf_guest_mem_ring(&device->mem, RF_GUEST_EVENT, event_idx);
	int r = rf_drvq_new(&ring, &device->event_q);

	if (r < 0)
		return r;
	for (uint32_t i = 0; i < device->mem.num[RF_GUEST_EVENT]; i++)
		event_post(device, event_at(device, i));
	rf_drvq_publish(device->event_q);
	rf_drvq_arm(device->event_q);
	return 0;
}

bool rf_device_event(struct rf_device *device, bool *ret_reset)
{
	uint32_t len, id;
	uint8_t *at;

	do {
		at = rf_drvq_get(device->event_q, &len);
	} while (!at && rf_drvq_arm(device->event_q) && !rf_drvq_broken(device->event_q));
	if (!at)
		return false;
	memcpy(&id, at, sizeof(id));
	if (len == RF_GUEST_EVENT_BYTES && le32toh(id) == VIRTIO_VSOCK_EVENT_TRANSPORT_RESET)
		*ret_reset = true;
	event_post(device, at);
	if (rf_drvq_publish(device->event_q))
		rf_eventfd_signal_peer(device->kick_fds[RF_GUEST_EVENT]);
	return true;
}

static int take_cid(struct rf_device *device, uint64_t cid)
{
	if (!rf_vsock_cid_usable(cid))
		return -EPROTO;
	device->cid = (uint32_t)cid;
	return 0;
}

int rf_device_read_cid(struct rf_device *device)
{
	uint64_t cid;
	int r = device->transport->ops->get_cid(device->transport, &cid);

	return r < 0 ? r : take_cid(device, cid);
}

static struct rf_vhost_vring ring_of(const struct rf_device *device, unsigned i)
{
	const struct rf_guest_mem *mem = &device->mem;

	return (struct rf_vhost_vring){
		.num = mem->num[i],
		.desc = { (uintptr_t)(mem->base + mem->desc[i]) },
		.driver = { (uintptr_t)(mem->base + mem->driver[i]) },
		.device = { (uintptr_t)(mem->base + mem->device[i]) },
		.kick_fd = device->kick_fds[i],
		.call_fd = device->call_fds[i],
		.err_fd = device->err_fd,
	};
}

static int start(struct rf_device *device)
{
	const struct rf_mem_region region = {
		.uva = { (uintptr_t)device->mem.base },
		.size = device->mem.bytes,
	};
	struct rf_vhost_vring rings[RF_GUEST_N_RINGS];

	for (unsigned i = 0; i < device->n_rings; i++)
		rings[i] = ring_of(device, i);
	return device->transport->ops->start(device->transport, &region, device->mem.fd, rings,
					     device->n_rings);
}

static int device_init(struct rf_device *device, const struct rf_device_options *options,
		       struct rf_guest_counters *counters)
{
	struct rf_transport *transport = device->transport;
	struct rf_transport_terms terms;
	bool event_idx;
	int r = transport->ops->negotiate(transport, &terms);

	if (r == 0)
		r = take_cid(device, terms.cid);
	if (r < 0)
		return r;
	device->n_rings = terms.n_rings > RF_GUEST_EVENT ? RF_GUEST_N_RINGS : RF_GUEST_EVENT;
	event_idx = terms.features & UINT64_C(1) << VIRTIO_RING_F_EVENT_IDX;
	r = fds_init(device);
	if (r < 0)
		return r;
	r = rf_guest_mem_init(&device->mem, options->queue_size, options->rx_payload);
	if (r < 0)
		return r;
	r = rf_tx_init(&device->tx, &device->mem,
		       &(struct rf_tx_config){ event_idx, options->switches->direct_tx }, counters);
	if (r < 0)
		return r;
	if (transport->ops->any_tx_len)
		rf_drvq_allow_any_len(device->tx.q);
	r = rf_rx_init(&device->rx, &device->mem, options->switches->rx_buf, event_idx, counters);
	if (r < 0)
		return r;
	if (device->n_rings > RF_GUEST_EVENT)
		r = event_init(device, event_idx);
	if (r < 0)
		return r;
	return start(device);
}

static struct rf_device *device_new(void)
{
	struct rf_device *device = calloc(1, sizeof(*device));

	if (!device)
		return NULL;
	device->refs = 1;
	device->mem.fd = -1;
	device->err_fd = -1;
	for (unsigned i = 0; i < RF_GUEST_N_RINGS; i++)
		device->kick_fds[i] = device->call_fds[i] = -1;
	return device;
}

void rf_device_ref(struct rf_device *device)
{
	atomic_fetch_add_explicit(&device->refs, 1, memory_order_relaxed);
}

void rf_device_detach(struct rf_device *device)
{
	if (device->transport)
		device->transport->ops->free(device->transport);
	device->transport = NULL;
}

void rf_device_unref(struct rf_device *device)
{
	if (!device || atomic_fetch_sub_explicit(&device->refs, 1, memory_order_acq_rel) > 1)
		return;
	rf_device_detach(device);
	rf_drvq_free(device->event_q);
	rf_rx_fini(&device->rx);
	rf_tx_fini(&device->tx);
	rf_guest_mem_fini(&device->mem);
	for (unsigned i = 0; i < RF_GUEST_N_RINGS; i++) {
		rf_fd_close(device->kick_fds[i]);
		rf_fd_close(device->call_fds[i]);
	}
	rf_fd_close(device->err_fd);
	free(device);
}

static int abort_arm(struct rf_device_abort *abort, int fd)
{
	bool aborted;

	pthread_mutex_lock(&abort->mutex);
	aborted = abort->aborted;
	abort->fd = aborted ? -1 : fd;
	pthread_mutex_unlock(&abort->mutex);
	return aborted ? -ECANCELED : 0;
}

void rf_device_abort(struct rf_device_abort *abort)
{
	pthread_mutex_lock(&abort->mutex);
	abort->aborted = true;
	if (abort->fd >= 0)
		shutdown(abort->fd, SHUT_RDWR);
	pthread_mutex_unlock(&abort->mutex);
}

static int transport_new(struct rf_device_options *options, struct rf_transport **ret_transport)
{
	int fd;

	if (options->kernel_cid)
		return rf_transport_kernel_new(options->path, options->kernel_cid, options->log,
					       ret_transport);
	fd = rf_fd_steal(&options->socket_fd);
	if (fd < 0)
		fd = back_end_connect(options->path);
	return fd < 0 ? fd : rf_transport_user_new(fd, options->log, ret_transport);
}

int rf_device_attach(struct rf_device_options *options, struct rf_guest_counters *counters,
		     struct rf_device_abort *abort, struct rf_device **ret_device)
{
	struct rf_device *device;
	int r;

	device = device_new();
	if (!device)
		return -ENOMEM;
	r = transport_new(options, &device->transport);
	if (r == 0) {
		r = abort_arm(abort, device->transport->fd);
		if (r == 0)
			r = device_init(device, options, counters);
		(void)abort_arm(abort, -1);
	}
	if (r < 0) {
		rf_device_unref(device);
		return r;
	}
	*ret_device = device;
	return 0;
}
