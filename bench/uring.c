/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ringferry-bench-uring: one sendmsg() or recvmsg() per socket, or one io_uring_enter() for all.
 *
 * A back end that finds several streams ready in one turn may pass each on by a system call of its
 * own, or all of them by one batch. Here N socket pairs get (or give) one message each per turn,
 * alternately in either way, and only those calls are timed, from one thread. What makes them ready
 * again lies between the turns:
 *
 *   alone    nobody waits on the other ends: the same thread empties (fills) them
 *   asleep   a thread per socket blocks on its other end, in recv() or, its socket full, in send():
 *            each send wakes one, and a receive does so when enough room has come
 *
 * Printed are the medians of the runs, in ns per message, and their ratio: above 1, the batch wins;
 * and the same of the best runs, which other load on the machine disturbs least.
 * With two processors or more, this thread has the first one for itself.
 */
#include <errno.h>
#include <getopt.h>
#include <liburing.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_SOCKETS 32u
#define MAX_BYTES   65536u
#define MAX_RUNS    101u
#define SNDBUF      (1 << 20)
/* Time for peers to fall asleep. */
#define SETTLE_NS 20000

enum way { WAY_CALLS, WAY_BATCH, N_WAYS };

/**
 * struct end - One socket pair
 * @fd, @peer_fd: Ours, and the other one
 * @msg, @iov, @buf: Our message
 * @thread, @peer_buf: The peer that sleeps, if there is one
 * @taken:	Bytes that it has received
 */
struct end {
	int fd, peer_fd;
	struct msghdr msg;
	struct iovec iov;
	uint8_t *buf;
	pthread_t thread;
	uint8_t *peer_buf;
	_Atomic uint64_t taken;
};

/**
 * struct setup - One row of the table
 * @ends:	Sockets, @n of them
 * @bytes:	Per message
 * @receive:	We receive
 * @asleep:	The peers are threads
 * @given:	Bytes that each peer was sent
 */
struct setup {
	struct end ends[MAX_SOCKETS];
	unsigned n;
	size_t bytes;
	bool receive, asleep;
	uint64_t given;
};

static struct io_uring ring;
static unsigned runs = 5, turns = 200;
static unsigned long failed;

static _Noreturn void die(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void settle(void)
{
	struct timespec t = { 0, SETTLE_NS };

	nanosleep(&t, NULL);
}

/* Every message here fits; one that does not go through whole would spoil the figure. */
static void judge(const struct setup *s, ssize_t r)
{
	failed += r != (ssize_t)s->bytes;
}

static void by_calls(struct setup *s)
{
	for (unsigned i = 0; i < s->n; i++) {
		struct end *e = &s->ends[i];

		judge(s, s->receive ? recvmsg(e->fd, &e->msg, MSG_DONTWAIT)
				    : sendmsg(e->fd, &e->msg, MSG_DONTWAIT | MSG_NOSIGNAL));
	}
}

static void by_batch(struct setup *s)
{
	struct io_uring_cqe *cqe;
	unsigned head, seen = 0;

	for (unsigned i = 0; i < s->n; i++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
		struct end *e = &s->ends[i];

		if (s->receive)
			io_uring_prep_recvmsg(sqe, e->fd, &e->msg, MSG_DONTWAIT);
		else
			io_uring_prep_sendmsg(sqe, e->fd, &e->msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	}
	if (io_uring_submit_and_wait(&ring, s->n) != (int)s->n)
		die("io_uring_enter");
	io_uring_for_each_cqe(&ring, head, cqe)
	{
		judge(s, cqe->res);
		seen++;
	}
	io_uring_cq_advance(&ring, seen);
}

static void *peer_reads(void *arg)
{
	struct end *e = arg;
	ssize_t n;

	while ((n = recv(e->peer_fd, e->peer_buf, MAX_BYTES, 0)) > 0)
		atomic_fetch_add(&e->taken, (uint64_t)n);
	return NULL;
}

static void *peer_writes(void *arg)
{
	struct end *e = arg;

	while (send(e->peer_fd, e->peer_buf, e->iov.iov_len, MSG_NOSIGNAL) > 0)
		;
	return NULL;
}

static void wait_readable(const struct setup *s, const struct end *e)
{
	int n = 0;

	while (ioctl(e->fd, FIONREAD, &n) == 0 && (size_t)n < s->bytes)
		sched_yield();
}

static void move_all(int fd, uint8_t *buf, size_t bytes, bool send_it)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t n = send_it ? send(fd, buf, bytes - done, MSG_NOSIGNAL)
				    : recv(fd, buf, bytes - done, 0);

		if (n <= 0)
			die("peer");
		done += (size_t)n;
	}
}

/* Before each turn: all sockets are ready, and peers that are to sleep do so. */
static void make_ready(struct setup *s)
{
	for (unsigned i = 0; i < s->n; i++) {
		struct end *e = &s->ends[i];

		if (s->asleep && s->receive)
			wait_readable(s, e);
		else if (s->asleep)
			while (atomic_load(&e->taken) < s->given)
				sched_yield();
		else if (s->receive)
			move_all(e->peer_fd, e->buf, s->bytes, true);
		else if (s->given)
			move_all(e->peer_fd, e->buf, s->bytes, false);
		e->iov.iov_len = s->bytes;
	}
	if (s->asleep)
		settle();
}

static double one_run(struct setup *s, enum way way)
{
	uint64_t ns = 0;

	for (unsigned t = 0; t < turns; t++) {
		uint64_t start;

		make_ready(s);
		start = now_ns();
		if (way == WAY_CALLS)
			by_calls(s);
		else
			by_batch(s);
		ns += now_ns() - start;
		s->given += s->bytes;
	}
	return (double)ns / turns / s->n;
}

