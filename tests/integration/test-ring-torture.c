/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A driver and a device that exchange patterned buffers over one ring and sleep on eventfds
 * whenever the ring says that they may. In two processes that map the memory at different
 * addresses, as a guest and its host do; and in two threads with one mapping, because the thread
 * sanitizer sees nothing across two. A notification that is lost ends in a wait that does not.
 */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/iov.h"
#include "ring/devq.h"
#include "ring/drvq.h"

#include "fake_driver.h"
#include "fake_mem.h"
#include "prng.h"

#define NUM       128u
#define SLOTS     16u /* buffers in flight, with 8 descriptors each */
#define DESC_AT   0x0u
#define DRV_AT    0x2000u
#define DEV_AT    0x3000u
#define STOP_AT   0x4000u
#define TABLE_AT  0x5000u
#define SLOT_AT   0x10000u
#define SLOT_SIZE 0x1000u
#define IN_AT     0x800u /* of a slot: in front of it what the device reads */
#define MAX_BYTES 1500u

/* How long each exchange goes on, and how long is for ever. */
#define RUN_MS  350
#define LOST_MS 20000

static const struct fake_region region = { 0x100000, SLOT_AT + SLOTS *SLOT_SIZE, 0 };

struct torture {
	bool event_idx;
	bool odd; /* layouts that rf_drvq does not make */
	size_t max_piece;
	struct fake_mem m;
	int kick, call;
};

/* What a buffer says is a function of its number. */
static uint8_t pattern(uint64_t seq, uint32_t i)
{
	return (uint8_t)((seq * 31 + i) * 2654435761u >> 8);
}

static uint32_t bytes_out(uint64_t seq)
{
	return 12 + (uint32_t)(seq * 7919 % (MAX_BYTES - 12));
}

static uint32_t bytes_in(uint64_t seq)
{
	return 1 + (uint32_t)(seq * 104729 % MAX_BYTES);
}

static void notify(int fd)
{
	uint64_t one = 1;

	if (write(fd, &one, sizeof(one)) != sizeof(one))
		abort();
}

/* False if nothing comes. */
static bool sleep_on(int fd)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	uint64_t count;

	return poll(&pfd, 1, LOST_MS) == 1 && read(fd, &count, sizeof(count)) == sizeof(count);
}

/*
 * The device
 */
struct device {
	const struct torture *t;
	struct rf_devq *q;
	uint8_t *base;
	uint64_t seed;
	struct rf_chain held[8];
	unsigned n_held;
};

/* Check what the driver wrote, and answer at once; the chain itself may be held. */
static bool device_answer(struct device *d, const struct rf_chain *chain)
{
	const struct iovec *out = rf_devq_out(d->q, chain), *in = rf_devq_in(d->q, chain);
	uint8_t buf[MAX_BYTES];
	uint32_t n;
	uint64_t seq;

	if (rf_iov_copy_out(out, chain->n_out, 0, &seq, sizeof(seq)) != sizeof(seq) ||
	    rf_iov_copy_out(out, chain->n_out, 8, &n, sizeof(n)) != sizeof(n))
		return false;
	if (n != bytes_out(seq) || chain->bytes_out != n || chain->bytes_in != bytes_in(seq) ||
	    rf_iov_copy_out(out, chain->n_out, 0, buf, n) != n)
		return false;
	for (uint32_t i = 12; i < n; i++) {
		if (buf[i] != pattern(seq, i))
			return false;
	}
	for (uint32_t i = 0; i < bytes_in(seq); i++)
		buf[i] = pattern(~seq, i);
	return rf_iov_copy_in(in, chain->n_in, 0, buf, bytes_in(seq)) == bytes_in(seq);
}

/* Return one of the held chains, any of them. */
static void device_return(struct device *d)
{
	unsigned at = prng_below(&d->seed, d->n_held);
	const struct rf_chain *chain = &d->held[at];

	rf_devq_push(d->q, chain, chain->bytes_in);
	d->held[at] = d->held[--d->n_held];
}

static bool device_turn(struct device *d, bool *ret_idle)
{
	const struct rf_chain *chains;
	int n = rf_devq_look(d->q, 1 + prng_below(&d->seed, 32), &chains);
	int k = n > 0 ? 1 + (int)prng_below(&d->seed, (uint32_t)n) : 0;

	if (n < 0)
		return false;
	rf_devq_take(d->q, (unsigned)k);
	for (int i = 0; i < k; i++) {
		if (!device_answer(d, &chains[i]))
			return false;
		if (d->n_held == RF_ARRAY_SIZE(d->held))
			device_return(d);
		d->held[d->n_held++] = chains[i];
	}
	while (d->n_held && (!k || prng_below(&d->seed, 3)))
		device_return(d);
	if (rf_devq_publish(d->q))
		notify(d->t->call);
	*ret_idle = !n;
	return true;
}

