/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hybrid unix socket: the CONNECT line in every form.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/limits.h"
#include "open_fds.h"
#include "plug_lab.h"
#include "vsock_rig.h"

/* The CONNECT line */

struct line_row {
	const char *name;
	const char *pieces[4];
	/* 0: closed. */
	uint32_t port;
	const char *behind;
};

#define BLANKS_48 "                                                "

static const struct line_row line_rows[] = {
	{ "whole", { "CONNECT 1234\n" }, 1234, "" },
	{ "lower case, CRLF", { "connect 52\r\n" }, 52, "" },
	{ "in pieces (cloud-hypervisor PR 6091)", { "CONNECT ", "1234\n" }, 1234, "" },
	{ "CRLF in pieces", { "CONNECT 1234\r", "\n" }, 1234, "" },
	{ "data behind it", { "CONNECT 1234\nhello\nworld" }, 1234, "hello\nworld" },
	{ "data behind it, in pieces", { "CONN", "ECT 1234\nhel", "lo" }, 1234, "hello" },
	{ "another line behind it", { "CONNECT 1\nCONNECT 2\n" }, 1, "CONNECT 2\n" },
	{ "as long as a line may be", { "CONNECT" BLANKS_48 "12345678\n" }, 12345678, "" },
	{ "as long as a line may be, in pieces",
	  { "CONNECT" BLANKS_48, "1234567", "8", "\n!" },
	  12345678,
	  "!" },
	{ "one byte longer", { "CONNECT" BLANKS_48 " 12345678\n" }, 0, "" },
	{ "no end of line", { "CONNECT" BLANKS_48 "123456789" }, 0, "" },
	{ "garbage", { "GET / HTTP/1.1\r\n" }, 0, "" },
	{ "shorter than a line can be (vhost-device #307)", { "connect\n" }, 0, "" },
	{ "empty line", { "\n" }, 0, "" },
	{ "port that is none", { "CONNECT 4294967295\n" }, 0, "" },
};

static void connect_line(void **state)
{
	const struct line_row *row = *state;
	struct plug_lab *lab;
	int fd;

	plug_setup(state);
	lab = *state;
	fd = plug_connect(lab);
	for (unsigned i = 0; i < RF_ARRAY_SIZE(row->pieces) && row->pieces[i]; i++)
		plug_program_sends(lab, fd, row->pieces[i]);
	if (row->port) {
		struct plug_owner *owner = &lab->owners[0];
		char expected[32], reply[32] = "", behind[100] = "";
		struct iovec iov = { behind, sizeof(behind) };

		assert_int_equal(lab->n_owners, 1);
		assert_int_equal(owner->port, row->port);
		/* Nothing is said before the guest has accepted. */
		assert_int_equal(read(fd, reply, sizeof(reply)), -1);
		assert_int_equal(errno, EAGAIN);
		plug_ops->established(owner->line, 1u << 30);
		snprintf(expected, sizeof(expected), "OK %u\n", row->port);
		assert_int_equal(read(fd, reply, sizeof(reply)), strlen(expected));
		assert_string_equal(reply, expected);
		if (*row->behind)
			assert_int_equal(plug_ops->recv(owner->line, &iov, 1), strlen(row->behind));
		assert_string_equal(behind, row->behind);
		assert_int_equal(plug_ops->recv(owner->line, &iov, 1), -EAGAIN);
		plug_ops->close(owner->line, RF_VSOCK_CLOSED);
	} else {
		assert_int_equal(lab->n_owners, 0);
		assert_non_null(strstr(lab->text, "no valid \"CONNECT <port>\" line"));
	}
	assert_true(plug_is_closed(fd));
	close(fd);
	plug_teardown(state);
}

/* cloud-hypervisor #7195. */
static void line_byte_by_byte(void **state)
{
	struct plug_lab *lab = *state;
	int fd = plug_connect(lab);

	for (const char *p = "CONNECT 4294967294\r\n"; *p; p++) {
		char byte[2] = { *p, '\0' };

		assert_int_equal(lab->n_owners, 0);
		plug_program_sends(lab, fd, byte);
	}
	assert_int_equal(lab->n_owners, 1);
	assert_int_equal(lab->owners[0].port, 4294967294);
	close(fd);
}

