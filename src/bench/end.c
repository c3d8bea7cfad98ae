/* SPDX-License-Identifier: BSD-3-Clause */
#include "end.h"

#include <errno.h>
#include <poll.h>
#include <ringferry/guest.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "back_end.h"

#define ACCEPT_MS     20000
#define CONNECT_TRIES 2000
#define RETRY_US      5000

void rf_bench_end_send(struct rf_bench_team *team, const struct rf_bench_end *end, const void *buf,
		       size_t len)
{
	const char *at = buf;

	while (len) {
		ssize_t n = end->guest ? rf_send(end->guest, end->fd, at, len, 0)
				       : write(end->fd, at, len);

		if (n < 0)
			rf_bench_team_fail(team, end->guest ? (int)-n : errno, "send");
		at += n;
		len -= (size_t)n;
	}
}

size_t rf_bench_end_recv(struct rf_bench_team *team, const struct rf_bench_end *end, void *buf,
			 size_t len)
{
	ssize_t n =
		end->guest ? rf_recv(end->guest, end->fd, buf, len, 0) : read(end->fd, buf, len);

	if (n < 0)
		rf_bench_team_fail(team, end->guest ? (int)-n : errno, "receive");
	return (size_t)n;
}

size_t rf_bench_end_recv_all(struct rf_bench_team *team, const struct rf_bench_end *end, void *buf,
			     size_t len)
{
	size_t got = 0, n;

	do {
		n = rf_bench_end_recv(team, end, (char *)buf + got, len - got);
		got += n;
	} while (n && got < len);
	return got;
}

void rf_bench_end_shutdown(const struct rf_bench_end *end)
{
	if (end->guest)
		(void)rf_shutdown(end->guest, end->fd, RF_SHUT_WR);
	else
		(void)shutdown(end->fd, SHUT_WR);
}

/* One socket of the guest after the other; the host may not be there yet. */
static int guest_connect(struct rf_guest *guest)
{
	int sock = rf_socket(guest, RF_SOCK_STREAM), r = -ETIMEDOUT;

	for (int i = 0; sock >= 0 && i < CONNECT_TRIES; i++) {
		r = rf_connect(guest, sock, &(struct rf_sockaddr){ RF_CID_HOST, RF_BENCH_PORT });
		if (r != -ECONNRESET && r != -ENODEV)
			break;
		usleep(RETRY_US);
	}
	return sock < 0 ? sock : r < 0 ? r : sock;
}

static int guest_listen(struct rf_guest *guest, int backlog)
{
	int sock = rf_socket(guest, RF_SOCK_STREAM);
	int r = sock < 0 ? sock
			 : rf_bind(guest, sock, &(struct rf_sockaddr){ RF_CID_ANY, RF_BENCH_PORT });

	if (r == 0)
		r = rf_listen(guest, sock, backlog);
	return r < 0 ? r : sock;
}

/* Who accepts reads a connection's number from it: connections may be accepted in any order. */
static void accept_into(struct rf_bench_team *team, struct rf_guest *guest, int listener,
			struct rf_bench_end *ends, unsigned n)
{
	struct pollfd poll_fd = { .fd = listener, .events = POLLIN };
	struct rf_bench_end end = { .guest = guest };
	uint32_t number = 0;

	if (!guest && poll(&poll_fd, 1, ACCEPT_MS) != 1)
		rf_bench_team_fail(team, ETIMEDOUT, "the guest does not connect");
	end.fd = guest ? rf_accept(guest, listener, NULL, 0)
		       : accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (end.fd < 0)
		rf_bench_team_fail(team, guest ? -end.fd : errno, "accept");
	if (rf_bench_end_recv_all(team, &end, &number, sizeof(number)) != sizeof(number) ||
	    number >= n)
		rf_bench_team_fail(team, EPROTO, "a connection's number");
	ends[number] = end;
}

/* Not every back end takes a connection well that comes before the guest. */
static void wait_for_guest(struct rf_bench_team *team)
{
	for (unsigned ms = 0; !atomic_load(&team->shared->listening); ms++) {
		if (ms == ACCEPT_MS)
			rf_bench_team_fail(team, ETIMEDOUT, "the guest does not listen");
		usleep(1000);
	}
}

void rf_bench_ends_open(struct rf_bench_team *team, struct rf_guest *guest, bool connects,
			struct rf_bench_end *ends, unsigned n)
{
	int listener = team->listener;

	if (guest && !connects) {
		listener = guest_listen(guest, (int)n + 16);
		if (listener < 0)
			rf_bench_team_fail(team, -listener, "the guest's listener");
		atomic_store(&team->shared->listening, true);
	}
	if (!guest && connects)
		wait_for_guest(team);
	for (uint32_t i = 0; i < n; i++) {
		if (!connects) {
			accept_into(team, guest, listener, ends, n);
			continue;
		}
		ends[i].guest = guest;
		ends[i].fd = guest ? guest_connect(guest) : rf_bench_back_end_connect(team);
		if (ends[i].fd < 0)
			rf_bench_team_fail(team, -ends[i].fd, "connect");
		rf_bench_end_send(team, &ends[i], &i, sizeof(i));
	}
}

static char *counters(void *guest)
{
	return rf_guest_counters_json(guest);
}

void rf_bench_guest_answer(struct rf_bench_team *team, struct rf_guest *guest)
{
	rf_bench_team_answer(team, RF_BENCH_GUEST, counters, guest);
}
