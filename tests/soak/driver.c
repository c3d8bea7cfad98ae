/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ringferry-soak: all directions at once, with cuts, for as long as asked; see soak.h.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"

#define FIRST_CID      42u
#define TURN_MS        5
#define LINE_NS        (10 * SOAK_NS_PER_SEC)
#define READY_SECONDS  60
#define QUIET_EVERY_NS (45 * SOAK_NS_PER_SEC)

static volatile sig_atomic_t interrupted;

struct arguments {
	double minutes;
	uint64_t seed;
	const char *program;
	unsigned deadline_s;
	unsigned n_devices;
};

static void interrupt(int signal)
{
	(void)signal;
	interrupted = 1;
}

static double elapsed_s(const struct driver *driver)
{
	return (double)(soak_now_ns() - driver->begin_ns) * 1e-9;
}

void driver_fail(struct driver *driver, const char *format, ...)
{
	va_list args;

	driver->failures++;
	printf("FAILED after %.1f s, seed %" PRIu64 ": ", elapsed_s(driver), driver->shared->seed);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
}

static void print_totals(const struct driver *driver)
{
	const struct totals *totals = &driver->totals;
	unsigned late = 0;

	for (unsigned d = 0; d < driver->n_devices; d++)
		late += driver->shared->devices[d].late_wakeups;
	printf("%" PRIu64 "+%" PRIu64
	       " connections (by the host + by the guest), %.1f+%.1f MiB (to the host + to the "
	       "guest), %u+%u+%u cuts (guest killed + detached + back end killed): %" PRIu64
	       " connections cut, %" PRIu64 " refused; %u late wake-ups, %u checks, %u failures\n",
	       totals->connections[SOAK_HOST], totals->connections[SOAK_GUEST],
	       (double)totals->bytes[SOAK_HOST] / 1048576,
	       (double)totals->bytes[SOAK_GUEST] / 1048576, totals->guest_kills,
	       totals->detachments, totals->back_end_kills, totals->cut, totals->refused, late,
	       totals->checks, driver->failures);
	fflush(stdout);
}

void driver_turn(struct driver *driver)
{
	judge_all(driver);
	procs_check(driver);
	if (soak_now_ns() >= driver->next_line_ns) {
		driver->next_line_ns += LINE_NS;
		printf("%5.0f s: ", elapsed_s(driver));
		print_totals(driver);
	}
	soak_sleep_ms(TURN_MS);
}

void driver_turn_for(struct driver *driver, unsigned ms)
{
	uint64_t until = soak_now_ns() + ms * UINT64_C(1000000);

	while (soak_now_ns() < until && !driver->failures)
		driver_turn(driver);
}

bool driver_wait(struct driver *driver, bool (*done)(const struct driver *driver, unsigned device),
		 unsigned device, unsigned seconds, const char *what)
{
	uint64_t until = soak_now_ns() + seconds * SOAK_NS_PER_SEC;

	while (!done(driver, device) && !driver->failures) {
		driver_turn(driver);
		if (soak_now_ns() > until)
			driver_fail(driver, "cid %u: %s", driver->shared->devices[device].cid,
				    what);
	}
	return !driver->failures;
}

static bool guest_ready(const struct driver *driver, unsigned d)
{
	const struct soak_device *device = &driver->shared->devices[d];

	return device->ready && device->detach_done == device->detach_asked;
}

static void kill_guest(struct driver *driver, unsigned d, uint64_t *prng)
{
	struct soak_device *device = &driver->shared->devices[d];

	driver->totals.guest_kills++;
	procs_kill(&driver->guest[d], SIGKILL);
	judge_killed(driver, d, SOAK_GUEST);
	driver_turn_for(driver, prng_below(prng, 700));
	/* The new process is not to detach at once. */
	device->detach_asked = device->detach_done;
	procs_start_guest(driver, d);
}

static void cut_guest(struct driver *driver, uint64_t *prng)
{
	unsigned d = prng_below(prng, driver->n_devices);
	struct soak_device *device = &driver->shared->devices[d];

	device->epoch++;
	if (driver->totals.guest_kills <= driver->totals.detachments) {
		kill_guest(driver, d, prng);
	} else {
		driver->totals.detachments++;
		device->detach_asked++;
	}
	if (driver_wait(driver, guest_ready, d, READY_SECONDS, "the guest does not come back"))
		device->epoch++;
}

