/* SPDX-License-Identifier: BSD-3-Clause */
/* A guest on the kernel's back end: guest/transport_kernel.c, and what device.c does with it. */
#include <endian.h>
#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/util.h"
#include "fake_device.h"
#include "fake_kernel.h"
#include "open_fds.h"
#include "ringferry/guest.h"
#include "vsock/packet.h"

#define CID        42u
#define PORT       1234u
#define WINDOW     (1u << 20)
#define QUEUE_SIZE 16u

enum { RX, TX };

/**
 * struct kernel_rig - A guest, and the rings as the kernel sees them
 * @guest:	Guest
 * @rings:	Its rings
 * @kernel:	What it told the kernel
 * @fds_before:	Descriptors before there was a guest
 */
struct kernel_rig {
	struct rf_guest *guest;
	struct fake_device rings[FAKE_KERNEL_RINGS];
	struct fake_kernel kernel;
	unsigned fds_before;
};

static void init_options(struct rf_guest_options *options)
{
	rf_guest_options_init(options);
	options->vhost_device = FAKE_KERNEL_PATH;
	options->guest_cid = CID;
	options->queue_size = QUEUE_SIZE;
}

/* See the rings that the kernel was told of last. */
static void look_at_rings(struct kernel_rig *rig)
{
	rig->kernel = fake_kernel_state();
	for (unsigned i = 0; i < FAKE_KERNEL_RINGS; i++) {
		const struct vhost_vring_addr *addr = &rig->kernel.rings[i].addr;

		fake_device_init(&rig->rings[i], rig->kernel.rings[i].num,
				 (void *)(uintptr_t)addr->desc_user_addr,
				 (void *)(uintptr_t)addr->avail_user_addr,
				 (void *)(uintptr_t)addr->used_user_addr);
	}
}

static void rig_open(struct kernel_rig *rig)
{
	struct rf_guest_options options;

	rig->fds_before = open_fds();
	fake_kernel_reset(NULL);
	init_options(&options);
	assert_int_equal(rf_guest_open(&options, &rig->guest), 0);
	look_at_rings(rig);
}

static void rig_close(struct kernel_rig *rig)
{
	rf_guest_close(rig->guest);
	assert_false(fake_kernel_state().running);
	assert_int_equal(open_fds(), rig->fds_before);
}

static uint64_t counter(const struct kernel_rig *rig, const char *name)
{
	char *text = rf_guest_counters_json(rig->guest);
	json_t *json = json_loads(text, 0, NULL);
	uint64_t value = (uint64_t)json_integer_value(json_object_get(json, name));

	assert_non_null(json_object_get(json, name));
	json_decref(json);
	free(text);
	return value;
}

static void wait_counter(const struct kernel_rig *rig, const char *name, uint64_t value)
{
	uint64_t end_ns = rf_clock_now() + 10 * RF_NS_PER_SEC;

	while (counter(rig, name) < value) {
		if (rf_clock_now() > end_ns)
			fail_msg("%s is %lu", name, (unsigned long)counter(rig, name));
		usleep(2000);
	}
}

/* The memory of a descriptor. */
static void *at(const struct kernel_rig *rig, const struct vring_desc *desc)
{
	const struct vhost_memory_region *region = &rig->kernel.region;

	assert_true(desc->addr + desc->len <= region->memory_size);
	return (void *)(uintptr_t)(region->userspace_addr + desc->addr);
}

/* The guest's next packet, waited for; given back as if @written bytes of it were written. */
static struct rf_vsock_hdr take_packet(struct kernel_rig *rig, uint32_t written, void *ret_data)
{
	struct fake_device *ring = &rig->rings[TX];
	uint64_t end_ns = rf_clock_now() + 10 * RF_NS_PER_SEC;
	struct rf_vsock_hdr hdr;
	uint8_t *wire;
	uint16_t head;

	while (!fake_device_next(ring, &head))
		if (rf_clock_now() > end_ns)
			fail_msg("no packet");
	wire = at(rig, &ring->desc[head]);
	rf_vsock_hdr_decode(wire, &hdr);
	assert_int_equal(ring->desc[head].len, RF_VSOCK_HDR_BYTES + hdr.len);
	if (ret_data)
		memcpy(ret_data, wire + RF_VSOCK_HDR_BYTES, hdr.len);
	fake_device_use(ring, head, written);
	rf_eventfd_signal(rig->kernel.rings[TX].call_fd);
	return hdr;
}

