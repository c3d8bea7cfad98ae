/* SPDX-License-Identifier: BSD-3-Clause */
#include "deliver.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/probe.h"
#include "guest.h"

/* A packet of so many bytes is copied behind the one before it, rather than hold a whole buffer. */
#define JOIN_MAX 128u

static uint32_t tail_room(const struct rf_sock *sock)
{
	const struct rf_chunk *tail = TAILQ_LAST(&sock->received, rf_chunks);

	return tail ? tail->room - tail->end : 0;
}

/* Append bytes to what a socket has received, by copying. Return: 0, or -ENOMEM. */
static int append(struct rf_sock *sock, const uint8_t *data, uint32_t len)
{
	while (len) {
		uint32_t n = rf_min_u32(len, tail_room(sock));
		struct rf_chunk *tail;

		if (!n) {
			tail = rf_chunk_new(len);
			if (!tail)
				return -ENOMEM;
			TAILQ_INSERT_TAIL(&sock->received, tail, link);
			continue;
		}
		tail = TAILQ_LAST(&sock->received, rf_chunks);
		memcpy(tail->data + tail->end, data, n);
		tail->end += n;
		sock->unread += n;
		data += n;
		len -= n;
	}
	return 0;
}

/* Keep a packet's payload for the socket's reader. Return: true if in its receive buffer. */
static bool store(struct rf_guest *guest, struct rf_sock *sock, struct rf_chunk *chunk,
		  uint32_t len)
{
	rf_count(&guest->counters.rx_bytes, len);
	if (sock->shut_rd) {
		rf_sock_consumed(sock, len);
		return false;
	}
	if (len <= JOIN_MAX && len <= tail_room(sock)) {
		rf_count(&guest->counters.rx_joined_bytes, len);
	} else if (rf_rx_can_hold(chunk->rx)) {
		chunk->begin = 0;
		chunk->end = len;
		TAILQ_INSERT_TAIL(&sock->received, chunk, link);
		sock->unread += len;
		return true;
	} else {
		rf_count(&guest->counters.rx_bounced_bytes, len);
	}
	if (append(sock, chunk->data, len) < 0) {
		/* What was admitted cannot be kept: the stream ends here, and says so. */
		rf_vsock_conn_reset(&sock->conn, RF_VSOCK_LOCAL_RESET);
		rf_sock_died(sock);
	}
	return false;
}

/* More packets wait to be read than Linux holds. Return: RF_VSOCK_EV_* bits. */
static unsigned overflow(struct rf_guest *guest, struct rf_sock *sock,
			 const struct rf_vsock_hdr *hdr)
{
	struct rf_vsock_hdr bare = *hdr;

	rf_count(&guest->counters.rx_overflows, 1);
	if (guest->packet_bound == RF_PACKETS_DROP) {
		/* Its credit counts. */
		bare.len = 0;
		return rf_vsock_conn_rx(&sock->conn, &bare);
	}
	rf_vsock_conn_reset(&sock->conn, RF_VSOCK_LOCAL_RESET);
	rf_sock_died(sock);
	sock->error = ENOBUFS;
	return 0;
}

static unsigned receive(struct rf_guest *guest, struct rf_sock *sock,
			const struct rf_vsock_hdr *hdr)
{
	if (guest->packet_bound != RF_PACKETS_UNBOUNDED && hdr->op == VIRTIO_VSOCK_OP_RW &&
	    hdr->len && sock->conn.state == RF_VSOCK_ESTABLISHED &&
	    !rf_strict_admit(&sock->strict, guest->packet_bound, &sock->conn.credit, hdr->len))
		return overflow(guest, sock, hdr);
	return rf_vsock_conn_rx(&sock->conn, hdr);
}

static bool to_sock(struct rf_guest *guest, struct rf_sock *sock, const struct rf_vsock_hdr *hdr,
		    struct rf_chunk *chunk)
{
	unsigned events = 0;
	bool held = false;

	pthread_mutex_lock(&sock->mutex);
	/* Since the look-up, a failed connect may have been tried again to elsewhere. */
	if (sock->conn.key.peer_port == hdr->src_port && sock->conn.key.local_port == hdr->dst_port)
		events = receive(guest, sock, hdr);
	if (events & RF_VSOCK_EV_CONNECTED)
		sock->state = RF_SOCK_STATE_CONNECTED;
	if (events & RF_VSOCK_EV_DEAD)
		rf_sock_died(sock);
	if (events & RF_VSOCK_EV_DATA)
		held = store(guest, sock, chunk, hdr->len);
	guest->rx.todo |= rf_sock_settle(sock);
	pthread_mutex_unlock(&sock->mutex);
	return held;
}

