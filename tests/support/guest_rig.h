/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A guest on a fake back end, for the tests of the guest half.
 */
#ifndef RF_TESTS_GUEST_RIG_H
#define RF_TESTS_GUEST_RIG_H

#include <stdint.h>

#include "fake_vsock_backend.h"
#include "ringferry/guest.h"

/**
 * struct rig - Guest and back end
 * @fds_before:	Descriptors the process had before there was a rig
 */
struct rig {
	struct fake_backend *fake;
	struct rf_guest *guest;
	unsigned fds_before;
};

/* Receive window of the guest's sockets, as Linux's: small enough to be filled soon. */
#define RIG_WINDOW 262144u

/**
 * struct rig_options - What a rig is like
 * @fake:	The back end; NULL for fake_manual
 * @queue_size:	0 for the default
 * @rx_buf_bytes: 0 for the default
 * @packet_bound, @credit, @tune, @poll_us: As the guest's options. RIG_POLL_US in the environment
 *		is for those with a @poll_us of 0, RIG_TUNE for those without a @tune: to run whole
 *		tests in another way.
 */
struct rig_options {
	const struct fake_options *fake;
	uint32_t queue_size;
	uint32_t rx_buf_bytes;
	int packet_bound, credit;
	const char *tune;
	int poll_us;
};

/* Attach; fails the test if that does not work. */
void rig_open(struct rig *rig, const struct rig_options *options);

/* Detach; fails the test if descriptors have leaked. */
void rig_close(struct rig *rig);

/**
 * struct rig_conn - A connection, the host's end by hand
 * @sock:	The guest's socket
 * @host:	Header from the host to the guest, its op, len and flags to be set
 */
struct rig_conn {
	int sock;
	struct rf_vsock_hdr host;
};

/* Connect from the guest to a port of the host that accepts, with a window for the guest's data. */
struct rig_conn rig_connect(struct rig *rig, uint32_t port, uint32_t window);

/* Bind and listen on a port of the guest. */
int rig_listen(struct rig *rig, uint32_t port, int backlog);

/* Connect from the host to a listener, and accept. */
struct rig_conn rig_accept(struct rig *rig, int listener, uint32_t guest_port, uint32_t host_port);

/* Send from the host's end. */
void rig_send(struct rig *rig, const struct rig_conn *c, const void *data, uint32_t len);
void rig_send_op(struct rig *rig, const struct rig_conn *c, uint16_t op, uint32_t flags);

/* Wait (5 seconds at most) until poll says one of these events; returns revents. */
int rig_poll(struct rig *rig, int sock, int events);

/* Close the guest's end and let the host's end answer. */
void rig_end(struct rig *rig, struct rig_conn *c);

/* A counter of the guest by name. */
uint64_t rig_counter(struct rig *rig, const char *name);

/* Wait until a counter has reached a value. */
void rig_wait_counter(struct rig *rig, const char *name, uint64_t value);

/* Setup and teardown of a case: a rig with the defaults, which *state points to. */
int rig_setup(void **state);
int rig_teardown(void **state);

#define RIG_CASE(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

/* RF_SO_* as a number; fails the test if it cannot be had. */
uint64_t rig_option(struct rig *rig, int sock, enum rf_sockopt opt);

#endif
