/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The file of --config: what YAML is taken, and the line of each error.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "capture.h"
#include "vsock_setup.h"

static const struct rf_cmd cmd = {
	.name = "vsock",
	.usage = "",
	.summary = "Serve.",
	.opts = rf_vsock_opts,
	.n_opts = RF_VSOCK_N_OPTS,
};

static int read_yaml(struct rf_vsock_setup *setup, const char *text, size_t bytes, char *err,
		     size_t err_bytes)
{
	/* Its own allocation, so that reading beyond it is seen. */
	char *copy = malloc(bytes ? bytes : 1);
	int saved, file, status;

	assert_non_null(copy);
	memcpy(copy, text, bytes);
	rf_vsock_setup_init(setup);
	setup->file = "f";
	file = capture_begin(stderr, STDERR_FILENO, &saved);
	status = rf_vsock_setup_yaml(&cmd, setup, copy, bytes);
	if (status == 0)
		status = rf_vsock_setup_check(&cmd, setup);
	capture_end(stderr, STDERR_FILENO, saved, file, err, err_bytes);
	free(copy);
	return status;
}

#define D "vms:\n- socket: s\n  uds_path: u\n"

/* Each is one device; @want is "CID socket uds-path timeouts in ms credit". */
static void accepted(void **state)
{
	static const struct {
		int row;
		const char *text;
		const char *want;
	} rows[] = {
		{ 1, D, "3 s u 2000 8000 10000 0" },
		/* The spellings of vhost-device-vsock's program and of its description. */
		{ 2, "vms:\n    - guest_cid: 5\n      socket: s\n      uds_path: u\n",
		  "5 s u 2000 8000 10000 0" },
		{ 3, "vms:\n    - guest-cid: 5\n      socket: s\n      uds-path: u\n",
		  "5 s u 2000 8000 10000 0" },
		{ 4, D "  groups: default\n", "3 s u 2000 8000 10000 0" },
		{ 5, D "  groups: [default]\n", "3 s u 2000 8000 10000 0" },
		{ 6, D "  tune: [merge=off, credit=eager]\n", "3 s u 2000 8000 10000 1" },
		{ 7, D "  tune:\n  - merge=off\n  - credit=eager\n", "3 s u 2000 8000 10000 1" },
		{ 8, D "  tune: merge=off+credit=eager\n", "3 s u 2000 8000 10000 1" },
		{ 9, D "  timeouts: [handshake=1s, connect_line=20ms]\n", "3 s u 1000 8000 20 0" },
		{ 10, D "  timeouts: shutdown=1s+connect-line=20ms\n", "3 s u 2000 1000 20 0" },
		{ 11, "{\"vms\": [{\"socket\": \"s\", \"uds_path\": \"u\"}]}\n",
		  "3 s u 2000 8000 10000 0" },
		{ 12, "%YAML 1.1\n---\n" D "...\n", "3 s u 2000 8000 10000 0" },
		{ 13, "\xef\xbb\xbf# with a mark\n" D, "3 s u 2000 8000 10000 0" },
		/* A file can name what --vm cannot. */
		{ 14, "vms:\n- socket: a,b\n  uds_path: 'c d,e'\n",
		  "3 a,b c d,e 2000 8000 10000 0" },
		{ 15, "vms:\n- socket: /\xc3\xa4\n  uds_path: \"null\"\n",
		  "3 /\xc3\xa4 null 2000 8000 10000 0" },
		{ 16, "vms: # all\r\n- socket: s # front\r\n  uds_path: u\r\n",
		  "3 s u 2000 8000 10000 0" },
		{ 17, "vms:\n- {socket: s, uds_path: u, guest_cid: \"7\"}",
		  "7 s u 2000 8000 10000 0" },
	};
	struct rf_vsock_setup setup;
	char err[2048], got[200];

	(void)state;
	for (size_t i = 0; i < RF_ARRAY_SIZE(rows); i++) {
		const struct rf_vsock_spec *spec;
		int status =
			read_yaml(&setup, rows[i].text, strlen(rows[i].text), err, sizeof(err));

		if (status || *err || setup.n_specs != 1)
			fail_msg("row %d: status %d, \"%s\"", rows[i].row, status, err);
		spec = &setup.specs[0];
		snprintf(got, sizeof(got), "%u %s %s %u %u %u %d", (unsigned)spec->guest_cid,
			 spec->socket, spec->uds_path,
			 (unsigned)(spec->handshake_ns / RF_NS_PER_MS),
			 (unsigned)(spec->shutdown_ns / RF_NS_PER_MS),
			 (unsigned)(spec->line_ns / RF_NS_PER_MS), spec->switches.credit);
		if (strcmp(got, rows[i].want) != 0)
			fail_msg("row %d: \"%s\"", rows[i].row, got);
		rf_vsock_setup_free(&setup);
	}
}

