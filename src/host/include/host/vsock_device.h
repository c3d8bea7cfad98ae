/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A served vsock device: the host half of one guest's virtio-vsock.
 *
 * Context: the loop thread, unless it says otherwise.
 */
#ifndef RF_HOST_VSOCK_DEVICE_H
#define RF_HOST_VSOCK_DEVICE_H

#include <stdint.h>

#include "base/counter.h"
#include "base/log.h"
#include "base/loop.h"
#include "host/vsock_plug.h"
#include "ring/devq.h"
#include "vsock/limits.h"
#include "vsock/reason.h"

/* Smallest and largest bound for the ring size. */
#define RF_VSOCK_QUEUE_MIN     2u
#define RF_VSOCK_QUEUE_DEFAULT 1024u
#define RF_VSOCK_QUEUE_MAX     RF_RING_MAX_NUM

/* X(name, type, default, values, help): the switches of the host half. */
#define RF_HOST_SWITCHES(X)                                                                      \
	X(merge, RF_SWITCH_BOOL, "on", "on|off",                                                 \
	  "pass the payloads of consecutive packets of a connection on in one system call; "     \
	  "off: one call per packet")                                                            \
	X(credit, RF_SWITCH_ENUM, "batched", "batched|eager|linux",                              \
	  "tell of consumed bytes a few times per window; eager: at once, as Linux before 5.4; " \
	  "linux: when less than 64 KiB is free, as Linux 6.1")                                  \
	X(packets, RF_SWITCH_BOOL, "on", "on|off",                                               \
	  "bound the packets in flight to the guest, and ask for its credit; off: as Linux "     \
	  "before 2026")                                                                         \
	X(split, RF_SWITCH_BOOL, "on", "on|off",                                                 \
	  "let one read for the guest fill many receive buffers; off: one packet per read, no "  \
	  "larger than one buffer, as Linux before 5.4")                                         \
	X(io, RF_SWITCH_ENUM, "syscalls", "auto|syscalls|uring",                                 \
	  "one system call for each connection that sends or reads in a turn; auto: one for "    \
	  "4 or more of them (io_uring), where the kernel offers it; uring: one for any number")

struct rf_host_switches {
	bool merge;
	int credit; /* enum rf_vsock_tell */
	bool packets;
	bool split;
	int io; /* enum rf_host_io */
};

enum rf_host_io {
	RF_HOST_IO_AUTO,
	RF_HOST_IO_SYSCALLS,
	RF_HOST_IO_URING,
};

extern const struct rf_switch_def rf_host_switch_defs[];
extern const size_t rf_host_n_switches;

#define RF_HOST_COUNTERS(X)                                                                    \
	X(turns, "turns in which rings were served")                                           \
	X(from_guest_packets, "packets taken from the guest")                                  \
	X(from_guest_data_packets, "of these, packets with payload that was admitted")         \
	X(from_guest_bytes, "payload bytes admitted from the guest")                           \
	X(from_guest_sends, "sends that passed payload of the guest on")                       \
	X(from_guest_sent_packets, "packets whose payload those sends carried")                \
	X(bounced_bytes, "payload bytes copied because the host program did not take them")    \
	X(discarded_bytes, "payload bytes dropped because the host program stopped reading")   \
	X(to_guest_packets, "packets sent to the guest")                                       \
	X(to_guest_data_packets, "of these, packets with payload")                             \
	X(to_guest_bytes, "payload bytes sent to the guest")                                   \
	X(to_guest_reads, "reads of payload for the guest")                                    \
	X(to_guest_moved_bytes, "payload bytes moved to a buffer that a read before left")     \
	X(uring_batches, "system calls that stood for several sends or reads")                 \
	X(uring_ops, "sends and reads that they stood for; all others were one each")          \
	X(to_guest_full, "times the guest had no receive buffer")                              \
	X(credit_updates, "credit updates sent")                                               \
	X(credit_requests, "credit requests sent")                                             \
	X(credit_requests_answered, "credit requests of the guest that credit updates answer") \
	X(packet_waits, "times bytes for the guest waited though it had byte credit left")     \
	X(resets, "RST packets sent")                                                          \
	X(bad_packets, "packets dropped: too short, or longer than their buffer")              \
	X(foreign_packets, "packets dropped: wrong source or destination CID")                 \
	X(bad_buffers, "receive buffers returned: too small for a packet")                     \
	X(back_pressure, "times no packet was taken because all owed resets were in use")      \
	X(guest_connects, "connections that the guest asked for")                              \
	X(host_connects, "connections that host programs asked for")                           \
	X(refused_limit, "connections refused: too many are open")                             \
	X(refused_host, "connections refused: no host program listens, or it does not accept") \
	X(refused_no_guest, "host programs turned away: no guest is running")                  \
	X(refused_line, "host programs turned away: no valid CONNECT line in time")            \
	X(device_resets, "times all connections ended because the guest restarted or left")    \
	X(front_ends, "front ends that connected")

