/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * DOC: ringferry/guest.h - be a vsock guest without a virtual machine
 *
 * The guest half of virtio-vsock in user space: the calling process attaches to a vhost-user vsock
 * back end (ringferry vsock, vhost-device-vsock, ...), or to the one that Linux has in its kernel
 * (/dev/vhost-vsock), as if it were a virtual machine, and then has the sockets that a guest has.
 *
 *   struct rf_guest_options options;
 *   struct rf_guest *guest;
 *
 *   rf_guest_options_init(&options);
 *   options.socket_path = "/run/vm4.sock";
 *   rf_guest_open(&options, &guest);
 *   s = rf_socket(guest, RF_SOCK_STREAM);
 *   rf_connect(guest, s, &(struct rf_sockaddr){ .cid = RF_CID_HOST, .port = 1234 });
 *   rf_send(guest, s, "hello", 5, 0);
 *
 * Semantics are those of BSD sockets; results are 0 or a count on success and -errno on failure
 * (errno itself means nothing). A socket is a small positive integer that carries a generation:
 * using one after rf_close() gives -EBADF, never somebody else's socket, and rf_close() may race
 * with anything.
 *
 * Any thread may call any function at any time, except that nothing may race with rf_guest_close().
 * Each guest runs one thread of its own, named rf-guest; no signal is delivered to it. rf_send()
 * never raises SIGPIPE.
 *
 * When the back end goes away, connections end with -ECONNRESET and listeners stay; the guest
 * attaches again by itself when the back end comes back.
 */
#ifndef RINGFERRY_GUEST_H
#define RINGFERRY_GUEST_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define RF_API __attribute__((visibility("default")))
#else
#define RF_API
#endif

struct rf_guest;

#define RF_CID_HOST 2u
#define RF_CID_ANY  0xffffffffu
#define RF_PORT_ANY 0xffffffffu

/**
 * struct rf_sockaddr - A vsock address
 * @cid:	Context id; RF_CID_HOST for the host, RF_CID_ANY for "any of mine" in rf_bind()
 * @port:	Port; RF_PORT_ANY in rf_bind() picks a free one
 */
struct rf_sockaddr {
	uint32_t cid;
	uint32_t port;
};

/* Type of a socket, and flags that may be added to it. */
#define RF_SOCK_STREAM   1
#define RF_SOCK_NONBLOCK 0x800

/* Flags of rf_send() and rf_recv(). */
#define RF_MSG_DONTWAIT 0x40
#define RF_MSG_PEEK     0x02
#define RF_MSG_WAITALL  0x100

/* How to shut down. */
#define RF_SHUT_RD   0
#define RF_SHUT_WR   1
#define RF_SHUT_RDWR 2

/* Events of rf_poll(): values as in poll(2). */
#define RF_POLLIN    0x001
#define RF_POLLOUT   0x004
#define RF_POLLERR   0x008
#define RF_POLLHUP   0x010
#define RF_POLLNVAL  0x020
#define RF_POLLRDHUP 0x2000

/* Socket options. Sizes in bytes; times in milliseconds. */
enum rf_sockopt {
	/*
	 * Receive window, kept within the two below; 4096 to 2^30. Defaults: the guest's
	 * @window_bytes, 4096, and @window_bytes again. Not once connecting or connected (-EINVAL).
	 */
	RF_SO_BUFFER_SIZE = 0,
	RF_SO_BUFFER_MIN_SIZE = 1,
	RF_SO_BUFFER_MAX_SIZE = 2,
	/* Time for rf_connect(); default 2000, 0 sets the default. */
	RF_SO_CONNECT_TIMEOUT_MS = 6,
	/* Pending error as a positive errno, cleared by reading (as SO_ERROR); cannot be set. */
	RF_SO_ERROR = 100,
	/* 1: calls do not block (as O_NONBLOCK). */
	RF_SO_NONBLOCK = 101,
	/* Bytes that can be read now; cannot be set. */
	RF_SO_INQ = 102,
	/* Bytes sent that the peer has not consumed; cannot be set. */
	RF_SO_OUTQ = 103,
};

/* Levels of log lines. */
#define RF_GUEST_LOG_ERROR   0
#define RF_GUEST_LOG_WARNING 1
#define RF_GUEST_LOG_INFO    2
#define RF_GUEST_LOG_DEBUG   3

