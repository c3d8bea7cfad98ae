/* SPDX-License-Identifier: BSD-3-Clause */
#include "guest_rig.h"
#include "open_fds.h"

#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define WAIT_MS 5000

void rig_open(struct rig *rig, const struct rig_options *options)
{
	static const struct rig_options defaults;
	struct rf_guest_options o;
	const char *more, *poll_us = getenv("RIG_POLL_US");
	char tune[128];

	if (!options)
		options = &defaults;
	more = options->tune ? options->tune : getenv("RIG_TUNE");
	/* Most tests count packets: one for each send, unless they say otherwise. */
	snprintf(tune, sizeof(tune), "join=off%s%s", more && *more ? "," : "", more ? more : "");
	rig->fds_before = open_fds();
	rig->fake = fake_new(options->fake ? options->fake : &fake_manual);
	rf_guest_options_init(&o);
	o.socket_path = fake_path(rig->fake);
	if (options->queue_size)
		o.queue_size = options->queue_size;
	if (options->rx_buf_bytes)
		o.rx_buf_bytes = options->rx_buf_bytes;
	o.window_bytes = RIG_WINDOW;
	o.packet_bound = options->packet_bound;
	o.credit = options->credit;
	o.tune = tune;
	o.poll_us = options->poll_us;
	if (!o.poll_us && poll_us)
		o.poll_us = (int)strtol(poll_us, NULL, 10);
	assert_int_equal(rf_guest_open(&o, &rig->guest), 0);
	fake_wait_attached(rig->fake);
}

void rig_close(struct rig *rig)
{
	rf_guest_close(rig->guest);
	fake_free(rig->fake);
	assert_int_equal(open_fds(), rig->fds_before);
}

/* By its name: without a window poll says nothing. */
static void wait_connected(struct rig *rig, int sock)
{
	struct rf_sockaddr addr;
	int r = -ENOTCONN;

	for (int i = 0; i < WAIT_MS && r == -ENOTCONN; i++) {
		r = rf_getpeername(rig->guest, sock, &addr);
		if (r < 0)
			usleep(1000);
	}
	assert_int_equal(r, 0);
}

struct rig_conn rig_connect(struct rig *rig, uint32_t port, uint32_t window)
{
	struct rf_sockaddr addr = { .cid = RF_CID_HOST, .port = port };
	struct rf_vsock_hdr request;
	struct rig_conn c;

	c.sock = rf_socket(rig->guest, RF_SOCK_STREAM | RF_SOCK_NONBLOCK);
	assert_true(c.sock > 0);
	assert_int_equal(rf_connect(rig->guest, c.sock, &addr), -EINPROGRESS);
	request = fake_expect(rig->fake, VIRTIO_VSOCK_OP_REQUEST);
	assert_int_equal(request.dst_port, port);
	c.host = fake_answer(&request, VIRTIO_VSOCK_OP_RESPONSE);
	c.host.buf_alloc = window;
	fake_send(rig->fake, &c.host, NULL);
	wait_connected(rig, c.sock);
	assert_int_equal(rf_setsockopt(rig->guest, c.sock, RF_SO_NONBLOCK, 0), 0);
	return c;
}

int rig_listen(struct rig *rig, uint32_t port, int backlog)
{
	int sock = rf_socket(rig->guest, RF_SOCK_STREAM);

	assert_true(sock > 0);
	assert_int_equal(rf_bind(rig->guest, sock, &(struct rf_sockaddr){ RF_CID_ANY, port }), 0);
	assert_int_equal(rf_listen(rig->guest, sock, backlog), 0);
	return sock;
}

struct rig_conn rig_accept(struct rig *rig, int listener, uint32_t guest_port, uint32_t host_port)
{
	struct rig_conn c = { .host = fake_hdr(VIRTIO_VSOCK_OP_REQUEST, host_port, guest_port) };

	fake_send(rig->fake, &c.host, NULL);
	fake_expect(rig->fake, VIRTIO_VSOCK_OP_RESPONSE);
	c.sock = rf_accept(rig->guest, listener, NULL, 0);
	assert_true(c.sock > 0);
	return c;
}

void rig_send(struct rig *rig, const struct rig_conn *c, const void *data, uint32_t len)
{
	struct rf_vsock_hdr hdr = c->host;

	hdr.op = VIRTIO_VSOCK_OP_RW;
	hdr.len = len;
	fake_send(rig->fake, &hdr, data);
}

void rig_send_op(struct rig *rig, const struct rig_conn *c, uint16_t op, uint32_t flags)
{
	struct rf_vsock_hdr hdr = c->host;

	hdr.op = op;
	hdr.flags = flags;
	fake_send(rig->fake, &hdr, NULL);
}

int rig_poll(struct rig *rig, int sock, int events)
{
	struct rf_pollfd pfd = { .sock = sock, .events = (short)events };

	assert_int_equal(rf_poll(rig->guest, &pfd, 1, WAIT_MS), 1);
	return pfd.revents;
}

void rig_end(struct rig *rig, struct rig_conn *c)
{
	struct rf_vsock_hdr hdr;

	assert_int_equal(rf_close(rig->guest, c->sock), 0);
	do {
		fake_next(rig->fake, &hdr, NULL);
	} while (hdr.op != VIRTIO_VSOCK_OP_SHUTDOWN || hdr.flags != RF_VSOCK_SHUT_BOTH);
	rig_send_op(rig, c, VIRTIO_VSOCK_OP_RST, 0);
}

uint64_t rig_counter(struct rig *rig, const char *name)
{
	char *text = rf_guest_counters_json(rig->guest);
	json_t *counters, *value;
	uint64_t n;

	assert_non_null(text);
	counters = json_loads(text, 0, NULL);
	free(text);
	assert_non_null(counters);
	value = json_object_get(counters, name);
	if (!json_is_integer(value))
		fail_msg("no counter \"%s\"", name);
	n = (uint64_t)json_integer_value(value);
	json_decref(counters);
	return n;
}

void rig_wait_counter(struct rig *rig, const char *name, uint64_t value)
{
	uint64_t n = 0;

	for (int i = 0; i < WAIT_MS; i++) {
		n = rig_counter(rig, name);
		if (n >= value)
			return;
		usleep(1000);
	}
	fail_msg("%s is %lu, not %lu", name, (unsigned long)n, (unsigned long)value);
}

uint64_t rig_option(struct rig *rig, int sock, enum rf_sockopt opt)
{
	uint64_t value;

	assert_int_equal(rf_getsockopt(rig->guest, sock, opt, &value), 0);
	return value;
}

int rig_setup(void **state)
{
	static struct rig rig;

	rig_open(&rig, NULL);
	*state = &rig;
	return 0;
}

int rig_teardown(void **state)
{
	rig_close(*state);
	return 0;
}
