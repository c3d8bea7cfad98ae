/* SPDX-License-Identifier: BSD-3-Clause */
#include "plug_lab.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int on_asked(void *device, struct rf_vsock_line *line, uint32_t port, void **ret_owner)
{
	struct plug_lab *lab = device;
	struct plug_owner *owner;

	if (lab->refuse)
		return lab->refuse;
	owner = &lab->owners[lab->n_owners++];
	*owner = (struct plug_owner){ .line = line, .port = port };
	*ret_owner = owner;
	return 0;
}

static void on_dialled(void *ctx, int result)
{
	struct plug_owner *owner = ctx;

	assert_int_equal(owner->dialled, PLUG_NOT_YET);
	owner->dialled = result;
}

static void on_ready(void *ctx, unsigned bits)
{
	struct plug_owner *owner = ctx;

	owner->bits |= bits;
	owner->n_ready++;
}

static void on_turned_away(void *ctx, int why)
{
	struct plug_lab *lab = ctx;

	lab->n_full += why == -ENOSPC;
}

static const struct rf_vsock_plug_user user = {
	.asked = on_asked,
	.dialled = on_dialled,
	.ready = on_ready,
	.turned_away = on_turned_away,
};

static void take_line(void *ctx, enum rf_log_level level RF_UNUSED, const char *name RF_UNUSED,
		      const char *line)
{
	struct plug_lab *lab = ctx;
	size_t used = strlen(lab->text);

	snprintf(lab->text + used, sizeof(lab->text) - used, "%s\n", line);
}

static void lab_open(struct plug_lab *lab, unsigned max_lines)
{
	const struct rf_vsock_plug_options options = {
		.loop = lab->loop,
		.log = &lab->log,
		.path = lab->uds,
		.access = { -1, (uid_t)-1, (gid_t)-1 },
		.max_lines = max_lines,
		.dial_ns = PLUG_DIAL_NS,
		.line_ns = PLUG_LINE_NS,
		.ok_port = lab->ok_port,
		.user = &user,
		.device = lab,
	};

	assert_int_equal(plug_ops->open(&options, &lab->plug), 0);
}

int plug_setup(void **state)
{
	struct plug_lab *lab = calloc(1, sizeof(*lab));

	assert_non_null(lab);
	assert_int_equal(rf_loop_new(&lab->loop), 0);
	lab->log = (struct rf_log){ .level = RF_LOG_INFO, .sink = take_line, .ctx = lab };
	strcpy(lab->dir, "/tmp/rf-plug-XXXXXX");
	assert_non_null(mkdtemp(lab->dir));
	snprintf(lab->uds, sizeof(lab->uds), "%s/uds", lab->dir);
	lab_open(lab, PLUG_MAX_LINES);
	*state = lab;
	return 0;
}

int plug_teardown(void **state)
{
	struct plug_lab *lab = *state;

	if (lab->plug)
		plug_ops->free(lab->plug);
	rf_loop_free(lab->loop);
	assert_int_equal(rmdir(lab->dir), 0);
	free(lab);
	return 0;
}

void plug_reopen(struct plug_lab *lab)
{
	plug_ops->free(lab->plug);
	lab_open(lab, PLUG_MAX_LINES);
}

void plug_idle(struct plug_lab *lab)
{
	fake_loop_idle(lab->loop);
}

int plug_new_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_true(fd >= 0);
	return fd;
}

int plug_connect(struct plug_lab *lab)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int fd = plug_new_socket();

	memcpy(addr.sun_path, lab->uds, strlen(lab->uds));
	assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	return fd;
}

void plug_program_sends(struct plug_lab *lab, int fd, const char *text)
{
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
	plug_idle(lab);
}

struct plug_owner *plug_open_asked(struct plug_lab *lab, int *ret_fd)
{
	struct plug_owner *owner = &lab->owners[lab->n_owners];
	char ok[32];

	*ret_fd = plug_connect(lab);
	plug_program_sends(lab, *ret_fd, "CONNECT 9\n");
	plug_ops->established(owner->line, 1u << 30);
	assert_int_equal(read(*ret_fd, ok, sizeof(ok)), 5);
	plug_idle(lab);
	owner->bits = owner->n_ready = 0;
	return owner;
}

int plug_dial(struct plug_lab *lab, uint32_t port, void *owner, struct rf_vsock_line **ret_line)
{
	const struct rf_vsock_key key = {
		.local_cid = RF_VSOCK_CID_HOST,
		.local_port = port,
		.peer_cid = FAKE_CID,
		.peer_port = 1025,
	};

	return plug_ops->dial(lab->plug, &key, owner, ret_line);
}

ssize_t plug_device_sends(struct plug_owner *owner, const char *text)
{
	char buf[100];

	strcpy(buf, text);
	return plug_ops->send(owner->line, &(struct iovec){ buf, strlen(text) }, 1);
}

bool plug_is_closed(int fd)
{
	char c;
	ssize_t n = read(fd, &c, 1);

	assert_true(n <= 0);
	return n == 0 || errno == ECONNRESET;
}
