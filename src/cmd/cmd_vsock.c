/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ringferry vsock: the host half of the vsock of one or more guests.
 */
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/log.h"
#include "host/listener.h"
#include "host/vsock_device.h"
#include "options.h"
#include "service.h"
#include "vsock_setup.h"

/* Descriptors of a device besides its connections: rings, memory, sockets. */
#define OTHER_FDS 256

struct server;

/**
 * struct served - One device
 * @server:	The server
 * @device:	NULL when it has ended
 * @spec:	What it was asked to be
 * @ends:	It ends when its front end leaves
 */
struct served {
	struct server *server;
	struct rf_vsock_device *device;
	const struct rf_vsock_spec *spec;
	bool ends;
};

/**
 * struct server - What runs
 * @loop:	Its loop
 * @served:	Devices
 * @n_served:	Their number
 * @n_open:	Those that have not ended
 * @failed:	One ended because of what its front end did
 */
struct server {
	struct rf_loop *loop;
	struct served *served;
	unsigned n_served;
	unsigned n_open;
	bool failed;
};

static json_t *server_counters(void *ctx)
{
	const struct server *server = ctx;
	json_t *devices = json_array();

	for (unsigned i = 0; i < server->n_served; i++)
		if (server->served[i].device)
			(void)json_array_append_new(devices,
						    rf_vsock_device_json(server->served[i].device));
	return json_pack("{s:o*, s:o}", "loop",
			 rf_counters_json(rf_loop_counter_defs, rf_loop_n_counters,
					  rf_loop_counters(server->loop)),
			 "devices", devices);
}

/* The program ends with its last device. */
static void front_end_left(void *ctx, bool orderly)
{
	struct served *served = ctx;
	struct server *server = served->server;

	if (!served->ends)
		return;
	rf_vsock_device_free(served->device);
	served->device = NULL;
	server->failed |= !orderly;
	if (--server->n_open == 0)
		rf_loop_quit(server->loop);
}

static int mode_of(uint64_t mode)
{
	return mode == RF_VSOCK_UNSET ? RF_LISTENER_MODE_DEFAULT : (int)mode;
}

/* Nobody can come after the front end of a connected descriptor. */
static bool fd_connected(uint64_t fd)
{
	int listening = 1;
	socklen_t size = sizeof(listening);

	return fd != RF_VSOCK_UNSET &&
	       getsockopt((int)fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) == 0 && !listening;
}

static void device_options(const struct rf_vsock_spec *spec, struct rf_vsock_device_options *device)
{
	device->guest_cid = spec->guest_cid;
	device->socket_path = spec->socket;
	device->socket_fd = spec->fd == RF_VSOCK_UNSET ? -1 : (int)spec->fd;
	device->socket_mode = mode_of(spec->socket_mode);
	device->plug_path = spec->uds_path;
	device->plug_mode = mode_of(spec->uds_mode);
	device->plug_uid = spec->uds_uid;
	device->plug_gid = spec->uds_gid;
	device->window = (uint32_t)spec->window;
	device->queue_size = (uint32_t)spec->queue_size;
	device->max_conns = (unsigned)spec->max_conns;
	device->handshake_ns = spec->handshake_ns;
	device->shutdown_ns = spec->shutdown_ns;
	device->line_ns = spec->line_ns;
	device->ok_port = spec->ok_port;
	device->switches = spec->switches;
}

static int open_device(struct served *served, const struct rf_log *log)
{
	struct rf_vsock_device_options device;
	char name[sizeof("cid 4294967295")];
	int r;

	snprintf(name, sizeof(name), "cid %" PRIu32, (uint32_t)served->spec->guest_cid);
	rf_vsock_device_options_init(&device);
	device_options(served->spec, &device);
	device.name = name;
	device.last_front = served->ends;
	device.left = front_end_left;
	device.ctx = served;
	device.log = log;
	r = rf_vsock_device_new(served->server->loop, &device, &served->device);
	if (r == 0)
		served->server->n_open++;
	return r;
}

/* Rounded up. */
static uint64_t to_mib(uint64_t bytes)
{
	return (bytes + (1u << 20) - 1) >> 20;
}

static void memory_format(const struct rf_vsock_spec *spec, char *buf, size_t buf_bytes)
{
	uint64_t socket_bytes, bytes = rf_vsock_spec_memory(spec, &socket_bytes);
	uint64_t window_bytes = bytes / spec->max_conns - socket_bytes;

	snprintf(buf, buf_bytes,
		 "max-connections %" PRIu64 ", which may pin %" PRIu64 " MiB of memory (%" PRIu64
		 " bytes of window and %" PRIu64 " of socket buffers each)",
		 spec->max_conns, to_mib(bytes), window_bytes, socket_bytes);
}

/* One line for each device: what would be served. And one for all of them. */
static void print_specs(const struct rf_vsock_setup *setup)
{
	uint64_t socket_bytes, bytes = 0;
	char memory[200];

	for (unsigned i = 0; i < setup->n_specs; i++) {
		const struct rf_vsock_spec *spec = &setup->specs[i];

		printf("cid %" PRIu64 ": ", spec->guest_cid);
		if (spec->socket)
			printf("socket %s", spec->socket);
		else
			printf("fd %" PRIu64, spec->fd);
		memory_format(spec, memory, sizeof(memory));
		printf(", uds-path %s, queue-size %" PRIu64 ", %s\n", spec->uds_path,
		       spec->queue_size, memory);
		bytes += rf_vsock_spec_memory(spec, &socket_bytes);
	}
	if (setup->n_specs > 1)
		printf("all %u devices: may pin %" PRIu64 " MiB of memory\n", setup->n_specs,
		       to_mib(bytes));
}

