/* SPDX-License-Identifier: BSD-3-Clause */
#include "vsock/sched.h"

#include <assert.h>

/* Bits of conn->scheduled: which queues it is on. */
enum {
	ON_CONTROL = 1 << 0,
	ON_DATA = 1 << 1,
};

void rf_vsock_sched_init(struct rf_vsock_sched *sched)
{
	TAILQ_INIT(&sched->control);
	TAILQ_INIT(&sched->data);
	sched->first_reset = 0;
	sched->n_resets = 0;
	sched->reset_went_last = false;
}

static void take_off(struct rf_vsock_sched *sched, struct rf_vsock_conn *conn, uint8_t queues)
{
	queues &= conn->scheduled;
	if (queues & ON_CONTROL)
		TAILQ_REMOVE(&sched->control, conn, control_link);
	if (queues & ON_DATA)
		TAILQ_REMOVE(&sched->data, conn, data_link);
	conn->scheduled &= (uint8_t)~queues;
}

void rf_vsock_sched_control(struct rf_vsock_sched *sched, struct rf_vsock_conn *conn)
{
	if (conn->scheduled & ON_CONTROL || !rf_vsock_conn_owes(conn))
		return;
	TAILQ_INSERT_TAIL(&sched->control, conn, control_link);
	conn->scheduled |= ON_CONTROL;
}

void rf_vsock_sched_data(struct rf_vsock_sched *sched, struct rf_vsock_conn *conn)
{
	if (conn->scheduled & ON_DATA)
		return;
	TAILQ_INSERT_TAIL(&sched->data, conn, data_link);
	conn->scheduled |= ON_DATA;
}

void rf_vsock_sched_data_first(struct rf_vsock_sched *sched, struct rf_vsock_conn *conn)
{
	take_off(sched, conn, ON_DATA);
	TAILQ_INSERT_HEAD(&sched->data, conn, data_link);
	conn->scheduled |= ON_DATA;
}

void rf_vsock_sched_remove(struct rf_vsock_sched *sched, struct rf_vsock_conn *conn)
{
	take_off(sched, conn, ON_CONTROL | ON_DATA);
}

bool rf_vsock_sched_reset(struct rf_vsock_sched *sched, const struct rf_vsock_hdr *hdr)
{
	struct rf_vsock_hdr reset;

	if (!rf_vsock_hdr_reset(hdr, &reset))
		return true;
	if (!rf_vsock_sched_reset_room(sched))
		return false;
	sched->resets[(sched->first_reset + sched->n_resets++) % RF_VSOCK_RESETS] = reset;
	return true;
}

void rf_vsock_sched_forget_resets(struct rf_vsock_sched *sched, const struct rf_vsock_key *key)
{
	uint32_t n = sched->n_resets;

	sched->n_resets = 0;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t first = sched->first_reset;
		struct rf_vsock_hdr reset = sched->resets[(first + i) % RF_VSOCK_RESETS];

		if (reset.type != VIRTIO_VSOCK_TYPE_STREAM || reset.src_port != key->local_port ||
		    reset.dst_cid != key->peer_cid || reset.dst_port != key->peer_port)
			sched->resets[(first + sched->n_resets++) % RF_VSOCK_RESETS] = reset;
	}
}

bool rf_vsock_sched_reset_room(const struct rf_vsock_sched *sched)
{
	return sched->n_resets < RF_VSOCK_RESETS;
}

/* The first connection that still owes: a data packet may have taken an owed update with it. */
static struct rf_vsock_conn *first_control(struct rf_vsock_sched *sched)
{
	struct rf_vsock_conn *conn;

	while ((conn = TAILQ_FIRST(&sched->control)) && !rf_vsock_conn_owes(conn))
		take_off(sched, conn, ON_CONTROL);
	return conn;
}

bool rf_vsock_sched_next_control(struct rf_vsock_sched *sched, struct rf_vsock_hdr *ret_hdr,
				 struct rf_vsock_conn **ret_conn)
{
	struct rf_vsock_conn *conn = first_control(sched);

	/* In turn, so that a flood of packets to nowhere holds up no connection. */
	if (sched->n_resets && !(conn && sched->reset_went_last)) {
		*ret_hdr = sched->resets[sched->first_reset];
		*ret_conn = NULL;
		sched->first_reset = (sched->first_reset + 1) % RF_VSOCK_RESETS;
		sched->n_resets--;
		sched->reset_went_last = true;
		return true;
	}
	if (!conn)
		return false;
	take_off(sched, conn, ON_CONTROL);
	rf_vsock_conn_next(conn, ret_hdr);
	rf_vsock_sched_control(sched, conn);
	*ret_conn = conn;
	sched->reset_went_last = false;
	return true;
}

bool rf_vsock_sched_has_control(struct rf_vsock_sched *sched)
{
	return sched->n_resets || first_control(sched);
}

struct rf_vsock_conn *rf_vsock_sched_next_data(struct rf_vsock_sched *sched)
{
	struct rf_vsock_conn *conn = TAILQ_FIRST(&sched->data);

	if (conn)
		take_off(sched, conn, ON_DATA);
	return conn;
}

bool rf_vsock_sched_has_data(const struct rf_vsock_sched *sched)
{
	return !TAILQ_EMPTY(&sched->data);
}
