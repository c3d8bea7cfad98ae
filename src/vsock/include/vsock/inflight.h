/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How many packets are in flight: sent, and not known to be consumed.
 *
 * A peer reports consumed bytes, not packets. So the end of each run of packets is kept, and the
 * run counts until all of its bytes are consumed: never too few are counted, and too many only by
 * less than one run. Linux, too, frees a packet, and reports its bytes, when all of it was read.
 */
#ifndef RF_VSOCK_INFLIGHT_H
#define RF_VSOCK_INFLIGHT_H

#include <stdint.h>

/* Runs kept; when all are in use, the newest one takes what is sent. */
#define RF_VSOCK_INFLIGHT_RUNS 16u

/**
 * struct rf_vsock_inflight - Packets of one direction of a connection
 * @n_pkts:	Packets of all runs
 * @first, @n_runs: The oldest entry of @runs and their number
 * @runs:	A ring of runs: @end is the count of bytes sent when it ended, wraps
 */
struct rf_vsock_inflight {
	uint32_t n_pkts;
	uint32_t first, n_runs;
	struct {
		uint32_t end;
		uint32_t n_pkts;
	} runs[RF_VSOCK_INFLIGHT_RUNS];
};

/**
 * rf_vsock_inflight_sent() - A packet was sent
 * @end:	Count of bytes sent, this packet's included
 * @run_pkts:	Packets after which the next run begins, if there is room for it
 */
void rf_vsock_inflight_sent(struct rf_vsock_inflight *inflight, uint32_t end, uint32_t run_pkts);

/**
 * rf_vsock_inflight_grew() - Bytes were added to the packet that was sent last
 * @end:	Count of bytes sent, these included
 */
void rf_vsock_inflight_grew(struct rf_vsock_inflight *inflight, uint32_t end);

/**
 * rf_vsock_inflight_consumed() - The peer has reported
 * @tx_cnt:	Count of bytes sent
 * @fwd_cnt:	Of these, consumed
 */
void rf_vsock_inflight_consumed(struct rf_vsock_inflight *inflight, uint32_t tx_cnt,
				uint32_t fwd_cnt);

#endif