static bool attached_again(const struct driver *driver, unsigned d)
{
	return driver->shared->devices[d].attachments > driver->attachments[d];
}

static void kill_back_end(struct driver *driver, uint64_t *prng)
{
	for (unsigned d = 0; d < driver->n_devices; d++) {
		driver->shared->devices[d].epoch++;
		driver->attachments[d] = driver->shared->devices[d].attachments;
	}
	driver->totals.back_end_kills++;
	procs_kill(&driver->back_end, SIGKILL);
	driver_turn_for(driver, prng_below(prng, 1000));
	procs_start_back_end(driver);
	for (unsigned d = 0; d < driver->n_devices; d++)
		if (driver_wait(driver, attached_again, d, READY_SECONDS,
				"the guest does not attach to the new back end"))
			driver->shared->devices[d].epoch++;
}

static uint64_t some_time_ns(uint64_t *prng, double least_s, double most_s)
{
	return (uint64_t)((least_s + (most_s - least_s) * prng_below(prng, 1000) / 1000) * 1e9);
}

/* Kill the back end every few minutes, but in a short run once. */
static uint64_t back_end_life_ns(uint64_t *prng, double total_s)
{
	return total_s < 180 ? (uint64_t)(total_s * 0.6e9) : some_time_ns(prng, 150, 400);
}

static void run(struct driver *driver, double total_s)
{
	double longest_s = total_s < 180 ? 3 : 12;
	uint64_t prng = driver->shared->seed;
	uint64_t end = driver->begin_ns + (uint64_t)(total_s * 1e9);
	uint64_t quiet_every =
		total_s < 180 ? (uint64_t)(total_s * 0.3e9) : (uint64_t)QUIET_EVERY_NS;
	uint64_t next_cut = driver->begin_ns + some_time_ns(&prng, 1, 3);
	uint64_t next_kill = driver->begin_ns + back_end_life_ns(&prng, total_s);
	uint64_t next_quiet = driver->begin_ns + quiet_every, now;

	while (!driver->failures && !interrupted && (now = soak_now_ns()) < end) {
		driver_turn(driver);
		if (now >= next_cut) {
			cut_guest(driver, &prng);
			next_cut = soak_now_ns() + some_time_ns(&prng, 0.5, longest_s);
		} else if (now >= next_kill) {
			kill_back_end(driver, &prng);
			next_kill = soak_now_ns() + back_end_life_ns(&prng, total_s);
		} else if (now >= next_quiet) {
			sample_quiet(driver);
			next_quiet = soak_now_ns() + quiet_every;
		}
	}
	if (!driver->failures)
		sample_quiet(driver);
}

/* The program of the same build: ../../ringferry, seen from here. */
static const char *find_program(char *path, size_t bytes)
{
	const char *program = getenv("RF_BIN");
	ssize_t n = readlink("/proc/self/exe", path, bytes - 1);

	if (program)
		return program;
	for (int up = 0; up < 3 && n > 0; up++)
		while (n > 0 && path[--n] != '/')
			;
	if (n <= 0 || (size_t)n + sizeof("/ringferry") > bytes)
		return "ringferry";
	memcpy(path + n, "/ringferry", sizeof("/ringferry"));
	return path;
}

static _Noreturn void usage(void)
{
	printf("usage: ./dev soak [OPTIONS]\n"
	       "\n"
	       "Carry streams in all directions at once, between host programs and user-space "
	       "guests\n"
	       "that are killed and detached at random, through a back end that is killed now "
	       "and\n"
	       "then. Every byte is checked. Ends at the first failure, with status 1.\n"
	       "\n"
	       "  --minutes N          how long, fractions are allowed (30)\n"
	       "  --seed N             for sizes, pauses and kills; times differ all the same "
	       "(random)\n"
	       "  --deadline SECONDS   each connection has to move within that time (30)\n"
	       "  --devices N          devices of the back end with a guest each, 1 or 2 (2)\n"
	       "  --program PATH       ringferry (of the same build)\n"
	       "  --help               this text\n");
	exit(0);
}

