/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A look into a driver queue that drivers need not have: they try, and are told -ENOSPC.
 */
#ifndef RF_TESTS_DRVQ_ROOM_H
#define RF_TESTS_DRVQ_ROOM_H

#include "drvq_priv.h"

/* Descriptors that are free: a buffer of n pieces needs n. */
static inline unsigned drvq_room(const struct rf_drvq *q)
{
	return q->n_free;
}

#endif
