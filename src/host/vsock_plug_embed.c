/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams that end in this process: the program's callbacks copy between guest memory and its own.
 *
 * DOC: Theory of operation. The program is called from the operations of the plug, in the midst of
 * the device's work, and from the plug's turn. What it says of a connection meanwhile, or from
 * another thread at any time (rf_embed_tell()), is only noted: bits of the line, and the line on a
 * stack without locks, which the turn takes off as a whole. So no function of the device is called
 * from within an operation, and no line ends under a callback.
 */
#include "vsock_embed.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "base/iov.h"

enum line_state {
	/* rf_embed_connect() was called; the device has not been asked. */
	LINE_NEW,
	LINE_ASKED,
	/* The guest asks; the program has not been. */
	LINE_DIALLED,
	/* The program does not want it. */
	LINE_REFUSED,
	LINE_OPEN,
};

/**
 * struct rf_vsock_line - One connection
 * @plug:	Its plug
 * @ops, @ctx:	The program's, from LINE_OPEN on if the guest asked
 * @owner:	The device's connection, NULL while LINE_NEW
 * @told:	RF_EMBED_* bits that have not been acted on. Any thread; while it is not 0, the line
 *		is on plug->told or in plug->pending.
 * @next_told:	Next on plug->told
 * @state:	State
 * @refused:	take() did not take all
 * @shut:	RF_HOST_* bits: what the program does not do any more
 * @closed:	The program is done with it
 * @heard:	It was taken off plug->told: @told may be, too
 * @pending:	It is in plug->pending
 * @port, @guest_port: The host's and the guest's port; @port is 0 if the program asked
 * @pending_link: In plug->pending
 * @link:	In plug->lines
 */
struct rf_vsock_line {
	struct rf_vsock_plug *plug;
	const struct rf_host_stream_ops *ops;
	void *ctx;
	void *owner;
	atomic_uint told;
	struct rf_vsock_line *next_told;
	enum line_state state;
	unsigned shut;
	bool refused, closed, heard, pending;
	uint32_t port, guest_port;
	TAILQ_ENTRY(rf_vsock_line) pending_link;
	LIST_ENTRY(rf_vsock_line) link;
};

/* A program's name for a line. */
struct rf_host_conn {
	struct rf_vsock_line line;
};

/**
 * struct listener - A port that the program serves
 */
struct listener {
	LIST_ENTRY(listener) link;
	uint32_t port;
	const struct rf_host_stream_ops *ops;
	void *ctx;
};

/**
 * struct rf_vsock_plug - The connections of one device
 * @options:	As given
 * @ctx:	See rf_embed_set_ctx()
 * @listeners:	Ports served
 * @lines, @n_lines: All lines
 * @told:	Lines of which something was told, the last one first; any thread
 * @pending, @n_pending: Lines on which the turn has to act
 * @n_calling:	Callbacks that are being made, one within the other
 * @muted:	See rf_embed_mute()
 */
struct rf_vsock_plug {
	struct rf_vsock_plug_options options;
	void *ctx;
	LIST_HEAD(, listener) listeners;
	LIST_HEAD(, rf_vsock_line) lines;
	unsigned n_lines;
	_Atomic(struct rf_vsock_line *) told;
	TAILQ_HEAD(, rf_vsock_line) pending;
	unsigned n_pending;
	unsigned n_calling;
	bool muted;
};

static struct rf_host_conn *conn_of(struct rf_vsock_line *line)
{
	return RF_CONTAINER_OF(line, struct rf_host_conn, line);
}

static void pend(struct rf_vsock_line *line)
{
	line->pending = true;
	TAILQ_INSERT_TAIL(&line->plug->pending, line, pending_link);
	line->plug->n_pending++;
}

static void unpend(struct rf_vsock_line *line)
{
	if (!line->pending)
		return;
	line->pending = false;
	TAILQ_REMOVE(&line->plug->pending, line, pending_link);
	line->plug->n_pending--;
}

/* Move what was told to plug->pending. */
static void collect(struct rf_vsock_plug *plug)
{
	struct rf_vsock_line *line, *next, *first = NULL;

	if (!atomic_load_explicit(&plug->told, memory_order_relaxed))
		return;
	line = atomic_exchange_explicit(&plug->told, NULL, memory_order_acquire);
	/* The oldest one first. */
	for (; line; line = next) {
		next = line->next_told;
		line->next_told = first;
		first = line;
	}
	for (line = first; line; line = line->next_told) {
		line->heard = true;
		if (!line->pending)
			pend(line);
	}
}

