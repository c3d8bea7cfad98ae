/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The way to a back end: how features are agreed on, memory is shared and rings are started.
 * transport_user.c goes over a vhost-user socket, transport_kernel.c to the kernel's device.
 *
 * Context: one thread at a time.
 */
#ifndef RF_GUEST_TRANSPORT_H
#define RF_GUEST_TRANSPORT_H

#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"
#include "ring/mem.h"
#include "vhost/vring.h"

/* Features without which there is no rule for the rings, and those that are wanted. */
#define RF_TRANSPORT_NEED (UINT64_C(1) << VIRTIO_F_VERSION_1)
#define RF_TRANSPORT_WANT (RF_TRANSPORT_NEED | UINT64_C(1) << VIRTIO_RING_F_EVENT_IDX)

/* Receive and transmit. */
#define RF_TRANSPORT_MIN_RINGS 2u

/**
 * struct rf_transport - A way to a back end
 * @fd:		Socket to watch for hang-up, or -1 if the back end cannot go away
 */
struct rf_transport {
	const struct rf_transport_ops *ops;
	int fd;
};

/**
 * struct rf_transport_terms - What was agreed on with a back end
 * @features:	Features
 * @n_rings:	Rings it serves, RF_TRANSPORT_MIN_RINGS at least
 * @cid:	The guest's CID; any number that it gave
 */
struct rf_transport_terms {
	uint64_t features;
	unsigned n_rings;
	uint64_t cid;
};

/**
 * struct rf_transport_ops - What differs between transports
 * @negotiate:	Agree on everything that shapes the rings
 * @get_cid:	Ask for the CID again
 * @start:	Share the memory, one region of file @mem_fd, and start the rings that lie in it
 * @free:	End it; the back end touches no memory of ours after that, if it is sound
 * @any_tx_len:	It may say that it wrote to transmit buffers
 *
 * Return, where something can fail: 0, or -errno as of rf_device_attach().
 */
struct rf_transport_ops {
	int (*negotiate)(struct rf_transport *transport, struct rf_transport_terms *ret_terms);
	int (*get_cid)(struct rf_transport *transport, uint64_t *ret_cid);
	int (*start)(struct rf_transport *transport, const struct rf_mem_region *region, int mem_fd,
		     const struct rf_vhost_vring *rings, unsigned n_rings);
	void (*free)(struct rf_transport *transport);
	bool any_tx_len;
};

/* Take over a socket that is connected to a back end, also on failure. Return: 0, or -errno. */
int rf_transport_user_new(int fd, const struct rf_log *log, struct rf_transport **ret_transport);

/* Open the kernel's device to be the guest with this CID. Return: 0, or -errno. */
int rf_transport_kernel_new(const char *path, uint32_t cid, const struct rf_log *log,
			    struct rf_transport **ret_transport);

#endif