static double number(const char *option, const char *text, double min, double max)
{
	char *end;
	double value = strtod(text, &end);

	if (end != text && !*end && value >= min && value <= max)
		return value;
	fprintf(stderr, "soak: --%s: \"%s\" is not allowed; allowed: %g to %g\n", option, text, min,
		max);
	exit(2);
}

static struct arguments parse(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "minutes", required_argument, NULL, 'm' },
		{ "seed", required_argument, NULL, 's' },
		{ "deadline", required_argument, NULL, 'd' },
		{ "devices", required_argument, NULL, 'n' },
		{ "program", required_argument, NULL, 'p' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	struct arguments arguments = {
		.minutes = 30,
		.seed = soak_now_ns(),
		.deadline_s = 30,
		.n_devices = SOAK_DEVICES,
	};
	static char name[] = "soak";
	int c;

	/* What getopt_long() calls the program when it tells what is wrong. */
	argv[0] = name;
	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		if (c == 'm')
			arguments.minutes = number("minutes", optarg, 0.01, 100000);
		else if (c == 's')
			arguments.seed = strtoull(optarg, NULL, 10);
		else if (c == 'd')
			arguments.deadline_s = (unsigned)number("deadline", optarg, 1, 100000);
		else if (c == 'n')
			arguments.n_devices = (unsigned)number("devices", optarg, 1, SOAK_DEVICES);
		else if (c == 'p')
			arguments.program = optarg;
		else if (c == 'h')
			usage();
		else
			exit(2);
	}
	if (optind != argc) {
		fprintf(stderr, "soak: %s: not allowed; allowed: options only\n", argv[optind]);
		exit(2);
	}
	return arguments;
}

static void set_up(struct driver *driver)
{
	if (!mkdtemp(strcpy(driver->dir, "/tmp/ringferry-soak-XXXXXX"))) {
		perror("soak: mkdtemp");
		exit(1);
	}
	snprintf(driver->log, sizeof(driver->log), "%s/log", driver->dir);
	for (unsigned d = 0; d < driver->n_devices; d++) {
		struct soak_device *device = &driver->shared->devices[d];

		device->cid = FIRST_CID + d;
		snprintf(device->socket, sizeof(device->socket), "%s/vhost%u", driver->dir, d);
		snprintf(device->uds, sizeof(device->uds), "%s/vsock%u", driver->dir, d);
	}
	procs_start_back_end(driver);
	for (unsigned d = 0; d < driver->n_devices; d++) {
		driver->shared->devices[d].epoch++;
		procs_start_host(driver, d);
		procs_start_guest(driver, d);
	}
	for (unsigned d = 0; d < driver->n_devices; d++)
		if (driver_wait(driver, guest_ready, d, READY_SECONDS, "the guest does not attach"))
			driver->shared->devices[d].epoch++;
}

static void clean_up(const struct driver *driver)
{
	unlink(driver->log);
	if (rmdir(driver->dir) < 0)
		printf("%s: %s\n", driver->dir, strerror(errno));
}

static struct soak_shared *share(uint64_t seed)
{
	struct soak_shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
					  MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (shared == MAP_FAILED) {
		perror("soak: mmap");
		exit(1);
	}
	shared->seed = seed;
	return shared;
}

int main(int argc, char **argv)
{
	struct arguments arguments = parse(argc, argv);
	char path[256];
	struct driver driver = {
		.program = arguments.program ? arguments.program : find_program(path, sizeof(path)),
		.n_devices = arguments.n_devices,
		.deadline_ns = arguments.deadline_s * SOAK_NS_PER_SEC,
		.begin_ns = soak_now_ns(),
		.next_line_ns = soak_now_ns() + LINE_NS,
		.shared = share(arguments.seed),
	};

	signal(SIGINT, interrupt);
	signal(SIGTERM, interrupt);
	printf("soak: %g minutes, seed %" PRIu64 "\n", arguments.minutes, arguments.seed);
	set_up(&driver);
	run(&driver, arguments.minutes * 60);
	if (driver.failures)
		sample_show(&driver);
	procs_end(&driver);
	if (driver.failures)
		procs_show_log(&driver);
	else
		clean_up(&driver);
	printf("soak: %s, %.0f s, seed %" PRIu64 ": ", driver.failures ? "FAILED" : "passed",
	       elapsed_s(&driver), arguments.seed);
	print_totals(&driver);
	return driver.failures ? 1 : 0;
}
