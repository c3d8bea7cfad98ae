/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The guest's transmit ring: packets to connections, payloads straight from guest memory to the
 * host programs. The payloads of one window that belong to one stream, next to each other or not,
 * go out in one system call.
 */
#include "vsock_host.h"

#include "base/iov.h"
#include "base/probe.h"

static void bad_packet(struct rf_vsock_device *device, const char *what)
{
	rf_count(&device->counters.bad_packets, 1);
	rf_log_limited(&device->log, &device->bad_limit, RF_LOG_WARNING,
		       "the guest sent a packet that is %s; dropped", what);
}

/* Return: false if the packet cannot be; what there is of its header is in @ret_hdr. */
static bool read_header(struct rf_vsock_device *device, const struct rf_devq *q,
			const struct rf_chain *chain, struct rf_vsock_hdr *ret_hdr)
{
	uint8_t wire[RF_VSOCK_HDR_BYTES];

	if (rf_iov_copy_out(rf_devq_out(q, chain), chain->n_out, 0, wire, sizeof(wire)) <
	    sizeof(wire)) {
		bad_packet(device, "shorter than its header");
		*ret_hdr = (struct rf_vsock_hdr){ 0 };
		return false;
	}
	rf_vsock_hdr_decode(wire, ret_hdr);
	if (ret_hdr->len > chain->bytes_out - sizeof(wire)) {
		bad_packet(device, "longer than its buffer");
		return false;
	}
	return true;
}

static void burst_add(struct rf_vsock_device *device, struct rf_vsock_stream *stream, uint16_t i,
		      uint32_t len)
{
	device->burst_next[i] = NO_CHAIN;
	device->burst_len[i] = len;
	if (stream->burst_first == NO_CHAIN) {
		stream->burst_first = i;
		device->burst[device->n_burst++] = stream;
	} else {
		device->burst_next[stream->burst_last] = i;
	}
	stream->burst_last = i;
}

/* Pass on what the chains of this window hold for a stream. */
static void burst_flush(struct rf_vsock_device *device, struct rf_vsock_stream *stream,
			const struct rf_devq *q, const struct rf_chain *chains)
{
	struct iovec iov[RF_IOV_MAX];
	unsigned n = 0, n_pkts = 0;
	uint16_t i;

	for (i = stream->burst_first; i != NO_CHAIN; i = device->burst_next[i]) {
		size_t done = 0, got;

		n_pkts++;
		for (;;) {
			n += rf_iov_slice(rf_devq_out(q, &chains[i]), chains[i].n_out,
					  RF_VSOCK_HDR_BYTES + done, device->burst_len[i] - done,
					  iov + n, RF_IOV_MAX - n, &got);
			done += got;
			if (done == device->burst_len[i] && n < RF_IOV_MAX && device->active.merge)
				break;
			rf_stream_deliver(stream, iov, n, n_pkts);
			n = n_pkts = 0;
			if (done == device->burst_len[i])
				break;
		}
	}
	if (n)
		rf_stream_deliver(stream, iov, n, n_pkts);
	stream->burst_first = stream->burst_last = NO_CHAIN;
	rf_stream_settle(stream);
}

/* Send what the batch holds: in one system call, if that is worth it. */
static void batch_send(struct rf_vsock_device *device)
{
	struct rf_burst_batch *batch = &device->batch;
	bool many = batch->n && batch->n >= rf_device_batch_min(device);

	if (many && batch->streams[0]->ops->send_many(batch->ios, batch->n)) {
		rf_count(&device->counters.uring_batches, 1);
		rf_count(&device->counters.uring_ops, batch->n);
	}
	for (unsigned i = 0; i < batch->n; i++) {
		struct rf_vsock_stream *stream = batch->streams[i];
		const struct rf_vsock_io *io = &batch->ios[i];

		if (many)
			rf_stream_sent(stream, io->iov, io->n, batch->n_pkts[i], io->result);
		else
			rf_stream_deliver(stream, io->iov, io->n, batch->n_pkts[i]);
		rf_stream_settle(stream);
	}
	batch->n = batch->n_iov = 0;
}

/* Put what the chains hold for a stream behind the batch. Return: false if it does not fit. */
static bool batch_gather(struct rf_vsock_device *device, struct rf_vsock_stream *stream,
			 const struct rf_devq *q, const struct rf_chain *chains)
{
	struct rf_burst_batch *batch = &device->batch;
	unsigned n = batch->n_iov, n_pkts = 0;
	size_t got;

	if (batch->n == RF_VSOCK_IO_MAX || (batch->n && batch->streams[0]->ops != stream->ops))
		return false;
	for (uint16_t i = stream->burst_first; i != NO_CHAIN; i = device->burst_next[i]) {
		n += rf_iov_slice(rf_devq_out(q, &chains[i]), chains[i].n_out, RF_VSOCK_HDR_BYTES,
				  device->burst_len[i], batch->iov + n, RF_IOV_MAX - n, &got);
		if (got < device->burst_len[i])
			return false;
		n_pkts++;
	}
	batch->ios[batch->n] = (struct rf_vsock_io){
		.line = stream->line,
		.iov = batch->iov + batch->n_iov,
		.n = n - batch->n_iov,
	};
	batch->streams[batch->n] = stream;
	batch->n_pkts[batch->n++] = n_pkts;
	batch->n_iov = n;
	stream->burst_first = stream->burst_last = NO_CHAIN;
	return true;
}

