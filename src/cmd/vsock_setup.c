/* SPDX-License-Identifier: BSD-3-Clause */
#include "vsock_options.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/util.h"
#include "host/limits.h"
#include "host/listener.h"

/* "_4294967295", behind the path of the hybrid socket. */
#define PORT_SUFFIX_BYTES 11

static void spec_init(struct rf_vsock_spec *spec)
{
	*spec = (struct rf_vsock_spec){
		.guest_cid = 3,
		.window = RF_VSOCK_WINDOW_DEFAULT,
		.queue_size = RF_VSOCK_QUEUE_DEFAULT,
		.max_conns = RF_HOST_MAX_CONNS,
		.socket_mode = RF_VSOCK_UNSET,
		.uds_mode = RF_VSOCK_UNSET,
		.fd = RF_VSOCK_UNSET,
		.forward_cid = RF_VSOCK_UNSET,
		.uds_uid = RF_LISTENER_OWNER_DEFAULT,
		.uds_gid = RF_LISTENER_GROUP_DEFAULT,
		.handshake_ns = RF_VSOCK_HANDSHAKE_NS,
		.shutdown_ns = RF_VSOCK_SHUTDOWN_NS,
		.line_ns = RF_HOST_LINE_NS,
		.ok_port = RF_HOST_OK_PORT_GUEST,
	};
	rf_switches_default(rf_host_switch_defs, rf_host_n_switches, &spec->switches);
}

void rf_vsock_setup_init(struct rf_vsock_setup *setup)
{
	*setup = (struct rf_vsock_setup){ .log_level = RF_LOG_WARNING };
	spec_init(&setup->flags);
	SLIST_INIT(&setup->texts);
}

void rf_vsock_setup_free(struct rf_vsock_setup *setup)
{
	struct rf_vsock_text *text;

	while ((text = SLIST_FIRST(&setup->texts))) {
		SLIST_REMOVE_HEAD(&setup->texts, link);
		free(text);
	}
	free(setup->specs);
	setup->specs = NULL;
	setup->n_specs = 0;
}

char *rf_vsock_setup_keep(struct rf_vsock_setup *setup, const char *text, size_t len)
{
	struct rf_vsock_text *kept = malloc(sizeof(*kept) + len + 1);

	if (!kept)
		return NULL;
	memcpy(kept->text, text, len);
	kept->text[len] = '\0';
	SLIST_INSERT_HEAD(&setup->texts, kept, link);
	return kept->text;
}

/* How a place is called in the form that was used. */
static void place_format(const struct rf_vsock_setup *setup, uint32_t where, char *buf,
			 size_t buf_bytes)
{
	if (setup->file)
		snprintf(buf, buf_bytes, "%.512s:%" PRIu32, setup->file, where);
	else if (setup->n_vms)
		snprintf(buf, buf_bytes, "--vm %" PRIu32, where);
	else
		snprintf(buf, buf_bytes, "options");
}

/* What stands before the name of an option in the form that was used. */
static const char *dashes(const struct rf_vsock_setup *setup)
{
	return setup->file || setup->n_vms ? "" : "--";
}

int rf_vsock_setup_error(const struct rf_cmd *cmd, const struct rf_vsock_setup *setup,
			 uint32_t where, const char *key, const char *fmt, ...)
{
	char place[600], what[700], text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	place_format(setup, where, place, sizeof(place));
	if (!key)
		snprintf(what, sizeof(what), "%s", place);
	else if (*dashes(setup))
		snprintf(what, sizeof(what), "%s%s", dashes(setup), key);
	else
		snprintf(what, sizeof(what), "%s: %s", place, key);
	return rf_opts_error(cmd, what, "%s", text);
}

struct rf_vsock_spec *rf_vsock_setup_add(const struct rf_cmd *cmd, struct rf_vsock_setup *setup,
					 uint32_t where)
{
	struct rf_vsock_spec *specs;

	if (setup->n_specs == RF_VSOCK_MAX_DEVICES) {
		rf_vsock_setup_error(cmd, setup, where, NULL,
				     "one device too many; allowed: at most %u",
				     RF_VSOCK_MAX_DEVICES);
		return NULL;
	}
	specs = reallocarray(setup->specs, setup->n_specs + 1, sizeof(*specs));
	if (!specs) {
		rf_vsock_setup_error(cmd, setup, where, NULL, "no memory");
		return NULL;
	}
	setup->specs = specs;
	specs += setup->n_specs++;
	spec_init(specs);
	specs->where = where;
	return specs;
}

