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
 * Host programs reach the guest through the unix socket at uds_path. The program itself does so by
 * callbacks, without a socket and without a system call: see "Connections of the program itself",
 * below.
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
#include <sys/types.h>
#include <sys/uio.h>

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
struct rf_host_conn;

/* Levels of log lines. */
#define RF_HOST_LOG_ERROR   0
#define RF_HOST_LOG_WARNING 1
#define RF_HOST_LOG_INFO    2
#define RF_HOST_LOG_DEBUG   3

/* Values of rf_host_options.poll_us. */
#define RF_HOST_POLL_AUTO (-1) /* for 50 us, as long as that pays */
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
 *			to <uds_path>_P, unless rf_host_listen() was called for P. At most 96
 *			bytes. NULL, the default, for none.
 * @uds_mode:		Permissions of its file, as above
 * @uds_uid, @uds_gid:	Owner and group of its file; 4294967295, the default, leaves them
 * @window_bytes:	Bytes that the guest may have under way on one connection, 4096 to 2^30;
 *			default 1048576
 * @queue_size:		Largest ring that the guest may set up, a power of two from 2 to 32768;
 *			default 1024
 * @max_connections:	Connections at once, those of the program itself and host programs that
 *			have not said CONNECT yet included; each takes a descriptor if it goes
 *			through @uds_path, and up to @window_bytes of memory while its host program
 *			does not read. 1 to 65536, default 1024.
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
 * From a callback of one of the device's own connections, the device is only marked: all of that
 * happens before the call returns in which the callback is made, rf_host_dispatch() for instance.
 * Until then no callback of the device comes but ended(); @device is not to be used any more.
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

/**
 * DOC: Connections of the program itself
 *
 * A program may serve ports for the guest, rf_host_listen(), and connect to the guest's,
 * rf_host_connect(), by callbacks that copy between the guest's memory and its own: one copy in
 * each direction, no socket and no system call. All of it works beside uds_path, or without.
 *
 *   static ssize_t take(void *ctx, struct rf_host_conn *conn, const struct iovec *iov, int n)
 *   {
 *           struct peer *peer = ctx;
 *           size_t len = rf_host_copy_out(iov, n, 0, peer->buf + peer->used, room(peer));
 *
 *           peer->used += len;
 *           return len ? (ssize_t)len : -EAGAIN;
 *   }
 *
 *   static const struct rf_host_stream_ops ops = {
 *           .size = sizeof(ops), .accept = accept, .take = take, .give = give, .ended = ended,
 *   };
 *
 *   rf_host_listen(device, 1234, &ops, NULL);
 *
 * Bytes flow by take() and give(), which the library calls when it can. One that has to wait
 * returns -EAGAIN, and is called again after rf_host_conn_ready(): for give() when there is
 * something to send again, for take() when there is room again. What take() leaves waits, up to
 * window_bytes; then the guest has to.
 *
 * A connection is valid from accept(), or rf_host_connect(), until its callback ended() has
 * returned, which is the last callback and comes exactly once, also after rf_host_conn_close() and
 * when the guest or the device goes away. It does not come after accept() has refused.
 *
 * Callbacks are made as said at the top of this file, for one connection never two at the same
 * time. They may call all functions but rf_host_free(), rf_host_run() and rf_host_dispatch(); none
 * of the functions below makes a callback before it returns. During rf_host_free() and
 * rf_host_remove() the device is not to be used any more.
 */

/* The two callbacks that move bytes. */
#define RF_HOST_TAKE 1
#define RF_HOST_GIVE 2

/**
 * struct rf_host_stream_ops - What the program does with its connections
 * @size:	sizeof(struct rf_host_stream_ops)
 * @accept:	The guest connects to a port of rf_host_listen(), whose @ctx this is. Return 0 to
 *		accept, with *ret_ctx for the other callbacks (it is @ctx before); anything else to
 *		refuse: @conn does not exist any more then. NULL: all are accepted.
 * @connected:	The guest has accepted what rf_host_connect() asked for. NULL: not told.
 * @take:	Bytes of the guest. Return how many were taken from the front; less than all, 0, or
 *		-EAGAIN, and the rest comes after rf_host_conn_ready(RF_HOST_TAKE); -EPIPE if none
 *		will be taken any more, which the guest is told; any other negative number resets
 *		the connection. NULL: as if it returned -EPIPE.
 * @give:	Room for bytes for the guest. Return how many were written at the front; 0 for the
 *		end of file; -EAGAIN if there are none before rf_host_conn_ready(RF_HOST_GIVE); any
 *		other negative number resets the connection. NULL: as if it returned 0.
 * @shut:	RF_HOST_TAKE: the guest has sent its end of file, behind the last byte that was
 *		taken; take() is not called any more. RF_HOST_GIVE: the guest does not receive any
 *		more; give() is not called any more. The other direction goes on: it is for the
 *		program to end it. NULL: not told.
 * @ended:	The connection is over. @how: 0 in an orderly way; -ECONNREFUSED if the guest did
 *		not accept; -ENOTCONN if no guest is running; -ETIMEDOUT if it did not answer;
 *		-ECONNRESET if it reset the connection; -ENETRESET if it restarted or left, or the
 *		device was removed; -EPROTO if it broke a rule; -ECONNABORTED after an error of
 *		take() or give(), or if it was closed before the guest had accepted; or another
 *		-errno. NULL: not told.
 *
 * @iov is memory of the guest, @n pieces, 1 to 1024, none of which is empty. It is to be used
 * within the call only. The guest may change it meanwhile: bytes are to be copied first and judged
 * then, and never to be read twice. If the guest takes it away meanwhile, zeros are read; its
 * connections end after the call, with -ENETRESET.
 */
