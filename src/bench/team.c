/* SPDX-License-Identifier: BSD-3-Clause */
#include "team.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "back_end.h"
#include "base/fd.h"

/* How long processes may take to find each other, and to come to their end. */
#define PATIENCE_S 30.0
#define STEP_S     0.001
/* How often who sleeps looks for processes that have failed. */
#define LOOK_S 0.1
/* So long nothing is sent any more. */
#define QUIET_STEPS 20u
/* How long who was asked to end may take before it is killed. */
#define END_STEPS 3000

void rf_bench_team_fail(struct rf_bench_team *team, int error, const char *what)
{
	static _Atomic bool telling;

	/* One thread of one process at a time, more or less; the first one counts. */
	if (!atomic_exchange(&telling, true) && !atomic_load(&team->shared->failed)) {
		snprintf(team->shared->wrong, sizeof(team->shared->wrong), "%s%s%s", what,
			 error ? ": " : "", error ? strerror(error) : "");
		atomic_store(&team->shared->failed, true);
	}
	_exit(1);
}

int rf_bench_team_open(struct rf_bench_team *team, struct rf_bench *bench,
		       const struct rf_bench_variant *variant, const struct rf_bench_place *place,
		       unsigned conns)
{
	int pair[2];

	*team = (struct rf_bench_team){
		.bench = bench,
		.variant = variant,
		.place = place,
		.embedded = bench->options->via == RF_BENCH_EMBED && variant->kind == RF_BENCH_OURS,
		.back_end_log = -1,
		.control = { -1, -1, -1 },
		.control_far = { -1, -1, -1 },
		.listener = -1,
	};
	team->shared = mmap(NULL, sizeof(*team->shared), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (team->shared == MAP_FAILED) {
		team->shared = NULL;
		return rf_bench_error(errno, "shared memory");
	}
	for (int role = 0; role < RF_BENCH_N_ROLES; role++) {
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
			return rf_bench_error(errno, "socketpair");
		team->control[role] = pair[0];
		team->control_far[role] = pair[1];
	}
	return team->embedded ? 0 : rf_bench_back_end_start(team, conns);
}

static int core_of(const struct rf_bench_team *team, enum rf_bench_role role)
{
	switch (role) {
	case RF_BENCH_GUEST:
		return team->place->guest;
	case RF_BENCH_BACK_END:
		return team->place->back_end;
	default:
		return team->place->host;
	}
}

int rf_bench_team_fork(struct rf_bench_team *team, enum rf_bench_role role,
		       void (*main)(struct rf_bench_team *team, const void *ctx), const void *ctx)
{
	pid_t parent = getpid(), pid;

	fflush(NULL);
	pid = fork();
	if (pid < 0)
		return rf_bench_error(errno, "fork");
	team->pids[role] = pid;
	if (pid > 0)
		return 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	rf_bench_pin(core_of(team, role));
	main(team, ctx);
	_exit(0);
}

static const char *role_name(enum rf_bench_role role)
{
	static const char *const names[] = { "the guest", "the back end", "the host program" };

	return names[role];
}

/* Return: 0, or -errno after saying who has ended, which nobody was to do. */
static int check(struct rf_bench_team *team)
{
	int status;

	if (rf_bench_interrupted())
		return -EINTR;
	if (atomic_load(&team->shared->failed))
		return rf_bench_error(EPROTO, "%s: %s", team->variant->name, team->shared->wrong);
	for (int role = 0; role < RF_BENCH_N_ROLES; role++) {
		if (!team->pids[role] || (role == RF_BENCH_BACK_END && team->foreign) ||
		    waitpid(team->pids[role], &status, WNOHANG) <= 0)
			continue;
		team->pids[role] = 0;
		if (atomic_load(&team->shared->failed))
			return rf_bench_error(EPROTO, "%s: %s", team->variant->name,
					      team->shared->wrong);
		return rf_bench_error(EPROTO, "%s: %s has ended", team->variant->name,
				      role_name(role));
	}
	return 0;
}

struct answer {
	int fd;
	char *(*counters)(void *ctx);
	void *ctx;
};

static void *answer(void *arg)
{
	struct answer *me = arg;
	char byte;

	while (read(me->fd, &byte, 1) == 1) {
		char *text = me->counters(me->ctx);

		if (text && (write(me->fd, text, strlen(text)) < 0 || write(me->fd, "\n", 1) < 0))
			break;
		free(text);
	}
	return NULL;
}

void rf_bench_team_answer(struct rf_bench_team *team, enum rf_bench_role role,
			  char *(*counters)(void *ctx), void *ctx)
{
	static struct answer answers[RF_BENCH_N_ROLES];
	pthread_t thread;

	answers[role] = (struct answer){ team->control_far[role], counters, ctx };
	if (pthread_create(&thread, NULL, answer, &answers[role]) != 0)
		rf_bench_team_fail(team, EAGAIN, "thread");
	pthread_detach(thread);
}

int rf_bench_team_ready(struct rf_bench_team *team, unsigned ends)
{
	double until = rf_bench_now_s() + PATIENCE_S;
	int r = 0;

	while (r == 0 && atomic_load(&team->shared->ready) < ends) {
		r = check(team);
		if (r == 0)
			r = rf_bench_sleep(STEP_S);
		if (r == 0 && rf_bench_now_s() > until)
			r = rf_bench_error(ETIMEDOUT, "%s: guest and host program do not meet",
					   team->variant->name);
	}
	return r;
}

int rf_bench_team_sleep(struct rf_bench_team *team, double seconds)
{
	double until = rf_bench_now_s() + seconds, rest = seconds;
	int r = 0;

	while (r == 0 && rest > 0) {
		r = rf_bench_sleep(rest < LOOK_S ? rest : LOOK_S);
		if (r == 0)
			r = check(team);
		rest = until - rf_bench_now_s();
	}
	return r;
}

/* Return: 1 when it has ended well, 0 when it has not ended, or -errno. */
static int reap(struct rf_bench_team *team, enum rf_bench_role role)
{
	int status;

	if (!team->pids[role])
		return 1;
	if (waitpid(team->pids[role], &status, WNOHANG) != team->pids[role])
		return 0;
	team->pids[role] = 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 1;
	if (atomic_load(&team->shared->failed))
		return rf_bench_error(EPROTO, "%s: %s", team->variant->name, team->shared->wrong);
	return rf_bench_error(EPROTO, "%s: %s has failed", team->variant->name, role_name(role));
}

/* All that was sent on any stream, and whether all of it has arrived. */
static bool all_arrived(const struct rf_bench_team *team, uint64_t *ret_sent)
{
	bool arrived = true;

	*ret_sent = 0;
	for (unsigned i = 0; i < RF_BENCH_MAX_STREAMS; i++) {
		uint64_t sent = atomic_load(&team->shared->lanes[i].sent);

		*ret_sent += sent;
		arrived = arrived && atomic_load(&team->shared->lanes[i].received) >= sent;
	}
	return arrived;
}

/*
 * Not every back end passes the end of one direction on, and then its processes wait for ever: with
 * one that is not ours, it is the end when all has arrived and nothing more is sent for a while.
 */
static int finish_foreign(struct rf_bench_team *team)
{
	double until = rf_bench_now_s() + PATIENCE_S;
	uint64_t before = UINT64_MAX, sent;
	unsigned quiet = 0;

	while (quiet < QUIET_STEPS) {
		int r = rf_bench_sleep(STEP_S);

		quiet = all_arrived(team, &sent) && sent == before ? quiet + 1 : 0;
		before = sent;
		if (r < 0)
			return r;
		if (atomic_load(&team->shared->failed))
			return rf_bench_error(EPROTO, "%s: %s", team->variant->name,
					      team->shared->wrong);
		if (rf_bench_now_s() > until)
			return rf_bench_error(ETIMEDOUT, "%s: not all that was sent arrives",
					      team->variant->name);
	}
	return 0;
}

int rf_bench_team_finish(struct rf_bench_team *team)
{
	double until = rf_bench_now_s() + PATIENCE_S;
	int guest = 0, host = 0, r = 0;

	atomic_store(&team->shared->stop, true);
	if (team->variant->kind == RF_BENCH_EXTERNAL)
		return finish_foreign(team);
	for (;;) {
		if (!guest)
			guest = reap(team, RF_BENCH_GUEST);
		if (!host && guest >= 0)
			host = reap(team, RF_BENCH_HOST);
		if (guest < 0 || host < 0)
			return guest < 0 ? guest : host;
		if (guest && host)
			return 0;
		if (rf_bench_interrupted())
			return -EINTR;
		r = rf_bench_sleep(STEP_S);
		if (r < 0)
			return r;
		if (rf_bench_now_s() > until)
			return rf_bench_error(ETIMEDOUT, "%s: a stream does not come to its end",
					      team->variant->name);
	}
}

static void end(pid_t pid, int sig)
{
	kill(pid, sig);
	for (int i = 0; i < END_STEPS; i++) {
		if (waitpid(pid, NULL, WNOHANG) != 0)
			return;
		usleep(1000);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

void rf_bench_team_close(struct rf_bench_team *team)
{
	if (team->pids[RF_BENCH_GUEST])
		end(team->pids[RF_BENCH_GUEST], SIGKILL);
	if (team->pids[RF_BENCH_HOST])
		end(team->pids[RF_BENCH_HOST], SIGKILL);
	rf_bench_back_end_unlisten(team);
	if (team->pids[RF_BENCH_BACK_END] && !team->foreign)
		end(team->pids[RF_BENCH_BACK_END], SIGTERM);
	rf_bench_back_end_drain(team);
	rf_fd_close(team->back_end_log);
	for (int role = 0; role < RF_BENCH_N_ROLES; role++) {
		rf_fd_close(team->control[role]);
		rf_fd_close(team->control_far[role]);
	}
	if (team->shared)
		munmap(team->shared, sizeof(*team->shared));
}
