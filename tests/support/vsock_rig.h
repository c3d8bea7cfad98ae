/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A served vsock device with a fake guest on one side and host programs on the other, all in the
 * test's own thread. To be used with cmocka.
 */
#ifndef VSOCK_RIG_H
#define VSOCK_RIG_H

#include "fake_guest.h"
#include "host/vsock_device.h"
#include "rig_group.h"
#include "warp_clock.h"

#define RIG_PORT 1234u

/* Receive window of the device, as Linux's: small enough to be filled soon. */
#define RIG_WINDOW 262144u

/* The operations of packets. */
#define REQUEST        VIRTIO_VSOCK_OP_REQUEST
#define RESPONSE       VIRTIO_VSOCK_OP_RESPONSE
#define RST            VIRTIO_VSOCK_OP_RST
#define SHUTDOWN       VIRTIO_VSOCK_OP_SHUTDOWN
#define RW             VIRTIO_VSOCK_OP_RW
#define CREDIT_UPDATE  VIRTIO_VSOCK_OP_CREDIT_UPDATE
#define CREDIT_REQUEST VIRTIO_VSOCK_OP_CREDIT_REQUEST

/* A test that rig_setup() and rig_teardown() stand around. */
#define RIG_TEST(name)                                     \
	{                                                  \
#name, name, rig_setup, rig_teardown, NULL \
	}

/**
 * struct vsock_rig - The whole set-up
 * @loop:	Loop
 * @options:	Options of the device; to be changed before rig_serve()
 * @device:	Device, NULL before rig_serve()
 * @guest:	Guest; to be changed before rig_boot()
 * @dir:	A directory of its own
 * @front:	Path of the vhost-user socket
 * @uds:	Path of the hybrid socket
 * @log:	Log of the device
 * @text:	What was logged
 * @n_fds:	Descriptors that were open before
 */
struct vsock_rig {
	struct rf_loop *loop;
	struct rf_vsock_device_options options;
	struct rf_vsock_device *device;
	struct fake_guest guest;
	char dir[64], front[80], uds[80];
	struct rf_log log;
	char text[8192];
	unsigned n_fds;
};

/* cmocka's setup and teardown: *state is a struct vsock_rig, in which nothing is served yet. The
 * teardown checks that no descriptor is left. */
int rig_setup(void **state);
int rig_teardown(void **state);

/* Open the device; connect the guest and start it. */
void rig_serve(struct vsock_rig *rig);
void rig_boot(struct vsock_rig *rig);
/* Both. */
void rig_start(struct vsock_rig *rig);

/* Turn the loop until it rests; the same after setting the clock forward. */
void rig_idle(struct vsock_rig *rig);
void rig_warp(struct vsock_rig *rig, uint64_t ns);

/* A counter of the device: table "host", "ended" or "vhost". */
uint64_t rig_count(const struct vsock_rig *rig, const char *table, const char *name);
/* Connections that the device says it has. */
unsigned rig_connections(const struct vsock_rig *rig);

/* Host programs; all descriptors are non-blocking. A listener at <uds>_<port>; an accepted
 * connection, which must be there; a connection to the hybrid socket; one that has sent CONNECT. */
int rig_listen(const struct vsock_rig *rig, uint32_t port, int backlog);
int rig_accept(int listener);
int rig_connect(const struct vsock_rig *rig);
int rig_ask(struct vsock_rig *rig, uint32_t port);

/* A connection that the guest asked for. Return: the host program's descriptor. */
int rig_open_from_guest(struct vsock_rig *rig, struct fake_conn *c, uint32_t port);
/* A connection that a host program asked for, with its OK line read. */
int rig_open_from_host(struct vsock_rig *rig, struct fake_conn *c);

/* Receive a packet of this kind; credit updates and requests before it are skipped. */
void rig_expect(struct vsock_rig *rig, struct fake_conn *c, uint16_t op);
struct rf_vsock_hdr rig_expect_hdr(struct vsock_rig *rig, struct fake_conn *c, uint16_t op);

/* Receive credit updates and nothing else. Return: their number. */
unsigned rig_skip_updates(struct vsock_rig *rig, struct fake_conn *c);

/* No packet comes. */
void rig_expect_none(struct vsock_rig *rig);

/* Bytes at an offset of a stream that is easy to check. */
void rig_fill(uint8_t *buf, size_t len, uint64_t offset);
void rig_check(const uint8_t *buf, size_t len, uint64_t offset);

/*
 * The guest sends so many bytes in one packet; a host program writes them, which the device may
 * have to make room for; reads exactly them; or finds the end of the file.
 */
void rig_guest_send(struct fake_conn *c, uint64_t offset, uint32_t bytes);
void rig_host_write(struct vsock_rig *rig, int fd, uint64_t offset, size_t bytes);
void rig_host_read(int fd, uint64_t offset, size_t bytes);
void rig_host_eof(int fd);
/* It was closed before all that the program wrote was read. */
void rig_host_reset(int fd);
/* There is nothing to read yet. */
void rig_host_quiet(int fd);
/* The guest receives exactly so many bytes, in packets of any size, and consumes them. */
void rig_guest_read(struct vsock_rig *rig, struct fake_conn *c, uint64_t offset, uint32_t bytes);

/* A connection works both ways; new ones do, asked for by either side. */
void rig_works(struct vsock_rig *rig, struct fake_conn *c, int fd, uint32_t at);
void rig_new_works(struct vsock_rig *rig, uint32_t port);

/* Receive what there is and forget it. */
void rig_drop_packets(struct vsock_rig *rig);

/* How often a text occurs in the log. */
unsigned rig_logged(const struct vsock_rig *rig, const char *what);

#endif
