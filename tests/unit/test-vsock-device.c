/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The life of the device: front ends that come, pause, reset and leave; guests whose rings or
 * memory break; limits; and that nothing is left of what is over.
 */
#include <assert.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "host/limits.h"
#include "prng.h"
#include "vhost/message.h"
#include "vsock/limits.h"
#include "vsock_rig.h"

#define REQUEST       VIRTIO_VSOCK_OP_REQUEST
#define RESPONSE      VIRTIO_VSOCK_OP_RESPONSE
#define RST           VIRTIO_VSOCK_OP_RST
#define SHUTDOWN      VIRTIO_VSOCK_OP_SHUTDOWN
#define RW            VIRTIO_VSOCK_OP_RW
#define CREDIT_UPDATE VIRTIO_VSOCK_OP_CREDIT_UPDATE

/* A connection that works both ways. */
static void expect_works(struct vsock_rig *rig, struct fake_conn *c, int fd, uint32_t at)
{
	rig_guest_send(c, at, 100);
	rig_idle(rig);
	rig_host_read(fd, at, 100);
	rig_host_write(rig, fd, at, 100);
	rig_guest_read(rig, c, at, 100);
}

static void expect_new_works(struct vsock_rig *rig, uint32_t port)
{
	struct fake_conn c;
	int fd = rig_open_from_guest(rig, &c, port);

	expect_works(rig, &c, fd, 0);
	close(fd);
	rig_expect(rig, &c, SHUTDOWN);
	fake_conn_control(&c, RST, 0);
	rig_idle(rig);
	fd = rig_open_from_host(rig, &c);
	expect_works(rig, &c, fd, 0);
	close(fd);
	rig_expect(rig, &c, SHUTDOWN);
	fake_conn_control(&c, RST, 0);
	rig_idle(rig);
}

static void drop_packets(struct vsock_rig *rig)
{
	struct fake_packet packet;

	rig_idle(rig);
	while (fake_guest_recv(&rig->guest, &packet, NULL))
		rig_idle(rig);
}

/* Pause, or another guest */

struct restart_row {
	const char *name;
	unsigned first_stopped, first_started;
	bool blank[2];
};

static const struct restart_row restart_rows[] = {
	{ "pause, rings in order", 0, 0, { false, false } },
	{ "pause, stopped in order, started in reverse", 0, 1, { false, false } },
	{ "pause, stopped in reverse, started in order", 1, 0, { false, false } },
	{ "pause, rings in reverse", 1, 1, { false, false } },
	{ "reboot", 0, 0, { true, true } },
	{ "reboot, started in reverse", 0, 1, { true, true } },
	{ "receive ring anew", 0, 0, { true, false } },
	{ "receive ring anew, started last", 0, 1, { true, false } },
	{ "transmit ring anew", 0, 0, { false, true } },
	{ "transmit ring anew, started first", 1, 1, { false, true } },
};

/* The guest goes on where it was, and so does all that was under way. */
static void expect_paused(struct vsock_rig *rig, struct fake_conn *c, int fd, int fd_asked)
{
	struct fake_packet packet;
	unsigned requests = 0;

	rig_idle(rig);
	rig_host_read(fd, 0, 1100);
	while (fake_guest_recv(&rig->guest, &packet, NULL)) {
		if (packet.hdr.op == REQUEST) {
			requests++;
		} else {
			assert_int_equal(packet.hdr.op, RW);
			rig_check(packet.data, packet.hdr.len, c->rx_cnt);
			c->rx_cnt += packet.hdr.len;
		}
		rig_idle(rig);
	}
	assert_int_equal(c->rx_cnt, 5000);
	c->fwd_cnt = c->rx_cnt;
	assert_int_equal(requests, 1);
	expect_works(rig, c, fd, 5000);
	assert_int_equal(rig_count(rig, "host", "device_resets"), 0);
	rig_host_quiet(fd_asked);
	close(fd);
	close(fd_asked);
}

static void expect_rebooted(struct vsock_rig *rig, int fd, int fd_asked)
{
	/* What came in before is still delivered; what it wrote itself was lost, and it learns so.
	 */
	rig_idle(rig);
	rig_host_read(fd, 0, 1000);
	rig_host_reset(fd);
	rig_host_eof(fd_asked);
	assert_int_equal(rig_connections(rig), 0);
	assert_int_equal(rig_count(rig, "host", "device_resets"), 1);
	assert_int_equal(rig_count(rig, "ended", "transport_reset"), 2);
	close(fd);
	close(fd_asked);
	if (rig->guest.rings[FAKE_RX].added == 0)
		fake_guest_post(&rig->guest, 100, 4096, &fake_shape_one);
}

