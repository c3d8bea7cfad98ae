/* SPDX-License-Identifier: BSD-3-Clause */
/* vhost/kernel.c, on a kernel that is not there. */
#include "vhost/kernel.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/util.h"
#include "fake_kernel.h"
#include "open_fds.h"

#define NEED (UINT64_C(1) << 32)
#define WANT (UINT64_C(1) << 29)
#define CID  42u

static const struct rf_mem_region region = { .uva = { 0x700000000000 }, .size = 0x200000 };

static struct rf_vhost_vring ring_of(unsigned i)
{
	return (struct rf_vhost_vring){
		.num = 256u << i,
		.base = (uint16_t)(7 * i),
		.desc = { 0x700000000000 + 0x10000 * i },
		.driver = { 0x700000004000 + 0x10000 * i },
		.device = { 0x700000008000 + 0x10000 * i },
		.kick_fd = (int)(100 + i),
		.call_fd = (int)(110 + i),
		.err_fd = i ? -1 : 120,
	};
}

/* Everything up to rings that run, as far as it goes; what is left then is closed. */
static int bring_up(struct rf_vhost_kernel **ret_kernel)
{
	struct rf_vhost_kernel *k;
	uint64_t features = 0;
	int r = rf_vhost_kernel_open(FAKE_KERNEL_PATH, NULL, &k);

	if (r < 0)
		return r;
	r = rf_vhost_kernel_negotiate(k, WANT, NEED, &features);
	if (r == 0)
		r = rf_vhost_kernel_set_cid(k, CID);
	if (r == 0)
		r = rf_vhost_kernel_set_mem(k, &region);
	for (unsigned i = 0; r == 0 && i < RF_VHOST_KERNEL_RINGS; i++) {
		struct rf_vhost_vring ring = ring_of(i);

		r = rf_vhost_kernel_set_ring(k, i, &ring);
	}
	if (r == 0)
		r = rf_vhost_kernel_run(k);
	if (r < 0)
		rf_vhost_kernel_close(k);
	else
		*ret_kernel = k;
	return r;
}

/* In this order; an error descriptor has the first ring only. */
static const unsigned long order[] = {
	FAKE_KERNEL_OPEN,     VHOST_SET_OWNER,           VHOST_GET_FEATURES,
	VHOST_SET_FEATURES,   VHOST_VSOCK_SET_GUEST_CID, VHOST_SET_MEM_TABLE,
	VHOST_SET_VRING_NUM,  VHOST_SET_VRING_BASE,      VHOST_SET_VRING_ADDR,
	VHOST_SET_VRING_CALL, VHOST_SET_VRING_ERR,       VHOST_SET_VRING_KICK,
	VHOST_SET_VRING_NUM,  VHOST_SET_VRING_BASE,      VHOST_SET_VRING_ADDR,
	VHOST_SET_VRING_CALL, VHOST_SET_VRING_KICK,      VHOST_VSOCK_SET_RUNNING,
};

static void test_order(void **state)
{
	struct rf_vhost_kernel *k = NULL;
	struct fake_kernel seen;
	unsigned fds = open_fds();

	(void)state;
	fake_kernel_reset(NULL);
	assert_int_equal(bring_up(&k), 0);
	seen = fake_kernel_state();
	assert_int_equal(seen.n_calls, RF_ARRAY_SIZE(order));
	assert_memory_equal(seen.calls, order, sizeof(order));
	assert_true(seen.running);
	/* Bit 33 is offered, and would have the kernel ask for the translation of addresses. */
	assert_int_equal(seen.features, WANT | NEED);
	assert_int_equal(seen.cid, CID);
	rf_vhost_kernel_close(k);
	seen = fake_kernel_state();
	assert_int_equal(seen.n_calls, RF_ARRAY_SIZE(order) + 1);
	assert_int_equal(seen.calls[RF_ARRAY_SIZE(order)], VHOST_VSOCK_SET_RUNNING);
	assert_false(seen.running);
	assert_int_equal(open_fds(), fds);
	rf_vhost_kernel_close(NULL);
}

static void test_arguments(void **state)
{
	struct rf_vhost_kernel *k = NULL;
	struct fake_kernel seen;

	(void)state;
	fake_kernel_reset(NULL);
	assert_int_equal(bring_up(&k), 0);
	seen = fake_kernel_state();
	rf_vhost_kernel_close(k);
	assert_int_equal(seen.region.guest_phys_addr, 0);
	assert_int_equal(seen.region.memory_size, region.size);
	assert_int_equal(seen.region.userspace_addr, region.uva.v);
	for (unsigned i = 0; i < RF_VHOST_KERNEL_RINGS; i++) {
		struct rf_vhost_vring ring = ring_of(i);

		assert_int_equal(seen.rings[i].num, ring.num);
		assert_int_equal(seen.rings[i].base, ring.base);
		assert_int_equal(seen.rings[i].addr.desc_user_addr, ring.desc.v);
		assert_int_equal(seen.rings[i].addr.avail_user_addr, ring.driver.v);
		assert_int_equal(seen.rings[i].addr.used_user_addr, ring.device.v);
		assert_int_equal(seen.rings[i].kick_fd, ring.kick_fd);
		assert_int_equal(seen.rings[i].call_fd, ring.call_fd);
		assert_int_equal(seen.rings[i].err_fd, ring.err_fd);
	}
}

