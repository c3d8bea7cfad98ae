/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A front end that sends whatever the input says to a vhost-user session, in turns with what its
 * guest does to memory and rings. The input is a program of operations of one byte with their
 * operands. Whatever happens, the device is told of rings in order, and no descriptor and no memory
 * stays behind.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "open_fds.h"
#include "vhost/session.h"

#define N_RINGS   3
#define UVA       UINT64_C(0x10000)
#define MEM_BYTES 0x40000u
#define PAGE      4096u

/* Not assert(): it has to hold in every build. */
#define check(condition)          \
	do {                      \
		if (!(condition)) \
			abort();  \
	} while (0)

enum op {
	OP_MESSAGE, /* request, flags, descriptors, payload by its kind */
	OP_RAW,     /* request, flags, descriptors, size (2), length, bytes */
	OP_BYTES,   /* length, bytes */
	OP_TURN,
	OP_KICK,     /* ring */
	OP_POKE,     /* offset / 2 (2), value (2) */
	OP_READ,     /* replies */
	OP_TRUNCATE, /* pages */
	OP_BREAK,
	OP_HANGUP,
	OP_BREAK_IN, /* the event within which the device breaks the session */
	OP_FREE_IN,  /* the event within which it frees it */
	OP_N
};

enum event { EV_STARTED, EV_STOPPING, EV_STOPPED, EV_KICKED, EV_RESET, EV_N };

struct fuzz {
	const uint8_t *data;
	size_t left;
	struct rf_loop *loop;
	struct rf_vu_session *session;
	struct rf_vu_counters counters;
	int peer, memfd;
	int kick[N_RINGS];
	bool running[N_RINGS];
	enum event break_in, free_in;
};

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

/* What the device does within an operation, if the input says so. */
static void act(struct fuzz *f, enum event event)
{
	struct rf_vu_session *session = f->session;

	if (event == f->break_in && session) {
		f->break_in = EV_N;
		rf_vu_session_break(session, RF_VU_CLOSED);
	}
	if (event == f->free_in && session) {
		f->free_in = EV_N;
		rf_vu_session_free(session);
		f->session = NULL;
	}
}

static int op_get_config(void *ctx, uint32_t offset, void *buf, uint32_t len)
{
	(void)ctx;
	check(offset <= 8 && len <= 8 - offset);
	memset(buf, 0x2a, len);
	return 0;
}

/* Serve a ring as a device does. */
static void serve(struct fuzz *f, unsigned ring)
{
	struct rf_devq *q = rf_vu_session_queue(f->session, ring);
	const struct rf_chain *chains;
	struct rf_chain taken[8];
	int n = rf_devq_look(q, 8, &chains);

	if (n < 0) {
		if (rf_devq_broken(q))
			rf_vu_session_ring_broken(f->session, ring);
		return;
	}
	n = n > 8 ? 8 : n;
	/* The last one stays in the window. */
	n -= n > 1;
	memcpy(taken, chains, (size_t)n * sizeof(*chains));
	rf_devq_take(q, (unsigned)n);
	for (int i = 0; i < n; i++)
		rf_devq_push(q, &taken[i], taken[i].bytes_in);
	if (rf_devq_publish(q))
		rf_vu_session_signal(f->session, ring);
	rf_devq_arm(q);
}

static void op_ring_started(void *ctx, unsigned ring, uint16_t base)
{
	struct fuzz *f = ctx;

	(void)base;
	check(ring < N_RINGS && !f->running[ring]);
	check(rf_devq_running(rf_vu_session_queue(f->session, ring)));
	f->running[ring] = true;
	serve(f, ring);
	act(f, EV_STARTED);
}

static void op_ring_stopping(void *ctx, unsigned ring)
{
	struct fuzz *f = ctx;

	check(ring < N_RINGS && f->running[ring]);
	check(rf_devq_running(rf_vu_session_queue(f->session, ring)));
	f->running[ring] = false;
	act(f, EV_STOPPING);
}

static void op_ring_stopped(void *ctx, unsigned ring, uint16_t base)
{
	struct fuzz *f = ctx;

	(void)base;
	check(f->session && !f->running[ring]);
	check(!rf_devq_running(rf_vu_session_queue(f->session, ring)));
	act(f, EV_STOPPED);
}

static void op_ring_kicked(void *ctx, unsigned ring)
{
	struct fuzz *f = ctx;

	check(f->running[ring]);
	serve(f, ring);
	act(f, EV_KICKED);
}

static void op_reset(void *ctx)
{
	struct fuzz *f = ctx;

	for (unsigned i = 0; i < N_RINGS; i++)
		check(!f->running[i]);
	act(f, EV_RESET);
}

static void op_closed(void *ctx, enum rf_vu_reason reason)
{
	struct fuzz *f = ctx;

	check(reason != RF_VU_NONE);
	for (unsigned i = 0; i < N_RINGS; i++)
		check(!f->running[i]);
	rf_vu_session_free(f->session);
	f->session = NULL;
}

