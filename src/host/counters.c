/* SPDX-License-Identifier: BSD-3-Clause */
#include "vsock_host.h"

const struct rf_switch_def rf_host_switch_defs[] = {
#define X(name_, type_, def_, values_, help_)                 \
	{ .name = #name_,                                     \
	  .type = type_,                                      \
	  .offset = offsetof(struct rf_host_switches, name_), \
	  .def = def_,                                        \
	  .values = values_,                                  \
	  .help = help_ },
	RF_HOST_SWITCHES(X)
#undef X
};
const size_t rf_host_n_switches = RF_ARRAY_SIZE(rf_host_switch_defs);

#define ROW(name, help) RF_COUNTER_ROW(struct rf_host_counters, name, help)
const struct rf_counter_def rf_host_counter_defs[] = { RF_HOST_COUNTERS(ROW) };
const size_t rf_host_n_counters = RF_ARRAY_SIZE(rf_host_counter_defs);
#undef ROW

#define X(name_, counter_, text_) \
	{ #counter_, text_,       \
	  offsetof(struct rf_host_counters, ended) + RF_VSOCK_##name_ * sizeof(rf_counter) },
static const struct rf_counter_def ended_defs[] = { RF_VSOCK_REASONS(X) };
#undef X

json_t *rf_vsock_device_json(const struct rf_vsock_device *device)
{
	/* The row of "still open" counts nothing. */
	return json_pack(
		"{s:s, s:I, s:i, s:o*, s:o*, s:o*, s:o*}", "device", device->name, "guest_cid",
		(json_int_t)device->cid, "connections", (int)device->n_streams, "host",
		rf_counters_json(rf_host_counter_defs, rf_host_n_counters, &device->counters),
		"ended",
		rf_counters_json(ended_defs + 1, RF_ARRAY_SIZE(ended_defs) - 1, &device->counters),
		"vhost",
		rf_counters_json(rf_vu_counter_defs, rf_vu_n_counters, &device->vu_counters),
		"switches",
		rf_switches_json(rf_host_switch_defs, rf_host_n_switches, &device->switches));
}
