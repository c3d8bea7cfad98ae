/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "session_priv.h"

static struct rf_mem_region region_of(const struct rf_vu_mem_region *wire)
{
	return (struct rf_mem_region){ .gpa = { wire->gpa },
				       .uva = { wire->uva },
				       .size = wire->size,
				       .offset = wire->mmap_offset };
}

static enum rf_vu_reason add_region(struct rf_vu_session *s, const struct rf_mem_region *region,
				    int fd)
{
	int r = rf_mem_add(s->mem, region, fd);

	if (r < 0) {
		rf_log_limited(s->device.log, s->device.log_limit, RF_LOG_ERROR,
			       "memory region of 0x%llx bytes at 0x%llx: %s",
			       (unsigned long long)region->size, (unsigned long long)region->gpa.v,
			       strerror(-r));
		return r == -EINVAL || r == -EEXIST || r == -ENOSPC ? RF_VU_MEM_REGION
								    : RF_VU_MEM_MAP;
	}
	s->regions[s->n_regions++] = *region;
	return RF_VU_NONE;
}

static void remove_region(struct rf_vu_session *s, const struct rf_mem_region *region)
{
	unsigned i = 0;

	rf_mem_remove(s->mem, region);
	while (s->regions[i].gpa.v != region->gpa.v)
		i++;
	s->regions[i] = s->regions[--s->n_regions];
}

static bool covers(const struct rf_mem_region *region, struct rf_uva uva, uint64_t bytes)
{
	return uva.v >= region->uva.v && uva.v - region->uva.v < region->size &&
	       bytes <= region->size - (uva.v - region->uva.v);
}

static bool table_covers(const struct rf_vu_mem_table *table, struct rf_uva uva, uint64_t bytes)
{
	for (unsigned i = 0; i < table->n_regions; i++) {
		struct rf_mem_region region = region_of(&table->regions[i]);

		if (covers(&region, uva, bytes))
			return true;
	}
	return false;
}

/* Stop the rings that a new table leaves without memory, while they still have the old one. */
static enum rf_vu_reason stop_uncovered(struct rf_vu_session *s,
					const struct rf_vu_mem_table *table)
{
	enum rf_vu_reason reason = RF_VU_NONE;

	for (unsigned i = 0; i < s->device.n_rings; i++) {
		struct rf_vu_ring *ring = &s->rings[i];
		struct rf_ring_extent extent;

		if (!ring->running || rf_ring_extent_get(RF_RING_SPLIT, ring->num, &extent) < 0)
			continue;
		if (table_covers(table, ring->areas.desc, extent.desc_bytes) &&
		    table_covers(table, ring->areas.driver, extent.driver_bytes) &&
		    table_covers(table, ring->areas.device, extent.device_bytes))
			continue;
		ring->started = false;
		rf_vu_ring_stop(ring);
		reason = RF_VU_RING_ADDR;
	}
	return reason;
}

/*
 * Let all running rings forget what they know of guest memory and lie in a private area for the
 * moment: if the new table cannot be mapped they are stopped, and stopping may write to the ring.
 */
static bool park_rings(struct rf_vu_session *s, void **ret_area)
{
	struct rf_ring_extent extent;
	uint8_t *area = NULL;
	int r = rf_ring_extent_get(RF_RING_SPLIT, RF_RING_MAX_NUM, &extent);

	for (unsigned i = 0; i < s->device.n_rings && r >= 0; i++) {
		struct rf_vu_ring *ring = &s->rings[i];

		if (!ring->running)
			continue;
		if (!area)
			area = calloc(1, extent.desc_bytes + extent.driver_bytes +
						 extent.device_bytes + extent.device_align);
		if (!area)
			return false;
		rf_devq_forget(ring->queue);
		rf_devq_rebase(ring->queue, area, area + extent.desc_bytes,
			       area + rf_align_up(extent.desc_bytes + extent.driver_bytes,
						  extent.device_align));
	}
	*ret_area = area;
	return true;
}

static enum rf_vu_reason unpark_rings(struct rf_vu_session *s)
{
	for (unsigned i = 0; i < s->device.n_rings; i++) {
		struct rf_vu_ring *ring = &s->rings[i];
		struct rf_vu_mapped mapped;

		if (!ring->running)
			continue;
		if (!rf_vu_ring_map(ring, &ring->areas, &mapped))
			return RF_VU_MEM_MAP;
		rf_devq_rebase(ring->queue, mapped.desc, mapped.driver, mapped.device);
	}
	return RF_VU_NONE;
}

static enum rf_vu_reason replace_regions(struct rf_vu_session *s, const struct rf_vu_message *msg)
{
	enum rf_vu_reason reason = RF_VU_NONE;

	while (s->n_regions)
		rf_mem_remove(s->mem, &s->regions[--s->n_regions]);
	for (unsigned i = 0; i < msg->payload.table.n_regions && !reason; i++) {
		struct rf_mem_region region = region_of(&msg->payload.table.regions[i]);

		reason = add_region(s, &region, msg->fds[i]);
	}
	return reason;
}

enum rf_vu_reason rf_vu_set_mem_table(struct rf_vu_session *s, struct rf_vu_message *msg)
{
	enum rf_vu_reason uncovered = stop_uncovered(s, &msg->payload.table);
	enum rf_vu_reason reason;
	void *area;

	if (s->reason)
		return s->reason;
	if (!park_rings(s, &area))
		return RF_VU_MEM_MAP;
	reason = replace_regions(s, msg);
	if (!reason)
		reason = unpark_rings(s);
	/* Now, while they have an area to be stopped in. */
	if (reason)
		rf_vu_rings_stop(s);
	free(area);
	return reason ? reason : uncovered;
}

enum rf_vu_reason rf_vu_get_max_mem_slots(struct rf_vu_session *s, struct rf_vu_message *msg)
{
	(void)s;
	msg->payload.u64 = RF_MEM_MAX_REGIONS;
	msg->hdr.size = sizeof(msg->payload.u64);
	return RF_VU_NONE;
}

/* With several queue pairs, QEMU adds the same region once per pair. */
enum rf_vu_reason rf_vu_add_mem_reg(struct rf_vu_session *s, struct rf_vu_message *msg)
{
	struct rf_mem_region region = region_of(&msg->payload.single.region);

	return rf_mem_has(s->mem, &region) ? RF_VU_NONE : add_region(s, &region, msg->fds[0]);
}

static bool lies_in(const struct rf_vu_ring *ring, const struct rf_mem_region *region)
{
	return covers(region, ring->areas.desc, 1) || covers(region, ring->areas.driver, 1) ||
	       covers(region, ring->areas.device, 1);
}

enum rf_vu_reason rf_vu_rem_mem_reg(struct rf_vu_session *s, struct rf_vu_message *msg)
{
	struct rf_mem_region region = region_of(&msg->payload.single.region);

	if (!rf_mem_has(s->mem, &region))
		return RF_VU_MEM_REGION;
	for (unsigned i = 0; i < s->device.n_rings; i++)
		if (s->rings[i].running && lies_in(&s->rings[i], &region))
			return RF_VU_RING_STATE;
	for (unsigned i = 0; i < s->device.n_rings; i++)
		if (s->rings[i].running)
			rf_devq_forget(s->rings[i].queue);
	remove_region(s, &region);
	return RF_VU_NONE;
}