bool rf_embed_tell(struct rf_host_conn *conn, unsigned bits)
{
	struct rf_vsock_line *line = &conn->line;
	struct rf_vsock_plug *plug = line->plug;
	struct rf_vsock_line *head;

	/* Release: what the thread has done before is seen by the callbacks that follow. Acquire:
	 * the line is off the stack. */
	if (atomic_fetch_or_explicit(&line->told, bits, memory_order_acq_rel))
		return false;
	head = atomic_load_explicit(&plug->told, memory_order_relaxed);
	do
		line->next_told = head;
	while (!atomic_compare_exchange_weak_explicit(&plug->told, &head, line,
						      memory_order_release, memory_order_relaxed));
	return head == NULL;
}

void rf_embed_wake(struct rf_vsock_plug *plug)
{
	plug->options.user->wake(plug->options.device);
}

void rf_embed_set_ctx(struct rf_vsock_plug *plug, void *ctx)
{
	plug->ctx = ctx;
}

void *rf_embed_ctx(const struct rf_host_conn *conn)
{
	return conn->line.plug->ctx;
}

bool rf_embed_calling(const struct rf_vsock_plug *plug)
{
	return plug->n_calling > 0;
}

void rf_embed_mute(struct rf_vsock_plug *plug)
{
	plug->muted = true;
}

/* Lines */

static struct rf_vsock_line *line_new(struct rf_vsock_plug *plug, enum line_state state)
{
	struct rf_host_conn *conn = calloc(1, sizeof(*conn));

	if (!conn)
		return NULL;
	conn->line.plug = plug;
	conn->line.state = state;
	LIST_INSERT_HEAD(&plug->lines, &conn->line, link);
	plug->n_lines++;
	return &conn->line;
}

/* The end of a line; a program that knows of it hears so. */
static void line_end(struct rf_vsock_line *line, int how)
{
	struct rf_vsock_plug *plug = line->plug;

	if (line->state != LINE_DIALLED && line->state != LINE_REFUSED && line->ops->ended) {
		plug->n_calling++;
		line->ops->ended(line->ctx, conn_of(line), how);
		plug->n_calling--;
	}
	/* Something may have been told until now. */
	collect(plug);
	unpend(line);
	LIST_REMOVE(line, link);
	plug->n_lines--;
	free(conn_of(line));
}

/* Has the program said, if only just now, that it does not take or give any more? */
static bool is_shut(const struct rf_vsock_line *line, unsigned what)
{
	unsigned told = atomic_load_explicit(&line->told, memory_order_relaxed);

	return line->closed || line->plug->muted || line->shut & what ||
	       told & (what << 2 | RF_EMBED_CLOSE);
}

/* What has become true for the device. */
static unsigned ready_bits(struct rf_vsock_line *line, unsigned told)
{
	unsigned bits = 0;

	if (told & (RF_EMBED_GIVE | RF_EMBED_SHUT_GIVE))
		bits |= RF_LINE_READABLE;
	if (line->refused && told & (RF_EMBED_TAKE | RF_EMBED_SHUT_TAKE | RF_EMBED_CLOSE)) {
		line->refused = false;
		bits |= RF_LINE_WRITABLE;
	}
	if (told & RF_EMBED_CLOSE)
		bits = (bits & ~RF_LINE_READABLE) | RF_LINE_HANGUP | RF_LINE_DRY;
	return bits;
}

/* Return: 0, or -errno and the line is gone. */
static int ask(struct rf_vsock_line *line)
{
	const struct rf_vsock_plug_options *options = &line->plug->options;
	int r;

	if (line->closed) {
		line_end(line, -ECONNABORTED);
		return -ECANCELED;
	}
	r = options->user->asked(options->device, line, line->guest_port, &line->owner);
	if (r < 0)
		line_end(line, r);
	else
		line->state = LINE_ASKED;
	return r;
}

static struct listener *find_listener(const struct rf_vsock_plug *plug, uint32_t port)
{
	struct listener *listener;

	LIST_FOREACH (listener, &plug->listeners, link)
		if (listener->port == port)
			return listener;
	return NULL;
}

