/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_guest_priv.h"

#include <endian.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "drvq_room.h"

/* Turns without any progress that mean rest, and turns without rest that mean spinning. */
#define QUIET_TURNS 4
#define MANY_TURNS  200000

#define MEM_SLOTS (FAKE_N_RINGS * (size_t)FAKE_RING_BYTES)

/* A slot's indirect table lies behind its bytes. */
#define TABLE_BYTES (FAKE_MAX_PIECES * 16u)
#define SLOT_STRIDE (FAKE_SLOT_BYTES + TABLE_BYTES)

const struct fake_shape fake_shape_one = { .name = "one piece" };
const struct fake_shape fake_shape_two = { .name = "header and payload", .cuts = { 44 } };

const struct fake_shape fake_shapes[] = {
	{ .name = "one piece" },
	{ .name = "header and payload", .cuts = { 44 } },
	{ .name = "header in three pieces", .cuts = { 20, 20, 4 } },
	{ .name = "header in three pieces, the last with payload", .cuts = { 3, 40 } },
	{ .name = "payload in pieces of 1000", .cuts = { 44 }, .each = 1000 },
	{ .name = "pieces of 700", .each = 700 },
	{ .name = "one piece, header across regions", .lead = FAKE_BORDER - 30 },
	{ .name = "header and payload, unaligned", .lead = 13, .cuts = { 44 } },
	{ .name = "indirect, one piece", .indirect = true },
	{ .name = "indirect, header and payload", .cuts = { 44 }, .indirect = true },
	{ .name = "indirect, pieces of 17", .each = 17, .indirect = true },
	{ .name = "indirect, bytes", .cuts = { 1, 1, 1, 1 }, .each = 29, .indirect = true },
};
const size_t fake_n_shapes = RF_ARRAY_SIZE(fake_shapes);

/**
 * struct fake_slot - A buffer
 * @gpa:	Its memory
 * @busy:	It is on a ring
 * @ring:	Which one it belongs to
 * @bytes:	Its length now
 * @shape:	Its shape now
 */
struct fake_slot {
	uint64_t gpa;
	bool busy;
	unsigned ring;
	uint32_t bytes;
	struct fake_shape shape;
};

_Noreturn void fake_failed(const char *file, int line, const char *what)
{
	fprintf(stderr, "%s:%d: failed: %s\n", file, line, what);
	abort();
}

static void *host_of(const struct fake_guest *g, uint64_t gpa)
{
	return g->mem + (gpa - FAKE_GPA);
}

static uint64_t ring_gpa(unsigned ring, uint64_t offset)
{
	return FAKE_GPA + ring * (uint64_t)FAKE_RING_BYTES + offset;
}

void fake_guest_map(struct fake_guest *g)
{
	unsigned i, n = FAKE_N_RINGS * g->num;

	if (g->mem)
		return;
	g->mem_bytes = MEM_SLOTS + n * (size_t)SLOT_STRIDE;
	g->memfd = memfd_create("fake-guest", MFD_CLOEXEC);
	FAKE_CHECK(g->memfd >= 0 && ftruncate(g->memfd, (off_t)g->mem_bytes) == 0);
	g->mem = mmap(NULL, g->mem_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, g->memfd, 0);
	FAKE_CHECK(g->mem != MAP_FAILED);
	g->slots = calloc(n, sizeof(*g->slots));
	FAKE_CHECK(g->slots);
	for (i = 0; i < n; i++) {
		g->slots[i].gpa = FAKE_GPA + MEM_SLOTS + i * (uint64_t)SLOT_STRIDE;
		g->slots[i].ring = i / g->num;
	}
}

void fake_guest_init(struct fake_guest *g, struct rf_loop *loop)
{
	*g = (struct fake_guest){
		.loop = loop,
		.cid = FAKE_CID,
		.num = 128,
		.n_rings = 2,
		.shared_fd = -1,
		.features = UINT64_C(1) << VIRTIO_F_VERSION_1 |
			    UINT64_C(1) << VIRTIO_RING_F_EVENT_IDX |
			    UINT64_C(1) << VIRTIO_RING_F_INDIRECT_DESC,
		.rx_bytes = 4096,
		.auto_post = true,
		.sock = -1,
		.memfd = -1,
	};
	for (unsigned i = 0; i < FAKE_N_RINGS; i++)
		g->rings[i].kick = g->rings[i].call = g->rings[i].err = -1;
}

