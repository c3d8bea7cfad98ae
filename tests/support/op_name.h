/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The names of vsock operations, for what a failing test says.
 */
#ifndef OP_NAME_H
#define OP_NAME_H

#include <linux/virtio_vsock.h>
#include <stdint.h>

/* "?" for an unknown operation. */
static inline const char *op_name(uint16_t op)
{
	static const char *const names[] = {
		[VIRTIO_VSOCK_OP_INVALID] = "?",
		[VIRTIO_VSOCK_OP_REQUEST] = "request",
		[VIRTIO_VSOCK_OP_RESPONSE] = "response",
		[VIRTIO_VSOCK_OP_RST] = "rst",
		[VIRTIO_VSOCK_OP_SHUTDOWN] = "shutdown",
		[VIRTIO_VSOCK_OP_RW] = "rw",
		[VIRTIO_VSOCK_OP_CREDIT_UPDATE] = "credit_update",
		[VIRTIO_VSOCK_OP_CREDIT_REQUEST] = "credit_request",
	};

	return op < sizeof(names) / sizeof(names[0]) ? names[op] : "?";
}

#endif
