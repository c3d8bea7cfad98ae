/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench/stream: one stream's throughput both ways beside a plain AF_UNIX stream socket.
 *
 * Three processes, as in use: a user-space guest on core 0; the back end and the host program on
 * core 1. The plain socket has its writer on core 0 and its reader on core 1, default buffers and
 * one write(2) per message: what a program would see without a guest in between. The variants of
 * one message size are run in turn, several times; medians and ranges are printed, and every byte
 * sent is counted at the receiver.
 */
#include <errno.h>
#include <getopt.h>
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
#define MAX_RUNS  101
#define MAX_SIZES 16

struct setup {
	const char *program;
	char dir[64];
	char socket[96];
	char uds[96];
	double seconds;
	unsigned runs;
	unsigned queue_size;
	size_t sizes[MAX_SIZES];
	unsigned n_sizes;
};

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

static ssize_t end_send(const struct end *end, const void *buf, size_t len)
{
	return end->guest ? rf_send(end->guest, end->fd, buf, len, 0) : write(end->fd, buf, len);
}

static ssize_t end_recv(const struct end *end, void *buf, size_t len)
{
	return end->guest ? rf_recv(end->guest, end->fd, buf, len, 0) : read(end->fd, buf, len);
}

static uint64_t send_for(const struct end *end, size_t size, double seconds)
{
	double until = bench_now_s() + seconds;
	char *buf = calloc(1, size);
	uint64_t bytes = 0;

	/* The clock costs as much as a small message. */
	for (unsigned i = 0; (i & 63) != 0 || bench_now_s() < until; i++) {
		ssize_t n = end_send(end, buf, size);

		if (n < 0)
			bench_die("send");
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

static void tell(int pipe_fd, const void *data, size_t len)
{
	if (write(pipe_fd, data, len) != (ssize_t)len)
		bench_die("pipe");
}

static void hear(int pipe_fd, void *data, size_t len)
{
	if (read(pipe_fd, data, len) != (ssize_t)len)
		bench_die("a process of the measurement failed");
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

static double run_raw(const struct setup *setup, size_t size)
{
	int sockets[2], report[2];
	struct result got;
	uint64_t sent;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) < 0 || pipe(report) < 0)
		bench_die("socketpair");
	pid = bench_fork();
	if (pid == 0) {
		bench_pin(0);
		close(sockets[0]);
		sent = send_for(&(struct end){ NULL, sockets[1] }, size, setup->seconds);
		close(sockets[1]);
		tell(report[1], &sent, sizeof(sent));
		_exit(0);
	}
	close(sockets[1]);
	close(report[1]);
	got = receive_all(&(struct end){ NULL, sockets[0] });
	hear(report[0], &sent, sizeof(sent));
	waitpid(pid, NULL, 0);
	close(sockets[0]);
	close(report[0]);
	return rate(sent, got);
}

static struct rf_guest *open_guest(const struct setup *setup)
{
	struct rf_guest_options options;
	struct rf_guest *guest;
	int r;

	rf_guest_options_init(&options);
	options.socket_path = setup->socket;
	options.queue_size = setup->queue_size;
	r = rf_guest_open(&options, &guest);
	if (r < 0) {
		errno = -r;
		bench_die("guest");
	}
	return guest;
}

/* The guest process: connect and send, or accept and receive; report what was moved. */
static _Noreturn void guest_main(const struct setup *setup, size_t size, bool sends, int report)
{
	struct rf_guest *guest;
	struct end end;
	int r;

	bench_pin(0);
	guest = open_guest(setup);
	end = (struct end){ guest, rf_socket(guest, RF_SOCK_STREAM) };
	if (sends) {
		uint64_t sent;

		r = rf_connect(guest, end.fd, &(struct rf_sockaddr){ RF_CID_HOST, PORT });
		if (r < 0)
			goto failed;
		sent = send_for(&end, size, setup->seconds);
		rf_shutdown(guest, end.fd, RF_SHUT_WR);
		tell(report, &sent, sizeof(sent));
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
		tell(report, &got, sizeof(got));
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

static double run_guest(const struct setup *setup, size_t size, bool guest_sends)
{
	int report[2], listener = -1;
	struct end host = { 0 };
	struct result got;
	uint64_t sent;
	pid_t pid;

	if (pipe(report) < 0)
		bench_die("pipe");
	if (guest_sends)
		listener = rf_client_listen(setup->uds, PORT, 1);
	pid = bench_fork();
	if (pid == 0)
		guest_main(setup, size, guest_sends, report[1]);
	close(report[1]);
	if (guest_sends) {
		host.fd = accept_soon(listener);
		got = receive_all(&host);
		hear(report[0], &sent, sizeof(sent));
		rf_client_unlisten(listener, setup->uds, PORT);
	} else {
		host.fd = rf_client_connect(setup->uds, PORT, 5000);
		if (host.fd < 0)
			bench_die("connect");
		sent = send_for(&host, size, setup->seconds);
		shutdown(host.fd, SHUT_WR);
		hear(report[0], &got, sizeof(got));
	}
	close(host.fd);
	waitpid(pid, NULL, 0);
	close(report[0]);
	return rate(sent, got);
}

static pid_t start_back_end(const struct setup *setup)
{
	pid_t pid = bench_fork();

	if (pid == 0) {
		bench_pin(1);
		execl(setup->program, setup->program, "vsock", "--guest-cid", "42", "--socket",
		      setup->socket, "--uds-path", setup->uds, (char *)NULL);
		bench_die(setup->program);
	}
	return pid;
}

static void print_ratio(double *ratios, double *rates, unsigned n)
{
	struct bench_stat ratio = bench_stat(ratios, n);

	printf("  %6.3f GB/s %5.2f (%.2f-%.2f)", bench_stat(rates, n).median, ratio.median,
	       ratio.min, ratio.max);
}

static void measure_size(const struct setup *setup, size_t size)
{
	double raw[MAX_RUNS], up[MAX_RUNS], down[MAX_RUNS], up_ratio[MAX_RUNS],
		down_ratio[MAX_RUNS];
	double before = bench_core_rtt_ns(), after;

	for (unsigned i = 0; i < setup->runs; i++) {
		raw[i] = run_raw(setup, size);
		up[i] = run_guest(setup, size, true);
		down[i] = run_guest(setup, size, false);
		up_ratio[i] = up[i] / raw[i];
		down_ratio[i] = down[i] / raw[i];
	}
	after = bench_core_rtt_ns();
	printf("%7zu  %6.3f GB/s", size, bench_stat(raw, setup->runs).median);
	print_ratio(up_ratio, up, setup->runs);
	print_ratio(down_ratio, down, setup->runs);
	printf("  %4.0f-%.0f ns%s\n", before, after,
	       before > 1.5 * after || after > 1.5 * before ? "  CORES MOVED: repeat" : "");
	fflush(stdout);
}

static void parse_sizes(struct setup *setup, char *text)
{
	char *rest;

	setup->n_sizes = 0;
	for (char *word = strtok_r(text, ",", &rest); word && setup->n_sizes < MAX_SIZES;
	     word = strtok_r(NULL, ",", &rest)) {
		size_t size = strtoul(word, NULL, 10);

		if (size < 1 || size > (16u << 20)) {
			fprintf(stderr, "bench: --sizes: %s: 1 to 16777216 bytes are allowed\n",
				word);
			exit(2);
		}
		setup->sizes[setup->n_sizes++] = size;
	}
}

static void parse_args(struct setup *setup, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "seconds", required_argument, NULL, 's' },
		{ "runs", required_argument, NULL, 'r' },
		{ "sizes", required_argument, NULL, 'z' },
		{ "queue-size", required_argument, NULL, 'q' },
		{ "program", required_argument, NULL, 'p' },
		{ 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 's')
			setup->seconds = strtod(optarg, NULL);
		else if (c == 'r')
			setup->runs = (unsigned)strtoul(optarg, NULL, 10);
		else if (c == 'z')
			parse_sizes(setup, optarg);
		else if (c == 'q')
			setup->queue_size = (unsigned)strtoul(optarg, NULL, 10);
		else if (c == 'p')
			setup->program = optarg;
		else
			exit(2);
	}
	if (optind != argc || setup->seconds <= 0 || setup->runs < 1 || setup->runs > MAX_RUNS) {
		fprintf(stderr, "usage: stream [--seconds S] [--runs 1-101] [--sizes N,N,...] "
				"[--queue-size N] [--program ringferry]\n");
		exit(2);
	}
}

/* The program of the same build: ../ringferry, seen from here. */
static void find_program(char *path, size_t bytes)
{
	ssize_t n = readlink("/proc/self/exe", path, bytes - 1);

	for (int up = 0; up < 2 && n > 0; up++)
		while (n > 0 && path[--n] != '/')
			;
	if (n <= 0 || (size_t)n + sizeof("/ringferry") > bytes)
		bench_die("/proc/self/exe");
	memcpy(path + n, "/ringferry", sizeof("/ringferry"));
}

int main(int argc, char **argv)
{
	char program[256];
	struct setup setup = { .program = program,
			       .dir = "/tmp/ringferry-bench-XXXXXX",
			       .seconds = 0.5,
			       .runs = 5,
			       .queue_size = 256,
			       .sizes = { 64, 4096, 65536 },
			       .n_sizes = 3 };
	pid_t back_end;

	find_program(program, sizeof(program));
	parse_args(&setup, argc, argv);
	if (!mkdtemp(setup.dir))
		bench_die("mkdtemp");
	snprintf(setup.socket, sizeof(setup.socket), "%s/vhost", setup.dir);
	snprintf(setup.uds, sizeof(setup.uds), "%s/vsock", setup.dir);
	back_end = start_back_end(&setup);
	bench_pin(1);
	printf("One stream, %u runs of %.1f s per figure, ring of %u. Ratios are to a plain "
	       "AF_UNIX "
	       "write of the same size\n(default buffers) in the same run: median "
	       "(lowest-highest).\n\n"
	       "  bytes  plain AF_UNIX  guest to host: rate, ratio       host to guest: rate, ratio"
	       "       core to core\n",
	       setup.runs, setup.seconds, setup.queue_size);
	for (unsigned i = 0; i < setup.n_sizes; i++)
		measure_size(&setup, setup.sizes[i]);
	bench_kill(back_end);
	rmdir(setup.dir);
	return 0;
}
