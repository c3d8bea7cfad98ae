/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A driver that writes whatever the input says into ring memory, in turns with calls of the device
 * half. The input is a program: a few bytes of configuration, then operations of one byte with
 * their operands. Whatever happens, every piece lies in guest memory and the sums are right; a
 * queue that broke is started anew, as a session does it.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ring/devq.h"

#include "fake_driver.h"
#include "fake_mem.h"

#define DESC_AT  0x0u
#define DRV_AT   0x1000u
#define DEV_AT   0x2000u
#define BUF_AT   0x3000u
#define SIZE     0x8000u
#define MAX_HELD 64

/* Neighbours for the guest, cut between the rings and the buffers and in a buffer; then a gap. */
static const struct fake_region regions[] = {
	{ 0x0, 0x5000, 0 },
	{ 0x5000, 0x2000, 0x6000 },
	{ 0x9000, 0x800, 0x5080 },
};

enum op {
	OP_DESC,      /* index, gpa/16 (2), len (2), flags, next */
	OP_DESC_RAW,  /* index, 16 bytes */
	OP_TABLE,     /* slot, gpa/16 (2), len (2), flags, next: as OP_DESC, where tables are */
	OP_AVAIL,     /* head: put and published */
	OP_AVAIL_RAW, /* head (2), index (2) */
	OP_POKE,      /* offset (2), value (2) */
	OP_LOOK,      /* count */
	OP_TAKE,      /* count */
	OP_PUSH,      /* which, bytes written (2) */
	OP_PUBLISH,
	OP_ARM,
	OP_DISARM,
	OP_FORGET,
	OP_RESTART, /* from the returned index */
	OP_N
};

struct fuzz {
	const uint8_t *data;
	size_t left;
	struct fake_mem m;
	struct rf_ring_config config;
	struct rf_devq *q;
	const struct rf_chain *chains;
	unsigned n_chains;
	struct rf_chain held[MAX_HELD];
	unsigned n_held;
	uint8_t touched;
};

static unsigned byte(struct fuzz *f)
{
	if (!f->left)
		return 0;
	f->left--;
	return *f->data++;
}

static unsigned word(struct fuzz *f)
{
	unsigned low = byte(f);

	return low | byte(f) << 8;
}

/* An aligned word of the memory, as the driver's processor would store it. */
static void poke(struct fuzz *f, uint32_t at, uint16_t v)
{
	memcpy(f->m.bytes + (at % SIZE & ~1u), &v, sizeof(v));
}

static void poke_desc(struct fuzz *f, uint32_t at)
{
	struct vring_desc desc = { .addr = word(f) * UINT64_C(16) };

	desc.len = (uint32_t)word(f);
	desc.flags = (uint16_t)byte(f);
	desc.next = (uint16_t)byte(f);
	memcpy(f->m.bytes + at % (SIZE - 16), &desc, sizeof(desc));
}

/* Every byte of a piece is ours to read, and of a writable one to write. */
static uint32_t check_pieces(struct fuzz *f, const struct iovec *iov, unsigned n, bool in)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < n; i++) {
		volatile uint8_t *p = iov[i].iov_base;

		assert(iov[i].iov_len > 0);
		f->touched ^= p[0] ^ p[iov[i].iov_len - 1];
		if (in)
			p[0] = p[iov[i].iov_len - 1] = f->touched;
		bytes += iov[i].iov_len;
	}
	assert(bytes <= UINT32_MAX);
	return (uint32_t)bytes;
}

static void op_look(struct fuzz *f, unsigned want)
{
	enum rf_ring_reason before = rf_devq_broken(f->q);
	unsigned had = f->n_chains;
	int n = rf_devq_look(f->q, want, &f->chains);

	f->n_chains = n > 0 ? (unsigned)n : 0;
	assert(f->n_chains >= had && (f->n_chains <= want || f->n_chains == had));
	assert(n >= 0 || (n == -EPROTO && rf_devq_broken(f->q) != RF_RING_NONE));
	/* The first reason stays, and nothing more is parsed. */
	assert(!before || (rf_devq_broken(f->q) == before && f->n_chains == had));
	for (unsigned i = 0; i < f->n_chains; i++) {
		const struct rf_chain *c = &f->chains[i];

		assert(c->head < f->config.num);
		assert(check_pieces(f, rf_devq_out(f->q, c), c->n_out, false) == c->bytes_out);
		assert(check_pieces(f, rf_devq_in(f->q, c), c->n_in, true) == c->bytes_in);
	}
}

