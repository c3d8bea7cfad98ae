/* SPDX-License-Identifier: BSD-3-Clause */
#include "tx.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/fence.h"
#include "base/probe.h"
#include "socket.h"

/* Used packets are taken back when so many are out: soon enough to reuse slots that are cached. */
#define REAP_AT 8u

/*
 * How often one who holds the mutex goes on for others' sake, with packets that are handed over
 * meanwhile or entries that become free; then the guest's thread does.
 */
#define ROUNDS 4u

static void slots_init(struct rf_tx *tx)
{
	const struct rf_guest_mem *mem = tx->mem;
	struct rf_tx_slot *slot = tx->slots;

	for (uint32_t i = 0; i < mem->n_data; i++, slot++) {
		uint8_t *at = mem->base + mem->data + i * mem->data_stride;

		slot->wire = at + RF_GUEST_HDR_AT;
		slot->payload = at + RF_GUEST_PAYLOAD_AT;
	}
	for (uint32_t i = 0; i < mem->n_control; i++, slot++)
		slot->wire = mem->base + mem->control + (size_t)i * RF_GUEST_PAYLOAD_AT +
			     RF_GUEST_HDR_AT;
	rf_tx_stack_init(&tx->data.free, tx->slots, mem->n_data);
	rf_tx_stack_init(&tx->control.free, tx->slots + mem->n_data, mem->n_control);
}

int rf_tx_init(struct rf_tx *tx, const struct rf_guest_mem *mem, const struct rf_tx_config *config,
	       struct rf_guest_counters *counters)
{
	const struct rf_ring_config ring = rf_guest_mem_ring(mem, RF_GUEST_TX, config->event_idx);
	int r;

	*tx = (struct rf_tx){ .mem = mem, .counters = counters, .direct = config->direct };
	TAILQ_INIT(&tx->waiting);
	STAILQ_INIT(&tx->backlog);
	pthread_mutex_init(&tx->mutex, NULL);
	tx->slots = calloc((size_t)mem->n_data + mem->n_control, sizeof(*tx->slots));
	r = tx->slots ? rf_drvq_new(&ring, &tx->q) : -ENOMEM;
	if (r < 0) {
		rf_tx_fini(tx);
		return r;
	}
	slots_init(tx);
	rf_drvq_disarm(tx->q);
	return 0;
}

void rf_tx_fini(struct rf_tx *tx)
{
	assert(TAILQ_EMPTY(&tx->waiting) && !tx->has_backlog);
	rf_drvq_free(tx->q);
	free(tx->slots);
	pthread_mutex_destroy(&tx->mutex);
	*tx = (struct rf_tx){ 0 };
}

static void slot_free(struct rf_tx *tx, struct rf_tx_slot *slot)
{
	slot->joined = 0;
	rf_tx_stack_push(slot->payload ? &tx->data.free : &tx->control.free, slot);
}

static void reap(struct rf_tx *tx)
{
	struct rf_tx_slot *slot;
	uint32_t len;

	while ((slot = rf_drvq_get(tx->q, &len))) {
		tx->n_data -= slot->payload != NULL;
		tx->n_taken++;
		tx->armed_out = 0;
		slot_free(tx, slot);
	}
}

/* Packets that are to be used before those that are open are due; 0 or less if they are. */
static int before_open(const struct rf_tx *tx)
{
	return (int)(tx->open_due - tx->n_taken);
}

/*
 * After how many packets of those out who waits is served: half of them, unless it is only for open
 * packets, which wait for those that were out before them.
 */
static unsigned wait_for(struct rf_tx *tx, unsigned out)
{
	bool only_open = tx->n_open && tx->n_open == tx->n_waiting && !tx->data.wanted &&
			 !tx->control.wanted && STAILQ_EMPTY(&tx->backlog);
	int before = before_open(tx);

	if (!only_open)
		return (out + 1) / 2;
	return before < 1 ? 1 : rf_min_u32((uint32_t)before, out);
}

/*
 * Ask to be notified when so many have been used. Return: true if that is so already. With nothing
 * out, those who hold the slots are the ones to wake whoever waits.
 */
static bool arm(struct rf_tx *tx)
{
	unsigned out = rf_drvq_outstanding(tx->q);
	unsigned n = wait_for(tx, out);

	if (!out || (out == tx->armed_out && n >= tx->armed_after))
		return false;
	tx->armed_out = out;
	tx->armed_after = n;
	return rf_drvq_arm_after(tx->q, n);
}

static void disarm(struct rf_tx *tx)
{
	tx->armed_out = 0;
	rf_drvq_disarm(tx->q);
}

