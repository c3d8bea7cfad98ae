/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The Nth system call and the Nth allocation of the host half fail, once and for ever, while a
 * device is opened, a guest comes up, connections are made by either side, carry bytes both ways,
 * end, and all is closed. After each: nothing has leaked, both ends of each connection have heard
 * of its end unless it came through whole, other connections go on, and new ones can be made.
 *
 * All of the first 200 points of a scenario are tried, and a sample of the others; all of them if
 * RF_FAULTLOOP_FULL is set.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "fault_loop.h"
#include "vhost/message.h"
#include "vsock_rig.h"

#define FROM_GUEST_BYTES 40000u
#define FROM_HOST_BYTES  20000u
#define CHUNK_BYTES      8000u

#define TALK_PORT      2000u
#define NEIGHBOUR_PORT 3000u

/* Steps without progress after which time is set forward; seconds after which nothing comes. */
#define PATIENCE     3
#define LONG_SECONDS 30

/* A loop has room for 16 timers at first; two are the listeners'. */
#define FILL_TIMERS 14

/* Where memory is plugged in, in both address spaces. */
#define HOTPLUG_AT    (UINT64_C(1) << 40)
#define HOTPLUG_BYTES (UINT64_C(1) << 16)

/**
 * struct talk - A connection as its two programs see it, through all that may happen to it
 * @c:		The guest's end
 * @listener, @fd: The host program's
 * @up:		The guest may send
 * @asked:	The guest knows of it
 * @ok:		The OK line was read, or none comes
 * @g_sent, @g_got, @h_sent, @h_got: Bytes of the guest and of the host program
 * @g_shut:	SHUTDOWN flags that came to the guest
 * @g_said:	SHUTDOWN flags that it sent
 * @g_rst:	RST came to the guest
 * @h_eof:	The host program has read to the end, in good order or not
 * @h_said:	It sends no more
 */
struct talk {
	struct vsock_rig *rig;
	struct fake_conn c;
	int listener, fd;
	bool from_guest, up, asked, ok;
	uint32_t g_sent, g_got, h_sent, h_got;
	uint32_t g_shut, g_said;
	bool g_rst, h_eof, h_said;
};

static void talk_guest_shutdown(struct talk *t, uint32_t flags)
{
	if (t->g_rst || (t->g_said & flags) == flags)
		return;
	t->g_said |= flags;
	fake_conn_control(&t->c, SHUTDOWN, t->g_said);
}

/* Bytes that are missing when the peer says that there are no more were lost in silence. */
static void talk_shut_down(struct talk *t, const struct rf_vsock_hdr *hdr)
{
	if (hdr->flags & RF_VSOCK_SHUT_SEND && t->g_got != t->h_sent &&
	    !(t->g_said & RF_VSOCK_SHUT_RCV))
		FAULT_FAIL("%u of %u bytes came before an orderly end", t->g_got, t->h_sent);
	t->g_shut |= hdr->flags;
	if (t->g_shut == RF_VSOCK_SHUT_BOTH && !t->g_rst) {
		fake_conn_control(&t->c, RST, 0);
		t->g_rst = true;
	} else if (t->g_shut & RF_VSOCK_SHUT_RCV) {
		talk_guest_shutdown(t, RF_VSOCK_SHUT_BOTH);
	}
}

static void talk_packet(struct talk *t, const struct fake_packet *packet)
{
	const struct rf_vsock_hdr *hdr = &packet->hdr;

	t->c.peer_buf_alloc = hdr->buf_alloc;
	t->c.peer_fwd_cnt = hdr->fwd_cnt;
	switch (hdr->op) {
	case RESPONSE:
		t->up = true;
		break;
	case REQUEST:
		t->asked = t->up = true;
		fake_conn_control(&t->c, RESPONSE, 0);
		break;
	case RW:
		rig_check(packet->data, hdr->len, t->g_got);
		t->g_got += hdr->len;
		t->c.rx_cnt += hdr->len;
		t->c.fwd_cnt += hdr->len;
		fake_conn_control(&t->c, CREDIT_UPDATE, 0);
		break;
	case SHUTDOWN:
		talk_shut_down(t, hdr);
		break;
	case RST:
		t->g_rst = true;
		break;
	default:
		break;
	}
}

