/* SPDX-License-Identifier: BSD-3-Clause */
#include "small.h"

#include <string.h>

#include "guest.h"

/* A packet that has grown so large is worth a turn of its own. */
#define LARGE 16384u

/*
 * The back end has read the memory that comes next, when it last held a packet. To take a cache
 * line back from another core takes longer than to fill it: so it is asked for that much earlier.
 */
#define AHEAD 512u
#define LINE  64u

static void prefetch(const uint8_t *at, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes; i += LINE) {
#if defined(__x86_64__)
		__asm__ volatile("prefetchw %0" : : "m"(at[i]));
#else
		__builtin_prefetch(at + i, 1);
#endif
	}
}

static uint32_t max_open(const struct rf_guest *guest)
{
	return rf_min_u32(LARGE, rf_guest_max_payload(guest));
}

unsigned rf_small_flush(struct rf_sock *sock)
{
	struct rf_tx_slot *slot = sock->open;

	if (!slot)
		return 0;
	sock->open = NULL;
	/* The end of the connection, which the peer has told or is to be told, overtakes it. */
	if (sock->conn.state == RF_VSOCK_DEAD)
		return rf_tx_return(&sock->device->tx, slot);
	rf_vsock_conn_rw_more(&sock->conn, &slot->hdr, 0);
	return rf_tx_data(&sock->device->tx, sock, slot);
}

/* Begin a packet; it stays open if the back end is behind. Return: false if there is no slot. */
static bool begin(struct rf_sock *sock, const void *buf, uint32_t len, unsigned *ret_todo)
{
	struct rf_tx *tx = &sock->device->tx;
	struct rf_tx_slot *slot = rf_tx_try_take(tx);

	if (!slot)
		return false;
	memcpy(slot->payload, buf, len);
	prefetch(slot->payload + len, AHEAD);
	sock->wants_credit = !rf_vsock_conn_rw(&sock->conn, len, &slot->hdr);
	if (len < max_open(sock->guest) && sock->guest->switches.join && rf_tx_behind(tx) &&
	    rf_tx_watch(tx, sock, ret_todo))
		sock->open = slot;
	else
		*ret_todo |= rf_tx_data(tx, sock, slot);
	return true;
}

static void add(struct rf_sock *sock, const void *buf, uint32_t len, unsigned *ret_todo)
{
	struct rf_tx_slot *slot = sock->open;

	memcpy(slot->payload + slot->hdr.len, buf, len);
	/* Past the end of the slot is some other memory of the guest's, which does no harm. */
	prefetch(slot->payload + slot->hdr.len + AHEAD, len);
	sock->wants_credit = !rf_vsock_conn_rw_more(&sock->conn, &slot->hdr, len);
	slot->joined++;
	if (slot->hdr.len == max_open(sock->guest) || !rf_tx_behind(&sock->device->tx))
		*ret_todo |= rf_small_flush(sock);
}

bool rf_small_send(struct rf_sock *sock, const void *buf, uint32_t len, unsigned *ret_todo)
{
	if (rf_vsock_conn_data(&sock->conn) < len || len > rf_guest_max_payload(sock->guest))
		return false;
	if (sock->open && sock->open->hdr.len + len > max_open(sock->guest))
		*ret_todo |= rf_small_flush(sock);
	if (sock->open)
		add(sock, buf, len, ret_todo);
	else if (!begin(sock, buf, len, ret_todo))
		return false;
	/* What is asked for, or waited for, the peer has to see. */
	if (sock->wants_credit)
		*ret_todo |= rf_small_flush(sock);
	if (sock->wants_credit || rf_vsock_conn_owes(&sock->conn))
		*ret_todo |= rf_sock_settle(sock);
	return true;
}
