/* SPDX-License-Identifier: BSD-3-Clause */
#include "vsock_setup.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/util.h"
#include "host/limits.h"
#include "host/listener.h"

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

void rf_vsock_setup_place(const struct rf_vsock_setup *setup, uint32_t where, char *buf,
			  size_t buf_bytes)
{
	if (setup->file)
		snprintf(buf, buf_bytes, "%.512s:%" PRIu32, setup->file, where);
	else if (setup->n_vms)
		snprintf(buf, buf_bytes, "--vm %" PRIu32, where);
	else
		snprintf(buf, buf_bytes, "options");
}

const char *rf_vsock_setup_dashes(const struct rf_vsock_setup *setup)
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
	rf_vsock_setup_place(setup, where, place, sizeof(place));
	if (!key)
		snprintf(what, sizeof(what), "%s", place);
	else if (*rf_vsock_setup_dashes(setup))
		snprintf(what, sizeof(what), "%s%s", rf_vsock_setup_dashes(setup), key);
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
		rf_vsock_setup_place(setup, spec->given[opt - cmd->opts], text, sizeof(text));
		rf_vsock_setup_error(cmd, setup, where, opt->name,
				     "given twice, first in %s; allowed: once per device", text);
		return NULL;
	}
	spec->given[opt - cmd->opts] = where;
	return opt;
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
			int granted = 0;
			socklen_t size = sizeof(granted);

			(void)getsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &granted, &size);
			sockets += (uint64_t)granted;
			rf_fd_close(pair[i]);
		}
	}
	*ret_socket_bytes = sockets;
	return spec->max_conns * (window + sockets);
}
