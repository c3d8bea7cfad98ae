/* SPDX-License-Identifier: BSD-3-Clause */
#include "devq_fixture.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

const struct fake_region devq_fixture_regions[3] = {
	{ A_GPA, A_SIZE, 0 },
	{ B_GPA, B_SIZE, 0x201000 },
	{ C_GPA, C_SIZE, 0x203100 },
};

uint8_t *devq_fixture_guest(struct devq_fixture *f, uint64_t gpa)
{
	for (size_t i = 0; i < RF_ARRAY_SIZE(devq_fixture_regions); i++) {
		if (gpa - devq_fixture_regions[i].gpa < devq_fixture_regions[i].size)
			return f->m.bytes + devq_fixture_regions[i].offset +
			       (gpa - devq_fixture_regions[i].gpa);
	}
	abort();
}

void devq_fixture_init(struct devq_fixture *f, uint32_t num, uint16_t base)
{
	fake_mem_init(&f->m, 0x204000, devq_fixture_regions, RF_ARRAY_SIZE(devq_fixture_regions));
	for (size_t i = BUF_GPA - A_GPA; i < f->m.size; i++)
		f->m.bytes[i] = (uint8_t)(i * 7 + (i >> 8));
	fake_driver_init(&f->drv, num, devq_fixture_guest(f, DESC_GPA),
			 devq_fixture_guest(f, DRV_GPA), devq_fixture_guest(f, DEV_GPA), base);
	f->config = (struct rf_ring_config){
		.layout = RF_RING_SPLIT,
		.num = num,
		.base = base,
		.event_idx = true,
		.indirect = true,
		.desc = fake_mem_host(&f->m, DESC_GPA, 16 * num),
		.driver = fake_mem_host(&f->m, DRV_GPA, 6 + 2 * num),
		.device = fake_mem_host(&f->m, DEV_GPA, 6 + 8 * num),
	};
	assert_int_equal(rf_devq_new(f->m.mem, &f->q), 0);
}

void devq_fixture_start(struct devq_fixture *f, uint32_t num, uint16_t base)
{
	devq_fixture_init(f, num, base);
	assert_int_equal(rf_devq_start(f->q, &f->config), 0);
}

void devq_fixture_fini(struct devq_fixture *f)
{
	rf_devq_free(f->q);
	fake_mem_fini(&f->m);
}

bool devq_fixture_offer(struct devq_fixture *f, uint16_t head, uint32_t len, uint16_t flags)
{
	fake_desc(&f->drv.desc[head], BUF_GPA + head * 0x100u, len, flags, 0);
	return fake_driver_offer(&f->drv, head);
}

bool devq_fixture_serve(struct devq_fixture *f)
{
	const struct rf_chain *chains;
	int n = rf_devq_look(f->q, RF_DEVQ_WINDOW, &chains);

	assert_true(n >= 0);
	rf_devq_take(f->q, (unsigned)n);
	for (int i = 0; i < n; i++)
		rf_devq_push(f->q, &chains[i], chains[i].bytes_in);
	return rf_devq_publish(f->q);
}

void devq_fixture_check_pieces(struct devq_fixture *f, const char *what, const struct iovec *iov,
			       unsigned n, const struct range *range)
{
	uint64_t at = 0;

	for (unsigned i = 0; i < n; i++) {
		const uint8_t *p = iov[i].iov_base;

		if (!iov[i].iov_len || iov[i].iov_len > range->len - at)
			fail_msg("%s: piece %u of %zu bytes", what, i, iov[i].iov_len);
		if (p != fake_mem_host(&f->m, range->gpa + at, iov[i].iov_len))
			fail_msg("%s: piece %u lies elsewhere", what, i);
		at += iov[i].iov_len;
		if (at == range->len) {
			at = 0;
			range++;
		}
	}
	if (range->len)
		fail_msg("%s: %u pieces are not all", what, n);
}

void devq_fixture_check_broken(struct devq_fixture *f, const char *what, enum rf_ring_reason reason)
{
	const struct rf_chain *chains;

	if (rf_devq_look(f->q, 2, &chains) != -EPROTO || rf_devq_broken(f->q) != reason)
		fail_msg("%s: reason %s", what, rf_ring_reason_text(rf_devq_broken(f->q)));
	assert_false(rf_devq_arm(f->q));
	/* Only a new start heals it. */
	assert_int_equal(rf_devq_look(f->q, 2, &chains), -EPROTO);
	assert_true(rf_devq_running(f->q));
	(void)rf_devq_stop(f->q);
	fake_driver_init(&f->drv, f->drv.num, f->drv.desc, f->drv.avail, f->drv.used, 0);
	f->config.base = 0;
	assert_int_equal(rf_devq_start(f->q, &f->config), 0);
	assert_int_equal(rf_devq_broken(f->q), RF_RING_NONE);
	assert_int_equal(rf_devq_look(f->q, 2, &chains), 0);
}
