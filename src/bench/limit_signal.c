/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ping-pong between two ends that sleep until the other one has answered.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"
#include "limit.h"
#include "round.h"

/**
 * struct end - One end
 * @out, @in:	Written to and read from
 * @size:	Bytes per message
 * @buf:	Of that size
 * @core:	Where it runs, -1 for any
 */
struct end {
	int out, in;
	size_t size;
	void *buf;
	int core;
};

static int read_all(const struct end *end)
{
	for (size_t at = 0; at < end->size;) {
		ssize_t n = read(end->in, (char *)end->buf + at, end->size - at);

		if (n <= 0)
			return n ? -errno : -ECONNRESET;
		at += (size_t)n;
	}
	return 0;
}

static int write_all(const struct end *end)
{
	for (size_t at = 0; at < end->size;) {
		ssize_t n = write(end->out, (const char *)end->buf + at, end->size - at);

		if (n < 0)
			return -errno;
		at += (size_t)n;
	}
	return 0;
}

/* Answer until the other end closes, or, for eventfds, for @n times. */
static void answer(const struct end *end, size_t n)
{
	rf_bench_pin(end->core);
	for (size_t i = 0; i < n; i++)
		if (read_all(end) < 0 || write_all(end) < 0)
			break;
}

static int ask(const struct end *end, uint32_t *ret_ns, size_t warm_up, size_t n)
{
	int r = 0;

	rf_bench_pin(end->core);
	for (size_t i = 0; i < warm_up + n && !r; i++) {
		uint64_t begin = rf_clock_now();

		r = write_all(end);
		if (!r)
			r = read_all(end);
		if (i >= warm_up)
			ret_ns[i - warm_up] =
				(uint32_t)rf_min_u64(rf_clock_now() - begin, UINT32_MAX);
	}
	rf_bench_pin(RF_BENCH_ANY_CORE);
	return r;
}

/* What the thread that answers is given. */
struct answering {
	struct end end;
	size_t n;
};

static void *answer_thread(void *arg)
{
	const struct answering *answering = arg;

	answer(&answering->end, answering->n);
	return NULL;
}

static int run_eventfd(const int cores[2], uint32_t *ret_ns, size_t n)
{
	uint64_t count = 1, other = 1;
	int there = eventfd(0, EFD_CLOEXEC), back = eventfd(0, EFD_CLOEXEC), r;
	struct answering answering = { { back, there, sizeof(other), &other, cores[1] },
				       n + n / 10 };
	struct end end = { there, back, sizeof(count), &count, cores[0] };
	pthread_t thread;

	if (there < 0 || back < 0) {
		r = -errno;
		goto out;
	}
	r = -pthread_create(&thread, NULL, answer_thread, &answering);
	if (r)
		goto out;
	r = ask(&end, ret_ns, n / 10, n);
	pthread_join(thread, NULL);
out:
	if (there >= 0)
		close(there);
	if (back >= 0)
		close(back);
	return r;
}

static int run_socket(size_t size, const int cores[2], uint32_t *ret_ns, size_t n)
{
	struct end end = { .size = size, .buf = calloc(1, size), .core = cores[0] };
	int fds[2], r;
	pid_t pid;

	if (!end.buf)
		return -ENOMEM;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0) {
		r = -errno;
		goto out;
	}
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fds[0]);
		end.out = end.in = fds[1];
		end.core = cores[1];
		answer(&end, n + n / 10);
		_exit(0);
	}
	r = pid < 0 ? -errno : 0;
	close(fds[1]);
	end.out = end.in = fds[0];
	if (!r)
		r = ask(&end, ret_ns, n / 10, n);
	close(fds[0]);
	if (pid > 0)
		waitpid(pid, NULL, 0);
out:
	free(end.buf);
	return r;
}

int rf_bench_limit_pingpong(enum rf_bench_limit_signal signal, size_t size, const int cores[2],
			    uint32_t *ret_ns, size_t n)
{
	return signal == RF_BENCH_LIMIT_EVENTFD ? run_eventfd(cores, ret_ns, n)
						: run_socket(size, cores, ret_ns, n);
}
