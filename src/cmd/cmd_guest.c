/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ringferry guest: a guest's vsock without a virtual machine.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "cmd_guest.h"
#include "guest/switches.h"
#include "options.h"
#include "service.h"

#define QUEUE_SIZE_MAX 32768u
/* Descriptors for as many sockets as a guest has, two event fds each, and for the rest. */
#define WANTED_FDS (2 * 32768 + 64)
#define TUNE_BYTES 1024

struct guest_options {
	const char *socket, *vhost_device;
	uint64_t guest_cid;
	uint64_t rx_buf;
	uint64_t queue_size;
	int poll_us;
	bool print_ready;
	int log_level;
	/* Switches of --tune, separated by commas. */
	char tune[TUNE_BYTES];
	struct rf_guest_services services;
	/* Operands: one connection instead of services. */
	bool netcat, listen;
	struct rf_sockaddr addr;
};

static int add_service(struct guest_options *options, struct rf_guest_service service,
		       char *allowed, size_t allowed_bytes)
{
	struct rf_guest_services *services = &options->services;

	if (services->n == RF_GUEST_MAX_SERVICES) {
		snprintf(allowed, allowed_bytes, "at most %u services", RF_GUEST_MAX_SERVICES);
		return -EINVAL;
	}
	services->list[services->n++] = service;
	return 0;
}

static int parse_service(const struct rf_opt *opt, const char *value, void *options, char *allowed,
			 size_t allowed_bytes)
{
	struct rf_guest_service service = {
		.kind = strcmp(opt->name, "echo") == 0 ? RF_GUEST_ECHO : RF_GUEST_SINK,
	};

	if (rf_port_parse(value, &service.port) < 0) {
		snprintf(allowed, allowed_bytes, "a port from 0 to %u", UINT32_MAX - 1);
		return -EINVAL;
	}
	return add_service(options, service, allowed, allowed_bytes);
}

static int parse_source(const struct rf_opt *opt RF_UNUSED, const char *value, void *options,
			char *allowed, size_t allowed_bytes)
{
	struct rf_guest_service service = { .kind = RF_GUEST_SOURCE };
	const char *colon = strchr(value, ':');
	char port[sizeof("4294967295")];
	size_t len = colon ? (size_t)(colon - value) : sizeof(port);

	if (len < sizeof(port)) {
		memcpy(port, value, len);
		port[len] = '\0';
	}
	if (len >= sizeof(port) || rf_port_parse(port, &service.port) < 0 ||
	    rf_size_parse(colon + 1, &service.bytes) < 0) {
		snprintf(allowed, allowed_bytes,
			 "PORT:BYTES, a port from 0 to %u and a number with optional k, m or g",
			 UINT32_MAX - 1);
		return -EINVAL;
	}
	return add_service(options, service, allowed, allowed_bytes);
}

/* What the library is to set, if it is allowed. */
static int parse_tune(const struct rf_opt *opt RF_UNUSED, const char *value, void *options,
		      char *allowed, size_t allowed_bytes)
{
	struct guest_options *o = options;
	struct rf_guest_switches trial;
	size_t len = strlen(o->tune);
	int r = rf_opt_switch(rf_guest_switch_defs, rf_guest_n_switches, &trial, value, allowed,
			      allowed_bytes);

	if (r < 0)
		return r;
	if (len + 1 + strlen(value) >= sizeof(o->tune)) {
		snprintf(allowed, allowed_bytes, "each switch once");
		return -EINVAL;
	}
	snprintf(o->tune + len, sizeof(o->tune) - len, "%s%s", len ? "," : "", value);
	return 0;
}

#define AT(member) offsetof(struct guest_options, member)

#define SWITCH_HELP(member, name, type, def, values, help) "\n" name "=" values ", default " def "."