void fake_guest_new_ring(struct fake_guest *g, unsigned ring)
{
	struct fake_ring *r = &g->rings[ring];
	const struct rf_ring_config config = {
		.layout = RF_RING_SPLIT,
		.num = g->num,
		.event_idx = g->features & UINT64_C(1) << VIRTIO_RING_F_EVENT_IDX,
		.desc = host_of(g, ring_gpa(ring, 0)),
		.driver = host_of(g, ring_gpa(ring, FAKE_RING_AVAIL)),
		.device = host_of(g, ring_gpa(ring, FAKE_RING_USED)),
	};

	rf_drvq_free(r->drvq);
	FAKE_CHECK(rf_drvq_new(&config, &r->drvq) == 0);
	r->added = 0;
	for (unsigned i = ring * g->num; i < (ring + 1) * g->num; i++)
		g->slots[i].busy = false;
}

void fake_guest_close_fds(struct fake_ring *ring)
{
	ring->kick = rf_fd_close(ring->kick);
	ring->call = rf_fd_close(ring->call);
	ring->err = rf_fd_close(ring->err);
}

void fake_guest_fini(struct fake_guest *g)
{
	fake_guest_hangup(g);
	for (unsigned i = 0; i < FAKE_N_RINGS; i++) {
		fake_guest_close_fds(&g->rings[i]);
		rf_drvq_free(g->rings[i].drvq);
	}
	if (g->mem)
		munmap(g->mem, g->mem_bytes);
	g->memfd = rf_fd_close(g->memfd);
	free(g->slots);
}

static void idle(struct rf_loop *loop, const struct fake_guest *g)
{
	const struct rf_loop_counters *counters = rf_loop_counters(loop);
	uint64_t before = 0;
	unsigned quiet = 0, turns;

	for (turns = 0; quiet < QUIET_TURNS; turns++) {
		uint64_t now;

		FAKE_CHECK(turns < MANY_TURNS);
		FAKE_CHECK(rf_loop_turn(loop, 0) == 0);
		now = rf_counter_read(&counters->loop_events) +
		      rf_counter_read(&counters->loop_timers);
		/* A turn that goes on without events moves a ring. */
		for (unsigned i = 0; g && i < FAKE_N_RINGS; i++)
			now += (uint64_t)fake_guest_used(g, i) << 32;
		quiet = now == before ? quiet + 1 : 0;
		before = now;
	}
}

void fake_loop_idle(struct rf_loop *loop)
{
	idle(loop, NULL);
}

void fake_guest_idle(struct fake_guest *g)
{
	idle(g->loop, g);
}

/* Cut @bytes at the slot's memory into g->pieces. Return: their number. */
static unsigned cut(struct fake_guest *g, const struct fake_slot *slot)
{
	const struct fake_shape *shape = &slot->shape;
	uint64_t gpa = slot->gpa + shape->lead;
	uint32_t left = slot->bytes;
	bool listed = true;
	unsigned n = 0;

	while (left || !n) {
		uint32_t len = shape->each ? shape->each : left;

		listed = listed && n < RF_ARRAY_SIZE(shape->cuts) && shape->cuts[n];
		len = rf_min_u32(listed ? shape->cuts[n] : len, left);
		FAKE_CHECK(n < FAKE_MAX_PIECES);
		g->pieces[n++] = (struct rf_drvq_piece){ { gpa }, len };
		gpa += len + 1;
		left -= len;
	}
	FAKE_CHECK(gpa - slot->gpa <= FAKE_SLOT_BYTES + 1);
	return n;
}

bool fake_guest_signalled(int fd)
{
	return rf_eventfd_drain(fd);
}

off_t fake_guest_slot(const struct fake_guest *g, unsigned ring, unsigned slot)
{
	return (off_t)(MEM_SLOTS + (ring * (size_t)g->num + slot) * SLOT_STRIDE);
}

off_t fake_guest_first_slot(const struct fake_guest *g, unsigned ring)
{
	return fake_guest_slot(g, ring, 0);
}

uint16_t *fake_guest_avail(const struct fake_guest *g, unsigned ring)
{
	struct vring_avail *avail = host_of(g, ring_gpa(ring, FAKE_RING_AVAIL));

	return &avail->idx;
}

struct vring_desc *fake_guest_descs(const struct fake_guest *g, unsigned ring)
{
	return host_of(g, ring_gpa(ring, 0));
}

unsigned fake_guest_room(const struct fake_guest *g, unsigned ring)
{
	return drvq_room(g->rings[ring].drvq);
}

uint16_t fake_guest_used(const struct fake_guest *g, unsigned ring)
{
	const struct vring_used *used;

	if (!g->mem)
		return 0;
	used = host_of(g, ring_gpa(ring, FAKE_RING_USED));
	return __atomic_load_n(&used->idx, __ATOMIC_ACQUIRE);
}

