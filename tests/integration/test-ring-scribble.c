/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A driver that changes descriptors, indirect tables and the available ring at any moment while the
 * device reads them (DPDK 134228ca, 48cae0bf and 285e6b8b; a flipped length ended cloud-hypervisor
 * #7530). What the device makes of it is wrong or right, but one thing only: a word that was read
 * twice shows as pieces outside of memory, or as sums that the pieces do not have.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "ring/devq.h"

#include "fake_driver.h"
#include "fake_mem.h"
#include "prng.h"

#define NUM    16u
#define DRV_AT 0x1000u
#define DEV_AT 0x2000u
#define TBL_AT 0x3000u
#define BUF_AT 0x4000u
#define SIZE   0x8000u
#define RUN_MS 400

/* Two neighbours, so that a piece that is cut at the wrong place leaves its region. */
static const struct fake_region regions[] = {
	{ 0, 0x6000, 0 },
	{ 0x6000, 0x2000, 0x6000 },
};

struct scribble {
	struct fake_mem m;
	struct fake_driver drv;
	struct rf_ring_config config;
	struct rf_devq *q;
	atomic_bool stop;
	uint16_t taken;
	uint64_t n_chains, n_broken;
};

static void scribble_desc(uint64_t *seed, struct vring_desc *desc, bool table)
{
	static const uint16_t flags[] = { 0, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE,
					  VRING_DESC_F_NEXT | VRING_DESC_F_WRITE,
					  VRING_DESC_F_INDIRECT };
	uint16_t f = flags[prng_below(seed, table ? 4 : 5)];
	uint64_t word[2];

	word[0] = f == VRING_DESC_F_INDIRECT ? TBL_AT : prng_below(seed, SIZE);
	word[1] = f == VRING_DESC_F_INDIRECT ? 16 * (1 + prng_below(seed, 8))
					     : prng_below(seed, 0x800);
	word[1] |= (uint64_t)f << 32 | (uint64_t)prng_below(seed, table ? 8 : NUM) << 48;
	/* Half of them only in part, so that nothing fits together. */
	if (prng_below(seed, 2))
		__atomic_store_n((uint64_t *)(void *)desc, word[0], __ATOMIC_RELAXED);
	__atomic_store_n((uint64_t *)(void *)desc + 1, word[1], __ATOMIC_RELAXED);
}

static void *scribble_main(void *arg)
{
	struct scribble *s = arg;
	struct vring_desc *table = (void *)(s->m.bytes + TBL_AT);
	uint64_t seed = 1;

	while (!atomic_load_explicit(&s->stop, memory_order_relaxed)) {
		scribble_desc(&seed, &s->drv.desc[prng_below(&seed, NUM)], false);
		scribble_desc(&seed, &table[prng_below(&seed, 8)], true);
		__atomic_store_n(&s->drv.avail->ring[prng_below(&seed, NUM)],
				 (uint16_t)prng_below(&seed, NUM), __ATOMIC_RELAXED);
	}
	return NULL;
}

static uint64_t check_pieces(struct scribble *s, const struct iovec *iov, unsigned n)
{
	const uint8_t *start[2] = { fake_mem_host(&s->m, 0, 1), fake_mem_host(&s->m, 0x6000, 1) };
	uint64_t bytes = 0;

	for (unsigned i = 0; i < n; i++) {
		size_t at[2] = { (size_t)((uint8_t *)iov[i].iov_base - start[0]),
				 (size_t)((uint8_t *)iov[i].iov_base - start[1]) };

		assert_true((at[0] < 0x6000 && iov[i].iov_len <= 0x6000 - at[0]) ||
			    (at[1] < 0x2000 && iov[i].iov_len <= 0x2000 - at[1]));
		bytes += iov[i].iov_len;
	}
	return bytes;
}

static void serve(struct scribble *s)
{
	const struct rf_chain *chains;
	int n = rf_devq_look(s->q, NUM, &chains);

	if (n == -EPROTO) {
		s->n_broken++;
		s->config.base = rf_devq_stop(s->q);
		assert_int_equal(rf_devq_start(s->q, &s->config), 0);
		return;
	}
	rf_devq_take(s->q, (unsigned)n);
	s->taken = (uint16_t)(s->taken + n);
	for (int i = 0; i < n; i++) {
		const struct rf_chain *c = &chains[i];

		assert_true(c->head < NUM);
		assert_int_equal(check_pieces(s, rf_devq_out(s->q, c), c->n_out), c->bytes_out);
		assert_int_equal(check_pieces(s, rf_devq_in(s->q, c), c->n_in), c->bytes_in);
		rf_devq_push(s->q, c, c->bytes_in);
		s->n_chains++;
	}
	(void)rf_devq_publish(s->q);
}

static void test_scribble(void **state RF_UNUSED)
{
	struct scribble s = { .n_chains = 0 };
	uint64_t end = rf_clock_now() + RUN_MS * RF_NS_PER_MS;
	pthread_t thread;

	fake_mem_init(&s.m, SIZE, regions, RF_ARRAY_SIZE(regions));
	fake_driver_init(&s.drv, NUM, s.m.bytes, s.m.bytes + DRV_AT, s.m.bytes + DEV_AT, 0);
	s.config = (struct rf_ring_config){
		.layout = RF_RING_SPLIT,
		.num = NUM,
		.indirect = true,
		.desc = fake_mem_host(&s.m, 0, 1),
		.driver = fake_mem_host(&s.m, DRV_AT, 1),
		.device = fake_mem_host(&s.m, DEV_AT, 1),
	};
	assert_int_equal(rf_devq_new(s.m.mem, &s.q), 0);
	assert_int_equal(rf_devq_start(s.q, &s.config), 0);
	assert_int_equal(pthread_create(&thread, NULL, scribble_main, &s), 0);
	while (rf_clock_now() < end) {
		/* As many as the ring has, whatever stands there. */
		s.drv.avail_idx = (uint16_t)(s.taken + NUM);
		(void)fake_driver_publish(&s.drv);
		serve(&s);
	}
	atomic_store(&s.stop, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	print_message("# %llu chains, broken %llu times\n", (unsigned long long)s.n_chains,
		      (unsigned long long)s.n_broken);
	assert_true(s.n_chains > 100 && s.n_broken > 100);
	rf_devq_free(s.q);
	fake_mem_fini(&s.m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scribble),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