#define TOP    "allowed: the key \"vms\" with a list of devices"
#define SYNTAX "allowed: lines KEY: VALUE, indented with spaces, with a space behind the colon"

static const struct refused_row {
	int row;
	const char *text;
	size_t bytes;
	const char *line;
} refused_rows[] = {
	/* vhost-device-vsock panics without vms. */
	{ 1, "", 0, "1: it is empty; " TOP },
	{ 2, "# nothing\n", 0, "2: it is empty; " TOP },
	{ 3, "---\n...\n", 0, "2: it is empty; " TOP },
	{ 4, "~\n", 0, "1: it is empty; " TOP },
	{ 5, "{}\n", 0, "1: it is empty; " TOP },
	{ 6, "vms\n", 0, "1: a value is not allowed; " TOP },
	{ 7, "\n- socket: s\n", 0, "2: a list is not allowed; " TOP },
	{ 8, "vm:\n", 0, "1: \"vm\" is no key here; " TOP },
	{ 9, D "log_level: debug\n", 0, "4: \"log_level\" is no key here; " TOP },
	{ 10, D "vms: []\n", 0, "4: vms: given twice, first in line 1; allowed: once" },
	{ 11, "vms:\n", 0, "1: vms: a value is not allowed; allowed: a list of devices" },
	{ 12, "vms: 3\n", 0, "1: vms: a value is not allowed; allowed: a list of devices" },
	{ 13, "vms:\n  socket: s\n", 0,
	  "2: vms: a mapping is not allowed; allowed: a list of devices" },
	{ 14, "vms: []\n", 0, "1: vms: the list is empty; allowed: at least one device" },
	{ 15, "vms:\n- s\n", 0,
	  "2: vms: a value in the list; allowed: devices, which are lines KEY: VALUE" },
	{ 16, "vms:\n- - s\n", 0,
	  "2: vms: a list in the list; allowed: devices, which are lines KEY: VALUE" },
	{ 17, "vms:\n-\n", 0,
	  "2: vms: a value in the list; allowed: devices, which are lines KEY: VALUE" },
	{ 18, "? [a]\n: b\n", 0, "1: a list as a key; allowed: a word" },
	{ 19, "vms:\n- ? {a: b}\n  : c\n", 0, "2: a mapping as a key; allowed: a word" },
	{ 20, D "  guest-cid:\n", 0,
	  "4: guest-cid: it is empty; allowed: a number from 3 to 4294967294" },
	{ 21, D "  guest-cid: null\n", 0,
	  "4: guest-cid: it is empty; allowed: a number from 3 to 4294967294" },
	{ 22, "vms:\n- socket: ~\n", 0, "2: socket: it is empty; allowed: PATH" },
	{ 23, "vms:\n- socket: ''\n", 0, "2: socket: it is empty; allowed: PATH" },
	{ 24, "vms:\n- socket: \"s\\0t\"\n", 0, "2: socket: a NUL is in the value; allowed: PATH" },
	{ 25, "vms:\n- \"socket\\0\": s\n", 0, NULL },
	{ 26, D "  guest_cid: [3]\n", 0,
	  "4: guest-cid: a list is not allowed; allowed: a number from 3 to 4294967294" },
	{ 27, D "  guest_cid: {a: 3}\n", 0,
	  "4: guest-cid: a mapping is not allowed; allowed: a number from 3 to 4294967294" },
	{ 28, "vms:\n- socket:\n  - s\n", 0, "3: socket: a list is not allowed; allowed: PATH" },
	{ 29, D "  timeouts: {handshake: 2s}\n", 0,
	  "4: timeouts: a mapping is not allowed; allowed: a list of values" },
	{ 30, D "  timeouts: [handshake=1s, [shutdown=1s]]\n", 0,
	  "4: timeouts: a list in the list; allowed: values" },
	{ 31, D "  tune: []\n", 0, "4: tune: the list is empty; allowed: at least one value" },
	/* An element is one value: there is no list in it. */
	{ 32, D "  tune: [merge=off+credit=eager]\n", 0,
	  "4: tune: \"merge=off+credit=eager\" is not allowed; allowed: merge=on|off" },
	{ 33, D "  guest_cid: 3\n  guest-cid: 3\n", 0,
	  "5: guest-cid: given twice, first in f:4; allowed: once per device" },
	{ 34, D "- socket: t\n  uds_path: v\n", 0,
	  "4: guest-cid: also the guest-cid in f:2; allowed: one that no other device has" },
	{ 35, D "- socket: t\n  guest_cid: 4\n  uds_path: u\n", 0,
	  "6: uds-path: also the uds-path in f:3; allowed: one that no other device has" },
	{ 36, D "- guest_cid: 4\n  uds_path: v\n  socket: s\n", 0,
	  "6: socket: also the socket in f:2; allowed: one that no other device has" },
	{ 37, D "- guest_cid: 4\n  uds_path: s\n  socket: t\n", 0,
	  "5: uds-path: also the socket in f:2, or that with _PORT; allowed: one that no other "
	  "device has" },
	{ 38, "vms:\n- &a\n  socket: s\n", 0,
	  "2: the anchor \"&a\" is not allowed; allowed: values without anchors" },
	{ 39, "vms:\n- socket: &a s\n", 0,
	  "2: the anchor \"&a\" is not allowed; allowed: values without anchors" },
	{ 40, "vms: &a [*a]\n", 0,
	  "1: the anchor \"&a\" is not allowed; allowed: values without anchors" },
	{ 41, "vms:\n- socket: *a\n", 0,
	  "2: the alias \"*a\" is not allowed; allowed: the value itself" },
	{ 42, "vms:\n- <<: *a\n", 0,
	  "2: \"<<\" is no key; allowed: guest-cid, socket, uds-path, tx-buffer-size, queue-size, "
	  "max-connections, timeouts, ok-port, socket-mode, uds-mode, uds-owner, fd, tune, groups, "
	  "forward-cid, forward-listen" },
	{ 43, "vms:\n- socket: !path s\n", 0,
	  "2: the tag \"!path\" is not allowed; allowed: values without tags" },
	{ 44, D "---\n" D, 0, "4: another document begins; allowed: one" },
	{ 45, D "  socket\n", 0, "4: no YAML: could not find expected ':'; " SYNTAX },
	{ 46, D "\tguest_cid: 4\n", 0, NULL },
	{ 47, "vms: [\n", 0, "2: no YAML: did not find expected node content; " SYNTAX },
	{ 48, "vms:\n- socket: \"s\n", 0, NULL },
	{ 49, "vms:\n- socket: s\xff\n", 0,
	  "2: no UTF-8 text (invalid leading UTF-8 octet); allowed: YAML in UTF-8" },
	{ 50, "vms:\n\n- socket: \xc3\n", 0, NULL },
	/* UTF-16 with its mark. */
	{ 51, "\xff\xfev\0m\0s\0", 8,
	  "1: no UTF-8 text (invalid leading UTF-8 octet); allowed: YAML in UTF-8" },
	{ 52, "vms:\n- socket: s\0\n", 18,
	  "2: no UTF-8 text (control characters are not allowed); allowed: YAML in UTF-8" },
	{ 53,
	  "\x7f"
	  "ELF\x02\x01\x01",
	  0, "1: no UTF-8 text (control characters are not allowed); allowed: YAML in UTF-8" },
	/* The description's own example, of which the program takes no forward-cid. */
	{ 54,
	  "vms:\n    - guest_cid: 5\n      socket: /tmp/vhost5.socket\n      forward-cid: 1\n"
	  "      forward-listen: 9001+9002\n",
	  0, "4: forward-cid: not served yet; allowed: uds-path instead" },
	{ 55,
	  "vms:\n    - guest_cid: 5\n      socket: /tmp/vhost5.socket\n      forward_cid: 1\n"
	  "      forward_listen: [9001, 9002]\n",
	  0, "4: forward-cid: not served yet; allowed: uds-path instead" },
	{ 56, D "  forward_listen: [9001, x]\n", 0,
	  "4: forward-listen: \"x\" is not allowed; allowed: at most 64 ports from 0 to "
	  "4294967294 with + between them" },
	{ 57, D "  groups: [default, a]\n", 0,
	  "4: groups: connections between guests are not served yet; allowed: \"default\", or no "
	  "groups" },
	{ 58, "vms:\n- socket: s\n", 0, "2: uds-path: required, but not given; allowed: PATH" },
	{ 59, "vms:\n- {}\n", 0, "2: socket: required, unless fd is given; allowed: PATH" },
	{ 60, "vms:\n- socket: |\n    s\n", 0,
	  "2: socket: a control character is in it; allowed: PATH" },
	/* The line with the mistake, not the one in which libyaml notices it. */
	{ 61, "vms:\n- socket:s\n  uds_path: u\n  guest_cid: 4\n", 0,
	  "2: vms: a value in the list; allowed: devices, which are lines KEY: VALUE" },
	{ 62, D "  queue_size:64\n\n  guest_cid: 4\n", 0,
	  "4: no YAML: could not find expected ':'; " SYNTAX },
	{ 63, "vms:\n\t- socket: s\n", 0,
	  "2: no YAML: found character that cannot start any token; " SYNTAX },
	{ 64, "vms:\n- socket: \"s\n  uds_path: u\n", 0,
	  "2: no YAML: found unexpected end of stream; " SYNTAX },
};

