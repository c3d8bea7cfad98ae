/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "vsock/limits.h"

#define CACHE 64u
/* Whole pages on every machine. */
#define REGION 65536u

/* Reserve @n pieces of @bytes each; returns the offset of the first. */
static size_t carve(struct rf_guest_mem *mem, size_t n, size_t bytes, size_t align)
{
	size_t at = rf_align_up(mem->bytes, align);

	mem->bytes = at + n * bytes;
	return at;
}

static int lay_out(struct rf_guest_mem *mem)
{
	for (unsigned i = 0; i < RF_GUEST_N_RINGS; i++) {
		struct rf_ring_extent extent;
		int r = rf_ring_extent_get(RF_RING_SPLIT, mem->num[i], &extent);

		if (r < 0)
			return r;
		mem->desc[i] = carve(mem, 1, extent.desc_bytes, RF_GUEST_PAGE);
		/* What one side writes shares no cache line with what the other writes. */
		mem->driver[i] = carve(mem, 1, extent.driver_bytes, CACHE);
		mem->device[i] = carve(mem, 1, extent.device_bytes, CACHE);
	}
	mem->data_stride = RF_GUEST_PAYLOAD_AT + RF_VSOCK_MAX_PAYLOAD;
	mem->rx_stride = rf_align_up(RF_GUEST_PAYLOAD_AT + mem->rx_payload, RF_GUEST_PAGE);
	mem->events = carve(mem, RF_GUEST_EVENTS, RF_GUEST_EVENT_BYTES, CACHE);
	mem->control = carve(mem, mem->n_control, RF_GUEST_PAYLOAD_AT, RF_GUEST_PAGE);
	mem->data = carve(mem, mem->n_data, mem->data_stride, RF_GUEST_PAGE);
	mem->rx = carve(mem, mem->n_rx, mem->rx_stride, RF_GUEST_PAGE);
	mem->bytes = rf_align_up(mem->bytes, REGION);
	return 0;
}

static int map(struct rf_guest_mem *mem)
{
	void *base;

	mem->fd = memfd_create("ringferry-guest", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (mem->fd < 0)
		return -errno;
	/* Sealed: the back end cannot take memory away under our feet. */
	if (ftruncate(mem->fd, (off_t)mem->bytes) < 0 ||
	    fcntl(mem->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return -errno;
	base = mmap(NULL, mem->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, mem->fd, 0);
	if (base == MAP_FAILED)
		return -errno;
	mem->base = base;
	return 0;
}

int rf_guest_mem_init(struct rf_guest_mem *mem, uint32_t queue_size, uint32_t rx_payload)
{
	uint32_t n_control = queue_size / 8 ? queue_size / 8 : 1;
	int r;

	assert(rf_is_power_of_2(queue_size) && queue_size >= 2);
	*mem = (struct rf_guest_mem){
		.fd = -1,
		.num = { queue_size, queue_size, rf_min_u32(queue_size, RF_GUEST_EVENTS) },
		.n_control = n_control,
		.n_data = 2 * (queue_size - n_control),
		.max_data = queue_size - n_control,
		.n_rx = 2 * queue_size,
		.rx_payload = rx_payload,
	};
	r = lay_out(mem);
	if (r == 0)
		r = map(mem);
	if (r < 0)
		rf_guest_mem_fini(mem);
	return r;
}

int rf_guest_mem_give_back(const struct rf_guest_mem *mem, uint8_t *at, size_t bytes)
{
	assert((size_t)(at - mem->base) % RF_GUEST_PAGE == 0 && bytes % RF_GUEST_PAGE == 0);
	if (fallocate(mem->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at - mem->base,
		      (off_t)bytes) < 0)
		return -errno;
	return 0;
}

uint64_t rf_guest_mem_resident(const struct rf_guest_mem *mem)
{
	struct stat st;

	/* In units of 512 bytes, whatever the file system. */
	return fstat(mem->fd, &st) < 0 ? 0 : (uint64_t)st.st_blocks * 512;
}

void rf_guest_mem_fini(struct rf_guest_mem *mem)
{
	if (mem->base)
		munmap(mem->base, mem->bytes);
	mem->base = NULL;
	mem->fd = rf_fd_close(mem->fd);
}