/* Serve until told to stop; NULL if all was well, otherwise what was not. */
static const char *device_run(struct device *d)
{
	const atomic_uint *stop = (const void *)(d->base + STOP_AT);
	bool idle;

	for (;;) {
		if (!device_turn(d, &idle))
			return "device: bad buffer";
		if (!idle || rf_devq_arm(d->q))
			continue;
		if (!sleep_on(d->t->kick))
			return "device: kick lost";
		if (atomic_load(stop))
			return rf_devq_broken(d->q) ? "device: broken" : NULL;
		rf_devq_disarm(d->q);
	}
}

static void device_init(struct device *d, const struct torture *t, struct rf_mem *mem)
{
	struct rf_ring_config config = {
		.layout = RF_RING_SPLIT, .num = NUM, .event_idx = t->event_idx, .indirect = true
	};

	*d = (struct device){ .t = t, .seed = 3 };
	d->base = rf_mem_from_uva(mem, (struct rf_uva){ region.gpa + FAKE_MEM_UVA }, region.size);
	config.desc = d->base + DESC_AT;
	config.driver = d->base + DRV_AT;
	config.device = d->base + DEV_AT;
	rf_mem_set_max_piece(mem, t->max_piece);
	if (rf_devq_new(mem, &d->q) < 0 || rf_devq_start(d->q, &config) < 0)
		abort();
}

/*
 * The driver
 */
struct slot {
	uint64_t seq;
	bool busy;
};

struct driver {
	const struct torture *t;
	uint8_t *base;
	uint64_t seed;
	struct rf_drvq *q;
	struct fake_driver odd;
	struct slot slots[SLOTS];
	unsigned n_busy;
	uint64_t next_seq;
};

/* Cut @n bytes into up to @max pieces. */
static unsigned cut(struct driver *d, uint64_t gpa, uint32_t n, unsigned max,
		    struct rf_drvq_piece *pieces)
{
	unsigned k = 0;

	while (k + 1 < max && n && prng_below(&d->seed, 3)) {
		uint32_t len = prng_below(&d->seed, rf_min_u32(n, k ? n : 20) + 1);

		pieces[k++] = (struct rf_drvq_piece){ { gpa }, len };
		gpa += len;
		n -= len;
	}
	pieces[k++] = (struct rf_drvq_piece){ { gpa }, n };
	return k;
}

/*
 * The last pieces in an indirect table, those before in the ring's own; in the table they stand in
 * no order.
 */
static void odd_add(struct driver *d, unsigned slot, const struct rf_drvq_piece *pieces,
		    unsigned n_out, unsigned n)
{
	unsigned n_direct = prng_below(&d->seed, 2) ? n : prng_below(&d->seed, n);
	unsigned n_table = n - n_direct;
	struct vring_desc *table = (void *)(d->base + TABLE_AT + slot * 0x100);

	for (unsigned i = 0; i < n; i++) {
		unsigned flags =
			(i >= n_out ? VRING_DESC_F_WRITE : 0) | (i + 1 < n ? VRING_DESC_F_NEXT : 0);
		unsigned k = i - n_direct;

		if (i < n_direct)
			fake_desc(&d->odd.desc[slot * 8 + i], pieces[i].gpa.v, pieces[i].len,
				  (uint16_t)flags, (uint16_t)(slot * 8 + i + 1));
		else
			fake_desc(&table[k ? n_table - k : 0], pieces[i].gpa.v, pieces[i].len,
				  (uint16_t)flags, (uint16_t)(n_table - k - 1));
	}
	if (n_table)
		fake_desc(&d->odd.desc[slot * 8 + n_direct], region.gpa + TABLE_AT + slot * 0x100,
			  16 * n_table, VRING_DESC_F_INDIRECT, 0);
	fake_driver_put(&d->odd, (uint16_t)(slot * 8));
}

