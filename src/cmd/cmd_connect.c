/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ringferry connect: netcat to a port of the guest.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "netcat.h"
#include "options.h"
#include "ringferry/client.h"

struct connect_options {
	uint64_t wait_sec;
};

static const struct rf_opt opts[] = {
	{
		.name = "wait",
		.kind = RF_OPT_NUMBER,
		.arg = "SECONDS",
		.help = "How long to go on trying while the socket is missing or the guest does "
			"not accept. Default 0: one try.",
		.max = INT_MAX / 1000,
		.offset = offsetof(struct connect_options, wait_sec),
	},
};

static void failure_print(const char *uds, uint32_t port, int error)
{
	fprintf(stderr, "ringferry connect: %.200s: ", uds);
	switch (-error) {
	case ENOENT:
		fprintf(stderr, "no such socket: is the back end running?\n");
		break;
	case ECONNREFUSED:
		fprintf(stderr,
			"refused: is the back end running, and does the guest listen on port %u?\n",
			port);
		break;
	case ETIMEDOUT:
		fprintf(stderr, "no answer in 15 seconds: is the guest running?\n");
		break;
	case EPROTO:
		fprintf(stderr, "the answer is not \"OK PORT\": is this a hybrid vsock socket?\n");
		break;
	case ENAMETOOLONG:
		fprintf(stderr, "the path is too long for a socket: allowed are 107 bytes\n");
		break;
	default:
		fprintf(stderr, "%s\n", strerror(-error));
	}
}

static int connect_main(int argc, char **argv)
{
	struct connect_options options = { 0 };
	int status, first, sock;
	const char *uds;
	uint32_t port;

	if (!rf_opts_parse(&rf_cmd_connect, argc, argv, &options, &status, &first))
		return status;
	status = rf_netcat_operands(&rf_cmd_connect, argv + first, &uds, &port);
	if (status)
		return status;
	sock = rf_client_connect(uds, port, (int)(options.wait_sec * 1000));
	if (sock < 0) {
		failure_print(uds, port, sock);
		return 1;
	}
	return rf_netcat_run(&rf_cmd_connect, sock);
}

const struct rf_cmd rf_cmd_connect = {
	.name = "connect",
	.usage = "UDS PORT",
	.summary = "Connect standard input and output to a port of the guest.",
	.details =
		"UDS is the back end's unix socket (ringferry vsock --uds-path, or that of another "
		"hybrid vsock back end). At the end of standard input the sending direction is "
		"shut down; the program ends when the guest has ended its direction, too.",
	.opts = opts,
	.n_opts = RF_ARRAY_SIZE(opts),
	.min_operands = 2,
	.max_operands = 2,
	.main = connect_main,
};
