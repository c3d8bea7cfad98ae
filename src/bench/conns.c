/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * conns: what open connections cost while nothing happens on them, and what is left of many that
 * were opened and closed.
 *
 * A host program connects, sends a byte and reads it back; the guest keeps the first thousand, and
 * serves ten thousand more one after the other. The host program is the measuring process.
 */
#include <errno.h>
#include <inttypes.h>
#include <ringferry/guest.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "back_end.h"
#include "base/fd.h"
#include "end.h"
#include "parts.h"
#include "usage.h"

#define N_OPEN    1000u
#define N_MANY    10000u
#define OTHER_FDS 256u
/* For the last packets and for what is done a moment later. */
#define SETTLE_S 0.5

enum phase {
	ONE_CLOSED,
	ALL_OPEN,
	ALL_CLOSED,
	MANY_CLOSED,
	N_PHASES,
};

static const char *const phase_names[] = {
	[ONE_CLOSED] = "one, closed",
	[ALL_OPEN] = "1,000 open",
	[ALL_CLOSED] = "closed again",
	[MANY_CLOSED] = "10,000 more in a row",
};

/**
 * struct lab - What is watched
 * @fds:	The host program's connections
 * @back_end, @guest: What they hold, by phase
 * @slab_kib:	How much the kernel's object caches grew with all open
 * @idle_back_end, @idle_guest: CPU time in per cent, with all open
 * @wake_ups:	Of both, in that time
 * @per_second:	Connections of those in a row
 */
struct lab {
	struct rf_bench_team team;
	int fds[N_OPEN];
	struct rf_bench_usage back_end[N_PHASES], guest[N_PHASES];
	long slab_kib;
	double idle_back_end, idle_guest;
	uint64_t wake_ups;
	double per_second;
};

static struct rf_bench_end guest_accept(struct rf_bench_team *team, struct rf_guest *guest,
					int listener)
{
	struct rf_bench_end end = { guest, rf_accept(guest, listener, NULL, 0) };
	char byte;

	if (end.fd < 0)
		rf_bench_team_fail(team, -end.fd, "accept");
	if (rf_bench_end_recv_all(team, &end, &byte, 1) != 1)
		rf_bench_team_fail(team, 0, "a connection of the guest ended early");
	rf_bench_end_send(team, &end, &byte, 1);
	return end;
}

static void guest_end(struct rf_bench_team *team, const struct rf_bench_end *end)
{
	char byte;

	if (rf_bench_end_recv_all(team, end, &byte, 1) != 0)
		rf_bench_team_fail(team, 0, "no end of file in the guest");
	rf_close(end->guest, end->fd);
}

static void guest_tell_phase(struct rf_bench_team *team)
{
	atomic_fetch_add(&team->shared->ready, 1);
}

static void guest_main(struct rf_bench_team *team, const void *ctx RF_UNUSED)
{
	struct rf_guest *guest = rf_bench_guest_open(team, -1);
	int listener = rf_socket(guest, RF_SOCK_STREAM);
	struct rf_bench_end ends[N_OPEN], end;

	if (rf_bind(guest, listener, &(struct rf_sockaddr){ RF_CID_ANY, RF_BENCH_PORT }) < 0 ||
	    rf_listen(guest, listener, 16) < 0)
		rf_bench_team_fail(team, 0, "no listener in the guest");
	end = guest_accept(team, guest, listener);
	guest_end(team, &end);
	guest_tell_phase(team);
	for (unsigned i = 0; i < N_OPEN; i++)
		ends[i] = guest_accept(team, guest, listener);
	guest_tell_phase(team);
	for (unsigned i = 0; i < N_OPEN; i++)
		guest_end(team, &ends[i]);
	guest_tell_phase(team);
	for (unsigned i = 0; i < N_MANY; i++) {
		end = guest_accept(team, guest, listener);
		guest_end(team, &end);
	}
	guest_tell_phase(team);
	/* Until this process is ended. */
	for (;;)
		pause();
}

/* Return: fd, or -errno after saying what failed. */
static int host_connect(struct lab *lab)
{
	int fd = rf_bench_back_end_connect(&lab->team);
	char byte = 'x';

	if (fd < 0)
		return rf_bench_error(-fd, "connect to the guest");
	if (write(fd, &byte, 1) == 1 && read(fd, &byte, 1) == 1)
		return fd;
	close(fd);
	return rf_bench_error(EIO, "a connection of the host");
}

