/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The argument of --vm: key=value,...
 */
#include <string.h>

#include "base/util.h"
#include "vsock_setup.h"

static int parse_entry(const struct rf_cmd *cmd, struct rf_vsock_setup *setup,
		       struct rf_vsock_spec *spec, char *entry)
{
	char *equals = strchr(entry, '=');
	char wrong[RF_OPT_WRONG_BYTES];
	const struct rf_opt *opt;

	if (!*entry)
		return rf_vsock_setup_error(cmd, setup, spec->where, NULL,
					    "an entry is empty; allowed: KEY=VALUE,...");
	if (!equals)
		return rf_vsock_setup_error(
			cmd, setup, spec->where, NULL,
			"\"%.64s\" has no \"=\"; allowed: KEY=VALUE,... where no value has a "
			"comma (in the file of --config they may)",
			entry);
	opt = rf_vsock_setup_key(cmd, setup, spec, entry, (size_t)(equals - entry), spec->where);
	if (!opt)
		return RF_EXIT_USAGE;
	if (rf_opt_store(opt, equals + 1, spec, wrong) < 0)
		return rf_vsock_setup_error(cmd, setup, spec->where, opt->name, "%s", wrong);
	return 0;
}

int rf_vsock_setup_vm(const struct rf_cmd *cmd, struct rf_vsock_setup *setup, const char *argument,
		      uint32_t number)
{
	struct rf_vsock_spec *spec = rf_vsock_setup_add(cmd, setup, number);
	char *rest, *entry;
	int status = 0;

	if (!spec)
		return RF_EXIT_USAGE;
	rest = rf_vsock_setup_keep(setup, argument, strlen(argument));
	if (!rest)
		return rf_vsock_setup_error(cmd, setup, number, NULL, "no memory");
	while (status == 0 && (entry = strsep(&rest, ",")))
		status = parse_entry(cmd, setup, spec, entry);
	return status;
}
