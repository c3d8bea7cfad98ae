/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The soak test: a back end, and for each of its devices a process of host programs and one of
 * user-space guests, all connecting to each other at once for as long as asked.
 *
 * DOC: Theory of operation. The driver, the parent of all, shares one block of memory with them. A
 * connection has a *slot* there: a plan of what each side sends and how the connection ends, and
 * for each side what it sent and received. What is sent follows from the slot, the connection's
 * number and the position, and is checked where it arrives. When both sides are done the driver
 * judges: all bytes must have arrived.
 *
 * Now and then the driver *cuts*: it kills a guest or the back end, or lets a guest detach. Each
 * device has an epoch, odd while that goes on. A connection whose sides did not begin and end in
 * one even epoch was cut, perhaps: what arrived of it must be a prefix of what was sent, no more.
 *
 * A process may be killed at any point, so whoever starts a connection and whoever accepts it only
 * write to their own side, and everything that outlives a process is decided by the driver.
 */
#ifndef SOAK_H
#define SOAK_H

#include <ringferry/guest.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "prng.h"

#define SOAK_DEVICES    2
#define SOAK_STREAMS    8
#define SOAK_SLOTS      (2 * SOAK_STREAMS)
#define SOAK_HOST_PORT  6000u
#define SOAK_GUEST_PORT 7000u
#define SOAK_BACKLOG    64
/* Machines that do much else are no excuse for a connection that is refused; less than 15 seconds,
 * for which rf_client_connect() waits. */
#define SOAK_HANDSHAKE_S 12u
#define SOAK_NS_PER_SEC  UINT64_C(1000000000)

enum soak_who {
	SOAK_HOST,
	SOAK_GUEST,
};

enum soak_kind {
	/* Both sides send all, say so, and read to the end of file. */
	SOAK_ORDERLY,
	/* The actor closes when it has sent all, whatever is on its way to it. */
	SOAK_CLOSES,
	/* The actor stops receiving after some bytes, and sends all nevertheless. */
	SOAK_DEAF,
	SOAK_KINDS,
};

/**
 * struct soak_plan - What happens on a connection; arrays are indexed by side
 * @kind:	How it ends
 * @actor:	The side that does so
 * @stop_after:	Bytes that the actor receives at least, for the latter two kinds
 * @bytes:	What the side sends
 * @chunk:	Most bytes per call
 * @pause_ms:	Longest pause
 * @pause_every: One in so many calls is followed by a pause
 * @by_event_fds: How the guest waits, see struct soak_end
 */
struct soak_plan {
	enum soak_kind kind;
	enum soak_who actor;
	uint64_t stop_after;
	uint64_t bytes[2];
	uint32_t chunk[2];
	uint32_t pause_ms[2];
	uint32_t pause_every[2];
	bool by_event_fds;
};

enum soak_state {
	SOAK_WAITING,
	SOAK_RUNNING,
	SOAK_DONE,
};

/* A connection's number and a side's state in one word, so that a side that comes late, to a
 * connection that is over, cannot be taken for one of the next. */
#define SOAK_WORD(number, state) ((number) << 2 | (uint64_t)(state))
#define SOAK_NUMBER(word)        ((word) >> 2)
#define SOAK_STATE(word)         ((enum soak_state)((word)&3))

#define SOAK_NOT_BAD UINT64_MAX

/**
 * struct soak_side - What one side of a connection says
 * @word:	SOAK_WORD()
 * @begin, @end: The device's epoch then
 * @refused:	0, or why it could not connect, a positive errno
 * @send_error:	0, or a positive errno
 * @recv_error:	0, or a positive errno
 * @eof:	Read the end of file
 * @offered:	Bytes it has given to send() or was about to
 * @sent:	Bytes that send() took
 * @received:	Bytes that came, all as they should be
 * @bad_at:	Position of the first byte that was not, or SOAK_NOT_BAD
 * @moved_ns:	When it last did something
 */
struct soak_side {
	_Atomic uint64_t word;
	_Atomic uint64_t begin, end;
	_Atomic int refused;
	_Atomic int send_error, recv_error;
	_Atomic bool eof;
	_Atomic uint64_t offered, sent, received;
	_Atomic uint64_t bad_at;
	_Atomic uint64_t moved_ns;
};

/**
 * struct soak_slot - A place for one connection at a time
 * @judged:	Number of the last connection that is over
 * @plan:	Its plan, written by the side that connects
 * @side:	Its sides, by enum soak_who
 */
