/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The three forms in which ringferry vsock is told what to serve, on one table of values.
 */
#include "vsock_setup.h"

#include <grp.h>
#include <pwd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "capture.h"
#include "host/limits.h"
#include "vsock/limits.h"

#define MAX_ARGS 40

static const struct rf_cmd cmd = {
	.name = "vsock",
	.usage = "",
	.summary = "Serve.",
	.opts = rf_vsock_opts,
	.n_opts = RF_VSOCK_N_OPTS,
	.given = offsetof(struct rf_vsock_setup, flags.given),
};

enum form { FLAGS, VM, YAML, N_FORMS };

static const char *const form_names[] = { "flags", "--vm", "YAML" };

/**
 * struct run - What came of one attempt
 * @words:	The command line, cut into words; the strings of @setup point to it
 * @status:	0 or the exit status
 * @err:	Standard error
 */
struct run {
	struct rf_vsock_setup setup;
	char words[4096];
	int status;
	char err[4096];
};

static void command_line(struct run *run, const char *words)
{
	char *argv[MAX_ARGS + 1] = { (char *)(uintptr_t) "vsock" }, *rest = run->words, *word;
	int argc = 1, first, saved, file;

	snprintf(run->words, sizeof(run->words), "%s", words);
	while ((word = strsep(&rest, " "))) {
		assert_true(argc < MAX_ARGS);
		argv[argc++] = strcmp(word, "''") ? word : word + 2;
	}
	rf_vsock_setup_init(&run->setup);
	file = capture_begin(stderr, STDERR_FILENO, &saved);
	if (rf_opts_parse(&cmd, argc, argv, &run->setup, &run->status, &first))
		run->status = rf_vsock_setup_complete(&cmd, &run->setup);
	capture_end(stderr, STDERR_FILENO, saved, file, run->err, sizeof(run->err));
}

static void yaml(struct run *run, const char *text, size_t bytes)
{
	int saved, file;

	rf_vsock_setup_init(&run->setup);
	run->setup.file = "vms.yaml";
	file = capture_begin(stderr, STDERR_FILENO, &saved);
	run->status = rf_vsock_setup_yaml(&cmd, &run->setup, text, bytes);
	if (run->status == 0)
		run->status = rf_vsock_setup_check(&cmd, &run->setup);
	capture_end(stderr, STDERR_FILENO, saved, file, run->err, sizeof(run->err));
}

/* One device in one of the forms: from "key=value key=value". */
static void describe(struct run *run, enum form form, const char *device)
{
	char copy[2048], text[3000];
	char *rest = copy, *entry;
	size_t len = 0;

	snprintf(copy, sizeof(copy), "%s", device);
	if (form != FLAGS)
		len += (size_t)snprintf(text, sizeof(text), form == VM ? "--vm " : "vms:\n-");
	for (unsigned n = 0; (entry = strsep(&rest, " ")); n++) {
		char *equals = strchr(entry, '=');

		assert_non_null(equals);
		if (form == YAML)
			len += (size_t)snprintf(text + len, sizeof(text) - len, "%s %.*s: \"%s\"\n",
						n ? " " : "", (int)(equals - entry), entry,
						equals + 1);
		else
			len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s%s",
						n == 0       ? ""
						: form == VM ? ","
							     : " ",
						form == VM ? "" : "--", entry);
		assert_true(len < sizeof(text));
	}
	if (form == YAML)
		yaml(run, text, len);
	else
		command_line(run, text);
}

static void the_table_is_complete(void **state)
{
	(void)state;
	for (size_t i = 0; i < RF_VSOCK_N_OPTS; i++)
		assert_non_null(rf_vsock_opts[i].name);
}

