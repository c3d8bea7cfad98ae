/* SPDX-License-Identifier: BSD-3-Clause */
#include "ring/drvq.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "drvq_room.h"
#include "fake_device.h"
#include "fake_mem.h"

#define DESC_AT 0u
#define DRV_AT  0x80000u
#define DEV_AT  0xa0000u
#define SIZE    0x100000u

struct fixture {
	struct fake_mem m;
	struct fake_device dev;
	struct rf_drvq *q;
	char tokens[8];
};

static void setup(struct fixture *f, uint32_t num, bool event_idx)
{
	static const struct fake_region region = { 0, SIZE, 0 };
	struct rf_ring_config config;
	uint8_t *base;

	fake_mem_init(&f->m, SIZE, &region, 1);
	/* What an earlier user left there. */
	memset(f->m.bytes, 0xa5, SIZE);
	base = fake_mem_host(&f->m, 0, SIZE);
	config = (struct rf_ring_config){ .layout = RF_RING_SPLIT,
					  .num = num,
					  .event_idx = event_idx,
					  .desc = base + DESC_AT,
					  .driver = base + DRV_AT,
					  .device = base + DEV_AT };
	assert_int_equal(rf_drvq_new(&config, &f->q), 0);
	fake_device_init(&f->dev, num, f->m.bytes + DESC_AT, f->m.bytes + DRV_AT,
			 f->m.bytes + DEV_AT);
}

static void teardown(struct fixture *f)
{
	rf_drvq_free(f->q);
	fake_mem_fini(&f->m);
}

/* Add a buffer of one descriptor, of 10 * (i + 1) bytes. */
static int add(struct fixture *f, unsigned i, bool in)
{
	struct rf_drvq_piece piece = { { 0x1000 + i * 0x100 }, 10 * (i + 1) };

	return rf_drvq_add(f->q, &piece, !in, in, &f->tokens[i]);
}

/* Read the next available head, which must be there. */
static uint16_t next_head(struct fixture *f)
{
	uint16_t head;

	assert_true(fake_device_next(&f->dev, &head));
	assert_in_range(head, 0, f->dev.num - 1);
	return head;
}

static const struct new_row {
	int layout;
	uint32_t num;
	unsigned desc, driver, device; /* added to the addresses; 99 is no address */
	int expected;
} new_rows[] = {
	/* 0 */ { RF_RING_SPLIT, 1, 0, 0, 0, 0 },
	/* 1 */ { RF_RING_SPLIT, 32768, 0, 0, 0, 0 },
	/* 2 */ { RF_RING_SPLIT, 0, 0, 0, 0, -EINVAL },
	/* 3 */ { RF_RING_SPLIT, 12, 0, 0, 0, -EINVAL },
	/* 4 */ { RF_RING_SPLIT, 65536, 0, 0, 0, -EINVAL },
	/* 5 */ { RF_RING_SPLIT, 8, 8, 0, 0, -EINVAL },
	/* 6 */ { RF_RING_SPLIT, 8, 0, 1, 0, -EINVAL },
	/* 7 */ { RF_RING_SPLIT, 8, 0, 0, 2, -EINVAL },
	/* 8 */ { RF_RING_SPLIT, 8, 99, 0, 0, -EINVAL },
	/* 9 */ { RF_RING_SPLIT, 8, 0, 99, 0, -EINVAL },
	/* 10 */ { RF_RING_SPLIT, 8, 0, 0, 99, -EINVAL },
	/* 11 */ { RF_RING_SPLIT + 1, 8, 0, 0, 0, -EINVAL },
};

static void *moved(uint8_t *area, unsigned by)
{
	return by == 99 ? NULL : area + by;
}

static void test_new(void **state RF_UNUSED)
{
	struct fixture f;
	uint8_t *base;

	setup(&f, 8, false);
	base = fake_mem_host(&f.m, 0, SIZE);
	for (size_t i = 0; i < RF_ARRAY_SIZE(new_rows); i++) {
		const struct new_row *row = &new_rows[i];
		struct rf_drvq *q = NULL;
		const struct rf_ring_config config = {
			.layout = (enum rf_ring_layout)row->layout,
			.num = row->num,
			.desc = moved(base + DESC_AT, row->desc),
			.driver = moved(base + DRV_AT, row->driver),
			.device = moved(base + DEV_AT, row->device),
		};
		int r = rf_drvq_new(&config, &q);

		if (r != row->expected || (q != NULL) != (r == 0))
			fail_msg("row %zu: %d", i, r);
		rf_drvq_free(q);
	}
	teardown(&f);
}

