/* SPDX-License-Identifier: BSD-3-Clause */
#include "ring/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_mem.h"
#include "prng.h"

#define PAGE 4096u
#define MAX  UINT64_MAX

/* A and B are neighbours for the guest, but not in the file; behind B there is a gap before C. */
static const struct fake_region three[] = {
	{ 0x10000, 0x2000, 0x5000 },
	{ 0x12000, 0x1000, 0x1000 },
	{ 0x20000, 0x800, 0x3100 },
};

static void setup_three(struct fake_mem *m)
{
	fake_mem_init(m, 0x8000, three, RF_ARRAY_SIZE(three));
	for (size_t i = 0; i < m->size; i++)
		m->bytes[i] = (uint8_t)(i * 7 + (i >> 8));
}

static const struct add_row {
	uint64_t gpa, uva, size, offset;
	int expected;
} add_rows[] = {
	/* 0 */ { 0x30000, 0x30000, 0, 0, -EINVAL },
	/* 1 CVE-2020-10722 class */ { MAX - 0xffe, 0x30000, 0x1000, 0, -EINVAL },
	/* 2 */ { MAX - 0xfff, 0x30000, 0x1000, 0, -EINVAL },
	/* 3 */ { 0x30000, MAX - 0xfff, 0x1000, 0, -EINVAL },
	/* 4 */ { 0x30000, 0x30000, 0x1000, MAX - 0xfff, -EINVAL },
	/* 5 */ { 0, 0, MAX, 1, -EINVAL },
	/* 6 */ { 0, 0, MAX, 0, -EEXIST },
	/* 7 identical */ { 0x10000, 0x10000 + FAKE_MEM_UVA, 0x2000, 0x5000, -EEXIST },
	/* 8 last byte overlaps for the guest */ { 0xf000, 0x30000, 0x1001, 0, -EEXIST },
	/* 9 first byte */ { 0x12fff, 0x30000, 0x10, 0, -EEXIST },
	/* 10 inside */ { 0x10800, 0x30000, 0x10, 0, -EEXIST },
	/* 11 around */ { 0xf000, 0x30000, 0x8000, 0, -EEXIST },
	/* 12 overlap in the front end only */
	{ 0x30000, 0x20000 + FAKE_MEM_UVA, 0x10, 0, -EEXIST },
	/* 13 one byte too long for the file */ { 0x30000, 0x30000, 0x8001, 0, -ERANGE },
	/* 14 */ { 0x30000, 0x30000, 0x1, 0x8000, -ERANGE },
	/* 15 */ { 0x30000, 0x30000, 0x10, (uint64_t)INT64_MAX, -ERANGE },
	/* 16 */ { 0x30000, 0x30000, MAX - 0x30000, 0, -EEXIST },
	/* 17 */ { 0x30000, 0x800000000000, UINT64_C(1) << 62, 0, -ERANGE },
	/* 18 between B and C */ { 0x13000, 0x13000, 0xd000 - 0x6000, 0x1000, 0 },
	/* 19 whole file */ { 0x30000, 0x30000, 0x8000, 0, 0 },
	/* 20 last byte of the file */ { 0x30000, 0x30000, 1, 0x7fff, 0 },
	/* 21 highest address that is supported */ { MAX - 0x1000, MAX - 0x1000, 0x1000, 0, 0 },
	/* 22 address 0 */ { 0, 0, 0x1000, 0, 0 },
};

static void test_add(void **state RF_UNUSED)
{
	for (size_t i = 0; i < RF_ARRAY_SIZE(add_rows); i++) {
		const struct add_row *row = &add_rows[i];
		struct rf_mem_region region = {
			{ row->gpa }, { row->uva }, row->size, row->offset
		};
		struct fake_mem m;
		int r;

		setup_three(&m);
		r = rf_mem_add(m.mem, &region, m.fd);
		if (r != row->expected)
			fail_msg("row %zu: %d instead of %d", i, r, row->expected);
		assert_int_equal(rf_mem_n_regions(m.mem), r == 0 ? 4 : 3);
		if (r == 0)
			assert_true(rf_mem_has(m.mem, &region));
		fake_mem_fini(&m);
	}
}

