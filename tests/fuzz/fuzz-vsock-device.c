/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A served vsock device between a guest and host programs that do whatever the input says. The
 * input is a program of operations of one byte with their operands. Whatever happens: each
 * connection sees bytes in order and none that were not sent, packets come in the order of a
 * connection's life, every line of the plug is closed once, and no descriptor and no memory stays
 * behind.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/iov.h"
#include "fake_guest.h"
#include "host/vsock_device.h"
#include "pattern.h"
#include "ring/mem.h"
#include "vhost/message.h"
#include "warp_clock.h"

#define N_CONNS 256
#define N_PORTS 6
#define N_LINES 64

enum op {
	OP_OPEN,    /* connection: all that it takes to establish it */
	OP_PACKET,  /* connection, operation, flags, lie */
	OP_DATA,    /* connection, length (2), shape */
	OP_HEADER,  /* 44 bytes, length */
	OP_KICK,    /* ring */
	OP_POST,    /* number, length (2), shape */
	OP_RECEIVE, /* number */
	OP_CREDIT,  /* connection, buf_alloc (2), consume everything? */
	OP_TURN,    /* idle, one turn, or a busy loop? */
	OP_ASK,     /* port */
	OP_DIALLED, /* line, result */
	OP_WRITE,   /* line, bytes (2) */
	OP_ACCEPT,  /* line, bytes (2): what send() may take */
	OP_END,     /* line, how */
	OP_RESTART, /* order, blank */
	OP_HANGUP,
	OP_WARP, /* tenths of a second */
	OP_POKE, /* ring, offset (2), value (2) */
	OP_N
};

/**
 * struct rf_vsock_line - A host program
 * @used:	There is one
 * @dialling:	dial() goes on
 * @open:	Bytes may flow
 * @gone:	It has hung up
 * @refused:	send() took less than it was offered
 * @told_shut:	What shutdown() told
 * @room:	Bytes that send() may take
 * @in, @out:	Bytes to be received from it, and received so far
 * @sent:	Bytes that it got
 * @ended:	End of file behind @in
 * @error:	What send() returns instead of taking anything
 */
struct rf_vsock_line {
	bool used, dialling, open, gone, ended, refused;
	unsigned told_shut;
	uint32_t room, in, out, sent;
	int error;
	void *owner;
};

/* What the guest has seen of a pair of ports, in the order of its ring. */
struct seen {
	struct fake_conn c;
	bool open, shut;
};

struct fuzz {
	const uint8_t *data;
	size_t left;
	struct rf_loop *loop;
	struct rf_vsock_device *device;
	const struct rf_vsock_plug_user *user;
	void *user_device;
	struct fake_guest guest;
	struct rf_vsock_line lines[N_LINES];
	struct seen seen[N_CONNS];
	unsigned n_seen;
	/* The guest has written to its rings what its driver does not know. */
	bool wild;
};

static struct fuzz *the;

static uint8_t next(struct fuzz *f)
{
	if (!f->left)
		return 0;
	f->left--;
	return *f->data++;
}

static uint16_t next_u16(struct fuzz *f)
{
	uint16_t low = next(f);

	return (uint16_t)(low | next(f) << 8);
}

/* The plug: host programs in memory */

struct rf_vsock_plug {
	int unused;
};

static int fuzz_open(const struct rf_vsock_plug_options *options, struct rf_vsock_plug **ret_plug)
{
	the->user = options->user;
	the->user_device = options->device;
	*ret_plug = calloc(1, sizeof(**ret_plug));
	return *ret_plug ? 0 : -ENOMEM;
}

static void fuzz_free(struct rf_vsock_plug *plug)
{
	/* The device closes every line that it was given. */
	for (unsigned i = 0; i < N_LINES; i++)
		FAKE_CHECK(!the->lines[i].used);
	free(plug);
}

static struct rf_vsock_line *new_line(void)
{
	for (unsigned i = 0; i < N_LINES; i++)
		if (!the->lines[i].used) {
			the->lines[i] = (struct rf_vsock_line){ .used = true, .room = 1000 };
			return &the->lines[i];
		}
	return NULL;
}

static int fuzz_dial(struct rf_vsock_plug *plug, const struct rf_vsock_key *key, void *owner,
		     struct rf_vsock_line **ret_line)
{
	struct rf_vsock_line *line = key->local_port % 7 == 3 ? NULL : new_line();

	(void)plug;
	if (!line)
		return -ENOSPC;
	line->dialling = true;
	line->owner = owner;
	*ret_line = line;
	return 0;
}

