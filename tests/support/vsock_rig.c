/* SPDX-License-Identifier: BSD-3-Clause */
#include "vsock_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "op_name.h"
#include "open_fds.h"
#include "pattern.h"
#include "ring/mem.h"

static void take_line(void *ctx, enum rf_log_level level RF_UNUSED, const char *name RF_UNUSED,
		      const char *line)
{
	struct vsock_rig *rig = ctx;
	size_t used = strlen(rig->text);

	snprintf(rig->text + used, sizeof(rig->text) - used, "%s\n", line);
}

/* cmocka puts its own handler of SIGBUS in place for each test and each fixture. */
static void guard_memory(void)
{
	static struct sigaction guard;

	if (!guard.sa_sigaction) {
		assert_int_equal(rf_mem_guard_install(), 0);
		assert_int_equal(sigaction(SIGBUS, NULL, &guard), 0);
	}
	assert_int_equal(sigaction(SIGBUS, &guard, NULL), 0);
}

int rig_setup(void **state)
{
	struct vsock_rig *rig = calloc(1, sizeof(*rig));

	assert_non_null(rig);
	rig->n_fds = open_fds();
	assert_int_equal(rf_loop_new(&rig->loop), 0);
	strcpy(rig->dir, "/tmp/rf-rig-XXXXXX");
	assert_non_null(mkdtemp(rig->dir));
	snprintf(rig->front, sizeof(rig->front), "%s/front", rig->dir);
	snprintf(rig->uds, sizeof(rig->uds), "%s/uds", rig->dir);
	rig->log = (struct rf_log){ .level = RF_LOG_INFO, .sink = take_line, .ctx = rig };
	rf_vsock_device_options_init(&rig->options);
	rig->options.guest_cid = FAKE_CID;
	rig->options.socket_path = rig->front;
	rig->options.plug_path = rig->uds;
	rig->options.log = &rig->log;
	rig->options.window = RIG_WINDOW;
	fake_guest_init(&rig->guest, rig->loop);
	*state = rig;
	return 0;
}

static void remove_dir(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;

	assert_non_null(dir);
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			unlinkat(dirfd(dir), entry->d_name, 0);
	closedir(dir);
	assert_int_equal(rmdir(path), 0);
}

int rig_teardown(void **state)
{
	struct vsock_rig *rig = *state;

	fake_guest_fini(&rig->guest);
	rf_vsock_device_free(rig->device);
	rf_loop_free(rig->loop);
	/* What was its own it has unlinked. */
	assert_int_not_equal(access(rig->front, F_OK), 0);
	assert_int_not_equal(access(rig->uds, F_OK), 0);
	remove_dir(rig->dir);
	assert_int_equal(open_fds(), rig->n_fds);
	free(rig);
	return 0;
}

void rig_serve(struct vsock_rig *rig)
{
	guard_memory();
	assert_int_equal(rf_vsock_device_new(rig->loop, &rig->options, &rig->device), 0);
}

void rig_boot(struct vsock_rig *rig)
{
	fake_guest_connect(&rig->guest, rig->front);
	fake_guest_boot(&rig->guest);
}

void rig_start(struct vsock_rig *rig)
{
	rig_serve(rig);
	rig_boot(rig);
}

void rig_idle(struct vsock_rig *rig)
{
	fake_guest_idle(&rig->guest);
}

void rig_warp(struct vsock_rig *rig, uint64_t ns)
{
	warp_clock(ns);
	rig_idle(rig);
}

uint64_t rig_count(const struct vsock_rig *rig, const char *table, const char *name)
{
	json_t *json = rf_vsock_device_json(rig->device);
	json_t *value = json_object_get(json_object_get(json, table), name);
	uint64_t count;

	assert_true(json_is_integer(value));
	count = (uint64_t)json_integer_value(value);
	json_decref(json);
	return count;
}

unsigned rig_connections(const struct vsock_rig *rig)
{
	json_t *json = rf_vsock_device_json(rig->device);
	json_t *value = json_object_get(json, "connections");
	unsigned n;

	assert_true(json_is_integer(value));
	n = (unsigned)json_integer_value(value);
	json_decref(json);
	return n;
}