/* The areas are in their initial state, to the last byte and no further. */
static void test_initial(void **state RF_UNUSED)
{
	struct fixture f;

	setup(&f, 8, true);
	for (unsigned i = 0; i < 16 * 8; i++)
		assert_int_equal(f.m.bytes[DESC_AT + i], 0);
	for (unsigned i = 0; i < 6 + 2 * 8; i++)
		assert_int_equal(f.m.bytes[DRV_AT + i], 0);
	for (unsigned i = 0; i < 6 + 8 * 8; i++)
		assert_int_equal(f.m.bytes[DEV_AT + i], 0);
	assert_int_equal(f.m.bytes[DESC_AT + 16 * 8], 0xa5);
	assert_int_equal(f.m.bytes[DRV_AT + 6 + 2 * 8], 0xa5);
	assert_int_equal(f.m.bytes[DEV_AT + 6 + 8 * 8], 0xa5);
	assert_int_equal(drvq_room(f.q), 8);
	assert_int_equal(rf_drvq_outstanding(f.q), 0);
	assert_false(rf_drvq_publish(f.q));
	teardown(&f);
}

/* virtio 1.2 2.7.5 and 2.7.13.1: what the device finds. */
static void test_chain(void **state RF_UNUSED)
{
	static const struct rf_drvq_piece pieces[] = { { { 0x1000 }, 44 },
						       { { 0x2000 }, 100 },
						       { { UINT64_MAX - 9 }, 9 },
						       { { 0x3000 }, 0 } };
	struct fixture f;
	uint16_t head;
	uint32_t len;

	setup(&f, 8, true);
	assert_int_equal(rf_drvq_add(f.q, pieces, 2, 2, &f.tokens[0]), 0);
	assert_int_equal(drvq_room(f.q), 4);
	assert_false(fake_device_next(&f.dev, &head));
	assert_true(rf_drvq_publish(f.q));
	head = next_head(&f);
	for (unsigned i = 0; i < 4; i++) {
		const struct vring_desc *desc = &f.dev.desc[head];

		assert_true(desc->addr == pieces[i].gpa.v);
		assert_int_equal(desc->len, pieces[i].len);
		assert_int_equal(desc->flags, (i >= 2 ? VRING_DESC_F_WRITE : 0) |
						      (i < 3 ? VRING_DESC_F_NEXT : 0));
		head = desc->next;
	}
	assert_false(fake_device_next(&f.dev, &head));
	/* No used element, then one. */
	assert_null(rf_drvq_get(f.q, &len));
	fake_device_use(&f.dev, f.dev.avail->ring[0], 9);
	assert_ptr_equal(rf_drvq_get(f.q, &len), &f.tokens[0]);
	assert_int_equal(len, 9);
	assert_int_equal(drvq_room(f.q), 8);
	assert_null(rf_drvq_get(f.q, &len));
	teardown(&f);
}

static void test_room(void **state RF_UNUSED)
{
	static const struct rf_drvq_piece pieces[9] = { { { 0x1000 }, 1 } };
	struct fixture f;
	uint32_t len;

	setup(&f, 8, true);
	assert_int_equal(rf_drvq_add(f.q, pieces, 9, 0, &f.tokens[0]), -ENOSPC);
	assert_int_equal(rf_drvq_add(f.q, pieces, 3, 2, &f.tokens[0]), 0);
	assert_int_equal(drvq_room(f.q), 3);
	assert_int_equal(rf_drvq_add(f.q, pieces, 4, 0, &f.tokens[1]), -ENOSPC);
	assert_int_equal(rf_drvq_add(f.q, pieces, 0, 3, &f.tokens[1]), 0);
	assert_int_equal(drvq_room(f.q), 0);
	assert_int_equal(rf_drvq_add(f.q, pieces, 1, 0, &f.tokens[2]), -ENOSPC);
	assert_int_equal(rf_drvq_outstanding(f.q), 2);
	(void)rf_drvq_publish(f.q);
	(void)next_head(&f);
	/* The second comes back first. */
	fake_device_use(&f.dev, next_head(&f), 0);
	assert_ptr_equal(rf_drvq_get(f.q, &len), &f.tokens[1]);
	assert_int_equal(drvq_room(f.q), 3);
	assert_int_equal(rf_drvq_outstanding(f.q), 1);
	assert_int_equal(rf_drvq_add(f.q, pieces, 3, 0, &f.tokens[2]), 0);
	teardown(&f);
}

