/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/log.h"

#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"

/* Keeps the last line and counts all. */
struct catcher {
	unsigned lines;
	enum rf_log_level level;
	const char *name;
	char line[2048];
};

static void catch_line(void *ctx, enum rf_log_level level, const char *name, const char *line)
{
	struct catcher *c = ctx;

	c->lines++;
	c->level = level;
	c->name = name;
	snprintf(c->line, sizeof(c->line), "%s", line);
}

static void test_levels(void **state RF_UNUSED)
{
	for (int level = RF_LOG_ERROR; level <= RF_LOG_DEBUG; level++) {
		struct catcher c = { 0 };
		struct rf_log log = { "vm4", (enum rf_log_level)level, catch_line, &c };
		char expected[32];

		for (int line = RF_LOG_ERROR; line <= RF_LOG_DEBUG; line++)
			rf_log(&log, (enum rf_log_level)line, "line of level %d", line);
		assert_int_equal(c.lines, level + 1);
		assert_int_equal(c.level, level);
		assert_string_equal(c.name, "vm4");
		snprintf(expected, sizeof(expected), "line of level %d", level);
		assert_string_equal(c.line, expected);
	}
}

static void test_silent(void **state RF_UNUSED)
{
	struct catcher c = { 0 };
	struct rf_log log = { NULL, RF_LOG_INFO, catch_line, &c };
	struct rf_log_limit limit = { 0 };

	rf_log(NULL, RF_LOG_ERROR, "nobody hears this");
	rf_log_limited(NULL, &limit, RF_LOG_ERROR, "nor this");
	/* What is not wanted takes nothing from the allowance. */
	for (int i = 0; i < 10; i++)
		rf_log_limited(&log, &limit, RF_LOG_DEBUG, "too fine");
	assert_int_equal(c.lines, 0);
	rf_log_limited(&log, &limit, RF_LOG_INFO, "first");
	assert_string_equal(c.line, "first");
}

static void test_long_line(void **state RF_UNUSED)
{
	struct catcher c = { 0 };
	struct rf_log log = { NULL, RF_LOG_INFO, catch_line, &c };

	rf_log(&log, RF_LOG_INFO, "%02000d", 1);
	assert_int_equal(strlen(c.line), 1023);
}

/* Five at once; then one per second, which tells how many were dropped; the five come back. */
static void test_limit(void **state RF_UNUSED)
{
	/* @wait_ms: time that passes before the attempts; @lines: how many of them are let through
	 */
	static const struct {
		unsigned wait_ms, attempts, lines;
		const char *first;
	} rows[] = {
		/* 0 */ { 0, 8, 5, "guest did 0" },
		/* 1 */ { 0, 2, 0, NULL },
		/* 2 */ { 1000, 3, 1, "guest did 0 (5 like this dropped before)" },
		/* 3 */ { 3000, 4, 3, "guest did 0 (2 like this dropped before)" },
		/* 4 */ { 4000, 4, 4, "guest did 0 (1 like this dropped before)" },
		/* 5: what is left of a second counts for the next line */
		/* 5 */ { 1700, 2, 1, "guest did 0" },
		/* 6 */ { 400, 2, 1, "guest did 0 (1 like this dropped before)" },
		/* 7 */ { 1000000, 9, 5, "guest did 0 (1 like this dropped before)" },
	};
	struct catcher c = { 0 };
	struct rf_log log = { NULL, RF_LOG_INFO, catch_line, &c };
	struct rf_log_limit limit = { 0 };

	for (size_t i = 0; i < RF_ARRAY_SIZE(rows); i++) {
		unsigned before = c.lines;

		print_message("row %zu\n", i);
		/* Moving the limit back in time is as good as waiting. */
		if (limit.next_ns)
			limit.next_ns -= rf_min_u64(limit.next_ns, rows[i].wait_ms * RF_NS_PER_MS);
		for (unsigned k = 0; k < rows[i].attempts; k++) {
			rf_log_limited(&log, &limit, RF_LOG_WARNING, "guest did %u", k);
			if (k == 0 && rows[i].first)
				assert_string_equal(c.line, rows[i].first);
		}
		assert_int_equal(c.lines - before, rows[i].lines);
	}
}

static void test_level_parse(void **state RF_UNUSED)
{
	static const struct {
		const char *name;
		int level;
	} rows[] = {
		/* 0 */ { "error", RF_LOG_ERROR },
		/* 1 */ { "warning", RF_LOG_WARNING },
		/* 2 */ { "info", RF_LOG_INFO },
		/* 3 */ { "debug", RF_LOG_DEBUG },
		/* 4 */ { "Debug", -EINVAL },
		/* 5 */ { "debugx", -EINVAL },
		/* 6 */ { "", -EINVAL },
	};

	for (size_t i = 0; i < RF_ARRAY_SIZE(rows); i++) {
		print_message("row %zu\n", i);
		assert_int_equal(rf_log_level_parse(rows[i].name), rows[i].level);
	}
}

/* What rf_log_stderr() writes to standard error for one line. */
static void read_stderr(const char *name, const char *line, char *text, size_t size)
{
	int pipe_fds[2], saved = dup(STDERR_FILENO);
	ssize_t n;

	assert_int_equal(pipe(pipe_fds), 0);
	assert_true(dup2(pipe_fds[1], STDERR_FILENO) >= 0);
	rf_log_stderr(NULL, RF_LOG_INFO, name, line);
	assert_true(dup2(saved, STDERR_FILENO) >= 0);
	n = read(pipe_fds[0], text, size - 1);
	assert_true(n > 0);
	text[n] = '\0';
	close(saved);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
}

static void test_stderr(void **state RF_UNUSED)
{
	char text[4096], line[2000];

	read_stderr("vm4", "ready", text, sizeof(text));
	assert_string_equal(text, "ringferry: vm4: ready\n");
	read_stderr(NULL, "ready", text, sizeof(text));
	assert_string_equal(text, "ringferry: ready\n");
	/* However long, it is a line. */
	memset(line, 'x', sizeof(line) - 1);
	line[sizeof(line) - 1] = '\0';
	read_stderr("vm4", line, text, sizeof(text));
	assert_string_equal(strchr(text, '\n'), "\n");
}

static void test_clock(void **state RF_UNUSED)
{
	uint64_t before = rf_clock_now();
	uint64_t after;

	usleep(2000);
	after = rf_clock_now();
	assert_true(before > 0);
	assert_true(after - before >= 2 * RF_NS_PER_MS);
	assert_true(after - before < 60 * RF_NS_PER_SEC);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_levels),      cmocka_unit_test(test_silent),
		cmocka_unit_test(test_long_line),   cmocka_unit_test(test_limit),
		cmocka_unit_test(test_level_parse), cmocka_unit_test(test_stderr),
		cmocka_unit_test(test_clock),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
