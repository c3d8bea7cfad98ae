/* SPDX-License-Identifier: BSD-3-Clause */
#include "options.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "capture.h"

#define MAX_ARGS 16

struct options {
	bool verbose;
	const char *path;
	uint64_t cid;
	uint64_t buffer;
	uint64_t mode;
	unsigned n_echo;
	uint32_t echo[4];
};

static int echo_parse(const struct rf_opt *opt, const char *value, void *options, char *allowed,
		      size_t allowed_bytes)
{
	struct options *o = options;
	uint32_t port;

	assert_string_equal(opt->name, "echo");
	if (rf_port_parse(value, &port) < 0) {
		snprintf(allowed, allowed_bytes, "a port");
		return -EINVAL;
	}
	o->echo[o->n_echo++] = port;
	return 0;
}

static const struct rf_opt opts[] = {
	{
		.name = "verbose",
		.letter = 'v',
		.kind = RF_OPT_FLAG,
		.help = "Talk.",
		.offset = offsetof(struct options, verbose),
	},
	{
		.name = "path",
		.letter = 'p',
		.kind = RF_OPT_STRING,
		.arg = "PATH",
		.help = "Where.",
		.required = true,
		.offset = offsetof(struct options, path),
	},
	{
		.name = "cid",
		.kind = RF_OPT_NUMBER,
		.arg = "N",
		.help = "Who, in words that are many enough to need a second line of the help, "
			"and even a third one; default 3.",
		.min = 3,
		.max = 4294967294,
		.offset = offsetof(struct options, cid),
	},
	{
		.name = "buffer",
		.kind = RF_OPT_SIZE,
		.arg = "BYTES",
		.help = "How much.",
		.min = 4096,
		.max = 1 << 30,
		.offset = offsetof(struct options, buffer),
	},
	{
		.name = "buffer-mode-with-a-long-name",
		.kind = RF_OPT_MODE,
		.arg = "MODE",
		.help = "For whom.",
		.offset = offsetof(struct options, mode),
	},
	{
		.name = "echo",
		.kind = RF_OPT_CUSTOM,
		.arg = "PORT",
		.help = "Echo.",
		.parse = echo_parse,
	},
};

static const struct rf_cmd cmd = {
	.name = "cross",
	.usage = "FROM [TO]",
	.summary = "Cross.",
	.details = "Details of it.",
	.opts = opts,
	.n_opts = RF_ARRAY_SIZE(opts),
	.min_operands = 1,
	.max_operands = 2,
};

static const struct rf_cmd cmd_bare = { .name = "bare", .usage = "", .summary = "Nothing." };

/* What a run of the parser did. */
struct run {
	bool go;
	int status;
	int first;
	char operands[64];
	char out[4096];
	char err[2048];
};

static void parse(const struct rf_cmd *c, char *words, struct options *options, struct run *run)
{
	char *argv[MAX_ARGS + 1] = { (char *)(uintptr_t)c->name };
	int saved_out, saved_err, out, err, argc = 1;
	char *rest = words, *word;

	while ((word = strsep(&rest, " "))) {
		assert_true(argc < MAX_ARGS);
		argv[argc++] = strcmp(word, "''") ? word : word + 2;
	}
	*options = (struct options){ .cid = 3 };
	*run = (struct run){ .status = -1, .first = -1 };
	out = capture_begin(stdout, STDOUT_FILENO, &saved_out);
	err = capture_begin(stderr, STDERR_FILENO, &saved_err);
	run->go = rf_opts_parse(c, argc, argv, options, &run->status, &run->first);
	capture_end(stderr, STDERR_FILENO, saved_err, err, run->err, sizeof(run->err));
	capture_end(stdout, STDOUT_FILENO, saved_out, out, run->out, sizeof(run->out));
	for (int i = run->first; run->go && i < argc; i++) {
		size_t len = strlen(run->operands);

		snprintf(run->operands + len, sizeof(run->operands) - len, "%s%s", len ? " " : "",
			 argv[i]);
	}
}

