/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a subcommand that serves until it is told to stop needs: signals and readiness.
 */
#ifndef RF_CMD_SERVICE_H
#define RF_CMD_SERVICE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/loop.h"

/**
 * struct rf_service - Signals of a serving program, on its loop
 * @counters:	Makes the object that SIGUSR1 prints (a new reference, NULL when out of memory)
 * @ctx:	Passed to @counters
 * @loop, @watch, @fd: the service's
 */
struct rf_service {
	json_t *(*counters)(void *ctx);
	void *ctx;
	struct rf_loop *loop;
	struct rf_watch watch;
	int fd;
};

/**
 * rf_service_begin() - Take over SIGTERM and SIGINT (end the loop) and SIGUSR1 (print counters)
 *
 * The signals are blocked in this thread and in those it starts from now on. SIGUSR1 prints one
 * line of JSON on standard error.
 *
 * Return: 0, or -errno.
 */
int rf_service_begin(struct rf_service *service, struct rf_loop *loop);

void rf_service_end(struct rf_service *service);

/**
 * rf_service_ready() - Say that the sockets are open
 * @print:	Also print the line "ready" on standard output
 *
 * Tells the service manager that started us (sd_notify(3)'s protocol, NOTIFY_SOCKET), if one did.
 */
void rf_service_ready(bool print);

#endif
