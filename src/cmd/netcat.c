/* SPDX-License-Identifier: BSD-3-Clause */
#include "netcat.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "pump.h"

int rf_netcat_operands(const struct rf_cmd *cmd, char **argv, const char **ret_uds,
		       uint32_t *ret_port)
{
	uint32_t port;

	if (!*argv[0])
		return rf_opts_error(cmd, "UDS", "the path is empty; allowed: a path");
	if (rf_port_parse(argv[1], &port) < 0)
		return rf_opts_error(cmd, "PORT",
				     "\"%.200s\" is no port; allowed: a number from 0 to %u",
				     argv[1], UINT32_MAX - 1);
	*ret_uds = argv[0];
	*ret_port = port;
	return 0;
}

int rf_netcat_run(const struct rf_cmd *cmd, int sock)
{
	static const char *const ends[] = {
		[RF_PUMP_NONE] = "start",
		[RF_PUMP_IN] = "standard input",
		[RF_PUMP_OUT] = "standard output",
		[RF_PUMP_SOCKET] = "connection",
	};
	enum rf_pump_end end = RF_PUMP_NONE;
	int r = rf_pump_run(STDIN_FILENO, STDOUT_FILENO, sock, &end);

	rf_fd_close(sock);
	if (r == 0)
		return 0;
	if (end == RF_PUMP_SOCKET && (r == -EPIPE || r == -ECONNRESET))
		fprintf(stderr,
			"ringferry %s: connection: the peer closed it before it had taken "
			"everything\n",
			cmd->name);
	else
		fprintf(stderr, "ringferry %s: %s: %s\n", cmd->name, ends[end], strerror(-r));
	return 1;
}