static bool anybody_waits(struct rf_tx *tx)
{
	return tx->data.wanted || tx->control.wanted || tx->n_open;
}

/* Is there what somebody waits for? */
static bool ready(struct rf_tx *tx)
{
	return (tx->data.wanted && !rf_tx_stack_empty(&tx->data.free)) ||
	       (tx->control.wanted && !rf_tx_stack_empty(&tx->control.free)) ||
	       (tx->n_open && (before_open(tx) <= 0 || !rf_tx_behind(tx)));
}

static void enqueue(struct rf_tx *tx, struct rf_sock *sock)
{
	sock->tx_queued = true;
	rf_sock_ref(sock);
	TAILQ_INSERT_TAIL(&tx->waiting, sock, tx_link);
	tx->n_waiting++;
}

static void not_only_open(struct rf_tx *tx, struct rf_sock *sock)
{
	tx->n_open -= sock->tx_open;
	sock->tx_open = false;
}

static void dequeue(struct rf_tx *tx, struct rf_sock *sock)
{
	TAILQ_REMOVE(&tx->waiting, sock, tx_link);
	tx->n_waiting--;
	sock->tx_queued = false;
	not_only_open(tx, sock);
}

static void wait_for_room(struct rf_tx *tx, struct rf_sock *sock)
{
	sock->tx_waits = true;
	not_only_open(tx, sock);
	if (!sock->tx_queued && !tx->stopped)
		enqueue(tx, sock);
}

static void count_way(struct rf_guest_counters *counters, const struct rf_tx_slot *slot)
{
	const struct rf_vsock_hdr *h = &slot->hdr;

	switch (slot->way) {
	case RF_TX_DIRECT:
		rf_count(&counters->tx_direct, 1);
		RF_PROBE(tx_direct, h->src_cid, h->src_port, h->dst_port, h->op, h->len);
		break;
	case RF_TX_QUEUED_BUSY:
		rf_count(&counters->tx_queued_busy, 1);
		RF_PROBE(tx_queued_busy, h->src_cid, h->src_port, h->dst_port, h->op, h->len);
		break;
	case RF_TX_QUEUED_FULL:
		rf_count(&counters->tx_queued_full, 1);
		RF_PROBE(tx_queued_full, h->src_cid, h->src_port, h->dst_port, h->op, h->len);
		break;
	case RF_TX_QUEUED_EARLIER:
		rf_count(&counters->tx_queued_earlier, 1);
		RF_PROBE(tx_queued_earlier, h->src_cid, h->src_port, h->dst_port, h->op, h->len);
		break;
	case RF_TX_QUEUED_OFF:
		rf_count(&counters->tx_queued_off, 1);
		RF_PROBE(tx_queued_off, h->src_cid, h->src_port, h->dst_port, h->op, h->len);
		break;
	}
}

static void count(struct rf_guest_counters *counters, struct rf_tx_slot *slot)
{
	const struct rf_vsock_hdr *hdr = &slot->hdr;

	rf_count(&counters->tx_packets, 1);
	RF_PROBE(tx_packets, hdr->src_cid, hdr->src_port, hdr->dst_port, hdr->op, hdr->len);
	rf_count(&counters->tx_bytes, hdr->len);
	count_way(counters, slot);
	if (slot->joined)
		rf_count(&counters->tx_joined, slot->joined);
	if (hdr->op == VIRTIO_VSOCK_OP_CREDIT_UPDATE) {
		rf_count(&counters->tx_credit_updates, 1);
		RF_PROBE(tx_credit_updates, hdr->src_cid, hdr->src_port, hdr->dst_port,
			 hdr->buf_alloc, hdr->fwd_cnt);
	}
	if (hdr->op == VIRTIO_VSOCK_OP_CREDIT_REQUEST)
		rf_count(&counters->tx_credit_requests, 1);
	if (hdr->op == VIRTIO_VSOCK_OP_RST)
		rf_count(&counters->tx_resets, 1);
}

/* Put a packet onto the ring, which has room for it, to be published. */
static void add(struct rf_tx *tx, struct rf_tx_slot *slot)
{
	struct rf_drvq_piece piece = {
		.gpa = rf_guest_mem_gpa(tx->mem, slot->wire),
		.len = RF_VSOCK_HDR_BYTES + slot->hdr.len,
	};

	rf_vsock_hdr_encode(&slot->hdr, slot->wire);
	if (tx->stopped || rf_drvq_add(tx->q, &piece, 1, 0, slot) < 0) {
		/* The connection ends with its device. */
		slot_free(tx, slot);
		return;
	}
	tx->n_data += slot->payload != NULL;
	count(tx->counters, slot);
}