/* What a device may get wrong; the ring has 8, and buffers 0 to 3 are published, 4 and 5 added. */
enum wrong {
	WRONG_JUMP,
	WRONG_BACK,
	WRONG_UNPUBLISHED_COUNT,
	WRONG_ID_NUM,
	WRONG_ID_32_BIT,
	WRONG_ID_FREE,
	WRONG_ID_MIDDLE,
	WRONG_ID_TWICE,
	WRONG_ID_UNPUBLISHED,
	WRONG_LEN,
	WRONG_LEN_OUT,
	WRONG_LEN_32_BIT,
};

static const struct wrong_row {
	enum wrong wrong;
	enum rf_ring_reason reason;
} wrong_rows[] = {
	/* 0 */ { WRONG_JUMP, RF_RING_USED_JUMP },
	/* 1 */ { WRONG_BACK, RF_RING_USED_JUMP },
	/* 2 */ { WRONG_UNPUBLISHED_COUNT, RF_RING_USED_JUMP },
	/* 3 */ { WRONG_ID_NUM, RF_RING_USED_ID },
	/* 4 */ { WRONG_ID_32_BIT, RF_RING_USED_ID },
	/* 5 RT-Thread #11327 */ { WRONG_ID_FREE, RF_RING_USED_ID },
	/* 6 */ { WRONG_ID_MIDDLE, RF_RING_USED_ID },
	/* 7 */ { WRONG_ID_TWICE, RF_RING_USED_ID },
	/* 8 */ { WRONG_ID_UNPUBLISHED, RF_RING_USED_ID },
	/* 9 CVE-2025-39718 */ { WRONG_LEN, RF_RING_USED_LEN },
	/* 10 Linux before 49d8c5ffad07 did this */ { WRONG_LEN_OUT, RF_RING_USED_LEN },
	/* 11 */ { WRONG_LEN_32_BIT, RF_RING_USED_LEN },
};

/* Put the wrong thing into the used ring. @heads: of the published buffers */
static void do_wrong(struct fixture *f, enum wrong wrong, const uint16_t *heads)
{
	uint32_t len;

	switch (wrong) {
	case WRONG_JUMP:
		f->dev.used->idx = 9;
		break;
	case WRONG_BACK:
		fake_device_use(&f->dev, heads[0], 0);
		assert_ptr_equal(rf_drvq_get(f->q, &len), &f->tokens[0]);
		f->dev.used->idx = 0;
		break;
	case WRONG_UNPUBLISHED_COUNT:
		f->dev.used->idx = 5;
		break;
	case WRONG_ID_NUM:
		fake_device_use(&f->dev, 8, 0);
		break;
	case WRONG_ID_32_BIT:
		fake_device_use(&f->dev, 0x10000u + heads[0], 0);
		break;
	case WRONG_ID_FREE:
		fake_device_use(&f->dev, 7, 0);
		break;
	case WRONG_ID_MIDDLE:
		fake_device_use(&f->dev, f->dev.desc[heads[3]].next, 0);
		break;
	case WRONG_ID_TWICE:
		fake_device_use(&f->dev, heads[0], 0);
		fake_device_use(&f->dev, heads[0], 0);
		assert_ptr_equal(rf_drvq_get(f->q, &len), &f->tokens[0]);
		break;
	case WRONG_ID_UNPUBLISHED:
		fake_device_use(&f->dev, f->dev.avail->ring[4], 0);
		break;
	case WRONG_LEN:
		fake_device_use(&f->dev, heads[1], 21);
		break;
	case WRONG_LEN_OUT:
		fake_device_use(&f->dev, heads[0], 1);
		break;
	case WRONG_LEN_32_BIT:
		fake_device_use(&f->dev, heads[1], UINT32_MAX);
		break;
	}
}

