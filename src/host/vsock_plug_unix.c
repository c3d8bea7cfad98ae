/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hybrid unix socket: host programs connect to <uds> and say CONNECT; the guest's connections
 * to port P of the host go to <uds>_P.
 */
#include "host/vsock_plug.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/iov.h"
#include "connect_line.h"
#include "host/limits.h"
#include "host/listener.h"
#include "io_batch.h"
#include "vsock/packet.h"

enum line_state {
	/* Waiting for the CONNECT line. */
	LINE_ASKING,
	/* CONNECT was read; the guest has not accepted yet. */
	LINE_ASKED,
	/* connect(2) goes on, or is to be tried again. */
	LINE_DIALLING,
	LINE_OPEN,
};

/**
 * struct rf_vsock_line - One host program's socket
 * @plug:	Its plug
 * @watch:	Registered edge-triggered once; EPOLLOUT only while send() was refused
 * @owner:	The device's connection
 * @fd:		Socket
 * @state:	State
 * @port:	The guest's port (ASKING on) or the host's (DIALLING on)
 * @want_out:	EPOLLOUT is asked for
 * @link:	In plug->asking while ASKING, else in plug->lines
 * @timer:	Time for the CONNECT line, or the next try to dial
 * @deadline_ns: When to give up dialling
 * @retry_ns:	How long to wait before the next try
 * @got:	Bytes of the CONNECT line so far
 * @text:	The CONNECT line so far
 *
 * What sending and receiving look at comes first.
 */
struct rf_vsock_line {
	struct rf_vsock_plug *plug;
	struct rf_watch watch;
	void *owner;
	int fd;
	enum line_state state;
	uint32_t port;
	bool want_out;
	TAILQ_ENTRY(rf_vsock_line) link;
	struct rf_timer timer;
	uint64_t deadline_ns;
	uint64_t retry_ns;
	unsigned got;
	char text[RF_HOST_LINE_BYTES];
};

TAILQ_HEAD(lines, rf_vsock_line);

/**
 * struct rf_vsock_plug - A hybrid socket
 * @options:	As given, but for the path
 * @listener:	Where host programs connect
 * @limit:	Of log lines
 * @path:	Its path
 * @n_lines:	All lines
 * @batch:	Batches of its lines
 * @lines:	Lines that somebody has said something on
 * @asking:	Lines whose CONNECT has not come, the oldest first
 */
struct rf_vsock_plug {
	struct rf_vsock_plug_options options;
	struct rf_listener listener;
	struct rf_log_limit limit;
	char *path;
	unsigned n_lines;
	struct rf_io_batch batch;
	struct lines lines, asking;
};

#define EVENTS (EPOLLIN | EPOLLRDHUP | EPOLLET)

static void line_ready(struct rf_watch *watch, uint32_t events);
static void line_timer(struct rf_timer *timer);

static struct lines *lines_of(const struct rf_vsock_line *line)
{
	return line->state == LINE_ASKING ? &line->plug->asking : &line->plug->lines;
}

/* Takes over @fd on success. */
static struct rf_vsock_line *line_new(struct rf_vsock_plug *plug, int fd, enum line_state state)
{
	struct rf_vsock_line *line = calloc(1, sizeof(*line));

	if (!line)
		return NULL;
	line->plug = plug;
	line->fd = fd;
	line->state = state;
	line->watch.ready = line_ready;
	line->timer.expired = line_timer;
	TAILQ_INSERT_TAIL(lines_of(line), line, link);
	plug->n_lines++;
	return line;
}

static void line_free(struct rf_vsock_line *line)
{
	rf_watch_remove(&line->watch);
	rf_timer_stop(&line->timer);
	rf_fd_close(line->fd);
	TAILQ_REMOVE(lines_of(line), line, link);
	line->plug->n_lines--;
	free(line);
}

/*
 * Room for one more line, if need be in the place of the host program that has been silent for
 * longest: whoever connects and says nothing keeps nobody out.
 */
static bool make_room(struct rf_vsock_plug *plug)
{
	if (plug->n_lines >= plug->options.max_lines && !TAILQ_EMPTY(&plug->asking)) {
		rf_log_limited(plug->options.log, &plug->limit, RF_LOG_WARNING,
			       "%u connections are open, no more are allowed; closed one that "
			       "waits for its \"CONNECT <port>\" line",
			       plug->n_lines);
		plug->options.user->turned_away(plug->options.device, -ENOSPC);
		line_free(TAILQ_FIRST(&plug->asking));
	}
	return plug->n_lines < plug->options.max_lines;
}

