/* SPDX-License-Identifier: BSD-3-Clause */
#include "vsock/packet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"

/* Every byte differs, so that a field at a wrong place or in a wrong order cannot go unseen. */
static const uint8_t wire[RF_VSOCK_HDR_BYTES] = {
	0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, /* src_cid */
	0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, /* dst_cid */
	0x21, 0x22, 0x23, 0x24,                         /* src_port */
	0x31, 0x32, 0x33, 0x34,                         /* dst_port */
	0x41, 0x42, 0x43, 0x44,                         /* len */
	0x51, 0x52,                                     /* type */
	0x61, 0x62,                                     /* op */
	0x71, 0x72, 0x73, 0x74,                         /* flags */
	0x81, 0x82, 0x83, 0x84,                         /* buf_alloc */
	0x91, 0x92, 0x93, 0x94,                         /* fwd_cnt */
};

static void test_decode(void **state RF_UNUSED)
{
	struct rf_vsock_hdr hdr;

	rf_vsock_hdr_decode(wire, &hdr);
	assert_true(hdr.src_cid == 0x0807060504030201);
	assert_true(hdr.dst_cid == 0x1817161514131211);
	assert_int_equal(hdr.src_port, 0x24232221);
	assert_int_equal(hdr.dst_port, 0x34333231);
	assert_int_equal(hdr.len, 0x44434241);
	assert_int_equal(hdr.type, 0x5251);
	assert_int_equal(hdr.op, 0x6261);
	assert_int_equal(hdr.flags, 0x74737271);
	assert_int_equal(hdr.buf_alloc, 0x84838281);
	assert_int_equal(hdr.fwd_cnt, 0x94939291);
}

static void test_encode(void **state RF_UNUSED)
{
	uint8_t out[RF_VSOCK_HDR_BYTES];
	struct rf_vsock_hdr hdr;

	rf_vsock_hdr_decode(wire, &hdr);
	rf_vsock_hdr_encode(&hdr, out);
	assert_memory_equal(out, wire, sizeof(out));
}

static void test_reset(void **state RF_UNUSED)
{
	for (unsigned op = 0; op < 16; op++) {
		struct rf_vsock_hdr hdr, reset, before;

		rf_vsock_hdr_decode(wire, &hdr);
		hdr.op = (uint16_t)op;
		memset(&reset, 0xee, sizeof(reset));
		before = reset;
		/* An RST is never answered (cloud-hypervisor PR 8692). */
		if (op == VIRTIO_VSOCK_OP_RST) {
			assert_false(rf_vsock_hdr_reset(&hdr, &reset));
			assert_memory_equal(&reset, &before, sizeof(reset));
			continue;
		}
		assert_true(rf_vsock_hdr_reset(&hdr, &reset));
		assert_true(reset.src_cid == hdr.dst_cid && reset.dst_cid == hdr.src_cid);
		assert_int_equal(reset.src_port, hdr.dst_port);
		assert_int_equal(reset.dst_port, hdr.src_port);
		assert_int_equal(reset.op, VIRTIO_VSOCK_OP_RST);
		assert_int_equal(reset.type, hdr.type);
		assert_int_equal(reset.len, 0);
		assert_int_equal(reset.flags, 0);
		assert_int_equal(reset.buf_alloc, 0);
		assert_int_equal(reset.fwd_cnt, 0);
	}
}

static const struct cid_row {
	uint64_t cid;
	bool usable;
} cid_rows[] = {
	/* 0 */ { 0, false },
	/* 1 */ { 1, false },
	/* 2 */ { 2, false },
	/* 3 */ { 3, true },
	/* 4 */ { UINT32_MAX - UINT64_C(1), true },
	/* 5 */ { UINT32_MAX, false },
	/* 6 */ { UINT64_C(1) << 32, false },
	/* 7 */ { (UINT64_C(1) << 32) + 3, false },
	/* 8 */ { UINT64_MAX, false },
};

static void test_cid_usable(void **state RF_UNUSED)
{
	for (size_t i = 0; i < RF_ARRAY_SIZE(cid_rows); i++) {
		print_message("# row %zu\n", i);
		assert_int_equal(rf_vsock_cid_usable(cid_rows[i].cid), cid_rows[i].usable);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_decode),
		cmocka_unit_test(test_encode),
		cmocka_unit_test(test_reset),
		cmocka_unit_test(test_cid_usable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
