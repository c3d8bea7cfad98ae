/* SPDX-License-Identifier: BSD-3-Clause */
#include "vsock/credit.h"

#include <assert.h>

#include "base/util.h"
#include "vsock/limits.h"

static uint32_t fraction(uint32_t window)
{
	return window < RF_VSOCK_CREDIT_FRACTION ? 1 : window / RF_VSOCK_CREDIT_FRACTION;
}

void rf_vsock_credit_init(struct rf_vsock_credit *credit, uint32_t buf_alloc, uint32_t tx_limit,
			  enum rf_vsock_tell tell)
{
	assert(buf_alloc > 0 && buf_alloc <= RF_VSOCK_WINDOW_MAX);
	assert(tx_limit >= rf_min_u32(buf_alloc, RF_VSOCK_TX_LIMIT_DEFAULT));
	*credit = (struct rf_vsock_credit){
		.tx_limit = tx_limit,
		.buf_alloc = buf_alloc,
		.tell = tell,
	};
}

void rf_vsock_credit_peer(struct rf_vsock_credit *credit, uint32_t buf_alloc, uint32_t fwd_cnt)
{
	if (fwd_cnt - credit->peer_fwd_cnt <= rf_vsock_credit_in_flight(credit))
		credit->peer_fwd_cnt = fwd_cnt;
	credit->peer_buf_alloc = buf_alloc;
}

uint32_t rf_vsock_credit_space(const struct rf_vsock_credit *credit)
{
	int64_t space = (int64_t)rf_min_u32(credit->peer_buf_alloc, credit->tx_limit) -
			rf_vsock_credit_in_flight(credit);

	return space > 0 ? (uint32_t)space : 0;
}

uint32_t rf_vsock_credit_in_flight(const struct rf_vsock_credit *credit)
{
	return credit->tx_cnt - credit->peer_fwd_cnt;
}

void rf_vsock_credit_sent(struct rf_vsock_credit *credit, uint32_t len)
{
	assert(len <= rf_vsock_credit_space(credit));
	credit->tx_cnt += len;
}

bool rf_vsock_credit_admit(struct rf_vsock_credit *credit, uint32_t len)
{
	if (len > credit->buf_alloc - rf_vsock_credit_held(credit))
		return false;
	credit->rx_cnt += len;
	return true;
}

bool rf_vsock_credit_consumed(struct rf_vsock_credit *credit, uint32_t len)
{
	assert(len <= rf_vsock_credit_held(credit));
	credit->fwd_cnt += len;
	return rf_vsock_credit_due(credit);
}

/* Untold bytes at which the peer is told. */
static uint32_t tell_at(const struct rf_vsock_credit *credit)
{
	switch (credit->tell) {
	case RF_VSOCK_TELL_BATCHED:
		return fraction(rf_min_u32(rf_min_u32(credit->buf_alloc, credit->peer_buf_alloc),
					   RF_VSOCK_TX_LIMIT_DEFAULT));
	case RF_VSOCK_TELL_LINUX:
		if (credit->buf_alloc >= RF_VSOCK_LINUX_TELLS)
			return credit->buf_alloc - RF_VSOCK_LINUX_TELLS + 1;
		break;
	case RF_VSOCK_TELL_EAGER:
		break;
	}
	return 1;
}

bool rf_vsock_credit_due(const struct rf_vsock_credit *credit)
{
	return credit->fwd_cnt - credit->told_fwd_cnt >= tell_at(credit);
}

uint32_t rf_vsock_credit_held(const struct rf_vsock_credit *credit)
{
	return credit->rx_cnt - credit->fwd_cnt;
}
