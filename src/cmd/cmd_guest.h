/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the parts of "ringferry guest" share: cmd_guest.c (options), cmd_guest_serve.c (services),
 * cmd_guest_netcat.c (one connection on standard input and output), cmd_guest_digest.c (bytes made
 * and bytes summed up).
 */
#ifndef RF_CMD_CMD_GUEST_H
#define RF_CMD_CMD_GUEST_H

#include <openssl/evp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/loop.h"
#include "ringferry/guest.h"

/* As many services as a program has. */
#define RF_GUEST_MAX_SERVICES 64u

enum rf_guest_service_kind {
	RF_GUEST_ECHO,
	RF_GUEST_SINK,
	RF_GUEST_SOURCE,
};

/**
 * struct rf_guest_service - A port that is served
 * @kind:	What it does
 * @port:	Port
 * @bytes:	Source: bytes per connection
 */
struct rf_guest_service {
	enum rf_guest_service_kind kind;
	uint32_t port;
	uint64_t bytes;
};

/**
 * struct rf_guest_services - What is served
 * @seed:	Seed of the sources' stream
 */
struct rf_guest_services {
	unsigned n;
	struct rf_guest_service list[RF_GUEST_MAX_SERVICES];
	uint64_t seed;
};

/**
 * struct rf_guest_seeded - A stream of bytes that a seed determines
 * @seed:	Seed
 * @at:		Bytes already made
 *
 * The stream is 64-bit words, least significant byte first; word number i, from 0, is
 * mix(seed + (i + 1) * 0x9e3779b97f4a7c15) modulo 2^64, where mix is the one of splitmix64:
 * z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9; z = (z ^ z >> 27) * 0x94d049bb133111eb; z ^ z >> 31.
 */
struct rf_guest_seeded {
	uint64_t seed;
	uint64_t at;
};

/* Make the next bytes of the stream; @len is a multiple of 8, or these are the last. */
void rf_guest_seeded_fill(struct rf_guest_seeded *seeded, uint8_t *buf, size_t len);

/* As many characters as a digest has, with the NUL. */
#define RF_GUEST_DIGEST_CHARS 65

/* Finish a SHA-256 digest and write it in hexadecimal. */
void rf_guest_digest_text(EVP_MD_CTX *sha256, char ret_text[RF_GUEST_DIGEST_CHARS]);

struct rf_guest_server;

/**
 * rf_guest_serve_new() - Listen on the ports of services, and serve them on a loop
 * @services:	They stay where they are
 * @ret_port:	The port that cannot be had, if the call fails
 * Return: 0, or -errno.
 */
int rf_guest_serve_new(struct rf_loop *loop, struct rf_guest *guest,
		       const struct rf_guest_services *services,
		       struct rf_guest_server **ret_server, uint32_t *ret_port);

/* Close everything; before the guest is closed. NULL may be given. */
void rf_guest_serve_free(struct rf_guest_server *server);

struct rf_guest_netcat;

/**
 * rf_guest_netcat_new() - Begin one connection on standard input and output
 * @loop:	Told to quit when it is over
 * @guest:	Guest
 * @listen:	Take the next connection to @addr's port, instead of connecting to @addr
 * Return: 0, or -errno.
 */
int rf_guest_netcat_new(struct rf_loop *loop, struct rf_guest *guest, bool listen,
			const struct rf_sockaddr *addr, struct rf_guest_netcat **ret_netcat);

/**
 * rf_guest_netcat_free() - End it, wherever it stands
 * Return: the exit status; not 0 after an error line.
 */
int rf_guest_netcat_free(struct rf_guest_netcat *nc);

#endif