/* Is there an entry for one more data packet, now or once used ones are taken back? */
static bool has_room(struct rf_tx *tx)
{
	if (tx->n_data >= tx->mem->max_data)
		reap(tx);
	return tx->n_data < tx->mem->max_data;
}

/* The ports may have been those of another socket, some of whose packets wait. */
static bool begins_conn(const struct rf_vsock_hdr *hdr)
{
	return hdr->op == VIRTIO_VSOCK_OP_REQUEST || hdr->op == VIRTIO_VSOCK_OP_RESPONSE;
}

/* Does a packet have to wait for room, or behind earlier ones? */
static bool must_wait(struct rf_tx *tx, const struct rf_tx_slot *slot)
{
	if (tx->stopped)
		return false;
	if (!slot->payload && slot->sock && !begins_conn(&slot->hdr))
		return slot->sock->tx_behind > 0;
	return !STAILQ_EMPTY(&tx->backlog) || (slot->payload && !has_room(tx));
}

/* Put a packet where it belongs: onto the ring, or behind those that wait. */
static void place(struct rf_tx *tx, struct rf_tx_slot *slot)
{
	if (!must_wait(tx, slot)) {
		add(tx, slot);
		return;
	}
	if (slot->way == RF_TX_DIRECT)
		slot->way = STAILQ_EMPTY(&tx->backlog) ? RF_TX_QUEUED_FULL : RF_TX_QUEUED_EARLIER;
	if (slot->sock)
		slot->sock->tx_behind++;
	STAILQ_INSERT_TAIL(&tx->backlog, slot, link);
	atomic_store_explicit(&tx->has_backlog, true, memory_order_relaxed);
}

static void place_all(struct rf_tx *tx, struct rf_tx_slot *oldest)
{
	while (oldest) {
		struct rf_tx_slot *slot = oldest;

		oldest = slot->next;
		place(tx, slot);
	}
}

/* Put what waits onto the ring, as far as there is room. */
static void drain_backlog(struct rf_tx *tx)
{
	struct rf_tx_slot *slot;

	while ((slot = STAILQ_FIRST(&tx->backlog)) &&
	       (!slot->payload || tx->stopped || has_room(tx))) {
		STAILQ_REMOVE_HEAD(&tx->backlog, link);
		if (slot->sock)
			slot->sock->tx_behind--;
		add(tx, slot);
	}
	if (!slot)
		atomic_store_explicit(&tx->has_backlog, false, memory_order_relaxed);
}

/* Put onto the ring what was handed over, publish, and take back what was used. */
static unsigned publish(struct rf_tx *tx, bool takes)
{
	unsigned todo = 0;

	if (takes && !STAILQ_EMPTY(&tx->backlog))
		drain_backlog(tx);
	if (takes && !rf_tx_handed_empty(&tx->handed))
		place_all(tx, rf_tx_handed_take(&tx->handed));
	if (tx->stopped)
		return 0;
	if (rf_drvq_publish(tx->q))
		todo |= RF_TX_KICK;
	if (rf_drvq_outstanding(tx->q) >= REAP_AT && STAILQ_EMPTY(&tx->backlog))
		reap(tx);
	return todo;
}

/* Somebody waits. Return: has the guest's thread to go on with that at once? */
static bool rest_is_due(struct rf_tx *tx)
{
	/* There is room for the backlog already. */
	if (!STAILQ_EMPTY(&tx->backlog) && tx->n_data < tx->mem->max_data)
		return true;
	/* Or soon; and more may be out than when that was asked for. */
	return arm(tx) || ready(tx);
}

/* All that is to do before the mutex is released; @takes: with what was handed over. */
static unsigned settle(struct rf_tx *tx, bool takes)
{
	unsigned todo = publish(tx, takes);

	for (unsigned n = 0; takes && !STAILQ_EMPTY(&tx->backlog) && n < ROUNDS && has_room(tx);
	     n++)
		todo |= publish(tx, takes);
	if (tx->stopped)
		return 0;
	if ((!STAILQ_EMPTY(&tx->backlog) || anybody_waits(tx)) && rest_is_due(tx))
		todo |= RF_TX_WAKE;
	/* The guest's thread is the one to give a back end up. */
	return rf_drvq_broken(tx->q) == RF_RING_NONE ? todo : todo | RF_TX_WAKE;
}