static void fuzz_established(struct rf_vsock_line *line, uint32_t host_port RF_UNUSED)
{
	FAKE_CHECK(line->used && !line->open && !line->dialling);
	line->open = true;
}

static ssize_t fuzz_send(struct rf_vsock_line *line, const struct iovec *iov, unsigned n)
{
	size_t len = rf_min_size(rf_iov_bytes(iov, n), line->room);
	uint8_t buf[65536];

	FAKE_CHECK(line->used && line->open && !(line->told_shut & RF_VSOCK_SHUT_SEND));
	FAKE_CHECK(n > 0 && n <= RF_IOV_MAX && rf_iov_bytes(iov, n) > 0);
	if (line->gone)
		return -EPIPE;
	if (line->error)
		return line->error;
	len = rf_iov_copy_out(iov, n, 0, buf, rf_min_size(len, sizeof(buf)));
	line->refused = len < rf_iov_bytes(iov, n);
	if (!len)
		return -EAGAIN;
	for (size_t i = 0; i < len && !the->wild; i++)
		FAKE_CHECK(buf[i] == pattern_byte(line->sent + (uint32_t)i));
	line->sent += (uint32_t)len;
	line->room -= (uint32_t)len;
	return (ssize_t)len;
}

static ssize_t fuzz_recv(struct rf_vsock_line *line, const struct iovec *iov, unsigned n)
{
	size_t len = rf_min_size(rf_iov_bytes(iov, n), line->in - line->out);
	uint8_t buf[65536];

	FAKE_CHECK(line->used && line->open && !(line->told_shut & RF_VSOCK_SHUT_RCV));
	FAKE_CHECK(n > 0 && n <= RF_IOV_MAX && rf_iov_bytes(iov, n) > 0);
	if (!len)
		return line->ended ? 0 : -EAGAIN;
	len = rf_min_size(len, sizeof(buf));
	for (size_t i = 0; i < len; i++)
		buf[i] = pattern_byte(line->out + (uint32_t)i);
	FAKE_CHECK(rf_iov_copy_in(iov, n, 0, buf, len) == len);
	line->out += (uint32_t)len;
	return (ssize_t)len;
}

static void fuzz_shutdown(struct rf_vsock_line *line, unsigned bits)
{
	FAKE_CHECK(line->used && line->open && bits && !(bits & line->told_shut));
	line->told_shut |= bits;
}

static void fuzz_close(struct rf_vsock_line *line, enum rf_vsock_reason reason RF_UNUSED)
{
	FAKE_CHECK(line->used);
	line->used = false;
}

static const struct rf_vsock_plug_ops fuzz_plug = {
	.name = "fuzz",
	.open = fuzz_open,
	.free = fuzz_free,
	.dial = fuzz_dial,
	.established = fuzz_established,
	.send = fuzz_send,
	.recv = fuzz_recv,
	.shutdown = fuzz_shutdown,
	.close = fuzz_close,
};

static const struct rf_vsock_plug_ops *const fuzz_plugs[] = { &fuzz_plug, NULL };

/* Host programs act */

/* One of those that there are; any other if there is none. */
static struct rf_vsock_line *pick_line(struct fuzz *f)
{
	unsigned i = next(f), used[N_LINES] = { 0 }, n = 0;

	for (unsigned k = 0; k < N_LINES; k++)
		if (f->lines[k].used)
			used[n++] = k;
	return &f->lines[n ? used[i % n] : 0];
}

static void ask(struct fuzz *f)
{
	struct rf_vsock_line *line = new_line();

	if (line && f->user->asked(f->user_device, line, 100 + next(f) % N_PORTS, &line->owner) < 0)
		line->used = false;
}

static void dialled(struct fuzz *f)
{
	struct rf_vsock_line *line = pick_line(f);
	uint8_t result = next(f);

	if (!line->used || !line->dialling)
		return;
	line->dialling = false;
	line->open = result % 4;
	f->user->dialled(line->owner, result % 4 ? 0 : -ECONNREFUSED);
}

static void tell(struct fuzz *f, struct rf_vsock_line *line, unsigned bits)
{
	if (line->used && !line->dialling)
		f->user->ready(line->owner, bits);
}

static void write_line(struct fuzz *f)
{
	struct rf_vsock_line *line = pick_line(f);

	if (!line->used || line->ended)
		return;
	line->in += next_u16(f);
	tell(f, line, RF_LINE_READABLE);
}

