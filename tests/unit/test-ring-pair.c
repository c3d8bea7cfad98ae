/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Both halves of a ring against each other, in random order, beside a model that knows nothing of
 * rings: buffers that move from queue to queue, how many passed each station, and what each side
 * asked to be woken for.
 */
#include "ring/devq.h"
#include "ring/drvq.h"

#include <assert.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/queue.h>

#include <cmocka.h>

#include "drvq_room.h"
#include "fake_mem.h"
#include "prng.h"

#define MAX_PIECES 6u
#define MAX_BYTES  60u
#define DESC_AT    0u
#define DRV_AT     0x80000u
#define DEV_AT     0xa0000u
#define BUF_AT     0x100000u
#define BUF_BYTES  0x100000u

struct buffer {
	unsigned n_out, n_in;
	struct rf_drvq_piece pieces[MAX_PIECES];
	uint32_t bytes_out, bytes_in, written;
	struct rf_chain chain;
	TAILQ_ENTRY(buffer) entry;
};

TAILQ_HEAD(buffers, buffer);

/* What one side asked of the other, as the words in memory can say it. */
struct asked {
	uint16_t event;
	bool no_flag;
	/* It was told that it may sleep. */
	bool asleep;
};

/* @n_*: buffers that passed a station since the beginning */
struct pair {
	struct fake_mem m;
	struct rf_ring_config config;
	struct rf_devq *dev;
	struct rf_drvq *drv;
	uint64_t seed;
	size_t max_piece;
	struct buffer *all;
	struct buffers free, added, published, taken, pushed, used;
	uint64_t n_added, n_published, n_taken, n_pushed, n_used, n_got;
	unsigned room, window;
	bool fresh;
	struct asked device, driver;
};

static uint32_t roll(struct pair *p, uint32_t n)
{
	return prng_below(&p->seed, n);
}

static void move_first(struct buffers *from, struct buffers *to)
{
	struct buffer *b = TAILQ_FIRST(from);

	TAILQ_REMOVE(from, b, entry);
	TAILQ_INSERT_TAIL(to, b, entry);
}

/* Is a publication from @old to @new one that the other side asked to be told of? */
static bool wants(const struct pair *p, const struct asked *asked, uint64_t old, uint64_t new)
{
	if (old == new)
		return false;
	if (!p->config.event_idx)
		return !asked->no_flag;
	for (; old != new; old++) {
		if ((uint16_t)old == asked->event)
			return true;
	}
	return false;
}

static void check_told(struct asked *asked, bool told, bool want, bool any)
{
	assert_int_equal(told, want);
	/* The one thing that must never be: work to do, and nobody awake. */
	if (any)
		assert_true(told || !asked->asleep);
	asked->asleep = asked->asleep && !told;
}

static void op_add(struct pair *p)
{
	unsigned n = 1 + roll(p, rf_min_u32(MAX_PIECES, p->config.num));
	struct buffer *b = TAILQ_FIRST(&p->free);

	if (!b)
		return;
	b->n_out = roll(p, n + 1);
	b->n_in = n - b->n_out;
	b->bytes_out = b->bytes_in = 0;
	for (unsigned i = 0; i < n; i++) {
		b->pieces[i].len = roll(p, 8) ? roll(p, MAX_BYTES + 1) : 0;
		b->pieces[i].gpa.v = BUF_AT + roll(p, BUF_BYTES - MAX_BYTES);
		*(i < b->n_out ? &b->bytes_out : &b->bytes_in) += b->pieces[i].len;
	}
	assert_int_equal(rf_drvq_add(p->drv, b->pieces, b->n_out, b->n_in, b),
			 n > p->room ? -ENOSPC : 0);
	if (n > p->room)
		return;
	p->room -= n;
	p->n_added++;
	move_first(&p->free, &p->added);
}

static void op_publish(struct pair *p)
{
	uint64_t old = p->n_published;

	for (; p->n_published != p->n_added; p->n_published++)
		move_first(&p->added, &p->published);
	check_told(&p->device, rf_drvq_publish(p->drv), wants(p, &p->device, old, p->n_published),
		   old != p->n_published);
}

static void check_pieces(struct pair *p, const struct rf_drvq_piece *want, unsigned n_want,
			 const struct iovec *iov, unsigned n)
{
	for (unsigned i = 0; i < n_want; i++) {
		const uint8_t *at = fake_mem_host(&p->m, want[i].gpa.v, want[i].len);
		uint32_t left = want[i].len;

		for (; left; iov++, n--) {
			assert_true(n > 0);
			assert_ptr_equal(iov->iov_base, at);
			assert_in_range(iov->iov_len, 1, left);
			at += iov->iov_len;
			left -= (uint32_t)iov->iov_len;
		}
	}
	assert_int_equal(n, 0);
}