static void accepted(void **state)
{
	static const struct row {
		int row;
		const char *words;
		struct options want;
		const char *operands;
	} rows[] = {
		{ 1, "--path p a", { .path = "p", .cid = 3 }, "a" },
		{ 2, "--path=p a b", { .path = "p", .cid = 3 }, "a b" },
		{ 3, "-p p -v a", { .path = "p", .cid = 3, .verbose = true }, "a" },
		{ 4, "-vpp a", { .path = "p", .cid = 3, .verbose = true }, "a" },
		{ 5, "a --path p b", { .path = "p", .cid = 3 }, "a b" },
		{ 6, "--path p --path q a", { .path = "q", .cid = 3 }, "a" },
		{ 7, "--path p --cid 4294967294 a", { .path = "p", .cid = 4294967294 }, "a" },
		{ 8, "--path p --cid 003 a", { .path = "p", .cid = 3 }, "a" },
		{ 9, "--path p --buffer 4096 a", { .path = "p", .cid = 3, .buffer = 4096 }, "a" },
		{ 10, "--path p --buffer 4k a", { .path = "p", .cid = 3, .buffer = 4096 }, "a" },
		{ 11, "--path p --buffer 1g a", { .path = "p", .cid = 3, .buffer = 1 << 30 }, "a" },
		{ 12,
		  "--path p --buffer-mode-with-a-long-name 0660 a",
		  { .path = "p", .cid = 3, .mode = 0660 },
		  "a" },
		{ 13, "--path p --buffer-m 777 a", { .path = "p", .cid = 3, .mode = 0777 }, "a" },
		{ 14,
		  "--path p --echo 7 --echo 4294967294 a",
		  { .path = "p", .cid = 3, .n_echo = 2, .echo = { 7, 4294967294 } },
		  "a" },
		/* An exact name wins over a longer one that begins with it. */
		{ 15, "--path p --buffer 8k a", { .path = "p", .cid = 3, .buffer = 8192 }, "a" },
		{ 16, "--path p -- --cid", { .path = "p", .cid = 3 }, "--cid" },
		{ 17, "--pa p a", { .path = "p", .cid = 3 }, "a" },
	};

	(void)state;
	for (size_t i = 0; i < RF_ARRAY_SIZE(rows); i++) {
		const struct row *row = &rows[i];
		char words[256];
		struct options got;
		struct run run;

		snprintf(words, sizeof(words), "%s", row->words);
		parse(&cmd, words, &got, &run);
		if (!run.go || strcmp(run.operands, row->operands) != 0 || *run.out || *run.err)
			fail_msg("row %d: operands \"%s\", error \"%s\"", row->row, run.operands,
				 run.err);
		if (strcmp(got.path, row->want.path) != 0)
			fail_msg("row %d: path %s", row->row, got.path);
		if (got.verbose != row->want.verbose || got.cid != row->want.cid ||
		    got.buffer != row->want.buffer || got.mode != row->want.mode ||
		    got.n_echo != row->want.n_echo ||
		    memcmp(got.echo, row->want.echo, sizeof(got.echo)) != 0)
			fail_msg("row %d: a value is wrong", row->row);
	}
}

