/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RF_GUEST_CLOSE_H
#define RF_GUEST_CLOSE_H

#include "socket.h"

/**
 * rf_sock_close() - End a socket, and what waits on it
 * @sock:	From rf_sock_get_to_close(); its reference is given up
 */
void rf_sock_close(struct rf_guest *guest, struct rf_sock *sock);

#endif
