/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "soak.h"

ssize_t soak_end_send(const struct soak_end *end, const void *buf, size_t len, bool wait)
{
	ssize_t n;

	if (end->guest)
		return rf_send(end->guest, end->fd, buf, len, wait ? 0 : RF_MSG_DONTWAIT);
	n = send(end->fd, buf, len, MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT));
	return n < 0 ? -errno : n;
}

ssize_t soak_end_recv(const struct soak_end *end, void *buf, size_t len)
{
	ssize_t n;

	if (end->guest)
		return rf_recv(end->guest, end->fd, buf, len, RF_MSG_DONTWAIT);
	n = recv(end->fd, buf, len, MSG_DONTWAIT);
	return n < 0 ? -errno : n;
}

/* What is cleared here is tried next; what happens meanwhile ends the next wait. */
static int poll_event_fds(const struct soak_end *end, short events, int timeout_ms)
{
	static const short bits[] = { POLLIN, POLLOUT };
	struct pollfd fds[2];
	uint64_t count;
	int n = 0, r;

	for (int i = 0; i < 2; i++) {
		if (!(events & bits[i]))
			continue;
		fds[n] = (struct pollfd){ rf_event_fd(end->guest, end->fd, bits[i]), POLLIN, 0 };
		if (fds[n].fd < 0)
			return fds[n].fd;
		n++;
	}
	r = poll(fds, (nfds_t)n, timeout_ms);
	for (int i = 0; i < n; i++)
		if (fds[i].revents)
			(void)!read(fds[i].fd, &count, sizeof(count));
	return r < 0 ? -errno : r;
}

int soak_end_poll(const struct soak_end *end, short events, int timeout_ms)
{
	struct pollfd host = { .fd = end->fd, .events = events };
	struct rf_pollfd guest = { .sock = end->fd, .events = events };
	int r;

	if (end->by_event_fds)
		return poll_event_fds(end, events, timeout_ms);
	if (end->guest)
		return rf_poll(end->guest, &guest, 1, timeout_ms);
	r = poll(&host, 1, timeout_ms);
	return r < 0 ? -errno : r;
}

void soak_end_shutdown(const struct soak_end *end, int how)
{
	if (end->guest)
		(void)rf_shutdown(end->guest, end->fd, how);
	else
		(void)shutdown(end->fd, how);
}

void soak_end_close(const struct soak_end *end)
{
	if (end->guest)
		(void)rf_close(end->guest, end->fd);
	else
		close(end->fd);
}
