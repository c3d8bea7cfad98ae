/* SPDX-License-Identifier: BSD-3-Clause */
typedef int rf_stub_t; /* to be written */
