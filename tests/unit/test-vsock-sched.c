/* SPDX-License-Identifier: BSD-3-Clause */
#include "vsock/sched.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/util.h"

static struct rf_vsock_sched sched;
static struct rf_vsock_conn conns[4];

/* Four connections that owe nothing, local ports 0 to 3. */
static int setup(void **state RF_UNUSED)
{
	struct rf_vsock_params params;

	rf_vsock_params_default(&params);
	rf_vsock_sched_init(&sched);
	for (uint32_t i = 0; i < RF_ARRAY_SIZE(conns); i++) {
		struct rf_vsock_hdr hdr = {
			.src_cid = 3,
			.dst_cid = 2,
			.dst_port = i,
			.type = VIRTIO_VSOCK_TYPE_STREAM,
			.op = VIRTIO_VSOCK_OP_REQUEST,
			.buf_alloc = 100000,
		};

		rf_vsock_conn_request(&conns[i], &hdr, &params, 0);
	}
	return 0;
}

static void owe_response(unsigned i)
{
	rf_vsock_conn_accept(&conns[i]);
	rf_vsock_sched_control(&sched, &conns[i]);
}

static struct rf_vsock_hdr stray(uint32_t port, uint16_t op)
{
	return (struct rf_vsock_hdr){
		.src_cid = 3,
		.dst_cid = 2,
		.src_port = port,
		.dst_port = 80,
		.type = VIRTIO_VSOCK_TYPE_STREAM,
		.op = op,
	};
}

static void expect_control(unsigned i, uint16_t op)
{
	struct rf_vsock_conn *conn = NULL;
	struct rf_vsock_hdr hdr = { 0 };

	assert_true(rf_vsock_sched_has_control(&sched));
	assert_true(rf_vsock_sched_next_control(&sched, &hdr, &conn));
	assert_ptr_equal(conn, &conns[i]);
	assert_int_equal(hdr.op, op);
	assert_int_equal(hdr.src_port, i);
}

static void expect_reset(uint32_t port)
{
	struct rf_vsock_conn *conn = &conns[0];
	struct rf_vsock_hdr hdr = { 0 };

	assert_true(rf_vsock_sched_has_control(&sched));
	assert_true(rf_vsock_sched_next_control(&sched, &hdr, &conn));
	assert_null(conn);
	assert_int_equal(hdr.op, VIRTIO_VSOCK_OP_RST);
	assert_int_equal(hdr.dst_port, port);
	assert_int_equal(hdr.src_port, 80);
}

static void expect_nothing(void)
{
	struct rf_vsock_conn *conn;
	struct rf_vsock_hdr hdr;

	assert_false(rf_vsock_sched_has_control(&sched));
	assert_false(rf_vsock_sched_next_control(&sched, &hdr, &conn));
}

static void test_empty(void **state RF_UNUSED)
{
	expect_nothing();
	assert_false(rf_vsock_sched_has_data(&sched));
	assert_null(rf_vsock_sched_next_data(&sched));
	assert_true(rf_vsock_sched_reset_room(&sched));
	/* Never queued: nothing to take off. */
	rf_vsock_sched_remove(&sched, &conns[0]);
}

static void test_control_in_turn(void **state RF_UNUSED)
{
	/* Owes nothing: is not queued. */
	rf_vsock_sched_control(&sched, &conns[0]);
	assert_true(TAILQ_EMPTY(&sched.control));
	expect_nothing();

	owe_response(1);
	owe_response(0);
	owe_response(2);
	/* Queued already: keeps its place. */
	rf_vsock_sched_control(&sched, &conns[1]);
	rf_vsock_conn_shutdown(&conns[1], RF_VSOCK_SHUT_SEND);
	/* One packet each, then the second one of the first. */
	expect_control(1, VIRTIO_VSOCK_OP_RESPONSE);
	expect_control(0, VIRTIO_VSOCK_OP_RESPONSE);
	expect_control(2, VIRTIO_VSOCK_OP_RESPONSE);
	expect_control(1, VIRTIO_VSOCK_OP_SHUTDOWN);
	expect_nothing();
}