static const struct rf_vu_device_ops ops = {
	.get_config = op_get_config,
	.ring_started = op_ring_started,
	.ring_stopping = op_ring_stopping,
	.ring_stopped = op_ring_stopped,
	.ring_kicked = op_ring_kicked,
	.reset = op_reset,
	.closed = op_closed,
};

/* Numbers that are sizes, indices and masks somewhere. */
static uint64_t pick(uint8_t which)
{
	static const uint64_t numbers[] = {
		0,           1,          2,          3,           8,           16,
		128,         255,        256,        1024,        32768,       65535,
		65536,       0x7fffffff, 0xffffffff, 0x100000000, 0x170000002, 0x140000000,
		0x130000002, 0x1a209,    0x209,      0x8,         0x8209,      UINT64_MAX,
	};

	return which < RF_ARRAY_SIZE(numbers) ? numbers[which] : which;
}

static uint64_t address(uint8_t where)
{
	return where == 0xff ? UINT64_MAX - 63 : UVA + where * UINT64_C(0x400);
}

static int new_fd(struct fuzz *f, uint8_t kind)
{
	int pair[2];

	switch (kind % 4) {
	case 0:
		return rf_eventfd_new();
	case 1:
		return dup(f->memfd);
	case 2:
		check(pipe2(pair, O_CLOEXEC) == 0);
		close(pair[0]);
		return pair[1];
	default:
		return dup(f->peer);
	}
}

static void send_bytes(struct fuzz *f, const void *buf, size_t len, const int *fds, unsigned n_fds)
{
	if (f->peer >= 0 && len)
		(void)rf_fd_send(f->peer, buf, len, fds, n_fds);
}

/* Send a message with as many descriptors as @spec says, and remember its kick descriptor. */
static void send_message(struct fuzz *f, const struct rf_vu_message *msg, size_t payload_bytes,
			 uint8_t spec)
{
	uint8_t buf[RF_VU_HDR_BYTES + RF_VU_MAX_PAYLOAD];
	unsigned n_fds = spec % 12;
	int fds[12];

	for (unsigned i = 0; i < n_fds; i++)
		fds[i] = new_fd(f, spec / 12);
	memcpy(buf, &msg->hdr, RF_VU_HDR_BYTES);
	memcpy(buf + RF_VU_HDR_BYTES, msg->payload.bytes, payload_bytes);
	send_bytes(f, buf, RF_VU_HDR_BYTES + payload_bytes, fds, n_fds);
	if (msg->hdr.request == RF_VU_SET_VRING_KICK && n_fds && msg->payload.u64 < N_RINGS) {
		rf_fd_close(f->kick[msg->payload.u64]);
		f->kick[msg->payload.u64] = dup(fds[0]);
	}
	for (unsigned i = 0; i < n_fds; i++)
		close(fds[i]);
}

static struct rf_vu_mem_region make_region(struct fuzz *f)
{
	struct rf_vu_mem_region region;

	region.gpa = next(f) * (uint64_t)PAGE;
	region.size = next(f) * (uint64_t)PAGE;
	region.uva = UVA + next(f) * (uint64_t)PAGE;
	region.mmap_offset = next(f) * (uint64_t)PAGE;
	return region;
}

static void make_payload(struct fuzz *f, struct rf_vu_message *msg)
{
	switch (msg->hdr.request) {
	case RF_VU_SET_VRING_NUM:
	case RF_VU_SET_VRING_BASE:
	case RF_VU_GET_VRING_BASE:
	case RF_VU_SET_VRING_ENABLE:
		msg->payload.state.index = next(f);
		msg->payload.state.num = (uint32_t)pick(next(f));
		break;
	case RF_VU_SET_VRING_ADDR:
		msg->payload.addr.index = next(f);
		msg->payload.addr.desc = address(next(f));
		msg->payload.addr.avail = address(next(f));
		msg->payload.addr.used = address(next(f));
		break;
	case RF_VU_SET_VRING_KICK:
	case RF_VU_SET_VRING_CALL:
	case RF_VU_SET_VRING_ERR:
		msg->payload.u64 = next(f);
		msg->payload.u64 |= msg->payload.u64 & 0x80 ? RF_VU_VRING_NOFD : 0;
		msg->payload.u64 &= ~UINT64_C(0x80);
		break;
	case RF_VU_SET_MEM_TABLE:
		msg->payload.table.n_regions = next(f);
		msg->hdr.size = 8;
		for (unsigned i = 0; i < msg->payload.table.n_regions && i < 8; i++) {
			msg->payload.table.regions[i] = make_region(f);
			msg->hdr.size += 32;
		}
		break;
	case RF_VU_ADD_MEM_REG:
	case RF_VU_REM_MEM_REG:
		msg->payload.single.region = make_region(f);
		break;
	case RF_VU_GET_CONFIG:
	case RF_VU_SET_CONFIG:
		msg->payload.config.offset = (uint32_t)pick(next(f));
		msg->payload.config.size = next(f);
		msg->hdr.size = rf_min_u32(12 + msg->payload.config.size, 12 + RF_VU_MAX_CONFIG);
		break;
	default:
		msg->payload.u64 = pick(next(f));
	}
}

