/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * DOC: ringferry/host.h - serve the vsock of virtual machines from one's own process
 *
 * The host half of virtio-vsock as a library: what "ringferry vsock" does, for a VMM, a proxy or a
 * test. A host is an event loop; devices are added to it, one for each guest. A VMM connects to a
 * device's vhost-user socket, or is handed one end of a socketpair, which may well lead to the same
 * process (ringferry/guest.h takes the other end).
 *
 *   struct rf_host_vsock_options options;
 *   struct rf_host_device *device;
 *   struct rf_host *host;
 *
 *   rf_host_new(NULL, &host);
 *   rf_host_vsock_options_init(&options);
 *   options.guest_cid = 4;
 *   options.socket_path = "/run/vm4.sock";
 *   options.uds_path = "/run/vm4.vsock";
 *   rf_host_add_vsock(host, &options, &device);
 *   rf_host_run(host);
 *
 * Functions return 0 on success and -errno on failure; errno itself means nothing.
 *
 * Any thread may call any function at any time, except that nothing may race with rf_host_free(),
 * nor with rf_host_remove() of the device at hand. The library starts no thread: devices are served
 * inside rf_host_run() or rf_host_dispatch(), by the thread that calls it. A call from another
 * thread waits for the end of the turn at hand, which is a matter of microseconds.
 *
 * Callbacks are made by the thread that serves, or from within rf_host_add_vsock(),
 * rf_host_remove() and rf_host_free(). What they may call is said where they are; they must not
 * wait for another thread that calls into the same host.
 *
 * What is changed for the whole process: the first rf_host_add_vsock() installs a handler of
 * SIGBUS, for guest memory that its owner truncates. It looks after addresses inside of guest
 * memory only, and passes everything else on to the handler that was there before. A program that
 * installs its own one later must pass on to the earlier one likewise. Nothing else is: the limit
 * of descriptors (RLIMIT_NOFILE, one per connection) is the program's to raise, SIGPIPE is never
 * raised, the umask and the working directory are only used.
 */
#ifndef RINGFERRY_HOST_H
#define RINGFERRY_HOST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define RF_API __attribute__((visibility("default")))
#else
#define RF_API
#endif

struct rf_host;
struct rf_host_device;

/* Levels of log lines. */
#define RF_HOST_LOG_ERROR   0
#define RF_HOST_LOG_WARNING 1
#define RF_HOST_LOG_INFO    2
#define RF_HOST_LOG_DEBUG   3

/* Values of rf_host_options.poll_us. */
#define RF_HOST_POLL_AUTO (-1) /* for 20 us, as long as that pays */
#define RF_HOST_POLL_BUSY (-2) /* always; see there */

/**
 * struct rf_host_options - How to make a host; rf_host_options_init() sets the defaults
 * @size:	Set by rf_host_options_init(): the structure's size in the caller's version
 * @log_level:	Lines above this level are left out; default RF_HOST_LOG_INFO
 * @log:	Called with lines for people, their level and the device's name, which is NULL for
 *		lines about options that make no device. It may call
 *		rf_host_stop() and else none of the functions below (they return -EBUSY). NULL,
 *		the default, for none.
 * @log_ctx:	Passed to @log
 * @poll_us:	For how many microseconds rf_host_run(), and rf_host_dispatch() with a timeout other
 *		than 0, look whether guests and host programs have more before they sleep: 0, the
 *		default, to 1000, or RF_HOST_POLL_AUTO. It makes answers come sooner and takes CPU
 *		time, but none while nothing happens.
 *		With RF_HOST_POLL_BUSY rf_host_dispatch() never waits, whatever its timeout. It is
 *		for programs that call it all the time, perhaps in between their own work as a
 *		guest in the same thread. Guests are never asked to tell of packets (they spare a
 *		system call each), so that nothing moves without such calls; rf_host_fd() is of no
 *		use. Events of sockets are seen with one call in 32 if guests have nothing to be
 *		served, else within 20 us.
 */
struct rf_host_options {
	size_t size;
	int log_level;
	void (*log)(void *ctx, int level, const char *device, const char *line);
	void *log_ctx;
	int poll_us;
};

RF_API void rf_host_options_init(struct rf_host_options *options);

/**
 * rf_host_new() - Make a host without devices
 * @options:	Options, copied; NULL for the defaults
 *
 * Return: 0; -EINVAL for an option that is not allowed; or another -errno.
 */
RF_API int rf_host_new(const struct rf_host_options *options, struct rf_host **ret_host);

/**
 * rf_host_free() - Remove all devices and free the host
 *
 * Not from a callback. NULL may be given.
 */
RF_API void rf_host_free(struct rf_host *host);

/* What the line "OK <port>" names to a host program that asked for a port of the guest. */
#define RF_HOST_OK_GUEST 0 /* that port, as vhost-device-vsock does */
#define RF_HOST_OK_HOST  1 /* the connection's port of the host, as Firecracker does */