static const struct rf_opt opts[] = {
	{ "socket", 0, RF_OPT_STRING, "PATH",
	  "The back end's vhost-user socket (ringferry vsock --socket), waited for 10 seconds. "
	  "This or --vhost-device is required.",
	  .offset = AT(socket) },
	{ "vhost-device", 0, RF_OPT_STRING, "PATH",
	  "The kernel's back end, /dev/vhost-vsock (module vhost_vsock). With --guest-cid.",
	  .offset = AT(vhost_device) },
	{ "guest-cid", 0, RF_OPT_NUMBER, "N",
	  "The CID to ask the kernel's back end for, 3 to 4294967294. Another back end says which "
	  "it is.",
	  .min = 3, .max = UINT32_MAX - 1, .offset = AT(guest_cid) },
	{ "echo", 0, RF_OPT_CUSTOM, "PORT", "Send back what comes. May be repeated.",
	  .parse = parse_service },
	{ "sink", 0, RF_OPT_CUSTOM, "PORT",
	  "Read to the end, and print one line per connection. May be repeated.",
	  .parse = parse_service },
	{ "source", 0, RF_OPT_CUSTOM, "PORT:BYTES",
	  "Send so many bytes (k, m, g allowed), close, and print one line per connection. May be "
	  "repeated.",
	  .parse = parse_source },
	{ "seed", 0, RF_OPT_NUMBER, "N",
	  "What a source's bytes follow from: the same for the same N. Default 1.",
	  .max = UINT64_MAX, .offset = AT(services.seed) },
	{ "rx-buf", 0, RF_OPT_SIZE, "BYTES",
	  "Payload that the largest receive buffers hold, 256 to 1m. Default 65536.", .min = 256,
	  .max = 1u << 20, .offset = AT(rx_buf) },
	{ "queue-size", 0, RF_OPT_NUMBER, "N",
	  "Size of the rings, a power of two from 2 to 32768. Default 256.", .min = 2,
	  .max = QUEUE_SIZE_MAX, .offset = AT(queue_size) },
	{ "poll-us", 0, RF_OPT_CUSTOM, "N",
	  "What waits for the host polls for N microseconds, 0 to 1000, before it sleeps: answers "
	  "come sooner, for CPU time. Nothing is polled while nothing happens. auto: for 50 at "
	  "most, as long as it pays. Default 0.",
	  .parse = rf_opt_poll_us, .offset = AT(poll_us) },
	{ "tune", 0, RF_OPT_LIST, "NAME=VALUE",
	  "Set a switch, for measurements; may be repeated." RF_GUEST_SWITCHES(SWITCH_HELP),
	  .parse = parse_tune },
	{ "print-ready", 0, RF_OPT_FLAG, NULL,
	  "Print the line \"ready CID\" on standard output (with an operand: standard error) when "
	  "the back end is attached and the ports are open.",
	  .offset = AT(print_ready) },
	{ "log-level", 0, RF_OPT_CUSTOM, "LEVEL", "error, warning, info or debug. Default warning.",
	  .parse = rf_opt_log_level, .offset = AT(log_level) },
};

static int check_port(const char *text, struct guest_options *options)
{
	if (rf_port_parse(text, &options->addr.port) < 0)
		return rf_opts_error(&rf_cmd_guest, "PORT",
				     "\"%.200s\" is no port; allowed: a number from 0 to %u", text,
				     UINT32_MAX - 1);
	return 0;
}

static int check_cid(const char *text, struct guest_options *options)
{
	/* A CID has the range of a port: 2^32 - 1 is nobody's. */
	if (rf_port_parse(text, &options->addr.cid) < 0)
		return rf_opts_error(&rf_cmd_guest, "CID",
				     "\"%.200s\" is no CID; allowed: a number, 2 is the host",
				     text);
	return 0;
}

static int check_operands(char **operands, int n, struct guest_options *options)
{
	int status = 0;

	if (n == 0)
		return 0;
	options->netcat = true;
	options->listen = !strcmp(operands[0], "listen");
	if (options->listen ? n != 2 : n != 3 || strcmp(operands[0], "connect") != 0)
		return rf_opts_error(&rf_cmd_guest, "operands",
				     "allowed: connect CID PORT, or listen PORT");
	if (options->services.n)
		return rf_opts_error(&rf_cmd_guest, operands[0],
				     "not allowed together with --echo, --sink or --source");
	if (!options->listen)
		status = check_cid(operands[1], options);
	return status ? status : check_port(operands[n - 1], options);
}

