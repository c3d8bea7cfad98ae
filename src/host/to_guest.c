/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The guest's receive ring: control packets first, then the host programs' bytes, read straight
 * into guest buffers. One read fills many buffers, each of which becomes a packet of its own.
 */
#include "vsock_host.h"

#include <errno.h>
#include <limits.h>

#include "base/iov.h"
#include "base/probe.h"

enum progress {
	PROGRESS_MADE,
	/* The guest has no buffer for us. */
	PROGRESS_FULL,
};

/*
 * A buffer without room for a header and one byte can never be of use: it goes back empty, instead
 * of holding up all that wait behind it. Return: number of those at the front, at most @max.
 */
static unsigned return_unusable(struct rf_vsock_device *device, struct rf_devq *q, unsigned max)
{
	const struct rf_chain *chains;
	unsigned n = 0;

	while (n < max && rf_devq_look(q, 1, &chains) > 0 &&
	       chains[0].bytes_in <= RF_VSOCK_HDR_BYTES) {
		rf_count(&device->counters.bad_buffers, 1);
		rf_log_limited(
			&device->log, &device->bad_limit, RF_LOG_WARNING,
			"the guest offers a receive buffer of %u bytes, too small for a packet",
			chains[0].bytes_in);
		rf_devq_take(q, 1);
		rf_devq_push(q, &chains[0], 0);
		n++;
	}
	return n;
}

static bool usable(const struct rf_chain *chain)
{
	return chain->bytes_in > RF_VSOCK_HDR_BYTES;
}

/* Receive buffers, the first of which can hold a packet. Return: their number. */
static unsigned look_usable(struct rf_devq *q, unsigned want, const struct rf_chain **ret_chains)
{
	int n = rf_devq_look(q, want, ret_chains);

	return n > 0 && usable(&(*ret_chains)[0]) ? (unsigned)n : 0;
}

static void put_packet(struct rf_vsock_device *device, struct rf_devq *q,
		       const struct rf_chain *chain, const struct rf_vsock_hdr *hdr)
{
	uint8_t wire[RF_VSOCK_HDR_BYTES];

	rf_vsock_hdr_encode(hdr, wire);
	rf_iov_copy_in(rf_devq_in(q, chain), chain->n_in, 0, wire, sizeof(wire));
	rf_devq_push(q, chain, RF_VSOCK_HDR_BYTES + hdr->len);
	rf_count(&device->counters.to_guest_packets, 1);
	RF_PROBE(to_guest_packets, device->cid, hdr->src_port, hdr->dst_port, hdr->op, hdr->len);
}

static enum progress send_control(struct rf_vsock_device *device, struct rf_devq *q)
{
	const struct rf_chain *chains;
	struct rf_vsock_conn *conn;
	struct rf_vsock_hdr hdr;

	if (!look_usable(q, 1, &chains))
		return PROGRESS_FULL;
	if (!rf_vsock_sched_next_control(&device->sched, &hdr, &conn))
		return PROGRESS_MADE;
	rf_devq_take(q, 1);
	put_packet(device, q, chains, &hdr);
	if (hdr.op == VIRTIO_VSOCK_OP_CREDIT_UPDATE) {
		rf_count(&device->counters.credit_updates, 1);
		RF_PROBE(credit_updates, device->cid, hdr.src_port, hdr.dst_port, hdr.buf_alloc,
			 hdr.fwd_cnt);
	}
	if (hdr.op == VIRTIO_VSOCK_OP_CREDIT_REQUEST)
		rf_count(&device->counters.credit_requests, 1);
	if (hdr.op == VIRTIO_VSOCK_OP_RST)
		rf_count(&device->counters.resets, 1);
	if (conn)
		rf_stream_settle(rf_stream_of(conn));
	return PROGRESS_MADE;
}

/**
 * struct plan - Where one read goes
 * @iov:	Payload room of the first @n_chains chains
 * @n_iov:	Its pieces
 * @room:	Payload room of each chain
 * @n_chains:	Chains
 * @bytes:	Payload room of them all
 */
struct plan {
	struct iovec iov[RF_IOV_MAX];
	unsigned n_iov;
	uint32_t room[RF_DEVQ_WINDOW];
	unsigned n_chains;
	size_t bytes;
};