static void restart(void **state)
{
	const struct restart_row *row = *state;
	bool reboot = row->blank[0] || row->blank[1];
	struct vsock_rig *rig;
	struct fake_conn c;
	uint16_t base[2];
	int fd, fd_asked;

	rig_setup(state);
	rig = *state;
	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	rig_guest_send(&c, 0, 1000);
	rig_idle(rig);
	for (unsigned i = 0; i < 2; i++) {
		unsigned ring = row->first_stopped ^ i;

		base[ring] = fake_guest_stop(&rig->guest, ring);
		assert_int_not_equal(base[ring], 0);
	}
	/* Bytes of both sides, and a host program's wish, while nothing runs. */
	rig_host_write(rig, fd, 0, 5000);
	if (!row->blank[FAKE_TX])
		rig_guest_send(&c, 1000, 100);
	fd_asked = rig_ask(rig, RIG_PORT);
	for (unsigned i = 0; i < 2; i++) {
		unsigned ring = row->first_started ^ i;

		if (row->blank[ring])
			fake_guest_start_blank(&rig->guest, ring);
		else
			fake_guest_start_at(&rig->guest, ring, base[ring]);
	}
	if (reboot)
		expect_rebooted(rig, fd, fd_asked);
	else
		expect_paused(rig, &c, fd, fd_asked);
	drop_packets(rig);
	expect_new_works(rig, 2000);
	rig_teardown(state);
}

/* Firecracker #5969: a packet that was put onto the ring before it was started is taken. */
static void started_with_packets(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;

	rig_start(rig);
	(void)fake_guest_stop(&rig->guest, FAKE_TX);
	fake_conn_init(&c, &rig->guest, 1000, RIG_PORT);
	fake_conn_control(&c, REQUEST, 0);
	(void)fake_guest_signalled(rig->guest.rings[FAKE_TX].kick);
	fake_guest_start_at(&rig->guest, FAKE_TX, rig->guest.rings[FAKE_TX].base);
	rig_expect(rig, &c, RST);
}

/* Time goes on while the guest is paused. */
static void timeouts_while_paused(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fd, fd_asked;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	(void)fake_guest_stop(&rig->guest, FAKE_RX);
	(void)fake_guest_stop(&rig->guest, FAKE_TX);
	fd_asked = rig_ask(rig, RIG_PORT);
	rig_warp(rig, RF_VSOCK_HANDSHAKE_NS + RF_NS_PER_MS);
	rig_host_eof(fd_asked);
	rig_host_quiet(fd);
	assert_int_equal(rig_connections(rig), 1);
	fake_guest_start_at(&rig->guest, FAKE_RX, rig->guest.rings[FAKE_RX].base);
	fake_guest_start_at(&rig->guest, FAKE_TX, rig->guest.rings[FAKE_TX].base);
	expect_works(rig, &c, fd, 0);
	close(fd);
	close(fd_asked);
}

static void device_reset(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fd;

	rig_start(rig);
	fake_guest_message_u64(&rig->guest, RF_VU_SET_PROTOCOL_FEATURES,
			       UINT64_C(1) << RF_VU_PF_RESET_DEVICE);
	fd = rig_open_from_guest(rig, &c, 1000);
	fake_guest_message(&rig->guest, RF_VU_RESET_DEVICE, "", 0, -1);
	rig_idle(rig);
	rig_host_eof(fd);
	close(fd);
	/* Until it is up again, host programs are turned away. */
	fd = rig_ask(rig, RIG_PORT);
	rig_host_eof(fd);
	close(fd);
	(void)fake_guest_stop(&rig->guest, FAKE_RX);
	(void)fake_guest_stop(&rig->guest, FAKE_TX);
	fake_guest_boot(&rig->guest);
	expect_new_works(rig, 1000);
}

static void memory_table_again(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fd;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	for (uint32_t i = 0; i < 50; i++) {
		rig_guest_send(&c, 1000 * i, 1000);
		fake_guest_share(&rig->guest);
		rig_idle(rig);
		rig_host_read(fd, 1000 * i, 1000);
		rig_host_write(rig, fd, 1000 * i, 1000);
		rig_guest_read(rig, &c, 1000 * i, 1000);
	}
	close(fd);
}

/* Front ends */

static void front_end_comes_and_goes(void **state)
{
	struct vsock_rig *rig = *state;

	rig_serve(rig);
	for (uint32_t i = 1; i <= 5; i++) {
		struct fake_conn c;
		int fd, fd_asked;

		rig_boot(rig);
		expect_new_works(rig, 1000);
		fd = rig_open_from_guest(rig, &c, 1000);
		rig_guest_send(&c, 0, 100);
		rig_idle(rig);
		fake_guest_hangup(&rig->guest);
		rig_idle(rig);
		rig_host_read(fd, 0, 100);
		rig_host_eof(fd);
		close(fd);
		fd_asked = rig_ask(rig, RIG_PORT);
		rig_host_eof(fd_asked);
		close(fd_asked);
		assert_int_equal(rig_count(rig, "host", "refused_no_guest"), i);
		assert_int_equal(rig_count(rig, "host", "front_ends"), i);
		assert_int_equal(rig_connections(rig), 0);
	}
	assert_int_equal(rig_count(rig, "vhost", "vu_sessions_broken"), 0);
}