/*
 * Release the mutex. Whoever handed packets over while it was held relies on its holder to put them
 * onto the ring: so it looks again afterwards, and a sender that was too late for that look gets
 * the mutex itself.
 */
static unsigned leave(struct rf_tx *tx, bool takes)
{
	unsigned todo = 0;

	for (unsigned n = 0;; n++) {
		todo |= settle(tx, takes);
		pthread_mutex_unlock(&tx->mutex);
		rf_fence_store_load();
		if (!takes || rf_tx_handed_empty(&tx->handed))
			return todo;
		if (n == ROUNDS)
			return todo | RF_TX_WAKE;
		if (pthread_mutex_trylock(&tx->mutex) != 0)
			return todo;
	}
}

/* Queue packets, for the holder of the mutex or the guest's thread. */
static unsigned queue(struct rf_tx *tx, const struct rf_tx_chain *chain, enum rf_tx_way way)
{
	for (struct rf_tx_slot *slot = chain->newest; slot; slot = slot->next)
		slot->way = way;
	rf_tx_handed_add(&tx->handed, chain);
	if (way == RF_TX_QUEUED_OFF)
		return RF_TX_WAKE;
	rf_fence_store_load();
	return pthread_mutex_trylock(&tx->mutex) == 0 ? leave(tx, true) : 0;
}

/* A packet of the socket is handed over: it has none open, and whoever calls holds a reference. */
static void unwatch(struct rf_tx *tx, struct rf_sock *sock)
{
	if (!sock || !sock->tx_open)
		return;
	dequeue(tx, sock);
	rf_sock_unref(sock);
}

/* Send packets; those of a socket in the order in which they were made: its mutex is held. */
static unsigned hand_over(struct rf_tx *tx, const struct rf_tx_chain *chain)
{
	if (!tx->direct)
		return queue(tx, chain, RF_TX_QUEUED_OFF);
	if (!rf_tx_handed_empty(&tx->handed) ||
	    atomic_load_explicit(&tx->has_backlog, memory_order_relaxed))
		return queue(tx, chain, RF_TX_QUEUED_EARLIER);
	if (pthread_mutex_trylock(&tx->mutex) != 0)
		return queue(tx, chain, RF_TX_QUEUED_BUSY);
	unwatch(tx, chain->newest->sock);
	if (chain->newest == chain->oldest)
		place(tx, chain->newest);
	else
		place_all(tx, rf_tx_turn_round(chain->newest));
	return leave(tx, true);
}

/* Take a free slot at once. Whoever waits for one already comes first. */
static struct rf_tx_slot *take(struct rf_tx_kind *kind)
{
	if (atomic_load_explicit(&kind->wanted, memory_order_relaxed))
		return NULL;
	return rf_tx_stack_pop(&kind->free);
}

/* The same; if there is none, wait for one: @sock or, if that is NULL, the guest's thread. */
static struct rf_tx_slot *take_or_wait(struct rf_tx *tx, struct rf_tx_kind *kind,
				       struct rf_sock *sock, unsigned *ret_todo)
{
	struct rf_tx_slot *slot = take(kind);

	if (slot)
		return slot;
	pthread_mutex_lock(&tx->mutex);
	reap(tx);
	if (rf_tx_stack_empty(&kind->free) && arm(tx))
		reap(tx);
	slot = take(kind);
	if (!slot) {
		atomic_store(&kind->wanted, true);
		/* Whoever gives a slot back from now on sees that; what came before, we see. */
		rf_fence_store_load();
		rf_count(&tx->counters->tx_waits, 1);
		if (sock)
			wait_for_room(tx, sock);
	}
	*ret_todo |= leave(tx, tx->direct);
	return slot;
}

struct rf_tx_slot *rf_tx_take(struct rf_tx *tx, struct rf_sock *sock, unsigned *ret_todo)
{
	return take_or_wait(tx, &tx->data, sock, ret_todo);
}

struct rf_tx_slot *rf_tx_try_take(struct rf_tx *tx)
{
	return take(&tx->data);
}

bool rf_tx_behind(struct rf_tx *tx)
{
	return rf_drvq_unused(tx->q) > 0 || !rf_tx_handed_empty(&tx->handed) ||
	       atomic_load_explicit(&tx->has_backlog, memory_order_relaxed);
}

bool rf_tx_watch(struct rf_tx *tx, struct rf_sock *sock, unsigned *ret_todo)
{
	bool watched;

	if (pthread_mutex_trylock(&tx->mutex) != 0)
		return false;
	if (!sock->tx_queued && !tx->stopped) {
		enqueue(tx, sock);
		sock->tx_open = true;
		/*
		 * Others may publish on and on: it waits for what is before it, and not for them.
		 */
		if (!tx->n_open++)
			tx->open_due = tx->n_taken + rf_drvq_outstanding(tx->q);
	}
	watched = sock->tx_queued;
	*ret_todo |= leave(tx, tx->direct);
	return watched;
}