/* What happens to a packet when too many wait to be read, besides their bytes. */
#define RF_PACKETS_UNBOUNDED 0 /* nothing: only bytes are bounded */
#define RF_PACKETS_DROP      1 /* dropped, as by Linux 6.12.92 */
#define RF_PACKETS_RESET     2 /* the connection ends with ENOBUFS, as by Linux 6.12.94 */

/* When the host is told of bytes that were read. */
#define RF_CREDIT_BATCHED 0 /* a few times per window */
#define RF_CREDIT_EAGER   1 /* at once, as by Linux before 5.4 */
#define RF_CREDIT_LINUX   2 /* when less than 64 KiB of the window is free, as by Linux 6.1 */

/* Value of rf_guest_options.poll_us: for 50 us, as long as that pays. */
#define RF_POLL_AUTO (-1)

/**
 * struct rf_guest_options - How to open a guest; rf_guest_options_init() sets the defaults
 * @size:		Set by rf_guest_options_init(): the structure's size in the caller's version
 * @socket_path:	The back end's vhost-user socket. Just one of this, @socket_fd and
 *			@vhost_device is required.
 * @socket_fd:		A socket connected to the back end, such as one end of a socketpair whose
 *			other end a host in the same process serves (ringferry/host.h). It is made
 *			non-blocking and belongs to the guest from now on, also if rf_guest_open()
 *			fails, unless because of @size: then nothing of these options is known.
 *			There is one try, and no other when the back end goes away. Default -1.
 * @vhost_device:	The kernel's back end: "/dev/vhost-vsock", or another name of that device.
 *			One try is made.
 * @guest_cid:		CID that is asked for, 3 to 2^32 - 2; required with @vhost_device,
 *			otherwise 0, the default: a back end at a socket says itself whom it serves.
 * @queue_size:		Ring size, a power of two from 2 to 32768; default 256
 * @rx_buf_bytes:	Payload that the largest receive buffers hold, 256 to 1 MiB; default 65536.
 *			@tune decides which are smaller (rx-buf).
 * @window_bytes:	Receive window of new sockets, 4096 to 2^30; default 1048576
 * @connect_timeout_ms:	How long rf_guest_open() waits for the back end; 0 for one try, -1 for ever;
 *			default 10000
 * @reconnect:		Attach again when the back end comes back; default 1
 * @packet_bound:	RF_PACKETS_*; to test hosts. Default RF_PACKETS_UNBOUNDED.
 * @credit:		RF_CREDIT_*; to test hosts. Default RF_CREDIT_BATCHED. A switch in @tune
 *			wins.
 * @tune:		Switches, "max-packet=4k,credit=eager" (see guest --tune in ringferry(1)):
 *			they recreate what Linux once did, to measure it. Of a wrong one @log is
 *			told. May be NULL, the default.
 * @poll_us:		For how many microseconds a call that waits looks at the receive ring
 *			itself before it sleeps: 0, the default, to 1000, or RF_POLL_AUTO. Answers
 *			come sooner, for CPU time; none while nobody waits. A call that does not
 *			block looks once. While calls poll, what comes for sockets that nobody
 *			waits for may take a millisecond longer, unless they have an event fd.
 * @log_level:		Lines above this level are left out; default RF_GUEST_LOG_INFO
 * @log:		Called with lines for people and their level, from any thread, with locks
 *			held: it may call none of the functions below. NULL for none.
 * @log_ctx:		Passed to @log
 */
struct rf_guest_options {
	size_t size;
	const char *socket_path;
	int socket_fd;
	const char *vhost_device;
	uint32_t guest_cid;
	uint32_t queue_size;
	uint32_t rx_buf_bytes;
	uint32_t window_bytes;
	int connect_timeout_ms;
	int reconnect;
	int packet_bound;
	int credit;
	const char *tune;
	int poll_us;
	int log_level;
	void (*log)(void *ctx, int level, const char *line);
	void *log_ctx;
};

RF_API void rf_guest_options_init(struct rf_guest_options *options);

