/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/util.h"
#include "limit.h"
#include "payload.h"
#include "round.h"

#define CACHE_LINE 64u
/* The clock is read once in so many bytes: it costs as much as a small message. */
#define CLOCK_BYTES 65536u
/* Where a receiver's program reads to. */
#define SINK_BYTES (256u << 10)
/* Looks before the processor is offered to others: the peer may need it. */
#define LOOKS 10000u

static void *map(size_t bytes)
{
	void *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return NULL;
	return memory;
}

/* Tell the compiler that @memory is looked at. */
static void keep(const void *memory)
{
	__asm__ volatile("" : : "r"(memory) : "memory");
}

int rf_bench_limit_memcpy(size_t size, size_t area, double seconds, double *ret_gbps)
{
	uint64_t begin, until, now, bytes = 0, next_look = CLOCK_BYTES;
	uint8_t *from = map(area), *to = map(area);
	size_t at = 0;

	if (!from || !to) {
		if (from)
			munmap(from, area);
		if (to)
			munmap(to, area);
		return -ENOMEM;
	}
	memset(from, 1, area);
	memset(to, 2, area);
	begin = now = rf_clock_now();
	until = begin + (uint64_t)(seconds * 1e9);
	while (now < until) {
		memcpy(to + at, from + at, size);
		keep(to);
		bytes += size;
		at += size;
		if (at + size > area)
			at = 0;
		if (bytes >= next_look) {
			now = rf_clock_now();
			next_look = bytes + CLOCK_BYTES;
		}
	}
	*ret_gbps = (double)bytes / (double)(now - begin);
	munmap(from, area);
	munmap(to, area);
	return 0;
}

/**
 * struct pipeline - A run
 * @how:	Its parameters
 * @slots:	Shared memory
 * @n_slots:	As many as there are
 * @payload:	What is sent
 * @sent:	Messages that the sender has copied in; written by the sender
 * @taken:	Messages that the receiver has copied out; written by the receiver
 * @stop:	No more is sent
 * @sink:	Copied to, in turn through SINK_BYTES
 * @sink_at:	Where
 * @bytes:	Copied out
 * @ns:		From the first message to the last
 * @wrong:	Something else arrived
 */
struct pipeline {
	const struct rf_bench_limit_pipeline *how;
	uint8_t *slots;
	size_t n_slots;
	struct rf_bench_payload payload;
	_Alignas(CACHE_LINE) _Atomic uint64_t sent;
	_Alignas(CACHE_LINE) _Atomic uint64_t taken;
	_Alignas(CACHE_LINE) atomic_bool stop;
	uint8_t *sink;
	size_t sink_at;
	uint64_t bytes, ns;
	bool wrong;
};

static size_t piece_bytes(const struct pipeline *p)
{
	return rf_min_size(p->how->size, RF_BENCH_LIMIT_SLOT_BYTES);
}

static uint8_t *slot_payload(const struct pipeline *p, uint64_t i)
{
	return p->slots +
	       (i % p->n_slots) * (RF_BENCH_LIMIT_SLOT_AHEAD + RF_BENCH_LIMIT_SLOT_BYTES) +
	       RF_BENCH_LIMIT_SLOT_AHEAD;
}

static void relax(unsigned *looks)
{
	rf_cpu_relax();
	if (++*looks % LOOKS == 0)
		sched_yield();
}

static void copy_in(const struct pipeline *p, uint64_t i)
{
	size_t n = piece_bytes(p);

	memcpy(slot_payload(p, i), rf_bench_payload_at(&p->payload, i * n), n);
}

static void copy_out(struct pipeline *p, uint64_t i)
{
	size_t n = piece_bytes(p);

	if (p->sink_at + n > SINK_BYTES)
		p->sink_at = 0;
	memcpy(p->sink + p->sink_at, slot_payload(p, i), n);
	keep(p->sink);
	if (p->how->check && !rf_bench_payload_check(&p->payload, i * n, p->sink + p->sink_at, n))
		p->wrong = true;
	p->sink_at += n;
	p->bytes += n;
}

