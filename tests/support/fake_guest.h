/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A guest in the test's own thread: memory, the driver of a vsock device and the front end of its
 * VMM, each of which does exactly what the test says, right or wrong.
 *
 * Its rings are ring/drvq.h's; everything above (headers, credit, the order of messages) is its
 * own, so that a mistake of the device is not made twice. It behaves as a driver must that knows of
 * nothing else: it kicks only when the ring asks for it, and finds a used buffer without having
 * been notified of it to be an error.
 *
 * What goes wrong in here, or what the device does against the rules of the ring, aborts.
 */
#ifndef FAKE_GUEST_H
#define FAKE_GUEST_H

#include <linux/virtio_ring.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/loop.h"
#include "ring/drvq.h"
#include "vsock/packet.h"

/* Abort with a line that says where. */
#define FAKE_CHECK(cond) ((cond) ? (void)0 : fake_failed(__FILE__, __LINE__, #cond))
_Noreturn void fake_failed(const char *file, int line, const char *what);

enum {
	FAKE_RX = 0,
	FAKE_TX = 1,
	FAKE_EVENT = 2,
	FAKE_N_RINGS = 3,
};

/* Largest packet of one buffer, header included; and the most pieces it can be cut into. */
#define FAKE_SLOT_BYTES 0x20000u
#define FAKE_MAX_PIECES 4096u

/* What the CID of the guest is, unless it is changed. */
#define FAKE_CID 4u

/**
 * struct fake_shape - How a buffer is cut into descriptors
 * @name:	For the name of a test
 * @lead:	Bytes left out at the start of its memory: alignment
 * @cuts:	Lengths of the first pieces, up to a 0
 * @each:	Length of all others; 0 for one piece with the rest
 * @indirect:	In an indirect table
 *
 * Pieces do not lie next to each other. The first buffer of each ring lies across two memory
 * regions: their border is FAKE_BORDER bytes into its memory.
 */
struct fake_shape {
	const char *name;
	uint32_t lead;
	uint32_t cuts[4];
	uint32_t each;
	bool indirect;
};

#define FAKE_BORDER 0x1000u

/* One piece; header and payload apart; and the rest, each direct and indirect. */
extern const struct fake_shape fake_shape_one, fake_shape_two;
extern const struct fake_shape fake_shapes[];
extern const size_t fake_n_shapes;

/**
 * struct fake_packet - A packet that the guest received
 * @hdr:	Header
 * @data:	hdr.len bytes, until the next packet is received
 * @capacity:	Bytes of the buffer it came in
 */
struct fake_packet {
	struct rf_vsock_hdr hdr;
	const uint8_t *data;
	uint32_t capacity;
};

struct fake_slot;

/**
 * struct fake_ring - One ring of the guest
 * @drvq:	Driver side; NULL before the first start
 * @kick, @call, @err: eventfds
 * @base:	Where it was stopped
 * @armed:	We wait for a notification
 * @added:	Buffers ever added: index of the next one in the available ring
 */
struct fake_ring {
	struct rf_drvq *drvq;
	int kick, call, err;
	uint16_t base;
	bool armed;
	uint16_t added;
};

/**
 * struct fake_guest - A guest
 * @loop:	Loop of the device under test
 * @cid:	Source of its packets
 * @num:	Ring size
 * @n_rings:	Rings that its VMM passes on: 2 as QEMU, or 3 as crosvm
 * @plugged:	Its memory comes in many regions, each added by itself (fake_guest_plug())
 * @shared_fd:	File that the front end shares instead of the guest's memory, or -1
 * @features:	Virtio features it acknowledges
 * @rx_bytes, @rx_shape: Receive buffers that are posted by themselves
 * @auto_post:	Post a receive buffer again as soon as its packet was received
 * @sock:	The front end's end of the session, -1 without
 * @memfd, @mem, @mem_bytes: Memory
 * @rings:	Rings
 * @slots:	Buffers
 * @pieces, @raw: Of the buffer at hand
 * @data:	The packet received last
 */
struct fake_guest {
	struct rf_loop *loop;
	uint64_t cid;
	uint32_t num;
	unsigned n_rings;
	bool plugged;
	int shared_fd;
	uint64_t features;
	uint32_t rx_bytes;
	struct fake_shape rx_shape;
	bool auto_post;
	int sock;
	int memfd;
	uint8_t *mem;
	size_t mem_bytes;
	struct fake_ring rings[FAKE_N_RINGS];
	struct fake_slot *slots;
	struct rf_drvq_piece pieces[FAKE_MAX_PIECES];
	uint8_t raw[FAKE_SLOT_BYTES];
	uint8_t data[FAKE_SLOT_BYTES];
};

/* Set defaults: a ring of 128, all features, a receive buffer of 4 KiB for each place in the ring,
 * as Linux has them. Change them before fake_guest_boot(). */
void fake_guest_init(struct fake_guest *g, struct rf_loop *loop);
void fake_guest_fini(struct fake_guest *g);

/*
 * Turn the loop until nothing is left to do. Timers that have not expired are not waited for. A
 * loop that does not come to rest aborts: it spins.
 */
void fake_loop_idle(struct rf_loop *loop);
void fake_guest_idle(struct fake_guest *g);

/* The front end: take a connected socket over; connect to a path; go away. */
void fake_guest_attach(struct fake_guest *g, int sock);
void fake_guest_connect(struct fake_guest *g, const char *path);
void fake_guest_hangup(struct fake_guest *g);