static int open_all(struct lab *lab)
{
	for (unsigned i = 0; i < N_OPEN; i++) {
		int fd = host_connect(lab);

		if (fd < 0)
			return fd;
		lab->fds[i] = fd;
	}
	return 0;
}

static void close_all(struct lab *lab)
{
	for (unsigned i = 0; i < N_OPEN; i++)
		lab->fds[i] = rf_fd_close(lab->fds[i]);
}

static int open_in_a_row(struct lab *lab, unsigned n)
{
	double begin = rf_bench_now_s();

	for (unsigned i = 0; i < n; i++) {
		int fd = host_connect(lab);

		if (fd < 0)
			return fd;
		close(fd);
		if (rf_bench_interrupted())
			return -EINTR;
	}
	lab->per_second = n / (rf_bench_now_s() - begin);
	return 0;
}

static void print_state(const char *label, const struct rf_bench_usage *back_end,
			const struct rf_bench_usage *guest)
{
	printf("  %-24s %11ld %8ld KiB %8ld KiB %14ld %8ld KiB %8ld KiB\n", label, back_end->fds,
	       back_end->anon_kib, back_end->shared_kib, guest->fds, guest->anon_kib,
	       guest->shared_kib);
	fflush(stdout);
}

/* Wait until the guest has done its part of a phase, and look. */
static int settle(struct lab *lab, enum phase phase)
{
	int r = rf_bench_team_ready(&lab->team, phase + 1);

	if (r == 0)
		r = rf_bench_team_sleep(&lab->team, SETTLE_S);
	if (r < 0)
		return r;
	lab->back_end[phase] = rf_bench_usage(lab->team.pids[RF_BENCH_BACK_END]);
	lab->guest[phase] = rf_bench_usage(lab->team.pids[RF_BENCH_GUEST]);
	print_state(phase_names[phase], &lab->back_end[phase], &lab->guest[phase]);
	return 0;
}

/* CPU time in per cent. */
static double print_idle(const char *label, const struct rf_bench_usage *before,
			 const struct rf_bench_usage *after, double seconds)
{
	uint64_t ns = after->run_ns - before->run_ns;
	double percent = (double)ns / seconds * 1e-7;

	printf("  %-9s %.4f %% CPU (%" PRIu64 " ns in %.1f s), %" PRIu64 " wake-ups\n", label,
	       percent, ns, seconds, after->sleeps - before->sleeps);
	return percent;
}

static int watch_idle(struct lab *lab, double seconds)
{
	pid_t back_end_pid = lab->team.pids[RF_BENCH_BACK_END];
	pid_t guest_pid = lab->team.pids[RF_BENCH_GUEST];
	struct rf_bench_usage back_end = rf_bench_usage(back_end_pid), back_end_after;
	struct rf_bench_usage guest = rf_bench_usage(guest_pid), guest_after;
	double begin = rf_bench_now_s();
	int r = rf_bench_team_sleep(&lab->team, seconds);

	seconds = rf_bench_now_s() - begin;
	back_end_after = rf_bench_usage(back_end_pid);
	guest_after = rf_bench_usage(guest_pid);
	printf("\nIdle, with %u connections open:\n", N_OPEN);
	lab->idle_back_end = print_idle("back end", &back_end, &back_end_after, seconds);
	lab->idle_guest = print_idle("guest", &guest, &guest_after, seconds);
	lab->wake_ups = back_end_after.sleeps - back_end.sleeps + guest_after.sleeps - guest.sleeps;
	return r;
}

static long per_connection(const struct rf_bench_usage *usages)
{
	return (usages[ALL_OPEN].anon_kib - usages[ONE_CLOSED].anon_kib) * 1024 / (long)N_OPEN;
}