/* android-cuttlefish PR 3198: who only looks whether the socket is there does no harm. */
static void probes(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_guest probe;
	struct fake_conn c;
	int fd;

	rig_serve(rig);
	fake_guest_init(&probe, rig->loop);
	for (unsigned i = 0; i < 20; i++) {
		fake_guest_connect(&probe, rig->front);
		if (i % 2)
			rig_idle(rig);
		fake_guest_hangup(&probe);
	}
	rig_boot(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	for (uint32_t i = 0; i < 20; i++) {
		fake_guest_connect(&probe, rig->front);
		fake_guest_hangup(&probe);
		expect_works(rig, &c, fd, 100 * i);
	}
	close(fd);
	fake_guest_fini(&probe);
}

static void second_front_end_waits(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_guest *second = &rig->guest;
	struct fake_guest first;
	struct fake_conn c;

	rig_serve(rig);
	fake_guest_init(&first, rig->loop);
	fake_guest_connect(&first, rig->front);
	fake_guest_boot(&first);
	fake_guest_connect(second, rig->front);
	fake_guest_boot(second);
	fake_conn_init(&c, second, 1000, RIG_PORT);
	fake_conn_control(&c, REQUEST, 0);
	rig_expect_none(rig);
	fake_conn_init(&c, &first, 1000, RIG_PORT);
	fake_conn_control(&c, REQUEST, 0);
	rig_expect(rig, &c, RST);
	fake_guest_fini(&first);
	fake_conn_init(&c, second, 1000, RIG_PORT);
	rig_expect(rig, &c, RST);
	expect_new_works(rig, 2000);
}

static void count_left(void *ctx)
{
	(*(unsigned *)ctx)++;
}

static void connected_fd(void **state)
{
	struct vsock_rig *rig = *state;
	unsigned left = 0;
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	rig->options.socket_path = NULL;
	rig->options.socket_fd = fds[0];
	rig->options.left = count_left;
	rig->options.ctx = &left;
	rig_serve(rig);
	fake_guest_attach(&rig->guest, fds[1]);
	fake_guest_boot(&rig->guest);
	expect_new_works(rig, 1000);
	assert_int_equal(left, 0);
	fake_guest_hangup(&rig->guest);
	rig_idle(rig);
	assert_int_equal(left, 1);
}

static void listening_fd(void **state)
{
	struct vsock_rig *rig = *state;
	/* Its file is not ours. */
	int fd = rig_listen(rig, 1, 5);
	char path[100];

	snprintf(path, sizeof(path), "%s_1", rig->uds);
	rig->options.socket_path = NULL;
	rig->options.socket_fd = fd;
	rig_serve(rig);
	for (unsigned i = 0; i < 3; i++) {
		fake_guest_connect(&rig->guest, path);
		fake_guest_boot(&rig->guest);
		expect_new_works(rig, 1000);
		fake_guest_hangup(&rig->guest);
		rig_idle(rig);
	}
	rf_vsock_device_free(rig->device);
	rig->device = NULL;
	assert_int_equal(access(path, F_OK), 0);
}

/* crosvm passes the event queue on, QEMU keeps it (vhost-device #408). */
static void three_rings(void **state)
{
	struct vsock_rig *rig = *state;

	rig->guest.n_rings = 3;
	rig_start(rig);
	expect_new_works(rig, 1000);
	rf_eventfd_signal(rig->guest.rings[FAKE_EVENT].kick);
	rig_idle(rig);
	(void)fake_guest_stop(&rig->guest, FAKE_EVENT);
	expect_new_works(rig, 1000);
}

static void ring_too_large(void **state)
{
	struct vsock_rig *rig = *state;

	rig->options.queue_size = 64;
	rig_serve(rig);
	fake_guest_connect(&rig->guest, rig->front);
	fake_guest_handshake(&rig->guest);
	fake_guest_message_state(&rig->guest, RF_VU_SET_VRING_NUM, 0, 64);
	rig_idle(rig);
	assert_int_equal(rig_count(rig, "vhost", "vu_sessions_broken"), 0);
	fake_guest_message_state(&rig->guest, RF_VU_SET_VRING_NUM, 0, 128);
	rig_idle(rig);
	assert_int_equal(rig_count(rig, "vhost", "vu_sessions_broken"), 1);
	fake_guest_hangup(&rig->guest);
	rig->guest.num = 64;
	fake_guest_fini(&rig->guest);
	fake_guest_init(&rig->guest, rig->loop);
	rig->guest.num = 64;
	rig_boot(rig);
	expect_new_works(rig, 1000);
}

static void config_space(void **state)
{
	struct vsock_rig *rig = *state;
	struct {
		uint32_t offset, size, flags;
		uint8_t data[8];
	} config = { .size = 8 };
	struct {
		struct rf_vu_hdr hdr;
		uint32_t offset, size, flags;
		uint8_t data[8];
	} reply;

	static_assert(sizeof(reply) == 32, "as on the wire");
	rig->options.guest_cid = 0xfffffffe;
	rig_serve(rig);
	fake_guest_connect(&rig->guest, rig->front);
	fake_guest_message_u64(&rig->guest, RF_VU_SET_PROTOCOL_FEATURES,
			       UINT64_C(1) << RF_VU_PF_CONFIG);
	fake_guest_message(&rig->guest, RF_VU_GET_CONFIG, &config, sizeof(config), -1);
	rig_idle(rig);
	assert_int_equal(recv(rig->guest.sock, &reply, sizeof(reply), MSG_DONTWAIT), sizeof(reply));
	assert_int_equal(reply.size, 8);
	assert_memory_equal(reply.data, "\xfe\xff\xff\xff\0\0\0\0", 8);
	config.offset = config.size = 4;
	fake_guest_message(&rig->guest, RF_VU_GET_CONFIG, &config, sizeof(config) - 4, -1);
	rig_idle(rig);
	assert_int_equal(recv(rig->guest.sock, &reply, sizeof(reply), MSG_DONTWAIT),
			 sizeof(reply) - 4);
	assert_memory_equal(reply.data, "\0\0\0\0", 4);
}

/* Guests that break */

/* A bad ring is given up alone: told on its descriptor, healed by a restart, connections kept. */
static void broken_ring(struct vsock_rig *rig, unsigned ring)
{
	uint16_t *avail;
	struct fake_conn c;
	int fd;

	rig_start(rig);
	avail = fake_guest_avail(&rig->guest, ring);
	fd = rig_open_from_guest(rig, &c, 1000);
	expect_works(rig, &c, fd, 0);
	*avail = (uint16_t)(*avail + 1000);
	rf_eventfd_signal(rig->guest.rings[ring].kick);
	rig_host_write(rig, fd, 100, 200000);
	rig_idle(rig);
	assert_int_equal(rig_count(rig, "vhost", "vu_rings_broken"), 1);
	assert_int_equal(rig_count(rig, "vhost", "vu_sessions_broken"), 0);
	assert_true(fake_guest_signalled(rig->guest.rings[ring].err));
	assert_false(fake_guest_signalled(rig->guest.rings[!ring].err));
	rf_eventfd_signal(rig->guest.rings[ring].kick);
	rig_idle(rig);
	assert_int_equal(rig_count(rig, "vhost", "vu_rings_broken"), 1);
	*avail = (uint16_t)(*avail - 1000);
	fake_guest_start_at(&rig->guest, ring, fake_guest_stop(&rig->guest, ring));
	rig_guest_read(rig, &c, 100, 200000);
	fake_conn_control(&c, CREDIT_UPDATE, 0);
	rig_guest_send(&c, 100, 100);
	rig_idle(rig);
	rig_host_read(fd, 100, 100);
	assert_int_equal(rig_count(rig, "host", "device_resets"), 0);
	close(fd);
}

static void broken_transmit_ring(void **state)
{
	broken_ring(*state, FAKE_TX);
}

static void broken_receive_ring(void **state)
{
	broken_ring(*state, FAKE_RX);
}

/* A new guest after one whose memory is gone. */
static void replace_guest(struct vsock_rig *rig)
{
	fake_guest_fini(&rig->guest);
	fake_guest_init(&rig->guest, rig->loop);
	rig_boot(rig);
	expect_new_works(rig, 1000);
}

static void truncate_memory(struct vsock_rig *rig, off_t bytes)
{
	assert_int_equal(ftruncate(rig->guest.memfd, bytes), 0);
}

static void expect_session_over(struct vsock_rig *rig)
{
	fake_loop_idle(rig->loop);
	fake_loop_idle(rig->loop);
	assert_int_equal(rig_count(rig, "vhost", "vu_sessions_broken"), 1);
	assert_int_equal(rig_connections(rig), 0);
	assert_non_null(strstr(rig->text, "guest memory vanished"));
}

/* DPDK 22.11 dies of this with SIGBUS. */
static void rings_vanish(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fd;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	truncate_memory(rig, 0);
	rf_eventfd_signal(rig->guest.rings[FAKE_TX].kick);
	expect_session_over(rig);
	rig_host_eof(fd);
	close(fd);
	replace_guest(rig);
}

/* The header is there, the payload is not: sendmsg() fails with EFAULT. */
static void transmit_buffer_vanishes(void **state)
{
	static const struct fake_shape shape = { .lead = FAKE_BORDER - 44, .cuts = { 44 } };
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	uint8_t data[5000] = { 0 };
	int fd;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	fake_conn_put(&c, data, sizeof(data), &shape);
	fake_guest_kick(&rig->guest, FAKE_TX);
	truncate_memory(rig, fake_guest_first_slot(&rig->guest, FAKE_TX) + FAKE_BORDER);
	expect_session_over(rig);
	rig_host_eof(fd);
	close(fd);
	replace_guest(rig);
}

/* Part of the payload was passed on; in place of the rest the host program gets no zeros. */
static void transmit_buffer_vanishes_in_the_middle(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	uint8_t buf[65536];
	ssize_t n, got = 0;
	int fd;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	rig_guest_send(&c, 0, 65536);
	truncate_memory(rig, fake_guest_first_slot(&rig->guest, FAKE_TX) + 0xc000);
	expect_session_over(rig);
	while ((n = read(fd, buf, sizeof(buf))) > 0) {
		rig_check(buf, (size_t)n, (uint64_t)got);
		got += n;
	}
	assert_int_equal(n, 0);
	assert_true(got < 0xc000);
	close(fd);
	replace_guest(rig);
}

/* recvmsg() fails with EFAULT. */
static void receive_buffer_vanishes(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fd;

	rig->guest.rx_shape = (struct fake_shape){ .lead = FAKE_BORDER - 44, .cuts = { 44 } };
	rig->guest.num = 2;
	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	truncate_memory(rig, fake_guest_first_slot(&rig->guest, FAKE_RX) + FAKE_BORDER);
	rig_host_write(rig, fd, 0, 1000);
	expect_session_over(rig);
	rig_host_reset(fd);
	close(fd);
	replace_guest(rig);
}

/* A header is written into nothing: SIGBUS. */
static void receive_header_vanishes(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fd;

	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, 1000);
	truncate_memory(rig, fake_guest_first_slot(&rig->guest, FAKE_RX));
	close(fd);
	expect_session_over(rig);
	replace_guest(rig);
}