static void accept_line(struct fuzz *f)
{
	struct rf_vsock_line *line = pick_line(f);
	bool refused = line->refused;

	line->room += next_u16(f);
	line->refused = false;
	if (refused)
		tell(f, line, RF_LINE_WRITABLE);
}

static void end_line(struct fuzz *f)
{
	struct rf_vsock_line *line = pick_line(f);

	if (!line->used || line->dialling)
		return;
	switch (next(f) % 3) {
	case 0:
		line->ended = true;
		tell(f, line, RF_LINE_READABLE);
		break;
	case 1:
		line->error = -EPIPE;
		tell(f, line, RF_LINE_WRITABLE);
		break;
	default:
		line->ended = line->gone = true;
		tell(f, line,
		     RF_LINE_READABLE | RF_LINE_HANGUP | (line->refused ? RF_LINE_WRITABLE : 0));
		break;
	}
}

/* The guest acts */

/* The pair of ports, made known if it was not. */
static struct seen *find(struct fuzz *f, uint32_t port, uint32_t host_port)
{
	struct seen *s;

	for (s = f->seen; s < &f->seen[f->n_seen]; s++)
		if (s->c.port == port && s->c.host_port == host_port)
			return s;
	if (f->n_seen == N_CONNS)
		return NULL;
	f->n_seen++;
	*s = (struct seen){ 0 };
	fake_conn_init(&s->c, &f->guest, port, host_port);
	s->c.buf_alloc = 3000;
	return s;
}

static struct seen *pick(struct fuzz *f)
{
	uint8_t i = next(f);

	/* Those that the guest makes, or any that it has heard of. */
	if (i & 1 || !f->n_seen)
		return find(f, 100 + i / 2 % N_PORTS, 10 + i / 16);
	return &f->seen[i % f->n_seen];
}

/* Can the guest put another packet on its ring? */
static bool can_send(struct fuzz *f)
{
	return f->guest.rings[FAKE_TX].drvq && !f->wild &&
	       fake_guest_room(&f->guest, FAKE_TX) > 40 && fake_guest_unsent(&f->guest) < 40;
}

static void packet(struct fuzz *f)
{
	struct seen *s = pick(f);
	uint8_t op = next(f), flags = next(f), lie = next(f);
	struct rf_vsock_hdr hdr;

	if (!s || !can_send(f))
		return;
	/* Data has an operation of its own. */
	op = op % 10 == VIRTIO_VSOCK_OP_RW ? VIRTIO_VSOCK_OP_REQUEST : op % 10;
	if (op == VIRTIO_VSOCK_OP_REQUEST)
		s->c.tx_cnt = s->c.fwd_cnt = 0;
	hdr = fake_conn_hdr(&s->c, op, 0);
	hdr.flags = flags;
	if (lie == 1)
		hdr.fwd_cnt += 77;
	if (lie == 2)
		hdr.src_cid++;
	if (lie == 3)
		hdr.dst_cid = UINT64_MAX;
	if (lie == 4)
		hdr.type = 2;
	if (lie == 5)
		hdr.len = 1;
	fake_guest_put(&f->guest, &hdr, NULL, 0, &fake_shapes[flags % fake_n_shapes]);
}

/* REQUEST, a host program that accepts, receive buffers. */
static void open_conn(struct fuzz *f)
{
	struct seen *s = pick(f);

	if (!s || !can_send(f))
		return;
	s->c.tx_cnt = s->c.fwd_cnt = 0;
	fake_conn_control(&s->c, VIRTIO_VSOCK_OP_REQUEST, 0);
	if (fake_guest_room(&f->guest, FAKE_RX) > 4)
		fake_guest_post(&f->guest, 4, 500, &fake_shape_one);
	fake_guest_idle(&f->guest);
	for (unsigned i = 0; i < N_LINES; i++) {
		struct rf_vsock_line *line = &f->lines[i];

		if (!line->used || !line->dialling)
			continue;
		line->dialling = false;
		line->open = true;
		f->user->dialled(line->owner, 0);
	}
	fake_guest_idle(&f->guest);
}

static void send_data(struct fuzz *f)
{
	struct seen *s = pick(f);
	uint32_t bytes = next_u16(f) % 6000;
	const struct fake_shape *shape = &fake_shapes[next(f) % fake_n_shapes];
	uint8_t buf[6000];

	if (!s || !can_send(f))
		return;
	for (uint32_t i = 0; i < bytes; i++)
		buf[i] = pattern_byte(s->c.tx_cnt + i);
	fake_conn_put(&s->c, buf, bytes, shape);
}

