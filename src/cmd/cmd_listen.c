/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ringferry listen: netcat for one connection from the guest.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/util.h"
#include "netcat.h"
#include "options.h"
#include "ringferry/client.h"

struct listen_options {
	bool print_ready;
};

static const struct rf_opt opts[] = {
	{
		.name = "print-ready",
		.kind = RF_OPT_FLAG,
		.help = "Write the line \"ready\" to standard error once the guest can connect.",
		.offset = offsetof(struct listen_options, print_ready),
	},
};

static void failure_print(const char *uds, uint32_t port, int error)
{
	fprintf(stderr, "ringferry listen: %.200s_%u: ", uds, port);
	switch (-error) {
	case EADDRINUSE:
		fprintf(stderr, "somebody listens there already, or the file is no socket\n");
		break;
	case ENOENT:
		fprintf(stderr, "no such directory\n");
		break;
	case ENAMETOOLONG:
		fprintf(stderr, "the path is too long for a socket: allowed are 107 bytes\n");
		break;
	default:
		fprintf(stderr, "%s\n", strerror(-error));
	}
}

/* Return: a connection, or -errno: -EINTR if one of the signals of @signals came first. */
static int connection_wait(int listener, int signals)
{
	struct pollfd pfds[] = {
		{ .fd = listener, .events = POLLIN },
		{ .fd = signals, .events = POLLIN },
	};
	int sock;

	while (poll(pfds, RF_ARRAY_SIZE(pfds), -1) < 0)
		if (errno != EINTR)
			return -errno;
	if (pfds[1].revents)
		return -EINTR;
	sock = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	return sock < 0 ? -errno : sock;
}

/*
 * One connection is wanted: the socket file goes as soon as it is there, so that the guest's next
 * one is refused and does not wait for ever.
 */
static int connection_take(const char *uds, uint32_t port, bool print_ready)
{
	int listener = rf_client_listen(uds, port, 1);
	RF_AUTO_FD int signals = -1;
	sigset_t set, old;
	int sock;

	if (listener < 0)
		return listener;
	sigemptyset(&set);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, &old);
	signals = signalfd(-1, &set, SFD_CLOEXEC);
	if (print_ready)
		fprintf(stderr, "ready\n");
	sock = signals < 0 ? -errno : connection_wait(listener, signals);
	rf_client_unlisten(listener, uds, port);
	/* A signal that came is still pending, and ends the program here as it would have. */
	sigprocmask(SIG_SETMASK, &old, NULL);
	return sock;
}

static int listen_main(int argc, char **argv)
{
	struct listen_options options = { 0 };
	int status, first, sock;
	const char *uds;
	uint32_t port;

	if (!rf_opts_parse(&rf_cmd_listen, argc, argv, &options, &status, &first))
		return status;
	status = rf_netcat_operands(&rf_cmd_listen, argv + first, &uds, &port);
	if (status)
		return status;
	sock = connection_take(uds, port, options.print_ready);
	if (sock < 0) {
		failure_print(uds, port, sock);
		return 1;
	}
	return rf_netcat_run(&rf_cmd_listen, sock);
}

const struct rf_cmd rf_cmd_listen = {
	.name = "listen",
	.usage = "UDS PORT",
	.summary = "Connect standard input and output to the guest's next connection.",
	.details =
		"UDS is the back end's unix socket (ringferry vsock --uds-path, or that of another "
		"hybrid vsock back end); the listener is UDS_PORT. At the end of standard input "
		"the "
		"sending direction is shut down; the program ends when the guest has ended its "
		"direction, too.",
	.opts = opts,
	.n_opts = RF_ARRAY_SIZE(opts),
	.min_operands = 2,
	.max_operands = 2,
	.main = listen_main,
};
