/* SPDX-License-Identifier: BSD-3-Clause */
#include <assert.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_vsock_backend_priv.h"
#include "op_name.h"

#define WAIT_MS 5000

static struct timespec after_ms(int ms)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += ms / 1000;
	t.tv_nsec += ms % 1000 * 1000000L;
	if (t.tv_nsec >= 1000000000L) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000L;
	}
	return t;
}

void fake_wait_attached(struct fake_backend *fake)
{
	struct timespec until = after_ms(WAIT_MS);
	int r = 0;

	pthread_mutex_lock(&fake->mutex);
	while (!fake->attached && r == 0)
		r = pthread_cond_timedwait(&fake->cond, &fake->mutex, &until);
	pthread_mutex_unlock(&fake->mutex);
	assert_int_equal(r, 0);
}

static struct fake_packet *pop(struct fake_backend *fake)
{
	struct fake_packet *packet;

	while ((packet = TAILQ_FIRST(&fake->packets))) {
		TAILQ_REMOVE(&fake->packets, packet, link);
		if (!fake->ignore_questions || packet->hdr.op != VIRTIO_VSOCK_OP_CREDIT_REQUEST)
			break;
		free(packet);
	}
	return packet;
}

static struct fake_packet *next(struct fake_backend *fake, int ms)
{
	struct timespec until = after_ms(ms);
	struct fake_packet *packet;
	int r = 0;

	pthread_mutex_lock(&fake->mutex);
	while (!(packet = pop(fake)) && r == 0)
		r = pthread_cond_timedwait(&fake->cond, &fake->mutex, &until);
	pthread_mutex_unlock(&fake->mutex);
	return packet;
}

void fake_ignore_questions(struct fake_backend *fake)
{
	pthread_mutex_lock(&fake->mutex);
	fake->ignore_questions = true;
	pthread_mutex_unlock(&fake->mutex);
}

void fake_next(struct fake_backend *fake, struct rf_vsock_hdr *ret_hdr, uint8_t *ret_payload)
{
	struct fake_packet *packet = next(fake, WAIT_MS);

	assert_non_null(packet);
	*ret_hdr = packet->hdr;
	if (ret_payload)
		memcpy(ret_payload, packet->payload, packet->hdr.len);
	free(packet);
}

struct rf_vsock_hdr fake_expect(struct fake_backend *fake, uint16_t op)
{
	struct rf_vsock_hdr hdr;

	fake_next(fake, &hdr, NULL);
	assert_string_equal(op_name(hdr.op), op_name(op));
	return hdr;
}

void fake_expect_none(struct fake_backend *fake, int ms)
{
	struct fake_packet *packet = next(fake, ms);

	if (packet) {
		print_error("%s from the guest\n", op_name(packet->hdr.op));
		free(packet);
		fail_msg("a packet that should not have come");
	}
}

struct rf_vsock_hdr fake_answer(const struct rf_vsock_hdr *hdr, uint16_t op)
{
	return (struct rf_vsock_hdr){
		.src_cid = hdr->dst_cid,
		.dst_cid = hdr->src_cid,
		.src_port = hdr->dst_port,
		.dst_port = hdr->src_port,
		.type = hdr->type,
		.op = op,
		.buf_alloc = 262144,
	};
}

struct rf_vsock_hdr fake_hdr(uint16_t op, uint32_t host_port, uint32_t guest_port)
{
	return (struct rf_vsock_hdr){
		.src_cid = RF_VSOCK_CID_HOST,
		.dst_cid = FAKE_CID,
		.src_port = host_port,
		.dst_port = guest_port,
		.type = VIRTIO_VSOCK_TYPE_STREAM,
		.op = op,
		.buf_alloc = 262144,
	};
}

struct put_args {
	const struct rf_vsock_hdr *hdr;
	const void *payload;
	uint32_t used;
	bool done;
};

static void put(struct fake_backend *fake, void *arg)
{
	struct put_args *a = arg;

	a->done = fake->session && fake_rx_put(fake, a->hdr, a->payload, a->used);
}

void fake_send_used(struct fake_backend *fake, const struct rf_vsock_hdr *hdr, const void *payload,
		    uint32_t used)
{
	struct put_args args = { hdr, payload, used, false };

	for (int i = 0; i < WAIT_MS && !args.done; i++) {
		fake_call(fake, put, &args);
		if (!args.done)
			usleep(1000);
	}
	assert_true(args.done);
}

