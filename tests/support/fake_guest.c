/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_guest.h"

#include <assert.h>
#include <endian.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "vhost/message.h"

/* Turns without any progress that mean rest, and turns without rest that mean spinning. */
#define QUIET_TURNS 4
#define MANY_TURNS  200000

/* Guest-physical address of the first byte of the file, and where the front end sees that. */
#define GPA_BASE UINT64_C(0x100000)
#define UVA_BASE UINT64_C(0x600000000000)

/* Rings come first in the file, each with room for the largest one. */
#define RING_BYTES 0x100000u
#define RING_AVAIL 0x80000u
#define RING_USED  0xa0000u
#define MEM_SLOTS  (FAKE_N_RINGS * (size_t)RING_BYTES)

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
	return g->mem + (gpa - GPA_BASE);
}

static uint64_t ring_gpa(unsigned ring, uint64_t offset)
{
	return GPA_BASE + ring * (uint64_t)RING_BYTES + offset;
}

static void init_memory(struct fake_guest *g)
{
	unsigned i, n = FAKE_N_RINGS * g->num;

	g->mem_bytes = MEM_SLOTS + n * (size_t)SLOT_STRIDE;
	g->memfd = memfd_create("fake-guest", MFD_CLOEXEC);
	FAKE_CHECK(g->memfd >= 0 && ftruncate(g->memfd, (off_t)g->mem_bytes) == 0);
	g->mem = mmap(NULL, g->mem_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, g->memfd, 0);
	FAKE_CHECK(g->mem != MAP_FAILED);
	g->slots = calloc(n, sizeof(*g->slots));
	FAKE_CHECK(g->slots);
	for (i = 0; i < n; i++) {
		g->slots[i].gpa = GPA_BASE + MEM_SLOTS + i * (uint64_t)SLOT_STRIDE;
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

static void close_ring_fds(struct fake_ring *ring)
{
	ring->kick = rf_fd_close(ring->kick);
	ring->call = rf_fd_close(ring->call);
	ring->err = rf_fd_close(ring->err);
}

void fake_guest_fini(struct fake_guest *g)
{
	fake_guest_hangup(g);
	for (unsigned i = 0; i < FAKE_N_RINGS; i++) {
		close_ring_fds(&g->rings[i]);
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

void fake_guest_attach(struct fake_guest *g, int sock)
{
	FAKE_CHECK(g->sock < 0 && sock >= 0);
	g->sock = sock;
}

void fake_guest_connect(struct fake_guest *g, const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	FAKE_CHECK(strlen(path) < sizeof(addr.sun_path));
	memcpy(addr.sun_path, path, strlen(path));
	FAKE_CHECK(sock >= 0 && connect(sock, (struct sockaddr *)&addr, sizeof(addr)) == 0);
	fake_guest_attach(g, sock);
}

void fake_guest_hangup(struct fake_guest *g)
{
	g->sock = rf_fd_close(g->sock);
}

static void send_message(struct fake_guest *g, uint32_t request, const void *payload,
			 uint32_t bytes, const int *fds, unsigned n_fds)
{
	const struct rf_vu_hdr hdr = { .request = request,
				       .flags = RF_VU_PROTOCOL_VERSION,
				       .size = bytes };
	uint8_t wire[RF_VU_HDR_BYTES + RF_VU_MAX_PAYLOAD];
	size_t len = RF_VU_HDR_BYTES + bytes;

	FAKE_CHECK(len <= sizeof(wire));
	memcpy(wire, &hdr, sizeof(hdr));
	memcpy(wire + sizeof(hdr), payload, bytes);
	FAKE_CHECK(rf_fd_send(g->sock, wire, len, fds, n_fds) == (ssize_t)len);
}

void fake_guest_message(struct fake_guest *g, uint32_t request, const void *payload, uint32_t bytes,
			int fd)
{
	send_message(g, request, payload, bytes, &fd, fd >= 0 ? 1 : 0);
}

void fake_guest_message_u64(struct fake_guest *g, uint32_t request, uint64_t value)
{
	fake_guest_message(g, request, &value, sizeof(value), -1);
}

void fake_guest_message_state(struct fake_guest *g, uint32_t request, uint32_t index, uint32_t num)
{
	const struct rf_vu_vring_state state = { .index = index, .num = num };

	fake_guest_message(g, request, &state, sizeof(state), -1);
}

/* Three regions, so that the first buffer of each ring lies across two of them. */
void fake_guest_share(struct fake_guest *g)
{
	const uint64_t rx = (uint64_t)fake_guest_first_slot(g, FAKE_RX) + FAKE_BORDER;
	const uint64_t tx = (uint64_t)fake_guest_first_slot(g, FAKE_TX) + FAKE_BORDER;
	const uint64_t borders[] = { 0, rx, tx, g->mem_bytes };
	struct rf_vu_mem_table table = { .n_regions = RF_ARRAY_SIZE(borders) - 1 };
	int fds[RF_ARRAY_SIZE(borders) - 1];

	for (unsigned i = 0; i < table.n_regions; i++) {
		table.regions[i] = (struct rf_vu_mem_region){
			.gpa = GPA_BASE + borders[i],
			.size = borders[i + 1] - borders[i],
			.uva = UVA_BASE + borders[i],
			.mmap_offset = borders[i],
		};
		fds[i] = g->shared_fd >= 0 ? g->shared_fd : g->memfd;
	}
	send_message(g, RF_VU_SET_MEM_TABLE, &table,
		     (uint32_t)offsetof(struct rf_vu_mem_table, regions[table.n_regions]), fds,
		     table.n_regions);
}

void fake_guest_handshake(struct fake_guest *g)
{
	if (!g->mem)
		init_memory(g);
	fake_guest_message(g, RF_VU_SET_OWNER, "", 0, -1);
	fake_guest_message_u64(g, RF_VU_SET_FEATURES, g->features);
	fake_guest_share(g);
}

/* What the device had of a ring that begins anew is the guest's again. */
static void forget_slots(struct fake_guest *g, unsigned ring)
{
	for (unsigned i = ring * g->num; i < (ring + 1) * g->num; i++)
		g->slots[i].busy = false;
}

void fake_guest_start_blank(struct fake_guest *g, unsigned ring)
{
	struct fake_ring *r = &g->rings[ring];

	rf_drvq_free(r->drvq);
	FAKE_CHECK(rf_drvq_new(RF_RING_SPLIT, g->num,
			       g->features & UINT64_C(1) << VIRTIO_RING_F_EVENT_IDX,
			       host_of(g, ring_gpa(ring, 0)),
			       host_of(g, ring_gpa(ring, RING_AVAIL)),
			       host_of(g, ring_gpa(ring, RING_USED)), &r->drvq) == 0);
	forget_slots(g, ring);
	r->added = 0;
	fake_guest_start_at(g, ring, 0);
}

static void send_vring_fd(struct fake_guest *g, uint32_t request, unsigned ring, int fd)
{
	uint64_t value = ring;

	fake_guest_message(g, request, &value, sizeof(value), fd);
}

void fake_guest_start_at(struct fake_guest *g, unsigned ring, uint16_t base)
{
	struct fake_ring *r = &g->rings[ring];
	const struct rf_vu_vring_addr addr = {
		.index = ring,
		.desc = UVA_BASE - GPA_BASE + ring_gpa(ring, 0),
		.avail = UVA_BASE - GPA_BASE + ring_gpa(ring, RING_AVAIL),
		.used = UVA_BASE - GPA_BASE + ring_gpa(ring, RING_USED),
	};

	close_ring_fds(r);
	r->kick = rf_eventfd_new();
	r->call = rf_eventfd_new();
	r->err = rf_eventfd_new();
	FAKE_CHECK(r->kick >= 0 && r->call >= 0 && r->err >= 0);
	r->armed = false;
	fake_guest_message_state(g, RF_VU_SET_VRING_NUM, ring, g->num);
	fake_guest_message_state(g, RF_VU_SET_VRING_BASE, ring, base);
	fake_guest_message(g, RF_VU_SET_VRING_ADDR, &addr, sizeof(addr), -1);
	send_vring_fd(g, RF_VU_SET_VRING_CALL, ring, r->call);
	send_vring_fd(g, RF_VU_SET_VRING_ERR, ring, r->err);
	send_vring_fd(g, RF_VU_SET_VRING_KICK, ring, r->kick);
	fake_guest_idle(g);
}

uint16_t fake_guest_stop(struct fake_guest *g, unsigned ring)
{
	struct {
		struct rf_vu_hdr hdr;
		struct rf_vu_vring_state state;
	} reply;

	static_assert(sizeof(reply) == 20, "as on the wire");
	fake_guest_message_state(g, RF_VU_GET_VRING_BASE, ring, 0);
	fake_guest_idle(g);
	FAKE_CHECK(recv(g->sock, &reply, sizeof(reply), MSG_DONTWAIT) == sizeof(reply));
	FAKE_CHECK(reply.hdr.request == RF_VU_GET_VRING_BASE && reply.state.index == ring);
	g->rings[ring].base = (uint16_t)reply.state.num;
	return g->rings[ring].base;
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

/* How many receive buffers the ring has descriptors for. */
static unsigned buffers_that_fit(struct fake_guest *g)
{
	const struct fake_slot slot = { .bytes = g->rx_bytes, .shape = g->rx_shape };

	return g->rx_shape.indirect ? g->num : g->num / cut(g, &slot);
}

void fake_guest_boot(struct fake_guest *g)
{
	fake_guest_handshake(g);
	for (unsigned i = 0; i < g->n_rings; i++)
		fake_guest_start_blank(g, i);
	if (g->auto_post)
		fake_guest_post(g, buffers_that_fit(g), g->rx_bytes, &g->rx_shape);
	fake_guest_idle(g);
}

bool fake_guest_signalled(int fd)
{
	return rf_eventfd_drain(fd);
}

off_t fake_guest_first_slot(const struct fake_guest *g, unsigned ring)
{
	return (off_t)(MEM_SLOTS + ring * (size_t)g->num * SLOT_STRIDE);
}

uint16_t *fake_guest_avail(const struct fake_guest *g, unsigned ring)
{
	struct vring_avail *avail = host_of(g, ring_gpa(ring, RING_AVAIL));

	return &avail->idx;
}

uint16_t fake_guest_used(const struct fake_guest *g, unsigned ring)
{
	const struct vring_used *used;

	if (!g->mem)
		return 0;
	used = host_of(g, ring_gpa(ring, RING_USED));
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
	const struct vring_avail *avail = host_of(g, ring_gpa(slot->ring, RING_AVAIL));
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

void fake_conn_init(struct fake_conn *c, struct fake_guest *g, uint32_t port, uint32_t host_port)
{
	*c = (struct fake_conn){
		.guest = g,
		.port = port,
		.host_port = host_port,
		.buf_alloc = 262144,
	};
}

struct rf_vsock_hdr fake_conn_hdr(const struct fake_conn *c, uint16_t op, uint32_t len)
{
	return (struct rf_vsock_hdr){
		.src_cid = c->guest->cid,
		.dst_cid = RF_VSOCK_CID_HOST,
		.src_port = c->port,
		.dst_port = c->host_port,
		.len = len,
		.type = VIRTIO_VSOCK_TYPE_STREAM,
		.op = op,
		.buf_alloc = c->buf_alloc,
		.fwd_cnt = c->fwd_cnt,
	};
}

void fake_conn_control(struct fake_conn *c, uint16_t op, uint32_t flags)
{
	struct rf_vsock_hdr hdr = fake_conn_hdr(c, op, 0);

	hdr.flags = flags;
	fake_guest_send(c->guest, &hdr, NULL, 0, &fake_shape_one);
}

void fake_conn_put(struct fake_conn *c, const void *data, uint32_t bytes,
		   const struct fake_shape *shape)
{
	struct rf_vsock_hdr hdr = fake_conn_hdr(c, VIRTIO_VSOCK_OP_RW, bytes);

	c->tx_cnt += bytes;
	fake_guest_put(c->guest, &hdr, data, bytes, shape);
}

void fake_conn_send(struct fake_conn *c, const void *data, uint32_t bytes)
{
	fake_conn_put(c, data, bytes, &fake_shape_one);
	fake_guest_kick(c->guest, FAKE_TX);
}

uint32_t fake_conn_space(const struct fake_conn *c)
{
	return c->peer_buf_alloc - (c->tx_cnt - c->peer_fwd_cnt);
}

bool fake_conn_recv(struct fake_conn *c, struct fake_packet *ret_packet)
{
	const struct rf_vsock_hdr *hdr = &ret_packet->hdr;

	if (!fake_guest_recv(c->guest, ret_packet, NULL))
		return false;
	FAKE_CHECK(hdr->src_cid == RF_VSOCK_CID_HOST && hdr->dst_cid == c->guest->cid);
	FAKE_CHECK(hdr->src_port == c->host_port && hdr->dst_port == c->port);
	FAKE_CHECK(hdr->type == VIRTIO_VSOCK_TYPE_STREAM);
	FAKE_CHECK(hdr->op == VIRTIO_VSOCK_OP_RW ? hdr->len : !hdr->len);
	c->rx_cnt += hdr->len;
	FAKE_CHECK(c->rx_cnt - c->fwd_cnt <= c->buf_alloc || !hdr->len);
	if (hdr->op != VIRTIO_VSOCK_OP_RST) {
		FAKE_CHECK(hdr->fwd_cnt - c->peer_fwd_cnt <= c->tx_cnt - c->peer_fwd_cnt);
		c->peer_buf_alloc = hdr->buf_alloc;
		c->peer_fwd_cnt = hdr->fwd_cnt;
	}
	return true;
}
