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
			  bool eager)
{
	assert(buf_alloc > 0 && buf_alloc <= RF_VSOCK_WINDOW_MAX);
	assert(tx_limit >= rf_min_u32(buf_alloc, RF_VSOCK_TX_LIMIT_DEFAULT));
	*credit = (struct rf_vsock_credit){
		.tx_limit = tx_limit,
		.buf_alloc = buf_alloc,
		.update_at = eager ? 1 : fraction(rf_min_u32(buf_alloc, RF_VSOCK_TX_LIMIT_DEFAULT)),
	};
}

bool rf_vsock_credit_peer(struct rf_vsock_credit *credit, uint32_t buf_alloc, uint32_t fwd_cnt)
{
	uint32_t before = rf_vsock_credit_space(credit);

	if (fwd_cnt - credit->peer_fwd_cnt <= rf_vsock_credit_in_flight(credit))
		credit->peer_fwd_cnt = fwd_cnt;
	credit->peer_buf_alloc = buf_alloc;
	return rf_vsock_credit_space(credit) > before;
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

bool rf_vsock_credit_due(const struct rf_vsock_credit *credit)
{
	uint32_t at = rf_min_u32(credit->update_at, fraction(credit->peer_buf_alloc));

	return credit->fwd_cnt - credit->told_fwd_cnt >= at;
}

uint32_t rf_vsock_credit_held(const struct rf_vsock_credit *credit)
{
	return credit->rx_cnt - credit->fwd_cnt;
}
