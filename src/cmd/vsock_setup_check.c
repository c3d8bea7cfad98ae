/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether devices can be served as they were described, each by itself and beside the others.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/fd.h"
#include "base/util.h"
#include "host/limits.h"
#include "vsock_setup.h"

/* Where a key of a device was given, or else where the device is. */
static uint32_t place_of(const struct rf_cmd *cmd, const struct rf_vsock_spec *spec,
			 const char *key)
{
	const struct rf_opt *opt = rf_opt_find_key(cmd, key, strlen(key));
	uint32_t where;

	assert(opt);
	where = spec->given[opt - cmd->opts];
	return where ? where : spec->where;
}

/* Say what is wrong with a key of a device. */
#define SPEC_ERROR(cmd, setup, spec, key, ...) \
	rf_vsock_setup_error(cmd, setup, place_of(cmd, spec, key), key, __VA_ARGS__)

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

static int check_front(const struct rf_cmd *cmd, const struct rf_vsock_setup *setup,
		       const struct rf_vsock_spec *spec)
{
	if (spec->socket && spec->fd != RF_VSOCK_UNSET)
		return SPEC_ERROR(cmd, setup, spec, "fd",
				  "not allowed together with %ssocket; allowed: one of them",
				  rf_vsock_setup_dashes(setup));
	if (!spec->socket && spec->fd == RF_VSOCK_UNSET)
		return SPEC_ERROR(cmd, setup, spec, "socket",
				  "required, unless %sfd is given; allowed: PATH",
				  rf_vsock_setup_dashes(setup));
	if (spec->socket && !rf_unix_path_fits(spec->socket, 0))
		return SPEC_ERROR(cmd, setup, spec, "socket",
				  "path too long; at most 107 bytes are allowed");
	if (spec->fd != RF_VSOCK_UNSET && !fd_usable((int)spec->fd))
		return SPEC_ERROR(cmd, setup, spec, "fd",
				  "descriptor %" PRIu64 " is not allowed; a unix stream socket "
				  "that listens or is connected is",
				  spec->fd);
	return 0;
}

static int check_plug(const struct rf_cmd *cmd, const struct rf_vsock_setup *setup,
		      const struct rf_vsock_spec *spec)
{
	bool forwards = spec->forward_cid != RF_VSOCK_UNSET;

	if (spec->uds_path && forwards)
		return SPEC_ERROR(cmd, setup, spec, "forward-cid",
				  "not allowed together with %suds-path; allowed: one of them",
				  rf_vsock_setup_dashes(setup));
	if (spec->n_forward_listen && !forwards)
		return SPEC_ERROR(cmd, setup, spec, "forward-listen",
				  "not allowed without %sforward-cid",
				  rf_vsock_setup_dashes(setup));
	if (forwards)
		return SPEC_ERROR(cmd, setup, spec, "forward-cid",
				  "not served yet; allowed: %suds-path instead",
				  rf_vsock_setup_dashes(setup));
	if (spec->foreign_group)
		return SPEC_ERROR(cmd, setup, spec, "groups",
				  "connections between guests are not served yet; allowed: "
				  "\"default\", or no groups");
	if (!spec->uds_path)
		return SPEC_ERROR(cmd, setup, spec, "uds-path",
				  "required, but not given; allowed: PATH");
	if (!rf_unix_path_fits(spec->uds_path, RF_HOST_PORT_SUFFIX_BYTES))
		return SPEC_ERROR(cmd, setup, spec, "uds-path",
				  "path too long; at most 96 bytes are allowed, so that "
				  "_4294967295 fits behind it");
	return 0;
}

static int check_spec(const struct rf_cmd *cmd, const struct rf_vsock_setup *setup,
		      const struct rf_vsock_spec *spec)
{
	int status = check_front(cmd, setup, spec);

	if (status == 0)
		status = check_plug(cmd, setup, spec);
	if (status == 0 && !rf_is_power_of_2(spec->queue_size))
		status = SPEC_ERROR(cmd, setup, spec, "queue-size",
				    "%" PRIu64 " is not allowed; a power of two from %u to %u is",
				    spec->queue_size, RF_VSOCK_QUEUE_MIN, RF_VSOCK_QUEUE_MAX);
	return status;
}

/* The guest's connections to one port of the host would reach this socket. */
static bool is_port_of(const char *uds_path, const char *path)
{
	size_t len = strlen(uds_path);
	uint32_t port;

	return path && !strncmp(path, uds_path, len) && path[len] == '_' &&
	       rf_port_parse(path + len + 1, &port) == 0;
}

static bool equal(const char *a, const char *b)
{
	return a && b && !strcmp(a, b);
}

/* What @key of @spec clashes with in a device that stands before it, or is @spec itself. */
static int clash(const struct rf_cmd *cmd, const struct rf_vsock_setup *setup,
		 const struct rf_vsock_spec *spec, const char *key,
		 const struct rf_vsock_spec *first, const char *first_key)
{
	char place[600] = "";

	if (setup->file || setup->n_vms)
		rf_vsock_setup_place(setup, place_of(cmd, first, first_key), place, sizeof(place));
	if (spec == first)
		return SPEC_ERROR(cmd, setup, spec, key,
				  "the same as %s%s, or that with _PORT; another path is needed",
				  rf_vsock_setup_dashes(setup), first_key);
	return SPEC_ERROR(cmd, setup, spec, key,
			  "also the %s in %s%s; allowed: one that no other device has", first_key,
			  place, strcmp(key, first_key) != 0 ? ", or that with _PORT" : "");
}

static int check_self(const struct rf_cmd *cmd, const struct rf_vsock_setup *setup,
		      const struct rf_vsock_spec *spec)
{
	if (equal(spec->socket, spec->uds_path) || is_port_of(spec->uds_path, spec->socket))
		return clash(cmd, setup, spec, "uds-path", spec, "socket");
	return 0;
}

static int check_pair(const struct rf_cmd *cmd, const struct rf_vsock_setup *setup,
		      const struct rf_vsock_spec *first, const struct rf_vsock_spec *spec)
{
	if (spec->guest_cid == first->guest_cid)
		return clash(cmd, setup, spec, "guest-cid", first, "guest-cid");
	if (equal(spec->socket, first->socket))
		return clash(cmd, setup, spec, "socket", first, "socket");
	if (spec->fd != RF_VSOCK_UNSET && spec->fd == first->fd)
		return clash(cmd, setup, spec, "fd", first, "fd");
	if (equal(spec->uds_path, first->uds_path) || is_port_of(first->uds_path, spec->uds_path) ||
	    is_port_of(spec->uds_path, first->uds_path))
		return clash(cmd, setup, spec, "uds-path", first, "uds-path");
	if (equal(spec->uds_path, first->socket) || is_port_of(spec->uds_path, first->socket))
		return clash(cmd, setup, spec, "uds-path", first, "socket");
	if (equal(spec->socket, first->uds_path) || is_port_of(first->uds_path, spec->socket))
		return clash(cmd, setup, spec, "socket", first, "uds-path");
	return 0;
}

int rf_vsock_setup_check(const struct rf_cmd *cmd, const struct rf_vsock_setup *setup)
{
	int status = 0;

	for (unsigned i = 0; status == 0 && i < setup->n_specs; i++) {
		status = check_spec(cmd, setup, &setup->specs[i]);
		if (status == 0)
			status = check_self(cmd, setup, &setup->specs[i]);
		for (unsigned j = 0; status == 0 && j < i; j++)
			status = check_pair(cmd, setup, &setup->specs[j], &setup->specs[i]);
	}
	return status;
}