/* A credit update that went out with data leaves its connection queued but owing nothing. */
static void test_control_cancelled(void **state RF_UNUSED)
{
	struct rf_vsock_hdr hdr;

	owe_response(0);
	expect_control(0, VIRTIO_VSOCK_OP_RESPONSE);
	conns[0].owed = RF_VSOCK_OWE_CREDIT_UPDATE;
	rf_vsock_sched_control(&sched, &conns[0]);
	owe_response(1);
	rf_vsock_conn_rw(&conns[0], 1, &hdr);
	expect_control(1, VIRTIO_VSOCK_OP_RESPONSE);
	expect_nothing();

	/* It can be queued again. */
	conns[0].owed = RF_VSOCK_OWE_CREDIT_UPDATE;
	rf_vsock_sched_control(&sched, &conns[0]);
	rf_vsock_conn_rw(&conns[0], 1, &hdr);
	expect_nothing();
	conns[0].owed = RF_VSOCK_OWE_CREDIT_UPDATE;
	rf_vsock_sched_control(&sched, &conns[0]);
	expect_control(0, VIRTIO_VSOCK_OP_CREDIT_UPDATE);
	expect_nothing();
}

/* One whose turn is not over is next, whether it was queued or not. */
static void test_data_first(void **state RF_UNUSED)
{
	rf_vsock_sched_data(&sched, &conns[0]);
	rf_vsock_sched_data(&sched, &conns[1]);
	rf_vsock_sched_data_first(&sched, &conns[2]);
	rf_vsock_sched_data_first(&sched, &conns[1]);
	/* Queued already: keeps its place. */
	rf_vsock_sched_data(&sched, &conns[1]);
	assert_ptr_equal(rf_vsock_sched_next_data(&sched), &conns[1]);
	assert_ptr_equal(rf_vsock_sched_next_data(&sched), &conns[2]);
	assert_ptr_equal(rf_vsock_sched_next_data(&sched), &conns[0]);
	assert_false(rf_vsock_sched_has_data(&sched));
}

static void test_data_in_turn(void **state RF_UNUSED)
{
	rf_vsock_sched_data(&sched, &conns[2]);
	rf_vsock_sched_data(&sched, &conns[0]);
	rf_vsock_sched_data(&sched, &conns[1]);
	/* Queued already: keeps its place. */
	rf_vsock_sched_data(&sched, &conns[2]);
	assert_true(rf_vsock_sched_has_data(&sched));

	/* A connection that has more after its turn goes behind the others. */
	for (unsigned round = 0; round < 3; round++) {
		static const unsigned order[] = { 2, 0, 1 };

		for (unsigned i = 0; i < RF_ARRAY_SIZE(order); i++) {
			struct rf_vsock_conn *conn = rf_vsock_sched_next_data(&sched);

			assert_ptr_equal(conn, &conns[order[i]]);
			rf_vsock_sched_data(&sched, conn);
		}
	}
	assert_ptr_equal(rf_vsock_sched_next_data(&sched), &conns[2]);
	assert_ptr_equal(rf_vsock_sched_next_data(&sched), &conns[0]);
	assert_ptr_equal(rf_vsock_sched_next_data(&sched), &conns[1]);
	assert_false(rf_vsock_sched_has_data(&sched));
	assert_null(rf_vsock_sched_next_data(&sched));
}

static void test_remove(void **state RF_UNUSED)
{
	for (unsigned i = 0; i < 3; i++) {
		owe_response(i);
		rf_vsock_sched_data(&sched, &conns[i]);
	}
	rf_vsock_sched_remove(&sched, &conns[1]);
	expect_control(0, VIRTIO_VSOCK_OP_RESPONSE);
	/* On one queue only. */
	rf_vsock_sched_remove(&sched, &conns[0]);
	expect_control(2, VIRTIO_VSOCK_OP_RESPONSE);
	expect_nothing();
	assert_ptr_equal(rf_vsock_sched_next_data(&sched), &conns[2]);
	assert_null(rf_vsock_sched_next_data(&sched));

	/* What was taken off can come back. */
	rf_vsock_sched_control(&sched, &conns[1]);
	rf_vsock_sched_data(&sched, &conns[1]);
	expect_control(1, VIRTIO_VSOCK_OP_RESPONSE);
	assert_ptr_equal(rf_vsock_sched_next_data(&sched), &conns[1]);
}

