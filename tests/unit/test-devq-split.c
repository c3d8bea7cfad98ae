/* SPDX-License-Identifier: BSD-3-Clause */
#include "ring/devq.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "devq_fixture.h"

#define N VRING_DESC_F_NEXT
#define W VRING_DESC_F_WRITE
#define I VRING_DESC_F_INDIRECT

/*
 * Descriptors of one chain, its head first in the ring's table of 8, and an indirect table. The
 * chain is either broken for @reason, or made of the ranges in @out and @in.
 */
struct layout_row {
	const char *what;
	struct {
		uint64_t gpa;
		uint32_t len;
		uint16_t flags, next;
	} direct[8], table[4];
	uint64_t table_gpa;
	uint16_t head;
	bool no_indirect;
	enum rf_ring_reason reason;
	struct range out[8], in[4];
};

static const struct layout_row layout_rows[] = {
	{ "0 one piece", .direct = { { BUF_GPA, 100, 0, 0 } }, .out = { { BUF_GPA, 100 } } },
	{ "1 vm-virtio #204: header and data in one, in both directions",
	  .direct = { { BUF_GPA, 144, N, 1 }, { BUF_GPA + 500, 144, W, 0 } },
	  .out = { { BUF_GPA, 144 } }, .in = { { BUF_GPA + 500, 144 } } },
	{ "2 a header over three descriptors and an empty one",
	  .direct = { { BUF_GPA, 1, N, 3 },
		      { BUF_GPA + 9, 43, N, 4 },
		      { 0 },
		      { BUF_GPA + 5, 0, N, 1 },
		      { BUF_GPA + 99, 7, 0, 0 } },
	  .out = { { BUF_GPA, 1 }, { BUF_GPA + 9, 43 }, { BUF_GPA + 99, 7 } } },
	{ "3 CVE-2019-18960: a buffer over two devq_fixture_regions",
	  .direct = { { B_GPA - 5, 12, W, 0 } }, .in = { { B_GPA - 5, 5 }, { B_GPA, 7 } } },
	{ "4 region at an odd place",
	  .direct = { { C_GPA, C_SIZE, N, 1 }, { C_GPA + C_SIZE - 1, 1, W, 0 } },
	  .out = { { C_GPA, C_SIZE } }, .in = { { C_GPA + C_SIZE - 1, 1 } } },
	{ "5 indirect", .direct = { { TBL_GPA, 48, I, 0 } },
	  .table = { { BUF_GPA, 10, N, 2 }, { BUF_GPA + 70, 9, W, 0 }, { BUF_GPA + 20, 8, N, 1 } },
	  .out = { { BUF_GPA, 10 }, { BUF_GPA + 20, 8 } }, .in = { { BUF_GPA + 70, 9 } } },
	{ "6 direct descriptors, then an indirect one",
	  .direct = { { BUF_GPA, 44, N, 5 }, [5] = { TBL_GPA, 32, I, 0 } },
	  .table = { { BUF_GPA + 100, 10, N, 1 }, { BUF_GPA + 200, 20, W, 0 } },
	  .out = { { BUF_GPA, 44 }, { BUF_GPA + 100, 10 } }, .in = { { BUF_GPA + 200, 20 } } },
	{ "7 WRITE on the descriptor of the table says nothing",
	  .direct = { { TBL_GPA, 16, I | W, 0 } }, .table = { { BUF_GPA, 10, 0, 0 } },
	  .out = { { BUF_GPA, 10 } } },
	{ "8 what the table holds behind the chain is not looked at",
	  .direct = { { TBL_GPA, 64, I, 0 } },
	  .table = { { BUF_GPA, 10, W, 3 }, { NOWHERE, 1, I, 9 }, { NOWHERE, 1, N, 9 } },
	  .in = { { BUF_GPA, 10 } } },
	{ "9 table over two devq_fixture_regions", .direct = { { B_GPA - 16, 32, I, 0 } },
	  .table_gpa = B_GPA - 16, .table = { { BUF_GPA, 10, N, 1 }, { BUF_GPA + 10, 10, W, 0 } },
	  .out = { { BUF_GPA, 10 } }, .in = { { BUF_GPA + 10, 10 } } },
	{ "10 table at an odd address", .direct = { { C_GPA + 3, 16, I, 0 } },
	  .table_gpa = C_GPA + 3, .table = { { BUF_GPA, 10, 0, 0 } }, .out = { { BUF_GPA, 10 } } },
	{ "11 no byte at all", .direct = { { BUF_GPA, 0, N, 1 }, { BUF_GPA, 0, W, 0 } } },
	{ "12 flags that are not known", .direct = { { BUF_GPA, 3, 0xfff8, 77 } },
	  .out = { { BUF_GPA, 3 } } },
	{ "13 as many descriptors as the ring has",
	  .direct = { { BUF_GPA + 0, 1, N, 3 },
		      { BUF_GPA + 10, 1, N, 2 },
		      { BUF_GPA + 20, 1, N, 4 },
		      { BUF_GPA + 30, 1, N, 1 },
		      { BUF_GPA + 40, 1, N, 5 },
		      { BUF_GPA + 50, 1, N, 6 },
		      { BUF_GPA + 60, 1, N, 7 },
		      { BUF_GPA + 70, 1, 0, 0 } },
	  .out = { { BUF_GPA, 1 },
		   { BUF_GPA + 30, 1 },
		   { BUF_GPA + 10, 1 },
		   { BUF_GPA + 20, 1 },
		   { BUF_GPA + 40, 1 },
		   { BUF_GPA + 50, 1 },
		   { BUF_GPA + 60, 1 },
		   { BUF_GPA + 70, 1 } } },
	{ "14 last descriptor as the head", .head = 7,
	  .direct = { [7] = { BUF_GPA, 2, N, 0 }, [0] = { BUF_GPA + 9, 2, W, 0 } },
	  .out = { { BUF_GPA, 2 } }, .in = { { BUF_GPA + 9, 2 } } },
	{ "15 a table longer than the ring", .direct = { { TBL_GPA, 4096 * 16, I, 0 } },
	  .table = { { BUF_GPA, 10, 0, 0 } }, .out = { { BUF_GPA, 10 } } },
	{ "16 the next buffer goes beyond the region that the last one was in",
	  .direct = { { BUF_GPA, 3, N, 1 }, { B_GPA - 5, 12, W, 0 } }, .out = { { BUF_GPA, 3 } },
	  .in = { { B_GPA - 5, 5 }, { B_GPA, 7 } } },

	{ "20", .head = 8, .reason = RF_RING_HEAD_RANGE },
	{ "21", .head = 0xffff, .reason = RF_RING_HEAD_RANGE },
	{ "22", .direct = { { BUF_GPA, 1, N, 8 } }, .reason = RF_RING_NEXT_RANGE },
	{ "23", .direct = { { BUF_GPA, 1, N, 0xffff } }, .reason = RF_RING_NEXT_RANGE },
	{ "24 next in a table is counted in the table", .direct = { { TBL_GPA, 32, I, 0 } },
	  .table = { { BUF_GPA, 1, N, 2 }, [2] = { BUF_GPA, 1, 0, 0 } },
	  .reason = RF_RING_NEXT_RANGE },
	{ "25 loop of one", .direct = { { BUF_GPA, 1, N, 0 } }, .reason = RF_RING_CHAIN_LOOP },
	{ "26 DPDK 450539b: loop of two", .direct = { { BUF_GPA, 1, N, 1 }, { BUF_GPA, 1, N, 0 } },
	  .reason = RF_RING_CHAIN_LOOP },
	{ "27 DPDK 6ec1778: loop without a byte",
	  .direct = { { BUF_GPA, 0, N, 1 }, { BUF_GPA, 0, N, 1 } }, .reason = RF_RING_CHAIN_LOOP },
	{ "28 loop in a table", .direct = { { TBL_GPA, 32, I, 0 } },
	  .table = { { BUF_GPA, 0, N, 1 }, { BUF_GPA, 0, N, 0 } }, .reason = RF_RING_CHAIN_LOOP },
	{ "29", .direct = { { BUF_GPA, 1, N | W, 1 }, { BUF_GPA, 1, 0, 0 } },
	  .reason = RF_RING_READ_AFTER_WRITE },
	{ "30 behind an empty one", .direct = { { BUF_GPA, 0, N | W, 1 }, { BUF_GPA, 1, 0, 0 } },
	  .reason = RF_RING_READ_AFTER_WRITE },
	{ "31 from the ring's table into an indirect one",
	  .direct = { { BUF_GPA, 1, N | W, 1 }, { TBL_GPA, 16, I | W, 0 } },
	  .table = { { BUF_GPA, 1, 0, 0 } }, .reason = RF_RING_READ_AFTER_WRITE },
	{ "32", .no_indirect = true, .direct = { { TBL_GPA, 16, I, 0 } },
	  .table = { { BUF_GPA, 1, 0, 0 } }, .reason = RF_RING_INDIRECT_FEATURE },
	{ "33", .direct = { { TBL_GPA, 0, I, 0 } }, .reason = RF_RING_INDIRECT_SIZE },
	{ "34", .direct = { { TBL_GPA, 8, I, 0 } }, .reason = RF_RING_INDIRECT_SIZE },
	{ "35", .direct = { { TBL_GPA, 33, I, 0 } }, .reason = RF_RING_INDIRECT_SIZE },
	{ "36 libvhost-user 85805ee8: longer than the copy",
	  .direct = { { TBL_GPA, 4097 * 16, I, 0 } }, .reason = RF_RING_INDIRECT_SIZE },
	{ "37", .direct = { { TBL_GPA, 0xfffffff0, I, 0 } }, .reason = RF_RING_INDIRECT_SIZE },
	{ "38", .direct = { { TBL_GPA, 32, I, 0 } },
	  .table = { { BUF_GPA, 1, N, 1 }, { TBL_GPA, 16, I, 0 } },
	  .reason = RF_RING_INDIRECT_NESTED },
	{ "39", .direct = { { TBL_GPA, 16, I | N, 1 }, { BUF_GPA, 1, 0, 0 } },
	  .table = { { BUF_GPA, 1, 0, 0 } }, .reason = RF_RING_INDIRECT_NEXT },
	{ "40", .direct = { { NOWHERE, 1, 0, 0 } }, .reason = RF_RING_DESC_ADDR },
	{ "41 CVE-2018-1059: one byte too long", .direct = { { C_GPA, C_SIZE + 1, 0, 0 } },
	  .reason = RF_RING_DESC_ADDR },
	{ "42 into the gap behind a neighbour", .direct = { { B_GPA + B_SIZE - 3, 5, 0, 0 } },
	  .reason = RF_RING_DESC_ADDR },
	{ "43 CVE-2020-10725: no bytes at a bad address",
	  .direct = { { NOWHERE, 0, N, 1 }, { BUF_GPA, 1, 0, 0 } }, .reason = RF_RING_DESC_ADDR },
	{ "44 address that wraps", .direct = { { UINT64_MAX - 1, 16, 0, 0 } },
	  .reason = RF_RING_DESC_ADDR },
	{ "45 table nowhere", .direct = { { NOWHERE, 16, I, 0 } }, .reason = RF_RING_DESC_ADDR },
	{ "46 table over the end", .direct = { { C_GPA + C_SIZE - 16, 32, I, 0 } },
	  .reason = RF_RING_DESC_ADDR },
	{ "47 in a table", .direct = { { TBL_GPA, 16, I, 0 } }, .table = { { NOWHERE, 1, 0, 0 } },
	  .reason = RF_RING_DESC_ADDR },
	{ "48 beyond the region that the last one was in",
	  .direct = { { C_GPA, 4, N, 1 }, { C_GPA + C_SIZE - 1, 2, 0, 0 } },
	  .reason = RF_RING_DESC_ADDR },
};