static void test_add_bad_file(void **state RF_UNUSED)
{
	struct rf_mem_region region = { { 0 }, { 0 }, PAGE, 0 };
	int pipes[2], zero = open("/dev/zero", O_RDWR), dir = open("/", O_RDONLY), read_only;
	char path[64];
	struct fake_mem m;

	fake_mem_init(&m, PAGE, NULL, 0);
	assert_int_equal(pipe(pipes), 0);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", m.fd);
	read_only = open(path, O_RDONLY);
	assert_int_equal(rf_mem_add(m.mem, &region, -1), -EBADF);
	assert_int_equal(rf_mem_add(m.mem, &region, pipes[0]), -EINVAL);
	assert_int_equal(rf_mem_add(m.mem, &region, zero), -EINVAL);
	assert_int_equal(rf_mem_add(m.mem, &region, dir), -EINVAL);
	assert_int_equal(rf_mem_add(m.mem, &region, read_only), -EACCES);
	assert_int_equal(rf_mem_n_regions(m.mem), 0);
	assert_int_equal(rf_mem_add(m.mem, &region, m.fd), 0);
	(void)close(pipes[0]);
	(void)close(pipes[1]);
	(void)close(zero);
	(void)close(dir);
	(void)close(read_only);
	fake_mem_fini(&m);
}

/* As many regions as there may be, in a scattered order; also more than one block of the guard. */
static void test_many(void **state RF_UNUSED)
{
	struct fake_mem m[2];
	struct rf_mem_region region;

	for (unsigned k = 0; k < 2; k++) {
		fake_mem_init(&m[k], PAGE, NULL, 0);
		for (uint64_t i = 0; i < RF_MEM_MAX_REGIONS; i++) {
			uint64_t at = i * 5 % RF_MEM_MAX_REGIONS * 0x10000;

			region = (struct rf_mem_region){ { at }, { at }, 0x20, i };
			assert_int_equal(rf_mem_add(m[k].mem, &region, m[k].fd), 0);
		}
		region = (struct rf_mem_region){ { MAX / 2 }, { MAX / 2 }, 1, 0 };
		assert_int_equal(rf_mem_add(m[k].mem, &region, m[k].fd), -ENOSPC);
	}
	for (uint64_t i = 0; i < RF_MEM_MAX_REGIONS; i++) {
		uint64_t at = i * 5 % RF_MEM_MAX_REGIONS * 0x10000;
		struct iovec iov;

		m[1].bytes[i] = (uint8_t)i;
		assert_int_equal(rf_mem_map(m[1].mem, (struct rf_gpa){ at }, 1, &iov, 1), 1);
		assert_int_equal(*(uint8_t *)iov.iov_base, (uint8_t)i);
	}
	fake_mem_fini(&m[0]);
	fake_mem_fini(&m[1]);
}