static void *receive(void *arg)
{
	struct pipeline *p = arg;
	uint64_t taken = 0, sent = 0, begin = 0;
	unsigned looks = 0;

	rf_bench_pin(p->how->cores[1]);
	for (;;) {
		/* Before looking for messages: what was sent before the end is seen then. */
		bool stop = atomic_load_explicit(&p->stop, memory_order_acquire);

		sent = atomic_load_explicit(&p->sent, memory_order_acquire);
		if (sent == taken && stop)
			break;
		if (sent == taken)
			relax(&looks);
		if (!begin && sent)
			begin = rf_clock_now();
		while (taken < sent) {
			copy_out(p, taken++);
			atomic_store_explicit(&p->taken, taken, memory_order_release);
		}
	}
	p->ns = rf_clock_now() - begin;
	return NULL;
}

static void send_to_other(struct pipeline *p)
{
	uint64_t until = rf_clock_now() + (uint64_t)(p->how->seconds * 1e9), sent = 0, taken = 0;
	uint64_t clock_every = CLOCK_BYTES / piece_bytes(p);
	unsigned looks = 0;

	rf_bench_pin(p->how->cores[0]);
	/* One message at least, however late this thread runs. */
	do {
		while (sent - taken >= p->n_slots) {
			taken = atomic_load_explicit(&p->taken, memory_order_acquire);
			if (sent - taken >= p->n_slots)
				relax(&looks);
		}
		copy_in(p, sent++);
		atomic_store_explicit(&p->sent, sent, memory_order_release);
	} while (sent % clock_every != 0 || rf_clock_now() < until);
	atomic_store_explicit(&p->stop, true, memory_order_release);
}

static int run_two_threads(struct pipeline *p)
{
	pthread_t thread;
	int r = pthread_create(&thread, NULL, receive, p);

	if (r)
		return -r;
	send_to_other(p);
	pthread_join(thread, NULL);
	rf_bench_pin(RF_BENCH_ANY_CORE);
	return 0;
}

static void run_one_thread(struct pipeline *p)
{
	uint64_t begin, until, now, next_look = CLOCK_BYTES;

	rf_bench_pin(p->how->cores[0]);
	begin = now = rf_clock_now();
	until = begin + (uint64_t)(p->how->seconds * 1e9);
	for (uint64_t i = 0; now < until; i++) {
		copy_in(p, i);
		copy_out(p, i);
		if (p->bytes >= next_look) {
			now = rf_clock_now();
			next_look = p->bytes + CLOCK_BYTES;
		}
	}
	p->ns = now - begin;
	rf_bench_pin(RF_BENCH_ANY_CORE);
}

int rf_bench_limit_pipeline(const struct rf_bench_limit_pipeline *how, double *ret_gbps)
{
	struct pipeline p = { .how = how };
	size_t slot = RF_BENCH_LIMIT_SLOT_AHEAD + RF_BENCH_LIMIT_SLOT_BYTES, bytes;
	int r;

	p.n_slots = rf_max_size(rf_min_size(how->slots, how->window / piece_bytes(&p)), 1);
	bytes = p.n_slots * slot;
	p.slots = map(bytes);
	p.sink = aligned_alloc(CACHE_LINE, SINK_BYTES);
	r = rf_bench_payload_init(&p.payload, RF_BENCH_LIMIT_SLOT_BYTES);
	if (r < 0 || !p.slots || !p.sink) {
		r = -ENOMEM;
		goto out;
	}
	/* Nothing is touched for the first time while time runs. */
	memset(p.slots, 0, bytes);
	memset(p.sink, 0, SINK_BYTES);
	if (how->two_threads)
		r = run_two_threads(&p);
	else
		run_one_thread(&p);
	if (!r && p.wrong)
		r = -EBADMSG;
	if (!r)
		*ret_gbps = p.ns ? (double)p.bytes / (double)p.ns : 0;
out:
	if (p.slots)
		munmap(p.slots, bytes);
	rf_bench_payload_fini(&p.payload);
	free(p.sink);
	return r;
}
