/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Logging through a sink that the program passes in.
 *
 * The layers below cmd log nothing above RF_LOG_DEBUG except through a struct rf_log that the
 * program gave them; with a NULL log they are silent. Lines that a peer can cause go through
 * rf_log_limited(), so that no guest can flood a log.
 */
#ifndef RF_BASE_LOG_H
#define RF_BASE_LOG_H

#include <stdarg.h>
#include <stdint.h>

#include "base/util.h"

enum rf_log_level {
	RF_LOG_ERROR,
	RF_LOG_WARNING,
	RF_LOG_INFO,
	RF_LOG_DEBUG,
};

/**
 * struct rf_log - Where lines go
 * @name:	Device name, put before each line; NULL for none
 * @level:	Lines above this level are not formatted at all
 * @sink:	Called with each formatted line (no newline at its end), from any thread
 * @ctx:	Passed to @sink
 */
struct rf_log {
	const char *name;
	enum rf_log_level level;
	void (*sink)(void *ctx, enum rf_log_level level, const char *name, const char *line);
	void *ctx;
};

/**
 * struct rf_log_limit - Allowance of one kind of line: 5 at once, then one per second
 *
 * Zero-initialised. Not thread-safe: one per owner.
 */
struct rf_log_limit {
	uint64_t next_ns;
	unsigned burst;
	unsigned dropped;
};

void rf_log(const struct rf_log *log, enum rf_log_level level, const char *fmt, ...)
	RF_PRINTF(3, 4);

/**
 * rf_log_limited() - Log a line that a peer can cause at will
 * @log:	Log, or NULL
 * @limit:	Allowance of this kind of line
 * @level:	Level
 * @fmt:	Format; the number of lines dropped before this one is added to it
 */
void rf_log_limited(const struct rf_log *log, struct rf_log_limit *limit, enum rf_log_level level,
		    const char *fmt, ...) RF_PRINTF(4, 5);

/**
 * rf_log_level_parse() - Level of a name: error, warning, info, debug
 * Return: the level, or -EINVAL.
 */
int rf_log_level_parse(const char *name);

/**
 * rf_stderr_write() - Write a line to standard error, if somebody takes it
 *
 * A reader that has stopped holds us up for a tenth of a second at most, and not at all if the line
 * is no longer than PIPE_BUF: what it does not take is dropped.
 */
void rf_stderr_write(const char *line, size_t len);

/* A ready sink: "ringferry: NAME: LINE" by rf_stderr_write(). */
void rf_log_stderr(void *ctx, enum rf_log_level level, const char *name, const char *line);

#endif
