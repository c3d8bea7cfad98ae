/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hybrid unix socket by itself: the device is played by the test.
 */
#ifndef PLUG_LAB_H
#define PLUG_LAB_H

#include "fake_guest.h"
#include "host/vsock_plug.h"
#include "rig_group.h"
#include "warp_clock.h"

#define PLUG_DIAL_NS   (2 * RF_NS_PER_SEC)
#define PLUG_LINE_NS   (10 * RF_NS_PER_SEC)
#define PLUG_MAX_LINES 16u
/* plug_owner.dialled before the end of dial(). */
#define PLUG_NOT_YET 1

/**
 * struct plug_owner - A connection of the device
 * @line:	The plug's line
 * @port:	Port that was asked for
 * @dialled:	What user->dialled() told
 * @bits, @n_ready: What user->ready() told, and how often
 */
struct plug_owner {
	struct rf_vsock_line *line;
	uint32_t port;
	int dialled;
	unsigned bits, n_ready;
};

/**
 * struct plug_lab - A plug and what it told
 * @ok_port:	For plug_reopen()
 * @refuse:	What user->asked() is to return
 * @owners:	Connections, in the order they began
 * @n_full:	How often user->turned_away() told that too many lines are open
 */
struct plug_lab {
	struct rf_loop *loop;
	struct rf_log log;
	char text[2048];
	char dir[40], uds[60];
	struct rf_vsock_plug *plug;
	enum rf_host_ok_port ok_port;
	int refuse;
	struct plug_owner owners[64];
	unsigned n_owners;
	unsigned n_full;
};

#define plug_ops (&rf_vsock_plug_unix)

/* cmocka's; *state is a struct plug_lab with an open plug. */
int plug_setup(void **state);
int plug_teardown(void **state);

#define PLUG_TEST(name)                                      \
	{                                                    \
#name, name, plug_setup, plug_teardown, NULL \
	}

void plug_idle(struct plug_lab *lab);

/* Open the plug anew, with the lab's options. */
void plug_reopen(struct plug_lab *lab);

/* A host program's descriptor, non-blocking: not connected; connected; its bytes, taken by the
 * plug; is it closed? */
int plug_new_socket(void);
int plug_connect(struct plug_lab *lab);
void plug_program_sends(struct plug_lab *lab, int fd, const char *text);
bool plug_is_closed(int fd);

/* A program whose connection the guest has accepted, with its OK read. */
struct plug_owner *plug_open_asked(struct plug_lab *lab, int *ret_fd);

/* The guest asks for a port. Return: what the operation returns. */
int plug_dial(struct plug_lab *lab, uint32_t port, void *owner, struct rf_vsock_line **ret_line);

ssize_t plug_device_sends(struct plug_owner *owner, const char *text);

#endif
