/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Options: one table per subcommand gives parsing, checks, error lines and --help, whether an
 * option stands on the command line, in a list of key=value or in a configuration file.
 */
#ifndef RF_CMD_OPTIONS_H
#define RF_CMD_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RF_OPTS_MAX 48

/* Exit status for arguments that are not allowed. */
#define RF_EXIT_USAGE 2

enum rf_opt_kind {
	RF_OPT_FLAG,   /* no argument: bool at @offset becomes true */
	RF_OPT_STRING, /* const char * at @offset */
	RF_OPT_NUMBER, /* uint64_t at @offset, decimal, @min to @max */
	RF_OPT_SIZE,   /* uint64_t at @offset, bytes with optional k, m, g, @min to @max */
	RF_OPT_MODE,   /* uint64_t at @offset, octal file mode 0 to 0777 */
	RF_OPT_CUSTOM, /* @parse is called; may be repeated on the command line */
	RF_OPT_LIST, /* as RF_OPT_CUSTOM, for each of the values between which '+' or ',' stands */
};

struct rf_opt;
struct rf_switch_def;

/**
 * struct rf_opt - One option
 * @name:	Long name without dashes
 * @letter:	Short name, or 0
 * @kind:	What its argument is
 * @arg:	Name of the argument in --help
 * @help:	What it does, its default at the end
 * @required:	Must be given on the command line
 * @key:	May also stand in a list of key=value and in a configuration file
 * @min, @max:	Allowed range of a number
 * @offset:	Where it is stored in the options structure
 * @parse:	RF_OPT_CUSTOM, RF_OPT_LIST: store @value; returns 0, or -EINVAL with what is allowed
 *		("a number from 1 to 5") written to @allowed
 */
struct rf_opt {
	const char *name;
	char letter;
	enum rf_opt_kind kind;
	const char *arg;
	const char *help;
	bool required;
	bool key;
	uint64_t min, max;
	size_t offset;
	int (*parse)(const struct rf_opt *opt, const char *value, void *options, char *allowed,
		     size_t allowed_bytes);
};

/**
 * struct rf_cmd - One subcommand
 * @name:	As typed
 * @usage:	Operands, for --help ("UDS PORT"); empty if there are none
 * @summary:	One line
 * @details:	Text under the options in --help, or NULL
 * @opts:	Options
 * @n_opts:	Their number
 * @given:	Offset of a uint32_t[RF_OPTS_MAX] in the options structure: those of options that
 *		were given are set to 1. 0 if there is none.
 * @min_operands, @max_operands: How many operands it takes
 * @main:	Runs it, argv[0] being its name; parses with rf_opts_parse(). Returns the exit
 *		status.
 */
struct rf_cmd {
	const char *name;
	const char *usage;
	const char *summary;
	const char *details;
	const struct rf_opt *opts;
	size_t n_opts;
	size_t given;
	int min_operands, max_operands;
	int (*main)(int argc, char **argv);
};

/**
 * rf_opts_parse() - Parse a subcommand's arguments
 * @cmd:	Subcommand
 * @argc, @argv: Arguments, argv[0] being the subcommand's name
 * @options:	Structure with its defaults set
 * @ret_status:	Exit status to end with when false is returned (0 after --help, else RF_EXIT_USAGE)
 * @ret_first:	Index in @argv of the first operand
 *
 * Prints --help on standard output; for a bad argument one line on standard error that names the
 * option and what is allowed.
 *
 * Return: false if the program is to end with @ret_status.
 */
bool rf_opts_parse(const struct rf_cmd *cmd, int argc, char **argv, void *options, int *ret_status,
		   int *ret_first);

/**
 * rf_opts_error() - Say what is wrong with an argument that no table can check
 * @what:	Option or operand as typed ("--uds-path")
 * @fmt:	What is wrong and what is allowed
 *
 * Return: RF_EXIT_USAGE.
 */
int rf_opts_error(const struct rf_cmd *cmd, const char *what, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Room for what rf_opt_store() has to say. */
#define RF_OPT_WRONG_BYTES 512

/**
 * rf_opt_store() - Check one option's value and store it
 * @opt:	Option, not an RF_OPT_FLAG
 * @value:	Its value; RF_OPT_STRING keeps the pointer
 * @options:	Options structure
 * @ret_wrong:	What is wrong and what is allowed, RF_OPT_WRONG_BYTES
 *
 * Return: 0, or -EINVAL.
 */
int rf_opt_store(const struct rf_opt *opt, const char *value, void *options, char *ret_wrong);

/* As rf_opt_store(), one value of an RF_OPT_LIST. */
int rf_opt_store_item(const struct rf_opt *opt, const char *value, void *options, char *ret_wrong);

/* What may stand behind an option, for the end of an error line. */
void rf_opt_allowed(const struct rf_opt *opt, char *buf, size_t buf_bytes);

/**
 * rf_opt_find_key() - The option that a key names
 * @key:	Name of an option with @key set; '_' may stand for '-'
 * @key_len:	Its length
 *
 * Return: the option, or NULL.
 */
const struct rf_opt *rf_opt_find_key(const struct rf_cmd *cmd, const char *key, size_t key_len);

/* All keys, separated by commas. */
void rf_opt_list_keys(const struct rf_cmd *cmd, char *buf, size_t buf_bytes);

/* @parse of an option that names a log level: stored as int at its @offset. */
int rf_opt_log_level(const struct rf_opt *opt, const char *value, void *options, char *allowed,
		     size_t allowed_bytes);

/* For @parse of an option that sets switches of a table: NAME=VALUE, stored in @base. */
int rf_opt_switch(const struct rf_switch_def *defs, size_t n, void *base, const char *value,
		  char *allowed, size_t allowed_bytes);

/* What rf_opt_poll_us() makes of "auto". */
#define RF_OPT_POLL_AUTO (-1)

/* @parse of an option that takes microseconds to poll, or "auto": stored as int at its @offset. */
int rf_opt_poll_us(const struct rf_opt *opt, const char *value, void *options, char *allowed,
		   size_t allowed_bytes);

/* A decimal number. Return: 0, -EINVAL, or -ERANGE if it does not fit. */
int rf_number_parse(const char *text, uint64_t *ret_value);

/* A port operand: 0 to 2^32 - 2. Return: 0, or -EINVAL. */
int rf_port_parse(const char *text, uint32_t *ret_port);

extern const struct rf_cmd rf_cmd_vsock;
extern const struct rf_cmd rf_cmd_guest;
extern const struct rf_cmd rf_cmd_connect;
extern const struct rf_cmd rf_cmd_listen;
extern const struct rf_cmd rf_cmd_bench;

#endif
