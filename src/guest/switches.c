/* SPDX-License-Identifier: BSD-3-Clause */
#include "guest/switches.h"

const struct rf_switch_def rf_guest_switch_defs[] = {
#define X(member_, name_, type_, def_, values_, help_)           \
	{ .name = name_,                                         \
	  .type = type_,                                         \
	  .offset = offsetof(struct rf_guest_switches, member_), \
	  .def = def_,                                           \
	  .values = values_,                                     \
	  .help = help_ },
	RF_GUEST_SWITCHES(X)
#undef X
};
const size_t rf_guest_n_switches = RF_ARRAY_SIZE(rf_guest_switch_defs);