static bool talk_guest_recv(struct talk *t)
{
	struct fake_packet packet;
	bool any = false;

	while (fake_guest_recv(&t->rig->guest, &packet, NULL)) {
		any = true;
		if (packet.hdr.dst_port != t->c.port || t->g_rst)
			continue;
		if (packet.hdr.op == REQUEST)
			t->c.host_port = packet.hdr.src_port;
		talk_packet(t, &packet);
		rig_idle(t->rig);
	}
	return any;
}

static bool talk_guest_send(struct talk *t)
{
	if (!t->up || t->g_rst || t->g_said & RF_VSOCK_SHUT_SEND)
		return false;
	if (t->g_sent == FROM_GUEST_BYTES) {
		talk_guest_shutdown(t, RF_VSOCK_SHUT_SEND);
		return true;
	}
	if (fake_conn_space(&t->c) < CHUNK_BYTES)
		return false;
	rig_guest_send(&t->c, t->g_sent, CHUNK_BYTES);
	t->g_sent += CHUNK_BYTES;
	return true;
}

static bool talk_host_read(struct talk *t)
{
	uint8_t buf[16384];
	ssize_t n;

	if (t->h_eof)
		return false;
	if (!t->ok) {
		n = recv(t->fd, buf, strlen("OK 2000\n"), MSG_DONTWAIT);
		t->ok = n > 0;
	} else {
		n = recv(t->fd, buf, sizeof(buf), MSG_DONTWAIT);
		if (n > 0) {
			rig_check(buf, (size_t)n, t->h_got);
			t->h_got += (uint32_t)n;
		}
	}
	if (n == 0 || (n < 0 && errno != EAGAIN))
		t->h_eof = true;
	return n >= 0 || t->h_eof;
}

static bool talk_host_write(struct talk *t)
{
	uint8_t buf[CHUNK_BYTES];
	ssize_t n;

	if (t->h_said || (!t->from_guest && !t->ok))
		return false;
	if (t->h_sent == FROM_HOST_BYTES) {
		t->h_said = true;
		return shutdown(t->fd, SHUT_WR) == 0;
	}
	rig_fill(buf, sizeof(buf), t->h_sent);
	n = send(t->fd, buf, rf_min_size(sizeof(buf), FROM_HOST_BYTES - t->h_sent),
		 MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n > 0)
		t->h_sent += (uint32_t)n;
	else if (errno != EAGAIN)
		t->h_said = true;
	return n > 0;
}

