/* SPDX-License-Identifier: BSD-3-Clause */
#include <assert.h>
#include <errno.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "ring/mem.h"

#include "mem_priv.h"
#include "ring_word.h"

int rf_mem_new(struct rf_mem **ret_mem)
{
	struct rf_mem *mem = calloc(1, sizeof(*mem));

	if (!mem)
		return -ENOMEM;
	mem->max_piece = SIZE_MAX;
	*ret_mem = mem;
	return 0;
}

static void mapping_drop(struct rf_mem_mapping *m)
{
	rf_guard_remove(m->range);
	(void)munmap(m->map_start, m->map_bytes);
}

void rf_mem_free(struct rf_mem *mem)
{
	if (!mem)
		return;
	for (unsigned i = 0; i < mem->n; i++)
		mapping_drop(&mem->mappings[i]);
	free(mem);
}

static bool ranges_overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes)
{
	return a < b + b_bytes && b < a + a_bytes;
}

static int region_check(const struct rf_mem *mem, const struct rf_mem_region *region)
{
	uint64_t end;

	if (!region->size || !rf_add_u64(region->gpa.v, region->size, &end) ||
	    !rf_add_u64(region->uva.v, region->size, &end) ||
	    !rf_add_u64(region->offset, region->size, &end))
		return -EINVAL;
	for (unsigned i = 0; i < mem->n; i++) {
		const struct rf_mem_mapping *m = &mem->mappings[i];

		if (ranges_overlap(region->gpa.v, region->size, m->span.gpa, m->span.bytes) ||
		    ranges_overlap(region->uva.v, region->size, m->uva, m->span.bytes))
			return -EEXIST;
	}
	return mem->n == RF_MEM_MAX_REGIONS ? -ENOSPC : 0;
}

/* Is the file one that can be mapped, and long enough? Tells its page size. */
static int file_check(int fd, uint64_t end, uint64_t *ret_page_bytes)
{
	struct statfs fs;
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if ((uint64_t)st.st_size < end)
		return -ERANGE;
	do
		r = fstatfs(fd, &fs);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return -errno;
	/* st_blksize would not do: elsewhere it is a hint about I/O, 1 MiB on some file systems. */
	*ret_page_bytes =
		(uint64_t)(fs.f_type == HUGETLBFS_MAGIC ? fs.f_bsize : sysconf(_SC_PAGESIZE));
	return 0;
}

static int mapping_make(struct rf_mem *mem, const struct rf_mem_region *region, int fd,
			struct rf_mem_mapping *ret_mapping)
{
	struct rf_mem_mapping m = { .span = { region->gpa.v, region->size, NULL },
				    .uva = region->uva.v };
	uint64_t page_bytes = 0, map_offset;
	void *start;
	int r;

	r = file_check(fd, region->offset + region->size, &page_bytes);
	if (r < 0)
		return r;
	map_offset = rf_align_down(region->offset, page_bytes);
	m.map_bytes = rf_align_up(region->offset + region->size, page_bytes) - map_offset;
	start = mmap(NULL, m.map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
		     (off_t)map_offset);
	if (start == MAP_FAILED)
		return -errno;
	m.map_start = start;
	m.span.host = (uint8_t *)m.map_start + (region->offset - map_offset);
	r = rf_guard_add(m.map_start, m.map_bytes, page_bytes, &mem->n_faulted, &m.range);
	if (r < 0) {
		(void)munmap(m.map_start, m.map_bytes);
		return r;
	}
	*ret_mapping = m;
	return 0;
}