static void log_memory(const struct rf_vsock_setup *setup, const struct rf_log *log)
{
	char name[sizeof("cid 4294967295")], memory[200];
	struct rf_log device_log = *log;

	if (log->level < RF_LOG_INFO)
		return;
	device_log.name = name;
	for (unsigned i = 0; i < setup->n_specs; i++) {
		snprintf(name, sizeof(name), "cid %" PRIu32, (uint32_t)setup->specs[i].guest_cid);
		memory_format(&setup->specs[i], memory, sizeof(memory));
		rf_log(&device_log, RF_LOG_INFO, "%s", memory);
	}
}

static void raise_fd_limit(const struct rf_vsock_setup *setup, const struct rf_log *log)
{
	uint64_t conns = 0, want;
	int64_t limit;

	for (unsigned i = 0; i < setup->n_specs; i++)
		conns += setup->specs[i].max_conns;
	want = conns + (uint64_t)setup->n_specs * OTHER_FDS;
	limit = rf_fd_raise_limit(want);
	if (limit >= 0 && (uint64_t)limit < want)
		rf_log(log, RF_LOG_WARNING,
		       "only %" PRId64 " descriptors are allowed (ulimit -n); %" PRIu64
		       " connections need %" PRIu64,
		       limit, conns, want);
}

/* All devices, or none: what was opened is closed by the caller. */
static int open_devices(struct server *server, const struct rf_vsock_setup *setup,
			const struct rf_log *log)
{
	int r = 0;

	server->served = calloc(setup->n_specs, sizeof(*server->served));
	if (!server->served)
		return -ENOMEM;
	server->n_served = setup->n_specs;
	for (unsigned i = 0; r == 0 && i < setup->n_specs; i++) {
		struct served *served = &server->served[i];

		served->server = server;
		served->spec = &setup->specs[i];
		served->ends = setup->exit_on_disconnect || fd_connected(served->spec->fd);
		r = open_device(served, log);
	}
	return r;
}

static int run(struct server *server, const struct rf_vsock_setup *setup, const struct rf_log *log)
{
	struct rf_service service = { .counters = server_counters, .ctx = server };
	int r;

	raise_fd_limit(setup, log);
	r = rf_service_begin(&service, server->loop);
	if (r == 0)
		r = open_devices(server, setup, log);
	if (r == 0) {
		log_memory(setup, log);
		rf_service_ready(setup->print_ready);
		r = rf_loop_run(server->loop);
	}
	for (unsigned i = 0; i < server->n_served; i++)
		rf_vsock_device_free(server->served[i].device);
	free(server->served);
	rf_service_end(&service);
	return r;
}

/*
 * Bytes that a host program does not take wait in up to a window of memory. It is to go back to the
 * system when they are gone; by itself the allocator keeps up to twice the largest piece it has
 * seen.
 */
#define OWN_MAPPING_BYTES (128 << 10)

static int serve(const struct rf_vsock_setup *setup)
{
	const struct rf_log log = { .level = (enum rf_log_level)setup->log_level,
				    .sink = rf_log_stderr };
	struct server server = { 0 };
	int r = rf_loop_new(&server.loop);

	if (r < 0) {
		rf_log(&log, RF_LOG_ERROR, "cannot start: %s", strerror(-r));
		return 1;
	}
	rf_loop_set_poll(server.loop, setup->poll_us == RF_OPT_POLL_AUTO
					      ? RF_LOOP_POLL_AUTO
					      : (uint32_t)setup->poll_us);
	(void)mallopt(M_MMAP_THRESHOLD, OWN_MAPPING_BYTES);
	r = run(&server, setup, &log);
	rf_loop_free(server.loop);
	/* A signal ends it with 0, whatever front ends did before. */
	return r < 0 || (server.failed && server.n_open == 0) ? 1 : 0;
}

static int vsock_main(int argc, char **argv)
{
	struct rf_vsock_setup setup;
	int status, first;

	rf_vsock_setup_init(&setup);
	if (!rf_opts_parse(&rf_cmd_vsock, argc, argv, &setup, &status, &first))
		return status;
	if (setup.version) {
		printf("ringferry %s\n", RF_VERSION);
		return 0;
	}
	status = rf_vsock_setup_complete(&rf_cmd_vsock, &setup);
	if (status == 0 && setup.check)
		print_specs(&setup);
	else if (status == 0)
		status = serve(&setup);
	rf_vsock_setup_free(&setup);
	return status;
}

const struct rf_cmd rf_cmd_vsock = {
	.name = "vsock",
	.usage = "",
	.summary = "Serve the vsock of guests: the back end a VMM connects to.",
	.details =
		"One device is described by flags, several by --vm or --config; these three forms "
		"exclude each other. SIGUSR1 prints counters and switches as one line of JSON on "
		"standard error; SIGTERM and SIGINT end the program and remove its sockets.",
	.opts = rf_vsock_opts,
	.n_opts = RF_VSOCK_N_OPTS,
	.given = offsetof(struct rf_vsock_setup, flags.given),
	.main = vsock_main,
};