static const struct refused_row {
	int row;
	const struct rf_cmd *cmd;
	const char *words;
	const char *line;
} refused_rows[] = {
	{ 1, &cmd, "a", "cross: --path: required, but not given; allowed: PATH" },
	{ 2, &cmd, "--path", "cross: --path: its argument is missing; allowed: PATH" },
	{ 3, &cmd, "-p", "cross: --path: its argument is missing; allowed: PATH" },
	{ 4, &cmd, "--path '' a", "cross: --path: it is empty; allowed: PATH" },
	{ 5, &cmd, "--path p", "cross: operands: 0 given, too few; allowed: FROM [TO]" },
	{ 6, &cmd, "--path p a b c d", "cross: c: one operand too many; allowed: FROM [TO]" },
	{ 7, &cmd, "--cid 2 --path p a",
	  "cross: --cid: \"2\" is not allowed; allowed: a number from 3 to 4294967294" },
	{ 8, &cmd, "--cid 4294967295 --path p a",
	  "cross: --cid: \"4294967295\" is not allowed; "
	  "allowed: a number from 3 to 4294967294" },
	{ 9, &cmd, "--cid 18446744073709551620 --path p a",
	  "cross: --cid: \"18446744073709551620\" is not allowed; "
	  "allowed: a number from 3 to 4294967294" },
	{ 10, &cmd, "--cid +5 --path p a",
	  "cross: --cid: \"+5\" is not allowed; allowed: a number from 3 to 4294967294" },
	{ 11, &cmd, "--cid 5x --path p a",
	  "cross: --cid: \"5x\" is not allowed; allowed: a number from 3 to 4294967294" },
	{ 12, &cmd, "--cid= --path p a",
	  "cross: --cid: \"\" is not allowed; allowed: a number from 3 to 4294967294" },
	{ 13, &cmd, "--cid 5\n6 --path p a",
	  "cross: --cid: \"5?6\" is not allowed; allowed: a number from 3 to 4294967294" },
	{ 14, &cmd, "--buffer 4095 --path p a",
	  "cross: --buffer: \"4095\" is not allowed; "
	  "allowed: 4k to 1g bytes (a number with or without k, m, g)" },
	{ 15, &cmd, "--buffer 2g --path p a",
	  "cross: --buffer: \"2g\" is not allowed; "
	  "allowed: 4k to 1g bytes (a number with or without k, m, g)" },
	{ 16, &cmd, "--buffer 4q --path p a",
	  "cross: --buffer: \"4q\" is not allowed; "
	  "allowed: 4k to 1g bytes (a number with or without k, m, g)" },
	{ 17, &cmd, "--buffer-m 1000 --path p a",
	  "cross: --buffer-mode-with-a-long-name: \"1000\" is not allowed; "
	  "allowed: an octal mode from 0 to 0777" },
	{ 18, &cmd, "--buffer-m 8 --path p a",
	  "cross: --buffer-mode-with-a-long-name: \"8\" is not allowed; "
	  "allowed: an octal mode from 0 to 0777" },
	{ 19, &cmd, "--echo 4294967295 --path p a",
	  "cross: --echo: \"4294967295\" is not allowed; allowed: a port" },
	{ 20, &cmd, "--verbose=1 --path p a",
	  "cross: --verbose: it takes no argument; allowed: --verbose without an "
	  "argument" },
	{ 21, &cmd, "--buf 4k --path p a",
	  "cross: --buf: ambiguous option; "
	  "allowed: --buffer, --buffer-mode-with-a-long-name" },
	{ 22, &cmd, "--pathos=9 a",
	  "cross: --pathos: unknown option; allowed: --verbose, --path, --cid, --buffer, "
	  "--buffer-mode-with-a-long-name, --echo, --help" },
	{ 23, &cmd, "a --nope b",
	  "cross: --nope: unknown option; allowed: --verbose, --path, --cid, --buffer, "
	  "--buffer-mode-with-a-long-name, --echo, --help" },
	{ 24, &cmd_bare, "-vx", "bare: -v: unknown option; allowed: --help" },
	{ 25, &cmd_bare, "a", "bare: a: one operand too many; allowed: options only" },
	{ 26, &cmd, "--path p\nq a", "cross: --path: a control character is in it; allowed: PATH" },
};

/* Each is one line that names the option and what is allowed, with exit status 2. */
static void refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < RF_ARRAY_SIZE(refused_rows); i++) {
		char words[256], want[512];
		struct options got;
		struct run run;

		snprintf(words, sizeof(words), "%s", refused_rows[i].words);
		snprintf(want, sizeof(want), "ringferry %s\n", refused_rows[i].line);
		parse(refused_rows[i].cmd, words, &got, &run);
		if (run.go || run.status != RF_EXIT_USAGE || *run.out || strcmp(run.err, want) != 0)
			fail_msg("row %d: status %d, line \"%s\"", refused_rows[i].row, run.status,
				 run.err);
	}
}

