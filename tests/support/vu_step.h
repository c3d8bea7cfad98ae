/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One line of a script (vu_lab.h) while it is run: vu_script.c runs it, vu_step.c takes it apart
 * and makes its message.
 */
#ifndef RF_TESTS_VU_STEP_H
#define RF_TESTS_VU_STEP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "vu_lab.h"

#define VU_STEP_MAX_WORDS 32
#define VU_STEP_MAX_FDS   16

#define vu_step_fail(step, ...)                                               \
	do {                                                                  \
		print_error("%s:%u: ", (step)->lab->name, (step)->lab->line); \
		print_error(__VA_ARGS__);                                     \
		print_error("\n");                                            \
		fail();                                                       \
	} while (0)

/* A line of the script, taken apart, and the message it makes. */
struct vu_step {
	struct vu_lab *lab;
	char *words[VU_STEP_MAX_WORDS];
	unsigned n_words, next;
	struct rf_vu_message msg;
	int fds[VU_STEP_MAX_FDS];
	unsigned n_fds;
};

/* Are there words left? */
bool vu_step_more(const struct vu_step *step);

/* The next word; the test fails if there is none. */
char *vu_step_word(struct vu_step *step);
uint64_t vu_step_number(struct vu_step *step);

/* Take the next word if it is this one. */
bool vu_step_take(struct vu_step *step, const char *what);

/* Take the next word if it is "NAME=number". */
bool vu_step_take_value(struct vu_step *step, const char *name, uint64_t *ret_value);

/* Make the message of a request from the words: payload, descriptors, and what bends it. */
void vu_step_parse_payload(struct vu_step *step);
void vu_step_parse_options(struct vu_step *step);

#endif