/* The line may be gone after this. */
static void accept_line(struct rf_vsock_line *line)
{
	struct rf_vsock_plug *plug = line->plug;
	/* It may have been closed meanwhile. */
	const struct listener *listener = find_listener(plug, line->port);
	int r = listener && !plug->muted ? 0 : -ECONNREFUSED;

	if (r == 0) {
		line->ops = listener->ops;
		line->ctx = listener->ctx;
	}
	if (r == 0 && line->ops->accept) {
		plug->n_calling++;
		if (line->ops->accept(line->ctx, conn_of(line), line->guest_port, &line->ctx) != 0)
			r = -ECONNREFUSED;
		plug->n_calling--;
	}
	line->state = r == 0 ? LINE_OPEN : LINE_REFUSED;
	plug->options.user->dialled(line->owner, r);
}

/* The line may be gone after this. */
static void act(struct rf_vsock_line *line)
{
	unsigned told = 0, bits;

	/* From then on it may be put on plug->told again. */
	if (line->heard)
		told = atomic_exchange_explicit(&line->told, 0, memory_order_acq_rel);
	line->heard = false;
	line->shut |= told >> 2 & (RF_HOST_TAKE | RF_HOST_GIVE);
	line->closed |= (told & RF_EMBED_CLOSE) != 0;
	if (line->state == LINE_NEW && ask(line) < 0)
		return;
	if (line->state == LINE_DIALLED) {
		accept_line(line);
		return;
	}
	bits = ready_bits(line, told);
	if (bits)
		line->plug->options.user->ready(line->owner, bits);
}

static void embed_turn(struct rf_vsock_plug *plug)
{
	struct rf_vsock_line *line;
	unsigned n;

	collect(plug);
	for (n = plug->n_pending; n && (line = TAILQ_FIRST(&plug->pending)); n--) {
		TAILQ_REMOVE(&plug->pending, line, pending_link);
		plug->n_pending--;
		line->pending = false;
		act(line);
	}
}

static bool embed_waits(const struct rf_vsock_plug *plug)
{
	return plug->n_pending || atomic_load_explicit(&plug->told, memory_order_relaxed);
}

/* Begin */

int rf_embed_listen(struct rf_vsock_plug *plug, uint32_t port, const struct rf_host_stream_ops *ops,
		    void *ctx)
{
	struct listener *listener;

	if (plug->muted)
		return -ENODEV;
	if (find_listener(plug, port))
		return -EADDRINUSE;
	listener = malloc(sizeof(*listener));
	if (!listener)
		return -ENOMEM;
	*listener = (struct listener){
		.port = port,
		.ops = ops,
		.ctx = ctx,
	};
	LIST_INSERT_HEAD(&plug->listeners, listener, link);
	return 0;
}

int rf_embed_unlisten(struct rf_vsock_plug *plug, uint32_t port)
{
	struct listener *listener = find_listener(plug, port);

	if (!listener)
		return -ENOENT;
	LIST_REMOVE(listener, link);
	free(listener);
	return 0;
}

int rf_embed_connect(struct rf_vsock_plug *plug, uint32_t port,
		     const struct rf_host_stream_ops *ops, void *ctx,
		     struct rf_host_conn **ret_conn)
{
	struct rf_vsock_line *line;

	if (plug->muted)
		return -ENODEV;
	if (plug->n_lines >= plug->options.max_lines)
		return -ENOSPC;
	line = line_new(plug, LINE_NEW);
	if (!line)
		return -ENOMEM;
	line->ops = ops;
	line->ctx = ctx;
	line->guest_port = port;
	pend(line);
	rf_embed_wake(plug);
	*ret_conn = conn_of(line);
	return 0;
}

/* Operations */

static int embed_dial(struct rf_vsock_plug *plug, const struct rf_vsock_key *key, void *owner,
		      struct rf_vsock_line **ret_line)
{
	struct rf_vsock_line *line;

	if (plug->muted || !find_listener(plug, key->local_port))
		return -ENOENT;
	line = line_new(plug, LINE_DIALLED);
	if (!line)
		return -ENOMEM;
	line->owner = owner;
	line->port = key->local_port;
	line->guest_port = key->peer_port;
	/* The program is asked in the turn, so that dialled() is never called from here. */
	pend(line);
	rf_embed_wake(plug);
	*ret_line = line;
	return 0;
}

static void embed_established(struct rf_vsock_line *line, uint32_t host_port RF_UNUSED)
{
	line->state = LINE_OPEN;
	if (!line->ops->connected || is_shut(line, 0))
		return;
	line->plug->n_calling++;
	line->ops->connected(line->ctx, conn_of(line));
	line->plug->n_calling--;
}

