/* SPDX-License-Identifier: BSD-3-Clause */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ring/mem.h"

#include "mem_guard.h"

/* Ranges come in blocks that are linked and never freed, so that a handler may walk them. */
#define RF_GUARD_BLOCK 512

/*
 * @start is 0 while the range is free. It is written last when the range is set up, first when it
 * goes, and read before and after the others: a mix of an old and a new range is never taken for
 * one.
 */
struct rf_guard_range {
	_Atomic uintptr_t start;
	_Atomic uintptr_t end;
	_Atomic size_t page_bytes;
	_Atomic(atomic_uint *) n_faulted;
	atomic_bool faulted;
};

struct rf_guard_block {
	struct rf_guard_block *next;
	struct rf_guard_range ranges[RF_GUARD_BLOCK];
};

static _Atomic(struct rf_guard_block *) guard_blocks;
/* Serialises writers of the ranges, and installing. */
static pthread_mutex_t guard_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction guard_previous;

static bool guard_covers(struct rf_guard_range *range, uintptr_t addr)
{
	uintptr_t start = atomic_load(&range->start);
	uintptr_t end = atomic_load(&range->end);

	return start && addr >= start && addr < end && atomic_load(&range->start) == start;
}

static struct rf_guard_range *guard_find(uintptr_t addr)
{
	struct rf_guard_block *block;

	for (block = atomic_load(&guard_blocks); block; block = block->next) {
		for (unsigned i = 0; i < RF_GUARD_BLOCK; i++) {
			if (guard_covers(&block->ranges[i], addr))
				return &block->ranges[i];
		}
	}
	return NULL;
}

/* Put a page of zeros where the file has a hole. */
static bool guard_patch(uintptr_t addr)
{
	struct rf_guard_range *range = guard_find(addr);
	size_t page_bytes;

	if (!range)
		return false;
	page_bytes = atomic_load(&range->page_bytes);
	/* Not mmap(): what may stand in for it, as in a sanitizer, is not for signal handlers. */
	if (syscall(SYS_mmap, addr & ~((uintptr_t)page_bytes - 1), page_bytes,
		    PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1L, 0L) < 0)
		return false;
	if (!atomic_exchange(&range->faulted, true))
		atomic_fetch_add(atomic_load(&range->n_faulted), 1);
	return true;
}

static void guard_chain(int sig, siginfo_t *info, void *context)
{
	if (guard_previous.sa_flags & SA_SIGINFO) {
		guard_previous.sa_sigaction(sig, info, context);
		return;
	}
	if (guard_previous.sa_handler == SIG_IGN && info->si_code <= 0)
		return; /* sent by a process; a real fault cannot be ignored */
	if (guard_previous.sa_handler != SIG_IGN && guard_previous.sa_handler != SIG_DFL) {
		guard_previous.sa_handler(sig);
		return;
	}
	/* Pending until we return, then the end of the process, at the instruction that faulted. */
	(void)sigaction(sig, &guard_previous, NULL);
	(void)raise(sig);
}

static void guard_handle(int sig, siginfo_t *info, void *context)
{
	int saved_errno = errno;
	/* Only these two mean that this thread's own access to si_addr failed. */
	bool fault = info->si_code == BUS_ADRERR || info->si_code == BUS_MCEERR_AR;

	if (!fault || !guard_patch((uintptr_t)info->si_addr))
		guard_chain(sig, info, context);
	errno = saved_errno;
}

int rf_mem_guard_install(void)
{
	static bool installed;
	struct sigaction action = { .sa_sigaction = guard_handle,
				    .sa_flags = SA_SIGINFO | SA_ONSTACK };
	int r = 0;

	sigemptyset(&action.sa_mask);
	pthread_mutex_lock(&guard_lock);
	/* The previous action is known before ours can run. */
	if (!installed &&
	    (sigaction(SIGBUS, NULL, &guard_previous) < 0 || sigaction(SIGBUS, &action, NULL) < 0))
		r = -errno;
	else
		installed = true;
	pthread_mutex_unlock(&guard_lock);
	return r;
}

/* A range that is free, with guard_lock held. */
static struct rf_guard_range *guard_free_range(void)
{
	struct rf_guard_block *block;

	for (block = atomic_load(&guard_blocks); block; block = block->next) {
		for (unsigned i = 0; i < RF_GUARD_BLOCK; i++) {
			if (!atomic_load(&block->ranges[i].start))
				return &block->ranges[i];
		}
	}
	block = calloc(1, sizeof(*block));
	if (!block)
		return NULL;
	block->next = atomic_load(&guard_blocks);
	atomic_store(&guard_blocks, block);
	return &block->ranges[0];
}

int rf_guard_add(void *start, size_t bytes, size_t page_bytes, atomic_uint *n_faulted,
		 struct rf_guard_range **ret_range)
{
	struct rf_guard_range *range;

	assert(start && bytes && rf_is_power_of_2(page_bytes) && n_faulted);
	pthread_mutex_lock(&guard_lock);
	range = guard_free_range();
	if (range) {
		atomic_store(&range->faulted, false);
		atomic_store(&range->n_faulted, n_faulted);
		atomic_store(&range->page_bytes, page_bytes);
		atomic_store(&range->end, (uintptr_t)start + bytes);
		atomic_store(&range->start, (uintptr_t)start);
	}
	pthread_mutex_unlock(&guard_lock);
	if (!range)
		return -ENOMEM;
	*ret_range = range;
	return 0;
}

void rf_guard_remove(struct rf_guard_range *range)
{
	pthread_mutex_lock(&guard_lock);
	if (atomic_load(&range->faulted))
		atomic_fetch_sub(atomic_load(&range->n_faulted), 1);
	atomic_store(&range->start, 0);
	pthread_mutex_unlock(&guard_lock);
}
