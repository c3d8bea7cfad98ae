/* SPDX-License-Identifier: BSD-3-Clause */
#include "back_end.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <poll.h>
#include <ringferry/client.h>
#include <ringferry/guest.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"

#define KERNEL_DEVICE "/dev/vhost-vsock"

#define CONNECT_MS   10000
#define MAX_ARGS     24
#define KERNEL_TRIES 500
#define OWNER_TRIES  200
/* Largest ring that a back end accepts by default, and connections likewise. */
#define DEFAULT_QUEUE 1024u
#define DEFAULT_CONNS 1000u

static const char *uds_of(const struct rf_bench_team *team)
{
	return team->variant->kind == RF_BENCH_EXTERNAL ? team->variant->uds : team->bench->uds;
}

static const char *socket_of(const struct rf_bench_team *team)
{
	return team->variant->kind == RF_BENCH_EXTERNAL ? team->variant->socket
							: team->bench->socket;
}

static uint32_t queue_size_of(const struct rf_bench_team *team)
{
	uint32_t size = team->variant->queue_size;

	return size ? size : team->bench->options->queue_size;
}

/* Arguments of a command line, and room for the numbers among them. */
struct args {
	const char *words[MAX_ARGS];
	char numbers[MAX_ARGS][16];
	unsigned n;
};

static void add(struct args *args, const char *option, const char *value)
{
	args->words[args->n++] = option;
	args->words[args->n++] = value;
}

static void add_number(struct args *args, const char *option, uint64_t value)
{
	char *text = args->numbers[args->n];

	snprintf(text, sizeof(args->numbers[0]), "%llu", (unsigned long long)value);
	add(args, option, text);
}

static void command_line(const struct rf_bench_team *team, unsigned conns, struct args *args)
{
	const struct rf_bench_variant *variant = team->variant;

	*args = (struct args){ .words = { rf_bench_program(), "vsock" }, .n = 2 };
	add_number(args, "--guest-cid", RF_BENCH_GUEST_CID);
	add(args, "--socket", team->bench->socket);
	add(args, "--uds-path", team->bench->uds);
	if (queue_size_of(team) > DEFAULT_QUEUE)
		add_number(args, "--queue-size", queue_size_of(team));
	if (conns > DEFAULT_CONNS)
		add_number(args, "--max-connections", conns + 16);
	if (variant->window)
		add_number(args, "--tx-buffer-size", variant->window);
	if (*variant->host_tune)
		add(args, "--tune", variant->host_tune);
	if (variant->host_poll_us == RF_BENCH_POLL_AUTO)
		add(args, "--poll-us", "auto");
	else if (variant->host_poll_us >= 0)
		add_number(args, "--poll-us", (uint64_t)variant->host_poll_us);
	args->words[args->n] = NULL;
}

static void exec_back_end(struct rf_bench_team *team, const struct args *args, int log)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	rf_bench_pin(team->place->back_end);
	dup2(log, STDERR_FILENO);
	execv(args->words[0], (char *const *)(uintptr_t)args->words);
	_exit(127);
}

static int start_ours(struct rf_bench_team *team, unsigned conns)
{
	struct args args;
	int log[2];
	pid_t pid;

	if (pipe2(log, O_CLOEXEC) < 0)
		return rf_bench_error(errno, "pipe");
	command_line(team, conns, &args);
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		exec_back_end(team, &args, log[1]);
	close(log[1]);
	team->back_end_log = log[0];
	(void)fcntl(log[0], F_SETFL, O_NONBLOCK);
	if (pid < 0)
		return rf_bench_error(errno, "fork");
	team->pids[RF_BENCH_BACK_END] = pid;
	return 0;
}

/* Who listens on a unix socket; 0 if that cannot be told. */
static pid_t owner_of(const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	RF_AUTO_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct ucred cred = { 0 };
	socklen_t len = sizeof(cred);

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
	    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return 0;
	return cred.pid;
}

/* Its process is found through its hybrid socket: for its CPU time, and to be put on a core. */
static int find_external(struct rf_bench_team *team)
{
	pid_t pid = owner_of(team->variant->uds);

	/* There are some that open their sockets anew for each guest. */
	for (int i = 0; !pid && i < OWNER_TRIES; i++) {
		usleep(10000);
		pid = owner_of(team->variant->uds);
	}
	if (!pid)
		return rf_bench_error(ECONNREFUSED, "%s: nobody listens on %s", team->variant->name,
				      team->variant->uds);
	team->foreign = true;
	team->pids[RF_BENCH_BACK_END] = pid;
	rf_bench_pin_process(pid, team->place->back_end);
	return 0;
}