static void copy_to_slot(struct fake_guest *g, unsigned n, const void *bytes)
{
	const uint8_t *from = bytes;

	for (unsigned i = 0; i < n; i++) {
		memcpy(host_of(g, g->pieces[i].gpa.v), from, g->pieces[i].len);
		from += g->pieces[i].len;
	}
}

/*
 * Turn the buffer that was added last into an indirect one: the queue knows it as one piece of all
 * its bytes, for which it checks what the device says it wrote.
 */
static void make_indirect(struct fake_guest *g, struct fake_slot *slot, unsigned n)
{
	const struct vring_avail *avail = host_of(g, ring_gpa(slot->ring, FAKE_RING_AVAIL));
	struct vring_desc *descs = host_of(g, ring_gpa(slot->ring, 0));
	struct vring_desc *table = host_of(g, slot->gpa + FAKE_SLOT_BYTES);
	struct vring_desc *head = &descs[avail->ring[g->rings[slot->ring].added % g->num]];
	uint16_t writable = slot->ring == FAKE_RX ? VRING_DESC_F_WRITE : 0;

	for (unsigned i = 0; i < n; i++)
		table[i] = (struct vring_desc){
			.addr = g->pieces[i].gpa.v,
			.len = g->pieces[i].len,
			.flags = (uint16_t)(writable | (i + 1 < n ? VRING_DESC_F_NEXT : 0)),
			.next = (uint16_t)(i + 1),
		};
	head->addr = slot->gpa + FAKE_SLOT_BYTES;
	head->len = n * (uint32_t)sizeof(*table);
	head->flags = VRING_DESC_F_INDIRECT;
}

static struct fake_slot *take_slot(struct fake_guest *g, unsigned ring, uint32_t bytes,
				   const struct fake_shape *shape)
{
	struct fake_slot *slot = &g->slots[ring * g->num], *end = slot + g->num;

	while (slot < end && slot->busy)
		slot++;
	FAKE_CHECK(slot < end);
	slot->busy = true;
	slot->bytes = bytes;
	slot->shape = *shape;
	return slot;
}

/* g->pieces holds the slot's. */
static void add(struct fake_guest *g, struct fake_slot *slot, unsigned n)
{
	struct fake_ring *ring = &g->rings[slot->ring];
	const struct rf_drvq_piece whole = { { slot->gpa }, slot->bytes };
	const struct rf_drvq_piece *pieces = slot->shape.indirect ? &whole : g->pieces;
	unsigned n_direct = slot->shape.indirect ? 1 : n;
	bool in = slot->ring == FAKE_RX;

	FAKE_CHECK(rf_drvq_add(ring->drvq, pieces, in ? 0 : n_direct, in ? n_direct : 0, slot) ==
		   0);
	if (slot->shape.indirect)
		make_indirect(g, slot, n);
	ring->added++;
}

static void reclaim(struct fake_guest *g)
{
	struct fake_ring *ring = &g->rings[FAKE_TX];
	struct fake_slot *slot;
	uint32_t len;

	while ((slot = rf_drvq_get(ring->drvq, &len))) {
		FAKE_CHECK(len == 0);
		slot->busy = false;
	}
	FAKE_CHECK(rf_drvq_broken(ring->drvq) == RF_RING_NONE);
}

unsigned fake_guest_unsent(struct fake_guest *g)
{
	reclaim(g);
	return rf_drvq_outstanding(g->rings[FAKE_TX].drvq);
}

void fake_guest_put_raw(struct fake_guest *g, const void *raw, uint32_t bytes,
			const struct fake_shape *shape)
{
	struct fake_slot *slot;
	unsigned n;

	reclaim(g);
	slot = take_slot(g, FAKE_TX, bytes, shape);
	n = cut(g, slot);
	copy_to_slot(g, n, raw);
	add(g, slot, n);
}

/* The wire format, from the specification (virtio 1.2 5.10.6) and not from the code under test. */
static void encode(const struct rf_vsock_hdr *hdr, uint8_t *wire)
{
	const struct virtio_vsock_hdr le = {
		.src_cid = htole64(hdr->src_cid),
		.dst_cid = htole64(hdr->dst_cid),
		.src_port = htole32(hdr->src_port),
		.dst_port = htole32(hdr->dst_port),
		.len = htole32(hdr->len),
		.type = htole16(hdr->type),
		.op = htole16(hdr->op),
		.flags = htole32(hdr->flags),
		.buf_alloc = htole32(hdr->buf_alloc),
		.fwd_cnt = htole32(hdr->fwd_cnt),
	};

	memcpy(wire, &le, sizeof(le));
}