static void layout_write(struct devq_fixture *f, const struct layout_row *row)
{
	uint64_t gpa = row->table_gpa ? row->table_gpa : TBL_GPA;

	f->config.indirect = !row->no_indirect;
	for (unsigned i = 0; i < 8; i++)
		fake_desc(&f->drv.desc[i], row->direct[i].gpa, row->direct[i].len,
			  row->direct[i].flags, row->direct[i].next);
	for (unsigned i = 0; i < 4; i++) {
		struct vring_desc desc;

		fake_desc(&desc, row->table[i].gpa, row->table[i].len, row->table[i].flags,
			  row->table[i].next);
		/* Byte by byte: it may lie anywhere. */
		for (unsigned k = 0; k < 16 && row->table[i].gpa; k++)
			*devq_fixture_guest(f, gpa + i * 16 + k) = ((uint8_t *)&desc)[k];
	}
}

static void check_chain(struct devq_fixture *f, const struct layout_row *row,
			const struct rf_chain *chain)
{
	uint32_t bytes_out = 0, bytes_in = 0;

	for (unsigned i = 0; i < 8; i++)
		bytes_out += row->out[i].len;
	for (unsigned i = 0; i < 4; i++)
		bytes_in += row->in[i].len;
	if (chain->head != row->head || chain->bytes_out != bytes_out ||
	    chain->bytes_in != bytes_in)
		fail_msg("%s: head %u, %u out, %u in", row->what, chain->head, chain->bytes_out,
			 chain->bytes_in);
	devq_fixture_check_pieces(f, row->what, rf_devq_out(f->q, chain), chain->n_out, row->out);
	devq_fixture_check_pieces(f, row->what, rf_devq_in(f->q, chain), chain->n_in, row->in);
}

