/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Vsock plugs: what the streams of a guest are plugged into on the host.
 *
 * DOC: Theory of operation. A plug has connections of its own ("lines"), one for each vsock
 * connection, and does the I/O on them; the device has the protocol. The device calls the plug's
 * operations; the plug calls the device's struct rf_vsock_plug_user. A line begins in one of two
 * ways:
 *
 *   guest asks:  device dial() -> plug ... user->dialled(0) -> I/O
 *   host asks:   plug user->asked() -> device ... established() -> I/O
 *
 * and ends with close(), which the device always calls, or with the plug closing it before
 * user->asked() was answered with success. From within an operation the plug calls no
 * function of the device but turned_away() and wake().
 *
 * A device has one plug of each kind that its options ask for, in the order of the table
 * rf_vsock_plugs. A port that the guest asks for goes to the first that has it. A plug that
 * cannot tell at once stands last: there is none behind it to go on with.
 *
 * Context: the loop thread of the device.
 */
#ifndef RF_HOST_VSOCK_PLUG_H
#define RF_HOST_VSOCK_PLUG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/log.h"
#include "base/loop.h"
#include "host/listener.h"
#include "vsock/conn.h"

/* Bits of user->ready(). */
#define RF_LINE_READABLE 1u /* recv() may return something, end of file included */
#define RF_LINE_WRITABLE 2u /* send() may take something again */
#define RF_LINE_HANGUP   4u /* the host program is gone: it neither sends nor receives any more */
#define RF_LINE_DRY      8u /* nothing of what it sent is left for recv(); not with READABLE */

/* Which port the "OK" line names to a host program that asked for a port of the guest. */
enum rf_host_ok_port {
	/* The one it asked for, as vhost-device-vsock does. */
	RF_HOST_OK_PORT_GUEST,
	/* The host's port of the connection, as Firecracker and cloud-hypervisor do. */
	RF_HOST_OK_PORT_HOST,
};

struct rf_vsock_plug;
struct rf_vsock_line;

/**
 * struct rf_vsock_plug_user - What a plug tells the device
 * @asked:	A host program asks for a guest's port. Return 0 and set @ret_owner, which names the
 *		connection from then on; or -errno, and the plug closes the line.
 * @dialled:	The end of dial(): 0, or -errno (the line is still to be closed)
 * @ready:	RF_LINE_* bits that have become true. Readable is told once and again after recv()
 *		returned -EAGAIN; writable only after send() took less than it was offered.
 * @turned_away: A host program was turned away before it had asked: -ENOSPC, too many lines are
 *		open; -ETIMEDOUT, it said nothing; -EINVAL, it said something else
 * @wake:	turn() has something to do; also from within an operation
 */
struct rf_vsock_plug_user {
	int (*asked)(void *device, struct rf_vsock_line *line, uint32_t port, void **ret_owner);
	void (*dialled)(void *owner, int result);
	void (*ready)(void *owner, unsigned bits);
	void (*turned_away)(void *device, int why);
	void (*wake)(void *device);
};

/**
 * struct rf_vsock_plug_options - How to open a plug
 * @loop:	Loop
 * @log:	Log; may be NULL
 * @path:	unix: path of the hybrid socket, or NULL for none
 * @access:	unix: who may use its file
 * @max_lines:	Lines that may be open at once
 * @dial_ns:	Time for dial()
 * @line_ns:	unix: time for the CONNECT line
 * @ok_port:	unix: what the OK line names
 * @user:	The device's functions
 * @device:	Passed to user->asked(), user->turned_away() and user->wake()
 */
struct rf_vsock_plug_options {
	struct rf_loop *loop;
	const struct rf_log *log;
	const char *path;
	struct rf_listener_access access;
	unsigned max_lines;
	uint64_t dial_ns;
	uint64_t line_ns;
	enum rf_host_ok_port ok_port;
	const struct rf_vsock_plug_user *user;
	void *device;
};

