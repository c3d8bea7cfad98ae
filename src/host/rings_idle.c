/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rings on which the guest has left nothing. While the loop polls they are looked at, and the guest
 * is asked to kick only before the loop sleeps.
 */
#include "vsock_host.h"

static struct rf_devq *empty_ring(const struct rf_vsock_device *device, unsigned ring)
{
	return device->empty[ring] ? rf_vu_session_queue(device->session, ring) : NULL;
}

static bool rings_peek(struct rf_idle *idle)
{
	struct rf_vsock_device *device = RF_CONTAINER_OF(idle, struct rf_vsock_device, idle);
	unsigned ring;

	for (ring = RING_TO_GUEST; ring <= RING_FROM_GUEST; ring++) {
		const struct rf_devq *q = empty_ring(device, ring);

		if (q && rf_devq_peek(q)) {
			rf_device_wake(device);
			return true;
		}
	}
	return false;
}

static bool rings_arm(struct rf_idle *idle)
{
	struct rf_vsock_device *device = RF_CONTAINER_OF(idle, struct rf_vsock_device, idle);
	bool more = false;
	unsigned ring;

	for (ring = RING_TO_GUEST; ring <= RING_FROM_GUEST; ring++) {
		struct rf_devq *q = empty_ring(device, ring);

		more |= q && rf_devq_arm(q);
	}
	rf_rings_idle_forget(device);
	if (more)
		rf_device_wake(device);
	return more;
}

void rf_rings_idle_init(struct rf_vsock_device *device)
{
	device->idle.peek = rings_peek;
	device->idle.arm = rings_arm;
}

void rf_rings_idle_forget(struct rf_vsock_device *device)
{
	device->empty[RING_TO_GUEST] = device->empty[RING_FROM_GUEST] = false;
}

bool rf_ring_empty(struct rf_vsock_device *device, unsigned ring)
{
	if (!rf_loop_polling(device->loop))
		return rf_devq_arm(rf_vu_session_queue(device->session, ring));
	device->empty[ring] = true;
	rf_idle_queue(device->loop, &device->idle);
	return false;
}