struct rf_host_stream_ops {
	size_t size;
	int (*accept)(void *ctx, struct rf_host_conn *conn, uint32_t guest_port, void **ret_ctx);
	void (*connected)(void *ctx, struct rf_host_conn *conn);
	ssize_t (*take)(void *ctx, struct rf_host_conn *conn, const struct iovec *iov, int n);
	ssize_t (*give)(void *ctx, struct rf_host_conn *conn, const struct iovec *iov, int n);
	void (*shut)(void *ctx, struct rf_host_conn *conn, int what);
	void (*ended)(void *ctx, struct rf_host_conn *conn, int how);
};

/**
 * rf_host_listen() - Serve a port of the host for a device's guest
 * @device:	Device
 * @port:	Port, 0 to 4294967294
 * @ops:	Callbacks; borrowed until the device is removed
 * @ctx:	Passed to accept()
 *
 * Return: 0; -EADDRINUSE if this program serves it already; -EINVAL for a wrong port or size;
 * -EBUSY from the log callback; -ENODEV if the device is being removed; or -ENOMEM.
 */
RF_API int rf_host_listen(struct rf_host_device *device, uint32_t port,
			  const struct rf_host_stream_ops *ops, void *ctx);

/**
 * rf_host_unlisten() - Do not serve a port any more
 *
 * Its connections stay.
 *
 * Return: 0; -ENOENT if it is not served; or -EBUSY from the log callback.
 */
RF_API int rf_host_unlisten(struct rf_host_device *device, uint32_t port);

/**
 * rf_host_connect() - Connect to a port of a device's guest
 * @device:	Device
 * @port:	Port, 0 to 4294967294
 * @ops:	Callbacks; borrowed until ended() has returned
 * @ctx:	Passed to them
 * @ret_conn:	The connection
 *
 * The callback connected() or ended() tells how it went.
 *
 * Return: 0; -ENOSPC if there are too many connections; -EINVAL for a wrong port or size; -EBUSY
 * from the log callback; -ENODEV if the device is being removed; or -ENOMEM.
 */
RF_API int rf_host_connect(struct rf_host_device *device, uint32_t port,
			   const struct rf_host_stream_ops *ops, void *ctx,
			   struct rf_host_conn **ret_conn);

/**
 * rf_host_conn_ready() - take() or give() need not wait any more
 * @conn:	Connection
 * @what:	RF_HOST_TAKE, RF_HOST_GIVE, or both
 *
 * To be called after what makes it true. They are called when the device has its next turn, which
 * this makes happen. It does no harm where it is not needed.
 *
 * Context: any thread, any callback; of another thread's work it waits for none, so locks may be
 * held that callbacks take, too. Another thread has to know that @conn is valid: for instance by a
 * lock that ended() takes.
 */
RF_API void rf_host_conn_ready(struct rf_host_conn *conn, int what);

/**
 * rf_host_conn_shutdown() - Take no more, or give no more
 * @what:	RF_HOST_TAKE: as if take() returned -EPIPE. RF_HOST_GIVE: as if give() returned 0.
 *
 * The callback is not called any more. Context: as of rf_host_conn_ready().
 */
RF_API void rf_host_conn_shutdown(struct rf_host_conn *conn, int what);

/**
 * rf_host_conn_close() - End a connection
 *
 * What take() left is lost. Of the callbacks only ended() is still to come, when the guest has
 * answered. Context: as of rf_host_conn_ready().
 */
RF_API void rf_host_conn_close(struct rf_host_conn *conn);

/**
 * rf_host_copy_out() - Copy bytes from pieces of memory, for take()
 * @iov:	Pieces
 * @n:		Their number
 * @offset:	Bytes to leave out at the front
 * @buf:	Destination
 * @len:	Bytes wanted
 *
 * Return: bytes copied, less than @len only if the pieces end.
 */
RF_API size_t rf_host_copy_out(const struct iovec *iov, int n, size_t offset, void *buf,
			       size_t len);

/**
 * rf_host_copy_in() - Copy bytes into pieces of memory, for give()
 * Return: bytes copied, less than @len only if the pieces end.
 */
RF_API size_t rf_host_copy_in(const struct iovec *iov, int n, size_t offset, const void *buf,
			      size_t len);

#ifdef __cplusplus
}
#endif

#endif
