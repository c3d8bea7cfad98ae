/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Small sends: one short section instead of three, and many of them in one packet.
 *
 * DOC: Joining. While the back end has packets before it that it has not got to, one more small
 * packet would only wait behind them. So the bytes of a small send then stay in an open packet of
 * the socket, which the sends after it add to. It leaves when it is large enough; with the first
 * send that finds that the back end has caught up; before any other packet of the socket; when the
 * peer's credit is used up; and at the latest when the back end has used what was on the ring
 * before it, of which the guest's thread is notified. A send that finds the back end idle goes
 * straight: what could be worked on is never held back.
 *
 * To the connection an open packet counts as sent: its credit is taken as it grows.
 *
 * Context: the socket's mutex is held; a sender holds its send_mutex, too.
 */
#ifndef RF_GUEST_SMALL_H
#define RF_GUEST_SMALL_H

#include <stdbool.h>
#include <stdint.h>

struct rf_sock;

/* Largest send that is copied with the socket's mutex held: about as long as taking it again. */
#define RF_SMALL_MAX 4096u

/**
 * rf_small_send() - Send a few bytes, all of them, if that can be done at once
 * @sock:	Connected, and it may send
 * @buf:	Bytes
 * @len:	Their number, 1 to RF_SMALL_MAX
 * @ret_todo:	RF_TX_* bits are added
 *
 * Return: true; or false if they have to wait or need a packet of their own: then they are to be
 * sent the long way.
 */
bool rf_small_send(struct rf_sock *sock, const void *buf, uint32_t len, unsigned *ret_todo);

/* Let the open packet go, if there is one. Return: RF_TX_* bits. */
unsigned rf_small_flush(struct rf_sock *sock);

#endif
