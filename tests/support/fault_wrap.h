/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * System calls and allocations that fail on demand.
 *
 * A program that is linked with fault_wrap_dep has all calls of RF's code stand in for by wrappers.
 * Each call has a table of the ways in which the kernel may really let it fail; each way is one
 * *fault point*. A plan lets point number N fail, counted over all calls of the code under test
 * from fault_begin() on: once, or it and every later call "for ever". Ways that the kernel tells
 * once at a time (EINTR, a short count, ECONNRESET of a unix socket) have no part in the latter.
 *
 * Only calls of the code under test count: those between fault_enter() and fault_leave(), on
 * threads that it starts, and (with fault_rig_dep) within rf_loop_turn(). The same marks tell whose
 * memory and mappings are still there at the end.
 *
 * Time that the code under test sleeps away passes on the warped clock only.
 */
#ifndef RF_TESTS_FAULT_WRAP_H
#define RF_TESTS_FAULT_WRAP_H

#include <setjmp.h>
#include <stdbool.h>

enum fault_mode {
	FAULT_ONCE,
	FAULT_EVER,
	/* Nothing fails, but no call moves more than a few bytes. */
	FAULT_SHORT,
};

/* Begin to count fault points: let number @nth (from 1) fail; 0 lets none. */
void fault_begin(enum fault_mode mode, unsigned nth);

/* Nothing fails any more. Return: did something? */
bool fault_end(void);

/* In between, let nothing count; and go on. */
void fault_pause(bool pause);

/* Has a fault been injected since fault_begin()? Into which call? "none" before. */
bool fault_hit(void);
const char *fault_text(void);

/* Was it one that nobody may notice: a signal, a short count, or none at all? */
bool fault_harmless(void);

/* What follows on this thread is the code under test, or is not any more. */
void fault_enter(void);
void fault_leave(void);

#define FAULT_RUN(expression)                           \
	({                                              \
		fault_enter();                          \
		__typeof__(expression) r_ = expression; \
		fault_leave();                          \
		r_;                                     \
	})

/* A turn of a loop begins: the calls within it are counted, too, and must not be many. */
void fault_turn(void);

/* Allocations and mappings of the code under test that are still there. */
unsigned fault_live_allocations(void);
unsigned fault_live_mappings(void);

/*
 * Called, as no code under test, before each poll(2) and ppoll(2) of the code under test, so that
 * the other side can act; they do not sleep then: if nothing came, the clock is set forward by the
 * time that they were to wait. NULL: they wait for descriptors in earnest.
 */
void fault_set_other_side(void (*act)(void *ctx), void *ctx);

/*
 * Run something of the fake guest that may fail because of a fault: what it finds wrong then leads
 * back here instead of ending the program. (Not so before a fault, and never if a loop spins.)
 */
extern jmp_buf fault_escape;
extern bool fault_may_escape;

#define FAULT_TRY(statement)                 \
	do {                                 \
		fault_may_escape = true;     \
		if (!setjmp(fault_escape)) { \
			statement;           \
		}                            \
		fault_may_escape = false;    \
	} while (0)

#endif