/* Send one message with a u64, with a ring state, or without payload. No answer is waited for. */
void fake_guest_message(struct fake_guest *g, uint32_t request, const void *payload, uint32_t bytes,
			int fd);
void fake_guest_message_u64(struct fake_guest *g, uint32_t request, uint64_t value);
void fake_guest_message_state(struct fake_guest *g, uint32_t request, uint32_t index, uint32_t num);

/* SET_OWNER, SET_FEATURES without bit 30 (rings are enabled at once) and SET_MEM_TABLE; or the last
 * alone. */
void fake_guest_handshake(struct fake_guest *g);
void fake_guest_share(struct fake_guest *g);

/*
 * With @plugged, each buffer of a ring has a region, which begins FAKE_BORDER bytes into its memory
 * and ends as far into the next one's; one more before the first holds the rings. All are added by
 * the handshake. Take one away, or add it.
 */
void fake_guest_plug(struct fake_guest *g, unsigned ring, unsigned slot);
void fake_guest_unplug(struct fake_guest *g, unsigned ring, unsigned slot);

/* Start a ring that is blank, or one that goes on where it stands, at an index. */
void fake_guest_start_blank(struct fake_guest *g, unsigned ring);
void fake_guest_start_at(struct fake_guest *g, unsigned ring, uint16_t base);

/* GET_VRING_BASE. Return: the index, which is also kept in ring->base. */
uint16_t fake_guest_stop(struct fake_guest *g, unsigned ring);

/* Handshake, all rings blank, receive buffers posted (if auto_post), idle. */
void fake_guest_boot(struct fake_guest *g);

/* Is the descriptor signalled? It is set back. */
bool fake_guest_signalled(int fd);

/* Descriptors of a ring that are free. */
unsigned fake_guest_room(const struct fake_guest *g, unsigned ring);

/* The device's used index of a ring. */
uint16_t fake_guest_used(const struct fake_guest *g, unsigned ring);

/* Where the memory of a ring's first buffer begins in the file; the driver's index of a ring; its
 * descriptors. */
off_t fake_guest_first_slot(const struct fake_guest *g, unsigned ring);
uint16_t *fake_guest_avail(const struct fake_guest *g, unsigned ring);
struct vring_desc *fake_guest_descs(const struct fake_guest *g, unsigned ring);

/*
 * Put a packet onto the ring: the header as it is (its length may be a lie), then @bytes of @data.
 * It is visible after fake_guest_kick(). There must be room.
 */
void fake_guest_put(struct fake_guest *g, const struct rf_vsock_hdr *hdr, const void *data,
		    uint32_t bytes, const struct fake_shape *shape);
/* The same with raw bytes. */
void fake_guest_put_raw(struct fake_guest *g, const void *raw, uint32_t bytes,
			const struct fake_shape *shape);
void fake_guest_kick(struct fake_guest *g, unsigned ring);
void fake_guest_send(struct fake_guest *g, const struct rf_vsock_hdr *hdr, const void *data,
		     uint32_t bytes, const struct fake_shape *shape);

/* Packets that the device has not taken; each that was comes back with length 0. */
unsigned fake_guest_unsent(struct fake_guest *g);

/* Post receive buffers and kick; as many of the usual ones as the ring takes. */
void fake_guest_post(struct fake_guest *g, unsigned n, uint32_t bytes,
		     const struct fake_shape *shape);
void fake_guest_post_all(struct fake_guest *g);

/*
 * Receive the next packet, if there is one. A buffer that came back empty is one with hdr.op 0 and
 * no capacity if @ret_empty is given, and an error if not.
 */
bool fake_guest_recv(struct fake_guest *g, struct fake_packet *ret_packet, bool *ret_empty);

/**
 * struct fake_conn - The guest's end of a connection
 * @guest:	Guest
 * @port, @host_port: Ports
 * @buf_alloc:	What it offers
 * @fwd_cnt:	What it has consumed
 * @rx_cnt:	What it has received
 * @tx_cnt:	What it has sent
 * @peer_buf_alloc, @peer_fwd_cnt: From the last packet received
 */
struct fake_conn {
	struct fake_guest *guest;
	uint32_t port, host_port;
	uint32_t buf_alloc, fwd_cnt, rx_cnt, tx_cnt;
	uint32_t peer_buf_alloc, peer_fwd_cnt;
};

void fake_conn_init(struct fake_conn *c, struct fake_guest *g, uint32_t port, uint32_t host_port);

/* The header of a packet of this connection. */
struct rf_vsock_hdr fake_conn_hdr(const struct fake_conn *c, uint16_t op, uint32_t len);

/* Send a control packet, and data as one packet; put: not yet visible. Nothing is checked. */
void fake_conn_control(struct fake_conn *c, uint16_t op, uint32_t flags);
void fake_conn_put(struct fake_conn *c, const void *data, uint32_t bytes,
		   const struct fake_shape *shape);
void fake_conn_send(struct fake_conn *c, const void *data, uint32_t bytes);

/* What the device still allows to be sent. */
uint32_t fake_conn_space(const struct fake_conn *c);

/*
 * Receive the next packet, which must belong to this connection, keep to its credit and come before
 * the end; its credit is taken over, its payload counted as received.
 */
bool fake_conn_recv(struct fake_conn *c, struct fake_packet *ret_packet);

#endif
