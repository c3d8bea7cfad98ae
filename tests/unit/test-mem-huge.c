/* SPDX-License-Identifier: BSD-3-Clause */
/* Guest memory of large pages (hugetlbfs), as with mem.c. */
#include "ring/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_mem.h"

static void skip_because(const char *reason)
{
	print_message("SKIP: %s\n", reason);
	skip();
}

/* Pages of hugetlbfs that the machine does not have are holes as well, and larger ones. */
static void test_vanish_huge(void **state RF_UNUSED)
{
	int fd = memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB);
	struct rf_mem_region region;
	struct rf_mem *mem = NULL;
	struct stat st;
	uint64_t huge;
	uint8_t *p;

	if (fd < 0) {
		skip_because("no hugetlbfs");
		return;
	}
	fake_mem_guard();
	assert_int_equal(fstat(fd, &st), 0);
	huge = (uint64_t)st.st_blksize;
	assert_int_equal(ftruncate(fd, (off_t)huge), 0);
	region = (struct rf_mem_region){ { 0 }, { 0 }, huge - 0x5000, 0x3000 };
	assert_int_equal(rf_mem_new(&mem), 0);
	/* From an offset that is no multiple of the large page. */
	assert_int_equal(rf_mem_add(mem, &region, fd), 0);
	p = rf_mem_from_uva(mem, region.uva, region.size);
	assert_non_null(p);
	assert_int_equal((uintptr_t)p % huge, 0x3000);
	/* At the latest now they have vanished. */
	assert_int_equal(ftruncate(fd, 0), 0);
	memset(p, 1, region.size);
	assert_int_equal(p[region.size - 1], 1);
	assert_true(rf_mem_faulted(mem));
	rf_mem_free(mem);
	(void)close(fd);
}

/* How many mappings of a file there are, and the first of them, as the kernel tells. */
static unsigned mappings_of(const char *name, uint64_t *ret_start, uint64_t *ret_bytes,
			    uint64_t *ret_offset)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	unsigned n = 0;

	assert_non_null(maps);
	while (fgets(line, sizeof(line), maps)) {
		char *at;

		if (!strstr(line, name) || n++)
			continue;
		/* START-END PERMISSIONS OFFSET DEVICE ... */
		*ret_start = strtoull(line, &at, 16);
		*ret_bytes = strtoull(at + 1, &at, 16) - *ret_start;
		at = strchr(at + 1, ' ');
		assert_non_null(at);
		*ret_offset = strtoull(at, &at, 16);
	}
	(void)fclose(maps);
	return n;
}

/*
 * Large pages are mapped whole: munmap() refuses anything else, and the mapping would stay. In
 * units of an eighth of a page: what is asked for, and what is to be mapped.
 */
static const struct huge_row {
	unsigned offset, size, map_offset, map_bytes;
} huge_rows[] = {
	/* 0 */ { 0, 8, 0, 8 },
	/* 1 */ { 0, 1, 0, 8 },
	/* 2 */ { 7, 1, 0, 8 },
	/* 3 */ { 7, 2, 0, 16 },
	/* 4 */ { 8, 8, 8, 8 },
	/* 5 */ { 9, 3, 8, 8 },
	/* 6 */ { 12, 8, 8, 16 },
	/* 7 */ { 1, 22, 0, 24 },
	/* 8 */ { 23, 1, 16, 8 },
};

static void test_huge_rounding(void **state RF_UNUSED)
{
	int fd = memfd_create("rounding", MFD_CLOEXEC | MFD_HUGETLB);
	uint64_t eighth, start = 0, bytes = 0, offset = 0;
	struct rf_mem *mem = NULL;
	struct stat st;

	if (fd < 0) {
		skip_because("no hugetlbfs");
		return;
	}
	assert_int_equal(fstat(fd, &st), 0);
	eighth = (uint64_t)st.st_blksize / 8;
	assert_int_equal(ftruncate(fd, 3 * (off_t)st.st_blksize), 0);
	assert_int_equal(rf_mem_new(&mem), 0);
	for (size_t i = 0; i < RF_ARRAY_SIZE(huge_rows); i++) {
		const struct huge_row *row = &huge_rows[i];
		const struct rf_mem_region region = {
			{ 0x1000 }, { 0x2000 }, row->size * eighth, row->offset * eighth
		};
		const uint8_t *p;

		print_message("row %zu\n", i);
		assert_int_equal(rf_mem_add(mem, &region, fd), 0);
		assert_int_equal(mappings_of("memfd:rounding", &start, &bytes, &offset), 1);
		assert_int_equal(offset, row->map_offset * eighth);
		assert_int_equal(bytes, row->map_bytes * eighth);
		p = rf_mem_from_uva(mem, region.uva, region.size);
		assert_int_equal((uintptr_t)p - start, (row->offset - row->map_offset) * eighth);
		assert_int_equal(rf_mem_remove(mem, &region), 0);
		assert_int_equal(mappings_of("memfd:rounding", &start, &bytes, &offset), 0);
	}
	/* One that is not removed goes with the memory. */
	assert_int_equal(
		rf_mem_add(mem, &(struct rf_mem_region){ { 0 }, { 0 }, eighth, 3 * eighth }, fd),
		0);
	rf_mem_free(mem);
	assert_int_equal(mappings_of("memfd:rounding", &start, &bytes, &offset), 0);
	(void)close(fd);
}

/* Guest memory of large pages: what the guest writes is what we read. Skipped without any page. */
static void test_huge_pages(void **state RF_UNUSED)
{
	int fd = memfd_create("pages", MFD_CLOEXEC | MFD_HUGETLB);
	struct rf_mem_region region;
	struct iovec iov;
	struct rf_mem *mem = NULL;
	uint8_t *guest;
	struct stat st;
	uint64_t huge;

	if (fd < 0) {
		skip_because("no hugetlbfs");
		return;
	}
	assert_int_equal(fstat(fd, &st), 0);
	huge = (uint64_t)st.st_blksize;
	assert_int_equal(ftruncate(fd, (off_t)huge), 0);
	/* It is reserved now, or there is none. */
	guest = mmap(NULL, huge, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (guest == MAP_FAILED) {
		(void)close(fd);
		skip_because("no huge page is free");
		return;
	}
	memset(guest, 0x5a, huge);
	assert_int_equal(rf_mem_new(&mem), 0);
	region = (struct rf_mem_region){ { 0x100000 }, { 0 }, huge - 0x3000, 0x3000 };
	assert_int_equal(rf_mem_add(mem, &region, fd), 0);
	guest[0x3000] = 1;
	guest[huge - 1] = 2;
	assert_int_equal(rf_mem_map(mem, region.gpa, region.size, &iov, 1), 1);
	assert_int_equal(iov.iov_len, region.size);
	assert_int_equal(((uint8_t *)iov.iov_base)[0], 1);
	assert_int_equal(((uint8_t *)iov.iov_base)[1], 0x5a);
	assert_int_equal(((uint8_t *)iov.iov_base)[region.size - 1], 2);
	((uint8_t *)iov.iov_base)[5] = 3;
	assert_int_equal(guest[0x3005], 3);
	assert_false(rf_mem_faulted(mem));
	rf_mem_free(mem);
	(void)munmap(guest, huge);
	(void)close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_vanish_huge),
		cmocka_unit_test(test_huge_rounding),
		cmocka_unit_test(test_huge_pages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
