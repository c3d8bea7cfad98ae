/* SPDX-License-Identifier: BSD-3-Clause */
#include "tx.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/probe.h"
#include "socket.h"

/* Used packets are taken back when so many are out: soon enough to reuse slots that are cached. */
#define REAP_AT 8u

static void stack_push(struct rf_tx_stack *stack, struct rf_tx_slot *slot)
{
	stack->slots[stack->n++] = slot;
}

static struct rf_tx_slot *stack_pop(struct rf_tx_stack *stack)
{
	return stack->n ? stack->slots[--stack->n] : NULL;
}

static int stack_init(struct rf_tx_stack *stack, struct rf_tx_slot *slots, uint32_t n)
{
	assert(n > 0);
	stack->slots = calloc(n, sizeof(struct rf_tx_slot *));
	if (!stack->slots)
		return -ENOMEM;
	while (n)
		stack_push(stack, &slots[--n]);
	return 0;
}

static int slots_init(struct rf_tx *tx)
{
	const struct rf_guest_mem *mem = tx->mem;
	struct rf_tx_slot *slot;
	int r;

	tx->slots = calloc(mem->n_data + mem->n_control, sizeof(*tx->slots));
	if (!tx->slots)
		return -ENOMEM;
	slot = tx->slots;
	for (uint32_t i = 0; i < mem->n_data; i++, slot++) {
		uint8_t *at = mem->base + mem->data + i * mem->data_stride;

		slot->wire = at + RF_GUEST_HDR_AT;
		slot->payload = at + RF_GUEST_PAYLOAD_AT;
	}
	for (uint32_t i = 0; i < mem->n_control; i++, slot++)
		slot->wire = mem->base + mem->control + (size_t)i * RF_GUEST_PAYLOAD_AT +
			     RF_GUEST_HDR_AT;
	r = stack_init(&tx->data, tx->slots, mem->n_data);
	if (r < 0)
		return r;
	return stack_init(&tx->control, tx->slots + mem->n_data, mem->n_control);
}

int rf_tx_init(struct rf_tx *tx, const struct rf_guest_mem *mem, bool event_idx,
	       struct rf_guest_counters *counters)
{
	const struct rf_ring_config ring = rf_guest_mem_ring(mem, RF_GUEST_TX, event_idx);
	int r;

	*tx = (struct rf_tx){ .mem = mem, .counters = counters };
	TAILQ_INIT(&tx->waiting);
	pthread_mutex_init(&tx->mutex, NULL);
	r = slots_init(tx);
	if (r == 0)
		r = rf_drvq_new(&ring, &tx->q);
	if (r < 0)
		rf_tx_fini(tx);
	else
		rf_drvq_disarm(tx->q);
	return r;
}

void rf_tx_fini(struct rf_tx *tx)
{
	assert(TAILQ_EMPTY(&tx->waiting));
	rf_drvq_free(tx->q);
	free(tx->data.slots);
	free(tx->control.slots);
	free(tx->slots);
	pthread_mutex_destroy(&tx->mutex);
	*tx = (struct rf_tx){ 0 };
}

static unsigned reap(struct rf_tx *tx)
{
	struct rf_tx_slot *slot;
	uint32_t len;
	unsigned n = 0;

	while ((slot = rf_drvq_get(tx->q, &len))) {
		stack_push(slot->payload ? &tx->data : &tx->control, slot);
		n++;
	}
	return n;
}

/*
 * Ask to be notified when half of what is out has been used. Return: true if that is so already.
 * With nothing out, those who hold the slots are the ones to wake whoever waits.
 */
static bool arm(struct rf_tx *tx)
{
	unsigned out = rf_drvq_outstanding(tx->q);

	return out && rf_drvq_arm_after(tx->q, (out + 1) / 2);
}

/*
 * Take a free slot; @wants says that somebody waits for one of these already, and gets it first.
 * Return: the slot, or NULL; @wants is true then.
 */