static unsigned count_lines(const char *text, const char *what)
{
	unsigned n = 0;

	for (const char *p = text; (p = strstr(p, what)); p++)
		n++;
	return n;
}

/* memory-backend-file or memfd without share=on: the driver writes into a copy of its own. */
static void private_memory(void **state)
{
	struct vsock_rig *rig = *state;
	int fd = memfd_create("not-shared", MFD_CLOEXEC);

	assert_int_equal(ftruncate(fd, 1 << 30), 0);
	rig->guest.shared_fd = fd;
	rig_start(rig);
	assert_null(strstr(rig->text, "share=on"));
	rf_eventfd_signal(rig->guest.rings[FAKE_RX].kick);
	rig_warp(rig, 2 * RF_NS_PER_SEC);
	assert_int_equal(count_lines(rig->text, "share=on"), 1);
	rig_warp(rig, 3600 * RF_NS_PER_SEC);
	assert_int_equal(count_lines(rig->text, "share=on"), 1);
	close(fd);
}

/* A driver that has not begun yet is no reason for alarm, whatever another did before. */
static void driver_not_there_yet(void **state)
{
	struct vsock_rig *rig = *state;

	rig_start(rig);
	expect_new_works(rig, 1000);
	fake_guest_hangup(&rig->guest);
	rig_idle(rig);
	fake_guest_connect(&rig->guest, rig->front);
	fake_guest_handshake(&rig->guest);
	fake_guest_start_blank(&rig->guest, FAKE_RX);
	fake_guest_start_blank(&rig->guest, FAKE_TX);
	rig_warp(rig, 5 * RF_NS_PER_SEC);
	assert_null(strstr(rig->text, "share=on"));
}