/**
 * rf_guest_open() - Attach to a back end
 * @options:	Options; nothing of them is kept
 * @ret_guest:	The guest
 *
 * It waits for the back end: a host in the same process must be served by another thread meanwhile.
 *
 * Return: 0; -EINVAL for an option that is not allowed; -ETIMEDOUT if no back end answered in time
 * (or the errno of the one try, such as -ENOENT or -ECONNREFUSED, with a timeout of 0); -EPROTO if
 * it breaks off or answers nonsense, all the time; -ENOTSUP if it is no vsock back end of virtio 1
 * (nor, at a socket, with a configuration space); of @vhost_device -ENOENT, -ENODEV or -ENXIO if
 * the kernel has no such device, -EACCES if it is not for this user, and -EADDRINUSE if another
 * guest has the CID; or another -errno.
 */
RF_API int rf_guest_open(const struct rf_guest_options *options, struct rf_guest **ret_guest);

/**
 * rf_guest_close() - Close all sockets and detach
 *
 * Data that was accepted by rf_send() is on its way: the back end has a second to take it from the
 * ring. NULL may be given.
 */
RF_API void rf_guest_close(struct rf_guest *guest);

/* The guest's CID, as the back end says; 0 while not attached. */
RF_API uint32_t rf_guest_cid(struct rf_guest *guest);

/**
 * rf_guest_counters_json() - Counters as one line of JSON
 *
 * With them: "memory_bytes", what the memory shared with the back end takes now, and "switches".
 *
 * Return: a string to free(3), or NULL when out of memory.
 */
RF_API char *rf_guest_counters_json(struct rf_guest *guest);

/**
 * rf_socket() - Make a socket
 * @type:	RF_SOCK_STREAM, with RF_SOCK_NONBLOCK added or not
 *
 * Return: a socket (positive); -ESOCKTNOSUPPORT; -EMFILE if the guest has 32,768 sockets, those
 * included that were closed and have not heard from their peer yet (8 seconds at most); -ENOMEM.
 */
RF_API int rf_socket(struct rf_guest *guest, int type);

/**
 * rf_bind() - Give a socket a local address
 * @addr:	CID of this guest or RF_CID_ANY; a port, or RF_PORT_ANY for a free one above 1023
 *
 * The port is the socket's until it is closed. A guest has one CID: the same port cannot be bound
 * under both of its names.
 *
 * Return: 0; -EINVAL if it is bound; -EADDRINUSE; -EADDRNOTAVAIL for a foreign CID; -EBADF.
 */
RF_API int rf_bind(struct rf_guest *guest, int sock, const struct rf_sockaddr *addr);

/**
 * rf_listen() - Accept connections to the bound port
 * @backlog:	Connections that may wait for rf_accept(), and one more; further requests are reset
 *
 * Can be called again to change the backlog.
 *
 * Return: 0; -EINVAL if it is not bound, or connected; -EBADF.
 */
RF_API int rf_listen(struct rf_guest *guest, int sock, int backlog);

/**
 * rf_accept() - Take a connection
 * @ret_peer:	Its peer's address; may be NULL
 * @flags:	RF_SOCK_NONBLOCK for the new socket, or 0
 *
 * The new socket has the listener's buffer sizes and connect timeout.
 *
 * Return: a socket; -EAGAIN; -EINVAL if it does not listen, or for other flags; -EBADF, also when
 * it is closed meanwhile.
 */
RF_API int rf_accept(struct rf_guest *guest, int sock, struct rf_sockaddr *ret_peer, int flags);

/**
 * rf_connect() - Connect
 * @addr:	Peer's address
 *
 * A socket that is not bound gets a free port, and another one after -ETIMEDOUT: the answer to the
 * first attempt may still come.
 *
 * Return: 0; -EINPROGRESS on a non-blocking socket (RF_POLLOUT tells when it is decided,
 * RF_SO_ERROR how); -EALREADY; -EISCONN, also when that connection is over; -EINVAL if it listens,
 * or for RF_PORT_ANY; -ECONNRESET if the peer refuses; -ETIMEDOUT; -ENETUNREACH if there is no way
 * to that CID; -EADDRINUSE if an earlier connection of the bound port to that peer, or an earlier
 * attempt of this socket, has not ended yet; -ENODEV while there is no back end; -EBADF. A failed
 * connect can be tried again.
 */
RF_API int rf_connect(struct rf_guest *guest, int sock, const struct rf_sockaddr *addr);