static void defaults(void **state)
{
	struct run run = { .status = 0 };

	(void)state;
	for (enum form form = 0; form < N_FORMS; form++) {
		const struct rf_vsock_spec *spec;

		describe(&run, form, "socket=s uds-path=u");
		assert_string_equal(run.err, "");
		assert_int_equal(run.status, 0);
		assert_int_equal(run.setup.n_specs, 1);
		spec = &run.setup.specs[0];
		assert_int_equal(spec->guest_cid, 3);
		assert_string_equal(spec->socket, "s");
		assert_string_equal(spec->uds_path, "u");
		assert_int_equal(spec->window, 1048576);
		assert_int_equal(spec->queue_size, 1024);
		assert_int_equal(spec->max_conns, 1024);
		assert_int_equal(spec->handshake_ns, 2 * RF_NS_PER_SEC);
		assert_int_equal(spec->shutdown_ns, 8 * RF_NS_PER_SEC);
		assert_int_equal(spec->line_ns, 10 * RF_NS_PER_SEC);
		assert_int_equal(spec->ok_port, RF_HOST_OK_PORT_GUEST);
		assert_true(spec->uds_uid == (uid_t)-1);
		assert_true(spec->uds_gid == (gid_t)-1);
		assert_true(spec->switches.merge);
		rf_vsock_setup_free(&run.setup);
	}
}

static void values_are_taken(void **state)
{
	struct run run = { .status = 0 };

	(void)state;
	for (enum form form = 0; form < N_FORMS; form++) {
		const struct rf_vsock_spec *spec;

		/* A second '=' belongs to the value; vhost-device-vsock loses what follows. */
		describe(&run, form,
			 "guest-cid=4294967294 socket=/s=1=2 uds-path=/u tx-buffer-size=64k "
			 "queue-size=256 max-connections=7 ok-port=host socket-mode=0600 "
			 "uds-mode=66 uds-owner=0:5 groups=default tune=merge=off+credit=eager "
			 "timeouts=handshake=5s+shutdown=1500ms+connect-line=10ms");
		if (run.status)
			fail_msg("%s: %s", form_names[form], run.err);
		spec = &run.setup.specs[0];
		assert_int_equal(spec->guest_cid, 4294967294);
		assert_string_equal(spec->socket, "/s=1=2");
		assert_string_equal(spec->uds_path, "/u");
		assert_int_equal(spec->window, 65536);
		assert_int_equal(spec->queue_size, 256);
		assert_int_equal(spec->max_conns, 7);
		assert_int_equal(spec->ok_port, RF_HOST_OK_PORT_HOST);
		assert_int_equal(spec->socket_mode, 0600);
		assert_int_equal(spec->uds_mode, 066);
		assert_int_equal(spec->uds_uid, 0);
		assert_int_equal(spec->uds_gid, 5);
		assert_false(spec->switches.merge);
		assert_int_equal(spec->switches.credit, 1);
		assert_int_equal(spec->handshake_ns, 5 * RF_NS_PER_SEC);
		assert_int_equal(spec->shutdown_ns, 1500 * RF_NS_PER_MS);
		assert_int_equal(spec->line_ns, 10 * RF_NS_PER_MS);
		rf_vsock_setup_free(&run.setup);
	}
}

static void owners_by_name(void **state)
{
	/* There is one thread. */
	/* cppcheck-suppress getpwuidCalled */
	const struct passwd *user = getpwuid(getuid());
	/* cppcheck-suppress getgrgidCalled */
	const struct group *group = getgrgid(getgid());
	char device[300];
	struct run run = { .status = 0 };

	(void)state;
	if (!user || !group) {
		skip();
		return;
	}
	for (enum form form = 0; form < N_FORMS; form++) {
		snprintf(device, sizeof(device), "socket=s uds-path=u uds-owner=%s:%s",
			 user->pw_name, group->gr_name);
		describe(&run, form, device);
		assert_string_equal(run.err, "");
		assert_int_equal(run.setup.specs[0].uds_uid, getuid());
		assert_int_equal(run.setup.specs[0].uds_gid, getgid());
		rf_vsock_setup_free(&run.setup);
	}
}