static struct rf_tx_slot *take(struct rf_tx *tx, struct rf_tx_stack *stack, bool *wants)
{
	if (!stack->n || rf_drvq_outstanding(tx->q) >= REAP_AT)
		reap(tx);
	if (!stack->n && arm(tx))
		reap(tx);
	if (stack->n && !*wants)
		return stack_pop(stack);
	*wants = true;
	rf_count(&tx->counters->tx_waits, 1);
	return NULL;
}

/* Is there what somebody waits for? */
static bool ready(const struct rf_tx *tx)
{
	return (tx->wants_data && tx->data.n) || (tx->wants_control && tx->control.n);
}

static void wait_for_room(struct rf_tx *tx, struct rf_sock *sock)
{
	sock->tx_waits = true;
	if (sock->tx_queued || tx->stopped)
		return;
	sock->tx_queued = true;
	rf_sock_ref(sock);
	TAILQ_INSERT_TAIL(&tx->waiting, sock, tx_link);
	tx->n_waiting++;
}

static bool anybody_waits(const struct rf_tx *tx)
{
	return tx->wants_data || tx->wants_control;
}

/* Put a packet onto the ring, to be published; its header is already there. */
static void add(struct rf_tx *tx, struct rf_tx_slot *slot, const struct rf_vsock_hdr *hdr)
{
	struct rf_drvq_piece piece = {
		.gpa = rf_guest_mem_gpa(tx->mem, slot->wire),
		.len = RF_VSOCK_HDR_BYTES + hdr->len,
	};

	rf_vsock_hdr_encode(hdr, slot->wire);
	if (tx->stopped || rf_drvq_add(tx->q, &piece, 1, 0, slot) < 0) {
		/* The connection ends with its device. */
		stack_push(slot->payload ? &tx->data : &tx->control, slot);
		return;
	}
	rf_count(&tx->counters->tx_packets, 1);
	RF_PROBE(tx_packets, hdr->src_cid, hdr->src_port, hdr->dst_port, hdr->op, hdr->len);
	rf_count(&tx->counters->tx_bytes, hdr->len);
	if (hdr->op == VIRTIO_VSOCK_OP_CREDIT_UPDATE) {
		rf_count(&tx->counters->tx_credit_updates, 1);
		RF_PROBE(tx_credit_updates, hdr->src_cid, hdr->src_port, hdr->dst_port,
			 hdr->buf_alloc, hdr->fwd_cnt);
	}
	if (hdr->op == VIRTIO_VSOCK_OP_CREDIT_REQUEST)
		rf_count(&tx->counters->tx_credit_requests, 1);
	if (hdr->op == VIRTIO_VSOCK_OP_RST)
		rf_count(&tx->counters->tx_resets, 1);
}

/* The guest's thread is the one to serve those who wait, and to give the back end up. */
static unsigned wake_todo(const struct rf_tx *tx)
{
	return ready(tx) || rf_drvq_broken(tx->q) != RF_RING_NONE ? RF_TX_WAKE : 0;
}

static unsigned publish(struct rf_tx *tx)
{
	unsigned todo = 0;

	if (tx->stopped)
		return 0;
	if (rf_drvq_publish(tx->q))
		todo |= RF_TX_KICK;
	/* More is out than when the notification was asked for. */
	if (anybody_waits(tx) && arm(tx))
		todo |= RF_TX_WAKE;
	return todo | wake_todo(tx);
}

struct rf_tx_slot *rf_tx_take(struct rf_tx *tx, struct rf_sock *sock, unsigned *ret_todo)
{
	struct rf_tx_slot *slot;

	pthread_mutex_lock(&tx->mutex);
	slot = take(tx, &tx->data, &tx->wants_data);
	if (!slot) {
		wait_for_room(tx, sock);
		*ret_todo |= wake_todo(tx);
	}
	pthread_mutex_unlock(&tx->mutex);
	return slot;
}