/* Limits */

static void guest_connections_are_limited(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c[5], more;
	int fds[5], fd;

	rig->options.max_conns = 5;
	rig_start(rig);
	for (uint32_t i = 0; i < 5; i++)
		fds[i] = rig_open_from_guest(rig, &c[i], 1000 + i);
	fake_conn_init(&more, &rig->guest, 1005, RIG_PORT);
	fake_conn_control(&more, REQUEST, 0);
	rig_expect(rig, &more, RST);
	assert_int_equal(rig_count(rig, "host", "refused_limit"), 1);
	fd = rig_ask(rig, RIG_PORT);
	rig_host_reset(fd);
	close(fd);
	close(fds[0]);
	rig_expect(rig, &c[0], SHUTDOWN);
	fake_conn_control(&c[0], RST, 0);
	rig_idle(rig);
	expect_new_works(rig, 1006);
	for (unsigned i = 1; i < 5; i++)
		close(fds[i]);
}

/* Host programs that have not said what they want count as well. */
static void silent_programs_are_limited(void **state)
{
	struct vsock_rig *rig = *state;
	struct fake_conn c;
	int fds[5], fd;

	rig->options.max_conns = 5;
	rig_start(rig);
	for (unsigned i = 0; i < 5; i++)
		fds[i] = rig_connect(rig);
	rig_idle(rig);
	fd = rig_connect(rig);
	rig_idle(rig);
	rig_host_eof(fd);
	close(fd);
	fake_conn_init(&c, &rig->guest, 1000, RIG_PORT);
	fake_conn_control(&c, REQUEST, 0);
	rig_expect(rig, &c, RST);
	assert_int_equal(rig_count(rig, "host", "refused_limit"), 1);
	rig_warp(rig, RF_HOST_LINE_NS + RF_NS_PER_MS);
	for (unsigned i = 0; i < 5; i++) {
		rig_host_eof(fds[i]);
		close(fds[i]);
	}
	expect_new_works(rig, 1001);
}