int rf_bench_back_end_start(struct rf_bench_team *team, unsigned conns)
{
	switch (team->variant->kind) {
	case RF_BENCH_OURS:
		return start_ours(team, conns);
	case RF_BENCH_EXTERNAL:
		return find_external(team);
	case RF_BENCH_KERNEL:
		/* Before any vsock socket of this host is made. */
		if (access(KERNEL_DEVICE, R_OK | W_OK) < 0)
			return rf_bench_error(errno, "%s: %s", team->variant->name, KERNEL_DEVICE);
		return 0;
	default:
		return 0;
	}
}

void rf_bench_back_end_drain(struct rf_bench_team *team)
{
	char text[4096];
	ssize_t n;

	while (team->back_end_log >= 0 && (n = read(team->back_end_log, text, sizeof(text))) > 0)
		(void)!write(STDERR_FILENO, text, (size_t)n);
}

/* The kernel's back end: a vsock socket of this host. Only ever on request. */
static int kernel_listen(int backlog)
{
	const struct sockaddr_vm addr = { .svm_family = AF_VSOCK,
					  .svm_cid = VMADDR_CID_ANY,
					  .svm_port = RF_BENCH_PORT };
	int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int r = fd;

	if (fd < 0 || bind(fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0 ||
	    listen(fd, backlog) < 0)
		r = -errno;
	if (r < 0)
		rf_fd_close(fd);
	return r;
}

static int kernel_connect(void)
{
	const struct sockaddr_vm addr = { .svm_family = AF_VSOCK,
					  .svm_cid = RF_BENCH_GUEST_CID,
					  .svm_port = RF_BENCH_PORT };
	int r = -ETIMEDOUT;

	for (int i = 0; i < KERNEL_TRIES; i++) {
		int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (fd < 0)
			return -errno;
		if (connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) == 0)
			return fd;
		r = -errno;
		rf_fd_close(fd);
		usleep(CONNECT_MS * 1000 / KERNEL_TRIES);
	}
	return r;
}

int rf_bench_back_end_listen(struct rf_bench_team *team, int backlog)
{
	bool kernel = team->variant->kind == RF_BENCH_KERNEL;
	int fd = kernel ? kernel_listen(backlog)
			: rf_client_listen(uds_of(team), RF_BENCH_PORT, backlog);

	if (fd < 0)
		return rf_bench_error(-fd, "%s: port %u of the host", team->variant->name,
				      RF_BENCH_PORT);
	team->listener = fd;
	return 0;
}

void rf_bench_back_end_unlisten(struct rf_bench_team *team)
{
	if (team->listener >= 0 && team->variant->kind == RF_BENCH_KERNEL)
		close(team->listener);
	else if (team->listener >= 0)
		rf_client_unlisten(team->listener, uds_of(team), RF_BENCH_PORT);
	team->listener = -1;
}

int rf_bench_back_end_connect(struct rf_bench_team *team)
{
	if (team->variant->kind == RF_BENCH_KERNEL)
		return kernel_connect();
	return rf_client_connect(uds_of(team), RF_BENCH_PORT, CONNECT_MS);
}

struct rf_guest *rf_bench_guest_open(struct rf_bench_team *team, int socket_fd)
{
	const struct rf_bench_variant *variant = team->variant;
	struct rf_guest_options options;
	struct rf_guest *guest;
	int r;

	rf_guest_options_init(&options);
	if (variant->kind == RF_BENCH_KERNEL) {
		options.vhost_device = KERNEL_DEVICE;
		options.guest_cid = RF_BENCH_GUEST_CID;
	} else if (socket_fd >= 0) {
		options.socket_fd = socket_fd;
	} else {
		options.socket_path = socket_of(team);
	}
	options.queue_size = queue_size_of(team);
	options.reconnect = 0;
	options.tune = variant->guest_tune;
	/* The same number means auto to both. */
	if (variant->guest_poll_us != RF_BENCH_POLL_UNSET)
		options.poll_us = variant->guest_poll_us;
	if (variant->window)
		options.window_bytes = variant->window;
	r = rf_guest_open(&options, &guest);
	if (r < 0)
		rf_bench_team_fail(team, -r, "the guest finds no back end");
	return guest;
}
