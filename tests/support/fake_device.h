/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A split ring's device that does exactly what a test says, right or wrong: the counterpart of
 * fake_driver.h, for the driver half.
 */
#ifndef FAKE_DEVICE_H
#define FAKE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include <linux/virtio_ring.h>

/**
 * struct fake_device - A ring as the device sees it
 * @avail_idx:	Index of the first available buffer it has not read
 * @used_idx:	Index it will publish next
 */
struct fake_device {
	uint32_t num;
	struct vring_desc *desc;
	struct vring_avail *avail;
	struct vring_used *used;
	uint16_t avail_idx;
	uint16_t used_idx;
};

/* See a ring that the driver has initialised. */
void fake_device_init(struct fake_device *d, uint32_t num, void *desc, void *avail, void *used);

/* Next available head, if there is one. */
bool fake_device_next(struct fake_device *d, uint16_t *ret_head);

/* Write a used element and make it visible. */
void fake_device_use(struct fake_device *d, uint32_t id, uint32_t len);

/* The words of notification suppression. */
uint16_t *fake_device_used_event(struct fake_device *d);
uint16_t *fake_device_avail_event(struct fake_device *d);

#endif
