/* SPDX-License-Identifier: BSD-3-Clause */
#include "vhost/kernel.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/vhost.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/fd.h"

/*
 * @running:	The kernel serves the rings
 */
struct rf_vhost_kernel {
	int fd;
	const struct rf_log *log;
	bool running;
};

static int control(struct rf_vhost_kernel *k, unsigned long request, void *arg, const char *name)
{
	int r;

	if (ioctl(k->fd, request, arg) == 0)
		return 0;
	/* What is no such device knows no such request. */
	r = errno == ENOTTY ? -ENOTSUP : -errno;
	rf_log(k->log, RF_LOG_INFO, "the kernel refuses %s: %s", name, strerror(-r));
	return r;
}

#define CONTROL(k, request, arg) control(k, request, arg, #request)

int rf_vhost_kernel_open(const char *path, const struct rf_log *log,
			 struct rf_vhost_kernel **ret_kernel)
{
	struct rf_vhost_kernel *k = calloc(1, sizeof(*k));
	int r;

	if (!k)
		return -ENOMEM;
	k->log = log;
	k->fd = open(path, O_RDWR | O_CLOEXEC);
	r = k->fd < 0 ? -errno : CONTROL(k, VHOST_SET_OWNER, NULL);
	if (r < 0) {
		rf_vhost_kernel_close(k);
		return r;
	}
	*ret_kernel = k;
	return 0;
}

void rf_vhost_kernel_close(struct rf_vhost_kernel *k)
{
	int running = 0;

	if (!k)
		return;
	/* A child of fork() may have the device open for longer. */
	if (k->running)
		(void)CONTROL(k, VHOST_VSOCK_SET_RUNNING, &running);
	rf_fd_close(k->fd);
	free(k);
}

int rf_vhost_kernel_negotiate(struct rf_vhost_kernel *k, uint64_t want, uint64_t need,
			      uint64_t *ret_features)
{
	uint64_t features;
	int r = CONTROL(k, VHOST_GET_FEATURES, &features);

	if (r < 0)
		return r;
	if (need & ~features)
		return -ENOTSUP;
	features &= want | need;
	r = CONTROL(k, VHOST_SET_FEATURES, &features);
	if (r == 0)
		*ret_features = features;
	return r;
}

int rf_vhost_kernel_set_cid(struct rf_vhost_kernel *k, uint64_t cid)
{
	return CONTROL(k, VHOST_VSOCK_SET_GUEST_CID, &cid);
}

int rf_vhost_kernel_set_mem(struct rf_vhost_kernel *k, const struct rf_mem_region *region)
{
	union {
		struct vhost_memory table;
		uint8_t bytes[sizeof(struct vhost_memory) + sizeof(struct vhost_memory_region)];
	} mem = { .table.nregions = 1 };

	mem.table.regions[0] = (struct vhost_memory_region){
		.guest_phys_addr = region->gpa.v,
		.memory_size = region->size,
		.userspace_addr = region->uva.v,
	};
	return CONTROL(k, VHOST_SET_MEM_TABLE, &mem);
}

int rf_vhost_kernel_set_ring(struct rf_vhost_kernel *k, unsigned index,
			     const struct rf_vhost_vring *ring)
{
	struct vhost_vring_state num = { index, ring->num }, base = { index, ring->base };
	struct vhost_vring_addr addr = {
		.index = index,
		.desc_user_addr = ring->desc.v,
		.used_user_addr = ring->device.v,
		.avail_user_addr = ring->driver.v,
	};
	struct vhost_vring_file kick = { index, ring->kick_fd }, call = { index, ring->call_fd },
				err = { index, ring->err_fd };
	int r;

	assert(index < RF_VHOST_KERNEL_RINGS && !k->running);
	r = CONTROL(k, VHOST_SET_VRING_NUM, &num);
	if (r == 0)
		r = CONTROL(k, VHOST_SET_VRING_BASE, &base);
	if (r == 0)
		r = CONTROL(k, VHOST_SET_VRING_ADDR, &addr);
	if (r == 0)
		r = CONTROL(k, VHOST_SET_VRING_CALL, &call);
	if (r == 0 && ring->err_fd >= 0)
		r = CONTROL(k, VHOST_SET_VRING_ERR, &err);
	if (r == 0)
		r = CONTROL(k, VHOST_SET_VRING_KICK, &kick);
	return r;
}

int rf_vhost_kernel_run(struct rf_vhost_kernel *k)
{
	int running = 1;
	int r = CONTROL(k, VHOST_VSOCK_SET_RUNNING, &running);

	k->running = r == 0;
	return r;
}