static const struct map_row {
	uint64_t gpa, len;
	unsigned max_iov;
	size_t max_piece;
	int expected;
	size_t lens[4];
	uint64_t file_offsets[4];
} map_rows[] = {
	/* 0 */ { 0x10000, 0x2000, 4, 0, 1, { 0x2000 }, { 0x5000 } },
	/* 1 */ { 0x10001, 1, 1, 0, 1, { 1 }, { 0x5001 } },
	/* 2 CVE-2019-18960: a range over two regions */
	{ 0x11ff0, 0x20, 4, 0, 2, { 0x10, 0x10 }, { 0x6ff0, 0x1000 } },
	/* 3 */ { 0x10000, 0x3000, 4, 0, 2, { 0x2000, 0x1000 }, { 0x5000, 0x1000 } },
	/* 4 */ { 0x10000, 0x3000, 1, 0, -E2BIG, { 0 }, { 0 } },
	/* 5 */ { 0x10000, 1, 0, 0, -E2BIG, { 0 }, { 0 } },
	/* 6 */ { 0x10000, 0x3001, 4, 0, -EFAULT, { 0 }, { 0 } },
	/* 7 */ { 0xffff, 2, 4, 0, -EFAULT, { 0 }, { 0 } },
	/* 8 */ { 0x13000, 1, 4, 0, -EFAULT, { 0 }, { 0 } },
	/* 9 CVE-2018-1059: the length wraps */ { 0x10000, MAX, 4, 0, -EFAULT, { 0 }, { 0 } },
	/* 10 */ { MAX, 2, 4, 0, -EFAULT, { 0 }, { 0 } },
	/* 11 no bytes, but an address */ { 0x10000, 0, 4, 0, 0, { 0 }, { 0 } },
	/* 12 */ { 0x12fff, 0, 0, 0, 0, { 0 }, { 0 } },
	/* 13 CVE-2020-10725: no bytes at a bad address */
	{ 0x13000, 0, 4, 0, -EFAULT, { 0 }, { 0 } },
	/* 14 */ { 0, 0, 4, 0, -EFAULT, { 0 }, { 0 } },
	/* 15 region at an odd offset */ { 0x20000, 0x800, 4, 0, 1, { 0x800 }, { 0x3100 } },
	/* 16 */ { 0x207ff, 1, 4, 0, 1, { 1 }, { 0x38ff } },
	/* 17 */ { 0x207ff, 2, 4, 0, -EFAULT, { 0 }, { 0 } },
	/* 18 */ { 0x11ffe, 4, 4, 1, 4, { 1, 1, 1, 1 }, { 0x6ffe, 0x6fff, 0x1000, 0x1001 } },
	/* 19 */ { 0x11ffe, 4, 3, 1, -E2BIG, { 0 }, { 0 } },
	/* 20 */ { 0x11ffd, 5, 4, 2, 3, { 2, 1, 2 }, { 0x6ffd, 0x6fff, 0x1000 } },
};

static void test_map(void **state RF_UNUSED)
{
	struct fake_mem m;

	setup_three(&m);
	for (size_t i = 0; i < RF_ARRAY_SIZE(map_rows); i++) {
		const struct map_row *row = &map_rows[i];
		struct iovec iov[4];
		int r;

		rf_mem_set_max_piece(m.mem, row->max_piece);
		r = rf_mem_map(m.mem, (struct rf_gpa){ row->gpa }, row->len, iov, row->max_iov);
		if (r != row->expected)
			fail_msg("row %zu: %d instead of %d", i, r, row->expected);
		for (int k = 0; k < r; k++) {
			assert_int_equal(iov[k].iov_len, row->lens[k]);
			assert_memory_equal(iov[k].iov_base, m.bytes + row->file_offsets[k],
					    row->lens[k]);
		}
	}
	fake_mem_fini(&m);
}

static const struct uva_row {
	uint64_t uva, len;
	uint64_t file_offset; /* MAX: not there */
} uva_rows[] = {
	/* 0 */ { FAKE_MEM_UVA + 0x10000, 0x2000, 0x5000 },
	/* 1 */ { FAKE_MEM_UVA + 0x10010, 0x10, 0x5010 },
	/* 2 a neighbour, but another region */ { FAKE_MEM_UVA + 0x11fff, 2, MAX },
	/* 3 */ { FAKE_MEM_UVA + 0x11fff, 1, 0x6fff },
	/* 4 */ { FAKE_MEM_UVA + 0x11fff, MAX, MAX },
	/* 5 */ { FAKE_MEM_UVA + 0xffff, 1, MAX },
	/* 6 a guest address */ { 0x10000, 1, MAX },
	/* 7 */ { FAKE_MEM_UVA + 0x20000, 0, 0x3100 },
	/* 8 */ { FAKE_MEM_UVA + 0x20800, 0, MAX },
	/* 9 */ { MAX, 1, MAX },
};

