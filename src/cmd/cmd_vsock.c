/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ringferry vsock: the host half of one guest's vsock.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/fd.h"
#include "base/log.h"
#include "host/limits.h"
#include "host/listener.h"
#include "host/vsock_device.h"
#include "options.h"
#include "service.h"
#include "vsock/packet.h"

#define MODE_UNSET UINT64_MAX
#define FD_UNSET   UINT64_MAX
/* "_4294967295", behind the path of the hybrid socket. */
#define PORT_SUFFIX_BYTES 11
/* Descriptors of a device besides its connections: rings, memory, sockets. */
#define OTHER_FDS 256

struct vsock_options {
	uint64_t guest_cid;
	const char *socket;
	const char *uds_path;
	uint64_t window;
	uint64_t queue_size;
	uint64_t socket_mode;
	uint64_t uds_mode;
	uint64_t fd;
	bool print_ready;
	int log_level;
	struct rf_host_switches switches;
};

static int parse_log_level(const struct rf_opt *opt, const char *value, void *options,
			   char *allowed, size_t allowed_bytes)
{
	int level = rf_log_level_parse(value);

	(void)opt;
	if (level < 0) {
		snprintf(allowed, allowed_bytes, "error, warning, info or debug");
		return -EINVAL;
	}
	((struct vsock_options *)options)->log_level = level;
	return 0;
}

static void list_switches(char *text, size_t bytes)
{
	size_t used = (size_t)snprintf(text, bytes, "NAME=VALUE with NAME one of");

	for (size_t i = 0; i < rf_host_n_switches && used < bytes; i++)
		used += (size_t)snprintf(text + used, bytes - used, "%s %s", i ? "," : "",
					 rf_host_switch_defs[i].name);
}

static int parse_tune(const struct rf_opt *opt, const char *value, void *options, char *allowed,
		      size_t allowed_bytes)
{
	struct rf_host_switches *switches = &((struct vsock_options *)options)->switches;
	const char *equals = strchr(value, '=');
	const struct rf_switch_def *def = NULL;
	int r = -ENOENT;

	(void)opt;
	if (equals)
		r = rf_switch_set(rf_host_switch_defs, rf_host_n_switches, switches, value,
				  (size_t)(equals - value), equals + 1, &def);
	if (r == -ENOENT)
		list_switches(allowed, allowed_bytes);
	else if (r < 0)
		snprintf(allowed, allowed_bytes, "%s=%s", def->name,
			 def->values ? def->values : "on|off");
	return r < 0 ? -EINVAL : 0;
}

#define AT(member) offsetof(struct vsock_options, member)

static const struct rf_opt opts[] = {
	{ "guest-cid", 0, RF_OPT_NUMBER, "N", "The guest's CID, 3 to 4294967294. Required.",
	  .required = true, .min = 3, .max = RF_VSOCK_CID_ANY - 1, .offset = AT(guest_cid) },
	{ "socket", 0, RF_OPT_STRING, "PATH",
	  "vhost-user socket on which the VMM, or a user-space guest, connects. Required unless "
	  "--fd is "
	  "given.",
	  .offset = AT(socket) },
	{ "uds-path", 0, RF_OPT_STRING, "PATH",
	  "Hybrid socket: host programs connect to PATH and send \"CONNECT port\"; the guest's "
	  "connections to port P of the host go to PATH_P. Required.",
	  .required = true, .offset = AT(uds_path) },
	{ "tx-buffer-size", 0, RF_OPT_SIZE, "BYTES",
	  "Bytes that the guest may have under way on one connection. Default 262144.",
	  .min = RF_VSOCK_WINDOW_MIN, .max = RF_VSOCK_WINDOW_MAX, .offset = AT(window) },
	{ "queue-size", 0, RF_OPT_NUMBER, "N",
	  "Largest ring that the guest may set up, a power of two. Default 1024.",
	  .min = RF_VSOCK_QUEUE_MIN, .max = RF_VSOCK_QUEUE_MAX, .offset = AT(queue_size) },
	{ "socket-mode", 0, RF_OPT_MODE, "MODE",
	  "Permissions of the vhost-user socket, octal. Default: what the umask leaves.",
	  .offset = AT(socket_mode) },
	{ "uds-mode", 0, RF_OPT_MODE, "MODE",
	  "Permissions of the hybrid socket, octal. Default: what the umask leaves.",
	  .offset = AT(uds_mode) },
	{ "fd", 0, RF_OPT_NUMBER, "N",
	  "Use descriptor N, a listening vhost-user socket or a front end's connected one, instead "
	  "of "
	  "--socket. With a connected one the program ends when the front end leaves.",
	  .max = INT32_MAX, .offset = AT(fd) },
	{ "print-ready", 0, RF_OPT_FLAG, NULL,
	  "Print the line \"ready\" on standard output when the sockets are open.",
	  .offset = AT(print_ready) },
	{ "log-level", 0, RF_OPT_CUSTOM, "LEVEL", "error, warning, info or debug. Default warning.",
	  .parse = parse_log_level },
	{ "tune", 0, RF_OPT_CUSTOM, "NAME=VALUE",
	  "Set a switch, for measurements: merge=on|off, credit=batched|eager. May be repeated.",
	  .parse = parse_tune },
};

