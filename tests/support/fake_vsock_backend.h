/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A vsock back end for the tests of the guest half, in a thread of its own. It plays the host in
 * one of two ways: by the test's hand, packet by packet and as wrongly as the test likes; or by
 * itself, with a few services.
 *
 * Functions fail the test (cmocka) when what they wait for does not come within 5 seconds. All may
 * be called by the test's thread only.
 */
#ifndef RF_TESTS_FAKE_VSOCK_BACKEND_H
#define RF_TESTS_FAKE_VSOCK_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "vsock/packet.h"

struct fake_backend;

#define FAKE_CID 3u

/* Ports of the host in automatic mode; others refuse. */
enum {
	FAKE_ECHO = 7,    /* sends back what it gets, and ends when the guest ends */
	FAKE_SINK = 9,    /* reads to the end, then closes */
	FAKE_SOURCE = 19, /* sends FAKE_SOURCE_BYTES bytes of pattern.h, then closes */
	FAKE_SILENT = 21, /* does not answer */
	FAKE_SLOW = 23,   /* reads 16 packets per ms; counts packets, and tells, as Linux does */
};

#define FAKE_SOURCE_BYTES (4u << 20)

/**
 * struct fake_options - What the back end is like
 * @automatic:	Plays the host by itself
 * @cid:	CID in the configuration space
 * @no_version_1, @no_event_idx, @no_config: Features not offered
 * @queue_num:	Answer to GET_QUEUE_NUM; 0 for no MQ
 */
struct fake_options {
	bool automatic;
	uint64_t cid;
	bool no_version_1, no_event_idx, no_config;
	unsigned queue_num;
};

/* Manual, CID FAKE_CID, everything offered, 3 rings. */
extern const struct fake_options fake_manual, fake_automatic;

/* A back end that listens on fake_path(); its own directory is made for that. */
struct fake_backend *fake_new(const struct fake_options *options);
void fake_free(struct fake_backend *fake);
const char *fake_path(const struct fake_backend *fake);

/* Go away (session and listener), and come back, with another CID. */
void fake_down(struct fake_backend *fake);
void fake_up(struct fake_backend *fake, uint64_t cid);

/* Only end the session. */
void fake_hang_up(struct fake_backend *fake);

/* Wait until a guest is attached, its rings running. */
void fake_wait_attached(struct fake_backend *fake);

/**
 * fake_next() - The next packet from the guest
 * @ret_payload: hdr->len bytes; NULL if not wanted
 */
void fake_next(struct fake_backend *fake, struct rf_vsock_hdr *ret_hdr, uint8_t *ret_payload);

/* The next packet, which must be of this operation. */
struct rf_vsock_hdr fake_expect(struct fake_backend *fake, uint16_t op);

/* No packet comes from the guest within @ms. */
void fake_expect_none(struct fake_backend *fake, int ms);

/* From now on, the guest's questions for credit (CREDIT_REQUEST) are not handed out. */
void fake_ignore_questions(struct fake_backend *fake);

/* Forget the packets that came so far. */
void fake_forget(struct fake_backend *fake);

/* Send a packet to the guest. */
void fake_send(struct fake_backend *fake, const struct rf_vsock_hdr *hdr, const void *payload);

/* The same, but say that so many bytes were written. */
void fake_send_used(struct fake_backend *fake, const struct rf_vsock_hdr *hdr, const void *payload,
		    uint32_t used);

/* A header for the guest's answer side: addresses of @hdr swapped, stream, a window of 256 KiB. */
struct rf_vsock_hdr fake_answer(const struct rf_vsock_hdr *hdr, uint16_t op);

/* A header from the host's port to the guest's port. */
struct rf_vsock_hdr fake_hdr(uint16_t op, uint32_t host_port, uint32_t guest_port);

/* Stop taking packets from the transmit ring, and go on. */
void fake_hold_tx(struct fake_backend *fake, bool hold);

/* While they are held: take one packet, and return it used. */
void fake_take_one(struct fake_backend *fake);

/* Send an event of @used bytes. */
void fake_event(struct fake_backend *fake, uint32_t id, uint32_t used);

/* Send two events at once. */
void fake_two_events(struct fake_backend *fake, uint32_t first, uint32_t second);

/* Write nonsense into a ring's used area and notify. */
void fake_break_ring(struct fake_backend *fake, unsigned ring);

/* Signal the error eventfd. */
void fake_signal_error(struct fake_backend *fake);

/* Write a byte on the session's socket that nobody asked for. */
void fake_chatter(struct fake_backend *fake);

/* Automatic: connect to a port of the guest; an echo service answers there. */
void fake_connect(struct fake_backend *fake, uint32_t guest_port);

/*
 * FAKE_SLOW: bytes read so far, all of which were those of pattern.h; packets that Linux 6.12.92
 * would have dropped.
 */
uint64_t fake_slow_bytes(struct fake_backend *fake);
uint64_t fake_overflows(struct fake_backend *fake);

#endif