static void check_chain(struct pair *p, const struct buffer *b, const struct rf_chain *chain)
{
	/* A chain nobody added; clang-tidy does not know that cmocka's asserts end tests. */
	assert(b);
	assert_int_equal(chain->bytes_out, b->bytes_out);
	assert_int_equal(chain->bytes_in, b->bytes_in);
	check_pieces(p, b->pieces, b->n_out, rf_devq_out(p->dev, chain), chain->n_out);
	check_pieces(p, b->pieces + b->n_out, b->n_in, rf_devq_in(p->dev, chain), chain->n_in);
}

static void op_look(struct pair *p, bool take)
{
	unsigned there = (unsigned)rf_min_u64(RF_DEVQ_WINDOW, p->n_published - p->n_taken);
	unsigned want = roll(p, rf_min_u32(p->config.num, RF_DEVQ_WINDOW) + 1);
	unsigned expected = rf_max_size(p->window, rf_min_u32(want, there));
	const struct rf_chain *chains;
	int n = rf_devq_look(p->dev, want, &chains);
	unsigned k;

	assert_int_equal(rf_devq_broken(p->dev), RF_RING_NONE);
	/* The arena may be full, but not of nothing. */
	if (p->max_piece && n < (int)expected)
		assert_in_range(n, rf_max_size(p->window, 1), expected);
	else
		assert_int_equal(n, expected);
	p->window = (unsigned)n;
	k = take ? roll(p, p->window + 1) : 0;
	rf_devq_take(p->dev, k);
	p->window -= k;
	p->n_taken += k;
	for (; k; k--) {
		struct buffer *b = TAILQ_FIRST(&p->published);

		check_chain(p, b, chains);
		b->chain = *chains++;
		move_first(&p->published, &p->taken);
	}
	/* What stays behind is as it was. */
	if (p->window)
		check_chain(p, TAILQ_FIRST(&p->published), chains);
}

/* One of the oldest, not always the first. */
static void op_push(struct pair *p)
{
	struct buffer *b = TAILQ_FIRST(&p->taken);

	for (unsigned skip = roll(p, 4); b && skip; skip--)
		b = TAILQ_NEXT(b, entry) ? TAILQ_NEXT(b, entry) : b;
	if (!b)
		return;
	b->written = roll(p, b->bytes_in + 1);
	rf_devq_push(p->dev, &b->chain, b->written);
	TAILQ_REMOVE(&p->taken, b, entry);
	TAILQ_INSERT_TAIL(&p->pushed, b, entry);
	p->n_pushed++;
}

static uint64_t used_published(struct pair *p)
{
	uint64_t old = p->n_used;

	for (; p->n_used != p->n_pushed; p->n_used++)
		move_first(&p->pushed, &p->used);
	return old;
}

static void op_publish_used(struct pair *p)
{
	uint64_t old = used_published(p);
	bool any = old != p->n_used;

	check_told(&p->driver, rf_devq_publish(p->dev),
		   (any && p->fresh) || wants(p, &p->driver, old, p->n_used), any);
	p->fresh = p->fresh && !any;
}

static void op_get(struct pair *p)
{
	struct buffer *want = TAILQ_FIRST(&p->used);
	uint32_t len;

	assert_ptr_equal(rf_drvq_get(p->drv, &len), want);
	assert_int_equal(rf_drvq_broken(p->drv), RF_RING_NONE);
	if (!want)
		return;
	assert_int_equal(len, want->written);
	p->room += want->n_out + want->n_in;
	p->n_got++;
	move_first(&p->used, &p->free);
}

static void op_arm_device(struct pair *p)
{
	uint64_t next = p->n_taken + p->window;

	p->device.event = (uint16_t)next;
	p->device.no_flag = false;
	assert_int_equal(rf_devq_arm(p->dev), next != p->n_published);
	p->device.asleep = next == p->n_published;
}

static void op_arm_driver(struct pair *p)
{
	unsigned n = roll(p, 2) ? 1 : 1 + roll(p, p->config.num);
	bool there = n == 1 ? rf_drvq_arm(p->drv) : rf_drvq_arm_after(p->drv, n);

	p->driver.event = (uint16_t)(p->n_got + n - 1);
	p->driver.no_flag = false;
	n = p->config.event_idx ? n : 1;
	assert_int_equal(there, p->n_used - p->n_got >= n);
	/* Whoever asked for more may sleep although there are some. */
	p->driver.asleep = !there && n == 1;
}

