/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the two halves of a fake guest share: fake_guest.c (memory and driver) and fake_front.c (the
 * VMM's front end).
 */
#ifndef FAKE_GUEST_PRIV_H
#define FAKE_GUEST_PRIV_H

#include "fake_guest.h"

/* Guest-physical address of the first byte of the file, and where the front end sees that. */
#define FAKE_GPA UINT64_C(0x100000)
#define FAKE_UVA UINT64_C(0x600000000000)

/* Rings come first in the file, each with room for the largest one. */
#define FAKE_RING_BYTES 0x100000u
#define FAKE_RING_AVAIL 0x80000u
#define FAKE_RING_USED  0xa0000u

/* Where a slot's memory begins in the file: bytes, and an indirect table behind them. */
off_t fake_guest_slot(const struct fake_guest *g, unsigned ring, unsigned slot);

/* Make the memory, if it was not made yet. */
void fake_guest_map(struct fake_guest *g);

/* Begin a ring anew: what the device had of the old one is the guest's again. */
void fake_guest_new_ring(struct fake_guest *g, unsigned ring);

/* Close what the front end has passed on of a ring. */
void fake_guest_close_fds(struct fake_ring *ring);

#endif
