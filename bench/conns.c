/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench/conns: what open connections cost while nothing happens on them, and what is left of many
 * that were opened and closed.
 *
 * A host program connects, sends a byte and reads it back; the guest keeps the first thousand, and
 * serves ten thousand more one after the other.
 */
#include <errno.h>
#include <inttypes.h>
#include <ringferry/client.h>
#include <ringferry/guest.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

#define PORT      5000u
#define N_OPEN    1000u
#define N_MANY    10000u
#define OTHER_FDS 100u
/* For the last packets and for what is done a moment later. */
#define SETTLE_US 500000u

/**
 * struct lab - What is watched
 * @guest:	The guest's process
 * @from_guest:	Pipe from it
 * @fds:	The host program's connections
 */
struct lab {
	const struct bench_setup *setup;
	pid_t guest;
	int from_guest;
	int fds[N_OPEN];
};

static int guest_accept(struct rf_guest *guest, int listener)
{
	int sock = rf_accept(guest, listener, NULL, 0);
	char byte;

	if (sock < 0 || rf_recv(guest, sock, &byte, 1, 0) != 1 ||
	    rf_send(guest, sock, &byte, 1, 0) != 1)
		bench_die("guest's connection");
	return sock;
}

static void guest_end(struct rf_guest *guest, int sock)
{
	char byte;

	if (rf_recv(guest, sock, &byte, 1, 0) != 0)
		bench_die("guest's end of file");
	rf_close(guest, sock);
}

/* The guest's process: a byte in the pipe after each phase. */
static _Noreturn void guest_main(const struct bench_setup *setup, int report)
{
	struct rf_guest *guest = bench_open_guest(setup);
	int listener = rf_socket(guest, RF_SOCK_STREAM);
	int socks[N_OPEN];

	if (rf_bind(guest, listener, &(struct rf_sockaddr){ RF_CID_ANY, PORT }) < 0 ||
	    rf_listen(guest, listener, 16) < 0)
		bench_die("guest's listener");
	guest_end(guest, guest_accept(guest, listener));
	bench_tell(report, "", 1);
	for (unsigned i = 0; i < N_OPEN; i++)
		socks[i] = guest_accept(guest, listener);
	bench_tell(report, "", 1);
	for (unsigned i = 0; i < N_OPEN; i++)
		guest_end(guest, socks[i]);
	bench_tell(report, "", 1);
	for (unsigned i = 0; i < N_MANY; i++)
		guest_end(guest, guest_accept(guest, listener));
	bench_tell(report, "", 1);
	/* Until this process is ended. */
	(void)rf_accept(guest, listener, NULL, 0);
	_exit(1);
}

static int host_connect(const struct bench_setup *setup)
{
	int fd = rf_client_connect(setup->uds, PORT, 10000);
	char byte = 'x';

	if (fd < 0) {
		errno = -fd;
		bench_die("connect");
	}
	if (write(fd, &byte, 1) != 1 || read(fd, &byte, 1) != 1)
		bench_die("host's connection");
	return fd;
}

static void settle(const struct lab *lab)
{
	char byte;

	bench_hear(lab->from_guest, &byte, 1);
	usleep(SETTLE_US);
}

static void print_state(const struct lab *lab, const char *label, struct bench_usage *ret_back_end,
			struct bench_usage *ret_guest)
{
	struct bench_usage back_end = bench_usage(lab->setup->back_end);
	struct bench_usage guest = bench_usage(lab->guest);

	printf("  %-24s %11ld %8ld KiB %8ld KiB %14ld %8ld KiB %8ld KiB\n", label, back_end.fds,
	       back_end.anon_kib, back_end.shared_kib, guest.fds, guest.anon_kib, guest.shared_kib);
	fflush(stdout);
	*ret_back_end = back_end;
	*ret_guest = guest;
}

static void print_idle(const char *label, const struct bench_usage *before,
		       const struct bench_usage *after, double seconds)
{
	printf("  %-9s %.4f %% CPU (%" PRIu64 " ns in %.1f s), %" PRIu64 " wake-ups\n", label,
	       (double)(after->run_ns - before->run_ns) / seconds * 1e-7,
	       after->run_ns - before->run_ns, seconds, after->sleeps - before->sleeps);
}

static void watch_idle(const struct lab *lab)
{
	struct bench_usage back_end = bench_usage(lab->setup->back_end), back_end_after;
	struct bench_usage guest = bench_usage(lab->guest), guest_after;
	double begin = bench_now_s(), seconds;

	usleep((useconds_t)(lab->setup->idle_seconds * 1e6));
	seconds = bench_now_s() - begin;
	back_end_after = bench_usage(lab->setup->back_end);
	guest_after = bench_usage(lab->guest);
	printf("\nIdle, with %u connections open:\n", N_OPEN);
	print_idle("back end", &back_end, &back_end_after, seconds);
	print_idle("guest", &guest, &guest_after, seconds);
}

static void start(struct lab *lab)
{
	int report[2];

	if (pipe(report) < 0)
		bench_die("pipe");
	lab->guest = bench_fork();
	if (lab->guest == 0) {
		close(report[0]);
		guest_main(lab->setup, report[1]);
	}
	close(report[1]);
	lab->from_guest = report[0];
	/* The first connection makes both sides allocate what is for all of them. */
	close(host_connect(lab->setup));
	settle(lab);
}

static void raise_fd_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		bench_die("limit of descriptors");
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur < N_OPEN + OTHER_FDS) {
		errno = EMFILE;
		bench_die("a thousand connections");
	}
}

void bench_conns(struct bench_setup *setup)
{
	struct lab lab = { .setup = setup };
	struct bench_usage back_end[4], guest[4];
	double begin, seconds;
	long slab;

	raise_fd_limit();
	bench_start_back_end(setup);
	printf("Connections:             back end: descriptors   own memory   guest's   guest: "
	       "descriptors   own memory   shared\n");
	start(&lab);
	print_state(&lab, "one, closed", &back_end[0], &guest[0]);
	slab = bench_slab_kib();
	for (unsigned i = 0; i < N_OPEN; i++)
		lab.fds[i] = host_connect(setup);
	settle(&lab);
	slab = bench_slab_kib() - slab;
	print_state(&lab, "1,000 open", &back_end[1], &guest[1]);
	watch_idle(&lab);
	printf("\nMemory per idle connection: back end %ld bytes, guest %ld bytes; the whole "
	       "kernel's caches grew by %ld\n\n",
	       (back_end[1].anon_kib - back_end[0].anon_kib) * 1024 / (long)N_OPEN,
	       (guest[1].anon_kib - guest[0].anon_kib) * 1024 / (long)N_OPEN,
	       slab * 1024 / (long)N_OPEN);
	for (unsigned i = 0; i < N_OPEN; i++)
		close(lab.fds[i]);
	settle(&lab);
	print_state(&lab, "closed again", &back_end[2], &guest[2]);
	begin = bench_now_s();
	for (unsigned i = 0; i < N_MANY; i++)
		close(host_connect(setup));
	seconds = bench_now_s() - begin;
	settle(&lab);
	print_state(&lab, "10,000 more in a row", &back_end[3], &guest[3]);
	printf("  %.0f connections per second, with a byte each way\n", N_MANY / seconds);
	close(lab.from_guest);
	bench_kill(lab.guest);
	bench_kill(setup->back_end);
}
