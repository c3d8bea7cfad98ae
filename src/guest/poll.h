/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rf_poll(): a poller stands on the list of each of its sockets while it waits.
 */
#ifndef RF_GUEST_POLL_H
#define RF_GUEST_POLL_H

#include "socket.h"

/**
 * rf_polls_tell() - Wake the pollers of a socket that want to know
 * @events:	RF_POLL* bits that hold now
 * Context: the socket's mutex held.
 */
void rf_polls_tell(struct rf_sock *sock, int events);

#endif
