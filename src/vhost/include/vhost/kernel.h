/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernel's own vsock back end: /dev/vhost-vsock (module vhost_vsock), driven by ioctl().
 *
 * The kernel reads and writes the memory of the process that made the device its own, so nothing is
 * shared by descriptor; it serves two rings, from rf_vhost_kernel_run() until the device is closed.
 * It never goes away by itself.
 *
 * Context: one thread at a time, all of one process.
 */
#ifndef RF_VHOST_KERNEL_H
#define RF_VHOST_KERNEL_H

#include <stdint.h>

#include "base/log.h"
#include "ring/mem.h"
#include "vhost/vring.h"

/* Rings that the kernel serves: receive and transmit. */
#define RF_VHOST_KERNEL_RINGS 2u

struct rf_vhost_kernel;

/**
 * rf_vhost_kernel_open() - Open a device and make it this process's
 * @path:	The device
 * @log:	Log, or NULL; borrowed
 *
 * Return: 0; -ENOENT if there is no such file, -ENODEV or -ENXIO if nothing is behind it (is the
 * module loaded?), -EACCES; -ENOTSUP if it is something else; or another -errno.
 */
int rf_vhost_kernel_open(const char *path, const struct rf_log *log,
			 struct rf_vhost_kernel **ret_kernel);

/* Stop the rings and close the device: no memory is touched after that. NULL may be given. */
void rf_vhost_kernel_close(struct rf_vhost_kernel *kernel);

/**
 * rf_vhost_kernel_negotiate() - Agree on features
 * @want:	Virtio features wanted if offered
 * @need:	Virtio features without which to give up
 * @ret_features: Those agreed on
 *
 * What is not asked for is not accepted: with VIRTIO_F_ACCESS_PLATFORM, which the kernel offers,
 * it would ask for the translation of every address.
 *
 * Return: 0, -ENOTSUP if a needed feature is not offered, or another -errno.
 */
int rf_vhost_kernel_negotiate(struct rf_vhost_kernel *kernel, uint64_t want, uint64_t need,
			      uint64_t *ret_features);

/**
 * rf_vhost_kernel_set_cid() - Ask for a CID
 * Return: 0; -EADDRINUSE if another guest has it; -EINVAL if no guest may; -ENOTSUP if this is no
 * vsock device; or another -errno.
 */
int rf_vhost_kernel_set_cid(struct rf_vhost_kernel *kernel, uint64_t cid);

/* Tell of memory of this process; @offset does not count. Return: 0, or -errno. */
int rf_vhost_kernel_set_mem(struct rf_vhost_kernel *kernel, const struct rf_mem_region *region);

/* Tell of a ring, before it runs. Return: 0, or -errno. */
int rf_vhost_kernel_set_ring(struct rf_vhost_kernel *kernel, unsigned index,
			     const struct rf_vhost_vring *ring);

/* Start both rings. Return: 0, or -errno. */
int rf_vhost_kernel_run(struct rf_vhost_kernel *kernel);

#endif
