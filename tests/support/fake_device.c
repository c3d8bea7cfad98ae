/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_device.h"

void fake_device_init(struct fake_device *d, uint32_t num, void *desc, void *avail, void *used)
{
	*d = (struct fake_device){ .num = num, .desc = desc, .avail = avail, .used = used };
}

bool fake_device_next(struct fake_device *d, uint16_t *ret_head)
{
	if (__atomic_load_n(&d->avail->idx, __ATOMIC_SEQ_CST) == d->avail_idx)
		return false;
	*ret_head = d->avail->ring[d->avail_idx++ % d->num];
	return true;
}

void fake_device_use(struct fake_device *d, uint32_t id, uint32_t len)
{
	d->used->ring[d->used_idx++ % d->num] = (struct vring_used_elem){ .id = id, .len = len };
	__atomic_store_n(&d->used->idx, d->used_idx, __ATOMIC_SEQ_CST);
}

uint16_t *fake_device_used_event(struct fake_device *d)
{
	return &d->avail->ring[d->num];
}

uint16_t *fake_device_avail_event(struct fake_device *d)
{
	return (uint16_t *)(void *)&d->used->ring[d->num];
}
