/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Credit (virtio 1.2 5.10.6.3): how much one may send, and when to tell the peer how much it may.
 *
 * Counts on the wire are 32 bits and wrap; what follows from them is computed in 64 bits and is
 * never negative. A peer may shrink its buffer below what is in flight (then there is no credit
 * until it has caught up), may repeat an older count (ignored: threads of a Linux guest overtake
 * each other) and may claim to have consumed what was never sent (ignored).
 *
 * When to tell: a sender that limits itself below our window must not wait for an update that we
 * save up. Linux keeps no more in flight than the buffer it offers itself (CVE-2026-23086), and we
 * no more than RF_VSOCK_TX_LIMIT_DEFAULT; so the peer is told when the untold bytes are
 * 1/RF_VSOCK_CREDIT_FRACTION of the smallest of our window, the peer's and that limit.
 */
#ifndef RF_VSOCK_CREDIT_H
#define RF_VSOCK_CREDIT_H

#include <stdbool.h>
#include <stdint.h>

/* When a receiver tells of consumed bytes. */
enum rf_vsock_tell {
	RF_VSOCK_TELL_BATCHED, /* a few times per window, see above */
	RF_VSOCK_TELL_EAGER,   /* at once, as Linux before 5.4 */
	RF_VSOCK_TELL_LINUX,   /* when less than RF_VSOCK_LINUX_TELLS is free, as Linux 6.1 */
};

/**
 * struct rf_vsock_credit - Both directions' credit of one connection
 * @tx_cnt:		Payload bytes sent, wraps
 * @peer_fwd_cnt:	Of these, bytes the peer says it has consumed
 * @peer_buf_alloc:	Bytes the peer can hold, from its latest header
 * @tx_limit:		Our own limit for bytes in flight
 * @buf_alloc:		Bytes we can hold, told in every header
 * @rx_cnt:		Payload bytes admitted, wraps
 * @fwd_cnt:		Of these, bytes consumed
 * @told_fwd_cnt:	@fwd_cnt as last told to the peer
 * @tell:		When to tell the peer of consumed bytes
 */
struct rf_vsock_credit {
	uint32_t tx_cnt;
	uint32_t peer_fwd_cnt;
	uint32_t peer_buf_alloc;
	uint32_t tx_limit;
	uint32_t buf_alloc;
	uint32_t rx_cnt;
	uint32_t fwd_cnt;
	uint32_t told_fwd_cnt;
	enum rf_vsock_tell tell;
};

/**
 * rf_vsock_credit_init() - Start both directions at zero
 * @credit:	Credit
 * @buf_alloc:	Receive window to offer, bytes, 1 to RF_VSOCK_WINDOW_MAX
 * @tx_limit:	Most bytes to keep in flight; not below @buf_alloc, unless it is at least
 *		RF_VSOCK_TX_LIMIT_DEFAULT
 * @tell:	When to tell of consumed bytes
 */
void rf_vsock_credit_init(struct rf_vsock_credit *credit, uint32_t buf_alloc, uint32_t tx_limit,
			  enum rf_vsock_tell tell);

/* Take over what a header of the peer says. */
void rf_vsock_credit_peer(struct rf_vsock_credit *credit, uint32_t buf_alloc, uint32_t fwd_cnt);

/* Bytes that may be sent now. */
uint32_t rf_vsock_credit_space(const struct rf_vsock_credit *credit);

/* Bytes sent that the peer has not consumed. */
uint32_t rf_vsock_credit_in_flight(const struct rf_vsock_credit *credit);

/* @len bytes were sent; @len is not more than the space was. */
void rf_vsock_credit_sent(struct rf_vsock_credit *credit, uint32_t len);

/**
 * rf_vsock_credit_admit() - Payload arrived
 * Return: false if it is more than the peer was granted; nothing is counted then.
 */
bool rf_vsock_credit_admit(struct rf_vsock_credit *credit, uint32_t len);

/**
 * rf_vsock_credit_consumed() - Admitted payload was passed on
 * Return: true if the peer should be told now.
 */
bool rf_vsock_credit_consumed(struct rf_vsock_credit *credit, uint32_t len);

/* Should the peer be told of consumed bytes now? */
bool rf_vsock_credit_due(const struct rf_vsock_credit *credit);

/* Bytes admitted and not consumed. */
uint32_t rf_vsock_credit_held(const struct rf_vsock_credit *credit);

#endif
