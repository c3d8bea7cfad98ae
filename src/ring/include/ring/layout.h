/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What both halves of a virtqueue are told: how a ring is laid out, where it lies and what was
 * negotiated for it.
 */
#ifndef RF_RING_LAYOUT_H
#define RF_RING_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

/* virtio 1.2 2.7: the largest split ring. */
#define RF_RING_MAX_NUM 32768

enum rf_ring_layout {
	RF_RING_SPLIT,
};

/**
 * struct rf_ring_config - Where a ring lies and how it was negotiated
 * @layout:	Ring layout
 * @num:	Ring size, a power of two up to RF_RING_MAX_NUM for split rings
 * @base:	Device side: index of the next available buffer (SET_VRING_BASE)
 * @event_idx:	VIRTIO_F_EVENT_IDX was negotiated
 * @indirect:	Device side: VIRTIO_F_INDIRECT_DESC was negotiated
 * @desc:	Descriptor table, in our address space, aligned and as long as rf_ring_extent_get()
 *		says
 * @driver:	Driver area: available ring
 * @device:	Device area: used ring
 */
struct rf_ring_config {
	enum rf_ring_layout layout;
	uint32_t num;
	uint16_t base;
	bool event_idx;
	bool indirect;
	void *desc;
	void *driver;
	void *device;
};

/**
 * struct rf_ring_extent - Bytes and alignment of the three areas of a ring
 */
struct rf_ring_extent {
	uint64_t desc_bytes, driver_bytes, device_bytes;
	uint32_t desc_align, driver_align, device_align;
};

/**
 * rf_ring_extent_get() - How large the areas of a ring are (virtio 1.2 2.7)
 * Return: 0, or -EINVAL if @num is not allowed for @layout.
 */
int rf_ring_extent_get(enum rf_ring_layout layout, uint32_t num, struct rf_ring_extent *ret_extent);

#endif