static void many_connections(void **state)
{
	static struct fake_conn c[RF_HOST_MAX_CONNS];
	static int fds[RF_HOST_MAX_CONNS];
	struct vsock_rig *rig = *state;
	struct fake_conn more;

	/* Both ends are in this process. */
	if (rf_fd_raise_limit(2 * RF_HOST_MAX_CONNS + 200) < 2 * RF_HOST_MAX_CONNS + 200)
		skip();
	rig_start(rig);
	for (uint32_t i = 0; i < RF_HOST_MAX_CONNS; i++)
		fds[i] = i % 2 ? rig_open_from_guest(rig, &c[i], 10000 + i)
			       : rig_open_from_host(rig, &c[i]);
	assert_int_equal(rig_connections(rig), RF_HOST_MAX_CONNS);
	fake_conn_init(&more, &rig->guest, 1, RIG_PORT);
	fake_conn_control(&more, REQUEST, 0);
	rig_expect(rig, &more, RST);
	for (uint32_t i = 0; i < RF_HOST_MAX_CONNS; i++)
		expect_works(rig, &c[i], fds[i], i);
	for (uint32_t i = 0; i < RF_HOST_MAX_CONNS; i++) {
		close(fds[i]);
		rig_expect(rig, &c[i], SHUTDOWN);
		fake_conn_control(&c[i], RST, 0);
	}
	rig_idle(rig);
	assert_int_equal(rig_connections(rig), 0);
}

/* libkrun #116, lima #5329: descriptors are back where they were after many connections of all
 * kinds. Memory is the sanitizer's to tell. */
static void nothing_is_left(void **state)
{
	struct vsock_rig *rig = *state;
	unsigned fds;

	rig_start(rig);
	fds = rig_open_fds();
	for (uint32_t i = 0; i < 500; i++) {
		struct fake_packet packet;
		struct fake_conn c;
		int fd;

		expect_new_works(rig, 1000);
		fake_conn_init(&c, &rig->guest, 1000, 99);
		fake_conn_control(&c, REQUEST, 0);
		rig_expect(rig, &c, RST);
		fd = rig_ask(rig, 77);
		assert_true(fake_guest_recv(&rig->guest, &packet, NULL));
		fake_conn_init(&c, &rig->guest, 77, packet.hdr.src_port);
		fake_conn_control(&c, RST, 0);
		rig_idle(rig);
		close(fd);
		assert_int_equal(rig_open_fds(), fds);
	}
	assert_int_equal(rig_connections(rig), 0);
	assert_int_equal(rig_count(rig, "ended", "closed"), 1000);
}

/* Freed with connections in every state. */
static void freed_in_the_middle(void **state)
{
	struct vsock_rig *rig = *state;
	int fds[5], full;
	struct fake_conn c;

	rig_start(rig);
	full = rig_listen(rig, RIG_PORT + 1, 0);
	fds[0] = rig_open_from_guest(rig, &c, 1000);
	for (unsigned i = 0; i < 4; i++)
		rig_guest_send(&c, 0, 65536);
	rig_skip_updates(rig, &c);
	fds[1] = rig_open_from_host(rig, &c);
	fds[2] = rig_connect(rig);
	fds[3] = rig_ask(rig, RIG_PORT);
	for (uint32_t i = 0; i < 3; i++) {
		fake_conn_init(&c, &rig->guest, 2000 + i, RIG_PORT + 1);
		fake_conn_control(&c, REQUEST, 0);
	}
	drop_packets(rig);
	fds[4] = rig_open_from_guest(rig, &c, 1001);
	rig_host_write(rig, fds[4], 0, 1000);
	close(fds[4]);
	rf_vsock_device_free(rig->device);
	rig->device = NULL;
	for (unsigned i = 2; i < 4; i++)
		rig_host_eof(fds[i]);
	for (unsigned i = 0; i < 4; i++)
		close(fds[i]);
	close(full);
}

/* Options */

