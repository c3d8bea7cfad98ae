/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A split ring's driver that does exactly what a test says, right or wrong: it pokes raw ring
 * memory and checks nothing. It shares no code with src/ring.
 */
#ifndef FAKE_DRIVER_H
#define FAKE_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

#include <linux/virtio_ring.h>

/**
 * struct fake_driver - A ring as the driver sees it
 * @avail_idx:	Index it will publish next
 * @published:	Index it published last
 * @used_idx:	Index of the first used element it has not read
 */
struct fake_driver {
	uint32_t num;
	struct vring_desc *desc;
	struct vring_avail *avail;
	struct vring_used *used;
	uint16_t avail_idx;
	uint16_t published;
	uint16_t used_idx;
};

/* Take over three areas of a ring, which are zeroed; all indices start at @start. */
void fake_driver_init(struct fake_driver *d, uint32_t num, void *desc, void *avail, void *used,
		      uint16_t start);

/* Write a descriptor, of the ring's table or of an indirect one. */
void fake_desc(struct vring_desc *desc, uint64_t gpa, uint32_t len, uint16_t flags, uint16_t next);

/* Put a head onto the available ring, not yet visible. */
void fake_driver_put(struct fake_driver *d, uint16_t head);

/* Make what was put visible; tells whether the event index asks for a kick. */
bool fake_driver_publish(struct fake_driver *d);

/* Both in one. */
bool fake_driver_offer(struct fake_driver *d, uint16_t head);

/* Next used element, if there is one. */
bool fake_driver_get(struct fake_driver *d, uint32_t *ret_id, uint32_t *ret_len);

/* The words of notification suppression. */
uint16_t *fake_driver_used_event(struct fake_driver *d);
uint16_t *fake_driver_avail_event(struct fake_driver *d);

#endif