static void do_message(struct fuzz *f)
{
	struct rf_vu_message msg = { .hdr.request = next(f) };
	const struct rf_vu_request_def *def = rf_vu_request_def(msg.hdr.request);
	uint8_t spec;

	msg.hdr.flags = next(f) & 1 ? 0x9 : 0x1;
	spec = next(f);
	msg.hdr.size = def ? def->min_size : 8;
	make_payload(f, &msg);
	send_message(f, &msg, msg.hdr.size, spec);
}

static void do_raw(struct fuzz *f)
{
	struct rf_vu_message msg = { .hdr.request = next(f) };
	uint8_t spec;
	size_t len;

	msg.hdr.flags = next(f);
	spec = next(f);
	msg.hdr.size = next_u16(f);
	len = next(f);
	for (size_t i = 0; i < len; i++)
		msg.payload.bytes[i] = next(f);
	send_message(f, &msg, len, spec);
}

static void do_bytes(struct fuzz *f)
{
	size_t len = next(f);
	uint8_t buf[256];

	for (size_t i = 0; i < len; i++)
		buf[i] = next(f);
	send_bytes(f, buf, len, NULL, 0);
}

static void do_poke(struct fuzz *f)
{
	off_t offset = 2 * (off_t)next_u16(f);
	uint16_t value = next_u16(f);

	/* With a system call: the file may be shorter than the offset. */
	(void)!pwrite(f->memfd, &value, sizeof(value), offset);
}

static void do_read(struct fuzz *f)
{
	uint8_t buf[4096];

	while (f->peer >= 0 && recv(f->peer, buf, sizeof(buf), MSG_DONTWAIT) > 0)
		;
}

static void run_op(struct fuzz *f)
{
	uint8_t ring;

	switch (next(f) % OP_N) {
	case OP_MESSAGE:
		do_message(f);
		break;
	case OP_RAW:
		do_raw(f);
		break;
	case OP_BYTES:
		do_bytes(f);
		break;
	case OP_TURN:
		check(rf_loop_turn(f->loop, 0) == 0);
		break;
	case OP_KICK:
		ring = next(f) % N_RINGS;
		rf_eventfd_signal(f->kick[ring]);
		break;
	case OP_POKE:
		do_poke(f);
		break;
	case OP_READ:
		do_read(f);
		break;
	case OP_TRUNCATE:
		check(ftruncate(f->memfd, next(f) * (off_t)PAGE % MEM_BYTES) == 0);
		break;
	case OP_BREAK:
		if (f->session)
			rf_vu_session_break(f->session, RF_VU_CLOSED);
		break;
	case OP_HANGUP:
		f->peer = rf_fd_close(f->peer);
		break;
	case OP_BREAK_IN:
		f->break_in = next(f) % EV_N;
		break;
	case OP_FREE_IN:
		f->free_in = next(f) % EV_N;
		break;
	}
}

static void begin(struct fuzz *f)
{
	struct rf_vu_device device = { .features = 0x130000002u,
				       .protocol_features = 0x1a209,
				       .n_rings = N_RINGS,
				       .max_num = 1024,
				       .queue_num = N_RINGS,
				       .config_bytes = 8,
				       .ops = &ops,
				       .ctx = f };
	int sv[2];

	check(rf_loop_new(&f->loop) == 0);
	check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sv) == 0);
	f->peer = sv[0];
	f->memfd = memfd_create("guest", MFD_CLOEXEC);
	check(f->memfd >= 0 && ftruncate(f->memfd, MEM_BYTES) == 0);
	for (unsigned i = 0; i < N_RINGS; i++)
		f->kick[i] = -1;
	check(rf_vu_session_new(f->loop, sv[1], &device, &f->counters, &f->session) == 0);
}

static void finish(struct fuzz *f)
{
	for (unsigned i = 0; i < 4; i++)
		check(rf_loop_turn(f->loop, 0) == 0);
	f->break_in = f->free_in = EV_N;
	rf_vu_session_free(f->session);
	for (unsigned i = 0; i < N_RINGS; i++) {
		check(!f->running[i]);
		rf_fd_close(f->kick[i]);
	}
	rf_loop_free(f->loop);
	rf_fd_close(f->peer);
	rf_fd_close(f->memfd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz f = { .data = data, .left = size, .break_in = EV_N, .free_in = EV_N };
	static bool prepared;
	unsigned fds;

	if (!prepared) {
		/* As the program does. */
		signal(SIGPIPE, SIG_IGN);
		check(rf_mem_guard_install() == 0);
		prepared = true;
	}
	fds = open_fds();
	begin(&f);
	while (f.left)
		run_op(&f);
	finish(&f);
	check(open_fds() == fds);
	return 0;
}
