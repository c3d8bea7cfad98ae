/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_mem.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct rf_mem_region fake_mem_region(const struct fake_region *region)
{
	return (struct rf_mem_region){
		.gpa = { region->gpa },
		.uva = { region->gpa + FAKE_MEM_UVA },
		.size = region->size,
		.offset = region->offset,
	};
}

void fake_mem_init(struct fake_mem *m, size_t size, const struct fake_region *regions, unsigned n)
{
	m->size = size;
	m->fd = memfd_create("fake-mem", MFD_CLOEXEC);
	if (m->fd < 0 || ftruncate(m->fd, (off_t)size) < 0)
		abort();
	m->bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
	if (m->bytes == MAP_FAILED || rf_mem_new(&m->mem) < 0)
		abort();
	for (unsigned i = 0; i < n; i++) {
		struct rf_mem_region region = fake_mem_region(&regions[i]);

		if (rf_mem_add(m->mem, &region, m->fd) < 0)
			abort();
	}
}

void fake_mem_fini(struct fake_mem *m)
{
	rf_mem_free(m->mem);
	(void)munmap(m->bytes, m->size);
	(void)close(m->fd);
}

void *fake_mem_host(const struct fake_mem *m, uint64_t gpa, uint64_t len)
{
	void *p = rf_mem_from_uva(m->mem, (struct rf_uva){ gpa + FAKE_MEM_UVA }, len);

	if (!p)
		abort();
	return p;
}

void fake_mem_guard(void)
{
	static struct sigaction guard;

	if (guard.sa_sigaction) {
		if (sigaction(SIGBUS, &guard, NULL) < 0)
			abort();
	} else if (rf_mem_guard_install() < 0 || sigaction(SIGBUS, NULL, &guard) < 0) {
		abort();
	}
}