/* Replies to packets without a connection are bounded and never dropped (hyperkit#146). */
static void test_resets(void **state RF_UNUSED)
{
	uint32_t in = 0, out = 0;

	for (unsigned round = 0; round < 3; round++) {
		struct rf_vsock_hdr hdr;

		while (in - out < RF_VSOCK_RESETS) {
			hdr = stray(in++, VIRTIO_VSOCK_OP_REQUEST);
			assert_true(rf_vsock_sched_reset_room(&sched));
			assert_true(rf_vsock_sched_reset(&sched, &hdr));
		}
		assert_false(rf_vsock_sched_reset_room(&sched));
		hdr = stray(in, VIRTIO_VSOCK_OP_REQUEST);
		assert_false(rf_vsock_sched_reset(&sched, &hdr));
		/* An RST needs no answer and so no room. */
		hdr = stray(in, VIRTIO_VSOCK_OP_RST);
		assert_true(rf_vsock_sched_reset(&sched, &hdr));
		for (unsigned i = 0; i < 40; i++)
			expect_reset(out++);
	}
	while (out < in)
		expect_reset(out++);
	expect_nothing();
}

/* A process of the guest that asks for closed ports in a loop holds up nobody's connection. */
static void test_resets_and_control(void **state RF_UNUSED)
{
	struct rf_vsock_hdr hdr;

	for (uint32_t i = 0; i < 5; i++) {
		hdr = stray(i, VIRTIO_VSOCK_OP_REQUEST);
		assert_true(rf_vsock_sched_reset(&sched, &hdr));
	}
	owe_response(0);
	owe_response(1);
	expect_reset(0);
	expect_control(0, VIRTIO_VSOCK_OP_RESPONSE);
	expect_reset(1);
	expect_control(1, VIRTIO_VSOCK_OP_RESPONSE);
	expect_reset(2);
	expect_reset(3);
	owe_response(2);
	expect_control(2, VIRTIO_VSOCK_OP_RESPONSE);
	owe_response(3);
	expect_reset(4);
	expect_control(3, VIRTIO_VSOCK_OP_RESPONSE);
	expect_nothing();
}

static void test_forget_resets(void **state RF_UNUSED)
{
	const struct rf_vsock_key key = {
		.local_cid = 2, .peer_cid = 3, .local_port = 80, .peer_port = 7
	};
	struct rf_vsock_hdr seqpacket = stray(7, VIRTIO_VSOCK_OP_RW);

	/* Across the end of their ring. */
	for (uint32_t i = 0; i < RF_VSOCK_RESETS - 2; i++) {
		struct rf_vsock_hdr other = stray(100, VIRTIO_VSOCK_OP_RW);

		assert_true(rf_vsock_sched_reset(&sched, &other));
		expect_reset(100);
	}
	for (uint32_t i = 0; i < 10; i++) {
		struct rf_vsock_hdr hdr = stray(i % 2 ? 7 : i, VIRTIO_VSOCK_OP_RW);

		assert_true(rf_vsock_sched_reset(&sched, &hdr));
	}
	seqpacket.type = VIRTIO_VSOCK_TYPE_SEQPACKET;
	assert_true(rf_vsock_sched_reset(&sched, &seqpacket));
	rf_vsock_sched_forget_resets(&sched, &key);
	for (uint32_t i = 0; i < 10; i += 2)
		expect_reset(i);
	expect_reset(7);
	expect_nothing();
	rf_vsock_sched_forget_resets(&sched, &key);
	expect_nothing();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_empty, setup),
		cmocka_unit_test_setup(test_control_in_turn, setup),
		cmocka_unit_test_setup(test_control_cancelled, setup),
		cmocka_unit_test_setup(test_data_in_turn, setup),
		cmocka_unit_test_setup(test_data_first, setup),
		cmocka_unit_test_setup(test_remove, setup),
		cmocka_unit_test_setup(test_resets, setup),
		cmocka_unit_test_setup(test_resets_and_control, setup),
		cmocka_unit_test_setup(test_forget_resets, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