static void layout_run(const struct layout_row *row, uint16_t base, size_t max_piece)
{
	const struct rf_chain *chains;
	struct devq_fixture f;
	int n;

	devq_fixture_init(&f, 8, base);
	layout_write(&f, row);
	rf_mem_set_max_piece(f.m.mem, max_piece);
	assert_int_equal(rf_devq_start(f.q, &f.config), 0);
	(void)fake_driver_offer(&f.drv, row->head);
	n = rf_devq_look(f.q, 1, &chains);
	if (row->reason) {
		if (n != -EPROTO)
			fail_msg("%s: taken for good", row->what);
		devq_fixture_check_broken(&f, row->what, row->reason);
	} else {
		if (n != 1)
			fail_msg("%s: %d, %s", row->what, n,
				 rf_ring_reason_text(rf_devq_broken(f.q)));
		check_chain(&f, row, chains);
		rf_devq_take(f.q, 1);
		rf_devq_push(f.q, chains, chains->bytes_in);
		assert_true(rf_devq_publish(f.q));
		assert_int_equal(f.drv.used->ring[base % 8].id, row->head);
		assert_int_equal(f.drv.used->ring[base % 8].len, chains->bytes_in);
	}
	devq_fixture_fini(&f);
}

static void test_layouts(void **state RF_UNUSED)
{
	for (size_t i = 0; i < RF_ARRAY_SIZE(layout_rows); i++) {
		layout_run(&layout_rows[i], 0, 0);
		layout_run(&layout_rows[i], 0xffff, 0);
		layout_run(&layout_rows[i], 13, 1);
	}
}