/**
 * rf_send() - Send bytes
 * @flags:	RF_MSG_DONTWAIT or 0
 *
 * Blocks, unless told otherwise, until all bytes are on the ring. Bytes of several threads that
 * send on one socket mix, at no particular place.
 *
 * Return: bytes sent (fewer only if it may not block, or an error came after some); -EAGAIN;
 * -ENOTCONN; -ECONNRESET, once; -EPIPE after RF_SHUT_WR, when the peer does not receive any more,
 * or when the connection is over; -EINVAL for other flags; -EBADF.
 */
RF_API ssize_t rf_send(struct rf_guest *guest, int sock, const void *buf, size_t len, int flags);

/**
 * rf_recv() - Receive bytes
 * @flags:	RF_MSG_DONTWAIT, RF_MSG_PEEK, RF_MSG_WAITALL
 *
 * With RF_MSG_WAITALL fewer bytes come only before the end of file or an error, or if it may not
 * block. Together with RF_MSG_PEEK it waits for no more than fit the receive window.
 *
 * Return: bytes received; 0 at end of file, after RF_SHUT_RD, and for no bytes; -EAGAIN; -ENOTCONN;
 * -ECONNRESET once, after all data, unless the peer has told its end of file before; -ENOBUFS
 * likewise (RF_PACKETS_RESET); -EINVAL for other flags; -EBADF.
 */
RF_API ssize_t rf_recv(struct rf_guest *guest, int sock, void *buf, size_t len, int flags);

/**
 * rf_shutdown() - Stop sending, receiving, or both
 *
 * What was sent before is delivered, then the peer reads the end of file. What was received and not
 * read is dropped by RF_SHUT_RD.
 *
 * Return: 0, -ENOTCONN, -EINVAL, -EBADF.
 */
RF_API int rf_shutdown(struct rf_guest *guest, int sock, int how);

/**
 * rf_close() - Close a socket
 *
 * Returns at once; data already sent is delivered, unread data is dropped. Threads that wait on the
 * socket return with -EBADF.
 *
 * Return: 0, or -EBADF.
 */
RF_API int rf_close(struct rf_guest *guest, int sock);

/* Return: 0, -ENOPROTOOPT, -EINVAL, -ERANGE, -EBADF. */
RF_API int rf_setsockopt(struct rf_guest *guest, int sock, enum rf_sockopt opt, uint64_t value);
RF_API int rf_getsockopt(struct rf_guest *guest, int sock, enum rf_sockopt opt,
			 uint64_t *ret_value);

/* Return: 0, -ENOTCONN (peer), -EBADF. */
RF_API int rf_getsockname(struct rf_guest *guest, int sock, struct rf_sockaddr *ret_addr);
RF_API int rf_getpeername(struct rf_guest *guest, int sock, struct rf_sockaddr *ret_addr);

/**
 * struct rf_pollfd - As struct pollfd
 * @sock:	Socket; negative entries are skipped
 * @events:	RF_POLL* wanted
 * @revents:	RF_POLL* found
 */
struct rf_pollfd {
	int sock;
	short events;
	short revents;
};

/**
 * rf_poll() - Wait for one of several sockets
 * @fds:	Sockets
 * @n:		Their number
 * @timeout_ms:	0 returns at once, -1 waits for ever
 *
 * Return: number of entries with revents; 0 when time ran out; -EINVAL for more than 8,192 entries
 * or a timeout below -1; -ENOMEM.
 */
RF_API int rf_poll(struct rf_guest *guest, struct rf_pollfd *fds, size_t n, int timeout_ms);

/**
 * rf_event_fd() - A descriptor for one's own poll(2) or epoll(7)
 * @sock:	Socket
 * @event:	RF_POLLIN or RF_POLLOUT
 *
 * An eventfd that becomes readable whenever the socket becomes ready in that direction (or breaks),
 * and is so at once if it is ready: read it to clear it (or watch it edge-triggered), then call
 * rf_recv(), rf_accept() or rf_send() until -EAGAIN. Made on demand; belongs to the socket and is
 * closed with it.
 *
 * Return: the descriptor, -EINVAL, -EBADF, or -EMFILE.
 */
RF_API int rf_event_fd(struct rf_guest *guest, int sock, int event);

#ifdef __cplusplus
}
#endif

#endif
