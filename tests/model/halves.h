/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The real guest half against the real host half in one process, turn by turn: the guest's thread
 * runs only while the test waits for it to have turned its loop once, which it does only if it
 * would wake up by itself; and time stands still but for what the test lets pass. So a sequence of
 * operations always goes the same way.
 *
 * One that is not given its turn delays all that is on its way to it.
 */
#ifndef HALVES_H
#define HALVES_H

#include <stdbool.h>
#include <stdint.h>

#include "host/vsock_device.h"
#include "ringferry/guest.h"

/**
 * struct halves - Both
 * @loop:	The host half's loop
 * @device:	Its device
 * @options:	Its options, for when it starts again
 * @guest:	The guest half
 * @dir, @front, @uds: a directory of its own, and the sockets in it
 */
struct halves {
	struct rf_loop *loop;
	struct rf_vsock_device *device;
	struct rf_vsock_device_options options;
	struct rf_guest *guest;
	char dir[48], front[64], uds[64];
};

/**
 * halves_open() - Start both
 * @window, @queue_size, @rx_buf_bytes: options of the host half, of both, and of the guest half
 * @sndbuf_bytes: Granted as the send buffer of host programs' sockets
 * @credit:	The host half's switch of that name
 */
void halves_open(struct halves *h, uint32_t window, uint32_t queue_size, uint32_t rx_buf_bytes,
		 int sndbuf_bytes, int credit);

/*
 * Called in the midst of the host half's turn, before each of its calls that send to or receive
 * from a host program: these run at the same time. NULL for nothing.
 */
extern void (*halves_meanwhile)(void);

/* End both; nothing may be on its way. */
void halves_close(struct halves *h);

/* One turn of a half, side 0 is the host, unless it sleeps. Return: true if it had a turn. */
bool halves_turn(struct halves *h, unsigned side);

/* The back end is killed and started again; the guest half attaches again. */
void halves_restart(struct halves *h);

/* Virtual time, ns. */
uint64_t halves_now(void);
void halves_pass_time(uint64_t ns);

/* Connections that each half has. */
unsigned halves_connections(const struct halves *h, unsigned side);

/* Connections that have ended in another way than closed by both, as the host half counts. */
unsigned halves_disorderly(const struct halves *h);

/* Host programs: a listener at a port, and its end; a connection that has sent CONNECT. */
int halves_listen(const struct halves *h, uint32_t port);
void halves_unlisten(const struct halves *h, uint32_t port, int fd);
int halves_ask(const struct halves *h, uint32_t port);

#endif
