/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A host of ringferry/host.h, and guests of ringferry/guest.h in the same process. To be used with
 * cmocka.
 */
#ifndef HOST_LAB_H
#define HOST_LAB_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "ringferry/guest.h"
#include "ringferry/host.h"

#define API_CID     4u
#define API_PORT    1234u
#define API_WAIT_MS 5000
/* What api_move_bytes() moves. */
#define API_BULK (1u << 20)

/**
 * struct api - A host and what it told
 * @dir, @uds:	A directory of its own; the hybrid socket in it
 * @thread:	Runs the host between api_begin() and api_end()
 * @text:	What was logged
 * @n_left, @orderly: Calls of the callback; what the last one said
 * @in_left, @in_log: Called from it; and from the log callback
 * @device:	A device for @in_left
 * @poll_us:	Option of the next host
 * @stop:	A thread of the test's own is to return
 * @n_fds:	Descriptors that were open before
 */
struct api {
	struct rf_host *host;
	char dir[40], uds[60];
	pthread_t thread;
	char text[4096];
	atomic_int n_left, orderly;
	void (*in_left)(struct api *api, struct rf_host_device *device);
	void (*in_log)(struct api *api);
	struct rf_host_device *device;
	int poll_us;
	atomic_bool stop;
	unsigned n_fds;
};

/* cmocka's setup and teardown: *state is a struct api with a host. The teardown checks that nothing
 * is left open, or in its directory. */
int api_setup(void **state);
int api_teardown(void **state);

#define API_TEST(name) cmocka_unit_test_setup_teardown(name, api_setup, api_teardown)

/* Another host in place of one that was freed. */
void api_new_host(struct api *api);

/* Run the host in its thread; wait for the end of that; stop it, too. */
void api_begin(struct api *api);
void api_join(struct api *api);
void api_end(struct api *api);

/* Options of a device that is handed one end of a socketpair. Return: the other end. */
int api_pair_options(struct api *api, struct rf_host_vsock_options *options);
struct rf_host_device *api_add(struct api *api, const struct rf_host_vsock_options *options);

/* A guest on a connected socket; a device and a guest on it, while the host runs in its thread. */
struct rf_guest *api_open_guest(int fd);
struct rf_guest *api_open_pair(struct api *api, struct rf_host_device **ret_device);

/* A socket of the guest that listens; a connection that a host program asked for: the guest's
 * socket. */
int api_guest_listen(struct rf_guest *guest);
int api_open_conn(struct api *api, struct rf_guest *guest, int *ret_fd);

/* A mebibyte each way at once. */
void api_move_bytes(struct rf_guest *guest, int sock, int fd);

/* Wait until a number has this value. */
void api_wait_for(atomic_int *what, int value);

/* Files in the directory; a connection to a unix socket. */
unsigned api_n_files(const struct api *api);
int api_connect_to(const char *path);

#endif