static struct sockaddr_un address(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };

	assert_true(strlen(path) < sizeof(addr.sun_path));
	memcpy(addr.sun_path, path, strlen(path));
	return addr;
}

static int new_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_true(fd >= 0);
	return fd;
}

int rig_listen(const struct vsock_rig *rig, uint32_t port, int backlog)
{
	struct sockaddr_un addr;
	char path[100];
	int fd = new_socket();

	snprintf(path, sizeof(path), "%s_%u", rig->uds, port);
	addr = address(path);
	unlink(path);
	assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(fd, backlog), 0);
	return fd;
}

int rig_accept(int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	assert_true(fd >= 0);
	return fd;
}

int rig_connect(const struct vsock_rig *rig)
{
	struct sockaddr_un addr = address(rig->uds);
	int fd = new_socket();

	assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	return fd;
}

int rig_ask(struct vsock_rig *rig, uint32_t port)
{
	int fd = rig_connect(rig);

	assert_true(dprintf(fd, "CONNECT %u\n", port) > 0);
	rig_idle(rig);
	return fd;
}

int rig_open_from_guest(struct vsock_rig *rig, struct fake_conn *c, uint32_t port)
{
	int listener = rig_listen(rig, RIG_PORT, 1), fd;

	fake_conn_init(c, &rig->guest, port, RIG_PORT);
	fake_conn_control(c, REQUEST, 0);
	rig_idle(rig);
	fd = rig_accept(listener);
	close(listener);
	rig_expect(rig, c, RESPONSE);
	return fd;
}

int rig_open_from_host(struct vsock_rig *rig, struct fake_conn *c)
{
	struct fake_packet packet;
	int fd = rig_ask(rig, RIG_PORT);
	char ok[32];

	assert_true(fake_guest_recv(&rig->guest, &packet, NULL));
	assert_int_equal(packet.hdr.op, REQUEST);
	assert_int_equal(packet.hdr.dst_port, RIG_PORT);
	fake_conn_init(c, &rig->guest, RIG_PORT, packet.hdr.src_port);
	c->peer_buf_alloc = packet.hdr.buf_alloc;
	fake_conn_control(c, RESPONSE, 0);
	rig_idle(rig);
	assert_int_equal(read(fd, ok, sizeof(ok)), strlen("OK 1234\n"));
	assert_memory_equal(ok, "OK 1234\n", strlen("OK 1234\n"));
	return fd;
}

/* The next packet that is more than a credit update, unless it is that which is @wanted. */
static void next_packet(struct vsock_rig *rig, struct fake_conn *c, uint16_t wanted,
			struct fake_packet *ret_packet)
{
	do {
		rig_idle(rig);
		assert_true(fake_conn_recv(c, ret_packet));
	} while (ret_packet->hdr.op != wanted &&
		 (ret_packet->hdr.op == CREDIT_UPDATE || ret_packet->hdr.op == CREDIT_REQUEST));
	assert_int_equal(ret_packet->hdr.op, wanted);
}

struct rf_vsock_hdr rig_expect_hdr(struct vsock_rig *rig, struct fake_conn *c, uint16_t op)
{
	struct fake_packet packet;

	next_packet(rig, c, op, &packet);
	return packet.hdr;
}

void rig_expect(struct vsock_rig *rig, struct fake_conn *c, uint16_t op)
{
	(void)rig_expect_hdr(rig, c, op);
}

unsigned rig_skip_updates(struct vsock_rig *rig, struct fake_conn *c)
{
	struct fake_packet packet;
	unsigned n = 0;

	rig_idle(rig);
	while (fake_conn_recv(c, &packet)) {
		assert_int_equal(packet.hdr.op, CREDIT_UPDATE);
		rig_idle(rig);
		n++;
	}
	return n;
}

void rig_expect_none(struct vsock_rig *rig)
{
	struct fake_packet packet;

	rig_idle(rig);
	if (fake_guest_recv(&rig->guest, &packet, NULL))
		fail_msg("a packet %s of port %u came", op_name(packet.hdr.op),
			 packet.hdr.src_port);
}

