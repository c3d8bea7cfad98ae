/* SPDX-License-Identifier: BSD-3-Clause */
/* guest/memory.c: what lies where, and that nobody can take it away. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "memory.h"
#include "vsock/limits.h"

/* A range of the memory; all of them together may not overlap, nor reach beyond it. */
struct range {
	size_t at, bytes, align;
};

static int by_place(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	return x->at < y->at ? -1 : x->at > y->at;
}

static unsigned ranges_of(const struct rf_guest_mem *mem, struct range *ranges)
{
	unsigned n = 0;

	for (unsigned i = 0; i < RF_GUEST_N_RINGS; i++) {
		struct rf_ring_extent e;

		assert_int_equal(rf_ring_extent_get(RF_RING_SPLIT, mem->num[i], &e), 0);
		ranges[n++] = (struct range){ mem->desc[i], e.desc_bytes, e.desc_align };
		ranges[n++] = (struct range){ mem->driver[i], e.driver_bytes, e.driver_align };
		ranges[n++] = (struct range){ mem->device[i], e.device_bytes, e.device_align };
	}
	ranges[n++] =
		(struct range){ mem->events, (size_t)RF_GUEST_EVENTS * RF_GUEST_EVENT_BYTES, 4 };
	ranges[n++] =
		(struct range){ mem->control, (size_t)mem->n_control * RF_GUEST_PAYLOAD_AT, 64 };
	ranges[n++] = (struct range){ mem->data, mem->n_data * mem->data_stride, 64 };
	ranges[n++] = (struct range){ mem->rx, mem->n_rx * mem->rx_stride, 64 };
	return n;
}

static void layout(void **state)
{
	static const struct {
		int row;
		uint32_t queue_size, rx_payload, n_control;
	} rows[] = {
		{ 1, 2, 256, 1 },        { 2, 4, 65536, 1 },     { 3, 16, 300, 2 },
		{ 4, 256, 65536, 32 },   { 5, 1024, 4096, 128 }, { 6, 32768, 256, 4096 },
		{ 7, 256, 1 << 20, 32 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct range ranges[16];
		struct rf_guest_mem mem;
		unsigned n;

		assert_int_equal(rf_guest_mem_init(&mem, rows[i].queue_size, rows[i].rx_payload),
				 0);
		n = ranges_of(&mem, ranges);
		qsort(ranges, n, sizeof(ranges[0]), by_place);
		for (unsigned k = 0; k < n; k++) {
			size_t end = k + 1 < n ? ranges[k + 1].at : mem.bytes;

			if (ranges[k].at % ranges[k].align || ranges[k].at + ranges[k].bytes > end)
				fail_msg("row %d, range %u", rows[i].row, k);
		}
		assert_int_equal(mem.n_control, rows[i].n_control);
		assert_int_equal(mem.n_control + mem.max_data, rows[i].queue_size);
		assert_int_equal(mem.n_data, 2 * mem.max_data);
		assert_int_equal(mem.n_rx, 2 * rows[i].queue_size);
		assert_int_equal(mem.data_stride % 64, 0);
		assert_int_equal(mem.rx_stride % 4096, 0);
		assert_true(mem.data_stride >= 64 + RF_VSOCK_MAX_PAYLOAD);
		assert_true(mem.rx_stride >= 64 + rows[i].rx_payload);
		rf_guest_mem_fini(&mem);
	}
}

/* Pages come when they are written to, and go; what is around them stays. */
static void pages_come_and_go(void **state)
{
	struct rf_guest_mem mem;
	uint8_t *at;

	(void)state;
	assert_int_equal(rf_guest_mem_init(&mem, 256, 65536), 0);
	assert_int_equal(rf_guest_mem_resident(&mem), 0);
	at = mem.base + mem.rx;
	memset(at, 1, 5 * 4096);
	assert_int_equal(rf_guest_mem_resident(&mem), 5 * 4096);
	assert_int_equal(rf_guest_mem_give_back(&mem, at + 4096, 2 * 4096), 0);
	assert_int_equal(rf_guest_mem_resident(&mem), 3 * 4096);
	assert_int_equal(at[4095], 1);
	assert_int_equal(at[4096], 0);
	assert_int_equal(at[3 * 4096], 1);
	rf_guest_mem_fini(&mem);
}

/* The back end has the descriptor, too: it can neither shrink the memory nor let it grow. */
static void sealed(void **state)
{
	struct rf_guest_mem mem;

	(void)state;
	assert_int_equal(rf_guest_mem_init(&mem, 256, 65536), 0);
	assert_int_equal(ftruncate(mem.fd, 4096), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(ftruncate(mem.fd, (off_t)mem.bytes + 65536), -1);
	assert_int_equal(fcntl(mem.fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	assert_int_equal(rf_guest_mem_gpa(&mem, mem.base).v, 0);
	assert_int_equal(rf_guest_mem_gpa(&mem, mem.base + 4097).v, 4097);
	rf_guest_mem_fini(&mem);
	assert_int_equal(mem.fd, -1);
	rf_guest_mem_fini(&mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(layout),
		cmocka_unit_test(pages_come_and_go),
		cmocka_unit_test(sealed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
