/* SPDX-License-Identifier: BSD-3-Clause */
#include "options.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/counter.h"
#include "base/util.h"

#define RF_OPTS_MAX 48

/* Values of getopt_long() for long options: beyond every letter. */
#define LONG_HELP  256
#define LONG_FIRST 257

#define HELP_COLUMNS   80
#define HELP_MAX_LABEL 28

static const struct rf_opt help_opt = {
	.name = "help",
	.letter = 'h',
	.kind = RF_OPT_FLAG,
	.help = "Show this help and exit.",
};

int rf_opts_error(const struct rf_cmd *cmd, const char *what, const char *fmt, ...)
{
	char line[1024];
	va_list ap;
	size_t len;
	int n;

	n = snprintf(line, sizeof(line), "ringferry %s: %s: ", cmd->name, what);
	len = rf_min_size((size_t)n, sizeof(line) - 1);
	va_start(ap, fmt);
	vsnprintf(line + len, sizeof(line) - len, fmt, ap);
	va_end(ap);

	/* What the user typed is quoted in it: one line stays one line. */
	for (char *p = line; *p; p++)
		if (iscntrl((unsigned char)*p))
			*p = '?';
	fprintf(stderr, "%s\n", line);
	return RF_EXIT_USAGE;
}

static int number_parse(const char *text, uint64_t *ret_value)
{
	uint64_t value = 0;

	if (!*text)
		return -EINVAL;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return -EINVAL;
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
			return -ERANGE;
	}
	*ret_value = value;
	return 0;
}

int rf_port_parse(const char *text, uint32_t *ret_port)
{
	uint64_t value;

	if (number_parse(text, &value) < 0 || value > UINT32_MAX - 1)
		return -EINVAL;
	*ret_port = (uint32_t)value;
	return 0;
}

static int mode_parse(const char *text, uint64_t *ret_mode)
{
	uint64_t mode = 0;

	if (!*text)
		return -EINVAL;
	for (; *text; text++) {
		if (*text < '0' || *text > '7' || mode > 0777)
			return -EINVAL;
		mode = mode * 8 + (uint64_t)(*text - '0');
	}
	*ret_mode = mode;
	return 0;
}

static void size_format(uint64_t bytes, char *buf, size_t buf_bytes)
{
	static const char suffix[] = { 'g', 'm', 'k' };

	for (unsigned i = 0; i < RF_ARRAY_SIZE(suffix); i++) {
		uint64_t unit = UINT64_C(1) << (30 - 10 * i);

		if (bytes && bytes % unit == 0) {
			snprintf(buf, buf_bytes, "%" PRIu64 "%c", bytes / unit, suffix[i]);
			return;
		}
	}
	snprintf(buf, buf_bytes, "%" PRIu64, bytes);
}

/* What may stand behind an option, for the end of an error line. */
static void allowed_format(const struct rf_opt *opt, char *buf, size_t buf_bytes)
{
	char min[24], max[24];

	switch (opt->kind) {
	case RF_OPT_FLAG:
		snprintf(buf, buf_bytes, "--%s without an argument", opt->name);
		break;
	case RF_OPT_STRING:
	case RF_OPT_CUSTOM:
		snprintf(buf, buf_bytes, "--%s %s", opt->name, opt->arg);
		break;
	case RF_OPT_NUMBER:
		snprintf(buf, buf_bytes, "a number from %" PRIu64 " to %" PRIu64, opt->min,
			 opt->max);
		break;
	case RF_OPT_SIZE:
		size_format(opt->min, min, sizeof(min));
		size_format(opt->max, max, sizeof(max));
		snprintf(buf, buf_bytes, "%s to %s bytes (a number with or without k, m, g)", min,
			 max);
		break;
	case RF_OPT_MODE:
		snprintf(buf, buf_bytes, "an octal mode from 0 to 0777");
		break;
	}
}

static int opt_error(const struct rf_cmd *cmd, const struct rf_opt *opt, const char *wrong)
{
	char what[64], allowed[160];

	snprintf(what, sizeof(what), "--%s", opt->name);
	allowed_format(opt, allowed, sizeof(allowed));
	return rf_opts_error(cmd, what, "%s; allowed: %s", wrong, allowed);
}

static int value_error(const struct rf_cmd *cmd, const struct rf_opt *opt, const char *value,
		       const char *allowed)
{
	char what[64], text[160];

	snprintf(what, sizeof(what), "--%s", opt->name);
	if (!*allowed) {
		allowed_format(opt, text, sizeof(text));
		allowed = text;
	}
	return rf_opts_error(cmd, what, "\"%.200s\" is not allowed; allowed: %s", value, allowed);
}