static void test_wrong(void **state RF_UNUSED)
{
	static const struct rf_drvq_piece two[] = { { { 0x5000 }, 40 }, { { 0x6000 }, 5 } };

	for (size_t i = 0; i < RF_ARRAY_SIZE(wrong_rows); i++) {
		const struct wrong_row *row = &wrong_rows[i];
		struct fixture f;
		uint16_t heads[4];
		uint32_t len = 77;

		setup(&f, 8, true);
		for (unsigned k = 0; k < 3; k++)
			assert_int_equal(add(&f, k, k == 1), 0);
		assert_int_equal(rf_drvq_add(f.q, two, 1, 1, &f.tokens[3]), 0);
		(void)rf_drvq_publish(f.q);
		for (unsigned k = 0; k < 4; k++)
			heads[k] = next_head(&f);
		assert_int_equal(add(&f, 4, false), 0);
		assert_int_equal(add(&f, 5, false), 0);
		do_wrong(&f, row->wrong, heads);
		len = 77;
		if (rf_drvq_get(f.q, &len) || rf_drvq_broken(f.q) != row->reason)
			fail_msg("row %zu: %s", i, rf_ring_reason_text(rf_drvq_broken(f.q)));
		assert_int_equal(len, 77);
		/* Nothing goes on. */
		assert_int_equal(add(&f, 6, false), -EPROTO);
		assert_false(rf_drvq_publish(f.q));
		assert_false(rf_drvq_arm(f.q));
		rf_drvq_disarm(f.q);
		assert_false(rf_drvq_peek(f.q));
		assert_null(rf_drvq_get(f.q, &len));
		assert_int_equal(rf_drvq_broken(f.q), row->reason);
		teardown(&f);
	}
}

/* From a device that is allowed to, lengths beyond the buffer count as the buffer's. */
static void test_any_length(void **state RF_UNUSED)
{
	static const enum wrong wrongs[] = { WRONG_LEN, WRONG_LEN_OUT, WRONG_LEN_32_BIT,
					     WRONG_ID_NUM };
	static const uint32_t lens[] = { 20, 0, 20 };

	for (size_t i = 0; i < RF_ARRAY_SIZE(wrongs); i++) {
		struct fixture f;
		uint16_t heads[4];
		uint32_t len = 77;
		bool taken;

		setup(&f, 8, true);
		rf_drvq_allow_any_len(f.q);
		for (unsigned k = 0; k < 4; k++)
			assert_int_equal(add(&f, k, k == 1), 0);
		(void)rf_drvq_publish(f.q);
		for (unsigned k = 0; k < 4; k++)
			heads[k] = next_head(&f);
		do_wrong(&f, wrongs[i], heads);
		taken = rf_drvq_get(f.q, &len);
		/* Nothing else is. */
		assert_int_equal(taken, wrongs[i] != WRONG_ID_NUM);
		assert_int_equal(rf_drvq_broken(f.q), taken ? RF_RING_NONE : RF_RING_USED_ID);
		assert_int_equal(len, taken ? lens[i] : 77);
		teardown(&f);
	}
}

/* A device that never gives its first buffer back, while the indices wrap around many times. */
static void test_held_for_ever(void **state RF_UNUSED)
{
	struct fixture f;
	uint16_t first;
	uint32_t len;

	setup(&f, 2, true);
	assert_int_equal(add(&f, 0, true), 0);
	(void)rf_drvq_publish(f.q);
	first = next_head(&f);
	for (unsigned i = 0; i < 150000; i++) {
		assert_int_equal(add(&f, 1, true), 0);
		(void)rf_drvq_publish(f.q);
		fake_device_use(&f.dev, next_head(&f), 20);
		assert_ptr_equal(rf_drvq_get(f.q, &len), &f.tokens[1]);
	}
	fake_device_use(&f.dev, first, 10);
	assert_ptr_equal(rf_drvq_get(f.q, &len), &f.tokens[0]);
	assert_int_equal(rf_drvq_broken(f.q), RF_RING_NONE);
	teardown(&f);
}

/* Move the ring's index to @at, one buffer at a time. */
static void advance(struct fixture *f, uint16_t at)
{
	uint32_t len;

	while (f->dev.used_idx != at) {
		assert_int_equal(add(f, 0, true), 0);
		(void)rf_drvq_publish(f->q);
		fake_device_use(&f->dev, next_head(f), 0);
		assert_non_null(rf_drvq_get(f->q, &len));
	}
}

static const struct kick_row {
	uint16_t start, n, event;
	bool expected;
} kick_rows[] = {
	/* 0 */ { 0, 1, 0, true },
	/* 1 */ { 0, 1, 1, false },
	/* 2 */ { 0, 1, 0xffff, false },
	/* 3 */ { 0, 4, 3, true },
	/* 4 */ { 0, 4, 4, false },
	/* 5 */ { 0xfffe, 4, 0xfffd, false },
	/* 6 */ { 0xfffe, 4, 0xfffe, true },
	/* 7 */ { 0xfffe, 4, 1, true },
	/* 8 */ { 0xfffe, 4, 2, false },
	/* 9 */ { 0x7fff, 4, 0x8001, true },
};