static const struct jump_row {
	uint32_t num;
	uint16_t base, first, second; /* index after base, before and after a look at one chain */
	bool broken_first, broken_second;
} jump_rows[] = {
	/* 0 */ { 8, 0, 8, 8, false, false },
	/* 1 */ { 8, 0, 9, 9, true, true },
	/* 2 */ { 8, 0xfffa, 8, 8, false, false },
	/* 3 */ { 8, 0xfffa, 9, 9, true, true },
	/* 4 one chain in the window, 8 behind it */ { 8, 0, 1, 9, false, true },
	/* 5 it goes back */ { 8, 0, 3, 2, false, true },
	/* 6 it goes back to where we are */ { 8, 0, 3, 0, false, true },
	/* 7 it goes back behind us */ { 8, 5, 3, 0xffff, false, true },
	/* 8 */ { 1, 7, 1, 1, false, false },
	/* 9 */ { 1, 0, 2, 2, true, true },
	/* 10 */ { 32768, 0, 32768, 32768, false, false },
	/* 11 */ { 32768, 0, 32769, 32769, true, true },
	/* 12 */ { 32768, 0, 32768, 32767, false, true },
};

static void test_avail_jump(void **state RF_UNUSED)
{
	for (size_t i = 0; i < RF_ARRAY_SIZE(jump_rows); i++) {
		const struct jump_row *row = &jump_rows[i];
		const struct rf_chain *chains;
		struct devq_fixture f;
		int n;

		devq_fixture_start(&f, row->num, row->base);
		for (uint32_t k = 0; k < row->num; k++)
			fake_desc(&f.drv.desc[k], BUF_GPA, 1, 0, 0);
		f.drv.avail->idx = (uint16_t)(row->base + row->first);
		if (rf_devq_look(f.q, 1, &chains) != (row->broken_first ? -EPROTO : 1))
			fail_msg("row %zu", i);
		f.drv.avail->idx = (uint16_t)(row->base + row->second);
		/* All that is known is taken before the index is read again. */
		do {
			n = rf_devq_look(f.q, RF_DEVQ_WINDOW, &chains);
			rf_devq_take(f.q, n > 0 ? (unsigned)n : 0);
		} while (n > 0);
		if ((rf_devq_broken(f.q) == RF_RING_AVAIL_JUMP) != row->broken_second)
			fail_msg("row %zu: %s", i, rf_ring_reason_text(rf_devq_broken(f.q)));
		devq_fixture_fini(&f);
	}
}

