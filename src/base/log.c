/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

/* Longer lines are cut. */
#define LINE_BYTES 1024

/* A long line's reader may pause so long. */
#define STDERR_WAIT_MS 100

/* Allowance of a struct rf_log_limit. */
#define LIMIT_LINES 5
#define LIMIT_NS    RF_NS_PER_SEC

static bool wanted(const struct rf_log *log, enum rf_log_level level)
{
	return log && level <= log->level;
}

void rf_log(const struct rf_log *log, enum rf_log_level level, const char *fmt, ...)
{
	char line[LINE_BYTES];
	va_list args;

	if (!wanted(log, level))
		return;
	va_start(args, fmt);
	vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	log->sink(log->ctx, level, log->name, line);
}

/* Take one line from the allowance: limit->burst lines of it are used, one comes back at next_ns.
 */
static bool limit_take(struct rf_log_limit *limit, uint64_t now_ns)
{
	if (limit->burst && now_ns >= limit->next_ns) {
		uint64_t back = 1 + (now_ns - limit->next_ns) / LIMIT_NS;

		limit->burst -= (unsigned)rf_min_u64(back, limit->burst);
		limit->next_ns += back * LIMIT_NS;
	}
	if (limit->burst == LIMIT_LINES)
		return false;
	if (limit->burst++ == 0)
		limit->next_ns = now_ns + LIMIT_NS;
	return true;
}

void rf_log_limited(const struct rf_log *log, struct rf_log_limit *limit, enum rf_log_level level,
		    const char *fmt, ...)
{
	char line[LINE_BYTES];
	va_list args;

	if (!wanted(log, level))
		return;
	if (!limit_take(limit, rf_clock_now())) {
		limit->dropped++;
		return;
	}
	va_start(args, fmt);
	vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	if (limit->dropped) {
		rf_log(log, level, "%s (%u like this dropped before)", line, limit->dropped);
		limit->dropped = 0;
		return;
	}
	log->sink(log->ctx, level, log->name, line);
}

int rf_log_level_parse(const char *name)
{
	static const char *const names[] = {
		[RF_LOG_ERROR] = "error",
		[RF_LOG_WARNING] = "warning",
		[RF_LOG_INFO] = "info",
		[RF_LOG_DEBUG] = "debug",
	};

	for (size_t i = 0; i < RF_ARRAY_SIZE(names); i++) {
		if (!strcmp(name, names[i]))
			return (int)i;
	}
	return -EINVAL;
}

void rf_stderr_write(const char *line, size_t len)
{
	struct pollfd writable = { .fd = STDERR_FILENO, .events = POLLOUT };
	int wait_ms = 0;

	/* A pipe that is writable takes PIPE_BUF bytes. There is nowhere to report a failure to. */
	while (len && poll(&writable, 1, wait_ms) > 0) {
		ssize_t n = write(STDERR_FILENO, line, rf_min_size(len, PIPE_BUF));

		if (n <= 0)
			return;
		line += n;
		len -= (size_t)n;
		wait_ms = STDERR_WAIT_MS;
	}
}

void rf_log_stderr(void *ctx RF_UNUSED, enum rf_log_level level RF_UNUSED, const char *name,
		   const char *line)
{
	char text[LINE_BYTES + 256];
	int len = snprintf(text, sizeof(text), "ringferry: %s%s%s\n", name ? name : "",
			   name ? ": " : "", line);

	if (len < 0)
		return;
	if ((size_t)len >= sizeof(text)) {
		len = sizeof(text) - 1;
		text[len - 1] = '\n';
	}
	rf_stderr_write(text, (size_t)len);
}