/* Store one option's argument. Return: 0, or the exit status. */
static int opt_store(const struct rf_cmd *cmd, const struct rf_opt *opt, const char *value,
		     void *options)
{
	char *at = (char *)options + opt->offset;
	uint64_t number = 0, min = opt->min, max = opt->max;
	char allowed[256] = "";
	int r = 0;

	switch (opt->kind) {
	case RF_OPT_FLAG:
		*(bool *)(void *)at = true;
		return 0;
	case RF_OPT_STRING:
		if (!*value)
			return opt_error(cmd, opt, "the argument is empty");
		*(const char **)(void *)at = value;
		return 0;
	case RF_OPT_CUSTOM:
		if (opt->parse(opt, value, options, allowed, sizeof(allowed)) < 0)
			return value_error(cmd, opt, value, allowed);
		return 0;
	case RF_OPT_NUMBER:
		r = number_parse(value, &number);
		break;
	case RF_OPT_SIZE:
		r = rf_size_parse(value, &number);
		break;
	case RF_OPT_MODE:
		r = mode_parse(value, &number);
		min = 0;
		max = 0777;
		break;
	}
	if (r < 0 || number < min || number > max)
		return value_error(cmd, opt, value, allowed);
	*(uint64_t *)(void *)at = number;
	return 0;
}

/* A list of option names for an error line: those that begin with @prefix. */
static unsigned names_format(const struct rf_cmd *cmd, const char *prefix, size_t prefix_len,
			     char *buf, size_t buf_bytes)
{
	unsigned n = 0;
	size_t len = 0;

	buf[0] = '\0';
	for (size_t i = 0; i <= cmd->n_opts; i++) {
		const char *name = i < cmd->n_opts ? cmd->opts[i].name : help_opt.name;

		if (strncmp(name, prefix, prefix_len) != 0)
			continue;
		len += (size_t)snprintf(buf + len, buf_bytes - len, "%s--%s", n++ ? ", " : "",
					name);
		len = rf_min_size(len, buf_bytes - 1);
	}
	return n;
}

/* An option that is not in the table, or an abbreviation of several that are. */
static int unknown_error(const struct rf_cmd *cmd, const char *arg)
{
	char what[128], names[512];
	const char *name = arg + strspn(arg, "-");
	size_t name_len = strcspn(name, "=");

	snprintf(what, sizeof(what), "%.*s", (int)(name - arg + (ptrdiff_t)name_len), arg);
	if (name_len && names_format(cmd, name, name_len, names, sizeof(names)))
		return rf_opts_error(cmd, what, "ambiguous option; allowed: %s", names);
	names_format(cmd, "", 0, names, sizeof(names));
	return rf_opts_error(cmd, what, "unknown option; allowed: %s", names);
}

static const struct rf_opt *opt_of_value(const struct rf_cmd *cmd, int value)
{
	if (value == LONG_HELP || value == help_opt.letter)
		return &help_opt;
	for (size_t i = 0; i < cmd->n_opts; i++)
		if (value == LONG_FIRST + (int)i || (value && value == cmd->opts[i].letter))
			return &cmd->opts[i];
	return NULL;
}

/* The tables that getopt_long() wants. */
static void getopt_tables(const struct rf_cmd *cmd, struct option *longs, char *letters)
{
	size_t n = 0;

	assert(cmd->n_opts <= RF_OPTS_MAX);
	letters[n++] = ':';
	letters[n++] = help_opt.letter;
	for (size_t i = 0; i < cmd->n_opts; i++) {
		const struct rf_opt *opt = &cmd->opts[i];
		bool has_arg = opt->kind != RF_OPT_FLAG;

		longs[i] = (struct option){
			.name = opt->name,
			.has_arg = has_arg ? required_argument : no_argument,
			.val = LONG_FIRST + (int)i,
		};
		if (opt->letter)
			letters[n++] = opt->letter;
		if (opt->letter && has_arg)
			letters[n++] = ':';
	}
	letters[n] = '\0';
	longs[cmd->n_opts] = (struct option){ .name = help_opt.name, .val = LONG_HELP };
	longs[cmd->n_opts + 1] = (struct option){ .name = NULL };
}

static int operands_check(const struct rf_cmd *cmd, int argc, char **argv, int first)
{
	const char *usage = *cmd->usage ? cmd->usage : "options only";

	if (argc - first > cmd->max_operands)
		return rf_opts_error(cmd, argv[first + cmd->max_operands],
				     "one operand too many; allowed: %s", usage);
	if (argc - first < cmd->min_operands)
		return rf_opts_error(cmd, "operands", "%d given, too few; allowed: %s",
				     argc - first, usage);
	return 0;
}