/* A line counts from when it began: bytes now and then do not keep it open. */
static void silence(void **state)
{
	struct plug_lab *lab = *state;
	int silent = plug_connect(lab), slow = plug_connect(lab);

	plug_idle(lab);
	for (unsigned i = 0; i < 9; i++) {
		plug_program_sends(lab, slow, " ");
		warp_clock(RF_NS_PER_SEC);
		plug_idle(lab);
	}
	assert_false(plug_is_closed(silent));
	assert_false(plug_is_closed(slow));
	warp_clock(RF_NS_PER_SEC + RF_NS_PER_MS);
	plug_idle(lab);
	assert_true(plug_is_closed(silent));
	assert_true(plug_is_closed(slow));
	close(silent);
	close(slow);
}

/* Firecracker and cloud-hypervisor name the host's port. */
static void ok_names_the_host_port(void **state)
{
	struct plug_lab *lab = *state;
	char reply[32] = "";
	int fd;

	lab->ok_port = RF_HOST_OK_PORT_HOST;
	plug_reopen(lab);
	fd = plug_connect(lab);
	plug_program_sends(lab, fd, "CONNECT 1\n");
	plug_ops->established(lab->owners[0].line, 4294967294);
	assert_int_equal(read(fd, reply, sizeof(reply)), strlen("OK 4294967294\n"));
	assert_string_equal(reply, "OK 4294967294\n");
	close(fd);
}

/* The time for the line is over when the line is there; the guest's answer takes its own. */
static void line_time_ends_with_the_line(void **state)
{
	struct plug_lab *lab = *state;
	int fd = plug_connect(lab);

	plug_program_sends(lab, fd, "CONNECT 1\n");
	warp_clock(100 * RF_NS_PER_SEC);
	plug_idle(lab);
	assert_false(plug_is_closed(fd));
	plug_ops->established(lab->owners[0].line, 1u << 30);
	close(fd);
}

static void program_goes_before_its_line(void **state)
{
	struct plug_lab *lab = *state;
	unsigned before;
	int fd = plug_connect(lab);

	plug_idle(lab);
	before = open_fds();
	plug_program_sends(lab, fd, "CONNECT 12");
	close(fd);
	plug_idle(lab);
	assert_int_equal(lab->n_owners, 0);
	/* Its end and ours. */
	assert_int_equal(open_fds(), before - 2);
}

static void device_refuses(void **state)
{
	struct plug_lab *lab = *state;
	int fd = plug_connect(lab);

	lab->refuse = -ENOTCONN;
	plug_program_sends(lab, fd, "CONNECT 1\n");
	assert_true(plug_is_closed(fd));
	close(fd);
}

static void limit_of_lines(void **state)
{
	struct plug_lab *lab = *state;
	struct rf_vsock_line *line;
	int fds[16], more;

	for (unsigned i = 0; i < 16; i++) {
		fds[i] = plug_connect(lab);
		plug_program_sends(lab, fds[i], "CONNECT 1\n");
	}
	more = plug_connect(lab);
	plug_idle(lab);
	assert_true(plug_is_closed(more));
	assert_int_equal(lab->n_full, 1);
	close(more);
	assert_int_equal(plug_dial(lab, 1, &lab->owners[0], &line), -ENOSPC);
	plug_ops->close(lab->owners[0].line, RF_VSOCK_CLOSED);
	close(fds[0]);
	more = plug_connect(lab);
	plug_idle(lab);
	assert_false(plug_is_closed(more));
	/* A silent one gives way to the guest, and there is no other. */
	assert_int_equal(plug_dial(lab, 1, &lab->owners[0], &line), 0);
	assert_true(plug_is_closed(more));
	assert_int_equal(plug_dial(lab, 1, &lab->owners[0], &line), -ENOSPC);
	close(more);
	for (unsigned i = 1; i < 16; i++)
		close(fds[i]);
}

static const struct CMUnitTest tests[] = {
	PLUG_TEST(line_byte_by_byte),
	PLUG_TEST(silence),
	PLUG_TEST(ok_names_the_host_port),
	PLUG_TEST(line_time_ends_with_the_line),
	PLUG_TEST(program_goes_before_its_line),
	PLUG_TEST(device_refuses),
	PLUG_TEST(limit_of_lines),
};

int main(void)
{
	static struct rig_group group;

	rig_group_add_rows(&group, connect_line, line_rows, RF_ARRAY_SIZE(line_rows),
			   sizeof(line_rows[0]));
	rig_group_add(&group, tests, RF_ARRAY_SIZE(tests));
	return rig_group_run(&group, "vsock-plug-line");
}