/* virtio 1.2 2.7.5: no more than 2^32 bytes; 2^32 - 1 with us, which fits a used length. */
static void test_chain_bytes(void **state RF_UNUSED)
{
	const uint32_t gib = 1u << 30;
	const struct fake_region large = { UINT64_C(1) << 40, gib, 0x204000 };
	struct rf_mem_region region = fake_mem_region(&large);
	const struct rf_chain *chains;
	struct devq_fixture f;

	devq_fixture_start(&f, 8, 0);
	assert_int_equal(ftruncate(f.m.fd, (off_t)(large.offset + gib)), 0);
	assert_int_equal(rf_mem_add(f.m.mem, &region, f.m.fd), 0);
	for (uint16_t i = 0; i < 4; i++)
		fake_desc(&f.drv.desc[i], large.gpa, gib, i < 3 ? N : W, i + 1);
	f.drv.desc[3].len--;
	(void)fake_driver_offer(&f.drv, 0);
	assert_int_equal(rf_devq_look(f.q, 1, &chains), 1);
	assert_int_equal(chains[0].bytes_out, 3 * gib);
	assert_int_equal(chains[0].bytes_in, gib - 1);
	rf_devq_forget(f.q);
	f.drv.desc[3].len++;
	devq_fixture_check_broken(&f, "2^32 bytes", RF_RING_CHAIN_BYTES);
	devq_fixture_fini(&f);
}

/* rust-vmm/vhost #183: the guest has rebooted, and both indices begin anew. */
static void test_restart(void **state RF_UNUSED)
{
	struct devq_fixture f;

	devq_fixture_start(&f, 4, 0);
	for (uint16_t i = 0; i < 9; i++) {
		(void)devq_fixture_offer(&f, i % 4, 10, W);
		/* virtio 1.2 2.7.7.2; DPDK 2f70602: what was signalled before is not known. */
		assert_int_equal(devq_fixture_serve(&f), i == 0);
		*fake_driver_used_event(&f.drv) = 0x8000;
	}
	assert_int_equal(rf_devq_stop(f.q), 9);
	fake_driver_init(&f.drv, 4, f.drv.desc, f.drv.avail, f.drv.used, 0);
	f.drv.used->flags = 1; /* left by an earlier device */
	*fake_driver_used_event(&f.drv) = 0x8000;
	assert_int_equal(rf_devq_start(f.q, &f.config), 0);
	assert_int_equal(f.drv.used->flags, 0);
	/* firecracker #5969: the event index is that of the new start. */
	assert_int_equal(*fake_driver_avail_event(&f.drv), 0);
	assert_false(rf_devq_publish(f.q));
	(void)devq_fixture_offer(&f, 0, 10, W);
	assert_true(devq_fixture_serve(&f));
	assert_int_equal(f.drv.used->idx, 1);
	(void)devq_fixture_offer(&f, 0, 10, W);
	assert_false(devq_fixture_serve(&f));
	/* A start while it runs is a stop first. */
	f.config.base = 2;
	assert_int_equal(rf_devq_start(f.q, &f.config), 0);
	(void)devq_fixture_offer(&f, 0, 10, W);
	assert_true(devq_fixture_serve(&f));
	assert_int_equal(f.drv.used->idx, 3);
	devq_fixture_fini(&f);
}

