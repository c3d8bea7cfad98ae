/* SPDX-License-Identifier: BSD-3-Clause */
#include "embed_options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "host/limits.h"
#include "host/listener.h"
#include "vsock/packet.h"

#define DEFAULT_MS(ns) ((uint32_t)((ns) / RF_NS_PER_MS))

void rf_host_vsock_options_init(struct rf_host_vsock_options *options)
{
	*options = (struct rf_host_vsock_options){
		.size = sizeof(*options),
		.socket_mode = RF_LISTENER_MODE_DEFAULT,
		.socket_fd = -1,
		.uds_mode = RF_LISTENER_MODE_DEFAULT,
		.uds_uid = UINT32_MAX,
		.uds_gid = UINT32_MAX,
		.window_bytes = RF_VSOCK_WINDOW_DEFAULT,
		.queue_size = RF_VSOCK_QUEUE_DEFAULT,
		.max_connections = RF_HOST_MAX_CONNS,
		.handshake_ms = DEFAULT_MS(RF_VSOCK_HANDSHAKE_NS),
		.shutdown_ms = DEFAULT_MS(RF_VSOCK_SHUTDOWN_NS),
		.connect_line_ms = DEFAULT_MS(RF_HOST_LINE_NS),
		.ok_port = RF_HOST_OK_GUEST,
	};
}

/* The numbers, and what is allowed. */
static const struct {
	const char *name;
	size_t offset;
	uint32_t min, max;
} ranges[] = {
#define ROW(name, min, max)                                                   \
	{                                                                     \
#name, offsetof(struct rf_host_vsock_options, name), min, max \
	}
	ROW(guest_cid, 3, RF_VSOCK_CID_ANY - 1),
	ROW(window_bytes, RF_VSOCK_WINDOW_MIN, RF_VSOCK_WINDOW_MAX),
	ROW(queue_size, RF_VSOCK_QUEUE_MIN, RF_VSOCK_QUEUE_MAX),
	ROW(max_connections, 1, RF_HOST_CONNS_LIMIT),
	ROW(handshake_ms, RF_HOST_TIME_MIN_MS, RF_HOST_TIME_MAX_MS),
	ROW(shutdown_ms, RF_HOST_TIME_MIN_MS, RF_HOST_TIME_MAX_MS),
	ROW(connect_line_ms, RF_HOST_TIME_MIN_MS, RF_HOST_TIME_MAX_MS),
#undef ROW
};

static bool numbers_allowed(const struct rf_host_vsock_options *options, const struct rf_log *log)
{
	for (size_t i = 0; i < RF_ARRAY_SIZE(ranges); i++) {
		uint32_t value;

		memcpy(&value, (const char *)options + ranges[i].offset, sizeof(value));
		if (value >= ranges[i].min && value <= ranges[i].max)
			continue;
		rf_log(log, RF_LOG_ERROR,
		       "option %s: %" PRIu32 " is not allowed; %" PRIu32 " to %" PRIu32 " is",
		       ranges[i].name, value, ranges[i].min, ranges[i].max);
		return false;
	}
	return true;
}

static bool mode_allowed(int mode)
{
	return mode >= RF_LISTENER_MODE_DEFAULT && mode <= 0777;
}

/* What is wrong with the options that are no plain numbers, or NULL. */
static const char *find_fault(const struct rf_host_vsock_options *options)
{
	if (!rf_is_power_of_2(options->queue_size))
		return "queue_size: no power of two";
	if (!options->socket_path == (options->socket_fd < 0))
		return "socket_path, socket_fd: one of the two is required";
	if (options->uds_path && !rf_unix_path_fits(options->uds_path, RF_HOST_PORT_SUFFIX_BYTES))
		return "uds_path: longer than 96 bytes";
	if (options->uds_path && options->socket_path &&
	    !strcmp(options->socket_path, options->uds_path))
		return "uds_path: the same as socket_path";
	if (!mode_allowed(options->socket_mode))
		return "socket_mode: not allowed; -1 and 0 to 0777 are";
	if (!mode_allowed(options->uds_mode))
		return "uds_mode: not allowed; -1 and 0 to 0777 are";
	if (options->ok_port != RF_HOST_OK_GUEST && options->ok_port != RF_HOST_OK_HOST)
		return "ok_port: not allowed; RF_HOST_OK_GUEST and RF_HOST_OK_HOST are";
	return NULL;
}

static int set_switches(const char *tune, struct rf_host_switches *switches,
			const struct rf_log *log)
{
	char wrong[RF_SWITCHES_WRONG_BYTES];
	int r = rf_switches_parse(rf_host_switch_defs, rf_host_n_switches, switches, tune, wrong);

	if (r < 0)
		rf_log(log, RF_LOG_ERROR, "option tune: %s", wrong);
	return r;
}

static void translate(const struct rf_host_vsock_options *options,
		      struct rf_vsock_device_options *vsock)
{
	vsock->guest_cid = options->guest_cid;
	vsock->socket_path = options->socket_path;
	vsock->socket_mode = options->socket_mode;
	vsock->socket_fd = options->socket_fd;
	vsock->plug_path = options->uds_path;
	vsock->plug_mode = options->uds_mode;
	vsock->plug_uid = (uid_t)options->uds_uid;
	vsock->plug_gid = (gid_t)options->uds_gid;
	vsock->window = options->window_bytes;
	vsock->queue_size = options->queue_size;
	vsock->max_conns = options->max_connections;
	vsock->handshake_ns = options->handshake_ms * RF_NS_PER_MS;
	vsock->shutdown_ns = options->shutdown_ms * RF_NS_PER_MS;
	vsock->line_ns = options->connect_line_ms * RF_NS_PER_MS;
	vsock->ok_port =
		options->ok_port == RF_HOST_OK_HOST ? RF_HOST_OK_PORT_HOST : RF_HOST_OK_PORT_GUEST;
}

int rf_embed_options(const struct rf_host_vsock_options *options, const struct rf_log *log,
		     char *name, struct rf_vsock_device_options *ret_options)
{
	const char *fault;

	if (!numbers_allowed(options, log))
		return -EINVAL;
	fault = find_fault(options);
	if (fault) {
		rf_log(log, RF_LOG_ERROR, "option %s", fault);
		return -EINVAL;
	}
	rf_vsock_device_options_init(ret_options);
	translate(options, ret_options);
	snprintf(name, RF_EMBED_NAME_BYTES, "cid %" PRIu32, options->guest_cid);
	ret_options->name = options->name ? options->name : name;
	ret_options->log = log;
	return set_switches(options->tune, &ret_options->switches, log);
}