static void op_take(struct fuzz *f, unsigned k)
{
	if (k > f->n_chains)
		k = f->n_chains;
	if (k > MAX_HELD - f->n_held)
		k = MAX_HELD - f->n_held;
	rf_devq_take(f->q, k);
	if (!k)
		return;
	memcpy(&f->held[f->n_held], f->chains, k * sizeof(*f->chains));
	f->n_held += k;
	f->n_chains -= k;
	f->chains += k;
}

static void op_push(struct fuzz *f, unsigned which, uint32_t written)
{
	struct rf_chain *chain = &f->held[f->n_held ? which % f->n_held : 0];

	if (!f->n_held)
		return;
	rf_devq_push(f->q, chain, rf_min_u32(written, chain->bytes_in));
	*chain = f->held[--f->n_held];
}

static void op_restart(struct fuzz *f)
{
	f->config.base = rf_devq_stop(f->q);
	f->n_held = f->n_chains = 0;
	assert(rf_devq_start(f->q, &f->config) == 0);
}

static void op_memory(struct fuzz *f, enum op op)
{
	uint32_t idx;

	switch (op) {
	case OP_DESC:
		poke_desc(f, DESC_AT + byte(f) * 16);
		break;
	case OP_DESC_RAW:
		idx = DESC_AT + byte(f) * 16;
		for (unsigned i = 0; i < 16; i += 2)
			poke(f, idx + i, (uint16_t)word(f));
		break;
	case OP_TABLE:
		poke_desc(f, BUF_AT + byte(f) * 16);
		break;
	case OP_AVAIL:
		memcpy(&idx, f->m.bytes + DRV_AT, sizeof(idx));
		idx >>= 16;
		poke(f, DRV_AT + 4 + 2 * (idx % f->config.num), (uint16_t)byte(f));
		poke(f, DRV_AT + 2, (uint16_t)(idx + 1));
		break;
	case OP_AVAIL_RAW:
		memcpy(&idx, f->m.bytes + DRV_AT, sizeof(idx));
		poke(f, DRV_AT + 4 + 2 * ((idx >> 16) % f->config.num), (uint16_t)word(f));
		poke(f, DRV_AT + 2, (uint16_t)word(f));
		break;
	default:
		idx = word(f);
		poke(f, idx, (uint16_t)word(f));
	}
}

static void op_call(struct fuzz *f, enum op op)
{
	unsigned which;

	switch (op) {
	case OP_LOOK:
		op_look(f, byte(f));
		break;
	case OP_TAKE:
		op_take(f, byte(f));
		break;
	case OP_PUSH:
		which = byte(f);
		op_push(f, which, word(f));
		break;
	case OP_PUBLISH:
		(void)rf_devq_publish(f->q);
		break;
	case OP_ARM:
		(void)rf_devq_arm(f->q);
		break;
	case OP_DISARM:
		rf_devq_disarm(f->q);
		break;
	case OP_FORGET:
		rf_devq_forget(f->q);
		f->n_chains = 0;
		break;
	default:
		op_restart(f);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct fake_mem memory;
	static struct rf_devq *q;
	struct fuzz f = { .data = data, .left = size };
	unsigned flags = byte(&f), base = word(&f);

	/* Made once: mapping takes longer than all the rest. */
	if (!q) {
		fake_mem_init(&memory, SIZE, regions, RF_ARRAY_SIZE(regions));
		if (rf_devq_new(memory.mem, &q) < 0)
			abort();
	}
	memset(memory.bytes, 0, SIZE);
	f.m = memory;
	f.q = q;
	f.config = (struct rf_ring_config){
		.layout = RF_RING_SPLIT,
		.num = 1u << flags % 9,
		.base = (uint16_t)base,
		.event_idx = flags & 0x10,
		.indirect = flags & 0x20,
		.desc = fake_mem_host(&f.m, DESC_AT, 1),
		.driver = fake_mem_host(&f.m, DRV_AT, 1),
		.device = fake_mem_host(&f.m, DEV_AT, 1),
	};
	rf_mem_set_max_piece(f.m.mem, flags & 0x40 ? 1 : 0);
	poke(&f, DRV_AT + 2, f.config.base);
	poke(&f, DEV_AT + 2, f.config.base);
	if (rf_devq_start(q, &f.config) < 0)
		abort();
	while (f.left) {
		enum op op = byte(&f) % OP_N;

		if (op < OP_LOOK)
			op_memory(&f, op);
		else
			op_call(&f, op);
		if (rf_devq_broken(f.q) && !f.n_chains && f.left % 4 == 0)
			op_restart(&f);
	}
	(void)rf_devq_stop(q);
	return 0;
}