static void raw_header(struct fuzz *f)
{
	uint8_t raw[64] = { 0 };
	uint32_t bytes = next(f) % sizeof(raw);

	for (uint32_t i = 0; i < 44; i++)
		raw[i] = next(f);
	if (can_send(f))
		fake_guest_put_raw(&f->guest, raw, bytes ? bytes : 1, &fake_shape_one);
}

static void post(struct fuzz *f)
{
	unsigned n = next(f) % 8;
	uint32_t bytes = 1 + next_u16(f) % 5000;
	const struct fake_shape *shape = &fake_shapes[next(f) % fake_n_shapes];

	for (; n && f->guest.rings[FAKE_RX].drvq && !f->wild; n--)
		if (fake_guest_room(&f->guest, FAKE_RX) > 40)
			fake_guest_post(&f->guest, 1, bytes, shape);
}

/* One packet of the device: is it the next in the life of its connection? */
static void judge(struct fuzz *f, const struct fake_packet *p)
{
	struct seen *s = find(f, p->hdr.dst_port, p->hdr.src_port);

	FAKE_CHECK(p->hdr.op >= VIRTIO_VSOCK_OP_REQUEST &&
		   p->hdr.op <= VIRTIO_VSOCK_OP_CREDIT_REQUEST);
	if (!s || p->hdr.type != VIRTIO_VSOCK_TYPE_STREAM)
		return;
	switch (p->hdr.op) {
	case VIRTIO_VSOCK_OP_REQUEST:
	case VIRTIO_VSOCK_OP_RESPONSE:
		s->open = true;
		s->shut = false;
		s->c.rx_cnt = s->c.fwd_cnt = 0;
		if (p->hdr.op == VIRTIO_VSOCK_OP_REQUEST)
			s->c.tx_cnt = 0;
		break;
	case VIRTIO_VSOCK_OP_RST:
		s->open = false;
		break;
	case VIRTIO_VSOCK_OP_SHUTDOWN:
		FAKE_CHECK(s->open);
		s->shut = s->shut || p->hdr.flags & RF_VSOCK_SHUT_SEND;
		break;
	case VIRTIO_VSOCK_OP_RW:
		FAKE_CHECK(s->open && !s->shut && p->hdr.len);
		for (uint32_t i = 0; i < p->hdr.len; i++)
			FAKE_CHECK(p->data[i] == pattern_byte(s->c.rx_cnt + i));
		s->c.rx_cnt += p->hdr.len;
		break;
	default:
		FAKE_CHECK(s->open);
		break;
	}
}

static void receive(struct fuzz *f)
{
	struct fake_packet p;
	bool empty;

	for (unsigned n = next(f) % 16; n && !f->wild; n--) {
		if (!fake_guest_recv(&f->guest, &p, &empty))
			return;
		if (!empty)
			judge(f, &p);
	}
}

static void credit(struct fuzz *f)
{
	struct seen *s = pick(f);
	uint32_t buf_alloc = next_u16(f);

	if (!s || !can_send(f))
		return;
	s->c.buf_alloc = buf_alloc;
	if (next(f) % 2)
		s->c.fwd_cnt = s->c.rx_cnt;
	fake_conn_control(&s->c, VIRTIO_VSOCK_OP_CREDIT_UPDATE, 0);
}

static void turn(struct fuzz *f)
{
	uint8_t how = next(f);
	unsigned turns = 1;

	if (how % 2) {
		fake_guest_idle(&f->guest);
		return;
	}
	/*
	 * A loop that polls leaves rings to be looked at in the next turn, whatever comes before.
	 */
	if (how & 2) {
		rf_loop_set_poll(f->loop, RF_LOOP_POLL_BUSY);
		turns = RF_LOOP_BUSY_TURNS;
	}
	while (turns--)
		FAKE_CHECK(rf_loop_turn(f->loop, 0) == 0);
	rf_loop_set_poll(f->loop, 0);
}

static void kick(struct fuzz *f)
{
	unsigned ring = next(f) % 2;

	if (f->guest.rings[ring].drvq && !f->wild)
		fake_guest_kick(&f->guest, ring);
	else
		rf_eventfd_signal(f->guest.rings[ring].kick);
}