static bool talk_host(struct talk *t)
{
	bool any;

	if (t->fd < 0 && t->listener >= 0)
		t->fd = accept4(t->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (t->fd < 0)
		return false;
	any = talk_host_write(t);
	/* Late, so that the device has to keep something. */
	if (t->g_sent >= 3 * CHUNK_BYTES || !t->ok || t->g_rst || t->g_shut)
		any |= talk_host_read(t);
	/* A program that is told the end before all it wanted gives up. */
	if (t->h_eof && t->h_got != FROM_GUEST_BYTES)
		t->fd = rf_fd_close(t->fd);
	return any;
}

static bool talk_complete(const struct talk *t)
{
	return t->h_got == FROM_GUEST_BYTES && t->g_got == FROM_HOST_BYTES && t->h_eof &&
	       (t->g_shut & RF_VSOCK_SHUT_SEND || t->g_rst);
}

/* Have both programs heard of the end? */
static bool talk_over(const struct talk *t)
{
	bool guest = t->g_rst || (!t->from_guest && !t->asked);

	return guest && (t->fd < 0 || t->h_eof);
}

/* Go on until it is over or nothing moves any more, however long one waits. */
static void talk_run(struct talk *t)
{
	unsigned quiet = 0, seconds = 0;

	while (!talk_complete(t) && !talk_over(t) && seconds < LONG_SECONDS) {
		bool any = talk_guest_recv(t);

		any |= talk_guest_send(t);
		rig_idle(t->rig);
		any |= talk_host(t);
		rig_idle(t->rig);
		quiet = any ? 0 : quiet + 1;
		if (quiet < PATIENCE)
			continue;
		seconds++;
		rig_warp(t->rig, RF_NS_PER_SEC);
	}
}

static void talk_begin(struct talk *t, struct vsock_rig *rig, bool from_guest, uint32_t port)
{
	*t = (struct talk){ .rig = rig, .from_guest = from_guest, .listener = -1, .fd = -1 };
	fake_conn_init(&t->c, &rig->guest, from_guest ? port : TALK_PORT, RIG_PORT);
	if (from_guest) {
		t->listener = rig_listen(rig, RIG_PORT, 1);
		t->asked = t->ok = true;
		fake_conn_control(&t->c, REQUEST, 0);
	} else {
		t->fd = rig_connect(rig);
		(void)!send(t->fd, "CONNECT 2000\n", 13, MSG_NOSIGNAL);
	}
	rig_idle(rig);
}

/* With faults until nothing moves, then without: it must be over for both. */
static void talk_end(struct talk *t)
{
	talk_run(t);
	if (fault_hit()) {
		(void)fault_end();
		talk_run(t);
	}
	if (!talk_complete(t) && (fault_harmless() || !talk_over(t)))
		FAULT_FAIL("a connection of the %s did not end well: guest sent %u "
			   "got %u shut "
			   "%x rst %d, host program sent %u got %u end %d",
			   t->from_guest ? "guest" : "host", t->g_sent, t->g_got, t->g_shut,
			   t->g_rst, t->h_sent, t->h_got, t->h_eof);
	rf_fd_close(t->listener);
	rf_fd_close(t->fd);
	rig_idle(t->rig);
	(void)talk_guest_recv(t);
	rig_warp(t->rig, LONG_SECONDS * RF_NS_PER_SEC);
	rig_drop_packets(t->rig);
}

static void talk(struct vsock_rig *rig, bool from_guest)
{
	struct talk t;

	talk_begin(&t, rig, from_guest, TALK_PORT);
	talk_end(&t);
}

/* Only a file that it was not allowed to look at or to remove may be left. */
static void forgive_files(const struct vsock_rig *rig, bool closed)
{
	if (!strstr(fault_text(), "unlink") && !strstr(fault_text(), "all later") &&
	    !(closed && strstr(fault_text(), "lstat64")))
		return;
	unlink(rig->front);
	unlink(rig->uds);
}

/* A rig around a scenario. */
static void with_rig(void (*run)(struct vsock_rig *rig))
{
	struct vsock_rig *rig;
	void *state;

	assert_int_equal(rig_setup(&state), 0);
	rig = state;
	run(rig);
	fault_enter();
	rf_vsock_device_free(rig->device);
	fault_leave();
	(void)fault_end();
	rig->device = NULL;
	forgive_files(rig, true);
	rig_teardown(&state);
}

/* Does the front end still have its session? */
static bool is_up(const struct vsock_rig *rig)
{
	char c;

	return rig->guest.sock >= 0 && recv(rig->guest.sock, &c, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
	       errno == EAGAIN;
}

/* The system has recovered: so must the device, by itself. */
static void recovered(struct vsock_rig *rig)
{
	fake_guest_hangup(&rig->guest);
	rig_warp(rig, LONG_SECONDS * RF_NS_PER_SEC);
	assert_int_equal(rig_connections(rig), 0);
	rig_boot(rig);
	rig_new_works(rig, 1000);
}

static void open_device(struct vsock_rig *rig)
{
	int r = FAULT_RUN(rf_vsock_device_new(rig->loop, &rig->options, &rig->device));

	if (r == 0)
		return;
	if (!fault_end() || r > -1 || r < -4095 || rig->device)
		FAULT_FAIL("opening returned %d", r);
	forgive_files(rig, false);
	if (access(rig->front, F_OK) == 0 || access(rig->uds, F_OK) == 0)
		FAULT_FAIL("a socket file is left");
	rig_serve(rig);
}

/* A device's whole life. */
static void life_in(struct vsock_rig *rig)
{
	rig->options.socket_mode = rig->options.plug_mode = 0600;
	rig->options.plug_uid = getuid();
	open_device(rig);
	FAULT_TRY(rig_boot(rig));
	if (is_up(rig))
		talk(rig, true);
	if (is_up(rig))
		talk(rig, false);
	if (fault_hit()) {
		(void)fault_end();
		recovered(rig);
	}
	fake_guest_hangup(&rig->guest);
	rig_idle(rig);
}

/* Connections next to one that has nothing to do with it. */
static void neighbour_in(struct vsock_rig *rig)
{
	struct fake_conn c;
	int fd;

	fault_pause(true);
	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, NEIGHBOUR_PORT);
	fault_pause(false);
	talk(rig, true);
	talk(rig, false);
	if (fault_hit()) {
		(void)fault_end();
		assert_int_equal(rig_connections(rig), 1);
		rig_works(rig, &c, fd, 0);
		rig_new_works(rig, 1000);
	}
	close(fd);
}

/* The region number @i, of memory that is there already. */
static void plug_region(struct vsock_rig *rig, uint32_t request, unsigned i)
{
	const struct rf_vu_mem_single single = {
		.region = {
			.gpa = HOTPLUG_AT + i * HOTPLUG_BYTES,
			.size = HOTPLUG_BYTES,
			.uva = HOTPLUG_AT + i * HOTPLUG_BYTES,
			.mmap_offset = 0,
		},
	};

	fake_guest_message(&rig->guest, request, &single, sizeof(single), rig->guest.memfd);
	rig_idle(rig);
}

/* Memory that comes, goes and is replaced under a connection. */
static void plugging_in(struct vsock_rig *rig)
{
	struct fake_conn c;
	int fd;

	fault_pause(true);
	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, NEIGHBOUR_PORT);
	fault_pause(false);
	FAULT_TRY({
		fake_guest_message_u64(&rig->guest, RF_VU_SET_PROTOCOL_FEATURES,
				       UINT64_C(1) << RF_VU_PF_CONFIGURE_MEM_SLOTS);
		for (unsigned i = 0; i < 4; i++)
			plug_region(rig, RF_VU_ADD_MEM_REG, i);
		plug_region(rig, RF_VU_REM_MEM_REG, 1);
		fake_guest_share(&rig->guest);
		rig_idle(rig);
	});
	(void)fault_end();
	if (is_up(rig))
		rig_works(rig, &c, fd, 0);
	else if (fault_harmless())
		FAULT_FAIL("the session ended");
	else
		recovered(rig);
	close(fd);
}