/* What the next packet may carry after those planned. */
static size_t next_room(const struct plan *plan, const struct rf_vsock_stream *stream)
{
	uint32_t credit =
		rf_vsock_conn_data_after(&stream->conn, plan->n_chains, (uint32_t)plan->bytes);

	return rf_min_size(rf_min_u32(credit, RF_VSOCK_MAX_PAYLOAD),
			   RF_HOST_CONN_BUDGET_BYTES - stream->served - plan->bytes);
}

/* Buffers for what is expected, as far as there are any: laying out all of them for a small message
 * would cost more than reading it. */
static void plan_read(struct plan *plan, const struct rf_devq *q,
		      const struct rf_vsock_stream *stream, const struct rf_chain *chains,
		      unsigned n)
{
	size_t room, got;

	plan->n_iov = plan->n_chains = 0;
	plan->bytes = 0;
	while (plan->bytes < stream->expected && plan->n_chains < n && plan->n_iov < RF_IOV_MAX &&
	       usable(&chains[plan->n_chains]) && (room = next_room(plan, stream)) > 0) {
		const struct rf_chain *chain = &chains[plan->n_chains];

		room = rf_min_size(room, chain->bytes_in - RF_VSOCK_HDR_BYTES);
		plan->n_iov +=
			rf_iov_slice(rf_devq_in(q, chain), chain->n_in, RF_VSOCK_HDR_BYTES, room,
				     plan->iov + plan->n_iov, RF_IOV_MAX - plan->n_iov, &got);
		plan->room[plan->n_chains++] = (uint32_t)got;
		plan->bytes += got;
	}
}

/* Whoever fills all that was laid out has more; who does not may send alike the next time. */
static void expect(struct rf_vsock_stream *stream, size_t room, size_t got)
{
	size_t next = got < room ? 2 * got : rf_max_size(stream->expected, 4 * got);

	next = rf_min_size(rf_max_size(next, RF_HOST_MIN_READ_BYTES), RF_HOST_CONN_BUDGET_BYTES);
	stream->expected = (uint32_t)next;
}

/* The bytes are in the buffers: put a header before each piece and give the buffers back. */
static void send_filled(struct rf_vsock_device *device, struct rf_devq *q,
			struct rf_vsock_conn *conn, const struct rf_chain *chains,
			const uint32_t *room, size_t len)
{
	unsigned k;

	rf_count(&device->counters.to_guest_bytes, len);
	for (k = 0; len > 0; k++) {
		uint32_t piece = (uint32_t)rf_min_size(len, room[k]);
		struct rf_vsock_hdr hdr;

		rf_vsock_conn_rw(conn, piece, &hdr);
		rf_devq_take(q, 1);
		put_packet(device, q, &chains[k], &hdr);
		len -= piece;
	}
	rf_count(&device->counters.to_guest_data_packets, k);
}

/* recv() returned no bytes but @got: what that means. */
static void nothing_read(struct rf_vsock_device *device, struct rf_vsock_stream *stream,
			 ssize_t got)
{
	stream->served = 0;
	if (got == -EAGAIN) {
		stream->readable = false;
	} else if (got == -EFAULT) {
		device->faulted = true;
	} else if (got == 0) {
		rf_stream_eof(stream);
	} else {
		/* What comes after is lost: that is no orderly end. */
		stream->readable = false;
		rf_vsock_conn_reset(&stream->conn, RF_VSOCK_LOCAL_RESET);
	}
}

/* A turn that ends for lack of buffers is not over: others would get more for ever. */
static void count_turn(struct rf_vsock_device *device, struct rf_vsock_stream *stream,
		       const struct plan *plan, unsigned n, size_t got)
{
	if (plan->n_chains < n || got < plan->bytes ||
	    stream->served + got >= RF_HOST_CONN_BUDGET_BYTES) {
		stream->served = 0;
		return;
	}
	stream->served += (uint32_t)got;
	rf_vsock_sched_data_first(&device->sched, &stream->conn);
}

static enum progress send_data(struct rf_vsock_device *device, struct rf_devq *q,
			       struct rf_vsock_stream *stream, size_t *bytes)
{
	const struct rf_chain *chains;
	struct plan plan;
	unsigned n;
	ssize_t got;