/* Index of the first mapping that lies behind the address. */
static unsigned mem_upper_bound(const struct rf_mem *mem, uint64_t gpa)
{
	unsigned low = 0, high = mem->n;

	while (low < high) {
		unsigned middle = (low + high) / 2;

		if (mem->mappings[middle].span.gpa <= gpa)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

int rf_mem_add(struct rf_mem *mem, const struct rf_mem_region *region, int fd)
{
	struct rf_mem_mapping mapping;
	unsigned at;
	int r;

	r = region_check(mem, region);
	if (r < 0)
		return r;
	r = mapping_make(mem, region, fd, &mapping);
	if (r < 0)
		return r;
	at = mem_upper_bound(mem, region->gpa.v);
	memmove(&mem->mappings[at + 1], &mem->mappings[at],
		(mem->n - at) * sizeof(mem->mappings[0]));
	mem->mappings[at] = mapping;
	mem->n++;
	return 0;
}

static int mem_index(const struct rf_mem *mem, const struct rf_mem_region *region)
{
	for (unsigned i = 0; i < mem->n; i++) {
		const struct rf_mem_mapping *m = &mem->mappings[i];

		if (m->span.gpa == region->gpa.v && m->uva == region->uva.v &&
		    m->span.bytes == region->size)
			return (int)i;
	}
	return -ENOENT;
}

bool rf_mem_has(const struct rf_mem *mem, const struct rf_mem_region *region)
{
	return mem_index(mem, region) >= 0;
}

int rf_mem_remove(struct rf_mem *mem, const struct rf_mem_region *region)
{
	int at = mem_index(mem, region);

	if (at < 0)
		return at;
	mapping_drop(&mem->mappings[at]);
	mem->n--;
	memmove(&mem->mappings[at], &mem->mappings[at + 1],
		(mem->n - (unsigned)at) * sizeof(mem->mappings[0]));
	return 0;
}

unsigned rf_mem_n_regions(const struct rf_mem *mem)
{
	return mem->n;
}

const struct rf_mem_span *rf_mem_find(const struct rf_mem *mem, uint64_t gpa)
{
	unsigned at = mem_upper_bound(mem, gpa);
	const struct rf_mem_span *span;

	if (!at)
		return NULL;
	span = &mem->mappings[at - 1].span;
	return gpa - span->gpa < span->bytes ? span : NULL;
}

int rf_mem_map(const struct rf_mem *mem, struct rf_gpa gpa, uint64_t len, struct iovec *iov,
	       unsigned max_iov)
{
	uint64_t at = gpa.v;
	unsigned n = 0;

	do {
		const struct rf_mem_span *span = rf_mem_find(mem, at);
		uint64_t offset, room;

		if (!span)
			return -EFAULT;
		offset = at - span->gpa;
		/* Pieces within one region: more than one only if a test limits their length. */
		for (room = rf_min_u64(len, span->bytes - offset); room;) {
			size_t piece = (size_t)rf_min_u64(room, mem->max_piece);

			if (n == max_iov)
				return -E2BIG;
			iov[n++] = (struct iovec){ span->host + offset, piece };
			offset += piece;
			at += piece;
			len -= piece;
			room -= piece;
		}
	} while (len);
	return (int)n;
}

int rf_mem_read(const struct rf_mem *mem, uint64_t gpa, void *buf, size_t len)
{
	uint8_t *dst = buf;

	while (len) {
		const struct rf_mem_span *span = rf_mem_find(mem, gpa);
		size_t n;

		if (!span)
			return -EFAULT;
		n = (size_t)rf_min_u64(len, span->bytes - (gpa - span->gpa));
		n = rf_min_size(n, mem->max_piece);
		ring_copy_out(dst, span->host + (gpa - span->gpa), n);
		dst += n;
		gpa += n;
		len -= n;
	}
	return 0;
}

void *rf_mem_from_uva(const struct rf_mem *mem, struct rf_uva uva, uint64_t len)
{
	for (unsigned i = 0; i < mem->n; i++) {
		const struct rf_mem_mapping *m = &mem->mappings[i];
		uint64_t offset = uva.v - m->uva;

		if (offset < m->span.bytes && len <= m->span.bytes - offset)
			return m->span.host + offset;
	}
	return NULL;
}

bool rf_mem_faulted(const struct rf_mem *mem)
{
	return atomic_load_explicit(&mem->n_faulted, memory_order_relaxed) != 0;
}

void rf_mem_set_max_piece(struct rf_mem *mem, size_t max_bytes)
{
	mem->max_piece = max_bytes ? max_bytes : SIZE_MAX;
}
