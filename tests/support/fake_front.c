/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_guest_priv.h"

#include <assert.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/fd.h"
#include "vhost/message.h"

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

/* ADD_MEM_REG or REM_MEM_REG for a part of the file. */
static void send_region(struct fake_guest *g, uint32_t request, uint64_t begin, uint64_t end)
{
	const struct rf_vu_mem_single single = { .region = { .gpa = FAKE_GPA + begin,
							     .size = end - begin,
							     .uva = FAKE_UVA + begin,
							     .mmap_offset = begin } };

	fake_guest_message(g, request, &single, sizeof(single),
			   request == RF_VU_ADD_MEM_REG ? g->memfd : -1);
}

static void send_slot(struct fake_guest *g, uint32_t request, unsigned ring, unsigned slot)
{
	uint64_t begin = (uint64_t)fake_guest_slot(g, ring, slot) + FAKE_BORDER;
	uint64_t end = (uint64_t)fake_guest_slot(g, ring, slot + 1) + FAKE_BORDER;

	send_region(g, request, begin, rf_min_u64(end, g->mem_bytes));
}

void fake_guest_plug(struct fake_guest *g, unsigned ring, unsigned slot)
{
	send_slot(g, RF_VU_ADD_MEM_REG, ring, slot);
}

void fake_guest_unplug(struct fake_guest *g, unsigned ring, unsigned slot)
{
	send_slot(g, RF_VU_REM_MEM_REG, ring, slot);
}

static void plug_all(struct fake_guest *g)
{
	send_region(g, RF_VU_ADD_MEM_REG, 0, (uint64_t)fake_guest_first_slot(g, 0) + FAKE_BORDER);
	for (unsigned i = 0; i < FAKE_N_RINGS * g->num; i++) {
		fake_guest_plug(g, i / g->num, i % g->num);
		/* The socket holds only so many descriptors that nobody received. */
		fake_guest_idle(g);
	}
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
			.gpa = FAKE_GPA + borders[i],
			.size = borders[i + 1] - borders[i],
			.uva = FAKE_UVA + borders[i],
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
	fake_guest_map(g);
	fake_guest_message(g, RF_VU_SET_OWNER, "", 0, -1);
	fake_guest_message_u64(g, RF_VU_SET_FEATURES, g->features);
	if (g->plugged) {
		fake_guest_message_u64(g, RF_VU_SET_PROTOCOL_FEATURES,
				       UINT64_C(1) << RF_VU_PF_CONFIGURE_MEM_SLOTS);
		plug_all(g);
	} else {
		fake_guest_share(g);
	}
}

void fake_guest_start_blank(struct fake_guest *g, unsigned ring)
{
	fake_guest_new_ring(g, ring);
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
	uint64_t uva = FAKE_UVA + ring * (uint64_t)FAKE_RING_BYTES;
	const struct rf_vu_vring_addr addr = {
		.index = ring,
		.desc = uva,
		.avail = uva + FAKE_RING_AVAIL,
		.used = uva + FAKE_RING_USED,
	};

	fake_guest_close_fds(r);
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

void fake_guest_boot(struct fake_guest *g)
{
	fake_guest_handshake(g);
	for (unsigned i = 0; i < g->n_rings; i++)
		fake_guest_start_blank(g, i);
	if (g->auto_post)
		fake_guest_post_all(g);
	fake_guest_idle(g);
}
