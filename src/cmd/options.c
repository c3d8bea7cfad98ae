/* SPDX-License-Identifier: BSD-3-Clause */
#include "options.h"

#include <assert.h>
#include <ctype.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

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
	char line[2048];
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

static int opt_error(const struct rf_cmd *cmd, const struct rf_opt *opt, const char *wrong)
{
	char what[64], allowed[160];

	snprintf(what, sizeof(what), "--%s", opt->name);
	rf_opt_allowed(opt, allowed, sizeof(allowed));
	return rf_opts_error(cmd, what, "%s; allowed: %s", wrong, allowed);
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

/* Return: 0, or the exit status. */
static int option_store(const struct rf_cmd *cmd, const struct rf_opt *opt, const char *value,
			void *options)
{
	char what[64], wrong[RF_OPT_WRONG_BYTES];

	if (opt->kind == RF_OPT_FLAG) {
		*(bool *)(void *)((char *)options + opt->offset) = true;
		return 0;
	}
	if (rf_opt_store(opt, value, options, wrong) == 0)
		return 0;
	snprintf(what, sizeof(what), "--%s", opt->name);
	return rf_opts_error(cmd, what, "%s", wrong);
}

/* Return: 0, or the exit status; *@ret_help is set when the help is wanted instead. */
static int parse_all(const struct rf_cmd *cmd, int argc, char **argv, void *options, bool *ret_help)
{
	struct option longs[RF_OPTS_MAX + 2];
	char letters[2 * RF_OPTS_MAX + 3];
	uint32_t seen[RF_OPTS_MAX] = { 0 };
	int status;

	getopt_tables(cmd, longs, letters);
	opterr = 0;
	optind = 0; /* glibc: begin anew, also after an earlier argv was left half-way */
	for (;;) {
		int value = getopt_long(argc, argv, letters, longs, NULL);
		const struct rf_opt *opt;

		if (value == -1)
			break;
		if (value == '?' || value == ':')
			return getopt_error(cmd, value, argv, optind - 1);
		opt = opt_of_value(cmd, value);
		if (opt == &help_opt) {
			*ret_help = true;
			return 0;
		}
		status = option_store(cmd, opt, optarg, options);
		if (status)
			return status;
		seen[opt - cmd->opts] = 1;
	}
	if (cmd->given)
		memcpy((char *)options + cmd->given, seen, sizeof(seen));
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