/* Answer a packet of the guest; @extra is what the kernel claims to have written more. */
static void answer(struct kernel_rig *rig, const struct rf_vsock_hdr *to, uint16_t op,
		   const void *data, uint32_t len, uint32_t extra)
{
	const struct rf_vsock_hdr hdr = {
		.src_cid = to->dst_cid,
		.dst_cid = to->src_cid,
		.src_port = to->dst_port,
		.dst_port = to->src_port,
		.type = VIRTIO_VSOCK_TYPE_STREAM,
		.op = op,
		.len = len,
		.buf_alloc = WINDOW,
	};
	struct fake_device *ring = &rig->rings[RX];
	uint8_t *wire;
	uint16_t head;

	assert_true(fake_device_next(ring, &head));
	wire = at(rig, &ring->desc[head]);
	rf_vsock_hdr_encode(&hdr, wire);
	if (len)
		memcpy(wire + RF_VSOCK_HDR_BYTES, data, len);
	fake_device_use(ring, head, RF_VSOCK_HDR_BYTES + len + extra);
	rf_eventfd_signal(rig->kernel.rings[RX].call_fd);
}

/* A connection that the host has accepted; its request is in @ret_request. */
static int connect_to_host(struct kernel_rig *rig, struct rf_vsock_hdr *ret_request)
{
	const struct rf_sockaddr addr = { RF_CID_HOST, PORT };
	int sock = rf_socket(rig->guest, RF_SOCK_STREAM | RF_SOCK_NONBLOCK);
	struct rf_pollfd poll = { .sock = sock, .events = RF_POLLOUT };

	assert_int_equal(rf_connect(rig->guest, sock, &addr), -EINPROGRESS);
	*ret_request = take_packet(rig, 0, NULL);
	assert_int_equal(ret_request->op, VIRTIO_VSOCK_OP_REQUEST);
	answer(rig, ret_request, VIRTIO_VSOCK_OP_RESPONSE, NULL, 0, 0);
	assert_int_equal(rf_poll(rig->guest, &poll, 1, 10000), 1);
	assert_int_equal(poll.revents, RF_POLLOUT);
	return sock;
}

static void options_that_are_not_allowed(void **state)
{
	static const struct {
		int row;
		const char *socket, *device;
		uint32_t cid;
	} rows[] = {
		{ 1, NULL, FAKE_KERNEL_PATH, 0 },
		{ 2, NULL, FAKE_KERNEL_PATH, 2 },
		{ 3, NULL, FAKE_KERNEL_PATH, UINT32_MAX },
		{ 4, NULL, "", CID },
		{ 5, NULL, NULL, CID },
		{ 6, "/x", FAKE_KERNEL_PATH, CID },
		{ 7, "/x", NULL, CID },
	};

	(void)state;
	fake_kernel_reset(NULL);
	for (size_t i = 0; i < RF_ARRAY_SIZE(rows); i++) {
		struct rf_guest_options o;
		struct rf_guest *guest;
		int r;

		init_options(&o);
		o.socket_path = rows[i].socket;
		o.vhost_device = rows[i].device;
		o.guest_cid = rows[i].cid;
		r = rf_guest_open(&o, &guest);
		if (r != -EINVAL)
			fail_msg("row %d: %d", rows[i].row, r);
	}
	assert_int_equal(fake_kernel_state().opened, 0);
}

/* The kernel is told of the memory that the rings are in, of nothing outside, and only of two. */
static void attaches(void **state)
{
	struct kernel_rig rig;

	(void)state;
	rig_open(&rig);
	assert_int_equal(rf_guest_cid(rig.guest), CID);
	assert_true(rig.kernel.running);
	assert_int_equal(rig.kernel.features, UINT64_C(1) << 32 | 1u << 29);
	assert_int_equal(rig.kernel.region.guest_phys_addr, 0);
	for (unsigned i = 0; i < FAKE_KERNEL_RINGS; i++) {
		const struct vhost_vring_addr *addr = &rig.kernel.rings[i].addr;
		uint64_t begin = rig.kernel.region.userspace_addr;
		uint64_t end = begin + rig.kernel.region.memory_size;

		assert_int_equal(rig.kernel.rings[i].num, QUEUE_SIZE);
		assert_int_equal(rig.kernel.rings[i].base, 0);
		assert_in_range(addr->desc_user_addr, begin, end - 1);
		assert_in_range(addr->avail_user_addr, begin, end - 1);
		assert_in_range(addr->used_user_addr, begin, end - 1);
		assert_true(rig.kernel.rings[i].kick_fd >= 0);
		assert_true(rig.kernel.rings[i].call_fd >= 0);
		assert_true(rig.kernel.rings[i].err_fd >= 0);
	}
	assert_int_equal(rig.rings[RX].avail->idx, QUEUE_SIZE);
	rig_close(&rig);
}