static void *memory(void)
{
	void *at = calloc(1, MAX_BYTES);

	if (!at)
		die("memory");
	return at;
}

static void end_open(const struct setup *s, struct end *e)
{
	int fds[2], sndbuf = SNDBUF;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
		die("socketpair");
	e->fd = fds[0];
	e->peer_fd = fds[1];
	(void)setsockopt(e->fd, SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof(sndbuf));
	(void)setsockopt(e->peer_fd, SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof(sndbuf));
	e->buf = memory();
	e->peer_buf = memory();
	e->iov = (struct iovec){ e->buf, s->bytes };
	e->msg = (struct msghdr){ .msg_iov = &e->iov, .msg_iovlen = 1 };
	if (s->asleep &&
	    pthread_create(&e->thread, NULL, s->receive ? peer_writes : peer_reads, e) != 0)
		die("pthread_create");
}

static void end_close(const struct setup *s, struct end *e)
{
	shutdown(e->fd, SHUT_RDWR);
	if (s->asleep)
		pthread_join(e->thread, NULL);
	close(e->fd);
	close(e->peer_fd);
	free(e->buf);
	free(e->peer_buf);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* This thread has the first processor; those made while it is elsewhere have the others. */
static void place(bool alone)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);
	cpu_set_t set;

	if (n < 2)
		return;
	CPU_ZERO(&set);
	for (int cpu = 0; cpu < n && cpu < CPU_SETSIZE; cpu++)
		if ((cpu == 0) == alone)
			CPU_SET(cpu, &set);
	(void)sched_setaffinity(0, sizeof(set), &set);
}

static void row(bool receive, bool asleep, size_t bytes, unsigned n)
{
	static struct setup s;
	double ns[N_WAYS][MAX_RUNS];

	s = (struct setup){ .n = n, .bytes = bytes, .receive = receive, .asleep = asleep };
	place(false);
	for (unsigned i = 0; i < n; i++)
		end_open(&s, &s.ends[i]);
	place(true);
	for (enum way way = 0; way < N_WAYS; way++)
		(void)one_run(&s, way);
	for (unsigned r = 0; r < runs; r++)
		for (enum way way = 0; way < N_WAYS; way++)
			ns[way][r] = one_run(&s, way);
	for (unsigned i = 0; i < n; i++)
		end_close(&s, &s.ends[i]);
	for (enum way way = 0; way < N_WAYS; way++)
		qsort(ns[way], runs, sizeof(double), compare);
	printf("%-5s %-7s %6zu %7u %9.0f %9.0f %7.2f %9.0f %9.0f %7.2f\n",
	       receive ? "recv" : "send", asleep ? "asleep" : "alone", bytes, n,
	       ns[WAY_CALLS][runs / 2], ns[WAY_BATCH][runs / 2],
	       ns[WAY_CALLS][runs / 2] / ns[WAY_BATCH][runs / 2], ns[WAY_CALLS][0],
	       ns[WAY_BATCH][0], ns[WAY_CALLS][0] / ns[WAY_BATCH][0]);
	fflush(stdout);
}

static void open_ring(void)
{
	struct io_uring_params best = { .flags = IORING_SETUP_SINGLE_ISSUER |
						 IORING_SETUP_DEFER_TASKRUN };
	struct io_uring_params plain = { .flags = 0 };
	const char *flags = "SINGLE_ISSUER|DEFER_TASKRUN";
	int r = io_uring_queue_init_params(MAX_SOCKETS, &ring, &best);

	if (r == -EINVAL) {
		flags = "no flags";
		r = io_uring_queue_init_params(MAX_SOCKETS, &ring, &plain);
	}
	if (r < 0) {
		errno = -r;
		die("io_uring_setup");
	}
	printf("io_uring with %s; %u runs of %u turns each\n", flags, runs, turns);
}

static _Noreturn void usage(int status)
{
	fprintf(status ? stderr : stdout,
		"usage: ringferry-bench-uring [--runs N] [--turns N] [--quick]\n"
		"\n"
		"Compare one system call per socket with one io_uring batch for all of them.\n"
		"\n"
		"  --runs N   runs per figure, 1 to 101 (5)\n"
		"  --turns N  turns per run (200)\n"
		"  --quick    fewer sizes and numbers of sockets\n");
	exit(status);
}

static unsigned number(const char *text, unsigned max)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	if (end == text || *end || n < 1 || n > max)
		usage(2);
	return (unsigned)n;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "runs", required_argument, NULL, 'r' },
		{ "turns", required_argument, NULL, 't' },
		{ "quick", no_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	static const size_t sizes[] = { 64, 256, 1024, 4096, 16384, 65536 };
	bool quick = false;
	int c;

	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		if (c == 'r')
			runs = number(optarg, MAX_RUNS);
		else if (c == 't')
			turns = number(optarg, 1000000);
		else if (c == 'q')
			quick = true;
		else
			usage(c == 'h' ? 0 : 2);
	}
	open_ring();
	printf("%-5s %-7s %6s %7s %9s %9s %7s %9s %9s %7s\n", "what", "peers", "bytes", "sockets",
	       "calls ns", "batch ns", "ratio", "least", "least", "ratio");
	for (unsigned kind = 0; kind < 4; kind++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i += quick ? 3 : 1)
			for (unsigned n = 1; n <= MAX_SOCKETS; n *= quick ? 4 : 2)
				row(kind & 2, kind & 1, sizes[i], n);
	io_uring_queue_exit(&ring);
	if (failed)
		printf("%lu messages did not go through whole\n", failed);
	return 0;
}
