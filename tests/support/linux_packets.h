/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The packets recorded from Linux guests (tests/fixtures/linux-*-packets.txt; the files say how).
 */
#ifndef RF_TEST_LINUX_PACKETS_H
#define RF_TEST_LINUX_PACKETS_H

#include <stdbool.h>
#include <stdint.h>

#include "vsock/packet.h"

#define LINUX_MAX_PIECES 8u

/**
 * struct linux_packet - One recorded packet and the buffer that it was in
 * @from_guest:	The guest sent it
 * @indirect:	Its buffer was an indirect table, not a chain of descriptors
 * @n_pieces:	Pieces of the buffer
 * @piece_bytes: Their sizes
 * @wire:	Its header
 * @hdr:	The same, decoded
 */
struct linux_packet {
	bool from_guest;
	bool indirect;
	unsigned n_pieces;
	uint32_t piece_bytes[LINUX_MAX_PIECES];
	uint8_t wire[RF_VSOCK_HDR_BYTES];
	struct rf_vsock_hdr hdr;
};

/**
 * struct linux_scene - What happened on one connection
 * @name:	Name
 * @packets:	Packets, in order
 * @n_packets:	Their number
 */
struct linux_scene {
	char name[40];
	struct linux_packet *packets;
	unsigned n_packets;
};

struct linux_scenes {
	struct linux_scene *scenes;
	unsigned n_scenes;
};

/**
 * linux_scenes_read() - Read a fixture; ends the test if it cannot be read or makes no sense
 * @name:	File in tests/fixtures
 */
void linux_scenes_read(const char *name, struct linux_scenes *ret_scenes);

void linux_scenes_free(struct linux_scenes *scenes);

/* The scene of that name; ends the test if there is none. */
const struct linux_scene *linux_scene_find(const struct linux_scenes *scenes, const char *name);

#endif
