/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a sequence of model-halves works on: the two halves, the ports that are listened on, and the
 * connections through both, each with its model. All that programs see is checked here.
 */
#ifndef WORLD_H
#define WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"
#include "halves.h"
#include "sock_model.h"

#define HOST  0u
#define GUEST 1u
#define NONE  (-1)
#define MS    RF_NS_PER_MS

#define WORLD_CONNS      48u
#define WORLD_SLOTS      6u
#define WORLD_PORT_FIRST 100u
#define WORLD_READ_MAX   102400u

/**
 * struct conn - A connection
 * @m:		Model
 * @from:	The end that connects
 * @slot:	Port it connects to, less WORLD_PORT_FIRST
 * @end:	Descriptors while programs have them, or NONE
 * @own:	From a port that is used again and again
 * @decided:	Connected or failed; @accepted: its peer has it
 * @gone:	It is over, and no packet of it is on its way
 * @began_op, @began_ns: when
 * @closed_ns:	When its ends were closed; @over_ns: when no bytes could come any more
 */
struct conn {
	struct sock_model m;
	unsigned from, slot;
	int end[2];
	bool own, decided, accepted, gone;
	uint64_t began_op, began_ns;
	uint64_t closed_ns[2], over_ns;
};

/* A port that is listened on at one end, for one connection at a time that is not accepted yet. */
struct slot {
	struct port_model m;
	int listener;
	struct conn *waiting;
};

extern struct world {
	uint64_t seed;
	struct halves h;
	struct slot slots[2][WORLD_SLOTS];
	struct conn conns[WORLD_CONNS];
	unsigned n_conns;
} world;

/* Make the bytes of all streams; once, before all else. */
void world_make_bytes(void);

/* A random number of the sequence. */
uint32_t world_below(uint32_t n);

/* Number of a connection, for model_note(). */
unsigned world_number(const struct conn *c);

/* Listen on a port, and no longer. */
void world_listen(unsigned side, unsigned i);
void world_unlisten(unsigned side, unsigned i);

/* Return: false if nobody listens, or nobody has come. */
bool world_accept(unsigned side, unsigned i);

/* May this end's program send and receive? */
bool world_usable(const struct conn *c, unsigned side);

/* When all is @settled, sending takes the turns and the time that it needs. */
void world_send(struct conn *c, unsigned side, uint32_t len, bool settled);

/* Return: bytes, 0 at end of file, or -errno. */
long world_recv(struct conn *c, unsigned side, uint32_t len, bool peek, bool settled);

void world_close(struct conn *c, unsigned side);

/* What has come of connects, and of time. */
void world_look(void);

/* Let time pass, or a half have its turn, and look. Return: true if it had one. */
void world_pass_time(uint64_t ns);
bool world_turn(unsigned side);

#endif
