/* SPDX-License-Identifier: BSD-3-Clause */
#include "drvq_room.h"

#include "drvq_priv.h"

unsigned drvq_room(const struct rf_drvq *q)
{
	return q->n_free;
}