static void driver_submit(struct driver *d)
{
	struct rf_drvq_piece pieces[8];
	unsigned n_out, n_in, slot = 0;
	uint64_t seq = d->next_seq++;
	uint32_t n = bytes_out(seq);
	uint8_t *out;

	while (d->slots[slot].busy)
		slot++;
	out = d->base + SLOT_AT + slot * SLOT_SIZE;
	memcpy(out, &seq, sizeof(seq));
	memcpy(out + 8, &n, sizeof(n));
	for (uint32_t i = 12; i < n; i++)
		out[i] = pattern(seq, i);
	memset(out + IN_AT, 0, bytes_in(seq));
	n_out = cut(d, region.gpa + SLOT_AT + slot * SLOT_SIZE, n, 4, pieces);
	n_in = cut(d, region.gpa + SLOT_AT + slot * SLOT_SIZE + IN_AT, bytes_in(seq), 4,
		   pieces + n_out);
	d->slots[slot] = (struct slot){ seq, true };
	d->n_busy++;
	if (d->t->odd)
		odd_add(d, slot, pieces, n_out, n_out + n_in);
	else if (rf_drvq_add(d->q, pieces, n_out, n_in, &d->slots[slot]) < 0)
		abort();
}

static void driver_publish(struct driver *d)
{
	if (d->t->odd ? fake_driver_publish(&d->odd) : rf_drvq_publish(d->q))
		notify(d->t->kick);
}

static struct slot *driver_get(struct driver *d, uint32_t *ret_len)
{
	uint32_t head;

	if (!d->t->odd)
		return rf_drvq_get(d->q, ret_len);
	return fake_driver_get(&d->odd, &head, ret_len) ? &d->slots[head / 8] : NULL;
}

static bool driver_arm(struct driver *d)
{
	if (!d->t->odd)
		return prng_below(&d->seed, 2) ? rf_drvq_arm(d->q)
					       : rf_drvq_arm_after(d->q, (d->n_busy * 3 + 3) / 4);
	__atomic_exchange_n(fake_driver_used_event(&d->odd), d->odd.used_idx, __ATOMIC_SEQ_CST);
	return __atomic_load_n(&d->odd.used->idx, __ATOMIC_SEQ_CST) != d->odd.used_idx;
}

/* Take back what was used; false if an answer is wrong. */
static bool driver_reap(struct driver *d, bool *ret_any)
{
	struct slot *slot;
	uint32_t len;

	*ret_any = false;
	while ((slot = driver_get(d, &len))) {
		const uint8_t *in =
			d->base + SLOT_AT + (size_t)(slot - d->slots) * SLOT_SIZE + IN_AT;

		if (!slot->busy || len != bytes_in(slot->seq))
			return false;
		for (uint32_t i = 0; i < len; i++) {
			if (in[i] != pattern(~slot->seq, i))
				return false;
		}
		slot->busy = false;
		d->n_busy--;
		*ret_any = true;
	}
	return d->t->odd || rf_drvq_broken(d->q) == RF_RING_NONE;
}

/* Wait until no more than @max are busy. */
static const char *driver_wait(struct driver *d, unsigned max)
{
	bool any;

	while (d->n_busy > max) {
		if (!driver_reap(d, &any))
			return "driver: bad answer";
		if (any || driver_arm(d))
			continue;
		if (!sleep_on(d->t->call))
			return "driver: call lost";
		if (!d->t->odd)
			rf_drvq_disarm(d->q);
	}
	return NULL;
}

static const char *driver_run(struct driver *d)
{
	uint64_t end = rf_clock_now() + RUN_MS * RF_NS_PER_MS;
	const char *wrong = NULL;

	while (!wrong && (rf_clock_now() < end || d->n_busy)) {
		unsigned n = rf_clock_now() < end ? prng_below(&d->seed, SLOTS + 1 - d->n_busy) : 0;

		while (n--) {
			driver_submit(d);
			if (!prng_below(&d->seed, 4))
				driver_publish(d);
		}
		driver_publish(d);
		/* All of them, or until one more fits. */
		wrong = driver_wait(d, prng_below(&d->seed, 2) ? 0 : SLOTS - 1);
		if (rf_clock_now() >= end && !wrong)
			wrong = driver_wait(d, 0);
	}
	atomic_store((atomic_uint *)(void *)(d->base + STOP_AT), 1);
	notify(d->t->kick);
	return wrong ? wrong : d->next_seq < 100 ? "driver: hardly anything passed" : NULL;
}

