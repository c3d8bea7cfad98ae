/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What stream sockets promise, as a reference for tests: two byte streams per connection, with
 * their ends. It knows nothing of packets, credit or buffers, and keeps no bytes: a stream's bytes
 * follow from their positions, which the caller checks.
 *
 * Each call is told what the program saw and says what is wrong with that, or NULL. As news of the
 * peer takes its time, often several results are right. When everything is @settled (all that is on
 * its way has arrived) only one is.
 */
#ifndef SOCK_MODEL_H
#define SOCK_MODEL_H

#include <stdbool.h>
#include <stdint.h>

/**
 * struct sock_model_side - One end of a connection
 * @sent:	Bytes that send() has taken
 * @got:	Bytes that recv() has returned
 * @shut_wr, @shut_rd, @closed: what its program has done
 * @eof:	recv() has returned end of file, or ECONNRESET: nothing comes any more
 * @reset_told:	A call has returned ECONNRESET, which is said once
 * @quiet:	That its program shuts down receiving is noticed only when bytes come (unix)
 */
struct sock_model_side {
	uint64_t sent, got;
	bool shut_wr, shut_rd, closed;
	bool eof, reset_told;
	bool quiet;
};

/**
 * struct sock_model - A connection
 * @side:	Its ends
 * @reset:	Something happened that may reset it: the transport was reset, an end was closed
 *		before the other had accepted or in vain asked for the time allowed to agree. Bytes
 *		may be lost then, but never change.
 */
struct sock_model {
	struct sock_model_side side[2];
	bool reset;
};

/* send() returned @n: bytes or -errno. */
const char *sock_model_send(struct sock_model *m, unsigned side, long n, bool settled);

/* recv() returned @n: bytes, 0 at end of file, or -errno; @peek: without taking them. */
const char *sock_model_recv(struct sock_model *m, unsigned side, long n, bool peek, bool settled);

void sock_model_shutdown(struct sock_model *m, unsigned side, bool rd, bool wr);
void sock_model_close(struct sock_model *m, unsigned side);

/* Nothing is on its way, and both programs have read what they could: has all arrived? */
const char *sock_model_settled(const struct sock_model *m);

/**
 * struct port_model - Who listens on a port, and since when
 * @listening:	Somebody does
 * @backlog:	Connections that may wait, and one more
 * @waiting:	Connections that were begun and neither accepted nor given up
 * @since:	When that changed last; times count the test's operations
 * @crowded:	When more were last waiting than may
 */
struct port_model {
	bool listening;
	unsigned backlog, waiting;
	uint64_t since, crowded;
};

/* Somebody listens from now on, or nobody does. */
void port_model_listen(struct port_model *p, bool listening, unsigned backlog, uint64_t now);

/* A connect begins; one that began is decided: accepted by a program, failed or given up. */
void port_model_begin(struct port_model *p, uint64_t now);
void port_model_end(struct port_model *p);

/* A connect that began at @began was answered: with success or refused. */
const char *port_model_answer(const struct port_model *p, uint64_t began, bool refused);

#endif