/* Return: 0, or the exit status. */
static int getopt_error(const struct rf_cmd *cmd, int value, char **argv, int arg_index)
{
	const struct rf_opt *opt = opt_of_value(cmd, optopt);
	char letter[3] = { '-', (char)optopt, '\0' };

	if (value == ':')
		return opt_error(cmd, opt, "its argument is missing");
	if (opt)
		return opt_error(cmd, opt, "it takes no argument");
	return unknown_error(cmd, optopt ? letter : argv[arg_index]);
}

/* Words of @text from column @column on; further lines are indented by @indent. */
static void print_wrapped(const char *text, int column, int indent)
{
	bool first = true;

	while (*text) {
		int len = (int)strcspn(text, " \n");

		if (!first && column + 1 + len > HELP_COLUMNS) {
			printf("\n%*s", indent, "");
			column = indent;
		} else if (!first) {
			putchar(' ');
			column++;
		}
		printf("%.*s", len, text);
		column += len;
		text += len;
		first = *text == '\n';
		if (*text == '\n') {
			printf("\n%*s", text[1] && text[1] != '\n' ? indent : 0, "");
			column = indent;
		}
		if (*text)
			text++;
	}
	putchar('\n');
}

static int label_format(const struct rf_opt *opt, char *buf, size_t buf_bytes)
{
	char letter[5] = "    ";

	if (opt->letter)
		snprintf(letter, sizeof(letter), "-%c, ", opt->letter);
	return snprintf(buf, buf_bytes, "  %s--%s%s%s", letter, opt->name, opt->arg ? " " : "",
			opt->arg ? opt->arg : "");
}

static void help_print_option(const struct rf_opt *opt, int indent)
{
	char label[80];
	int len = label_format(opt, label, sizeof(label));

	if (len + 2 > indent)
		printf("%s\n%*s", label, indent, "");
	else
		printf("%-*s", indent, label);
	print_wrapped(opt->help, indent, indent);
}

static void help_print(const struct rf_cmd *cmd)
{
	char usage[512], label[80];
	int len, indent = 0;

	len = snprintf(usage, sizeof(usage), "%s", cmd->name);
	for (size_t i = 0; i < cmd->n_opts; i++) {
		int label_len = label_format(&cmd->opts[i], label, sizeof(label)) + 2;

		if (label_len <= HELP_MAX_LABEL && label_len > indent)
			indent = label_len;
		if (cmd->opts[i].required)
			len += snprintf(usage + len, sizeof(usage) - (size_t)len, " --%s %s",
					cmd->opts[i].name, cmd->opts[i].arg);
		assert((size_t)len < sizeof(usage));
	}
	snprintf(usage + len, sizeof(usage) - (size_t)len, " [OPTION]...%s%s",
		 *cmd->usage ? " " : "", cmd->usage);
	printf("Usage: ringferry ");
	print_wrapped(usage, 17, 17);
	print_wrapped(cmd->summary, 0, 0);

	printf("\nOptions:\n");
	indent = indent ? indent : HELP_MAX_LABEL;
	for (size_t i = 0; i < cmd->n_opts; i++)
		help_print_option(&cmd->opts[i], indent);
	help_print_option(&help_opt, indent);
	if (cmd->details) {
		putchar('\n');
		print_wrapped(cmd->details, 0, 0);
	}
}

/* Return: 0, or the exit status; *@ret_help is set when the help is wanted instead. */
static int parse_all(const struct rf_cmd *cmd, int argc, char **argv, void *options, bool *ret_help)
{
	struct option longs[RF_OPTS_MAX + 2];
	char letters[2 * RF_OPTS_MAX + 3];
	bool seen[RF_OPTS_MAX] = { false };

	getopt_tables(cmd, longs, letters);
	opterr = 0;
	optind = 0; /* glibc: begin anew, also after an earlier argv was left half-way */
	for (;;) {
		int value = getopt_long(argc, argv, letters, longs, NULL);
		const struct rf_opt *opt;
		int status;

		if (value == -1)
			break;
		if (value == '?' || value == ':')
			return getopt_error(cmd, value, argv, optind - 1);
		opt = opt_of_value(cmd, value);
		if (opt == &help_opt) {
			*ret_help = true;
			return 0;
		}
		status = opt_store(cmd, opt, optarg, options);
		if (status)
			return status;
		seen[opt - cmd->opts] = true;
	}
	for (size_t i = 0; i < cmd->n_opts; i++)
		if (cmd->opts[i].required && !seen[i])
			return opt_error(cmd, &cmd->opts[i], "required, but not given");
	return operands_check(cmd, argc, argv, optind);
}

bool rf_opts_parse(const struct rf_cmd *cmd, int argc, char **argv, void *options, int *ret_status,
		   int *ret_first)
{
	bool help = false;
	int status = parse_all(cmd, argc, argv, options, &help);

	if (help)
		help_print(cmd);
	if (help || status) {
		*ret_status = status;
		return false;
	}
	*ret_first = optind;
	return true;
}