/* A value that is refused, and what is said about it, the same in each form; "...": more. */
static const struct bad_value {
	int row;
	const char *device;
	const char *key;
	const char *line;
} bad_values[] = {
	/* Reserved CIDs: vhost-device-vsock takes them. */
	{ 1, "guest-cid=0", "guest-cid",
	  "\"0\" is not allowed; allowed: a number from 3 to 4294967294" },
	{ 2, "guest-cid=2", "guest-cid",
	  "\"2\" is not allowed; allowed: a number from 3 to 4294967294" },
	{ 3, "guest-cid=4294967295", "guest-cid",
	  "\"4294967295\" is not allowed; allowed: a number from 3 to 4294967294" },
	{ 4, "guest-cid=abc", "guest-cid",
	  "\"abc\" is not allowed; allowed: a number from 3 to 4294967294" },
	{ 5, "guest-cid=3.0", "guest-cid",
	  "\"3.0\" is not allowed; allowed: a number from 3 to 4294967294" },
	{ 6, "guest-cid=18446744073709551621", "guest-cid",
	  "\"18446744073709551621\" is not allowed; allowed: a number from 3 to 4294967294" },
	{ 7, "tx-buffer-size=4095", "tx-buffer-size",
	  "\"4095\" is not allowed; allowed: 4k to 1g bytes (a number with or without k, m, g)" },
	{ 8, "tx-buffer-size=-1", "tx-buffer-size",
	  "\"-1\" is not allowed; allowed: 4k to 1g bytes (a number with or without k, m, g)" },
	/* vhost-device-vsock takes any size of a ring. */
	{ 9, "queue-size=1000", "queue-size",
	  "1000 is not allowed; a power of two from 2 to 32768 is" },
	{ 10, "queue-size=65536", "queue-size",
	  "\"65536\" is not allowed; allowed: a number from 2 to 32768" },
	{ 11, "max-connections=0", "max-connections",
	  "\"0\" is not allowed; allowed: a number from 1 to 65536" },
	{ 12, "max-connections=65537", "max-connections",
	  "\"65537\" is not allowed; allowed: a number from 1 to 65536" },
	{ 13, "ok-port=both", "ok-port", "\"both\" is not allowed; allowed: guest or host" },
	{ 14, "socket-mode=888", "socket-mode",
	  "\"888\" is not allowed; allowed: an octal mode from 0 to 0777" },
	{ 15, "uds-mode=1777", "uds-mode",
	  "\"1777\" is not allowed; allowed: an octal mode from 0 to 0777" },
	{ 16, "uds-owner=no-such-user.", "uds-owner",
	  "\"no-such-user.\" is not allowed; allowed: USER or USER:GROUP, names that this host "
	  "knows or numbers" },
	{ 17, "uds-owner=0:no-such-group.", "uds-owner",
	  "\"0:no-such-group.\" is not allowed; allowed: USER or USER:GROUP, names that this host "
	  "knows or numbers" },
	{ 18, "uds-owner=4294967295", "uds-owner",
	  "\"4294967295\" is not allowed; allowed: USER or USER:GROUP, names that this host knows "
	  "or numbers" },
	{ 19, "fd=2147483648", "fd",
	  "\"2147483648\" is not allowed; allowed: a number from 0 to 2147483647" },
	{ 20, "fd=1021", "fd", "not allowed together with ~socket; allowed: one of them" },
	{ 21, "tune=merge", "tune",
	  "\"merge\" is not allowed; allowed: NAME=VALUE with NAME one of merge, ..." },
	{ 22, "tune=merge=off+credit=now", "tune",
	  "\"credit=now\" is not allowed; allowed: credit=batched|eager..." },
	{ 23, "tune=merge=off+", "tune",
	  "\"\" is not allowed; allowed: NAME=VALUE with NAME one of merge, ..." },
#define TIMES                                                                                     \
	"allowed: handshake=TIME, shutdown=TIME or connect-line=TIME, a TIME from 10ms to 3600s " \
	"(a number with ms or s)"
	{ 24, "timeouts=handshake=2", "timeouts", "\"handshake=2\" is not allowed; " TIMES },
	{ 25, "timeouts=handshake=9ms", "timeouts", "\"handshake=9ms\" is not allowed; " TIMES },
	{ 26, "timeouts=shutdown=3601s", "timeouts", "\"shutdown=3601s\" is not allowed; " TIMES },
	{ 27, "timeouts=line=2s", "timeouts", "\"line=2s\" is not allowed; " TIMES },
	{ 28, "timeouts=shutdown=2s+handshake=s", "timeouts",
	  "\"handshake=s\" is not allowed; " TIMES },
	{ 29, "timeouts=shutdown=99999999999999999999s", "timeouts",
	  "\"shutdown=99999999999999999999s\" is not allowed; " TIMES },
	{ 30, "groups=a", "groups",
	  "connections between guests are not served yet; allowed: \"default\", or no groups" },
	{ 31, "groups=default+b", "groups",
	  "connections between guests are not served yet; allowed: \"default\", or no groups" },
	{ 32, "groups=default+", "groups",
	  "\"\" is not allowed; allowed: names with + between them" },
	{ 33, "forward-cid=1", "forward-cid",
	  "not allowed together with ~uds-path; allowed: one of them" },
	{ 34, "forward-cid=4294967295", "forward-cid",
	  "\"4294967295\" is not allowed; allowed: a number from 0 to 4294967294" },
	/* vhost-device-vsock panics at a word. */
	{ 35, "forward-listen=9001+x", "forward-listen",
	  "\"x\" is not allowed; allowed: at most 64 ports from 0 to 4294967294 with + between "
	  "them" },
	{ 36, "forward-listen=9001+9002", "forward-listen", "not allowed without ~forward-cid" },
};

