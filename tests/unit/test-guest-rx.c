/* SPDX-License-Identifier: BSD-3-Clause */
/* guest/rx.c: buffers of changing size, the memory they take, and used lengths that lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fake_device.h"
#include "guest/switches.h"
#include "rx.h"

#define QUEUE   64u
#define LARGEST 65536u
#define BATCH   32u

/* A receive ring and both its ends. */
struct lab {
	struct rf_guest_mem mem;
	struct rf_rx rx;
	struct rf_guest_counters counters;
	struct fake_device device;
};

static void lab_open(struct lab *lab, int rule)
{
	memset(lab, 0, sizeof(*lab));
	assert_int_equal(rf_guest_mem_init(&lab->mem, QUEUE, LARGEST), 0);
	assert_int_equal(rf_rx_init(&lab->rx, &lab->mem, rule, true, &lab->counters), 0);
	fake_device_init(&lab->device, QUEUE, lab->mem.base + lab->mem.desc[RF_GUEST_RX],
			 lab->mem.base + lab->mem.driver[RF_GUEST_RX],
			 lab->mem.base + lab->mem.device[RF_GUEST_RX]);
}

static void lab_close(struct lab *lab)
{
	rf_rx_fini(&lab->rx);
	rf_guest_mem_fini(&lab->mem);
}

/* The device writes a packet into the next buffer, as much of it as fits. Return: payload. */
static uint32_t device_puts(struct lab *lab, uint32_t payload)
{
	const struct vring_desc *desc;
	uint16_t head;

	assert_true(fake_device_next(&lab->device, &head));
	desc = &lab->device.desc[head];
	if (payload > desc->len - RF_VSOCK_HDR_BYTES)
		payload = desc->len - RF_VSOCK_HDR_BYTES;
	memset(lab->mem.base + desc->addr, 0xaa, RF_VSOCK_HDR_BYTES + payload);
	fake_device_use(&lab->device, head, RF_VSOCK_HDR_BYTES + payload);
	return payload;
}

/* Packets come and are read at once, or all at the end of a batch. */
static void traffic(struct lab *lab, unsigned n, uint32_t payload, bool held)
{
	struct rf_chunks readers = TAILQ_HEAD_INITIALIZER(readers);

	for (unsigned i = 0; i < n; i++) {
		uint32_t put = device_puts(lab, payload), used;
		struct rf_chunk *chunk = rf_rx_get(&lab->rx, &used);
		bool hold = held && rf_rx_can_hold(&lab->rx);

		assert_non_null(chunk);
		assert_int_equal(used, RF_VSOCK_HDR_BYTES + put);
		if (hold) {
			chunk->end = put;
			TAILQ_INSERT_TAIL(&readers, chunk, link);
		}
		rf_rx_refill(&lab->rx, hold ? NULL : chunk);
		if (i % BATCH == BATCH - 1) {
			rf_rx_publish(&lab->rx);
			rf_chunks_free(&readers);
		}
	}
	rf_rx_publish(&lab->rx);
	rf_chunks_free(&readers);
}

static uint64_t resident(struct lab *lab)
{
	return rf_guest_mem_resident(&lab->mem);
}

/* Each buffer of one page touches one page, aligned payload and all. */
static void one_page(void **state)
{
	uint64_t before, rings;
	struct lab lab;

	(void)state;
	lab_open(&lab, RF_GUEST_RX_BUF_4K);
	rings = resident(&lab);
	traffic(&lab, QUEUE, UINT32_MAX, false);
	before = resident(&lab);
	assert_int_equal(before - rings, QUEUE * 4096);
	traffic(&lab, 10 * QUEUE, UINT32_MAX, true);
	assert_int_equal(resident(&lab) - rings, 2 * QUEUE * 4096);
	assert_int_equal(rf_counter_read(&lab.counters.rx_filled), 11 * QUEUE);
	assert_int_equal(rf_counter_read(&lab.counters.rx_posted_page), 12 * QUEUE);
	assert_int_equal(rf_counter_read(&lab.counters.rx_pages_given_back), 0);
	for (uint32_t i = 0; i < lab.mem.n_rx; i++)
		assert_int_equal((uintptr_t)lab.rx.chunks[i].data % 64, 0);
	lab_close(&lab);
}

/* Memory by rule: while small packets come, while bulk comes, and when small ones come again. */
struct use {
	uint64_t small, bulk, after;
};

static struct use use_of(int rule, bool held)
{
	struct use use;
	struct lab lab;

	lab_open(&lab, rule);
	traffic(&lab, 8 * QUEUE, 100, held);
	use.small = resident(&lab);
	traffic(&lab, 8 * QUEUE, UINT32_MAX, held);
	use.bulk = resident(&lab);
	/* What lies free and is never posted again is given back, too. */
	traffic(&lab, 12 * QUEUE, 100, false);
	use.after = resident(&lab);
	if (rule == RF_GUEST_RX_BUF_EWMA) {
		assert_true(rf_counter_read(&lab.counters.rx_pages_given_back) > 0);
		assert_true(rf_counter_read(&lab.counters.rx_posted_middle) > 0);
		assert_true(rf_counter_read(&lab.counters.rx_posted_largest) > 4 * QUEUE);
		assert_true(rf_counter_read(&lab.counters.rx_posted_page) > 4 * QUEUE);
	}
	lab_close(&lab);
	return use;
}