static int measure(struct lab *lab, double idle_seconds)
{
	int r = rf_bench_team_fork(&lab->team, RF_BENCH_GUEST, guest_main, NULL);

	printf("Connections (%s): back end: descriptors   own memory   guest's   guest: "
	       "descriptors   own memory   shared\n",
	       lab->team.variant->name);
	/* The first connection makes both sides allocate what is for all of them. */
	if (r == 0)
		r = open_in_a_row(lab, 1);
	if (r == 0)
		r = settle(lab, ONE_CLOSED);
	lab->slab_kib = rf_bench_slab_kib();
	if (r == 0)
		r = open_all(lab);
	if (r == 0)
		r = settle(lab, ALL_OPEN);
	lab->slab_kib = rf_bench_slab_kib() - lab->slab_kib;
	if (r == 0)
		r = watch_idle(lab, idle_seconds);
	close_all(lab);
	if (r < 0)
		return r;
	printf("\nMemory per idle connection: back end %ld bytes, guest %ld bytes; the whole "
	       "kernel's caches grew by %ld\n\n",
	       per_connection(lab->back_end), per_connection(lab->guest),
	       lab->slab_kib * 1024 / (long)N_OPEN);
	r = settle(lab, ALL_CLOSED);
	if (r == 0)
		r = open_in_a_row(lab, N_MANY);
	if (r == 0)
		r = settle(lab, MANY_CLOSED);
	if (r == 0)
		printf("  %.0f connections per second, with a byte each way\n\n", lab->per_second);
	return r;
}

static int add_row(struct rf_bench *bench, const struct lab *lab)
{
	struct rf_bench_row *row = rf_bench_add_row(bench, "conns", lab->team.variant->name);

	if (!row)
		return -ENOMEM;
	row->streams = N_OPEN;
	row->extra = json_pack(
		"{s:f, s:f, s:f, s:I, s:I, s:I, s:f, s:I, s:I, s:I}", "idle_cpu_percent",
		lab->idle_back_end + lab->idle_guest, "idle_cpu_percent_back_end",
		lab->idle_back_end, "idle_cpu_percent_guest", lab->idle_guest, "idle_wake_ups",
		(json_int_t)lab->wake_ups, "back_end_bytes_per_connection",
		(json_int_t)per_connection(lab->back_end), "guest_bytes_per_connection",
		(json_int_t)per_connection(lab->guest), "connections_per_second", lab->per_second,
		"back_end_fds_left",
		(json_int_t)(lab->back_end[MANY_CLOSED].fds - lab->back_end[ONE_CLOSED].fds),
		"guest_fds_left",
		(json_int_t)(lab->guest[MANY_CLOSED].fds - lab->guest[ONE_CLOSED].fds),
		"back_end_kib_left",
		(json_int_t)(lab->back_end[MANY_CLOSED].anon_kib -
			     lab->back_end[ONE_CLOSED].anon_kib));
	return row->extra ? 0 : rf_bench_error(ENOMEM, "row");
}

static int run_variant(struct rf_bench *bench, const struct rf_bench_variant *variant)
{
	struct lab *lab = calloc(1, sizeof(*lab));
	const struct rf_bench_place free_place = { "free", RF_BENCH_ANY_CORE, RF_BENCH_ANY_CORE,
						   RF_BENCH_ANY_CORE, 0 };
	int r;

	if (!lab)
		return rf_bench_error(ENOMEM, "connections");
	for (unsigned i = 0; i < N_OPEN; i++)
		lab->fds[i] = -1;
	r = rf_bench_team_open(&lab->team, bench, variant, &free_place, N_OPEN);
	if (r == 0)
		r = measure(lab, bench->options->idle_seconds);
	rf_bench_team_close(&lab->team);
	if (r == 0)
		r = add_row(bench, lab);
	free(lab);
	return r;
}

int rf_bench_conns(struct rf_bench *bench)
{
	const struct rf_bench_options *options = bench->options;
	struct rf_bench_variant usual;
	unsigned ours = 0;
	int64_t limit = rf_fd_raise_limit(N_OPEN + OTHER_FDS);
	int r = 0;

	if (limit < N_OPEN + OTHER_FDS)
		return rf_bench_error(EMFILE, "a thousand connections");
	if (!options->n_variants) {
		rf_bench_variant_init(&usual, "default", RF_BENCH_OURS);
		return run_variant(bench, &usual);
	}
	for (unsigned i = 0; i < options->n_variants && !r; i++) {
		if (options->variants[i].kind != RF_BENCH_OURS)
			continue;
		r = run_variant(bench, &options->variants[i]);
		ours++;
	}
	return ours || r ? r : rf_bench_error(ENOTSUP, "conns of a back end that is not ours");
}