static const struct event_row {
	uint16_t start, n, event;
	bool expected;
} event_rows[] = {
	/* 0 */ { 10, 1, 10, true },
	/* 1 */ { 10, 1, 9, false },
	/* 2 */ { 10, 1, 11, false },
	/* 3 */ { 10, 4, 10, true },
	/* 4 */ { 10, 4, 13, true },
	/* 5 */ { 10, 4, 14, false },
	/* 6 */ { 10, 4, 9, false },
	/* 7 */ { 0xfffe, 4, 0xfffd, false },
	/* 8 */ { 0xfffe, 4, 0xfffe, true },
	/* 9 */ { 0xfffe, 4, 0xffff, true },
	/* 10 */ { 0xfffe, 4, 0, true },
	/* 11 */ { 0xfffe, 4, 1, true },
	/* 12 */ { 0xfffe, 4, 2, false },
	/* 13 */ { 0x7fff, 4, 0x8001, true },
	/* 14 */ { 0x7fff, 4, 0xffff, false },
};

static void test_publish_event(void **state RF_UNUSED)
{
	for (size_t i = 0; i < RF_ARRAY_SIZE(event_rows); i++) {
		const struct event_row *row = &event_rows[i];
		struct devq_fixture f;

		devq_fixture_start(&f, 4, (uint16_t)(row->start - 1));
		(void)devq_fixture_offer(&f, 0, 1, W);
		assert_true(devq_fixture_serve(&f));
		for (uint16_t k = 0; k < row->n; k++)
			(void)devq_fixture_offer(&f, k, 1, W);
		*fake_driver_used_event(&f.drv) = row->event;
		/* With an event index the flag says nothing. */
		f.drv.avail->flags = i & 1;
		if (devq_fixture_serve(&f) != row->expected)
			fail_msg("row %zu", i);
		assert_false(rf_devq_publish(f.q));
		devq_fixture_fini(&f);
	}
}

static void test_publish_flag(void **state RF_UNUSED)
{
	struct devq_fixture f;

	devq_fixture_init(&f, 4, 0);
	f.config.event_idx = false;
	assert_int_equal(rf_devq_start(f.q, &f.config), 0);
	f.drv.avail->flags = VRING_AVAIL_F_NO_INTERRUPT;
	(void)devq_fixture_offer(&f, 0, 1, W);
	assert_true(devq_fixture_serve(&f));
	(void)devq_fixture_offer(&f, 0, 1, W);
	assert_false(devq_fixture_serve(&f));
	f.drv.avail->flags = 0;
	*fake_driver_used_event(&f.drv) = 0x8000;
	(void)devq_fixture_offer(&f, 0, 1, W);
	assert_true(devq_fixture_serve(&f));
	devq_fixture_fini(&f);
}