/* -EFAULT would say that the guest's memory has gone, which the device sees by itself. */
static ssize_t own_error(ssize_t r)
{
	return r == -EFAULT ? -EIO : r;
}

static ssize_t embed_send(struct rf_vsock_line *line, const struct iovec *iov, unsigned n)
{
	size_t len;
	ssize_t r;

	if (!line->ops->take || is_shut(line, RF_HOST_TAKE))
		return -EPIPE;
	line->plug->n_calling++;
	r = line->ops->take(line->ctx, conn_of(line), iov, (int)n);
	line->plug->n_calling--;
	if (r < 0 && r != -EAGAIN)
		return own_error(r);
	len = rf_iov_bytes(iov, n);
	assert(r <= (ssize_t)len);
	line->refused = r < (ssize_t)len;
	return r == 0 ? -EAGAIN : r;
}

static ssize_t embed_recv(struct rf_vsock_line *line, const struct iovec *iov, unsigned n)
{
	ssize_t r;

	/* The turn closes it: that says more than the end of the file. */
	if (is_shut(line, 0))
		return -EAGAIN;
	if (!line->ops->give || is_shut(line, RF_HOST_GIVE))
		return 0;
	line->plug->n_calling++;
	r = line->ops->give(line->ctx, conn_of(line), iov, (int)n);
	line->plug->n_calling--;
	assert(r <= 0 || r <= (ssize_t)rf_iov_bytes(iov, n));
	return own_error(r);
}

/* The guest's word is the opposite of the program's: it will not send is nothing to take. */
static void embed_shutdown(struct rf_vsock_line *line, unsigned bits)
{
	int what = 0;

	if (bits & RF_VSOCK_SHUT_SEND)
		what |= RF_HOST_TAKE;
	if (bits & RF_VSOCK_SHUT_RCV)
		what |= RF_HOST_GIVE;
	if (!line->ops->shut || is_shut(line, 0))
		return;
	line->plug->n_calling++;
	line->ops->shut(line->ctx, conn_of(line), what);
	line->plug->n_calling--;
}

static int how_ended(enum rf_vsock_reason reason)
{
	switch (reason) {
	case RF_VSOCK_CLOSED:
		return 0;
	case RF_VSOCK_REFUSED:
		return -ECONNREFUSED;
	case RF_VSOCK_PEER_RESET:
		return -ECONNRESET;
	case RF_VSOCK_LOCAL_RESET:
		return -ECONNABORTED;
	case RF_VSOCK_TRANSPORT_RESET:
		return -ENETRESET;
	case RF_VSOCK_HANDSHAKE_TIMEOUT:
	case RF_VSOCK_SHUTDOWN_TIMEOUT:
		return -ETIMEDOUT;
	default:
		return -EPROTO;
	}
}

static void embed_close(struct rf_vsock_line *line, enum rf_vsock_reason reason)
{
	line_end(line, how_ended(reason));
}

static void embed_free(struct rf_vsock_plug *plug)
{
	struct rf_vsock_line *line, *next;
	struct listener *listener;

	plug->muted = true;
	/* Those of which the device has never heard. */
	for (line = LIST_FIRST(&plug->lines); line; line = next) {
		next = LIST_NEXT(line, link);
		line_end(line, -ENETRESET);
	}
	while ((listener = LIST_FIRST(&plug->listeners))) {
		LIST_REMOVE(listener, link);
		free(listener);
	}
	free(plug);
}

static int embed_open(const struct rf_vsock_plug_options *options, struct rf_vsock_plug **ret_plug)
{
	struct rf_vsock_plug *plug = calloc(1, sizeof(*plug));

	if (!plug)
		return -ENOMEM;
	plug->options = *options;
	LIST_INIT(&plug->listeners);
	LIST_INIT(&plug->lines);
	TAILQ_INIT(&plug->pending);
	*ret_plug = plug;
	return 0;
}

const struct rf_vsock_plug_ops rf_vsock_plug_embed = {
	.name = "embed",
	.open = embed_open,
	.free = embed_free,
	.dial = embed_dial,
	.turn = embed_turn,
	.waits = embed_waits,
	.established = embed_established,
	.send = embed_send,
	.recv = embed_recv,
	.shutdown = embed_shutdown,
	.close = embed_close,
};
