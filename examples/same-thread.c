/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * same-thread [MIB] - both ends of a vsock in one thread: a guest's socket on one side, callbacks
 * on the other, and every byte checked both ways.
 *
 * The thread is guest and host by turns: it sends and receives what it can, and lets the host serve
 * what there is. Nobody has to be woken for that, so no system call is made for a byte.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <ringferry/guest.h>
#include <ringferry/host.h>

#define PORT 7u

/* Bytes that one end has sent and received, of a pattern that is different each way. */
struct end {
	uint64_t sent, got;
	unsigned char seed;
	int wrong;
};

static struct end host_end = { .seed = 1 }, guest_end = { .seed = 101 };
static uint64_t total = 16u << 20;
static unsigned char buf[256 * 1024];

static unsigned char pattern(uint64_t at, unsigned char seed)
{
	return (unsigned char)(at * 31 + (at >> 11) + seed);
}

static size_t fill(struct end *end, size_t len)
{
	if (len > total - end->sent)
		len = (size_t)(total - end->sent);
	for (size_t i = 0; i < len; i++)
		buf[i] = pattern(end->sent + i, end->seed);
	return len;
}

static void check(struct end *end, const struct end *sender, size_t len)
{
	for (size_t i = 0; i < len; i++)
		end->wrong |= buf[i] != pattern(end->got + i, sender->seed);
	end->got += len;
}

/* The host's end */

static ssize_t take(void *ctx, struct rf_host_conn *conn, const struct iovec *iov, int n)
{
	size_t len = rf_host_copy_out(iov, n, 0, buf, sizeof(buf));

	(void)ctx;
	check(&host_end, &guest_end, len);
	/* It took less than all if that was more than the buffer: the rest, please. */
	rf_host_conn_ready(conn, RF_HOST_TAKE);
	return (ssize_t)len;
}

static ssize_t give(void *ctx, struct rf_host_conn *conn, const struct iovec *iov, int n)
{
	size_t len = fill(&host_end, sizeof(buf));

	(void)ctx;
	(void)conn;
	len = rf_host_copy_in(iov, n, 0, buf, len);
	host_end.sent += len;
	return len ? (ssize_t)len : -EAGAIN;
}

static const struct rf_host_stream_ops ops = { .size = sizeof(ops), .take = take, .give = give };

/* The guest's end */

/* Return: 0, or what went wrong. */
static int guest_turn(struct rf_guest *guest, int sock)
{
	size_t len = fill(&guest_end, sizeof(buf));
	ssize_t n = len ? rf_send(guest, sock, buf, len, RF_MSG_DONTWAIT) : 0;

	if (n < 0 && n != -EAGAIN)
		return (int)n;
	if (n > 0)
		guest_end.sent += (uint64_t)n;
	n = rf_recv(guest, sock, buf, sizeof(buf), RF_MSG_DONTWAIT);
	if (n == 0 || (n < 0 && n != -EAGAIN))
		return n ? (int)n : -EPIPE;
	if (n > 0)
		check(&guest_end, &host_end, (size_t)n);
	return 0;
}

/* Both */

struct opening {
	struct rf_guest_options options;
	struct rf_guest *guest;
	int result;
	atomic_int done;
};

/* It waits for answers of the host, so here alone a second thread is needed. */
static void *open_guest(void *arg)
{
	struct opening *opening = arg;

	opening->result = rf_guest_open(&opening->options, &opening->guest);
	atomic_store(&opening->done, 1);
	return NULL;
}

static int attach(struct rf_host *host, int fd, struct rf_guest **ret_guest)
{
	struct opening opening = { .done = 0 };
	pthread_t thread;

	rf_guest_options_init(&opening.options);
	opening.options.socket_fd = fd;
	if (pthread_create(&thread, NULL, open_guest, &opening) != 0)
		return -EAGAIN;
	while (!atomic_load(&opening.done))
		rf_host_dispatch(host, 0);
	pthread_join(thread, NULL);
	*ret_guest = opening.guest;
	return opening.result;
}

static int connect_guest(struct rf_host *host, struct rf_guest *guest, int *ret_sock)
{
	const struct rf_sockaddr addr = { .cid = RF_CID_HOST, .port = PORT };
	struct rf_pollfd pfd = { .events = RF_POLLOUT };
	int r;

	*ret_sock = pfd.sock = rf_socket(guest, RF_SOCK_STREAM | RF_SOCK_NONBLOCK);
	if (pfd.sock < 0)
		return pfd.sock;
	r = rf_connect(guest, pfd.sock, &addr);
	while (r == -EINPROGRESS && rf_poll(guest, &pfd, 1, 0) == 0)
		rf_host_dispatch(host, 0);
	return pfd.revents & RF_POLLERR ? -ECONNREFUSED : 0;
}

static int move(struct rf_host *host, struct rf_guest *guest, int sock)
{
	int r = 0;

	while (r == 0 && (guest_end.got < total || host_end.got < total)) {
		r = guest_turn(guest, sock);
		if (r == 0)
			r = rf_host_dispatch(host, 0);
	}
	return r;
}

static int add_device(struct rf_host *host, int fd)
{
	struct rf_host_vsock_options options;
	struct rf_host_device *device;
	int r;

	rf_host_vsock_options_init(&options);
	options.guest_cid = 3;
	options.socket_fd = fd;
	r = rf_host_add_vsock(host, &options, &device);
	return r < 0 ? r : rf_host_listen(device, PORT, &ops, NULL);
}

int main(int argc, char **argv)
{
	struct rf_host_options options;
	struct rf_guest *guest = NULL;
	struct rf_host *host;
	char *counters;
	int pair[2], sock, r;

	if (argc > 1)
		total = strtoull(argv[1], NULL, 10) << 20;
	rf_host_options_init(&options);
	/* This thread comes by all the time: guests need not kick. */
	options.poll_us = RF_HOST_POLL_BUSY;
	r = rf_host_new(&options, &host);
	if (r < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
		return 1;
	r = add_device(host, pair[0]);
	if (r == 0)
		r = attach(host, pair[1], &guest);
	if (r == 0)
		r = connect_guest(host, guest, &sock);
	if (r == 0)
		r = move(host, guest, sock);
	if (r < 0)
		fprintf(stderr, "same-thread: %s\n", strerror(-r));
	counters = guest ? rf_guest_counters_json(guest) : NULL;
	if (counters)
		puts(counters);
	free(counters);
	if (guest)
		rf_guest_close(guest);
	rf_host_free(host);
	printf("%llu bytes each way, %s\n", (unsigned long long)total,
	       host_end.wrong || guest_end.wrong ? "WRONG" : "all right");
	return r < 0 || host_end.wrong || guest_end.wrong;
}
