/* SPDX-License-Identifier: BSD-3-Clause */
#include "vsock/inflight.h"

void rf_vsock_inflight_sent(struct rf_vsock_inflight *inflight, uint32_t end, uint32_t run_pkts)
{
	uint32_t newest = (inflight->first + inflight->n_runs - 1) % RF_VSOCK_INFLIGHT_RUNS;

	if (!inflight->n_runs || (inflight->runs[newest].n_pkts >= run_pkts &&
				  inflight->n_runs < RF_VSOCK_INFLIGHT_RUNS)) {
		newest = (newest + 1) % RF_VSOCK_INFLIGHT_RUNS;
		inflight->runs[newest].n_pkts = 0;
		inflight->n_runs++;
	}
	inflight->runs[newest].end = end;
	inflight->runs[newest].n_pkts++;
	inflight->n_pkts++;
}

void rf_vsock_inflight_grew(struct rf_vsock_inflight *inflight, uint32_t end)
{
	uint32_t newest = (inflight->first + inflight->n_runs - 1) % RF_VSOCK_INFLIGHT_RUNS;

	/* A peer that has reported bytes it cannot have got has no run left. */
	if (inflight->n_runs)
		inflight->runs[newest].end = end;
}

void rf_vsock_inflight_consumed(struct rf_vsock_inflight *inflight, uint32_t tx_cnt,
				uint32_t fwd_cnt)
{
	while (inflight->n_runs &&
	       tx_cnt - inflight->runs[inflight->first].end >= tx_cnt - fwd_cnt) {
		inflight->n_pkts -= inflight->runs[inflight->first].n_pkts;
		inflight->first = (inflight->first + 1) % RF_VSOCK_INFLIGHT_RUNS;
		inflight->n_runs--;
	}
}