/* Each call in turn is refused: that is the result, nothing more is asked, nothing stays open. */
static void test_each_refused(void **state)
{
	(void)state;
	for (unsigned at = 1; at <= RF_ARRAY_SIZE(order); at++) {
		struct rf_vhost_kernel *k;
		unsigned fds = open_fds();
		int r;

		fake_kernel_reset(&(struct fake_kernel){ .fail_at = at });
		r = bring_up(&k);
		if (r != -EIO || fake_kernel_state().n_calls != at)
			fail_msg("call %u: %d after %u", at, r, fake_kernel_state().n_calls);
		assert_int_equal(open_fds(), fds);
	}
}

static void test_what_errors_mean(void **state)
{
	static const struct {
		int row;
		unsigned fail_at;
		int error;
		uint64_t offered;
		int result;
	} rows[] = {
		{ 1, 1, ENOENT, 0, -ENOENT },
		{ 2, 1, ENODEV, 0, -ENODEV },
		{ 3, 1, ENXIO, 0, -ENXIO },
		{ 4, 1, EACCES, 0, -EACCES },
		/* Not a vhost device, or not one for vsock. */
		{ 5, 2, ENOTTY, 0, -ENOTSUP },
		{ 6, 5, ENOTTY, 0, -ENOTSUP },
		{ 7, 5, EADDRINUSE, 0, -EADDRINUSE },
		/* A kernel that does not know virtio 1. */
		{ 8, 0, 0, UINT64_C(0x3d000002), -ENOTSUP },
		/* One that knows little else. */
		{ 9, 0, 0, UINT64_C(0x100000000), 0 },
	};

	(void)state;
	for (size_t i = 0; i < RF_ARRAY_SIZE(rows); i++) {
		struct rf_vhost_kernel *k = NULL;
		int r;

		fake_kernel_reset(&(struct fake_kernel){ .fail_at = rows[i].fail_at,
							 .fail_errno = rows[i].error,
							 .offered = rows[i].offered });
		r = bring_up(&k);
		if (r != rows[i].result)
			fail_msg("row %d: %d", rows[i].row, r);
		if (r == 0)
			assert_int_equal(fake_kernel_state().features, NEED);
		rf_vhost_kernel_close(k);
	}
}

static void test_cids(void **state)
{
	static const struct {
		uint64_t cid;
		int result;
	} rows[] = {
		{ 0, -EINVAL },
		{ 2, -EINVAL },
		{ 3, 0 },
		{ UINT32_MAX - 1, 0 },
		{ UINT32_MAX, -EINVAL },
		{ FAKE_KERNEL_TAKEN_CID, -EADDRINUSE },
	};

	(void)state;
	for (size_t i = 0; i < RF_ARRAY_SIZE(rows); i++) {
		struct rf_vhost_kernel *k;

		fake_kernel_reset(NULL);
		assert_int_equal(rf_vhost_kernel_open(FAKE_KERNEL_PATH, NULL, &k), 0);
		assert_int_equal(rf_vhost_kernel_set_cid(k, rows[i].cid), rows[i].result);
		rf_vhost_kernel_close(k);
		/* Rings that never ran are not stopped. */
		assert_int_equal(fake_kernel_state().n_calls, 3);
	}
}

static void keep_line(void *ctx, enum rf_log_level level, const char *name RF_UNUSED,
		      const char *line)
{
	assert_int_equal(level, RF_LOG_INFO);
	strncpy(ctx, line, 99);
}

/* The log names the request. */
static void test_log(void **state)
{
	char line[100] = "";
	const struct rf_log log = { .level = RF_LOG_INFO, .sink = keep_line, .ctx = line };
	struct rf_vhost_kernel *k;

	(void)state;
	fake_kernel_reset(NULL);
	assert_int_equal(rf_vhost_kernel_open(FAKE_KERNEL_PATH, &log, &k), 0);
	assert_int_equal(rf_vhost_kernel_set_cid(k, FAKE_KERNEL_TAKEN_CID), -EADDRINUSE);
	assert_non_null(strstr(line, "VHOST_VSOCK_SET_GUEST_CID"));
	assert_non_null(strstr(line, strerror(EADDRINUSE)));
	rf_vhost_kernel_close(k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),        cmocka_unit_test(test_arguments),
		cmocka_unit_test(test_each_refused), cmocka_unit_test(test_what_errors_mean),
		cmocka_unit_test(test_cids),         cmocka_unit_test(test_log),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