static void test_from_uva(void **state RF_UNUSED)
{
	struct fake_mem m;

	setup_three(&m);
	for (size_t i = 0; i < RF_ARRAY_SIZE(uva_rows); i++) {
		const struct uva_row *row = &uva_rows[i];
		void *p = rf_mem_from_uva(m.mem, (struct rf_uva){ row->uva }, row->len);

		if ((p == NULL) != (row->file_offset == MAX))
			fail_msg("row %zu", i);
		if (p)
			assert_memory_equal(p, m.bytes + row->file_offset, row->len);
	}
	fake_mem_fini(&m);
}

static void test_remove(void **state RF_UNUSED)
{
	struct rf_mem_region b = fake_mem_region(&three[1]), other;
	struct fake_mem m;
	struct iovec iov[2];

	setup_three(&m);
	other = b, other.gpa.v++;
	assert_int_equal(rf_mem_remove(m.mem, &other), -ENOENT);
	other = b, other.uva.v++;
	assert_int_equal(rf_mem_remove(m.mem, &other), -ENOENT);
	other = b, other.size--;
	assert_int_equal(rf_mem_remove(m.mem, &other), -ENOENT);
	assert_false(rf_mem_has(m.mem, &other));
	/* REM_MEM_REG: the offset plays no part. */
	other = b, other.offset++;
	assert_true(rf_mem_has(m.mem, &other));
	assert_int_equal(rf_mem_remove(m.mem, &other), 0);
	assert_int_equal(rf_mem_n_regions(m.mem), 2);
	assert_false(rf_mem_has(m.mem, &b));
	assert_int_equal(rf_mem_map(m.mem, b.gpa, 1, iov, 2), -EFAULT);
	assert_int_equal(rf_mem_map(m.mem, (struct rf_gpa){ 0x20000 }, 1, iov, 2), 1);
	assert_int_equal(rf_mem_remove(m.mem, &b), -ENOENT);
	assert_int_equal(rf_mem_add(m.mem, &b, m.fd), 0);
	assert_int_equal(rf_mem_map(m.mem, (struct rf_gpa){ 0x11fff }, 2, iov, 2), 2);
	fake_mem_fini(&m);
}

/* Random regions come and go; every look-up is compared with a walk over all of them. */
static void test_random(void **state RF_UNUSED)
{
	struct fake_region regions[16];
	bool there[16] = { false };
	uint64_t seed = 1;
	struct fake_mem m;

	fake_mem_init(&m, 16 * PAGE, NULL, 0);
	for (size_t i = 0; i < m.size; i++)
		m.bytes[i] = (uint8_t)(i >> 4);
	for (unsigned i = 0; i < 16; i++)
		regions[i] = (struct fake_region){ i * 0x1000, 1 + prng_below(&seed, PAGE), 0 };
	for (unsigned round = 0; round < 20000; round++) {
		unsigned at = prng_below(&seed, 16);
		uint64_t gpa = prng_below(&seed, 17 * 0x1000);
		struct rf_mem_region region;
		struct iovec iov;
		bool inside;

		regions[at].offset = there[at] ? regions[at].offset : prng_below(&seed, 15 * PAGE);
		region = fake_mem_region(&regions[at]);
		if (prng_below(&seed, 4) == 0) {
			assert_int_equal(there[at] ? rf_mem_remove(m.mem, &region)
						   : rf_mem_add(m.mem, &region, m.fd),
					 0);
			there[at] = !there[at];
		}
		at = (unsigned)(gpa / 0x1000);
		inside = at < 16 && there[at] && gpa % 0x1000 < regions[at].size;
		assert_int_equal(rf_mem_map(m.mem, (struct rf_gpa){ gpa }, 1, &iov, 1),
				 inside ? 1 : -EFAULT);
		if (inside)
			assert_int_equal(*(uint8_t *)iov.iov_base,
					 m.bytes[regions[at].offset + gpa % 0x1000]);
	}
	fake_mem_fini(&m);
}