/* One try: there is no back end to come, whatever the time that may be waited. */
static void each_call_refused(void **state)
{
	unsigned n_calls;
	struct kernel_rig rig;

	(void)state;
	rig_open(&rig);
	n_calls = fake_kernel_state().n_calls;
	rig_close(&rig);
	for (unsigned i = 1; i <= n_calls; i++) {
		static const int errors[] = { EIO, ENOENT, EADDRINUSE };
		int error = errors[i % RF_ARRAY_SIZE(errors)];
		unsigned fds = open_fds();
		struct rf_guest_options o;
		struct rf_guest *guest;
		int r;

		fake_kernel_reset(&(struct fake_kernel){ .fail_at = i, .fail_errno = error });
		init_options(&o);
		o.connect_timeout_ms = -1;
		r = rf_guest_open(&o, &guest);
		if (r != -error)
			fail_msg("call %u: %d", i, r);
		assert_int_equal(fake_kernel_state().n_calls, i);
		assert_int_equal(open_fds(), fds);
	}
}

/*
 * Linux before 49d8c5ffad07 says that it has written to transmit buffers what it has read. That
 * is let pass, so often that every slot has had it; a length that cannot be on the receive ring is
 * not.
 */
static void lengths_of_old_kernels(void **state)
{
	struct rf_vsock_hdr request, hdr;
	struct kernel_rig rig;
	char data[100], seen[100];
	int sock;

	(void)state;
	rig_open(&rig);
	sock = connect_to_host(&rig, &request);
	for (unsigned i = 0; i < 3 * QUEUE_SIZE; i++) {
		memset(data, (int)i, sizeof(data));
		assert_int_equal(rf_send(rig.guest, sock, data, sizeof(data), 0), sizeof(data));
		hdr = take_packet(&rig, RF_VSOCK_HDR_BYTES + sizeof(data), seen);
		assert_int_equal(hdr.op, VIRTIO_VSOCK_OP_RW);
		assert_int_equal(hdr.len, sizeof(data));
		assert_memory_equal(seen, data, sizeof(data));
	}
	answer(&rig, &request, VIRTIO_VSOCK_OP_RW, data, sizeof(data), 0);
	wait_counter(&rig, "rx_bytes", sizeof(data));
	assert_int_equal(rf_recv(rig.guest, sock, seen, sizeof(seen), 0), sizeof(seen));
	assert_memory_equal(seen, data, sizeof(data));
	assert_int_equal(counter(&rig, "rings_broken"), 0);

	answer(&rig, &request, VIRTIO_VSOCK_OP_RW, data, sizeof(data), 1u << 20);
	wait_counter(&rig, "rings_broken", 1);
	assert_int_equal(rf_recv(rig.guest, sock, seen, sizeof(seen), 0), -ECONNRESET);
	rig_close(&rig);
}

/* The kernel gives a ring up: connections end, the device is opened anew, and works. */
static void kernel_gives_a_ring_up(void **state)
{
	struct rf_vsock_hdr request;
	struct kernel_rig rig;
	char byte = 1;
	int sock;

	(void)state;
	rig_open(&rig);
	sock = connect_to_host(&rig, &request);
	/* Not at the first try. */
	fake_kernel_refuse(2, EADDRINUSE);
	rf_eventfd_signal(rig.kernel.rings[TX].err_fd);
	wait_counter(&rig, "attachments", 2);
	assert_int_equal(rf_recv(rig.guest, sock, &byte, 1, 0), -ECONNRESET);
	assert_int_equal(fake_kernel_state().opened, 2);
	look_at_rings(&rig);
	assert_int_equal(rf_guest_cid(rig.guest), CID);
	sock = connect_to_host(&rig, &request);
	assert_int_equal(rf_send(rig.guest, sock, &byte, 1, 0), 1);
	take_packet(&rig, 0, &byte);
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_that_are_not_allowed),
		cmocka_unit_test(attaches),
		cmocka_unit_test(each_call_refused),
		cmocka_unit_test(lengths_of_old_kernels),
		cmocka_unit_test(kernel_gives_a_ring_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
