/* SPDX-License-Identifier: BSD-3-Clause */
#include "service.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"

static void print_counters(struct rf_service *service)
{
	json_t *json = service->counters(service->ctx);
	char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
	char *line = NULL;
	int len = text ? asprintf(&line, "%s\n", text) : -1;

	if (len > 0) {
		rf_stderr_write(line, (size_t)len);
		free(line);
	}
	free(text);
	json_decref(json);
}

static void signalled(struct rf_watch *watch, uint32_t events RF_UNUSED)
{
	struct rf_service *service = RF_CONTAINER_OF(watch, struct rf_service, watch);
	struct signalfd_siginfo info;

	while (read(service->fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGUSR1)
			print_counters(service);
		else
			rf_loop_quit(service->loop);
	}
}

int rf_service_begin(struct rf_service *service, struct rf_loop *loop)
{
	sigset_t set;
	int r;

	service->fd = -1;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGUSR1);
	r = pthread_sigmask(SIG_BLOCK, &set, NULL);
	if (r)
		return -r;
	service->loop = loop;
	service->watch = (struct rf_watch){ .ready = signalled };
	service->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (service->fd < 0)
		return -errno;
	return rf_watch_add(loop, &service->watch, service->fd, EPOLLIN);
}

void rf_service_end(struct rf_service *service)
{
	rf_watch_remove(&service->watch);
	service->fd = rf_fd_close(service->fd);
}

/* A path, or with '@' first a name in the abstract namespace. */
static void notify(const char *path)
{
	RF_AUTO_FD int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	size_t len = strlen(path);

	if (fd < 0 || len == 0 || len >= sizeof(addr.sun_path))
		return;
	memcpy(addr.sun_path, path, len);
	if (addr.sun_path[0] == '@')
		addr.sun_path[0] = '\0';
	(void)!sendto(fd, "READY=1", 7, MSG_NOSIGNAL, (struct sockaddr *)&addr,
		      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
}

void rf_service_ready(bool print)
{
	const char *path = getenv("NOTIFY_SOCKET");

	if (path)
		notify(path);
	if (print) {
		puts("ready");
		fflush(stdout);
	}
}
