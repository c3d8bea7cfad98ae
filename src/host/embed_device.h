/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the files of ringferry/host.h share: who holds a host, and its devices' plugs.
 */
#ifndef RF_HOST_EMBED_DEVICE_H
#define RF_HOST_EMBED_DEVICE_H

#include "ringferry/host.h"
#include "vsock_embed.h"

/* Hold the host of a device between two turns. Return: 0, or -EBUSY from the log callback. */
int rf_embed_hold(struct rf_host_device *device);
void rf_embed_release(struct rf_host_device *device);

/* The plug of the device's connections with this program. */
struct rf_vsock_plug *rf_embed_plug(const struct rf_host_device *device);

/**
 * rf_embed_kick() - Have a turn of the device come, without waiting for the one at hand
 *
 * Context: any thread, any callback; locks of the program may be held.
 */
void rf_embed_kick(struct rf_host_device *device);

#endif