static void decode(const uint8_t *wire, struct rf_vsock_hdr *ret_hdr)
{
	struct virtio_vsock_hdr le;

	memcpy(&le, wire, sizeof(le));
	*ret_hdr = (struct rf_vsock_hdr){
		.src_cid = le64toh(le.src_cid),
		.dst_cid = le64toh(le.dst_cid),
		.src_port = le32toh(le.src_port),
		.dst_port = le32toh(le.dst_port),
		.len = le32toh(le.len),
		.type = le16toh(le.type),
		.op = le16toh(le.op),
		.flags = le32toh(le.flags),
		.buf_alloc = le32toh(le.buf_alloc),
		.fwd_cnt = le32toh(le.fwd_cnt),
	};
}

void fake_guest_put(struct fake_guest *g, const struct rf_vsock_hdr *hdr, const void *data,
		    uint32_t bytes, const struct fake_shape *shape)
{
	FAKE_CHECK(RF_VSOCK_HDR_BYTES + bytes <= sizeof(g->raw));
	encode(hdr, g->raw);
	if (bytes)
		memcpy(g->raw + RF_VSOCK_HDR_BYTES, data, bytes);
	fake_guest_put_raw(g, g->raw, RF_VSOCK_HDR_BYTES + bytes, shape);
}

void fake_guest_kick(struct fake_guest *g, unsigned ring)
{
	if (rf_drvq_publish(g->rings[ring].drvq))
		rf_eventfd_signal(g->rings[ring].kick);
}

void fake_guest_send(struct fake_guest *g, const struct rf_vsock_hdr *hdr, const void *data,
		     uint32_t bytes, const struct fake_shape *shape)
{
	fake_guest_put(g, hdr, data, bytes, shape);
	fake_guest_kick(g, FAKE_TX);
}

static void post_one(struct fake_guest *g, uint32_t bytes, const struct fake_shape *shape)
{
	struct fake_slot *slot = take_slot(g, FAKE_RX, bytes, shape);

	add(g, slot, cut(g, slot));
}

void fake_guest_post(struct fake_guest *g, unsigned n, uint32_t bytes,
		     const struct fake_shape *shape)
{
	while (n--)
		post_one(g, bytes, shape);
	fake_guest_kick(g, FAKE_RX);
}

void fake_guest_post_all(struct fake_guest *g)
{
	const struct fake_slot slot = { .bytes = g->rx_bytes, .shape = g->rx_shape };
	unsigned n = g->rx_shape.indirect ? 1 : cut(g, &slot);

	fake_guest_post(g, g->num / n, g->rx_bytes, &g->rx_shape);
}

/* The next used receive buffer. There must be none if we were not notified. */
static struct fake_slot *next_used(struct fake_guest *g, uint32_t *ret_len)
{
	struct fake_ring *ring = &g->rings[FAKE_RX];
	struct fake_slot *slot;

	if (ring->armed && !rf_eventfd_drain(ring->call)) {
		FAKE_CHECK(!rf_drvq_get(ring->drvq, ret_len));
		return NULL;
	}
	ring->armed = false;
	do {
		slot = rf_drvq_get(ring->drvq, ret_len);
		FAKE_CHECK(rf_drvq_broken(ring->drvq) == RF_RING_NONE);
	} while (!slot && rf_drvq_arm(ring->drvq));
	ring->armed = !slot;
	return slot;
}

static void copy_from_slot(struct fake_guest *g, unsigned n)
{
	uint8_t *to = g->data;

	for (unsigned i = 0; i < n; i++) {
		memcpy(to, host_of(g, g->pieces[i].gpa.v), g->pieces[i].len);
		to += g->pieces[i].len;
	}
}

bool fake_guest_recv(struct fake_guest *g, struct fake_packet *ret_packet, bool *ret_empty)
{
	struct fake_slot *slot;
	uint32_t len;

	if (!g->rings[FAKE_RX].drvq)
		return false;
	slot = next_used(g, &len);
	if (!slot)
		return false;
	FAKE_CHECK(len || ret_empty);
	if (ret_empty)
		*ret_empty = !len;
	*ret_packet = (struct fake_packet){ .capacity = slot->bytes };
	slot->busy = false;
	if (len) {
		FAKE_CHECK(len >= RF_VSOCK_HDR_BYTES);
		copy_from_slot(g, cut(g, slot));
		decode(g->data, &ret_packet->hdr);
		FAKE_CHECK(len == RF_VSOCK_HDR_BYTES + ret_packet->hdr.len);
		ret_packet->data = g->data + RF_VSOCK_HDR_BYTES;
	}
	if (g->auto_post) {
		post_one(g, g->rx_bytes, &g->rx_shape);
		fake_guest_kick(g, FAKE_RX);
	}
	return true;
}