static void help_is_aligned_and_wrapped(void **state)
{
	static const char want[] =
		"Usage: ringferry cross --path PATH [OPTION]... FROM [TO]\n"
		"Cross.\n"
		"\n"
		"Options:\n"
		"  -v, --verbose       Talk.\n"
		"  -p, --path PATH     Where.\n"
		"      --cid N         Who, in words that are many enough to need a second line\n"
		"                      of the help, and even a third one; default 3.\n"
		"      --buffer BYTES  How much.\n"
		"      --buffer-mode-with-a-long-name MODE\n"
		"                      For whom.\n"
		"      --echo PORT     Echo.\n"
		"  -h, --help          Show this help and exit.\n"
		"\n"
		"Details of it.\n";
	struct options got;
	struct run run;
	char words[] = "--help --nope";

	(void)state;
	parse(&cmd, words, &got, &run);
	assert_false(run.go);
	assert_int_equal(run.status, 0);
	assert_string_equal(run.err, "");
	assert_string_equal(run.out, want);
	for (const char *line = run.out; *line; line += strcspn(line, "\n") + 1)
		assert_true(strcspn(line, "\n") <= 80);
}

/* Long details: paragraphs stay, lines end at a word and no later than at column 80. */
static void details_are_wrapped(void **state)
{
	static const struct rf_cmd wordy = {
		.name = "wordy",
		.usage = "",
		.summary = "Talk.",
		.details = "123456789 123456789 123456789 123456789 123456789 123456789 123456789 "
			   "1234567890 next\n\nA paragraph.",
	};
	char words[] = "-h";
	struct options got;
	struct run run;

	(void)state;
	parse(&wordy, words, &got, &run);
	assert_int_equal(run.status, 0);
	assert_int_equal(strncmp(run.out, "Usage: ringferry wordy [OPTION]...\n", 35), 0);
	assert_string_equal(strstr(run.out, "\n\n123") + 2,
			    "123456789 123456789 123456789 123456789 123456789 123456789 "
			    "123456789 1234567890\nnext\n\nA paragraph.\n");
}

static void long_errors_are_cut(void **state)
{
	char words[1500] = "--cid ";
	struct options got;
	struct run run;

	(void)state;
	memset(words + 6, '9', sizeof(words) - 7);
	parse(&cmd, words, &got, &run);
	assert_int_equal(run.status, RF_EXIT_USAGE);
	assert_non_null(strstr(run.err, "; allowed: a number from 3"));
	assert_ptr_equal(strchr(run.err, '\n'), run.err + strlen(run.err) - 1);
}

static void ports(void **state)
{
	static const struct {
		int row;
		const char *text;
		int r;
		uint32_t port;
	} rows[] = {
		{ 1, "0", 0, 0 },
		{ 2, "4294967294", 0, 4294967294 },
		{ 3, "4294967295", -EINVAL, 0 },
		{ 4, "4294967296", -EINVAL, 0 },
		{ 5, "", -EINVAL, 0 },
		{ 6, "-1", -EINVAL, 0 },
		{ 7, " 1", -EINVAL, 0 },
		{ 8, "1 ", -EINVAL, 0 },
		{ 9, "0x10", -EINVAL, 0 },
		{ 10, "99999999999999999999999999", -EINVAL, 0 },
	};

	(void)state;
	for (size_t i = 0; i < RF_ARRAY_SIZE(rows); i++) {
		uint32_t port = 77;
		int r = rf_port_parse(rows[i].text, &port);

		if (r != rows[i].r || port != (r ? 77 : rows[i].port))
			fail_msg("row %d: %d, port %u", rows[i].row, r, port);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(accepted),
		cmocka_unit_test(refused),
		cmocka_unit_test(help_is_aligned_and_wrapped),
		cmocka_unit_test(details_are_wrapped),
		cmocka_unit_test(long_errors_are_cut),
		cmocka_unit_test(ports),
	};

	return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