static const char *const more_bad_devices[][3] = {
	{ "socket=s", "uds-path", "required, but not given; allowed: PATH" },
	{ "uds-path=u", "socket", "required, unless ~fd is given; allowed: PATH" },
	{ "uds-path=u fd=1021", "fd",
	  "descriptor 1021 is not allowed; a unix stream socket that listens or is connected is" },
	{ "socket=s forward-cid=1", "forward-cid", "not served yet; allowed: ~uds-path instead" },
	{ "socket=s forward-cid=1 forward-listen=9001+9002", "forward-cid",
	  "not served yet; allowed: ~uds-path instead" },
	{ "socket=a uds-path=a", "uds-path",
	  "the same as ~socket, or that with _PORT; another path is needed" },
	/* The guest's connection to port 7 would be a front end of its own device. */
	{ "socket=a_7 uds-path=a", "uds-path",
	  "the same as ~socket, or that with _PORT; another path is needed" },
};

/* '~' stands for what precedes the name of an option in the form at hand. */
static void line_format(enum form form, const char *line, char *buf, size_t buf_bytes)
{
	const char *tilde = strchr(line, '~');

	if (tilde)
		snprintf(buf, buf_bytes, "%.*s%s%s", (int)(tilde - line), line,
			 form == FLAGS ? "--" : "", tilde + 1);
	else
		snprintf(buf, buf_bytes, "%s", line);
}

