/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A device-side queue under test, on memory of three regions, with a fake driver on the other side.
 */
#ifndef DEVQ_FIXTURE_H
#define DEVQ_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "ring/devq.h"

#include "fake_driver.h"
#include "fake_mem.h"

/* Guest memory: the rings, indirect tables and buffers in A; B follows it for the guest only. */
#define A_GPA    0x100000u
#define A_SIZE   0x200000u
#define DESC_GPA A_GPA
#define DRV_GPA  (A_GPA + 0x80000)
#define DEV_GPA  (A_GPA + 0xa0000)
#define TBL_GPA  (A_GPA + 0xe0000)
#define BUF_GPA  (A_GPA + 0x100000)
#define B_GPA    (A_GPA + A_SIZE)
#define B_SIZE   0x1000u
#define C_GPA    0x400000u
#define C_SIZE   0x800u
#define NOWHERE  0x500000u

extern const struct fake_region devq_fixture_regions[3];

/**
 * struct devq_fixture - All of it
 * @m:		Memory; what lies behind BUF_GPA holds a pattern
 * @drv:	The driver, which pokes @m through the test's own mapping
 * @config:	What the queue is started with: event index and indirect descriptors
 * @q:		The queue
 */
struct devq_fixture {
	struct fake_mem m;
	struct fake_driver drv;
	struct rf_ring_config config;
	struct rf_devq *q;
};

/* Make it, stopped; both indices are at @base. Everything here aborts or fails the test if it must.
 */
void devq_fixture_init(struct devq_fixture *f, uint32_t num, uint16_t base);

/* Make it and start the queue. */
void devq_fixture_start(struct devq_fixture *f, uint32_t num, uint16_t base);

void devq_fixture_fini(struct devq_fixture *f);

/* The test's address of a byte of guest memory. */
uint8_t *devq_fixture_guest(struct devq_fixture *f, uint64_t gpa);

/* Offer a buffer of one descriptor, at BUF_GPA + 256 * @head; tells whether to kick. */
bool devq_fixture_offer(struct devq_fixture *f, uint16_t head, uint32_t len, uint16_t flags);

/* Look at, take, fill and return all there is; tells whether the driver is to be notified. */
bool devq_fixture_serve(struct devq_fixture *f);

/* The queue is broken for this reason, and stays so until it is started again: that is done. */
void devq_fixture_check_broken(struct devq_fixture *f, const char *what,
			       enum rf_ring_reason reason);

/* A range of guest memory. */
struct range {
	uint64_t gpa;
	uint32_t len;
};

/* The pieces are exactly these ranges, byte for byte, and cut at least where the ranges are. */
void devq_fixture_check_pieces(struct devq_fixture *f, const char *what, const struct iovec *iov,
			       unsigned n, const struct range *ranges);

#endif
