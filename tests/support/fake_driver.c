/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_driver.h"

#include <string.h>

void fake_driver_init(struct fake_driver *d, uint32_t num, void *desc, void *avail, void *used,
		      uint16_t start)
{
	*d = (struct fake_driver){
		.num = num,
		.desc = desc,
		.avail = avail,
		.used = used,
		.avail_idx = start,
		.published = start,
		.used_idx = start,
	};
	memset(desc, 0, num * sizeof(struct vring_desc));
	memset(avail, 0, 6 + 2 * (size_t)num);
	memset(used, 0, 6 + 8 * (size_t)num);
	d->avail->idx = start;
	d->used->idx = start;
}

void fake_desc(struct vring_desc *desc, uint64_t gpa, uint32_t len, uint16_t flags, uint16_t next)
{
	*desc = (struct vring_desc){ .addr = gpa, .len = len, .flags = flags, .next = next };
}

void fake_driver_put(struct fake_driver *d, uint16_t head)
{
	d->avail->ring[d->avail_idx++ % d->num] = head;
}

/* Would a walk over the published indices meet the event index? */
static bool passes(uint16_t old, uint16_t new, uint16_t event)
{
	for (; old != new; old++) {
		if (old == event)
			return true;
	}
	return false;
}

bool fake_driver_publish(struct fake_driver *d)
{
	uint16_t old = d->published;

	__atomic_store_n(&d->avail->idx, d->avail_idx, __ATOMIC_SEQ_CST);
	d->published = d->avail_idx;
	__atomic_fetch_or(&d->avail_idx, 0, __ATOMIC_SEQ_CST);
	return passes(old, d->published,
		      __atomic_load_n(fake_driver_avail_event(d), __ATOMIC_SEQ_CST));
}

bool fake_driver_offer(struct fake_driver *d, uint16_t head)
{
	fake_driver_put(d, head);
	return fake_driver_publish(d);
}

bool fake_driver_get(struct fake_driver *d, uint32_t *ret_id, uint32_t *ret_len)
{
	const struct vring_used_elem *elem = &d->used->ring[d->used_idx % d->num];

	if (__atomic_load_n(&d->used->idx, __ATOMIC_SEQ_CST) == d->used_idx)
		return false;
	*ret_id = elem->id;
	*ret_len = elem->len;
	d->used_idx++;
	return true;
}

uint16_t *fake_driver_used_event(struct fake_driver *d)
{
	return &d->avail->ring[d->num];
}

uint16_t *fake_driver_avail_event(struct fake_driver *d)
{
	return (uint16_t *)(void *)&d->used->ring[d->num];
}