/* Let a new connection wait for rf_accept(). Listener's mutex and table_mutex held. */
static int enqueue(struct rf_guest *guest, struct rf_sock *listener, const struct rf_vsock_hdr *hdr)
{
	struct rf_vsock_params params;
	struct rf_sock *sock;
	int r;

	/* As Linux: one more than the backlog says. */
	if (listener->state != RF_SOCK_STATE_LISTENING || listener->n_pending > listener->backlog) {
		rf_count(&guest->counters.backlog_refusals,
			 listener->state == RF_SOCK_STATE_LISTENING);
		return -ECONNREFUSED;
	}
	r = rf_sock_new(guest, &sock);
	if (r < 0)
		return r;
	pthread_mutex_lock(&sock->mutex);
	sock->sizes = listener->sizes;
	sock->local = (struct rf_sockaddr){ (uint32_t)hdr->dst_cid, hdr->dst_port };
	sock->state = RF_SOCK_STATE_CONNECTED;
	sock->device = guest->rx.device;
	rf_device_ref(sock->device);
	rf_sock_params(sock, &params);
	rf_vsock_conn_request(&sock->conn, hdr, &params, rf_clock_now());
	rf_vsock_conn_accept(&sock->conn);
	rf_vsock_sched_forget_resets(&guest->rx.resets, &sock->conn.key);
	rf_guest_list(guest, sock);
	guest->rx.todo |= rf_sock_settle(sock);
	pthread_mutex_unlock(&sock->mutex);
	TAILQ_INSERT_TAIL(&listener->pending, sock, pending_link);
	listener->n_pending++;
	rf_count(&guest->counters.accepted, 1);
	rf_sock_changed(listener);
	return 0;
}

/* Context: table_mutex held. */
static int to_listener(struct rf_guest *guest, const struct rf_vsock_hdr *hdr)
{
	struct rf_sock *listener = rf_ports_find(&guest->ports, hdr->dst_port);
	int r;

	if (!listener)
		return -ECONNREFUSED;
	pthread_mutex_lock(&listener->mutex);
	r = enqueue(guest, listener, hdr);
	pthread_mutex_unlock(&listener->mutex);
	return r;
}

static void refuse(struct rf_guest *guest, const struct rf_vsock_hdr *hdr)
{
	if (hdr->op == VIRTIO_VSOCK_OP_RST)
		return;
	rf_count(&guest->counters.rx_unmatched, 1);
	rf_vsock_sched_reset(&guest->rx.resets, hdr);
}

static bool dispatch(struct rf_guest *guest, const struct rf_vsock_hdr *hdr,
		     const struct rf_vsock_key *key, struct rf_chunk *chunk)
{
	struct rf_sock *sock;
	int r = -ECONNREFUSED;
	bool held;

	pthread_mutex_lock(&guest->table_mutex);
	sock = rf_guest_find(guest, key);
	if (!sock && hdr->op == VIRTIO_VSOCK_OP_REQUEST)
		r = to_listener(guest, hdr);
	pthread_mutex_unlock(&guest->table_mutex);
	if (!sock) {
		if (r < 0)
			refuse(guest, hdr);
		return false;
	}
	held = to_sock(guest, sock, hdr, chunk);
	rf_sock_unref(sock);
	return held;
}

static void count(struct rf_guest *guest, const struct rf_vsock_hdr *hdr)
{
	if (hdr->op == VIRTIO_VSOCK_OP_CREDIT_UPDATE)
		rf_count(&guest->counters.rx_credit_updates, 1);
	if (hdr->op == VIRTIO_VSOCK_OP_CREDIT_REQUEST)
		rf_count(&guest->counters.rx_credit_requests, 1);
	if (hdr->op == VIRTIO_VSOCK_OP_RST)
		rf_count(&guest->counters.rx_resets, 1);
}

/* Return: false if the packet cannot be; what there is of its header is in @ret_hdr. */
static bool read_header(const struct rf_chunk *chunk, uint32_t used, struct rf_vsock_hdr *ret_hdr)
{
	uint8_t wire[RF_VSOCK_HDR_BYTES];

	if (used < sizeof(wire)) {
		*ret_hdr = (struct rf_vsock_hdr){ 0 };
		return false;
	}
	/* Once: the back end may still write to the buffer. */
	memcpy(wire, chunk->wire, sizeof(wire));
	rf_vsock_hdr_decode(wire, ret_hdr);
	return ret_hdr->len <= used - sizeof(wire);
}

bool rf_deliver(struct rf_guest *guest, struct rf_chunk *chunk, uint32_t used)
{
	struct rf_vsock_hdr hdr;
	struct rf_vsock_key key;
	uint32_t cid = atomic_load(&guest->cid);
	bool sound;

	sound = read_header(chunk, used, &hdr);
	RF_PROBE(rx_packets, cid, hdr.src_port, hdr.dst_port, hdr.op, hdr.len);
	if (!sound) {
		rf_count(&guest->counters.rx_bad_length, 1);
		return false;
	}
	count(guest, &hdr);
	switch (rf_vsock_route(&hdr, RF_CID_HOST, cid, &key)) {
	case RF_VSOCK_ROUTE_DROP:
		rf_count(&guest->counters.rx_misaddressed, 1);
		return false;
	case RF_VSOCK_ROUTE_RESET:
		refuse(guest, &hdr);
		return false;
	case RF_VSOCK_ROUTE_DELIVER:
		return dispatch(guest, &hdr, &key, chunk);
	}
	return false;
}
