/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * host-echo SOCKET CID - be what a virtual machine talks to, until SIGINT or SIGTERM.
 *
 * The VMM, or "ringferry guest", connects to SOCKET. What the guest sends to port 7 of the host
 * comes back. There is no other socket: bytes go straight from the guest's memory into this
 * program's, and back.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ringferry/host.h>

/* One connection, and what has been taken and not given back. */
struct echo {
	size_t used;
	int eof;
	char buf[65536];
};

static struct rf_host *host;

static int accept_echo(void *ctx, struct rf_host_conn *conn, uint32_t guest_port, void **ret_ctx)
{
	struct echo *echo = calloc(1, sizeof(*echo));

	(void)ctx;
	(void)conn;
	if (!echo)
		return -ENOMEM;
	printf("connection from port %u\n", (unsigned)guest_port);
	fflush(stdout);
	*ret_ctx = echo;
	return 0;
}

static ssize_t take(void *ctx, struct rf_host_conn *conn, const struct iovec *iov, int n)
{
	struct echo *echo = ctx;
	size_t room = sizeof(echo->buf) - echo->used;
	size_t len = rf_host_copy_out(iov, n, 0, echo->buf + echo->used, room);

	echo->used += len;
	rf_host_conn_ready(conn, RF_HOST_GIVE);
	return len ? (ssize_t)len : -EAGAIN;
}

static ssize_t give(void *ctx, struct rf_host_conn *conn, const struct iovec *iov, int n)
{
	struct echo *echo = ctx;
	size_t len = rf_host_copy_in(iov, n, 0, echo->buf, echo->used);

	echo->used -= len;
	memmove(echo->buf, echo->buf + len, echo->used);
	rf_host_conn_ready(conn, RF_HOST_TAKE);
	if (len)
		return (ssize_t)len;
	return echo->eof ? 0 : -EAGAIN;
}

/* The end of the file goes back, too, behind what is left. */
static void shut(void *ctx, struct rf_host_conn *conn, int what)
{
	struct echo *echo = ctx;

	if (what & RF_HOST_TAKE)
		echo->eof = 1;
	rf_host_conn_ready(conn, RF_HOST_GIVE);
}

static void ended(void *ctx, struct rf_host_conn *conn, int how)
{
	(void)conn;
	printf("connection ended: %s\n", how ? strerror(-how) : "closed");
	fflush(stdout);
	free(ctx);
}

static const struct rf_host_stream_ops ops = {
	.size = sizeof(ops),
	.accept = accept_echo,
	.take = take,
	.give = give,
	.shut = shut,
	.ended = ended,
};

static void stop(int sig)
{
	(void)sig;
	/* NOLINTNEXTLINE(bugprone-signal-handler,cert-sig30-c): ringferry/host.h allows it */
	rf_host_stop(host);
}

int main(int argc, char **argv)
{
	struct rf_host_vsock_options options;
	struct rf_host_device *device;
	int r;

	if (argc != 3) {
		fprintf(stderr, "usage: host-echo SOCKET CID\n");
		return 2;
	}
	rf_host_vsock_options_init(&options);
	options.socket_path = argv[1];
	options.guest_cid = (uint32_t)strtoul(argv[2], NULL, 10);
	r = rf_host_new(NULL, &host);
	if (r == 0)
		r = rf_host_add_vsock(host, &options, &device);
	if (r == 0)
		r = rf_host_listen(device, 7, &ops, NULL);
	if (r == 0) {
		signal(SIGINT, stop);
		signal(SIGTERM, stop);
		printf("ready\n");
		fflush(stdout);
		r = rf_host_run(host);
	}
	if (r < 0)
		fprintf(stderr, "host-echo: %s\n", strerror(-r));
	rf_host_free(host);
	return r < 0;
}