static void test_publish_event(void **state RF_UNUSED)
{
	for (size_t i = 0; i < RF_ARRAY_SIZE(kick_rows); i++) {
		const struct kick_row *row = &kick_rows[i];
		struct fixture f;

		setup(&f, 8, true);
		advance(&f, row->start);
		for (unsigned k = 0; k < row->n; k++)
			assert_int_equal(add(&f, k, false), 0);
		*fake_device_avail_event(&f.dev) = row->event;
		/* With an event index the flag says nothing. */
		f.dev.used->flags = i & 1;
		if (rf_drvq_publish(f.q) != row->expected)
			fail_msg("row %zu", i);
		assert_false(rf_drvq_publish(f.q));
		teardown(&f);
	}
}

static void test_publish_flag(void **state RF_UNUSED)
{
	struct fixture f;

	setup(&f, 8, false);
	*fake_device_avail_event(&f.dev) = 0x8000;
	assert_int_equal(add(&f, 0, false), 0);
	assert_true(rf_drvq_publish(f.q));
	f.dev.used->flags = VRING_USED_F_NO_NOTIFY;
	assert_int_equal(add(&f, 1, false), 0);
	assert_false(rf_drvq_publish(f.q));
	f.dev.used->flags = 0;
	assert_false(rf_drvq_publish(f.q));
	assert_int_equal(add(&f, 2, false), 0);
	assert_true(rf_drvq_publish(f.q));
	teardown(&f);
}

static void test_arm_event(void **state RF_UNUSED)
{
	struct fixture f;
	uint32_t len;

	setup(&f, 8, true);
	advance(&f, 0xfffe);
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(add(&f, i, true), 0);
	(void)rf_drvq_publish(f.q);
	assert_false(rf_drvq_arm(f.q));
	assert_int_equal(*fake_device_used_event(&f.dev), 0xfffe);
	assert_false(rf_drvq_arm_after(f.q, 4));
	assert_int_equal(*fake_device_used_event(&f.dev), 1);
	for (unsigned i = 0; i < 3; i++) {
		assert_false(rf_drvq_arm_after(f.q, 4));
		fake_device_use(&f.dev, next_head(&f), 1);
		assert_true(rf_drvq_arm(f.q));
	}
	fake_device_use(&f.dev, next_head(&f), 1);
	assert_true(rf_drvq_arm_after(f.q, 4));
	assert_false(rf_drvq_arm_after(f.q, 5));
	for (unsigned i = 0; i < 4; i++)
		assert_non_null(rf_drvq_get(f.q, &len));
	assert_false(rf_drvq_arm(f.q));
	assert_int_equal(*fake_device_used_event(&f.dev), 2);
	/* As far off as can be. */
	rf_drvq_disarm(f.q);
	assert_int_equal(f.dev.avail->flags, 0);
	assert_int_equal(*fake_device_used_event(&f.dev), 2 + 0x7fff);
	/* To look is to take nothing. */
	assert_false(rf_drvq_peek(f.q));
	fake_device_use(&f.dev, next_head(&f), 1);
	assert_true(rf_drvq_peek(f.q));
	assert_true(rf_drvq_peek(f.q));
	assert_non_null(rf_drvq_get(f.q, &len));
	assert_false(rf_drvq_peek(f.q));
	teardown(&f);
}

static void test_arm_flag(void **state RF_UNUSED)
{
	struct fixture f;

	setup(&f, 8, false);
	assert_int_equal(add(&f, 0, true), 0);
	assert_int_equal(add(&f, 1, true), 0);
	(void)rf_drvq_publish(f.q);
	rf_drvq_disarm(f.q);
	rf_drvq_disarm(f.q);
	assert_int_equal(f.dev.avail->flags, VRING_AVAIL_F_NO_INTERRUPT);
	assert_false(rf_drvq_arm(f.q));
	assert_int_equal(f.dev.avail->flags, 0);
	rf_drvq_disarm(f.q);
	/* One is enough: the flag cannot say more. */
	fake_device_use(&f.dev, next_head(&f), 1);
	assert_true(rf_drvq_arm_after(f.q, 2));
	assert_int_equal(f.dev.avail->flags, 0);
	assert_int_equal(*fake_device_used_event(&f.dev), 0);
	teardown(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_new),           cmocka_unit_test(test_initial),
		cmocka_unit_test(test_chain),         cmocka_unit_test(test_room),
		cmocka_unit_test(test_wrong),         cmocka_unit_test(test_any_length),
		cmocka_unit_test(test_held_for_ever), cmocka_unit_test(test_publish_event),
		cmocka_unit_test(test_publish_flag),  cmocka_unit_test(test_arm_event),
		cmocka_unit_test(test_arm_flag),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
