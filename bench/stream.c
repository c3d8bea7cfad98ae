/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One run: a stream for some seconds, every byte that was sent counted at its receiver.
 *
 * Three processes, as in use: a user-space guest, the back end, and the host program, which is this
 * one. Without a guest a plain AF_UNIX stream socket between two processes, one write(2) per
 * message: what a program would see without a guest in between.
 */
#include <errno.h>
#include <poll.h>
#include <ringferry/client.h>
#include <ringferry/guest.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

#define PORT      5000u
#define READ_SIZE (256u << 10)

/* What the receiving side saw. */
struct result {
	uint64_t bytes;
	double seconds;
};

/* One end of a stream: a descriptor of the host, or a socket of the guest. */
struct end {
	struct rf_guest *guest;
	int fd;
};

/* A run's parameters. */
struct run {
	const struct bench_setup *setup;
	const struct bench_place *place;
	size_t size;
	double seconds;
};

static ssize_t end_send(const struct end *end, const void *buf, size_t len)
{
	return end->guest ? rf_send(end->guest, end->fd, buf, len, 0) : write(end->fd, buf, len);
}

static ssize_t end_recv(const struct end *end, void *buf, size_t len)
{
	return end->guest ? rf_recv(end->guest, end->fd, buf, len, 0) : read(end->fd, buf, len);
}

static uint64_t send_for(const struct end *end, const struct run *run)
{
	double until = bench_now_s() + run->seconds;
	char *buf = calloc(1, run->size);
	uint64_t bytes = 0;

	/* The clock costs as much as a small message. */
	for (unsigned i = 0; (i & 63) != 0 || bench_now_s() < until; i++) {
		ssize_t n = end_send(end, buf, run->size);

		if (n < 0) {
			errno = end->guest ? (int)-n : errno;
			bench_die("send");
		}
		bytes += (uint64_t)n;
	}
	free(buf);
	return bytes;
}

static struct result receive_all(const struct end *end)
{
	struct result result = { 0 };
	char *buf = malloc(READ_SIZE);
	double begin = 0;
	ssize_t n;

	while ((n = end_recv(end, buf, READ_SIZE)) > 0) {
		if (!result.bytes)
			begin = bench_now_s();
		result.bytes += (uint64_t)n;
	}
	if (n < 0) {
		errno = end->guest ? (int)-n : errno;
		bench_die("receive");
	}
	result.seconds = bench_now_s() - begin;
	free(buf);
	return result;
}

/* Receiver's rate, after checking that nothing was lost. */
static double rate(uint64_t sent, struct result got)
{
	if (sent != got.bytes) {
		fprintf(stderr, "bench: %llu bytes were sent, %llu arrived\n",
			(unsigned long long)sent, (unsigned long long)got.bytes);
		exit(1);
	}
	return (double)got.bytes / got.seconds * 1e-9;
}

static double run_raw(const struct run *run)
{
	int sockets[2], report[2], sndbuf = run->place->sndbuf;
	struct result got;
	uint64_t sent;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) < 0 || pipe(report) < 0)
		bench_die("socketpair");
	if (sndbuf)
		(void)setsockopt(sockets[1], SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof(sndbuf));
	pid = bench_fork();
	if (pid == 0) {
		bench_pin(0, run->place->near);
		close(sockets[0]);
		sent = send_for(&(struct end){ NULL, sockets[1] }, run);
		close(sockets[1]);
		bench_tell(report[1], &sent, sizeof(sent));
		_exit(0);
	}
	close(sockets[1]);
	close(report[1]);
	got = receive_all(&(struct end){ NULL, sockets[0] });
	bench_hear(report[0], &sent, sizeof(sent));
	waitpid(pid, NULL, 0);
	close(sockets[0]);
	close(report[0]);
	return rate(sent, got);
}

/* The guest process: connect and send, or accept and receive; report what was moved. */
static _Noreturn void guest_main(const struct run *run, bool sends, int report)
{
	struct rf_guest *guest;
	struct end end;
	int r;

	bench_pin(0, run->place->near);
	guest = bench_open_guest(run->setup);
	end = (struct end){ guest, rf_socket(guest, RF_SOCK_STREAM) };
	if (sends) {
		uint64_t sent;

		r = rf_connect(guest, end.fd, &(struct rf_sockaddr){ RF_CID_HOST, PORT });
		if (r < 0)
			goto failed;
		sent = send_for(&end, run);
		rf_shutdown(guest, end.fd, RF_SHUT_WR);
		bench_tell(report, &sent, sizeof(sent));
		/* Until the host has read all and closed. */
		(void)receive_all(&end);
	} else {
		struct result got;
		int listener = end.fd;

		r = rf_bind(guest, listener, &(struct rf_sockaddr){ RF_CID_ANY, PORT });
		if (r == 0)
			r = rf_listen(guest, listener, 1);
		if (r < 0)
			goto failed;
		end.fd = rf_accept(guest, listener, NULL, 0);
		got = receive_all(&end);
		bench_tell(report, &got, sizeof(got));
	}
	rf_guest_close(guest);
	_exit(0);
failed:
	errno = -r;
	bench_die("guest socket");
}

/* A guest that failed has said why. */
static int accept_soon(int listener)
{
	struct pollfd poll_fd = { .fd = listener, .events = POLLIN };
	int fd = -1;

	if (poll(&poll_fd, 1, 10000) == 1)
		fd = accept(listener, NULL, NULL);
	if (fd < 0)
		bench_die("the guest does not connect");
	return fd;
}

static double run_guest(const struct run *run, bool guest_sends)
{
	int report[2], listener = -1;
	struct end host = { 0 };
	struct result got;
	uint64_t sent;
	pid_t pid;

	if (pipe(report) < 0)
		bench_die("pipe");
	if (guest_sends)
		listener = rf_client_listen(run->setup->uds, PORT, 1);
	pid = bench_fork();
	if (pid == 0)
		guest_main(run, guest_sends, report[1]);
	close(report[1]);
	if (guest_sends) {
		host.fd = accept_soon(listener);
		got = receive_all(&host);
		bench_hear(report[0], &sent, sizeof(sent));
		rf_client_unlisten(listener, run->setup->uds, PORT);
	} else {
		host.fd = rf_client_connect(run->setup->uds, PORT, 5000);
		if (host.fd < 0)
			bench_die("connect");
		sent = send_for(&host, run);
		shutdown(host.fd, SHUT_WR);
		bench_hear(report[0], &got, sizeof(got));
	}
	close(host.fd);
	waitpid(pid, NULL, 0);
	close(report[0]);
	return rate(sent, got);
}

double bench_run(const struct bench_setup *setup, enum bench_way way,
		 const struct bench_place *place, size_t size, double seconds)
{
	const struct run run = { setup, place, size, seconds };

	bench_pin(0, place->far);
	if (way == BENCH_RAW)
		return run_raw(&run);
	bench_pin(setup->back_end, place->back_end);
	return run_guest(&run, way == BENCH_TO_HOST);
}
