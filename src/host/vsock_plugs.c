/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of all kinds of plugs, and those of one device.
 */
#include "vsock_host.h"

#include <assert.h>
#include <errno.h>

const struct rf_vsock_plug_ops *const rf_vsock_plugs[] = {
	&rf_vsock_plug_embed,
	/* It tells the end of dial() later, so none may follow. */
	&rf_vsock_plug_unix,
	NULL,
};

int rf_plugs_open(struct rf_vsock_device *device, const struct rf_vsock_device_options *options)
{
	const struct rf_vsock_plug_ops *const *ops;
	struct rf_vsock_plug_options plug = {
		.loop = device->loop,
		.log = &device->log,
		.path = options->plug_path,
		.access = { options->plug_mode, options->plug_uid, options->plug_gid },
		.max_lines = device->max_conns,
		/* Its end is to be told before the guest gives up by itself. */
		.dial_ns = options->handshake_ns -
			   rf_min_u64(options->handshake_ns / 4, RF_HOST_RETRY_LAST_NS),
		.line_ns = options->line_ns,
		.ok_port = options->ok_port,
		.user = &rf_stream_plug_user,
	};

	for (ops = options->plugs; *ops; ops++) {
		struct rf_plugged *plugged = &device->plugs[device->n_plugs];
		int r;

		assert(device->n_plugs < RF_VSOCK_PLUGS_MAX);
		plugged->device = device;
		plugged->ops = *ops;
		plug.device = plugged;
		r = (*ops)->open(&plug, &plugged->plug);
		if (r < 0)
			return r;
		device->n_plugs += plugged->plug != NULL;
	}
	return 0;
}

void rf_plugs_free(struct rf_vsock_device *device)
{
	for (; device->n_plugs; device->n_plugs--) {
		const struct rf_plugged *plugged = &device->plugs[device->n_plugs - 1];

		plugged->ops->free(plugged->plug);
	}
}

void rf_plugs_turn(struct rf_vsock_device *device)
{
	unsigned i;

	for (i = 0; i < device->n_plugs; i++)
		if (device->plugs[i].ops->turn)
			device->plugs[i].ops->turn(device->plugs[i].plug);
}

bool rf_plugs_wait(const struct rf_vsock_device *device)
{
	unsigned i;

	for (i = 0; i < device->n_plugs; i++)
		if (device->plugs[i].ops->waits &&
		    device->plugs[i].ops->waits(device->plugs[i].plug))
			return true;
	return false;
}

struct rf_vsock_plug *rf_vsock_device_plug(const struct rf_vsock_device *device,
					   const struct rf_vsock_plug_ops *ops)
{
	unsigned i;

	for (i = 0; i < device->n_plugs; i++)
		if (device->plugs[i].ops == ops)
			return device->plugs[i].plug;
	return NULL;
}

int rf_plugs_dial(struct rf_vsock_stream *stream)
{
	struct rf_vsock_device *device = stream->device;
	unsigned i;
	int r = -ENOENT;

	for (i = 0; i < device->n_plugs && r == -ENOENT; i++) {
		const struct rf_plugged *plugged = &device->plugs[i];

		stream->ops = plugged->ops;
		r = plugged->ops->dial(plugged->plug, &stream->conn.key, stream, &stream->line);
	}
	return r;
}