static int rig_connect_port(const struct vsock_rig *rig, uint32_t port)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s_%u", rig->uds, port);
	assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	return fd;
}

/* A program that does not accept for a while, its backlog full. */
static void busy_in(struct vsock_rig *rig)
{
	struct talk t;
	int before;

	fault_pause(true);
	rig_start(rig);
	t = (struct talk){ .rig = rig, .from_guest = true, .asked = true, .ok = true, .fd = -1 };
	t.listener = rig_listen(rig, RIG_PORT, 0);
	before = rig_connect_port(rig, RIG_PORT);
	fault_pause(false);
	fake_conn_init(&t.c, &rig->guest, TALK_PORT, RIG_PORT);
	fake_conn_control(&t.c, REQUEST, 0);
	rig_idle(rig);
	rig_warp(rig, RF_NS_PER_MS * 500);
	close(rig_accept(t.listener));
	close(before);
	talk_end(&t);
	(void)fault_end();
	rig_new_works(rig, 1000);
}

static void never(struct rf_timer *timer)
{
	(void)timer;
}

/* A guest that does not answer the end of a connection; the next timer needs memory. */
static void silent_in(struct vsock_rig *rig)
{
	struct rf_timer timers[FILL_TIMERS] = { 0 };
	struct fake_conn c;
	int fd;

	fault_pause(true);
	rig_start(rig);
	fd = rig_open_from_guest(rig, &c, TALK_PORT);
	rig_warp(rig, LONG_SECONDS * RF_NS_PER_SEC);
	for (unsigned i = 0; i < FILL_TIMERS; i++) {
		timers[i].expired = never;
		assert_int_equal(rf_timer_start(rig->loop, &timers[i], UINT64_MAX), 0);
	}
	fault_pause(false);
	close(fd);
	rig_idle(rig);
	(void)fault_end();
	rig_warp(rig, LONG_SECONDS * RF_NS_PER_SEC);
	for (unsigned i = 0; i < FILL_TIMERS; i++)
		rf_timer_stop(&timers[i]);
	if (rig_connections(rig))
		FAULT_FAIL("a connection stays for ever");
	recovered(rig);
}