void rig_fill(uint8_t *buf, size_t len, uint64_t offset)
{
	pattern_fill(buf, offset, len);
}

void rig_check(const uint8_t *buf, size_t len, uint64_t offset)
{
	size_t right = pattern_check(buf, offset, len);

	if (right < len)
		fail_msg("byte %llu of the stream is wrong", (unsigned long long)(offset + right));
}

void rig_guest_send(struct fake_conn *c, uint64_t offset, uint32_t bytes)
{
	uint8_t buf[65536];

	assert_true(bytes <= sizeof(buf));
	rig_fill(buf, bytes, offset);
	fake_conn_send(c, buf, bytes);
}

void rig_host_write(struct vsock_rig *rig, int fd, uint64_t offset, size_t bytes)
{
	bool idle = false;

	while (bytes) {
		uint8_t buf[32768];
		size_t want = rf_min_size(bytes, sizeof(buf));
		ssize_t n;

		rig_fill(buf, want, offset);
		n = send(fd, buf, want, MSG_NOSIGNAL);
		/* Its socket is full: the device has to take something. */
		assert_true(n > 0 || (n < 0 && errno == EAGAIN && !idle));
		idle = n < 0;
		if (idle) {
			rig_idle(rig);
			continue;
		}
		offset += (size_t)n;
		bytes -= (size_t)n;
	}
}

void rig_host_read(int fd, uint64_t offset, size_t bytes)
{
	while (bytes) {
		uint8_t buf[65536];
		ssize_t n = read(fd, buf, rf_min_size(bytes, sizeof(buf)));

		assert_true(n > 0);
		rig_check(buf, (size_t)n, offset);
		offset += (size_t)n;
		bytes -= (size_t)n;
	}
}

void rig_host_eof(int fd)
{
	char c;

	assert_int_equal(read(fd, &c, 1), 0);
}

void rig_host_reset(int fd)
{
	char c;

	assert_int_equal(read(fd, &c, 1), -1);
	assert_int_equal(errno, ECONNRESET);
}

void rig_host_quiet(int fd)
{
	char c;

	assert_int_equal(read(fd, &c, 1), -1);
	assert_int_equal(errno, EAGAIN);
}

void rig_guest_read(struct vsock_rig *rig, struct fake_conn *c, uint64_t offset, uint32_t bytes)
{
	while (bytes) {
		struct fake_packet packet;

		next_packet(rig, c, RW, &packet);
		assert_true(packet.hdr.len <= bytes);
		rig_check(packet.data, packet.hdr.len, offset);
		offset += packet.hdr.len;
		bytes -= packet.hdr.len;
		c->fwd_cnt += packet.hdr.len;
	}
}

void rig_works(struct vsock_rig *rig, struct fake_conn *c, int fd, uint32_t at)
{
	rig_guest_send(c, at, 100);
	rig_idle(rig);
	rig_host_read(fd, at, 100);
	rig_host_write(rig, fd, at, 100);
	rig_guest_read(rig, c, at, 100);
}

void rig_new_works(struct vsock_rig *rig, uint32_t port)
{
	struct fake_conn c;
	int fd = rig_open_from_guest(rig, &c, port);

	rig_works(rig, &c, fd, 0);
	close(fd);
	rig_expect(rig, &c, SHUTDOWN);
	fake_conn_control(&c, RST, 0);
	rig_idle(rig);
	fd = rig_open_from_host(rig, &c);
	rig_works(rig, &c, fd, 0);
	close(fd);
	rig_expect(rig, &c, SHUTDOWN);
	fake_conn_control(&c, RST, 0);
	rig_idle(rig);
}

void rig_drop_packets(struct vsock_rig *rig)
{
	struct fake_packet packet;

	rig_idle(rig);
	while (fake_guest_recv(&rig->guest, &packet, NULL))
		rig_idle(rig);
}

unsigned rig_logged(const struct vsock_rig *rig, const char *what)
{
	unsigned n = 0;

	for (const char *p = rig->text; (p = strstr(p, what)); p++)
		n++;
	return n;
}
