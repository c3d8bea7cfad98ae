/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Options of ringferry/host.h, checked and turned into a device's.
 */
#ifndef RF_HOST_EMBED_OPTIONS_H
#define RF_HOST_EMBED_OPTIONS_H

#include "host/vsock_device.h"
#include "ringferry/host.h"

/* Room for the name of a device that was given none. */
#define RF_EMBED_NAME_BYTES sizeof("cid 4294967295")

/**
 * rf_embed_options() - Check options and translate them
 * @options:	As the program gave them, of the right size
 * @log:	Log, in which what is not allowed is told; may be NULL
 * @name:	RF_EMBED_NAME_BYTES for a default name, to which @ret_options may point
 * @ret_options:	Options of the device, which point to what @options points to
 *
 * Return: 0, -EINVAL, or -ENOMEM.
 */
int rf_embed_options(const struct rf_host_vsock_options *options, const struct rf_log *log,
		     char *name, struct rf_vsock_device_options *ret_options);

#endif