unsigned rf_tx_return(struct rf_tx *tx, struct rf_tx_slot *slot)
{
	unsigned todo;

	pthread_mutex_lock(&tx->mutex);
	stack_push(&tx->data, slot);
	todo = wake_todo(tx);
	pthread_mutex_unlock(&tx->mutex);
	return todo;
}

unsigned rf_tx_data(struct rf_tx *tx, struct rf_sock *sock, struct rf_tx_slot *slot, uint32_t len)
{
	struct rf_vsock_hdr hdr;
	unsigned todo;

	pthread_mutex_lock(&tx->mutex);
	rf_vsock_conn_rw(&sock->conn, len, &hdr);
	add(tx, slot, &hdr);
	todo = publish(tx);
	pthread_mutex_unlock(&tx->mutex);
	return todo;
}

unsigned rf_tx_control(struct rf_tx *tx, struct rf_sock *sock)
{
	unsigned todo;

	pthread_mutex_lock(&tx->mutex);
	while (rf_vsock_conn_owes(&sock->conn)) {
		struct rf_tx_slot *slot = take(tx, &tx->control, &tx->wants_control);
		struct rf_vsock_hdr hdr;

		if (!slot) {
			wait_for_room(tx, sock);
			break;
		}
		rf_vsock_conn_next(&sock->conn, &hdr);
		add(tx, slot, &hdr);
	}
	todo = publish(tx);
	pthread_mutex_unlock(&tx->mutex);
	return todo;
}

unsigned rf_tx_resets(struct rf_tx *tx, struct rf_vsock_sched *sched)
{
	unsigned todo;

	pthread_mutex_lock(&tx->mutex);
	while (rf_vsock_sched_has_control(sched)) {
		struct rf_tx_slot *slot = take(tx, &tx->control, &tx->wants_control);
		struct rf_vsock_conn *conn;
		struct rf_vsock_hdr hdr;

		if (!slot)
			break;
		rf_vsock_sched_next_control(sched, &hdr, &conn);
		add(tx, slot, &hdr);
	}
	todo = publish(tx);
	pthread_mutex_unlock(&tx->mutex);
	return todo;
}

bool rf_tx_reap(struct rf_tx *tx, unsigned *ret_waiting)
{
	bool broken;

	pthread_mutex_lock(&tx->mutex);
	*ret_waiting = 0;
	reap(tx);
	if (anybody_waits(tx) && !ready(tx) && arm(tx))
		reap(tx);
	if (ready(tx)) {
		*ret_waiting = tx->n_waiting;
		tx->wants_data = tx->wants_control = false;
		rf_drvq_disarm(tx->q);
	}
	broken = rf_drvq_broken(tx->q) != RF_RING_NONE;
	pthread_mutex_unlock(&tx->mutex);
	return !broken;
}

struct rf_sock *rf_tx_pop_waiting(struct rf_tx *tx)
{
	struct rf_sock *sock;

	pthread_mutex_lock(&tx->mutex);
	sock = TAILQ_FIRST(&tx->waiting);
	if (sock) {
		TAILQ_REMOVE(&tx->waiting, sock, tx_link);
		tx->n_waiting--;
		sock->tx_queued = false;
	}
	pthread_mutex_unlock(&tx->mutex);
	return sock;
}

bool rf_tx_idle(struct rf_tx *tx)
{
	unsigned out;

	pthread_mutex_lock(&tx->mutex);
	reap(tx);
	out = rf_drvq_outstanding(tx->q);
	if (out && rf_drvq_arm_after(tx->q, out)) {
		reap(tx);
		out = rf_drvq_outstanding(tx->q);
	}
	pthread_mutex_unlock(&tx->mutex);
	return !out;
}

void rf_tx_stop(struct rf_tx *tx, unsigned *ret_waiting)
{
	pthread_mutex_lock(&tx->mutex);
	tx->stopped = true;
	tx->wants_data = tx->wants_control = false;
	*ret_waiting = tx->n_waiting;
	pthread_mutex_unlock(&tx->mutex);
}