static int check_back_end(const struct guest_options *options)
{
	if (!options->socket && !options->vhost_device)
		return rf_opts_error(&rf_cmd_guest, "--socket",
				     "required, unless --vhost-device is given; allowed: PATH");
	if (options->socket && options->vhost_device)
		return rf_opts_error(&rf_cmd_guest, "--vhost-device",
				     "not allowed together with --socket; allowed: one of them");
	if (options->vhost_device && !options->guest_cid)
		return rf_opts_error(&rf_cmd_guest, "--guest-cid",
				     "required with --vhost-device; allowed: a number from 3 to %u",
				     UINT32_MAX - 1);
	if (options->socket && options->guest_cid)
		return rf_opts_error(&rf_cmd_guest, "--guest-cid",
				     "not allowed together with --socket: the back end there has a "
				     "CID for its guest; allowed with --vhost-device");
	return 0;
}

static int check(const struct guest_options *options)
{
	int status = check_back_end(options);

	if (status)
		return status;
	if (!options->netcat && !options->services.n)
		return rf_opts_error(&rf_cmd_guest, "services",
				     "missing; allowed: --echo, --sink, --source, connect CID "
				     "PORT, listen PORT");
	if (!rf_is_power_of_2(options->queue_size))
		return rf_opts_error(&rf_cmd_guest, "--queue-size",
				     "%" PRIu64 " is not allowed; a power of two from 2 to %u is",
				     options->queue_size, QUEUE_SIZE_MAX);
	return 0;
}

static void log_line(void *ctx, int level, const char *line)
{
	(void)ctx;
	(void)level;
	/* As all that this subcommand has to say. */
	fprintf(stderr, "ringferry guest: %s\n", line);
}

static const char *attach_error(int r, const char *path)
{
	switch (r) {
	case -ETIMEDOUT:
		if (access(path, F_OK) < 0 && errno == ENOENT)
			return "no such socket: is the back end running?";
		return "no back end has answered: is this its --socket, is it running, and without "
		       "another guest?";
	case -ENOTSUP:
		return "this is no vsock back end that has a configuration space";
	case -EPROTO:
		return "the back end breaks off: does another guest use it, or is --queue-size too "
		       "large? (--log-level info tells more)";
	case -ENAMETOOLONG:
		return "the path is too long for a socket: allowed are 107 bytes";
	default:
		return strerror(-r);
	}
}

/* The same for the kernel's device. */
static const char *device_error(int r)
{
	switch (r) {
	case -ENOENT:
	case -ENODEV:
	case -ENXIO:
		return "the kernel has no such device: modprobe vhost_vsock makes /dev/vhost-vsock";
	case -EACCES:
	case -EPERM:
		return "not for this user: root and, in many systems, the group kvm may use it";
	case -ENOTSUP:
		return "this is no vhost vsock device of virtio 1";
	case -EADDRINUSE:
		return "another guest of this machine has the CID of --guest-cid";
	default:
		return strerror(-r);
	}
}

static struct rf_guest *guest_open(const struct guest_options *options)
{
	const char *path = options->vhost_device ? options->vhost_device : options->socket;
	struct rf_guest_options o;
	struct rf_guest *guest;
	int r;

	rf_guest_options_init(&o);
	o.socket_path = options->socket;
	o.vhost_device = options->vhost_device;
	o.guest_cid = (uint32_t)options->guest_cid;
	o.queue_size = (uint32_t)options->queue_size;
	o.rx_buf_bytes = (uint32_t)options->rx_buf;
	o.tune = options->tune;
	o.poll_us = options->poll_us;
	o.log_level = options->log_level;
	o.log = log_line;
	r = rf_guest_open(&o, &guest);
	if (r == 0)
		return guest;
	fprintf(stderr, "ringferry guest: %.200s: %s\n", path,
		options->vhost_device ? device_error(r) : attach_error(r, path));
	return NULL;
}