/* Return: false if the stream is none for a batch. */
static bool batch_add(struct rf_vsock_device *device, struct rf_vsock_stream *stream,
		      const struct rf_devq *q, const struct rf_chain *chains)
{
	if (!stream->ops->send_many || !rf_stream_may_send(stream))
		return false;
	if (batch_gather(device, stream, q, chains))
		return true;
	batch_send(device);
	return batch_gather(device, stream, q, chains);
}

static void burst_flush_all(struct rf_vsock_device *device, const struct rf_devq *q,
			    const struct rf_chain *chains)
{
	bool many = device->active.merge && device->n_burst >= rf_device_batch_min(device);

	for (unsigned i = 0; i < device->n_burst; i++) {
		struct rf_vsock_stream *stream = device->burst[i];

		if (stream->burst_first != NO_CHAIN &&
		    !(many && batch_add(device, stream, q, chains)))
			burst_flush(device, stream, q, chains);
	}
	batch_send(device);
	device->n_burst = 0;
}

static void to_stream(struct rf_vsock_device *device, struct rf_vsock_stream *stream,
		      const struct rf_vsock_hdr *hdr, const struct rf_devq *q,
		      const struct rf_chain *chains, uint16_t i)
{
	unsigned events = rf_vsock_conn_rx(&stream->conn, hdr);

	if (hdr->op == VIRTIO_VSOCK_OP_CREDIT_REQUEST &&
	    stream->conn.owed & RF_VSOCK_OWE_CREDIT_UPDATE)
		rf_count(&device->counters.credit_requests_answered, 1);
	if (events & RF_VSOCK_EV_DATA) {
		rf_count(&device->counters.from_guest_data_packets, 1);
		rf_count(&device->counters.from_guest_bytes, hdr->len);
		burst_add(device, stream, i, hdr->len);
		events &= ~(unsigned)RF_VSOCK_EV_DATA;
	}
	if (stream->burst_first != NO_CHAIN &&
	    (events & (RF_VSOCK_EV_SHUT_SEND | RF_VSOCK_EV_SHUT_RCV | RF_VSOCK_EV_DEAD)))
		burst_flush(device, stream, q, chains);
	if (events || rf_vsock_conn_owes(&stream->conn))
		rf_stream_events(stream, events);
}

static void take_packet(struct rf_vsock_device *device, const struct rf_devq *q,
			const struct rf_chain *chains, uint16_t i)
{
	struct rf_vsock_conn *conn;
	struct rf_vsock_hdr hdr;
	struct rf_vsock_key key;
	bool sound;

	sound = read_header(device, q, &chains[i], &hdr);
	rf_count(&device->counters.from_guest_packets, 1);
	RF_PROBE(from_guest_packets, device->cid, hdr.src_port, hdr.dst_port, hdr.op, hdr.len);
	if (!sound)
		return;
	switch (rf_vsock_route(&hdr, device->cid, RF_VSOCK_CID_HOST, &key)) {
	case RF_VSOCK_ROUTE_DROP:
		rf_count(&device->counters.foreign_packets, 1);
		return;
	case RF_VSOCK_ROUTE_RESET:
		rf_vsock_sched_reset(&device->sched, &hdr);
		return;
	case RF_VSOCK_ROUTE_DELIVER:
		break;
	}
	conn = rf_vsock_table_find(&device->table, &key);
	if (conn)
		to_stream(device, rf_stream_of(conn), &hdr, q, chains, i);
	else if (hdr.op == VIRTIO_VSOCK_OP_REQUEST)
		rf_stream_request(device, &hdr);
	else
		rf_vsock_sched_reset(&device->sched, &hdr);
}

/* May another packet be taken? Any may need an RST: without room for one, none is. */
static bool may_take(const struct rf_vsock_device *device, uint64_t end_bytes)
{
	return rf_vsock_sched_reset_room(&device->sched) &&
	       rf_counter_read(&device->counters.from_guest_bytes) < end_bytes;
}

/* Return: packets taken from a window of @n. */
static unsigned take_window(struct rf_vsock_device *device, struct rf_devq *q,
			    const struct rf_chain *chains, unsigned n, uint64_t end_bytes)
{
	unsigned i, k;

	for (k = 0; k < n && may_take(device, end_bytes); k++)
		take_packet(device, q, chains, (uint16_t)k);
	burst_flush_all(device, q, chains);
	rf_devq_take(q, k);
	for (i = 0; i < k; i++)
		rf_devq_push(q, &chains[i], 0);
	return k;
}

bool rf_from_guest_turn(struct rf_vsock_device *device)
{
	struct rf_devq *q = rf_vu_session_queue(device->session, RING_FROM_GUEST);
	const rf_counter *bytes = &device->counters.from_guest_bytes;
	uint64_t end_bytes = rf_counter_read(bytes) + RF_HOST_TURN_BYTES;
	unsigned done = 0;
	bool more = true;

	rf_devq_disarm(q);
	while (done < RF_HOST_TURN_PACKETS && rf_counter_read(bytes) < end_bytes &&
	       !device->faulted) {
		const struct rf_chain *chains;
		int n = rf_devq_look(q, RF_DEVQ_WINDOW, &chains);
		unsigned k;

		if (n <= 0) {
			more = n == 0 && rf_ring_empty(device, RING_FROM_GUEST);
			if (more)
				continue;
			break;
		}
		k = take_window(device, q, chains, (unsigned)n, end_bytes);
		done += k;
		if (k < (unsigned)n && !rf_vsock_sched_reset_room(&device->sched)) {
			rf_count(&device->counters.back_pressure, 1);
			more = false;
			break;
		}
	}
	if (rf_devq_publish(q))
		rf_vu_session_signal(device->session, RING_FROM_GUEST);
	return more;
}