/* Lines of one send_many() or recv_many(). */
#define RF_VSOCK_IO_MAX 32u

/**
 * struct rf_vsock_io - One send() or recv() of several
 * @line:	Line
 * @iov, @n:	What is passed on, or where it goes
 * @result:	What send() or recv() would have returned
 */
struct rf_vsock_io {
	struct rf_vsock_line *line;
	const struct iovec *iov;
	unsigned n;
	ssize_t result;
};

/**
 * struct rf_vsock_plug_ops - A kind of plug; all are declared below
 * @name:	Name
 * @open:	Open one. Return 0, with @ret_plug as it was if the options ask for none; or -errno
 *		(told to the log).
 * @free:	Close what is left and free it.
 * @dial:	The guest (the peer of @key) asks for a port of the host (@key's local one). Return
 *		0: user->dialled() tells the end later; -ENOENT: no such port, the next plug is
 *		asked; -ENOSPC: too many lines; or another -errno. The line exists only in the
 *		first case.
 * @turn:	In the device's turn, before it serves the ring from the guest, and again before
 *		that to it: the time to tell the device what has become true meanwhile. NULL:
 *		nothing to do.
 * @waits:	Has turn() something to do? NULL with @turn.
 * @established: The guest has accepted what the host program asked for; I/O begins.
 *		@host_port is the host's port of the connection. NULL: nothing to do.
 * @send:	Pass bytes on. Return their number, at least 1, -EAGAIN, -EPIPE if the host program
 *		does not receive any more, or another -errno (-EFAULT: the guest's memory vanished).
 * @recv:	Get bytes. Return their number, 0 at end of file, -EAGAIN, or another -errno: the
 *		rest cannot be had, and the guest is told so by an RST.
 * @send_many, @recv_many: The same for different lines of one plug, at most RF_VSOCK_IO_MAX.
 *		Return true if that was one system call, false if it was one for each. NULL: no
 *		such way.
 * @shutdown:	RF_VSOCK_SHUT_* bits: no more send() or recv() will come. Told once per bit, and
 *		only of a line on which I/O has begun.
 * @close:	End the line and free it. @reason: why; RF_VSOCK_CLOSED is orderly.
 */
struct rf_vsock_plug_ops {
	const char *name;
	int (*open)(const struct rf_vsock_plug_options *options, struct rf_vsock_plug **ret_plug);
	void (*free)(struct rf_vsock_plug *plug);
	int (*dial)(struct rf_vsock_plug *plug, const struct rf_vsock_key *key, void *owner,
		    struct rf_vsock_line **ret_line);
	void (*turn)(struct rf_vsock_plug *plug);
	bool (*waits)(const struct rf_vsock_plug *plug);
	void (*established)(struct rf_vsock_line *line, uint32_t host_port);
	ssize_t (*send)(struct rf_vsock_line *line, const struct iovec *iov, unsigned n);
	ssize_t (*recv)(struct rf_vsock_line *line, const struct iovec *iov, unsigned n);
	bool (*send_many)(struct rf_vsock_io *ios, unsigned n);
	bool (*recv_many)(struct rf_vsock_io *ios, unsigned n);
	void (*shutdown)(struct rf_vsock_line *line, unsigned bits);
	void (*close)(struct rf_vsock_line *line, enum rf_vsock_reason reason);
};

/* Callbacks of the program that embeds the device (ringferry/host.h). */
extern const struct rf_vsock_plug_ops rf_vsock_plug_embed;

/* The hybrid unix socket of Firecracker, cloud-hypervisor and vhost-device-vsock. */
extern const struct rf_vsock_plug_ops rf_vsock_plug_unix;

/* All kinds, in the order in which they are asked for a port; NULL follows the last. */
extern const struct rf_vsock_plug_ops *const rf_vsock_plugs[];

/* The most that a device may have. */
#define RF_VSOCK_PLUGS_MAX 4u

#endif