static void options_refused(void **state)
{
	struct vsock_rig *rig = *state;
	struct rf_vsock_device_options good = rig->options, bad[10];
	unsigned n = 0;
	int fds[2];

	bad[n] = good, bad[n++].guest_cid = 2;
	bad[n] = good, bad[n++].guest_cid = UINT32_MAX;
	bad[n] = good, bad[n++].guest_cid = UINT64_C(1) << 32;
	bad[n] = good, bad[n++].plug_path = NULL;
	bad[n] = good, bad[n++].max_conns = 0;
	bad[n] = good, bad[n++].socket_path = NULL;
	bad[n] = good, bad[n++].window = RF_VSOCK_WINDOW_MIN - 1;
	bad[n] = good, bad[n++].window = RF_VSOCK_WINDOW_MAX + 1;
	bad[n] = good, bad[n++].queue_size = 1;
	bad[n] = good, bad[n++].queue_size = RF_VSOCK_QUEUE_MAX + 1;
	for (unsigned i = 0; i < n; i++) {
		struct rf_vsock_device *device;

		/* Taken over, also on failure. */
		if (bad[i].socket_path) {
			assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
			bad[i].socket_path = NULL;
			bad[i].socket_fd = fds[0];
			close(fds[1]);
		}
		assert_int_equal(rf_vsock_device_new(rig->loop, &bad[i], &device), -EINVAL);
		assert_int_equal(rig_open_fds(), rig->n_fds + 2);
	}
}

/* What cannot be opened is told in one line, and the descriptor is closed all the same. */
static void cannot_be_opened(void **state)
{
	struct vsock_rig *rig = *state;
	struct rf_vsock_device_options options = rig->options;
	struct rf_vsock_device *device;
	unsigned fds = rig_open_fds();

	options.socket_path = NULL;
	options.socket_fd = memfd_create("no-socket", MFD_CLOEXEC);
	assert_int_equal(rf_vsock_device_new(rig->loop, &options, &device), -ENOTSOCK);
	assert_int_equal(rig_open_fds(), fds);
	assert_int_equal(count_lines(rig->text, "\n"), 1);

	rig->text[0] = '\0';
	options = rig->options;
	options.socket_path = "/proc/no/such/directory";
	assert_int_equal(rf_vsock_device_new(rig->loop, &options, &device), -ENOENT);
	assert_int_equal(count_lines(rig->text, "\n"), 1);
	assert_int_equal(rig_open_fds(), fds);

	rig->text[0] = '\0';
	options = rig->options;
	options.plug_path = rig->front;
	assert_int_equal(rf_vsock_device_new(rig->loop, &options, &device), -EADDRINUSE);
	assert_int_equal(count_lines(rig->text, "\n"), 1);
	assert_int_equal(rig_open_fds(), fds);
}

/* All at once */

#define TORTURE_CONNS 8

struct stream_model {
	struct fake_conn c;
	int fd;
	uint32_t guest_sent, host_read, host_sent;
};

static void torture_host(struct vsock_rig *rig, struct stream_model *s, uint64_t *seed)
{
	uint8_t buf[20000];
	size_t want = 1 + prng_below(seed, sizeof(buf));
	ssize_t n;

	if (prng_below(seed, 2)) {
		n = read(s->fd, buf, want);
		if (n > 0) {
			rig_check(buf, (size_t)n, s->host_read);
			s->host_read += (uint32_t)n;
		}
		return;
	}
	rig_fill(buf, want, s->host_sent);
	n = send(s->fd, buf, want, MSG_NOSIGNAL);
	if (n > 0)
		s->host_sent += (uint32_t)n;
	(void)rig;
}

static void torture_guest_send(struct stream_model *s, uint64_t *seed)
{
	const struct fake_shape *shape = &fake_shapes[prng_below(seed, fake_n_shapes)];
	uint8_t buf[5000];
	uint32_t bytes = 1 + prng_below(seed, sizeof(buf));

	if (fake_conn_space(&s->c) < bytes || fake_guest_unsent(s->c.guest) > 8)
		return;
	rig_fill(buf, bytes, s->guest_sent);
	fake_conn_put(&s->c, buf, bytes, shape);
	s->guest_sent += bytes;
	if (prng_below(seed, 2))
		fake_guest_kick(s->c.guest, FAKE_TX);
}

static void torture_guest_receive(struct vsock_rig *rig, struct stream_model *streams)
{
	struct fake_packet packet;
	struct stream_model *s;

	while (fake_guest_recv(&rig->guest, &packet, NULL)) {
		assert_in_range(packet.hdr.dst_port, 1000, 1000 + TORTURE_CONNS - 1);
		s = &streams[packet.hdr.dst_port - 1000];
		s->c.peer_buf_alloc = packet.hdr.buf_alloc;
		s->c.peer_fwd_cnt = packet.hdr.fwd_cnt;
		if (packet.hdr.op == CREDIT_UPDATE)
			continue;
		assert_int_equal(packet.hdr.op, RW);
		rig_check(packet.data, packet.hdr.len, s->c.rx_cnt);
		s->c.rx_cnt += packet.hdr.len;
		assert_true(s->c.rx_cnt - s->c.fwd_cnt <= s->c.buf_alloc);
	}
}