static void op_disarm(struct pair *p, bool device)
{
	if (device)
		rf_devq_disarm(p->dev);
	else
		rf_drvq_disarm(p->drv);
	if (!device)
		p->driver.event = (uint16_t)(p->n_got + 0x7fff);
	(device ? &p->device : &p->driver)->no_flag = true;
	(device ? &p->device : &p->driver)->asleep = false;
}

static void op_forget(struct pair *p)
{
	rf_devq_forget(p->dev);
	p->window = 0;
}

static void op_restart(struct pair *p)
{
	p->config.base = rf_devq_stop(p->dev);
	assert_int_equal(p->config.base, (uint16_t)p->n_taken);
	/* Buffers held over a stop do not come back in this test. */
	(void)used_published(p);
	assert_int_equal(rf_devq_start(p->dev, &p->config), 0);
	p->window = 0;
	p->fresh = true;
	p->device = (struct asked){ .event = p->config.base };
	p->driver.asleep = false;
}

static void step(struct pair *p)
{
	unsigned burst = 1 + roll(p, rf_min_u32(p->config.num, 64));

	switch (roll(p, 16)) {
	case 0 ... 2:
		while (burst--)
			op_add(p);
		break;
	case 3 ... 4:
		op_publish(p);
		break;
	case 5 ... 6:
		op_look(p, true);
		break;
	case 7:
		op_look(p, false);
		break;
	case 8 ... 9:
		while (burst--)
			op_push(p);
		break;
	case 10:
		op_publish_used(p);
		break;
	case 11 ... 12:
		while (burst--)
			op_get(p);
		break;
	case 13:
		op_arm_device(p);
		break;
	case 14:
		op_arm_driver(p);
		break;
	default:
		if (roll(p, 4))
			op_disarm(p, roll(p, 2));
		else if (roll(p, 4) || !TAILQ_EMPTY(&p->taken))
			op_forget(p);
		else
			op_restart(p);
	}
	assert_int_equal(drvq_room(p->drv), p->room);
	assert_int_equal(rf_drvq_outstanding(p->drv), p->n_added - p->n_got);
}

static void pair_init(struct pair *p, uint32_t num, bool event_idx, size_t max_piece)
{
	static const struct fake_region region = { 0, BUF_AT + BUF_BYTES, 0 };
	struct rf_ring_config config;

	*p = (struct pair){ .seed = num + 7, .max_piece = max_piece, .room = num, .fresh = true };
	fake_mem_init(&p->m, region.size, &region, 1);
	rf_mem_set_max_piece(p->m.mem, max_piece);
	p->config = (struct rf_ring_config){
		.layout = RF_RING_SPLIT,
		.num = num,
		.event_idx = event_idx,
		.desc = fake_mem_host(&p->m, DESC_AT, 1),
		.driver = fake_mem_host(&p->m, DRV_AT, 1),
		.device = fake_mem_host(&p->m, DEV_AT, 1),
	};
	/* The driver has the memory elsewhere. */
	config = p->config;
	config.desc = p->m.bytes + DESC_AT;
	config.driver = p->m.bytes + DRV_AT;
	config.device = p->m.bytes + DEV_AT;
	assert_int_equal(rf_drvq_new(&config, &p->drv), 0);
	assert_int_equal(rf_devq_new(p->m.mem, &p->dev), 0);
	assert_int_equal(rf_devq_start(p->dev, &p->config), 0);
	TAILQ_INIT(&p->free);
	TAILQ_INIT(&p->added);
	TAILQ_INIT(&p->published);
	TAILQ_INIT(&p->taken);
	TAILQ_INIT(&p->pushed);
	TAILQ_INIT(&p->used);
	p->all = calloc(num + 1, sizeof(*p->all));
	assert_non_null(p->all);
	/* One more than fits, so that a full ring is tried as well. */
	for (uint32_t i = 0; i <= num; i++)
		TAILQ_INSERT_TAIL(&p->free, &p->all[i], entry);
}

static void test_pair(void **state RF_UNUSED)
{
	static const uint32_t nums[] = { 1, 2, 128, 256, 32768 };

	for (unsigned i = 0; i < 4 * RF_ARRAY_SIZE(nums); i++) {
		struct pair p;

		pair_init(&p, nums[i / 4], i & 1, i / 2 & 1);
		/* Beyond where the indices wrap, except with pieces of one byte, which are slow. */
		while (p.n_got < (p.max_piece ? 5000 : 70000))
			step(&p);
		rf_devq_free(p.dev);
		rf_drvq_free(p.drv);
		fake_mem_fini(&p.m);
		free(p.all);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pair),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