	/* Before 5.4, vhost-vsock did not let a packet go on in a second buffer; who sends had to
	 * cut what it sent to the guest's buffers. */
	n = look_usable(q, device->active.split ? RF_DEVQ_WINDOW : 1, &chains);
	if (!n) {
		rf_vsock_sched_data_first(&device->sched, &stream->conn);
		return PROGRESS_FULL;
	}
	plan_read(&plan, q, stream, chains, n);
	got = stream->ops->recv(stream->line, plan.iov, plan.n_iov);
	rf_count(&device->counters.to_guest_reads, 1);
	if (got > 0) {
		send_filled(device, q, &stream->conn, chains, plan.room, (size_t)got);
		expect(stream, plan.bytes, (size_t)got);
		count_turn(device, stream, &plan, n, (size_t)got);
		*bytes += (size_t)got;
	} else {
		nothing_read(device, stream, got);
	}
	rf_stream_settle(stream);
	return PROGRESS_MADE;
}

/**
 * struct batch - Streams that are read in one system call, into one receive buffer each
 * @n:		Streams
 * @streams:	They
 * @iov:	The payload room of the buffers
 * @ios:	The reads
 */
struct batch {
	unsigned n;
	struct rf_vsock_stream *streams[RF_VSOCK_IO_MAX];
	struct iovec iov[RF_IOV_MAX];
	struct rf_vsock_io ios[RF_VSOCK_IO_MAX];
};

/* The next stream that has data and credit; NULL if there is none. */
static struct rf_vsock_stream *next_stream(struct rf_vsock_device *device)
{
	struct rf_vsock_conn *conn;

	while ((conn = rf_vsock_sched_next_data(&device->sched))) {
		/* Credit may have gone since it was queued; it is queued again when there is some.
		 */
		if (rf_stream_of(conn)->readable && rf_vsock_conn_data(conn))
			return rf_stream_of(conn);
	}
	return NULL;
}

/* One that sends little: whoever sends more fills many buffers in a read of its own. */
static bool batchable(const struct rf_vsock_stream *stream, const struct batch *batch)
{
	return stream->ops->recv_many && stream->expected <= RF_HOST_MIN_READ_BYTES &&
	       (!batch->n || batch->streams[0]->ops == stream->ops);
}

/*
 * The streams whose turn it is, up to the first that is none for a batch, which is returned; NULL
 * if there is none.
 */
static struct rf_vsock_stream *batch_collect(struct batch *batch, struct rf_vsock_device *device)
{
	struct rf_vsock_stream *stream = NULL;

	batch->n = 0;
	while (batch->n < RF_VSOCK_IO_MAX && (stream = next_stream(device)) &&
	       batchable(stream, batch)) {
		batch->streams[batch->n++] = stream;
		stream = NULL;
	}
	return stream;
}

/* Move a payload to a buffer before that no read has filled. */
static void move_payload(struct rf_vsock_device *device, const struct rf_devq *q,
			 const struct rf_chain *from, const struct rf_chain *to, size_t bytes)
{
	uint8_t copy[RF_HOST_MIN_READ_BYTES];

	rf_iov_copy_out(rf_devq_in(q, from), from->n_in, RF_VSOCK_HDR_BYTES, copy, bytes);
	rf_iov_copy_in(rf_devq_in(q, to), to->n_in, RF_VSOCK_HDR_BYTES, copy, bytes);
	rf_count(&device->counters.to_guest_moved_bytes, bytes);
}

/* The payload room that each of the first buffers has; 0 if one is of no use. */
static size_t common_room(const struct rf_chain *chains, unsigned n)
{
	size_t room = RF_HOST_MIN_READ_BYTES;

	for (unsigned i = 0; i < n; i++) {
		if (!usable(&chains[i]))
			return 0;
		room = rf_min_size(room, chains[i].bytes_in - RF_VSOCK_HDR_BYTES);
	}
	return room;
}

/* Read from each stream into a buffer of its own. Return: false if there are no buffers for it. */
static bool batch_read(struct batch *batch, struct rf_vsock_device *device, struct rf_devq *q,
		       const struct rf_chain **ret_chains)
{
	int n = rf_devq_look(q, batch->n, ret_chains);
	unsigned i, n_iov = 0;
	size_t room;

	if (!batch->n || n < (int)batch->n)
		return false;
	room = common_room(*ret_chains, batch->n);
	if (room < RF_HOST_BATCH_ROOM)
		return false;
	for (i = 0; i < batch->n; i++) {
		const struct rf_vsock_stream *stream = batch->streams[i];
		const struct rf_chain *chain = &(*ret_chains)[i];
		struct rf_vsock_io *io = &batch->ios[i];

		io->line = stream->line;
		io->iov = batch->iov + n_iov;
		io->n = rf_iov_slice(rf_devq_in(q, chain), chain->n_in, RF_VSOCK_HDR_BYTES,
				     rf_min_size(room, rf_vsock_conn_data(&stream->conn)),
				     batch->iov + n_iov, RF_IOV_MAX - n_iov, NULL);
		n_iov += io->n;
		if (!io->n)
			return false;
	}
	if (batch->streams[0]->ops->recv_many(batch->ios, batch->n)) {
		rf_count(&device->counters.uring_batches, 1);
		rf_count(&device->counters.uring_ops, batch->n);
	}
	rf_count(&device->counters.to_guest_reads, batch->n);
	return true;
}

