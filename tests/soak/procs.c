/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

#define LOG_TAIL_BYTES 4000
#define END_SECONDS    30

static pid_t start(void)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid < 0) {
		perror("soak: fork");
		exit(1);
	}
	if (pid == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

static void exec_back_end(const struct driver *driver)
{
	int fd = open(driver->log, O_WRONLY | O_CREAT | O_APPEND, 0600);
	const char *argv[2 + 2 * SOAK_DEVICES + 1] = { driver->program, "vsock" };
	char vm[SOAK_DEVICES][256];

	for (unsigned d = 0; d < driver->n_devices; d++) {
		const struct soak_device *device = &driver->shared->devices[d];

		snprintf(vm[d], sizeof(vm[d]),
			 "guest-cid=%u,socket=%s,uds-path=%s,timeouts=handshake=%us", device->cid,
			 device->socket, device->uds, SOAK_HANDSHAKE_S);
		argv[2 + 2 * d] = "--vm";
		argv[3 + 2 * d] = vm[d];
	}
	dup2(fd, STDOUT_FILENO);
	dup2(fd, STDERR_FILENO);
	execv(driver->program, (char **)(uintptr_t)argv);
	perror(driver->program);
	_exit(127);
}

void procs_start_back_end(struct driver *driver)
{
	driver->n_samples = 0;
	driver->back_end = start();
	if (driver->back_end == 0)
		exec_back_end(driver);
}

void procs_start_host(struct driver *driver, unsigned device)
{
	driver->host[device] = start();
	if (driver->host[device] == 0)
		exit(soak_host_main(driver->shared, &driver->shared->devices[device]));
}

void procs_start_guest(struct driver *driver, unsigned device)
{
	driver->shared->devices[device].ready = false;
	driver->guest[device] = start();
	if (driver->guest[device] == 0)
		exit(soak_guest_main(driver->shared, &driver->shared->devices[device]));
}

void procs_kill(pid_t *pid, int signal)
{
	if (*pid <= 0)
		return;
	kill(*pid, signal);
	waitpid(*pid, NULL, 0);
	*pid = 0;
}

static void check(struct driver *driver, pid_t *pid, const char *what)
{
	int status;

	if (*pid <= 0 || waitpid(*pid, &status, WNOHANG) != *pid)
		return;
	*pid = 0;
	driver_fail(driver, "the %s ended by itself: %s %d", what,
		    WIFSIGNALED(status) ? "signal" : "status",
		    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

void procs_check(struct driver *driver)
{
	check(driver, &driver->back_end, "back end");
	for (unsigned d = 0; d < driver->n_devices; d++) {
		check(driver, &driver->host[d], "host's process");
		check(driver, &driver->guest[d], "guest's process");
	}
}

static void await(struct driver *driver, pid_t *pid, const char *what)
{
	int status = -1;

	for (unsigned ms = 0; *pid > 0; ms += 10) {
		if (waitpid(*pid, &status, WNOHANG) == *pid) {
			*pid = 0;
			if (status)
				driver_fail(driver, "the %s ends badly: %s %d", what,
					    WIFSIGNALED(status) ? "signal" : "status",
					    WIFSIGNALED(status) ? WTERMSIG(status)
								: WEXITSTATUS(status));
		} else if (ms > END_SECONDS * 1000) {
			procs_kill(pid, SIGABRT);
			driver_fail(driver, "the %s does not end", what);
		} else {
			soak_sleep_ms(10);
		}
	}
}

void procs_end(struct driver *driver)
{
	bool orderly = !driver->failures;

	driver->shared->stop = true;
	for (unsigned d = 0; d < driver->n_devices; d++) {
		if (!orderly) {
			procs_kill(&driver->guest[d], SIGKILL);
			procs_kill(&driver->host[d], SIGKILL);
		}
		await(driver, &driver->guest[d], "guest's process");
		await(driver, &driver->host[d], "host's process");
	}
	if (driver->back_end > 0)
		kill(driver->back_end, SIGTERM);
	await(driver, &driver->back_end, "back end");
}

void procs_show_log(const struct driver *driver)
{
	FILE *file = fopen(driver->log, "re");
	char line[1024];

	if (!file)
		return;
	if (fseek(file, -LOG_TAIL_BYTES, SEEK_END) < 0)
		rewind(file);
	printf("end of the back end's log %s:\n", driver->log);
	while (fgets(line, sizeof(line), file))
		printf("  | %s", line);
	fclose(file);
}