static void check_refused(const struct run *run, enum form form, int row, const char *key,
			  const char *line)
{
	char text[512], want[1024], form_want[2048];
	static const char yaml_prefix[] = "ringferry vsock: vms.yaml:";
	unsigned long where = 0;
	const char *more;
	bool same;

	if (form == YAML && !strncmp(run->err, yaml_prefix, strlen(yaml_prefix)))
		where = strtoul(run->err + strlen(yaml_prefix), NULL, 10);
	line_format(form, line, text, sizeof(text));
	snprintf(want, sizeof(want), "%s: %s\n", key, text);
	if (form == FLAGS)
		snprintf(form_want, sizeof(form_want), "ringferry vsock: --%s", want);
	else if (form == VM)
		snprintf(form_want, sizeof(form_want), "ringferry vsock: --vm 1: %s", want);
	else
		snprintf(form_want, sizeof(form_want), "ringferry vsock: vms.yaml:%lu: %s", where,
			 want);
	more = strstr(form_want, "...\n");
	same = more ? !strncmp(run->err, form_want, (size_t)(more - form_want))
		    : !strcmp(run->err, form_want);
	if (run->status != RF_EXIT_USAGE || !same ||
	    strchr(run->err, '\n') != run->err + strlen(run->err) - 1)
		fail_msg("row %d, %s: status %d, \"%s\"", row, form_names[form], run->status,
			 run->err);
	/* The device begins in line 2. */
	if (form == YAML && where < 2)
		fail_msg("row %d: line %lu", row, where);
}

static void bad_values_are_refused(void **state)
{
	struct run run = { .status = 0 };
	char device[512];

	(void)state;
	for (size_t i = 0; i < RF_ARRAY_SIZE(bad_values); i++) {
		const struct bad_value *row = &bad_values[i];

		snprintf(device, sizeof(device), "socket=s uds-path=u %s", row->device);
		for (enum form form = 0; form < N_FORMS; form++) {
			describe(&run, form, device);
			check_refused(&run, form, row->row, row->key, row->line);
			rf_vsock_setup_free(&run.setup);
		}
	}
}

static void bad_devices_are_refused(void **state)
{
	struct run run = { .status = 0 };

	(void)state;
	for (size_t i = 0; i < RF_ARRAY_SIZE(more_bad_devices); i++)
		for (enum form form = 0; form < N_FORMS; form++) {
			describe(&run, form, more_bad_devices[i][0]);
			check_refused(&run, form, (int)i + 1, more_bad_devices[i][1],
				      more_bad_devices[i][2]);
			rf_vsock_setup_free(&run.setup);
		}
}

static void long_paths_are_refused(void **state)
{
	char device[400], path[110];
	struct run run = { .status = 0 };

	(void)state;
	memset(path, 'p', sizeof(path));
	for (enum form form = 0; form < N_FORMS; form++) {
		snprintf(device, sizeof(device), "socket=%.108s uds-path=u", path);
		describe(&run, form, device);
		check_refused(&run, form, 1, "socket",
			      "path too long; at most 107 bytes are allowed");
		rf_vsock_setup_free(&run.setup);
		snprintf(device, sizeof(device), "socket=s uds-path=%.97s", path);
		describe(&run, form, device);
		check_refused(&run, form, 2, "uds-path",
			      "path too long; at most 96 bytes are allowed, so that _4294967295 "
			      "fits behind it");
		rf_vsock_setup_free(&run.setup);
		snprintf(device, sizeof(device), "socket=%.107s uds-path=q%.95s", path, path);
		describe(&run, form, device);
		assert_string_equal(run.err, "");
		rf_vsock_setup_free(&run.setup);
	}
}

#define KEYS                                                                         \
	"guest-cid, socket, uds-path, tx-buffer-size, queue-size, max-connections, " \
	"timeouts, ok-port, socket-mode, uds-mode, uds-owner, fd, tune, groups, "    \
	"forward-cid, forward-listen"