/* Rings that a wild guest has written to are of no use to its driver any more. */
static void restart(struct fuzz *f)
{
	unsigned first = next(f) % 2, then = next(f) % 2, blank = f->wild ? 3 : next(f) % 8;

	(void)fake_guest_stop(&f->guest, first);
	(void)fake_guest_stop(&f->guest, !first);
	for (unsigned i = 0; i < 2; i++) {
		unsigned ring = then ^ i;

		if (blank & 1u << ring)
			fake_guest_start_blank(&f->guest, ring);
		else
			fake_guest_start_at(&f->guest, ring, f->guest.rings[ring].base);
	}
	f->wild = false;
}

static const char *front_path(void)
{
	static char path[64];

	snprintf(path, sizeof(path), "/tmp/rf-fuzz-vsock-device.%d", (int)getpid());
	return path;
}

static void connect_front(struct fuzz *f)
{
	fake_guest_connect(&f->guest, front_path());
	fake_guest_boot(&f->guest);
	f->wild = false;
}

static void poke(struct fuzz *f)
{
	unsigned ring = next(f) % 2;
	uint16_t *avail = fake_guest_avail(&f->guest, ring);
	uint16_t offset = next_u16(f), value = next_u16(f);

	/* Index and entries of the available ring, or the descriptors, which lie before it. */
	if (offset % 2)
		avail[offset / 2 % 64] = value;
	else
		((uint16_t *)(void *)fake_guest_descs(&f->guest, ring))[offset / 2 % 512] = value;
	f->wild = true;
}

static void step(struct fuzz *f)
{
	static void (*const ops[OP_N])(struct fuzz *) = {
		[OP_OPEN] = open_conn,     [OP_PACKET] = packet,
		[OP_DATA] = send_data,     [OP_HEADER] = raw_header,
		[OP_KICK] = kick,          [OP_POST] = post,
		[OP_RECEIVE] = receive,    [OP_CREDIT] = credit,
		[OP_TURN] = turn,          [OP_ASK] = ask,
		[OP_DIALLED] = dialled,    [OP_WRITE] = write_line,
		[OP_ACCEPT] = accept_line, [OP_END] = end_line,
		[OP_RESTART] = restart,    [OP_POKE] = poke,
	};
	uint8_t op = next(f) % OP_N;

	switch (op) {
	case OP_HANGUP:
		fake_guest_hangup(&f->guest);
		fake_guest_idle(&f->guest);
		connect_front(f);
		break;
	case OP_WARP:
		warp_clock(next(f) % 100 * (RF_NS_PER_SEC / 10));
		FAKE_CHECK(rf_loop_turn(f->loop, 0) == 0);
		break;
	default:
		ops[op](f);
		break;
	}
}

static void remove_front(void)
{
	unlink(front_path());
}

/* One for all inputs: making it takes longer than most of them. */
static int listening_socket(void)
{
	static int fd = -1;
	struct sockaddr_un addr = { .sun_family = AF_UNIX };

	if (fd < 0) {
		fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		strcpy(addr.sun_path, front_path());
		unlink(front_path());
		FAKE_CHECK(bind(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
		FAKE_CHECK(listen(fd, 10) == 0);
		FAKE_CHECK(rf_mem_guard_install() == 0);
		atexit(remove_front);
	}
	return dup(fd);
}

static int lowest_free_fd(void)
{
	int fd = dup(0), lowest = fd;

	close(fd);
	return lowest;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rf_vsock_device_options options;
	static struct fuzz f;
	int listener = listening_socket(), fd;

	f = (struct fuzz){ .data = data, .left = size };
	the = &f;
	fd = lowest_free_fd();
	FAKE_CHECK(rf_loop_new(&f.loop) == 0);
	fake_guest_init(&f.guest, f.loop);
	f.guest.num = 64;
	f.guest.auto_post = false;
	rf_vsock_device_options_init(&options);
	options.guest_cid = FAKE_CID;
	options.socket_fd = listener;
	options.plugs = fuzz_plugs;
	options.plug_path = "";
	options.window = 4096u << next(&f) % 6;
	options.max_conns = 1 + next(&f) % 40;
	options.switches.merge = next(&f) % 4;
	options.switches.credit = next(&f) % 2;
	FAKE_CHECK(rf_vsock_device_new(f.loop, &options, &f.device) == 0);
	connect_front(&f);
	while (f.left)
		step(&f);
	if (f.guest.rings[FAKE_TX].drvq && !f.wild) {
		fake_guest_kick(&f.guest, FAKE_TX);
		fake_guest_idle(&f.guest);
	}
	fake_guest_fini(&f.guest);
	fake_loop_idle(f.loop);
	rf_vsock_device_free(f.device);
	rf_loop_free(f.loop);
	FAKE_CHECK(lowest_free_fd() <= fd);
	return 0;
}
