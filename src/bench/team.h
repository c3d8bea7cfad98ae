/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The processes of one run: guest, back end, host program; or the two ends of a plain socket.
 *
 * The measuring process only starts them, sleeps, and reads what they count in memory that all
 * share. Each of them ends with it, whatever happens.
 */
#ifndef RF_BENCH_TEAM_H
#define RF_BENCH_TEAM_H

#include <stdatomic.h>
#include <sys/types.h>

#include "round.h"

#define RF_BENCH_PORT      5000u
#define RF_BENCH_MAX_TIMES (1u << 20)

/**
 * struct rf_bench_lane - One stream: what its ends have done so far, a cache line each
 */
struct rf_bench_lane {
	_Alignas(64) _Atomic uint64_t received;
	_Alignas(64) _Atomic uint64_t sent;
};

/**
 * struct rf_bench_shared - What the processes of a run share
 * @stop:	Senders are to come to their end
 * @measure:	Round trips count from now on
 * @ready:	Ends of streams that stand
 * @listening:	The guest listens
 * @failed:	A process has failed, and said why in @wrong
 * @lanes:	By stream
 * @n_times:	Round trips measured; those beyond RF_BENCH_MAX_TIMES are not kept
 * @times_ns:	Their times
 */
struct rf_bench_shared {
	_Atomic bool stop;
	_Atomic bool measure;
	_Atomic unsigned ready;
	_Atomic bool listening;
	_Atomic bool failed;
	char wrong[256];
	struct rf_bench_lane lanes[RF_BENCH_MAX_STREAMS];
	_Atomic uint32_t n_times;
	uint32_t times_ns[RF_BENCH_MAX_TIMES];
};

enum rf_bench_role {
	RF_BENCH_GUEST,
	RF_BENCH_BACK_END,
	RF_BENCH_HOST,
	RF_BENCH_N_ROLES,
};

/**
 * struct rf_bench_team - The processes of a run
 * @bench:	Measurement
 * @variant:	Under which circumstances it runs
 * @place:	Where its processes are
 * @shared:	Shared memory
 * @pids:	Processes, 0 for none
 * @foreign:	The back end is somebody else's process, which stays
 * @embedded:	The back end is in the host program's process
 * @back_end_log: Standard error of the back end, or -1
 * @control:	By role, to processes that have a half of ours in them: a byte asks for its
 *		counters; or -1
 * @control_far: Their ends, or -1
 * @listener:	Host programs' listener, or -1
 */
struct rf_bench_team {
	struct rf_bench *bench;
	const struct rf_bench_variant *variant;
	const struct rf_bench_place *place;
	struct rf_bench_shared *shared;
	pid_t pids[RF_BENCH_N_ROLES];
	bool foreign;
	bool embedded;
	int back_end_log;
	int control[RF_BENCH_N_ROLES];
	int control_far[RF_BENCH_N_ROLES];
	int listener;
};

/**
 * rf_bench_team_open() - Make shared memory and start the back end, if the variant has one
 * @conns:	Connections that the back end is to allow at least
 *
 * Return: 0, or -errno after saying what failed; rf_bench_team_close() in either case.
 */
int rf_bench_team_open(struct rf_bench_team *team, struct rf_bench *bench,
		       const struct rf_bench_variant *variant, const struct rf_bench_place *place,
		       unsigned conns);

/**
 * rf_bench_team_fork() - Start a process, on the core of its role
 * @main:	What it does; it ends with its return
 *
 * Return: 0, or -errno after saying what failed.
 */
int rf_bench_team_fork(struct rf_bench_team *team, enum rf_bench_role role,
		       void (*main)(struct rf_bench_team *team, const void *ctx), const void *ctx);

/* Wait until so many ends of streams stand. Return: 0, or -errno after saying what failed. */
int rf_bench_team_ready(struct rf_bench_team *team, unsigned ends);

/* Sleep, and notice who fails. Return: 0, or -errno after saying what failed. */
int rf_bench_team_sleep(struct rf_bench_team *team, double seconds);

/* Let senders come to their end, and wait for guest and host program. Return: as above. */
int rf_bench_team_finish(struct rf_bench_team *team);

/* End all processes that still run. */
void rf_bench_team_close(struct rf_bench_team *team);

/* In a process of a team: say why it fails, and end it. @error is an errno, or 0. */
_Noreturn void rf_bench_team_fail(struct rf_bench_team *team, int error, const char *what);

/**
 * rf_bench_team_answer() - In a process of a team: answer who asks for counters, by another thread
 * @role:	Whose
 * @counters:	Makes a line of JSON, to free(3)
 */
void rf_bench_team_answer(struct rf_bench_team *team, enum rf_bench_role role,
			  char *(*counters)(void *ctx), void *ctx);

/**
 * struct rf_bench_state - How far a run has come
 * @now_s:	When
 * @cpu_s:	CPU time of its processes
 * @busy_s:	CPU time of the whole machine
 * @received:	Bytes by stream
 * @host, @guest: Counters of both halves, or NULL
 */
struct rf_bench_state {
	double now_s;
	double cpu_s;
	double busy_s;
	uint64_t received[RF_BENCH_MAX_STREAMS];
	json_t *host;
	json_t *guest;
};

/* Both ask for the counters; the first one before it reads the rest, the second one after. */
void rf_bench_state_begin(struct rf_bench_team *team, struct rf_bench_state *ret_state);
void rf_bench_state_end(struct rf_bench_team *team, struct rf_bench_state *ret_state);

/**
 * rf_bench_sample_fill() - What happened between two states
 * @streams:	Their number
 * @ret:	Sample; its latency and round trips between cores are left alone
 *
 * The states' counters are released.
 */
void rf_bench_sample_fill(struct rf_bench_state *begin, struct rf_bench_state *end,
			  unsigned streams, struct rf_bench_sample *ret);

/* How much numbers have grown, of those that @begin and @end have. Return: a new reference. */
json_t *rf_bench_counters_diff(const json_t *begin, const json_t *end);

/* The counters of ringferry vsock's line of JSON as one flat object. Return: a new reference. */
json_t *rf_bench_counters_flat(const json_t *line);

/* counters.c: ask a running team. Return: a new reference, or NULL if there are none. */
json_t *rf_bench_host_counters(struct rf_bench_team *team);
json_t *rf_bench_guest_counters(struct rf_bench_team *team);

#endif