/* What only a command line can do wrong. */
static const struct {
	int row;
	const char *words;
	const char *line;
} command_lines[] = {
	{ 1, "", "--socket: required, unless --fd is given; allowed: PATH" },
	{ 2, "--vm socket=s,uds-path=u --config f",
	  "--config: not allowed together with --vm; allowed: one of them" },
	{ 3, "--config f --socket s",
	  "--config: not allowed together with --socket; allowed: socket in the file" },
	{ 4, "--vm socket=s,uds-path=u --queue-size 128",
	  "--vm: not allowed together with --queue-size; allowed: queue-size in its "
	  "argument" },
	{ 5, "--vm ''", "--vm 1: an entry is empty; allowed: KEY=VALUE,..." },
	{ 6, "--vm socket=s,uds-path=u,", "--vm 1: an entry is empty; allowed: KEY=VALUE,..." },
	{ 7, "--vm socket=s,u",
	  "--vm 1: \"u\" has no \"=\"; allowed: KEY=VALUE,... where no value has a comma "
	  "(in the file of --config they may)" },
	{ 8, "--vm socket=s,uds=u", "--vm 1: \"uds\" is no key; allowed: " KEYS },
	{ 9, "--vm =s", "--vm 1: \"\" is no key; allowed: " KEYS },
	/* Its help says "group". */
	{ 10, "--vm group=a", "--vm 1: \"group\" is no key; allowed: " KEYS },
	{ 11, "--vm vm=a", "--vm 1: \"vm\" is no key; allowed: " KEYS },
	{ 12, "--vm check=1", "--vm 1: \"check\" is no key; allowed: " KEYS },
	{ 13, "--vm socket=,uds-path=u", "--vm 1: socket: it is empty; allowed: PATH" },
	{ 14, "--vm socket=s,uds-path=u --vm socket=t,uds_path=v,guest_cid=4,guest-cid=5",
	  "--vm 2: guest-cid: given twice, first in --vm 2; allowed: once per device" },
	{ 15, "--vm socket=s,uds-path=u --vm socket=t,uds-path=v",
	  "--vm 2: guest-cid: also the guest-cid in --vm 1; allowed: one that no other "
	  "device has" },
	{ 16, "--vm socket=s,uds-path=u --vm socket=s,uds-path=v,guest-cid=4",
	  "--vm 2: socket: also the socket in --vm 1; allowed: one that no other device "
	  "has" },
	{ 17, "--vm socket=s,uds-path=u --vm socket=t,uds-path=u,guest-cid=4",
	  "--vm 2: uds-path: also the uds-path in --vm 1; allowed: one that no other "
	  "device has" },
	{ 18, "--vm socket=s,uds-path=u --vm socket=t,uds-path=s,guest-cid=4",
	  "--vm 2: uds-path: also the socket in --vm 1, or that with _PORT; allowed: one "
	  "that no other device has" },
	{ 19, "--vm socket=s,uds-path=u --vm socket=u,uds-path=v,guest-cid=4",
	  "--vm 2: socket: also the uds-path in --vm 1, or that with _PORT; allowed: one "
	  "that no other device has" },
	/* One guest's connection to a port would reach the other one's sockets. */
	{ 20, "--vm socket=s,uds-path=u --vm socket=u_80,uds-path=v,guest-cid=4",
	  "--vm 2: socket: also the uds-path in --vm 1, or that with _PORT; allowed: one "
	  "that no other device has" },
	{ 21, "--vm socket=s,uds-path=u_80 --vm socket=t,uds-path=u,guest-cid=4",
	  "--vm 2: uds-path: also the uds-path in --vm 1; allowed: one that no other "
	  "device has" },
	{ 22, "--vm", "--vm: its argument is missing; allowed: LIST" },
	{ 23, "--config ''", "--config: it is empty; allowed: FILE" },
	{ 24, "--config no/such", "--config: no/such: No such file or directory; allowed: a file" },
	{ 25, "--config .", "--config: .: Is a directory; allowed: a file" },
	{ 26, "--config /dev/zero",
	  "--config: /dev/zero: the file is too large; allowed: at most 1048576 bytes" },
	{ 27, "--config /dev/null",
	  "/dev/null:1: it is empty; allowed: the key \"vms\" with a list of devices" },
};