/* DPDK testpmd 22.11 dies of this: the front end truncates the memory it gave. */
static void test_vanish(void **state RF_UNUSED)
{
	struct rf_mem_region a = fake_mem_region(&three[0]);
	struct fake_mem m, other;
	volatile uint8_t *p;

	fake_mem_guard();
	setup_three(&m);
	setup_three(&other);
	p = fake_mem_host(&m, 0x10000, 0x2000);
	assert_int_equal(p[0x1800], m.bytes[0x6800]);
	assert_int_equal(ftruncate(m.fd, 0x6000), 0);
	assert_false(rf_mem_faulted(m.mem));
	/* Still there, then not: a load gives zero and a store is lost, but both return. */
	assert_int_equal(p[0xfff], m.bytes[0x5fff]);
	assert_false(rf_mem_faulted(m.mem));
	errno = 77;
	assert_int_equal(p[0x1800], 0);
	assert_int_equal(errno, 77);
	assert_true(rf_mem_faulted(m.mem));
	assert_false(rf_mem_faulted(other.mem));
	p[0x1801] = 5;
	assert_int_equal(p[0x1801], 5);
	assert_int_equal(p[0xfff], m.bytes[0x5fff]);
	/* The flag belongs to the region, and a region that is mapped again has none. */
	assert_int_equal(rf_mem_remove(m.mem, &a), 0);
	assert_false(rf_mem_faulted(m.mem));
	assert_int_equal(ftruncate(m.fd, 0x8000), 0);
	assert_int_equal(rf_mem_add(m.mem, &a, m.fd), 0);
	assert_false(rf_mem_faulted(m.mem));
	fake_mem_fini(&m);
	fake_mem_fini(&other);
}

struct toucher {
	pthread_t thread;
	volatile uint8_t *p;
	size_t n;
};

static void *touch_pages(void *arg)
{
	struct toucher *t = arg;

	for (size_t i = 0; i < t->n; i++)
		t->p[i * PAGE] = 1;
	return NULL;
}

/* Two threads meet the same holes at the same time, while ranges come and go elsewhere. */
static void test_vanish_threads(void **state RF_UNUSED)
{
	static const struct fake_region whole = { 0, 64 * PAGE, 0 };
	struct toucher t[2];
	struct fake_mem m, other;

	fake_mem_guard();
	fake_mem_init(&m, whole.size, &whole, 1);
	assert_int_equal(ftruncate(m.fd, 0), 0);
	for (unsigned i = 0; i < 2; i++) {
		/* Different bytes of the same pages. */
		t[i].p = (uint8_t *)fake_mem_host(&m, 0, whole.size) + i;
		t[i].n = whole.size / PAGE;
		assert_int_equal(pthread_create(&t[i].thread, NULL, touch_pages, &t[i]), 0);
	}
	for (unsigned i = 0; i < 50; i++) {
		setup_three(&other);
		fake_mem_fini(&other);
	}
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pthread_join(t[i].thread, NULL), 0);
	assert_true(rf_mem_faulted(m.mem));
	fake_mem_fini(&m);
}

/* What was there before rf_mem_guard_install(), and what a SIGBUS that is not ours then does. */
enum previous {
	PREVIOUS_DEFAULT,
	PREVIOUS_IGNORE,
	PREVIOUS_PLAIN,
	PREVIOUS_INFO,
};

enum cause {
	CAUSE_HOLE_ELSEWHERE,
	CAUSE_RAISE,
	CAUSE_RAISE_INSIDE,
};