/* One line with exit status 2; where libyaml's words are not worth a promise, only that. */
static void refused(void **state)
{
	static const char prefix[] = "ringferry vsock: f:";
	struct rf_vsock_setup setup;
	char err[2048], want[1024];

	(void)state;
	for (size_t i = 0; i < RF_ARRAY_SIZE(refused_rows); i++) {
		const struct refused_row *row = &refused_rows[i];
		size_t bytes = row->bytes ? row->bytes : strlen(row->text);
		int status = read_yaml(&setup, row->text, bytes, err, sizeof(err));

		if (row->line)
			snprintf(want, sizeof(want), "ringferry vsock: f:%s\n", row->line);
		if (status != RF_EXIT_USAGE || (row->line && strcmp(err, want) != 0) ||
		    strncmp(err, prefix, strlen(prefix)) != 0 ||
		    strtoul(err + strlen(prefix), NULL, 10) == 0 ||
		    strchr(err, '\n') != err + strlen(err) - 1)
			fail_msg("row %d: status %d, \"%s\"", row->row, status, err);
		rf_vsock_setup_free(&setup);
	}
}

/* A bomb of nested lists, and one of long lists, end at once. */
static void bombs(void **state)
{
	struct rf_vsock_setup setup;
	char *text = malloc(RF_VSOCK_CONFIG_BYTES);
	char err[2048];
	size_t len;

	(void)state;
	assert_non_null(text);
	memset(text, '[', RF_VSOCK_CONFIG_BYTES);
	assert_int_equal(read_yaml(&setup, text, RF_VSOCK_CONFIG_BYTES, err, sizeof(err)),
			 RF_EXIT_USAGE);
	rf_vsock_setup_free(&setup);

	len = (size_t)sprintf(text, "%s  forward_listen: [", D);
	while (len < RF_VSOCK_CONFIG_BYTES - 2) {
		text[len++] = '7';
		text[len++] = ',';
	}
	assert_int_equal(read_yaml(&setup, text, len, err, sizeof(err)), RF_EXIT_USAGE);
	assert_non_null(
		strstr(err, "f:4: forward-listen: \"7\" is not allowed; allowed: at most 64"));
	rf_vsock_setup_free(&setup);

	len = (size_t)sprintf(text, "vms: [");
	while (len < RF_VSOCK_CONFIG_BYTES - 4)
		len += (size_t)sprintf(text + len, "{},");
	assert_int_equal(read_yaml(&setup, text, len, err, sizeof(err)), RF_EXIT_USAGE);
	assert_string_equal(err,
			    "ringferry vsock: f:1: one device too many; allowed: at most 1024\n");
	rf_vsock_setup_free(&setup);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(accepted),
		cmocka_unit_test(refused),
		cmocka_unit_test(bombs),
	};

	return cmocka_run_group_tests_name("vsock-setup-yaml", tests, NULL, NULL);
}