static int socket_option(int fd, int option)
{
	int value = -1;
	socklen_t size = sizeof(value);

	return getsockopt(fd, SOL_SOCKET, option, &value, &size) < 0 ? -1 : value;
}

/* A unix stream socket that listens or is connected. */
static bool fd_usable(int fd)
{
	struct sockaddr_un peer;
	socklen_t size = sizeof(peer);

	return socket_option(fd, SO_DOMAIN) == AF_UNIX &&
	       socket_option(fd, SO_TYPE) == SOCK_STREAM &&
	       (socket_option(fd, SO_ACCEPTCONN) == 1 ||
		getpeername(fd, (struct sockaddr *)&peer, &size) == 0);
}

/* Checks that need more than one option, or what no table row can say. */
static int check_options(const struct vsock_options *options)
{
	if (options->socket && options->fd != FD_UNSET)
		return rf_opts_error(&rf_cmd_vsock, "--fd", "not allowed together with --socket");
	if (!options->socket && options->fd == FD_UNSET)
		return rf_opts_error(&rf_cmd_vsock, "--socket", "required, unless --fd is given");
	if (options->fd != FD_UNSET && !fd_usable((int)options->fd))
		return rf_opts_error(&rf_cmd_vsock, "--fd",
				     "descriptor %" PRIu64 " is not allowed; a unix stream socket "
				     "that listens or is connected is",
				     options->fd);
	if (options->socket && !strcmp(options->socket, options->uds_path))
		return rf_opts_error(&rf_cmd_vsock, "--uds-path",
				     "the same as --socket; another path is needed");
	if (options->socket && !rf_unix_path_fits(options->socket, 0))
		return rf_opts_error(&rf_cmd_vsock, "--socket",
				     "path too long; at most 107 bytes are allowed");
	if (!rf_unix_path_fits(options->uds_path, PORT_SUFFIX_BYTES))
		return rf_opts_error(
			&rf_cmd_vsock, "--uds-path",
			"path too long; at most 96 bytes are allowed, so that _4294967295 fits "
			"behind it");
	if (options->queue_size & (options->queue_size - 1))
		return rf_opts_error(&rf_cmd_vsock, "--queue-size",
				     "%" PRIu64 " is not allowed; a power of two from %u to %u is",
				     options->queue_size, RF_VSOCK_QUEUE_MIN, RF_VSOCK_QUEUE_MAX);
	return 0;
}

static int mode_of(uint64_t mode)
{
	return mode == MODE_UNSET ? RF_LISTENER_MODE_DEFAULT : (int)mode;
}

/**
 * struct server - What runs
 * @loop:	Its loop
 * @device:	The one device
 * @failed:	The front end broke its session
 */
struct server {
	struct rf_loop *loop;
	struct rf_vsock_device *device;
	bool failed;
};