static const struct chain_row {
	enum previous previous;
	enum cause cause;
	int signal; /* that ends the process, or 0 */
	int status; /* of exit */
} chain_rows[] = {
	/* 0 */ { PREVIOUS_DEFAULT, CAUSE_HOLE_ELSEWHERE, SIGBUS, 0 },
	/* 1 */ { PREVIOUS_DEFAULT, CAUSE_RAISE, SIGBUS, 0 },
	/* 2 */ { PREVIOUS_IGNORE, CAUSE_HOLE_ELSEWHERE, SIGBUS, 0 },
	/* 3 */ { PREVIOUS_IGNORE, CAUSE_RAISE, 0, 5 },
	/* 4 */ { PREVIOUS_PLAIN, CAUSE_HOLE_ELSEWHERE, 0, 3 },
	/* 5 */ { PREVIOUS_PLAIN, CAUSE_RAISE, 0, 3 },
	/* 6 */ { PREVIOUS_INFO, CAUSE_HOLE_ELSEWHERE, 0, 4 },
	/* 7 */ { PREVIOUS_INFO, CAUSE_RAISE, 0, 4 },
	/* 8 sent by a process, with an address of ours: no fault */
	{ PREVIOUS_INFO, CAUSE_RAISE_INSIDE, 0, 4 },
};

static void handle_plain(int sig RF_UNUSED)
{
	_exit(3);
}

static void handle_info(int sig RF_UNUSED, siginfo_t *info, void *context RF_UNUSED)
{
	_exit(info->si_signo == SIGBUS ? 4 : 1);
}

static void set_previous(enum previous previous)
{
	struct sigaction action = { .sa_handler = SIG_DFL };

	if (previous == PREVIOUS_IGNORE)
		action.sa_handler = SIG_IGN;
	if (previous == PREVIOUS_PLAIN)
		action.sa_handler = handle_plain;
	if (previous == PREVIOUS_INFO) {
		action.sa_sigaction = handle_info;
		action.sa_flags = SA_SIGINFO;
	}
	assert_int_equal(sigaction(SIGBUS, &action, NULL), 0);
}

static void cause_bus(enum cause cause, const struct fake_mem *m)
{
	siginfo_t info = { .si_signo = SIGBUS, .si_code = SI_QUEUE };

	switch (cause) {
	case CAUSE_HOLE_ELSEWHERE:
		assert_int_equal(ftruncate(m->fd, 0), 0);
		*(volatile uint8_t *)m->bytes = 1;
		break;
	case CAUSE_RAISE:
		(void)raise(SIGBUS);
		break;
	case CAUSE_RAISE_INSIDE:
		info.si_addr = fake_mem_host(m, 0x10000, 1);
		(void)syscall(SYS_rt_sigqueueinfo, getpid(), SIGBUS, &info);
		break;
	}
}

/* Runs first: each row needs a process in which nothing is installed yet. */
static void test_chain(void **state RF_UNUSED)
{
	for (size_t i = 0; i < RF_ARRAY_SIZE(chain_rows); i++) {
		const struct chain_row *row = &chain_rows[i];
		pid_t pid = fork();
		int status;

		if (!pid) {
			struct fake_mem m;

			set_previous(row->previous);
			setup_three(&m);
			/* The second call must not chain the handler to itself. */
			for (int call = 0; call < 2; call++)
				if (rf_mem_guard_install() < 0)
					_exit(2);
			cause_bus(row->cause, &m);
			_exit(rf_mem_faulted(m.mem) ? 6 : 5);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (row->signal ? !WIFSIGNALED(status) || WTERMSIG(status) != row->signal
				: !WIFEXITED(status) || WEXITSTATUS(status) != row->status)
			fail_msg("row %zu: status %x", i, status);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chain),        cmocka_unit_test(test_add),
		cmocka_unit_test(test_add_bad_file), cmocka_unit_test(test_many),
		cmocka_unit_test(test_map),          cmocka_unit_test(test_from_uva),
		cmocka_unit_test(test_remove),       cmocka_unit_test(test_random),
		cmocka_unit_test(test_vanish),       cmocka_unit_test(test_vanish_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
