/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A kernel with a vsock back end, for what calls it by ioctl(): as strict as the real one, and
 * ready to refuse any call. Nothing serves the rings; a test may (fake_device.h).
 *
 * Linked with --wrap for open64 and ioctl. One kernel per process, with one device open at a time.
 */
#ifndef FAKE_KERNEL_H
#define FAKE_KERNEL_H

#include <linux/vhost.h>
#include <stdbool.h>
#include <stdint.h>

#define FAKE_KERNEL_PATH "/nowhere/vhost-vsock"

/* What Linux 6.1 and 6.12 offer, bit 33 (addresses to be translated) included. */
#define FAKE_KERNEL_FEATURES UINT64_C(0x33d000002)

/* A CID that another guest has. */
#define FAKE_KERNEL_TAKEN_CID 77u

#define FAKE_KERNEL_RINGS 2u

/* Calls that are remembered, the first open() included. */
#define FAKE_KERNEL_CALLS 64u

/* Stands for open() among requests. */
#define FAKE_KERNEL_OPEN 0ul

/**
 * struct fake_kernel - What the kernel knows
 * @offered:	Features; 0 for FAKE_KERNEL_FEATURES
 * @fail_at:	Call to refuse, counted from 1 by fake_kernel_reset(); 0 for none
 * @fail_errno:	How; 0 for EIO
 * @calls, @n_calls: Requests so far, refused ones included
 * @opened, @owned, @running: Times it was opened; is it somebody's; do the rings run
 * @features, @cid, @region: What it was told
 * @rings:	And of the rings
 */
struct fake_kernel {
	uint64_t offered;
	unsigned fail_at;
	int fail_errno;
	unsigned long calls[FAKE_KERNEL_CALLS];
	unsigned n_calls;
	unsigned opened;
	bool owned, running;
	uint64_t features, cid;
	struct vhost_memory_region region;
	struct {
		unsigned num, base;
		struct vhost_vring_addr addr;
		int kick_fd, call_fd, err_fd;
	} rings[FAKE_KERNEL_RINGS];
};

/* Forget everything; @start has what the test wants of it, or is NULL. */
void fake_kernel_reset(const struct fake_kernel *start);

/* A copy of what it knows now. */
struct fake_kernel fake_kernel_state(void);

/* From now on, refuse call number @at, counted from the next one as 1; 0 for none. */
void fake_kernel_refuse(unsigned at, int error);

#endif