static json_t *server_counters(void *ctx)
{
	const struct server *server = ctx;

	return json_pack("{s:o*, s:[o]}", "loop",
			 rf_counters_json(rf_loop_counter_defs, rf_loop_n_counters,
					  rf_loop_counters(server->loop)),
			 "devices", rf_vsock_device_json(server->device));
}

/* Nobody can come after the front end of a connected descriptor. */
static void front_end_left(void *ctx, bool orderly)
{
	struct server *server = ctx;

	server->failed = !orderly;
	rf_loop_quit(server->loop);
}

static int open_device(struct server *server, const struct vsock_options *options,
		       const struct rf_log *log)
{
	struct rf_vsock_device_options device;
	char name[sizeof("cid 4294967295")];

	snprintf(name, sizeof(name), "cid %" PRIu32, (uint32_t)options->guest_cid);
	rf_vsock_device_options_init(&device);
	device.name = name;
	device.guest_cid = options->guest_cid;
	device.socket_path = options->socket;
	device.socket_fd = options->fd == FD_UNSET ? -1 : (int)options->fd;
	device.socket_mode = mode_of(options->socket_mode);
	device.plug_path = options->uds_path;
	device.plug_mode = mode_of(options->uds_mode);
	device.window = (uint32_t)options->window;
	device.queue_size = (uint32_t)options->queue_size;
	device.switches = options->switches;
	if (options->fd != FD_UNSET && socket_option((int)options->fd, SO_ACCEPTCONN) == 0)
		device.left = front_end_left;
	device.ctx = server;
	device.log = log;
	return rf_vsock_device_new(server->loop, &device, &server->device);
}

static void raise_fd_limit(const struct rf_log *log)
{
	int64_t want = RF_HOST_MAX_CONNS + OTHER_FDS;
	int64_t limit = rf_fd_raise_limit((uint64_t)want);

	if (limit >= 0 && limit < want)
		rf_log(log, RF_LOG_WARNING,
		       "only %" PRId64
		       " descriptors are allowed (ulimit -n); %u connections need %" PRId64,
		       limit, RF_HOST_MAX_CONNS, want);
}

static int serve(const struct vsock_options *options)
{
	const struct rf_log log = { .level = (enum rf_log_level)options->log_level,
				    .sink = rf_log_stderr };
	struct server server = { 0 };
	struct rf_service service = { .counters = server_counters, .ctx = &server };
	int r = rf_loop_new(&server.loop);

	if (r < 0) {
		rf_log(&log, RF_LOG_ERROR, "cannot start: %s", strerror(-r));
		return 1;
	}
	raise_fd_limit(&log);
	r = rf_service_begin(&service, server.loop);
	if (r == 0)
		r = open_device(&server, options, &log);
	if (r == 0) {
		rf_service_ready(options->print_ready);
		r = rf_loop_run(server.loop);
	}
	rf_vsock_device_free(server.device);
	rf_service_end(&service);
	rf_loop_free(server.loop);
	return r < 0 || server.failed ? 1 : 0;
}

static int vsock_main(int argc, char **argv)
{
	struct vsock_options options = {
		.window = RF_VSOCK_WINDOW_DEFAULT,
		.queue_size = RF_VSOCK_QUEUE_DEFAULT,
		.socket_mode = MODE_UNSET,
		.uds_mode = MODE_UNSET,
		.fd = FD_UNSET,
		.log_level = RF_LOG_WARNING,
	};
	int status, first;

	rf_switches_default(rf_host_switch_defs, rf_host_n_switches, &options.switches);
	if (!rf_opts_parse(&rf_cmd_vsock, argc, argv, &options, &status, &first))
		return status;
	status = check_options(&options);
	return status ? status : serve(&options);
}

const struct rf_cmd rf_cmd_vsock = {
	.name = "vsock",
	.usage = "",
	.summary = "Serve a guest's vsock: the back end a VMM connects to.",
	.details = "SIGUSR1 prints counters and switches as one line of JSON on standard error; "
		   "SIGTERM "
		   "and SIGINT end the program and remove its sockets.",
	.opts = opts,
	.n_opts = RF_ARRAY_SIZE(opts),
	.main = vsock_main,
};
