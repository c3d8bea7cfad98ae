/* SPDX-License-Identifier: BSD-3-Clause */
#include "pump.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>

#define BUFFER_BYTES (256 * 1024)

/*
 * A thread per direction, because a descriptor that is shared with other processes must stay
 * blocking. The receiving one is the caller's. Either ends the other by shutting the socket down,
 * which the other sees as the end of file or as POLLHUP.
 */
struct pump {
	int in_fd, out_fd, sock;
	int send_error;
	enum rf_pump_end send_end;
};

static void fd_wait(int fd, short events)
{
	struct pollfd pfd = { .fd = fd, .events = events };

	poll(&pfd, 1, -1);
}

static bool must_retry(int fd, short events)
{
	if (errno == EAGAIN)
		fd_wait(fd, events);
	return errno == EAGAIN || errno == EINTR;
}

static int socket_send(int sock, const char *buf, size_t len)
{
	while (len) {
		ssize_t n = send(sock, buf, len, MSG_NOSIGNAL);

		if (n < 0 && must_retry(sock, POLLOUT))
			continue;
		if (n < 0)
			return -errno;
		buf += n;
		len -= (size_t)n;
	}
	return 0;
}

static int out_write(int fd, const char *buf, size_t len)
{
	while (len) {
		ssize_t n = write(fd, buf, len);

		if (n < 0 && must_retry(fd, POLLOUT))
			continue;
		if (n < 0)
			return -errno;
		buf += n;
		len -= (size_t)n;
	}
	return 0;
}

/* Wait for input. Return: false if there is none and nobody is left to send it to. */
static bool in_wait(const struct pump *pump)
{
	struct pollfd pfds[] = {
		{ .fd = pump->in_fd, .events = POLLIN },
		{ .fd = pump->sock }, /* closed: POLLHUP, which needs no asking */
	};

	while (poll(pfds, 2, -1) < 0)
		if (errno != EINTR)
			return true;
	return pfds[0].revents || !pfds[1].revents;
}

static void *send_run(void *arg)
{
	struct pump *pump = arg;
	char buf[BUFFER_BYTES];

	while (in_wait(pump)) {
		ssize_t n = read(pump->in_fd, buf, sizeof(buf));

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (n < 0) {
			pump->send_error = -errno;
			pump->send_end = RF_PUMP_IN;
			shutdown(pump->sock, SHUT_RDWR);
			return NULL;
		}
		if (n == 0)
			break;
		pump->send_error = socket_send(pump->sock, buf, (size_t)n);
		if (pump->send_error < 0) {
			pump->send_end = RF_PUMP_SOCKET;
			return NULL;
		}
	}
	shutdown(pump->sock, SHUT_WR);
	return NULL;
}

static int receive_run(const struct pump *pump, enum rf_pump_end *ret_end)
{
	char buf[BUFFER_BYTES];

	for (;;) {
		ssize_t n = recv(pump->sock, buf, sizeof(buf), 0);
		int r;

		if (n < 0 && must_retry(pump->sock, POLLIN))
			continue;
		if (n < 0) {
			r = -errno;
			*ret_end = RF_PUMP_SOCKET;
			return r;
		}
		if (n == 0)
			return 0;
		r = out_write(pump->out_fd, buf, (size_t)n);
		if (r < 0) {
			*ret_end = RF_PUMP_OUT;
			return r;
		}
	}
}

int rf_pump_run(int in_fd, int out_fd, int sock, enum rf_pump_end *ret_end)
{
	struct pump pump = { .in_fd = in_fd, .out_fd = out_fd, .sock = sock };
	enum rf_pump_end end = RF_PUMP_NONE;
	pthread_t sender;
	int r;

	r = -pthread_create(&sender, NULL, send_run, &pump);
	if (r < 0)
		return r;
	r = receive_run(&pump, &end);
	if (r < 0)
		shutdown(sock, SHUT_RDWR);
	pthread_join(sender, NULL);
	if (r == 0 && pump.send_error < 0) {
		r = pump.send_error;
		end = pump.send_end;
	}
	if (r < 0)
		*ret_end = end;
	return r;
}