struct soak_slot {
	_Atomic uint64_t judged;
	struct soak_plan plan;
	struct soak_side side[2];
};

/**
 * struct soak_device - One device of the back end and its two processes
 * @cid:	Guest's CID
 * @socket:	vhost-user socket
 * @uds:	Hybrid socket
 * @epoch:	Odd while somebody is being killed or detached
 * @detach_asked, @detach_done: Times the guest was asked to detach and come back, and did so
 * @ready:	The guest's process is attached and accepts
 * @attachments: Times its guest has attached
 * @late_wakeups: Times a wait ended by the clock though there was something
 * @slots:	The host's connections first, then the guest's
 */
struct soak_device {
	uint32_t cid;
	char socket[96];
	char uds[80];
	_Atomic uint64_t epoch;
	_Atomic unsigned detach_asked, detach_done;
	_Atomic bool ready;
	_Atomic unsigned attachments;
	_Atomic unsigned late_wakeups;
	struct soak_slot slots[SOAK_SLOTS];
};

/**
 * struct soak_shared - What all processes see
 * @seed:	Seed
 * @stop:	Everybody is to end
 * @quiet:	No connection is to be begun
 */
struct soak_shared {
	uint64_t seed;
	_Atomic bool stop;
	_Atomic bool quiet;
	struct soak_device devices[SOAK_DEVICES];
};

/* The first bytes on each connection, from the side that connects. */
struct soak_hello {
	uint32_t cid;
	uint32_t slot;
	uint64_t number;
};

/**
 * struct soak_end - One end of a connection
 * @guest:	The guest, NULL for the host
 * @fd:		Socket of the guest, or descriptor of the host
 * @by_event_fds: Wait for a guest's socket by rf_event_fd(), not by rf_poll()
 */
struct soak_end {
	struct rf_guest *guest;
	int fd;
	bool by_event_fds;
};

/**
 * struct soak_peer - A process that connects and accepts
 * @shared:	Shared memory
 * @device:	Its device there
 * @who:	Which of the two it is
 * @guest:	Its guest, NULL for the host
 * @listener:	What it accepts from
 * @stop:	Its threads are to end
 * @n_accepted:	Threads that serve a connection
 */
struct soak_peer {
	struct soak_shared *shared;
	struct soak_device *device;
	enum soak_who who;
	struct rf_guest *guest;
	int listener;
	_Atomic bool stop;
	_Atomic unsigned n_accepted;
};

/* clock.c */

uint64_t soak_now_ns(void);
void soak_sleep_ms(unsigned ms);

/* usage.c */

/* How many descriptors a process has, three more at most. */
long soak_count_fds(pid_t pid);

/* Resident memory of a process's own: how much of the guest's was touched does not matter. */
long soak_memory_kib(pid_t pid);

/* pattern.c */

/* What follows from a seed and four numbers, well mixed. */
uint64_t soak_mix(uint64_t a, uint64_t b, uint64_t c, uint64_t d);

void soak_pattern_fill(uint64_t key, uint64_t position, uint8_t *buf, size_t len);

/* Return: how many of the bytes are as they should be, up to the first that is not. */
size_t soak_pattern_check(uint64_t key, uint64_t position, const uint8_t *buf, size_t len);

/* plan.c */

void soak_plan_make(uint64_t seed, struct soak_plan *plan);

/* end.c: all return as system calls of a non-blocking socket do, with -errno. */

ssize_t soak_end_send(const struct soak_end *end, const void *buf, size_t len, bool wait);
ssize_t soak_end_recv(const struct soak_end *end, void *buf, size_t len);
int soak_end_poll(const struct soak_end *end, short events, int timeout_ms);
void soak_end_shutdown(const struct soak_end *end, int how);
void soak_end_close(const struct soak_end *end);

/* stream.c */

/**
 * soak_stream_run() - Do one side's part of a connection that is established
 * @key:	Of what @who sends; the other side's is the same, inverted
 *
 * The end is closed then, unless the process is to stop.
 */
void soak_stream_run(struct soak_peer *peer, struct soak_slot *slot, const struct soak_end *end,
		     uint64_t key);

/* peer.c */

/* The processes' main functions. Return: exit status. */
int soak_host_main(struct soak_shared *shared, struct soak_device *device);
int soak_guest_main(struct soak_shared *shared, struct soak_device *device);

#endif