static void memory(void **state)
{
	(void)state;
	for (int held = 0; held < 2; held++) {
		struct use page = use_of(RF_GUEST_RX_BUF_4K, held);
		struct use largest = use_of(RF_GUEST_RX_BUF_64K, held);
		struct use ewma = use_of(RF_GUEST_RX_BUF_EWMA, held);

		print_message("# held %d, KiB: 4k %u %u %u, 64k %u %u %u, ewma %u %u %u\n", held,
			      (unsigned)page.small / 1024, (unsigned)page.bulk / 1024,
			      (unsigned)page.after / 1024, (unsigned)largest.small / 1024,
			      (unsigned)largest.bulk / 1024, (unsigned)largest.after / 1024,
			      (unsigned)ewma.small / 1024, (unsigned)ewma.bulk / 1024,
			      (unsigned)ewma.after / 1024);
		assert_true(ewma.small <= 2 * page.small);
		assert_true(ewma.bulk > 4 * page.bulk);
		assert_true(ewma.after <= 2 * page.after);
		/* The fixed size keeps what it once took. */
		assert_true(largest.after > 4 * page.after);
	}
}

/* Between sizes that are not far from each other nothing is given back. */
static void steady(void **state)
{
	static const uint32_t lens[] = { 4096, 16384, 30000, 65536 };
	struct lab lab;

	(void)state;
	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		uint64_t given_back;

		lab_open(&lab, RF_GUEST_RX_BUF_EWMA);
		traffic(&lab, 16 * QUEUE, lens[i], true);
		given_back = rf_counter_read(&lab.counters.rx_pages_given_back);
		for (unsigned k = 0; k < 16; k++) {
			traffic(&lab, QUEUE, lens[i], true);
			traffic(&lab, 1, 0, true);
		}
		assert_int_equal(rf_counter_read(&lab.counters.rx_pages_given_back), given_back);
		lab_close(&lab);
	}
}

/* Work is bounded: not more than a few buffers between two publications. */
static void a_few_at_a_time(void **state)
{
	struct lab lab;

	(void)state;
	lab_open(&lab, RF_GUEST_RX_BUF_EWMA);
	traffic(&lab, 4 * QUEUE, UINT32_MAX, true);
	for (unsigned i = 0; i < 4 * QUEUE; i++) {
		uint64_t before = rf_counter_read(&lab.counters.rx_pages_given_back);

		traffic(&lab, 1, 1, false);
		assert_true(rf_counter_read(&lab.counters.rx_pages_given_back) - before <= 8 * 17);
	}
	lab_close(&lab);
}

/* More than was posted of a buffer, though the buffer is larger: the ring is broken. */
static void used_length_that_lies(void **state)
{
	static const struct {
		int row, rule;
		uint32_t more;
		enum rf_ring_reason reason;
	} rows[] = {
		{ 1, RF_GUEST_RX_BUF_4K, 0, RF_RING_NONE },
		{ 2, RF_GUEST_RX_BUF_4K, 1, RF_RING_USED_LEN },
		{ 3, RF_GUEST_RX_BUF_4K, LARGEST, RF_RING_USED_LEN },
		{ 4, RF_GUEST_RX_BUF_64K, 0, RF_RING_NONE },
		{ 5, RF_GUEST_RX_BUF_64K, 1, RF_RING_USED_LEN },
		{ 6, RF_GUEST_RX_BUF_EWMA, 0, RF_RING_NONE },
		{ 7, RF_GUEST_RX_BUF_EWMA, 1, RF_RING_USED_LEN },
		{ 8, RF_GUEST_RX_BUF_EWMA, LARGEST - 4032, RF_RING_USED_LEN },
		{ 9, RF_GUEST_RX_BUF_EWMA, UINT32_MAX - 4096, RF_RING_USED_LEN },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct lab lab;
		uint16_t head;
		uint32_t used;

		print_message("row %d\n", rows[i].row);
		lab_open(&lab, rows[i].rule);
		traffic(&lab, 4 * QUEUE, 1, false);
		assert_true(fake_device_next(&lab.device, &head));
		assert_true(rows[i].rule == RF_GUEST_RX_BUF_64K ||
			    lab.device.desc[head].len == RF_VSOCK_HDR_BYTES + 4032);
		fake_device_use(&lab.device, head, lab.device.desc[head].len + rows[i].more);
		assert_int_equal(rf_rx_get(&lab.rx, &used) != NULL, !rows[i].more);
		assert_int_equal(rf_drvq_broken(lab.rx.q), rows[i].reason);
		lab_close(&lab);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_page),
		cmocka_unit_test(memory),
		cmocka_unit_test(steady),
		cmocka_unit_test(a_few_at_a_time),
		cmocka_unit_test(used_length_that_lies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
