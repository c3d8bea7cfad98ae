/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the netcats of the host side share: operands and error lines.
 */
#ifndef RF_CMD_NETCAT_H
#define RF_CMD_NETCAT_H

#include <stdint.h>

#include "options.h"

/**
 * rf_netcat_operands() - Take the operands UDS PORT
 * @argv:	The first of them
 *
 * Return: 0, or the exit status after an error line.
 */
int rf_netcat_operands(const struct rf_cmd *cmd, char **argv, const char **ret_uds,
		       uint32_t *ret_port);

/**
 * rf_netcat_run() - Standard input and output over a connected socket
 * @sock:	Closed here
 *
 * Return: the exit status, after an error line if it is not 0.
 */
int rf_netcat_run(const struct rf_cmd *cmd, int sock);

#endif
