/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Running random sequences of operations: which seeds, for how long, and what is told of one that
 * fails. The arguments "--seed N --ops M" run one sequence, cut off after M operations; with
 * "--conn C" all operations and packets of that connection are shown if it fails (999: of all). The
 * environment variables RF_MODEL_SECONDS and RF_MODEL_SEED change how long to go on and where to
 * begin.
 */
#ifndef MODEL_RUN_H
#define MODEL_RUN_H

#include <stddef.h>
#include <stdint.h>

/**
 * struct model_test - A kind of sequence
 * @name:	Name
 * @run:	Run the sequence of a seed, at most so many operations
 */
struct model_test {
	const char *name;
	void (*run)(uint64_t seed, unsigned max_ops);
};

/**
 * struct model_op - A kind of operation
 * @run:	Do one
 * @weight:	How often, relative to the others
 */
struct model_op {
	void (*run)(void);
	unsigned weight;
};

/* Return: what main() is to return. */
int model_main(const struct model_test *test, int argc, char **argv);

/* Note an operation and its result: the last ones are shown when a sequence fails. */
void model_note(const char *op, unsigned conn, unsigned side, long arg, long result);

/* The sequence's virtual time, shown with the operations. */
void model_time(uint64_t now_ns);

/* A packet of a connection was sent, or taken; shown with --conn. */
void model_packet(const char *what, unsigned conn, unsigned side, const char *op, uint32_t len);

/* Operations noted in this sequence. */
unsigned model_ops(void);

/* Do one operation of a table, by chance. */
void model_op(const struct model_op *ops, size_t n, uint64_t *prng);

/* The sequence fails: print why, its seed and its last operations. */
void model_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/* The sequence fails if a model says that something is wrong. */
void model_check(const char *wrong);

#define MODEL_CHECK(what)                                                   \
	do {                                                                \
		if (!(what))                                                \
			model_fail("%s:%d: %s", __FILE__, __LINE__, #what); \
	} while (0)

#endif