static int line_watch(struct rf_vsock_line *line)
{
	return rf_watch_add(line->plug->options.loop, &line->watch, line->fd, EVENTS);
}

/* A large send buffer saves a sleep per packet of 64 KiB; what is not granted is not missed. */
static void set_sndbuf(int fd)
{
	int bytes = RF_HOST_SNDBUF_BYTES;

	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

/*
 * Read up to the line feed and not one byte further: what follows is the guest's. Looking before
 * taking costs a second system call, once per connection.
 *
 * Return: 1 when the line is complete, 0 if more must come, -errno.
 */
static int read_line(struct rf_vsock_line *line)
{
	for (;;) {
		char *at = line->text + line->got;
		size_t room = sizeof(line->text) - line->got;
		ssize_t n = recv(line->fd, at, room, MSG_PEEK | MSG_DONTWAIT);
		const char *end = n > 0 ? memchr(at, '\n', (size_t)n) : NULL;

		if (n > 0)
			n = recv(line->fd, at, end ? (size_t)(end - at + 1) : (size_t)n,
				 MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n == 0 ? -ECONNRESET : errno == EAGAIN ? 0 : -errno;
		line->got += (unsigned)n;
		if (at[n - 1] == '\n')
			return 1;
		if (line->got == sizeof(line->text))
			return -EINVAL;
	}
}

/* Return: true if the device has the line now; else more must come, or the line is gone. */
static bool line_asking(struct rf_vsock_line *line)
{
	struct rf_vsock_plug *plug = line->plug;
	int r = read_line(line);

	if (r == 0)
		return false;
	if (r == 1)
		r = rf_connect_line_parse(line->text, line->got - 1, &line->port);
	if (r == -EINVAL) {
		rf_log_limited(plug->options.log, &plug->limit, RF_LOG_WARNING,
			       "a host program sent no valid \"CONNECT <port>\" line; closed");
		plug->options.user->turned_away(plug->options.device, r);
	}
	if (r == 0) {
		rf_timer_stop(&line->timer);
		TAILQ_REMOVE(&plug->asking, line, link);
		line->state = LINE_ASKED;
		TAILQ_INSERT_TAIL(&plug->lines, line, link);
		r = plug->options.user->asked(plug->options.device, line, line->port, &line->owner);
	}
	if (r < 0)
		line_free(line);
	return r == 0;
}

static void line_ready(struct rf_watch *watch, uint32_t events)
{
	struct rf_vsock_line *line = RF_CONTAINER_OF(watch, struct rf_vsock_line, watch);
	unsigned bits = 0;

	/* The line may come together with a hang-up, which is told only this once. */
	if (line->state == LINE_ASKING && !line_asking(line))
		return;
	if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		bits |= RF_LINE_READABLE;
	if (events & (EPOLLHUP | EPOLLERR))
		bits |= RF_LINE_HANGUP;
	/* A hang-up also ends the wait to write: the next send() says how. */
	if (line->want_out && (events & (EPOLLOUT | EPOLLHUP | EPOLLERR))) {
		bits |= RF_LINE_WRITABLE;
		line->want_out = false;
		(void)rf_watch_set(watch, EVENTS);
	}
	if (bits)
		line->plug->options.user->ready(line->owner, bits);
}

static void plug_accepted(struct rf_listener *listener, int fd)
{
	struct rf_vsock_plug *plug = RF_CONTAINER_OF(listener, struct rf_vsock_plug, listener);
	struct rf_vsock_line *line = NULL;

	if (make_room(plug)) {
		line = line_new(plug, fd, LINE_ASKING);
	} else {
		rf_log_limited(plug->options.log, &plug->limit, RF_LOG_WARNING,
			       "%u connections are open, no more are allowed; closed one",
			       plug->n_lines);
		plug->options.user->turned_away(plug->options.device, -ENOSPC);
	}
	if (!line) {
		rf_fd_close(fd);
		return;
	}
	set_sndbuf(fd);
	if (line_watch(line) < 0 ||
	    rf_timer_start(plug->options.loop, &line->timer,
			   rf_loop_now(plug->options.loop) + plug->options.line_ns) < 0)
		line_free(line);
}

/*
 * Try to connect once. A unix socket connects at once or not at all: -EAGAIN is a full backlog.
 *
 * Return: 0 or -errno.
 */
static int dial_once(struct rf_vsock_line *line)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int n = snprintf(addr.sun_path, sizeof(addr.sun_path), "%s_%u", line->plug->path,
			 line->port);

	if (n < 0 || (size_t)n >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;
	if (line->fd < 0) {
		line->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (line->fd < 0)
			return -errno;
		set_sndbuf(line->fd);
	}
	return connect(line->fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 ? -errno : 0;
}

static void dial_next(struct rf_vsock_line *line)
{
	struct rf_loop *loop = line->plug->options.loop;
	uint64_t now = rf_loop_now(loop);
	int r = dial_once(line);

	if ((r == -EAGAIN || r == -EMFILE || r == -ENFILE) && now < line->deadline_ns &&
	    rf_timer_start(loop, &line->timer,
			   rf_min_u64(now + line->retry_ns, line->deadline_ns)) == 0) {
		line->retry_ns = rf_min_u64(2 * line->retry_ns, RF_HOST_RETRY_LAST_NS);
		return;
	}
	if (r == 0) {
		line->state = LINE_OPEN;
		r = line_watch(line);
	}
	line->plug->options.user->dialled(line->owner, r);
}

static void line_timer(struct rf_timer *timer)
{
	struct rf_vsock_line *line = RF_CONTAINER_OF(timer, struct rf_vsock_line, timer);
	struct rf_vsock_plug *plug = line->plug;

	if (line->state == LINE_DIALLING) {
		dial_next(line);
		return;
	}
	line_free(line);
	plug->options.user->turned_away(plug->options.device, -ETIMEDOUT);
}

static int unix_dial(struct rf_vsock_plug *plug, const struct rf_vsock_key *key, void *owner,
		     struct rf_vsock_line **ret_line)
{
	struct rf_vsock_line *line;
	uint64_t now = rf_loop_now(plug->options.loop);

	if (!make_room(plug))
		return -ENOSPC;
	line = line_new(plug, -1, LINE_DIALLING);
	if (!line)
		return -ENOMEM;
	line->port = key->local_port;
	line->owner = owner;
	line->deadline_ns = now + plug->options.dial_ns;
	line->retry_ns = RF_HOST_RETRY_FIRST_NS;
	/* The first try comes from the loop too, so that dialled() is never called from here. */
	if (rf_timer_start(plug->options.loop, &line->timer, now) < 0) {
		line_free(line);
		return -ENOMEM;
	}
	*ret_line = line;
	return 0;
}

/* One write: clients exist that cannot put the reply together from pieces. */
static void unix_established(struct rf_vsock_line *line, uint32_t host_port)
{
	bool names_host = line->plug->options.ok_port == RF_HOST_OK_PORT_HOST;
	char reply[sizeof("OK 4294967295\n")];
	int n = snprintf(reply, sizeof(reply), "OK %u\n", names_host ? host_port : line->port);
	ssize_t sent;

	line->state = LINE_OPEN;
	do
		sent = send(line->fd, reply, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	/* An empty socket takes it, unless the kernel has no memory: the program must not wait then
	 * or take what follows for the reply. One that is gone shows in recv(). */
	if (sent != n)
		(void)shutdown(line->fd, SHUT_RDWR);
}

/* @sent: bytes or -errno of sendmsg(). Return: what send() is to return. */
static ssize_t line_sent(struct rf_vsock_line *line, const struct iovec *iov, unsigned n,
			 ssize_t sent)
{
	if (sent < 0 && sent != -EAGAIN)
		return sent == -ECONNRESET ? -EPIPE : sent;
	if (sent < (ssize_t)rf_iov_bytes(iov, n)) {
		/* Nothing else would tell when there is room again. */
		int r = rf_watch_set(&line->watch, EVENTS | EPOLLOUT);

		if (r < 0)
			return r;
		line->want_out = true;
	}
	return sent;
}

static ssize_t unix_send(struct rf_vsock_line *line, const struct iovec *iov, unsigned n)
{
	struct msghdr msg = { .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = n };
	ssize_t sent;

	do
		sent = sendmsg(line->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	return line_sent(line, iov, n, sent < 0 ? -errno : sent);
}

static ssize_t unix_recv(struct rf_vsock_line *line, const struct iovec *iov, unsigned n)
{
	struct msghdr msg = { .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = n };
	ssize_t got;

	do
		got = recvmsg(line->fd, &msg, MSG_DONTWAIT);
	while (got < 0 && (errno == EINTR || errno == ECONNRESET));
	/* ECONNRESET is reported once, before the data that is still there: it is only read over.
	 */
	return got < 0 ? -errno : got;
}

static bool run_batch(const struct rf_vsock_io *ios, unsigned n, struct rf_io_op *ops, bool send)
{
	for (unsigned i = 0; i < n; i++)
		ops[i] = (struct rf_io_op){
			.fd = ios[i].line->fd,
			.send = send,
			.msg.msg_iov = (struct iovec *)(uintptr_t)ios[i].iov,
			.msg.msg_iovlen = ios[i].n,
		};
	return rf_io_batch_run(&ios[0].line->plug->batch, ops, n);
}

static bool unix_send_many(struct rf_vsock_io *ios, unsigned n)
{
	struct rf_io_op ops[RF_IO_BATCH_MAX];
	bool ran = run_batch(ios, n, ops, true);

	for (unsigned i = 0; i < n; i++) {
		struct rf_vsock_io *io = &ios[i];

		if (!ran || ops[i].result == -EINTR)
			io->result = unix_send(io->line, io->iov, io->n);
		else
			io->result = line_sent(io->line, io->iov, io->n, ops[i].result);
	}
	return ran;
}

static bool unix_recv_many(struct rf_vsock_io *ios, unsigned n)
{
	struct rf_io_op ops[RF_IO_BATCH_MAX];
	bool ran = run_batch(ios, n, ops, false);

	for (unsigned i = 0; i < n; i++) {
		struct rf_vsock_io *io = &ios[i];

		if (!ran || ops[i].result == -EINTR || ops[i].result == -ECONNRESET)
			io->result = unix_recv(io->line, io->iov, io->n);
		else
			io->result = ops[i].result;
	}
	return ran;
}

static void unix_shutdown(struct rf_vsock_line *line, unsigned bits)
{
	if (bits & RF_VSOCK_SHUT_SEND)
		(void)shutdown(line->fd, SHUT_WR);
	if (bits & RF_VSOCK_SHUT_RCV)
		(void)shutdown(line->fd, SHUT_RD);
}

/* A unix socket cannot carry a reset: the host program sees end of file either way. */
static void unix_close(struct rf_vsock_line *line, enum rf_vsock_reason reason RF_UNUSED)
{
	line_free(line);
}

static void free_lines(struct lines *lines)
{
	struct rf_vsock_line *line, *next;

	for (line = TAILQ_FIRST(lines); line; line = next) {
		next = TAILQ_NEXT(line, link);
		line_free(line);
	}
}

static void unix_free(struct rf_vsock_plug *plug)
{
	free_lines(&plug->asking);
	free_lines(&plug->lines);
	rf_listener_close(&plug->listener);
	rf_io_batch_fini(&plug->batch);
	free(plug->path);
	free(plug);
}

static int unix_open(const struct rf_vsock_plug_options *options, struct rf_vsock_plug **ret_plug)
{
	struct rf_vsock_plug *plug;
	int r = -ENOMEM;

	if (!options->path)
		return 0;
	plug = calloc(1, sizeof(*plug));
	if (!plug)
		return -ENOMEM;
	plug->options = *options;
	plug->batch.log = options->log;
	TAILQ_INIT(&plug->lines);
	TAILQ_INIT(&plug->asking);
	plug->listener.accepted = plug_accepted;
	plug->path = strdup(options->path);
	if (plug->path)
		r = rf_listener_open(&plug->listener, options->loop, options->log, options->path,
				     &options->access);
	if (r == 0)
		r = rf_listener_resume(&plug->listener);
	if (r < 0) {
		unix_free(plug);
		return r;
	}
	*ret_plug = plug;
	return 0;
}

const struct rf_vsock_plug_ops rf_vsock_plug_unix = {
	.name = "unix",
	.open = unix_open,
	.free = unix_free,
	.dial = unix_dial,
	.established = unix_established,
	.send = unix_send,
	.recv = unix_recv,
	.send_many = unix_send_many,
	.recv_many = unix_recv_many,
	.shutdown = unix_shutdown,
	.close = unix_close,
};
