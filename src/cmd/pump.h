/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Standard input and output on one end, a connected socket on the other.
 */
#ifndef RF_CMD_PUMP_H
#define RF_CMD_PUMP_H

/* Where an error came from. */
enum rf_pump_end {
	RF_PUMP_NONE,
	RF_PUMP_IN,
	RF_PUMP_OUT,
	RF_PUMP_SOCKET,
};

/**
 * rf_pump_run() - Carry bytes both ways until both directions have ended
 * @in_fd:	Read from; at its end the socket's sending direction is shut down
 * @out_fd:	Written to
 * @sock:	Connected stream socket
 * @ret_end:	Where the error came from, when one is returned
 *
 * A peer that closed the socket altogether ends the sending direction too, and only what could not
 * be sent to it is an error. A peer that takes no more bytes but still sends is listened to until
 * it ends. Every other error ends both directions.
 *
 * The descriptors may be blocking or not; their flags are left alone, for they may be shared with
 * other processes.
 *
 * Return: 0, or -errno.
 */
int rf_pump_run(int in_fd, int out_fd, int sock, enum rf_pump_end *ret_end);

#endif
