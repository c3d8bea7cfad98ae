/* SPDX-License-Identifier: BSD-3-Clause */
#include "device.h"

#include <endian.h>
#include <errno.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>
#include <linux/virtio_vsock.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/fd.h"

/* How long a back end may take for one answer. */
#define ANSWER_NS (5 * RF_NS_PER_SEC)

#define BIT(n) (UINT64_C(1) << (n))

/* Features without which there is no rule for the rings and no CID. */
#define NEED (BIT(VIRTIO_F_VERSION_1))
#define WANT (NEED | BIT(VIRTIO_RING_F_EVENT_IDX))
#define WANT_PROTOCOL                                                        \
	(BIT(RF_VU_PF_MQ) | BIT(RF_VU_PF_REPLY_ACK) | BIT(RF_VU_PF_CONFIG) | \
	 BIT(RF_VU_PF_CONFIGURE_MEM_SLOTS))

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

int rf_device_read_cid(struct rf_device *device)
{
	uint64_t cid;
	int r = rf_vu_front_get_config(device->front, 0, &cid, sizeof(cid));

	if (r < 0)
		return r;
	cid = le64toh(cid);
	if (!rf_vsock_cid_usable(cid))
		return -EPROTO;
	device->cid = (uint32_t)cid;
	return 0;
}

/* Everything up to the features, which shape the rings. */
static int negotiate(struct rf_device *device, uint64_t *ret_features)
{
	uint64_t protocol, features, n_rings = 2;
	int r = rf_vu_front_negotiate(device->front, WANT, NEED, WANT_PROTOCOL, &features,
				      &protocol);

	if (r < 0)
		return r;
	if (!(protocol & BIT(RF_VU_PF_CONFIG)))
		return -ENOTSUP;
	if (protocol & BIT(RF_VU_PF_MQ))
		r = rf_vu_front_get_queue_num(device->front, &n_rings);
	if (r < 0)
		return r;
	if (n_rings < 2)
		return -ENOTSUP;
	device->n_rings = n_rings > 2 ? 3 : 2;
	r = rf_device_read_cid(device);
	if (r < 0)
		return r;
	*ret_features = features;
	return rf_vu_front_set_features(device->front, features);
}

static int start_ring(struct rf_device *device, unsigned i)
{
	const struct rf_guest_mem *mem = &device->mem;
	const struct rf_vu_front_ring ring = {
		.num = mem->num[i],
		.desc = { (uintptr_t)(mem->base + mem->desc[i]) },
		.driver = { (uintptr_t)(mem->base + mem->driver[i]) },
		.device = { (uintptr_t)(mem->base + mem->device[i]) },
		.kick_fd = device->kick_fds[i],
		.call_fd = device->call_fds[i],
		.err_fd = device->err_fd,
	};

	return rf_vu_front_start_ring(device->front, i, &ring);
}

static int start(struct rf_device *device)
{
	const struct rf_mem_region region = {
		.uva = { (uintptr_t)device->mem.base },
		.size = device->mem.bytes,
	};
	int r = rf_vu_front_set_mem(device->front, &region, &device->mem.fd, 1);

	for (unsigned i = 0; r == 0 && i < device->n_rings; i++)
		r = start_ring(device, i);
	return r;
}

static int device_init(struct rf_device *device, const struct rf_device_options *options,
		       struct rf_guest_counters *counters)
{
	uint64_t features = 0;
	bool event_idx;
	int r = negotiate(device, &features);

	if (r < 0)
		return r;
	event_idx = features & BIT(VIRTIO_RING_F_EVENT_IDX);
	r = fds_init(device);
	if (r < 0)
		return r;
	r = rf_guest_mem_init(&device->mem, options->queue_size, options->rx_payload);
	if (r < 0)
		return r;
	r = rf_tx_init(&device->tx, &device->mem, event_idx, counters);
	if (r < 0)
		return r;
	r = rf_rx_init(&device->rx, &device->mem, options->rx_buf, event_idx, counters);
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
	rf_vu_front_free(device->front);
	device->front = NULL;
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

int rf_device_attach(struct rf_device_options *options, struct rf_guest_counters *counters,
		     struct rf_device_abort *abort, struct rf_device **ret_device)
{
	struct rf_device *device;
	int fd, r;

	fd = rf_fd_steal(&options->socket_fd);
	if (fd < 0)
		fd = back_end_connect(options->socket_path);
	if (fd < 0)
		return fd;
	device = device_new();
	if (!device) {
		rf_fd_close(fd);
		return -ENOMEM;
	}
	r = rf_vu_front_new(fd, ANSWER_NS, options->log, &device->front);
	if (r == 0)
		r = abort_arm(abort, fd);
	if (r == 0)
		r = device_init(device, options, counters);
	(void)abort_arm(abort, -1);
	if (r < 0) {
		rf_device_unref(device);
		return r;
	}
	*ret_device = device;
	return 0;
}
