/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

/* What malloc() and the like may still do after the first samples. */
#define MEMORY_SLACK_KIB 1024
/* Samples before memory is what it is to be: enough for most connections at once. */
#define WARM_UP_SAMPLES 1
#define QUIET_SECONDS   60
/* Sockets of the guest that are closed wait 8 seconds for an answer, if none comes. */
#define CLOSED_SECONDS 12
#define ANSWER_SECONDS 10

/* The first line of JSON behind @offset of the log. */
static json_t *find_json(const struct driver *driver, long offset)
{
	FILE *file = fopen(driver->log, "re");
	json_t *json = NULL;
	char *line = NULL;
	size_t room = 0;

	if (!file)
		return NULL;
	if (fseek(file, offset, SEEK_SET) == 0)
		while (!json && getline(&line, &room, file) > 0)
			if (line[0] == '{' && strchr(line, '\n'))
				json = json_loads(line, 0, NULL);
	free(line);
	fclose(file);
	return json;
}

static long log_bytes(const struct driver *driver)
{
	FILE *file = fopen(driver->log, "re");
	long bytes = 0;

	if (!file)
		return 0;
	if (fseek(file, 0, SEEK_END) == 0)
		bytes = ftell(file);
	fclose(file);
	return bytes;
}

/* Ask the back end for its counters. */
static json_t *ask(struct driver *driver)
{
	long offset = log_bytes(driver);
	json_t *json = NULL;

	if (driver->back_end <= 0 || kill(driver->back_end, SIGUSR1) < 0)
		return NULL;
	for (unsigned ms = 0; !json && ms < ANSWER_SECONDS * 1000; ms += 20) {
		soak_sleep_ms(20);
		json = find_json(driver, offset);
	}
	if (!json)
		driver_fail(driver, "the back end does not print its counters");
	return json;
}

void sample_show(struct driver *driver)
{
	json_t *json = ask(driver);
	char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;

	if (text)
		printf("counters: %s\n", text);
	free(text);
	json_decref(json);
}

static json_int_t get(const json_t *device, const char *table, const char *name)
{
	return json_integer_value(json_object_get(json_object_get(device, table), name));
}

static json_int_t open_connections(const json_t *json)
{
	const json_t *devices = json_object_get(json, "devices");
	json_int_t n = 0;

	for (size_t i = 0; i < json_array_size(devices); i++)
		n += json_integer_value(json_object_get(json_array_get(devices, i), "connections"));
	return n;
}

/* What began has ended, with a reason. */
static void check_device(struct driver *driver, const json_t *device)
{
	json_int_t begun =
		get(device, "host", "host_connects") + get(device, "host", "guest_connects");
	json_int_t ended = 0;
	const char *name;
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)json_object_get(device, "ended"), name, value)
		ended += json_integer_value(value);
	if (begun != ended)
		driver_fail(driver,
			    "cid %" JSON_INTEGER_FORMAT ": %" JSON_INTEGER_FORMAT
			    " connections began, %" JSON_INTEGER_FORMAT " have ended",
			    json_integer_value(json_object_get(device, "guest_cid")), begun, ended);
}

static json_t *wait_for_closed(struct driver *driver)
{
	json_t *json = ask(driver);

	for (unsigned i = 0; json && open_connections(json) && i < CLOSED_SECONDS * 4; i++) {
		json_decref(json);
		driver_turn_for(driver, 250);
		json = ask(driver);
	}
	if (json && open_connections(json))
		driver_fail(driver,
			    "%" JSON_INTEGER_FORMAT
			    " connections stay open in the back end; nobody has them",
			    open_connections(json));
	return json;
}

static void compare(struct driver *driver)
{
	struct sample now = { soak_count_fds(driver->back_end), soak_memory_kib(driver->back_end) };

	if (driver->n_samples++ < WARM_UP_SAMPLES || now.memory_kib < driver->before.memory_kib) {
		if (driver->n_samples == 1)
			driver->before.fds = now.fds;
		driver->before.memory_kib = now.memory_kib;
	}
	printf("         back end without connections: %ld descriptors (%ld at first), %ld KiB "
	       "of memory (%ld at first)\n",
	       now.fds, driver->before.fds, now.memory_kib, driver->before.memory_kib);
	if (now.fds > driver->before.fds)
		driver_fail(driver, "descriptors of the back end: %ld, %ld before", now.fds,
			    driver->before.fds);
#ifndef RF_SANITIZED
	if (now.memory_kib > driver->before.memory_kib + MEMORY_SLACK_KIB)
		driver_fail(driver, "memory of the back end: %ld KiB, %ld KiB before",
			    now.memory_kib, driver->before.memory_kib);
#endif
}

void sample_quiet(struct driver *driver)
{
	json_t *json = NULL;

	driver->shared->quiet = true;
	/* Whoever has not seen it yet has begun a connection then. */
	driver_turn_for(driver, 50);
	for (unsigned d = 0; d < driver->n_devices; d++)
		driver_wait(driver, judge_idle, d, QUIET_SECONDS, "connections do not end");
	if (!driver->failures)
		json = wait_for_closed(driver);
	for (size_t i = 0; json && i < json_array_size(json_object_get(json, "devices")); i++)
		check_device(driver, json_array_get(json_object_get(json, "devices"), i));
	if (json && !driver->failures)
		compare(driver);
	json_decref(json);
	driver->totals.checks++;
	driver->shared->quiet = false;
}
