/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A look into a driver queue that drivers need not have: they try, and are told -ENOSPC.
 */
#ifndef RF_TESTS_DRVQ_ROOM_H
#define RF_TESTS_DRVQ_ROOM_H

#include "ring/drvq.h"

/* Descriptors that are free: a buffer of n pieces needs n. */
unsigned drvq_room(const struct rf_drvq *q);

#endif