/* A front end that says nothing, and one that waits behind it. */
static void waiting_in(struct vsock_rig *rig)
{
	int silent;

	fault_pause(true);
	rig_serve(rig);
	fake_guest_connect(&rig->guest, rig->front);
	silent = rf_fd_steal(&rig->guest.sock);
	fault_pause(false);
	rig_idle(rig);
	FAULT_TRY(rig_boot(rig));
	for (unsigned i = 0; i < LONG_SECONDS; i++) {
		if (i == LONG_SECONDS / 2)
			(void)fault_end();
		rig_warp(rig, RF_NS_PER_SEC);
	}
	if (is_up(rig))
		rig_new_works(rig, 1000);
	else if (fault_harmless())
		FAULT_FAIL("the next front end is not served");
	close(silent);
	recovered(rig);
}

static void life(void)
{
	with_rig(life_in);
}

static void neighbour(void)
{
	with_rig(neighbour_in);
}

static void plugging(void)
{
	with_rig(plugging_in);
}

static void busy(void)
{
	with_rig(busy_in);
}

static void silent(void)
{
	with_rig(silent_in);
}

static void waiting(void)
{
	with_rig(waiting_in);
}

static void busy_program(void **state)
{
	(void)state;
	fault_loop("a busy host program", busy);
}

static void silent_guest(void **state)
{
	(void)state;
	fault_loop("a silent guest", silent);
}

static void waiting_front_end(void **state)
{
	(void)state;
	fault_loop("a front end that waits", waiting);
}

static void device_life(void **state)
{
	(void)state;
	fault_loop("a device's life", life);
}

/* The same, all of what is sent and read through io_uring. */
static void in_batches_in(struct vsock_rig *rig)
{
	rig->options.switches.io = RF_HOST_IO_URING;
	neighbour_in(rig);
}

static void in_batches(void)
{
	with_rig(in_batches_in);
}

static void batches(void **state)
{
	(void)state;
	fault_loop("several in one system call", in_batches);
}

static void neighbours(void **state)
{
	(void)state;
	fault_loop("connections next to another", neighbour);
}

static void memory(void **state)
{
	(void)state;
	fault_loop("memory that changes", plugging);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FAULT_TEST(device_life),  FAULT_TEST(neighbours),   FAULT_TEST(memory),
		FAULT_TEST(busy_program), FAULT_TEST(silent_guest), FAULT_TEST(waiting_front_end),
		FAULT_TEST(batches),
	};

	alarm(500);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