void fake_send(struct fake_backend *fake, const struct rf_vsock_hdr *hdr, const void *payload)
{
	fake_send_used(fake, hdr, payload, RF_VSOCK_HDR_BYTES + hdr->len);
}

static void hold_tx(struct fake_backend *fake, void *arg)
{
	const bool *hold = arg;

	fake->hold_tx = *hold;
	if (fake->session)
		fake_serve_tx(fake);
}

void fake_hold_tx(struct fake_backend *fake, bool hold)
{
	fake_call(fake, hold_tx, &hold);
}

static void take_one(struct fake_backend *fake, void *arg)
{
	struct rf_devq *q = rf_vu_session_queue(fake->session, 1);
	const struct rf_chain *chains;
	struct rf_chain chain;

	(void)arg;
	if (rf_devq_look(q, 1, &chains) < 1)
		return;
	chain = *chains;
	fake_take_packet(fake, q, &chain);
	rf_devq_take(q, 1);
	rf_devq_push(q, &chain, 0);
	if (rf_devq_publish(q))
		rf_vu_session_signal(fake->session, 1);
}

void fake_take_one(struct fake_backend *fake)
{
	fake_call(fake, take_one, NULL);
}

static void event_put(struct fake_backend *fake, uint32_t id, uint32_t used)
{
	struct rf_devq *q = rf_vu_session_queue(fake->session, 2);
	const struct rf_chain *chains;
	struct rf_chain chain;

	assert(rf_devq_look(q, 1, &chains) >= 1);
	rf_iov_copy_in(rf_devq_in(q, chains), chains->n_in, 0, &id, sizeof(id));
	chain = *chains;
	rf_devq_take(q, 1);
	rf_devq_push(q, &chain, used);
}

struct event_args {
	uint32_t id, used;
};

static void event(struct fake_backend *fake, void *arg)
{
	const struct event_args *a = arg;

	event_put(fake, a->id, a->used);
	if (rf_devq_publish(rf_vu_session_queue(fake->session, 2)))
		rf_vu_session_signal(fake->session, 2);
}

void fake_event(struct fake_backend *fake, uint32_t id, uint32_t used)
{
	fake_call(fake, event, &(struct event_args){ id, used });
}

static void two_events(struct fake_backend *fake, void *arg)
{
	const uint32_t *ids = arg;

	event_put(fake, ids[0], sizeof(ids[0]));
	event_put(fake, ids[1], sizeof(ids[1]));
	if (rf_devq_publish(rf_vu_session_queue(fake->session, 2)))
		rf_vu_session_signal(fake->session, 2);
}

void fake_two_events(struct fake_backend *fake, uint32_t first, uint32_t second)
{
	fake_call(fake, two_events, (uint32_t[]){ first, second });
}

static void break_ring(struct fake_backend *fake, void *arg)
{
	const unsigned *ring = arg;

	fake_used_index_jump(fake->session, *ring);
	rf_vu_session_signal(fake->session, *ring);
}

void fake_break_ring(struct fake_backend *fake, unsigned ring)
{
	fake_call(fake, break_ring, &ring);
}

static void signal_error(struct fake_backend *fake, void *arg)
{
	(void)arg;
	rf_devq_break(rf_vu_session_queue(fake->session, 0), RF_RING_DESC_ADDR);
	rf_vu_session_ring_broken(fake->session, 0);
}

void fake_signal_error(struct fake_backend *fake)
{
	fake_call(fake, signal_error, NULL);
}

static void chatter(struct fake_backend *fake, void *arg)
{
	(void)arg;
	fake_session_write(fake->session, "x", 1);
}

void fake_chatter(struct fake_backend *fake)
{
	fake_call(fake, chatter, NULL);
}

static void connect_guest(struct fake_backend *fake, void *arg)
{
	const uint32_t *port = arg;

	fake_host_connect(fake, *port);
}

void fake_connect(struct fake_backend *fake, uint32_t guest_port)
{
	fake_call(fake, connect_guest, &guest_port);
}

uint64_t fake_slow_bytes(struct fake_backend *fake)
{
	return atomic_load(&fake->slow_bytes);
}

uint64_t fake_overflows(struct fake_backend *fake)
{
	return atomic_load(&fake->overflows);
}