/**
 * struct rf_host_vsock_options - How to serve a vsock device; rf_host_vsock_options_init() sets the
 * defaults
 * @size:		Set by rf_host_vsock_options_init(): the structure's size in the caller's
 *			version
 * @name:		Name on log lines and in counters; default "cid <guest_cid>"
 * @guest_cid:		The guest's CID, 3 to 4294967294. Required.
 * @socket_path:	vhost-user socket to listen on; its file is removed with the device. A file
 *			that nobody listens on any more is replaced. This or @socket_fd is required.
 * @socket_mode:	Permissions of that file; -1, the default, for what the umask leaves
 * @socket_fd:		Unix stream socket, which listens or is the connected one of a front end.
 *			It is made non-blocking and belongs to the device from now on, also if
 *			rf_host_add_vsock() fails, unless because of @size: then nothing of these
 *			options is known. Default -1.
 * @uds_path:		Hybrid socket: host programs connect to it and send "CONNECT <port>"
 *			(ringferry/client.h does), the guest's connections to port P of the host go
 *			to <uds_path>_P. At most 96 bytes. Required.
 * @uds_mode:		Permissions of its file, as above
 * @uds_uid, @uds_gid:	Owner and group of its file; 4294967295, the default, leaves them
 * @window_bytes:	Bytes that the guest may have under way on one connection, 4096 to 2^30;
 *			default 1048576
 * @queue_size:		Largest ring that the guest may set up, a power of two from 2 to 32768;
 *			default 1024
 * @max_connections:	Connections at once, host programs that have not said CONNECT yet included;
 *			each takes a descriptor, and up to @window_bytes of memory while its host
 *			program does not read. 1 to 65536, default 1024.
 * @handshake_ms:	Time for either side to accept a connection, 10 to 3600000; default 2000
 * @shutdown_ms:	Time for the guest to answer the end of a connection, likewise; default 8000
 * @connect_line_ms:	Time for a host program's CONNECT line, likewise; default 10000
 * @ok_port:		RF_HOST_OK_*; default RF_HOST_OK_GUEST
 * @tune:		Switches, "merge=off,credit=eager" (see --tune in ringferry(1)); may be NULL
 * @left:		Called when a front end has left, unless it was a probe that came to a
 *			listening socket and went without a word; @orderly is 1 if it closed its
 *			socket, and 0 if its session was ended because of what it did. A device
 *			with a socket that listens waits for the next one; one that was given a
 *			connected socket serves nobody any more, and is to be removed: it is told
 *			when host programs have taken all that the guest had sent, or nothing for
 *			10 seconds. All functions below may be called but rf_host_free(),
 *			rf_host_run() and rf_host_dispatch(); removing @device is fine. Not called
 *			for a front end that is there when the device is removed. NULL for none.
 * @left_ctx:		Passed to @left
 */
struct rf_host_vsock_options {
	size_t size;
	const char *name;
	uint32_t guest_cid;
	const char *socket_path;
	int socket_mode;
	int socket_fd;
	const char *uds_path;
	int uds_mode;
	uint32_t uds_uid;
	uint32_t uds_gid;
	uint32_t window_bytes;
	uint32_t queue_size;
	uint32_t max_connections;
	uint32_t handshake_ms;
	uint32_t shutdown_ms;
	uint32_t connect_line_ms;
	int ok_port;
	const char *tune;
	void (*left)(void *ctx, struct rf_host_device *device, int orderly);
	void *left_ctx;
};

RF_API void rf_host_vsock_options_init(struct rf_host_vsock_options *options);

/**
 * rf_host_add_vsock() - Serve a vsock device
 * @host:	Host
 * @options:	Options, copied
 * @ret_device:	The device, which is the host's; valid until rf_host_remove() or rf_host_free()
 *
 * What is wrong is also told to the log, in one line.
 *
 * Return: 0; -EINVAL for an option that is not allowed; -EADDRINUSE if somebody listens on one of
 * the paths; -EEXIST if a file there is no socket; -ENOTSOCK; -EBUSY from the log callback; or
 * another -errno.
 */
RF_API int rf_host_add_vsock(struct rf_host *host, const struct rf_host_vsock_options *options,
			     struct rf_host_device **ret_device);

/**
 * rf_host_remove() - Stop serving a device and free it
 *
 * Its connections end: host programs read the end of file, what they have not taken is lost, and
 * the front end finds its socket closed. Its socket files are removed. When it returns, nothing of
 * the guest's memory is used any more, and no callback of the device comes.
 *
 * Return: 0, or -EBUSY from the log callback.
 */
RF_API int rf_host_remove(struct rf_host_device *device);

/**
 * rf_host_run() - Serve until rf_host_stop()
 *
 * Return: 0; -EBUSY from a callback; or another -errno if waiting failed.
 */
RF_API int rf_host_run(struct rf_host *host);

/**
 * rf_host_stop() - Make rf_host_run() return
 *
 * The call that goes on does so when its turn is over; if there is none, the next one returns at
 * once. rf_host_dispatch() does not wait any longer, either.
 *
 * Context: any thread, any callback, and signal handlers.
 */
RF_API void rf_host_stop(struct rf_host *host);

/**
 * rf_host_fd() - A descriptor for one's own poll(2) or epoll(7)
 *
 * It is readable whenever there is something to do, a timeout of a connection included: call
 * rf_host_dispatch() with a timeout of 0 then. It belongs to the host. To be watched
 * level-triggered.
 *
 * Return: the descriptor; -EBUSY from the log callback; or another -errno.
 */
RF_API int rf_host_fd(struct rf_host *host);

/**
 * rf_host_dispatch() - Serve what is there to be served, once
 * @timeout_ms:	Wait for something at most so long; 0 not at all, -1 for ever
 *
 * One turn is bounded (at most 512 packets and a little over 1 MiB in each direction of each
 * device, and as much of what host programs had not taken before), so that the program's own work
 * is not held up; what is left comes with the next call.
 *
 * Return: 0; -EINVAL for a timeout below -1; -EBUSY from a callback; or another -errno if waiting
 * failed.
 */
RF_API int rf_host_dispatch(struct rf_host *host, int timeout_ms);

/**
 * rf_host_counters_json() - Counters of the loop and of all devices as one line of JSON
 * Return: a string to free(3), or NULL when out of memory, or from the log callback.
 */
RF_API char *rf_host_counters_json(struct rf_host *host);

#ifdef __cplusplus
}
#endif

#endif
