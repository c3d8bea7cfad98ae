/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ringferry-bench: the measurements that are run by hand (./dev bench).
 */
#include <errno.h>
#include <getopt.h>
#include <ringferry/guest.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

static const struct part {
	const char *name;
	void (*run)(struct bench_setup *setup);
} parts[] = {
	{ "conns", bench_conns },
};

#define N_PARTS (sizeof(parts) / sizeof(parts[0]))

void bench_start_back_end(struct bench_setup *setup)
{
	setup->back_end = bench_fork();
	if (setup->back_end)
		return;
	execl(setup->program, setup->program, "vsock", "--guest-cid", "42", "--socket",
	      setup->socket, "--uds-path", setup->uds, (char *)NULL);
	bench_die(setup->program);
}

struct rf_guest *bench_open_guest(const struct bench_setup *setup)
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

void bench_tell(int fd, const void *data, size_t len)
{
	if (write(fd, data, len) != (ssize_t)len)
		bench_die("pipe");
}

void bench_hear(int fd, void *data, size_t len)
{
	if (read(fd, data, len) != (ssize_t)len)
		bench_die("a process of the measurement failed");
}

static _Noreturn void usage(void)
{
	printf("usage: ./dev bench [PART...] [OPTIONS]\n"
	       "\n"
	       "Measure on a machine that does nothing else. Parts, all of them by default:\n"
	       "  conns   idle CPU and memory of 1,000 open connections; what is left of 10,000\n"
	       "\n"
	       "  --sizes N,N,...    stream: bytes per message (64 ... 262144 by 4, 524288)\n"
	       "  --runs N           stream: runs per figure, 1 to 101 (5)\n"
	       "  --seconds S        stream: length of a run (0.5)\n"
	       "  --idle-seconds S   conns: how long to watch (5)\n"
	       "  --queue-size N     the guest's rings (256)\n"
	       "  --program PATH     ringferry (of the same build)\n"
	       "  --help             this text\n");
	exit(0);
}

static double number(const char *option, const char *text, double min, double max)
{
	char *end;
	double value = strtod(text, &end);

	if (end != text && !*end && value >= min && value <= max)
		return value;
	fprintf(stderr, "bench: --%s: \"%s\" is not allowed; allowed: %g to %g\n", option, text,
		min, max);
	exit(2);
}

static void parse_sizes(struct bench_setup *setup, char *text)
{
	char *rest;

	setup->n_sizes = 0;
	for (char *word = strtok_r(text, ",", &rest); word && setup->n_sizes < BENCH_MAX_SIZES;
	     word = strtok_r(NULL, ",", &rest)) {
		size_t size = strtoul(word, NULL, 10);

		if (size < 1 || size > (16u << 20)) {
			fprintf(stderr, "bench: --sizes: %s: 1 to 16777216 bytes are allowed\n",
				word);
			exit(2);
		}
		setup->sizes[setup->n_sizes++] = size;
	}
	if (!setup->n_sizes) {
		fprintf(stderr, "bench: --sizes: it is empty\n");
		exit(2);
	}
}

static void parse_args(struct bench_setup *setup, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "seconds", required_argument, NULL, 's' },
		{ "runs", required_argument, NULL, 'r' },
		{ "sizes", required_argument, NULL, 'z' },
		{ "idle-seconds", required_argument, NULL, 'i' },
		{ "queue-size", required_argument, NULL, 'q' },
		{ "program", required_argument, NULL, 'p' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	static char name[] = "bench";
	int c;

	/* What getopt_long() calls the program when it tells what is wrong. */
	argv[0] = name;
	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		if (c == 's')
			setup->seconds = number("seconds", optarg, 0.01, 3600);
		else if (c == 'r')
			setup->runs = (unsigned)number("runs", optarg, 1, BENCH_MAX_RUNS);
		else if (c == 'z')
			parse_sizes(setup, optarg);
		else if (c == 'i')
			setup->idle_seconds = number("idle-seconds", optarg, 0.01, 3600);
		else if (c == 'q')
			setup->queue_size = (unsigned)number("queue-size", optarg, 2, 32768);
		else if (c == 'p')
			setup->program = optarg;
		else if (c == 'h')
			usage();
		else
			exit(2);
	}
}

/* The parts that are named, as bits; all if none is. */
static unsigned parse_parts(int n, char **names)
{
	unsigned chosen = 0, p;

	for (int i = 0; i < n; i++) {
		for (p = 0; p < N_PARTS && strcmp(names[i], parts[p].name) != 0; p++)
			;
		if (p == N_PARTS) {
			fprintf(stderr, "bench: %s: no such part; allowed: stream, conns\n",
				names[i]);
			exit(2);
		}
		chosen |= 1u << p;
	}
	return chosen ? chosen : ~0u;
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
	struct bench_setup setup = {
		.program = program,
		.dir = "/tmp/ringferry-bench-XXXXXX",
		.queue_size = 256,
		.seconds = 0.5,
		.runs = 5,
		.idle_seconds = 5,
		.sizes = { 64, 256, 1024, 4096, 16384, 65536, 262144, 524288 },
		.n_sizes = 8,
	};
	unsigned chosen;

	find_program(program, sizeof(program));
	parse_args(&setup, argc, argv);
	chosen = parse_parts(argc - optind, argv + optind);
	if (!mkdtemp(setup.dir))
		bench_die("mkdtemp");
	snprintf(setup.socket, sizeof(setup.socket), "%s/vhost", setup.dir);
	snprintf(setup.uds, sizeof(setup.uds), "%s/vsock", setup.dir);
	for (unsigned p = 0; p < N_PARTS; p++)
		if (chosen & 1u << p)
			parts[p].run(&setup);
	rmdir(setup.dir);
	return 0;
}
