/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A ring as its driver's side describes it to a back end, whichever way: front.h, kernel.h.
 */
#ifndef RF_VHOST_VRING_H
#define RF_VHOST_VRING_H

#include <stdint.h>

#include "ring/mem.h"

/**
 * struct rf_vhost_vring - A ring as it is told to the back end
 * @num:	Size
 * @base:	Index of the next available buffer
 * @desc, @driver, @device: The areas, in our address space (as in the regions of memory)
 * @kick_fd:	eventfd that we signal; borrowed
 * @call_fd:	eventfd that the back end signals; borrowed
 * @err_fd:	eventfd that the back end signals when it gives the ring up, or -1; borrowed
 */
struct rf_vhost_vring {
	uint32_t num;
	uint16_t base;
	struct rf_uva desc, driver, device;
	int kick_fd, call_fd, err_fd;
};

#endif