static json_t *counters(void *ctx)
{
	char *text = rf_guest_counters_json(ctx);
	json_t *json = text ? json_loads(text, 0, NULL) : NULL;

	free(text);
	return json;
}

/* The loop ends by a signal, or with the one connection. */
static int run_loop(struct rf_loop *loop, struct rf_guest *guest,
		    const struct guest_options *options)
{
	/* In netcat mode standard output is the connection's. */
	if (options->print_ready)
		fprintf(options->netcat ? stderr : stdout, "ready %" PRIu32 "\n",
			rf_guest_cid(guest));
	fflush(stdout);
	rf_service_ready(false);
	return rf_loop_run(loop) < 0 ? 1 : 0;
}

static int run_services(struct rf_loop *loop, struct rf_guest *guest,
			const struct guest_options *options)
{
	struct rf_guest_server *server;
	uint32_t port = 0;
	int status, r;

	r = rf_guest_serve_new(loop, guest, &options->services, &server, &port);
	if (r < 0) {
		fprintf(stderr, "ringferry guest: port %" PRIu32 ": %s\n", port, strerror(-r));
		return 1;
	}
	status = run_loop(loop, guest, options);
	rf_guest_serve_free(server);
	return status;
}

static int run_netcat(struct rf_loop *loop, struct rf_guest *guest,
		      const struct guest_options *options)
{
	struct rf_guest_netcat *netcat;
	int status, r;

	r = rf_guest_netcat_new(loop, guest, options->listen, &options->addr, &netcat);
	if (r < 0) {
		fprintf(stderr, "ringferry guest: %s\n", strerror(-r));
		return 1;
	}
	status = run_loop(loop, guest, options);
	return rf_guest_netcat_free(netcat) || status;
}

static int run(struct rf_loop *loop, const struct guest_options *options)
{
	struct rf_service service = { .counters = counters };
	struct rf_guest *guest;
	int status = 1;
	int r;

	guest = guest_open(options);
	if (!guest)
		return 1;
	service.ctx = guest;
	r = rf_service_begin(&service, loop);
	if (r < 0)
		fprintf(stderr, "ringferry guest: cannot start: %s\n", strerror(-r));
	else if (options->netcat)
		status = run_netcat(loop, guest, options);
	else
		status = run_services(loop, guest, options);
	rf_guest_close(guest);
	rf_service_end(&service);
	return status;
}

static int guest_main(int argc, char **argv)
{
	struct guest_options options = {
		.rx_buf = 65536,
		.queue_size = 256,
		.services.seed = 1,
		.log_level = RF_LOG_WARNING,
		.addr = { .cid = RF_CID_HOST },
	};
	struct rf_loop *loop;
	int status, first, r;

	if (!rf_opts_parse(&rf_cmd_guest, argc, argv, &options, &status, &first))
		return status;
	status = check_operands(argv + first, argc - first, &options);
	if (!status)
		status = check(&options);
	if (status)
		return status;
	rf_fd_raise_limit(WANTED_FDS);
	r = rf_loop_new(&loop);
	if (r < 0) {
		fprintf(stderr, "ringferry guest: cannot start: %s\n", strerror(-r));
		return 1;
	}
	status = run(loop, &options);
	rf_loop_free(loop);
	return status;
}

const struct rf_cmd rf_cmd_guest = {
	.name = "guest",
	.usage = "[connect CID PORT | listen PORT]",
	.summary = "Be a guest without a virtual machine, on a vhost vsock back end.",
	.details =
		"With an operand, standard input and output are one connection's, as with netcat: "
		"at the end of standard input the sending direction is shut down, and the program "
		"ends when both directions have ended. Without, ports are served; sink and source "
		"print \"sink|source port=P peer=CID:PORT bytes=N sha256=H\", and at the end "
		"\"error=NAME\" if the connection broke. When the back end goes away, connections "
		"end, and it is attached again when it comes back. SIGUSR1 prints counters as one "
		"line of JSON on standard error; SIGTERM and SIGINT end the program.",
	.opts = opts,
	.n_opts = RF_ARRAY_SIZE(opts),
	.max_operands = 3,
	.main = guest_main,
};
