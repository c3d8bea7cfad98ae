/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The soak test's driver: its processes, its judgement, its measurements.
 */
#ifndef SOAK_DRIVER_H
#define SOAK_DRIVER_H

#include <jansson.h>
#include <sys/types.h>

#include "soak.h"

/**
 * struct sample - What the back end holds when no connection is open
 * @fds:	Open descriptors
 * @memory_kib:	See soak_memory_kib()
 */
struct sample {
	long fds;
	long memory_kib;
};

/**
 * struct totals - What happened so far
 * @connections: By the side that connected: ended and found right, cut ones included
 * @bytes:	That arrived at each side
 * @cut:	Connections that a kill or a detachment may have cut
 * @refused:	Attempts that were refused around a cut
 * @guest_kills, @detachments, @back_end_kills: The cuts
 * @checks:	Times descriptors, memory and counters were looked at
 */
struct totals {
	uint64_t connections[2];
	uint64_t bytes[2];
	uint64_t cut;
	uint64_t refused;
	unsigned guest_kills, detachments, back_end_kills;
	unsigned checks;
};

/**
 * struct driver - The driver
 * @program:	ringferry
 * @dir:	Sockets and the back end's log
 * @log:	The log
 * @back_end:	Its process
 * @host, @guest: The processes of each device
 * @attachments: Of each guest, when the back end was killed
 * @n_devices:	How many the back end serves
 * @deadline_ns: How long a connection may be without a move
 * @begin_ns:	When the test began
 * @next_line_ns: When the next line is to be printed
 * @failures:	What went wrong so far
 * @before:	The back end's sample to compare with
 * @n_samples:	Samples of this back end so far
 * @totals:	What happened so far
 * @shared:	What all processes see
 */
struct driver {
	const char *program;
	char dir[64];
	char log[96];
	pid_t back_end;
	pid_t host[SOAK_DEVICES], guest[SOAK_DEVICES];
	unsigned attachments[SOAK_DEVICES];
	unsigned n_devices;
	uint64_t deadline_ns;
	uint64_t begin_ns, next_line_ns;
	unsigned failures;
	struct sample before;
	unsigned n_samples;
	struct totals totals;
	struct soak_shared *shared;
};

/* driver.c */

__attribute__((format(printf, 2, 3))) void driver_fail(struct driver *driver, const char *format,
						       ...);

/* Judge what is over, look after the processes, print a line when it is time; takes a moment. */
void driver_turn(struct driver *driver);

/* Turn until @done says so. Return: false, and a failure, if it does not in @seconds. */
bool driver_wait(struct driver *driver, bool (*done)(const struct driver *driver, unsigned device),
		 unsigned device, unsigned seconds, const char *what);

void driver_turn_for(struct driver *driver, unsigned ms);

/* judge.c */

/* Judge the connections that are over; complain about those that stand still. */
void judge_all(struct driver *driver);

/* A process of @device was killed: what it did on any connection is over. */
void judge_killed(struct driver *driver, unsigned device, enum soak_who who);

/* Is no connection under way? */
bool judge_idle(const struct driver *driver, unsigned device);

/* procs.c */

void procs_start_back_end(struct driver *driver);
void procs_start_host(struct driver *driver, unsigned device);
void procs_start_guest(struct driver *driver, unsigned device);
void procs_kill(pid_t *pid, int signal);

/* Complain about processes that ended by themselves. */
void procs_check(struct driver *driver);

/* End all of them and complain about how they end. */
void procs_end(struct driver *driver);

/* The last lines of the back end's log. */
void procs_show_log(const struct driver *driver);

/* sample.c */

/* Let all connections end, then look at the back end's descriptors, memory and counters. */
void sample_quiet(struct driver *driver);

/* Print the back end's counters, for a failure. */
void sample_show(struct driver *driver);

#endif