static void torture_pause(struct vsock_rig *rig, uint64_t *seed)
{
	unsigned first = prng_below(seed, 2), then = prng_below(seed, 2);

	(void)fake_guest_stop(&rig->guest, first);
	(void)fake_guest_stop(&rig->guest, !first);
	fake_guest_start_at(&rig->guest, then, rig->guest.rings[then].base);
	fake_guest_start_at(&rig->guest, !then, rig->guest.rings[!then].base);
}

static void torture_finish(struct vsock_rig *rig, struct stream_model *streams)
{
	bool done = false;

	while (!done) {
		done = true;
		rig_idle(rig);
		torture_guest_receive(rig, streams);
		for (unsigned i = 0; i < TORTURE_CONNS; i++) {
			struct stream_model *s = &streams[i];
			uint8_t buf[65536];
			ssize_t n = read(s->fd, buf, sizeof(buf));

			if (n > 0) {
				rig_check(buf, (size_t)n, s->host_read);
				s->host_read += (uint32_t)n;
			}
			if (s->c.fwd_cnt != s->c.rx_cnt) {
				s->c.fwd_cnt = s->c.rx_cnt;
				fake_conn_control(&s->c, CREDIT_UPDATE, 0);
			}
			done = done && s->host_read == s->guest_sent && s->host_sent == s->c.rx_cnt;
		}
	}
}

static void torture(void **state)
{
	static struct stream_model streams[TORTURE_CONNS];
	struct vsock_rig *rig = *state;
	uint64_t seed = 20240607;

	rig->guest.num = 64;
	rig->guest.rx_bytes = 700;
	rig->options.window = 50000;
	rig_start(rig);
	for (uint32_t i = 0; i < TORTURE_CONNS; i++) {
		struct stream_model *s = &streams[i];

		*s = (struct stream_model){ .fd = -1 };
		s->fd = rig_open_from_guest(rig, &s->c, 1000 + i);
		s->c.buf_alloc = 3000 * (i + 1);
		fake_conn_control(&s->c, CREDIT_UPDATE, 0);
	}
	for (unsigned step = 0; step < 30000; step++) {
		struct stream_model *s = &streams[prng_below(&seed, TORTURE_CONNS)];

		switch (prng_below(&seed, 8)) {
		case 0:
		case 1:
			torture_host(rig, s, &seed);
			break;
		case 2:
		case 3:
			torture_guest_send(s, &seed);
			break;
		case 4:
			s->c.fwd_cnt += prng_below(&seed, s->c.rx_cnt - s->c.fwd_cnt + 1);
			fake_conn_control(&s->c, CREDIT_UPDATE, 0);
			break;
		case 5:
			torture_guest_receive(rig, streams);
			break;
		case 6:
			assert_int_equal(rf_loop_turn(rig->loop, 0), 0);
			break;
		default:
			rig_idle(rig);
			if (prng_below(&seed, 50) == 0)
				torture_pause(rig, &seed);
			break;
		}
	}
	torture_finish(rig, streams);
	assert_int_equal(rig_connections(rig), TORTURE_CONNS);
	assert_true(streams[0].guest_sent > 1000000 && streams[0].host_sent > 100000);
	for (unsigned i = 0; i < TORTURE_CONNS; i++)
		close(streams[i].fd);
}

#define TEST(name)                                         \
	{                                                  \
#name, name, rig_setup, rig_teardown, NULL \
	}

static const struct CMUnitTest tests[] = {
	TEST(started_with_packets),
	TEST(timeouts_while_paused),
	TEST(device_reset),
	TEST(memory_table_again),
	TEST(front_end_comes_and_goes),
	TEST(probes),
	TEST(second_front_end_waits),
	TEST(connected_fd),
	TEST(listening_fd),
	TEST(three_rings),
	TEST(ring_too_large),
	TEST(config_space),
	TEST(broken_transmit_ring),
	TEST(broken_receive_ring),
	TEST(rings_vanish),
	TEST(transmit_buffer_vanishes),
	TEST(transmit_buffer_vanishes_in_the_middle),
	TEST(receive_buffer_vanishes),
	TEST(receive_header_vanishes),
	TEST(private_memory),
	TEST(driver_not_there_yet),
	TEST(guest_connections_are_limited),
	TEST(silent_programs_are_limited),
	TEST(many_connections),
	TEST(nothing_is_left),
	TEST(freed_in_the_middle),
	TEST(options_refused),
	TEST(cannot_be_opened),
	TEST(torture),
};

int main(void)
{
	struct CMUnitTest all[RF_ARRAY_SIZE(tests) + RF_ARRAY_SIZE(restart_rows)];
	size_t n = 0;

	for (size_t i = 0; i < RF_ARRAY_SIZE(restart_rows); i++)
		all[n++] = (struct CMUnitTest){ restart_rows[i].name, restart, NULL, NULL,
						(void *)(uintptr_t)&restart_rows[i] };
	for (size_t i = 0; i < RF_ARRAY_SIZE(tests); i++)
		all[n++] = tests[i];
	return _cmocka_run_group_tests("vsock-device", all, n, NULL, NULL);
}