/* @base: where the driver has the memory */
static void driver_init(struct driver *d, const struct torture *t, uint8_t *base)
{
	const struct rf_ring_config config = { .layout = RF_RING_SPLIT,
					       .num = NUM,
					       .event_idx = t->event_idx,
					       .desc = base + DESC_AT,
					       .driver = base + DRV_AT,
					       .device = base + DEV_AT };

	*d = (struct driver){ .t = t, .base = base, .seed = 5 };
	if (t->odd)
		fake_driver_init(&d->odd, NUM, base + DESC_AT, base + DRV_AT, base + DEV_AT, 0);
	else if (rf_drvq_new(&config, &d->q) < 0)
		abort();
}

static void torture_init(struct torture *t)
{
	fake_mem_init(&t->m, region.size, &region, 1);
	t->kick = eventfd(0, EFD_CLOEXEC);
	t->call = eventfd(0, EFD_CLOEXEC);
	assert_true(t->kick >= 0 && t->call >= 0);
}

static void torture_fini(struct torture *t)
{
	fake_mem_fini(&t->m);
	(void)close(t->kick);
	(void)close(t->call);
}

/* The device's process: it maps the memory anew, and none of the inherited mappings stays. */
static int device_process(struct torture *t)
{
	struct rf_mem_region r = fake_mem_region(&region);
	void *inherited = fake_mem_host(&t->m, region.gpa, 1);
	struct device d;
	struct rf_mem *mem;
	const char *wrong;

	if (rf_mem_new(&mem) < 0 || rf_mem_add(mem, &r, t->m.fd) < 0)
		return 2;
	rf_mem_free(t->m.mem);
	(void)munmap(t->m.bytes, t->m.size);
	device_init(&d, t, mem);
	if (d.base == inherited || d.base == t->m.bytes)
		return 3;
	wrong = device_run(&d);
	if (wrong)
		(void)fprintf(stderr, "# %s\n", wrong);
	rf_devq_free(d.q);
	rf_mem_free(mem);
	return wrong ? 1 : 0;
}

static void run_processes(struct torture t)
{
	const char *wrong;
	struct driver d;
	int status;
	pid_t pid;

	torture_init(&t);
	driver_init(&d, &t, t.m.bytes);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		_exit(device_process(&t));
	wrong = driver_run(&d);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	rf_drvq_free(d.q);
	torture_fini(&t);
	if (wrong)
		fail_msg("%s", wrong);
	assert_int_equal(status, 0);
}

static void *device_thread(void *arg)
{
	const char *wrong = device_run(arg);

	return (void *)(uintptr_t)wrong;
}

static void run_threads(struct torture t)
{
	const char *wrong;
	pthread_t thread;
	struct driver drv;
	struct device dev;
	void *result;

	torture_init(&t);
	driver_init(&drv, &t, fake_mem_host(&t.m, region.gpa, region.size));
	device_init(&dev, &t, t.m.mem);
	assert_int_equal(pthread_create(&thread, NULL, device_thread, &dev), 0);
	wrong = driver_run(&drv);
	assert_int_equal(pthread_join(thread, &result), 0);
	rf_devq_free(dev.q);
	rf_drvq_free(drv.q);
	torture_fini(&t);
	if (wrong || result)
		fail_msg("%s", wrong ? wrong : (const char *)result);
}

static void test_processes_event(void **state RF_UNUSED)
{
	run_processes((struct torture){ .event_idx = true });
}

static void test_processes_flag(void **state RF_UNUSED)
{
	run_processes((struct torture){ .event_idx = false });
}

static void test_processes_odd(void **state RF_UNUSED)
{
	run_processes((struct torture){ .event_idx = true, .odd = true });
}

static void test_processes_bytes(void **state RF_UNUSED)
{
	run_processes((struct torture){ .event_idx = true, .odd = true, .max_piece = 1 });
}

static void test_threads_event(void **state RF_UNUSED)
{
	run_threads((struct torture){ .event_idx = true });
}

static void test_threads_flag(void **state RF_UNUSED)
{
	run_threads((struct torture){ .event_idx = false });
}

static void test_threads_odd(void **state RF_UNUSED)
{
	run_threads((struct torture){ .event_idx = true, .odd = true });
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_processes_event), cmocka_unit_test(test_processes_flag),
		cmocka_unit_test(test_processes_odd),   cmocka_unit_test(test_processes_bytes),
		cmocka_unit_test(test_threads_event),   cmocka_unit_test(test_threads_flag),
		cmocka_unit_test(test_threads_odd),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