static void test_arm_event(void **state RF_UNUSED)
{
	const struct rf_chain *chains;
	struct devq_fixture f;

	devq_fixture_start(&f, 8, 0xffff);
	/* The first one kicks: starting has armed. */
	assert_true(devq_fixture_offer(&f, 0, 1, 0));
	assert_false(devq_fixture_offer(&f, 1, 1, 0));
	assert_true(rf_devq_arm(f.q));
	assert_int_equal(rf_devq_look(f.q, 1, &chains), 1);
	/* One is in the window, one is behind it. */
	assert_true(rf_devq_arm(f.q));
	assert_int_equal(rf_devq_look(f.q, 8, &chains), 2);
	assert_false(rf_devq_arm(f.q));
	assert_int_equal(*fake_driver_avail_event(&f.drv), 1);
	rf_devq_disarm(f.q);
	assert_int_equal(f.drv.used->flags, 0);
	assert_false(rf_devq_arm(f.q));
	assert_true(devq_fixture_offer(&f, 2, 1, 0));
	assert_false(devq_fixture_offer(&f, 3, 1, 0));
	devq_fixture_fini(&f);
}

/* It sees what is behind the window, asks for nothing, and lets a broken ring be. */
static void test_peek(void **state RF_UNUSED)
{
	const struct rf_chain *chains;
	struct devq_fixture f;

	devq_fixture_start(&f, 8, 0xffff);
	assert_false(rf_devq_peek(f.q));
	(void)devq_fixture_offer(&f, 0, 1, 0);
	(void)devq_fixture_offer(&f, 1, 1, 0);
	assert_true(rf_devq_peek(f.q));
	assert_int_equal(rf_devq_look(f.q, 1, &chains), 1);
	assert_true(rf_devq_peek(f.q));
	assert_int_equal(rf_devq_look(f.q, 8, &chains), 2);
	assert_false(rf_devq_peek(f.q));
	rf_devq_take(f.q, 2);
	assert_false(rf_devq_peek(f.q));
	assert_int_equal(*fake_driver_avail_event(&f.drv), 0xffff);
	f.drv.avail->idx = 0x4000;
	assert_true(rf_devq_peek(f.q));
	assert_int_equal(rf_devq_look(f.q, 8, &chains), -EPROTO);
	assert_false(rf_devq_peek(f.q));
	(void)rf_devq_stop(f.q);
	assert_false(rf_devq_peek(f.q));
	devq_fixture_fini(&f);
}

static void test_arm_flag(void **state RF_UNUSED)
{
	struct devq_fixture f;

	devq_fixture_init(&f, 8, 0);
	f.config.event_idx = false;
	assert_int_equal(rf_devq_start(f.q, &f.config), 0);
	*fake_driver_avail_event(&f.drv) = 0x1234;
	assert_int_equal(f.drv.used->flags, 0);
	rf_devq_disarm(f.q);
	rf_devq_disarm(f.q);
	assert_int_equal(f.drv.used->flags, VRING_USED_F_NO_NOTIFY);
	assert_false(rf_devq_arm(f.q));
	assert_int_equal(f.drv.used->flags, 0);
	rf_devq_disarm(f.q);
	(void)devq_fixture_offer(&f, 0, 1, 0);
	assert_true(rf_devq_arm(f.q));
	assert_int_equal(*fake_driver_avail_event(&f.drv), 0x1234);
	devq_fixture_fini(&f);
}

/* virtio 1.2 2.7 and 2.7.2 */
static void test_extent(void **state RF_UNUSED)
{
	for (uint32_t num = 1; num <= 32768; num *= 2) {
		struct rf_ring_extent e;

		assert_int_equal(rf_ring_extent_get(RF_RING_SPLIT, num, &e), 0);
		assert_int_equal(e.desc_bytes, 16 * num);
		assert_int_equal(e.driver_bytes, 6 + 2 * num);
		assert_int_equal(e.device_bytes, 6 + 8 * num);
		assert_int_equal(e.desc_align, 16);
		assert_int_equal(e.driver_align, 2);
		assert_int_equal(e.device_align, 4);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layouts),       cmocka_unit_test(test_avail_jump),
		cmocka_unit_test(test_chain_bytes),   cmocka_unit_test(test_restart),
		cmocka_unit_test(test_publish_event), cmocka_unit_test(test_publish_flag),
		cmocka_unit_test(test_arm_event),     cmocka_unit_test(test_peek),
		cmocka_unit_test(test_arm_flag),      cmocka_unit_test(test_extent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