const struct rf_opt *rf_vsock_setup_key(const struct rf_cmd *cmd,
					const struct rf_vsock_setup *setup,
					struct rf_vsock_spec *spec, const char *key, size_t key_len,
					uint32_t where)
{
	const struct rf_opt *opt = rf_opt_find_key(cmd, key, key_len);
	char text[512];

	if (!opt) {
		rf_opt_list_keys(cmd, text, sizeof(text));
		rf_vsock_setup_error(cmd, setup, where, NULL, "\"%.*s\" is no key; allowed: %s",
				     (int)rf_min_size(key_len, 64), key, text);
		return NULL;
	}
	if (spec->given[opt - cmd->opts]) {
		place_format(setup, spec->given[opt - cmd->opts], text, sizeof(text));
		rf_vsock_setup_error(cmd, setup, where, opt->name,
				     "given twice, first in %s; allowed: once per device", text);
		return NULL;
	}
	spec->given[opt - cmd->opts] = where;
	return opt;
}

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
				  dashes(setup));
	if (!spec->socket && spec->fd == RF_VSOCK_UNSET)
		return SPEC_ERROR(cmd, setup, spec, "socket",
				  "required, unless %sfd is given; allowed: PATH", dashes(setup));
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
				  dashes(setup));
	if (spec->n_forward_listen && !forwards)
		return SPEC_ERROR(cmd, setup, spec, "forward-listen",
				  "not allowed without %sforward-cid", dashes(setup));
	if (forwards)
		return SPEC_ERROR(cmd, setup, spec, "forward-cid",
				  "not served yet; allowed: %suds-path instead", dashes(setup));
	if (spec->foreign_group)
		return SPEC_ERROR(cmd, setup, spec, "groups",
				  "connections between guests are not served yet; allowed: "
				  "\"default\", or no groups");
	if (!spec->uds_path)
		return SPEC_ERROR(cmd, setup, spec, "uds-path",
				  "required, but not given; allowed: PATH");
	if (!rf_unix_path_fits(spec->uds_path, PORT_SUFFIX_BYTES))
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
		place_format(setup, place_of(cmd, first, first_key), place, sizeof(place));
	if (spec == first)
		return SPEC_ERROR(cmd, setup, spec, key,
				  "the same as %s%s, or that with _PORT; another path is needed",
				  dashes(setup), first_key);
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

/* --vm and --config stand alone. */
static int check_forms(const struct rf_cmd *cmd, const struct rf_vsock_setup *setup)
{
	const char *form = setup->config ? "--config" : "--vm";

	if (setup->config && setup->n_vms)
		return rf_opts_error(cmd, "--config",
				     "not allowed together with --vm; allowed: one of them");
	if (!setup->config && !setup->n_vms)
		return 0;
	for (size_t i = 0; i < cmd->n_opts; i++)
		if (cmd->opts[i].key && setup->flags.given[i])
			return rf_opts_error(cmd, form,
					     "not allowed together with --%s; allowed: %s in %s",
					     cmd->opts[i].name, cmd->opts[i].name,
					     setup->config ? "the file" : "its argument");
	return 0;
}

int rf_vsock_setup_complete(const struct rf_cmd *cmd, struct rf_vsock_setup *setup)
{
	int status = check_forms(cmd, setup);
	struct rf_vsock_spec *spec;

	if (status)
		return status;
	if (setup->config) {
		setup->file = setup->config;
		status = rf_vsock_setup_file(cmd, setup);
	} else if (setup->n_vms) {
		for (unsigned i = 0; status == 0 && i < setup->n_vms; i++)
			status = rf_vsock_setup_vm(cmd, setup, setup->vms[i], i + 1);
	} else {
		spec = rf_vsock_setup_add(cmd, setup, 1);
		if (!spec)
			return RF_EXIT_USAGE;
		*spec = setup->flags;
	}
	return status ? status : rf_vsock_setup_check(cmd, setup);
}

uint64_t rf_vsock_spec_memory(const struct rf_vsock_spec *spec, uint64_t *ret_socket_bytes)
{
	int asked = RF_HOST_SNDBUF_BYTES, pair[2];
	uint64_t window = 1, sockets = 0;

	while (window < spec->window)
		window *= 2;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0) {
		(void)setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &asked, sizeof(asked));
		for (unsigned i = 0; i < 2; i++) {
			int granted = socket_option(pair[i], SO_SNDBUF);

			sockets += granted > 0 ? (uint64_t)granted : 0;
			rf_fd_close(pair[i]);
		}
	}
	*ret_socket_bytes = sockets;
	return spec->max_conns * (window + sockets);
}