static void bad_command_lines(void **state)
{
	struct run run = { .status = 0 };
	char want[1024];

	(void)state;
	for (size_t i = 0; i < RF_ARRAY_SIZE(command_lines); i++) {
		/* No word at all, not an empty one. */
		command_line(&run, *command_lines[i].words ? command_lines[i].words : "--check");
		snprintf(want, sizeof(want), "ringferry vsock: %s\n", command_lines[i].line);
		if (run.status != RF_EXIT_USAGE || strcmp(run.err, want) != 0)
			fail_msg("row %d: status %d, \"%s\"", command_lines[i].row, run.status,
				 run.err);
		rf_vsock_setup_free(&run.setup);
	}
}

/* Paths that only look alike do not clash. */
static void neighbours(void **state)
{
	struct run run = { .status = 0 };

	(void)state;
	command_line(&run, "--vm guest-cid=3,socket=vm.sock,uds-path=vm "
			   "--vm guest-cid=4,socket=vm_,uds-path=vm_x "
			   "--vm guest-cid=5,socket=vm_4294967295,uds-path=vm1_1 "
			   "--vm guest-cid=6,socket=VM,uds-path=./vm");
	assert_string_equal(run.err, "");
	assert_int_equal(run.setup.n_specs, 4);
	rf_vsock_setup_free(&run.setup);
}

static void too_many_devices(void **state)
{
	struct run run = { .setup.file = "f" };
	int saved, file;

	(void)state;
	rf_vsock_setup_init(&run.setup);
	run.setup.file = "f";
	for (unsigned i = 0; i < RF_VSOCK_MAX_DEVICES; i++)
		assert_non_null(rf_vsock_setup_add(&cmd, &run.setup, i + 1));
	file = capture_begin(stderr, STDERR_FILENO, &saved);
	assert_null(rf_vsock_setup_add(&cmd, &run.setup, 1025));
	capture_end(stderr, STDERR_FILENO, saved, file, run.err, sizeof(run.err));
	assert_string_equal(
		run.err, "ringferry vsock: f:1025: one device too many; allowed: at most 1024\n");
	rf_vsock_setup_free(&run.setup);
}

static void the_same_descriptor_twice(void **state)
{
	char words[300], want[200];
	struct run run = { .status = 0 };
	int fds[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	snprintf(words, sizeof(words), "--vm fd=%d,uds-path=u --vm fd=%d,uds-path=v,guest-cid=4",
		 fds[0], fds[0]);
	command_line(&run, words);
	snprintf(want, sizeof(want),
		 "ringferry vsock: --vm 2: fd: also the fd in --vm 1; allowed: one that no other "
		 "device has\n");
	assert_string_equal(run.err, want);
	rf_vsock_setup_free(&run.setup);
	rf_fd_close(fds[0]);
	rf_fd_close(fds[1]);
}

/* The window is kept in a buffer whose size is a power of two. */
static void memory(void **state)
{
	struct rf_vsock_spec spec = { .window = 100000, .max_conns = 10 };
	uint64_t sockets, bytes = rf_vsock_spec_memory(&spec, &sockets);

	(void)state;
	assert_true(sockets >= 4096);
	assert_int_equal(bytes, 10 * (131072 + sockets));
	spec.window = 131072;
	assert_int_equal(rf_vsock_spec_memory(&spec, &sockets), bytes);
	spec.window = 131073;
	assert_int_equal(rf_vsock_spec_memory(&spec, &sockets), bytes + 10 * 131072);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_table_is_complete),
		cmocka_unit_test(defaults),
		cmocka_unit_test(values_are_taken),
		cmocka_unit_test(owners_by_name),
		cmocka_unit_test(bad_values_are_refused),
		cmocka_unit_test(bad_devices_are_refused),
		cmocka_unit_test(long_paths_are_refused),
		cmocka_unit_test(bad_command_lines),
		cmocka_unit_test(neighbours),
		cmocka_unit_test(too_many_devices),
		cmocka_unit_test(the_same_descriptor_twice),
		cmocka_unit_test(memory),
	};

	return cmocka_run_group_tests_name("vsock-options", tests, NULL, NULL);
}
