/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counters of both halves while they run: the back end writes them to its standard error when it is
 * signalled, the guest's process answers through a socket.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "team.h"

#define ANSWER_MS    1000
#define ANSWER_BYTES 16384u

/* Numbers that count nothing. */
static bool counts(const char *name)
{
	return strcmp(name, "guest_cid") != 0 && strcmp(name, "connections") != 0;
}

static void flatten(const json_t *from, json_t *into)
{
	json_t *object = (json_t *)(uintptr_t)from;

	for (size_t i = 0; i < json_array_size(from); i++)
		flatten(json_array_get(from, i), into);
	for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at)) {
		const char *name = json_object_iter_key(at);
		json_t *value = json_object_iter_value(at);

		if (!json_is_integer(value))
			flatten(value, into);
		else if (counts(name))
			json_object_set(into, name, value);
	}
}

json_t *rf_bench_counters_flat(const json_t *line)
{
	json_t *flat = json_object();

	if (flat)
		flatten(line, flat);
	return flat;
}

json_t *rf_bench_counters_diff(const json_t *begin, const json_t *end)
{
	json_t *object = (json_t *)(uintptr_t)end, *diff = json_object();

	for (void *at = json_object_iter(object); at; at = json_object_iter_next(object, at)) {
		const char *name = json_object_iter_key(at);
		const json_t *value = json_object_iter_value(at);
		const json_t *before = json_object_get(begin, name);

		if (json_is_integer(value) && json_is_integer(before))
			json_object_set_new(diff, name,
					    json_integer(json_integer_value(value) -
							 json_integer_value(before)));
	}
	return diff;
}

/* A line that begins with '{'; others are for people. Return: it, or NULL when time is up. */
static json_t *read_line(int fd)
{
	static char text[ANSWER_BYTES];
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
	size_t len = 0;

	while (poll(&poll_fd, 1, ANSWER_MS) == 1) {
		ssize_t n = read(fd, text + len, sizeof(text) - 1 - len);
		char *end;

		if (n <= 0)
			return NULL;
		len += (size_t)n;
		text[len] = '\0';
		while ((end = strchr(text, '\n'))) {
			*end = '\0';
			if (*text == '{')
				return json_loads(text, 0, NULL);
			fprintf(stderr, "%s\n", text);
			len -= (size_t)(end + 1 - text);
			memmove(text, end + 1, len + 1);
		}
	}
	return NULL;
}

static json_t *read_flat(int fd)
{
	json_t *line = read_line(fd);
	json_t *flat = line ? rf_bench_counters_flat(line) : NULL;

	json_decref(line);
	return flat;
}

static json_t *ask(struct rf_bench_team *team, enum rf_bench_role role)
{
	return write(team->control[role], "c", 1) == 1 ? read_flat(team->control[role]) : NULL;
}

json_t *rf_bench_host_counters(struct rf_bench_team *team)
{
	pid_t pid = team->pids[RF_BENCH_BACK_END];

	if (team->embedded)
		return ask(team, RF_BENCH_HOST);
	if (team->back_end_log < 0 || pid <= 0 || kill(pid, SIGUSR1) < 0)
		return NULL;
	return read_flat(team->back_end_log);
}

json_t *rf_bench_guest_counters(struct rf_bench_team *team)
{
	bool raw = team->variant->kind == RF_BENCH_RAW || team->variant->kind == RF_BENCH_RAW_BEST;

	return raw ? NULL : ask(team, RF_BENCH_GUEST);
}
