/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The guest's thread serves the rings of its device, gives it up when it is broken or gone, and
 * attaches again.
 *
 * Context: the guest's thread.
 */
#ifndef RF_GUEST_SERVE_H
#define RF_GUEST_SERVE_H

struct rf_guest;
struct rf_device;
struct rf_drvq;

/* Prepare watches, timers and work; before the thread starts. Return: 0, or -errno. */
int rf_serve_init(struct rf_guest *guest);

/* Before the loop is freed. */
void rf_serve_fini(struct rf_guest *guest);

/**
 * rf_serve_device() - Begin to serve a device; also before the thread starts
 * @device:	The caller's reference is taken over
 * Return: 0, or -errno; the device is given up then.
 */
int rf_serve_device(struct rf_guest *guest, struct rf_device *device);

/* A ring is broken: give the device up. */
void rf_serve_broken(struct rf_guest *guest, const struct rf_drvq *q);

/* Look at the transmit ring: somebody waits, or it is broken. */
void rf_serve_tx(struct rf_guest *guest);

/**
 * rf_serve_detach() - Give the device up, if there is one: its connections end
 * @why:	For the log; NULL when the guest closes, which then does not attach again
 */
void rf_serve_detach(struct rf_guest *guest, const char *why);

#endif
