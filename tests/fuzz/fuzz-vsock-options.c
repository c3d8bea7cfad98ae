/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Descriptions of vsock devices: the input is a configuration file behind the byte 'y', else the
 * arguments of --vm with line feeds between them. Whatever it says, it is taken and then can be
 * served, or it is refused in exactly one line.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "host/limits.h"
#include "host/listener.h"
#include "vsock/packet.h"
#include "vsock_setup.h"

/* Not assert(): it has to hold in every build. */
#define check(condition)          \
	do {                      \
		if (!(condition)) \
			abort();  \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct rf_cmd cmd = {
	.name = "vsock",
	.usage = "",
	.summary = "Serve.",
	.opts = rf_vsock_opts,
	.n_opts = RF_VSOCK_N_OPTS,
};

static int read_vms(struct rf_vsock_setup *setup, const uint8_t *data, size_t size)
{
	char *text = strndup((const char *)data, size), *rest = text, *argument;
	int status = 0;

	check(text);
	while (status == 0 && (argument = strsep(&rest, "\n")))
		status = rf_vsock_setup_vm(&cmd, setup, argument, ++setup->n_vms);
	free(text);
	return status;
}

static bool printable(const char *path)
{
	for (; *path; path++)
		if ((unsigned char)*path < ' ' || *path == 0x7f)
			return false;
	return true;
}

static void check_spec(const struct rf_vsock_spec *spec)
{
	check(rf_vsock_cid_usable(spec->guest_cid));
	check(!spec->socket != (spec->fd == RF_VSOCK_UNSET));
	check(!spec->socket || (*spec->socket && rf_unix_path_fits(spec->socket, 0)));
	check(!spec->socket || printable(spec->socket));
	check(spec->uds_path && *spec->uds_path && printable(spec->uds_path) &&
	      rf_unix_path_fits(spec->uds_path, 11));
	check(spec->window >= RF_VSOCK_WINDOW_MIN && spec->window <= RF_VSOCK_WINDOW_MAX);
	check(rf_is_power_of_2(spec->queue_size) && spec->queue_size >= RF_VSOCK_QUEUE_MIN &&
	      spec->queue_size <= RF_VSOCK_QUEUE_MAX);
	check(spec->max_conns >= 1 && spec->max_conns <= RF_HOST_CONNS_LIMIT);
	check(spec->handshake_ns && spec->shutdown_ns && spec->line_ns);
	check(spec->n_forward_listen == 0 && !spec->foreign_group);
}

static void check_taken(const struct rf_vsock_setup *setup)
{
	check(setup->n_specs && setup->n_specs <= RF_VSOCK_MAX_DEVICES);
	for (unsigned i = 0; i < setup->n_specs; i++) {
		check_spec(&setup->specs[i]);
		for (unsigned j = 0; j < i; j++)
			check(setup->specs[i].guest_cid != setup->specs[j].guest_cid &&
			      strcmp(setup->specs[i].uds_path, setup->specs[j].uds_path) != 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct rf_vsock_setup setup;
	FILE *errors = stderr;
	size_t line_bytes;
	char *line;
	int status;

	stderr = open_memstream(&line, &line_bytes);
	check(stderr);
	rf_vsock_setup_init(&setup);
	if (size && data[0] == 'y') {
		setup.file = "f";
		status = rf_vsock_setup_yaml(&cmd, &setup, data + 1, size - 1);
	} else {
		status = read_vms(&setup, data, size);
	}
	if (status == 0)
		status = rf_vsock_setup_check(&cmd, &setup);
	if (status == 0)
		check_taken(&setup);
	rf_vsock_setup_free(&setup);
	fclose(stderr);
	stderr = errors;

	check(status == 0 || status == RF_EXIT_USAGE);
	check(status == 0 ? line_bytes == 0
			  : line_bytes && strchr(line, '\n') == line + line_bytes - 1);
	free(line);
	return 0;
}