/* The reads are done: pass on what they brought. Return: bytes. */
static size_t batch_pass(const struct batch *batch, struct rf_vsock_device *device,
			 struct rf_devq *q, const struct rf_chain *chains)
{
	size_t bytes = 0;
	unsigned k = 0;

	for (unsigned i = 0; i < batch->n; i++) {
		struct rf_vsock_stream *stream = batch->streams[i];
		uint32_t room = (uint32_t)rf_iov_bytes(batch->ios[i].iov, batch->ios[i].n);
		ssize_t got = batch->ios[i].result;

		if (got > 0) {
			if (k < i)
				move_payload(device, q, &chains[i], &chains[k], (size_t)got);
			send_filled(device, q, &stream->conn, &chains[k++], &room, (size_t)got);
			expect(stream, room, (size_t)got);
			/* More than a buffer: it reads for itself the next time. */
			if ((size_t)got == room)
				stream->expected = RF_HOST_CONN_BUDGET_BYTES;
			bytes += (size_t)got;
		} else {
			nothing_read(device, stream, got);
		}
		rf_stream_settle(stream);
	}
	return bytes;
}

/* Serve the stream whose turn it is. */
static enum progress send_data_next(struct rf_vsock_device *device, struct rf_devq *q,
				    size_t *bytes)
{
	struct rf_vsock_stream *stream = next_stream(device);

	return stream ? send_data(device, q, stream, bytes) : PROGRESS_MADE;
}

/* Serve several in one system call, if that is worth it, or one. @done: reads, added to. */
static enum progress send_data_many(struct rf_vsock_device *device, struct rf_devq *q,
				    size_t *bytes, unsigned *done)
{
	struct rf_vsock_stream *other;
	const struct rf_chain *chains;
	struct batch batch;
	bool many;

	other = batch_collect(&batch, device);
	many = batch.n >= rf_device_batch_min(device) && batch_read(&batch, device, q, &chains);
	/* It keeps its place; and so do the others, if they are not read now. */
	if (other)
		rf_vsock_sched_data_first(&device->sched, &other->conn);
	if (!many) {
		while (batch.n--)
			rf_vsock_sched_data_first(&device->sched, &batch.streams[batch.n]->conn);
		return send_data_next(device, q, bytes);
	}
	*done += batch.n - 1;
	*bytes += batch_pass(&batch, device, q, chains);
	return PROGRESS_MADE;
}

bool rf_to_guest_turn(struct rf_vsock_device *device)
{
	struct rf_devq *q = rf_vu_session_queue(device->session, RING_TO_GUEST);
	struct rf_vsock_sched *sched = &device->sched;
	enum progress progress = PROGRESS_MADE;
	unsigned done = 0;
	size_t bytes = 0;

	while (progress == PROGRESS_MADE && !device->faulted && bytes < RF_HOST_TURN_BYTES &&
	       (rf_vsock_sched_has_control(sched) || rf_vsock_sched_has_data(sched))) {
		done += return_unusable(
			device, q, RF_HOST_TURN_PACKETS - rf_min_u32(done, RF_HOST_TURN_PACKETS));
		if (done++ >= RF_HOST_TURN_PACKETS)
			break;
		if (rf_vsock_sched_has_control(sched))
			progress = send_control(device, q);
		else if (rf_device_batch_min(device) < UINT_MAX)
			progress = send_data_many(device, q, &bytes, &done);
		else
			progress = send_data_next(device, q, &bytes);
	}
	if (rf_devq_publish(q))
		rf_vu_session_signal(device->session, RING_TO_GUEST);
	if (progress == PROGRESS_FULL) {
		rf_count(&device->counters.to_guest_full, 1);
		return rf_ring_empty(device, RING_TO_GUEST);
	}
	rf_devq_disarm(q);
	return rf_vsock_sched_has_control(sched) || rf_vsock_sched_has_data(sched);
}