struct rf_host_counters {
	RF_HOST_COUNTERS(RF_COUNTER_MEMBER)
	/* Connections ended, by reason. */
	rf_counter ended[RF_VSOCK_N_REASONS];
};

extern const struct rf_counter_def rf_host_counter_defs[];
extern const size_t rf_host_n_counters;

struct rf_vsock_device;

/**
 * struct rf_vsock_device_options - How to serve a device; all of it is copied
 * @name:		Name on log lines
 * @guest_cid:		The guest's CID (rf_vsock_cid_usable())
 * @socket_path:	vhost-user socket to listen on, or NULL to use @socket_fd
 * @socket_mode:	Permissions of its file, or -1
 * @socket_fd:		Listening socket, or the connected one of a front end; taken over, also on
 *			failure. -1 if @socket_path is given.
 * @plugs:		What streams may be plugged into, as rf_vsock_plugs; borrowed
 * @plug_path:		Path of the hybrid socket, or NULL for none
 * @plug_mode:		Permissions of that, or -1
 * @plug_uid, @plug_gid: Its owner and group, or (uid_t)-1, (gid_t)-1
 * @window:		Receive window of a connection, bytes
 * @queue_size:		Largest ring accepted
 * @max_conns:		Connections at once
 * @handshake_ns:	Time for either side to accept a connection
 * @shutdown_ns:	Time for the guest to answer the end of a connection
 * @line_ns:		Time for a host program's CONNECT line
 * @ok_port:		What the OK line names
 * @switches:		Switches, read when rings start
 * @last_front:		No front end is served after the first one. So it is anyway where
 *			@socket_fd is a connected one.
 * @left:		Called when a front end has left, orderly or because of what it did, but
 *			not for one that came to a listening socket and went without a word; the
 *			device may be freed from it; may be NULL. After the last front end it is
 *			called when host programs have taken what the guest sent before, or have
 *			taken nothing for RF_HOST_LINGER_NS.
 * @ctx:		Passed to @left
 * @log:		Log; borrowed, may be NULL
 */
struct rf_vsock_device_options {
	const char *name;
	uint64_t guest_cid;
	const char *socket_path;
	int socket_mode;
	int socket_fd;
	const struct rf_vsock_plug_ops *const *plugs;
	const char *plug_path;
	int plug_mode;
	uid_t plug_uid;
	gid_t plug_gid;
	uint32_t window;
	uint32_t queue_size;
	unsigned max_conns;
	uint64_t handshake_ns;
	uint64_t shutdown_ns;
	uint64_t line_ns;
	enum rf_host_ok_port ok_port;
	struct rf_host_switches switches;
	bool last_front;
	void (*left)(void *ctx, bool orderly);
	void *ctx;
	const struct rf_log *log;
};

/* Set the defaults. */
void rf_vsock_device_options_init(struct rf_vsock_device_options *options);

/**
 * rf_vsock_device_new() - Serve a device on a loop
 *
 * What cannot be opened is told to the log in one line.
 *
 * Return: 0; -EINVAL for an option out of range; or another -errno.
 */
int rf_vsock_device_new(struct rf_loop *loop, const struct rf_vsock_device_options *options,
			struct rf_vsock_device **ret_device);

/* End everything and free it; sockets that are ours are unlinked. NULL may be given. */
void rf_vsock_device_free(struct rf_vsock_device *device);

/* The device's plug of a kind, or NULL. */
struct rf_vsock_plug *rf_vsock_device_plug(const struct rf_vsock_device *device,
					   const struct rf_vsock_plug_ops *ops);

/**
 * rf_vsock_device_json() - Counters and switches of a device
 * Return: a new reference, or NULL when out of memory.
 */
json_t *rf_vsock_device_json(const struct rf_vsock_device *device);

#endif