unsigned rf_tx_return(struct rf_tx *tx, struct rf_tx_slot *slot)
{
	slot_free(tx, slot);
	rf_fence_store_load();
	return atomic_load(&tx->data.wanted) ? RF_TX_WAKE : 0;
}

unsigned rf_tx_data(struct rf_tx *tx, struct rf_sock *sock, struct rf_tx_slot *slot)
{
	struct rf_tx_chain chain = { slot, slot };

	slot->sock = sock;
	slot->way = RF_TX_DIRECT;
	slot->next = NULL;
	return hand_over(tx, &chain);
}

unsigned rf_tx_control(struct rf_tx *tx, struct rf_sock *sock)
{
	struct rf_tx_chain chain = { 0 };
	struct rf_tx_slot *slot;
	unsigned todo = 0;

	while (rf_vsock_conn_owes(&sock->conn) &&
	       (slot = take_or_wait(tx, &tx->control, sock, &todo))) {
		rf_vsock_conn_next(&sock->conn, &slot->hdr);
		slot->sock = sock;
		slot->way = RF_TX_DIRECT;
		rf_tx_chain_add(&chain, slot);
	}
	return chain.newest ? todo | hand_over(tx, &chain) : todo;
}

unsigned rf_tx_resets(struct rf_tx *tx, struct rf_vsock_sched *sched)
{
	struct rf_tx_chain chain = { 0 };
	struct rf_tx_slot *slot;
	unsigned todo = 0;

	while (rf_vsock_sched_has_control(sched) &&
	       (slot = take_or_wait(tx, &tx->control, NULL, &todo))) {
		struct rf_vsock_conn *conn;

		rf_vsock_sched_next_control(sched, &slot->hdr, &conn);
		slot->sock = NULL;
		slot->way = RF_TX_DIRECT;
		rf_tx_chain_add(&chain, slot);
	}
	return chain.newest ? todo | hand_over(tx, &chain) : todo;
}

bool rf_tx_reap(struct rf_tx *tx, unsigned *ret_waiting, unsigned *ret_todo)
{
	uint64_t packets;
	bool sound;

	pthread_mutex_lock(&tx->mutex);
	*ret_waiting = 0;
	packets = rf_counter_read(&tx->counters->tx_packets);
	reap(tx);
	if (anybody_waits(tx) && !ready(tx) && arm(tx))
		reap(tx);
	*ret_todo |= publish(tx, true);
	if (rf_counter_read(&tx->counters->tx_packets) != packets)
		rf_count(&tx->counters->tx_worker_runs, 1);
	if (ready(tx)) {
		*ret_waiting = tx->n_waiting;
		tx->data.wanted = tx->control.wanted = false;
	}
	if (!anybody_waits(tx) && STAILQ_EMPTY(&tx->backlog))
		disarm(tx);
	sound = rf_drvq_broken(tx->q) == RF_RING_NONE;
	*ret_todo |= leave(tx, true);
	return sound;
}

struct rf_sock *rf_tx_pop_waiting(struct rf_tx *tx, unsigned *ret_todo)
{
	struct rf_sock *sock;

	pthread_mutex_lock(&tx->mutex);
	sock = TAILQ_FIRST(&tx->waiting);
	if (sock)
		dequeue(tx, sock);
	*ret_todo |= leave(tx, true);
	return sock;
}

bool rf_tx_idle(struct rf_tx *tx, unsigned *ret_todo)
{
	unsigned out;
	bool idle;

	pthread_mutex_lock(&tx->mutex);
	reap(tx);
	*ret_todo |= settle(tx, true);
	out = rf_drvq_outstanding(tx->q);
	tx->armed_out = 0;
	if (out && rf_drvq_arm_after(tx->q, out)) {
		reap(tx);
		out = rf_drvq_outstanding(tx->q);
	}
	idle = !out && STAILQ_EMPTY(&tx->backlog);
	*ret_todo |= leave(tx, true);
	return idle;
}

void rf_tx_stop(struct rf_tx *tx, unsigned *ret_waiting)
{
	pthread_mutex_lock(&tx->mutex);
	tx->stopped = true;
	tx->data.wanted = tx->control.wanted = false;
	*ret_waiting = tx->n_waiting;
	leave(tx, true);
}
