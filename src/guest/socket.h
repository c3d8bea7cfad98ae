/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sockets: their slots and life, their state, and what happens when it changes.
 *
 * DOC: Life. A socket's structure stays where it is once its slot was used; only its generation
 * changes. @life holds the generation, whether the socket is open, and a count of references:
 * one of the open descriptor, one while the connection table has it, one per list or timer that it
 * stands in, and one per call that works on it. A descriptor names slot and generation, so a lookup
 * is one compare-and-swap, and one that comes too late finds another generation or a closed socket.
 * The last reference to go empties the slot.
 *
 * DOC: Locks, in this order: that of serving the receive ring (serve_rx.h), the guest's table_mutex
 * (connection table, ports, current device), a listener's mutex, a socket's mutex, the transmit
 * ring's; those of slots, attention and receive buffers are leaves. @send_mutex and @recv_mutex
 * come before the socket's mutex and are held while bytes are copied, never while waiting; who
 * holds one takes no table_mutex.
 */
#ifndef RF_GUEST_SOCKET_H
#define RF_GUEST_SOCKET_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/loop.h"
#include "base/poll_auto.h"
#include "ringferry/guest.h"
#include "rx.h"
#include "strict.h"
#include "vsock/conn.h"

struct rf_guest;
struct rf_device;
struct rf_poller;

/*
 * 32,768 slots, whose memory comes with their first use; a descriptor is generation << 15 | slot,
 * the generation counting from 1.
 */
#define RF_SOCK_SLOT_BITS 15
#define RF_SOCK_SLOTS     (1u << RF_SOCK_SLOT_BITS)
/*
 * Empty slots that stay so before one is used anew: the longer a descriptor stays stale the better
 * (for 4 million sockets and more), but the memory of a slot that was used stays.
 */
#define RF_SOCK_STALE_SLOTS    64u
#define RF_SOCK_MAX_GENERATION ((uint32_t)INT32_MAX >> RF_SOCK_SLOT_BITS)

enum rf_sock_state {
	RF_SOCK_STATE_NEW, /* nothing yet, or a connect that failed */
	RF_SOCK_STATE_LISTENING,
	RF_SOCK_STATE_CONNECTING,
	RF_SOCK_STATE_CONNECTED, /* once connected: what is left of it, the connection knows */
};

/**
 * struct rf_poll_entry - A poller's interest in a socket
 */
struct rf_poll_entry {
	LIST_ENTRY(rf_poll_entry) link;
	struct rf_poller *poller;
	int events;
};

/**
 * struct rf_sock_sizes - What options set: for the connections to come
 */
struct rf_sock_sizes {
	uint64_t window, window_min, window_max;
	uint64_t connect_timeout_ms;
};

/**
 * struct rf_sock - A socket
 * @guest:	Its guest
 * @slot:	Its slot
 * @tx_behind:	Packets of this slot's connections in the transmit ring's backlog; under the ring's
 *		mutex
 * @life:	See above; LIFE_* in socket.c
 * @mutex:	Protects what follows @out_cond, if nothing else is said
 * @send_mutex:	Held from the check of credit to publishing
 * @recv_mutex:	Held while received bytes are out of @received
 * @in_cond:	Something to read or accept, or never again
 * @out_cond:	Room to send, connected, or never again
 *
 * @changes:	Changes that rf_sock_changed() told of; written with @mutex held, read by those who
 *		poll without
 *
 * From @state on all is zero when the slot is used anew. What every packet has to look at comes
 * first, around that of @conn.
 *
 * @state:	State
 * @closed:	By rf_close(); the connection may still be saying good-bye
 * @nonblock:	As O_NONBLOCK
 * @shut_rd:	RF_SHUT_RD was asked for: nothing is delivered any more
 * @wants_credit: A sender, or one that polls, waits until the peer has room
 * @tx_waits:	Found no room on the ring, and was not told yet that there is some
 * @tx_queued, @tx_link: the transmit ring's; @tx_open: it is queued there only for @open
 * @open:	A data packet that has not left and may grow (join.h), or NULL; its header has its
 *		length so far
 * @listed:	@conn is in the connection table; changes under table_mutex, too
 * @attention, @attention_link: the attention list's
 * @error:	Pending error as a positive errno
 * @poll_auto:	When calls that wait for the socket poll
 * @last_events: RF_POLL* bits as of the last change
 * @event_fds:	Event fds for in and out, plus one; 0 for none
 * @device:	The attachment that @conn is on; a reference. Set before CONNECTING, and not changed
 *		once CONNECTED.
 * @received:	Chunks to read
 * @unread:	Bytes in them, those included that a reader has taken out to copy
 * @polls:	Pollers interested
 * @timer_ns:	What @timer was set to, 0 if it does not run
 * @conn:	The connection, from connect or accept on
 * @strict:	Packets of @received, if they are counted
 * @sizes:	Options
 * @local:	Local address; the port is valid if @bound or in any state but NEW
 * @bound:	In the table of ports; under table_mutex, too
 * @port_chosen: Its port was chosen by rf_connect()
 * @port_link:	The table's of ports; under table_mutex
 * @backlog:	Listener: connections that may wait
 * @n_pending, @pending: Listener: connections that wait; each holds the reference of an open one
 * @pending_link: The listener's
 * @timer:	The guest's thread's; runs towards @timer_ns
 */
struct rf_sock {
	struct rf_guest *guest;
	uint32_t slot;
	uint32_t tx_behind;
	_Atomic uint64_t life;
	pthread_mutex_t mutex;
	pthread_mutex_t send_mutex;
	pthread_mutex_t recv_mutex;
	pthread_cond_t in_cond, out_cond;
	atomic_uint changes;

	enum rf_sock_state state;
	bool closed, nonblock, shut_rd;
	bool wants_credit, tx_waits, tx_queued, tx_open;
	bool listed, attention;
	int error;
	struct rf_poll_auto poll_auto;
	int last_events;
	int event_fds[2];
	struct rf_device *device;
	struct rf_tx_slot *open;
	struct rf_chunks received;
	uint64_t unread;
	LIST_HEAD(, rf_poll_entry) polls;
	uint64_t timer_ns;
	struct rf_vsock_conn conn;
	struct rf_strict strict;
	TAILQ_ENTRY(rf_sock) tx_link;
	TAILQ_ENTRY(rf_sock) attention_link;
	struct rf_sock_sizes sizes;
	struct rf_sockaddr local;
	bool bound;
	bool port_chosen;
	LIST_ENTRY(rf_sock) port_link;
	unsigned backlog;
	unsigned n_pending;
	TAILQ_HEAD(, rf_sock) pending;
	TAILQ_ENTRY(rf_sock) pending_link;
	struct rf_timer timer;
};

TAILQ_HEAD(rf_sock_list, rf_sock);

/**
 * struct rf_sock_slots - All sockets of a guest
 * @mutex:	Protects @free and @n_free
 * @all:	Sockets by slot; NULL where the slot was never used
 * @n_used:	Slots that were ever used
 * @free:	Empty slots among those; the longest empty one is used first
 */
struct rf_sock_slots {
	pthread_mutex_t mutex;
	struct rf_sock *_Atomic all[RF_SOCK_SLOTS];
	uint32_t n_used;
	uint16_t free[RF_SOCK_SLOTS];
	uint32_t first_free, n_free;
};

void rf_sock_slots_init(struct rf_sock_slots *slots);

/* All sockets must have been let go of. */
void rf_sock_slots_fini(struct rf_sock_slots *slots);

/**
 * rf_sock_new() - Take a slot for a new socket
 * @ret_sock:	The socket; the reference is that of the descriptor, which can be used from
 *		rf_sock_open() on
 *
 * Return: 0, -EMFILE, or -ENOMEM.
 */
int rf_sock_new(struct rf_guest *guest, struct rf_sock **ret_sock);

/* Let a socket's descriptor be used. Return: the descriptor. */
int rf_sock_open(struct rf_sock *sock);

/* The socket's descriptor, open or not. */
int rf_sock_fd(const struct rf_sock *sock);

/**
 * rf_sock_get() - The socket of a descriptor
 * Return: the socket with a reference for the caller, or NULL if it is not open.
 */
struct rf_sock *rf_sock_get(struct rf_guest *guest, int fd);

/**
 * rf_sock_get_to_close() - The same, and nobody else gets it any more
 * Return: the socket with the reference of the open descriptor, or NULL if it is not open.
 */
struct rf_sock *rf_sock_get_to_close(struct rf_guest *guest, int fd);

/* Another reference; the caller has one or holds what has one. */
void rf_sock_ref(struct rf_sock *sock);

/* Let a reference go. Context: none of the socket's mutexes held. */
void rf_sock_unref(struct rf_sock *sock);

/* What poll would say now. The socket's mutex is held; so it is for all that follows. */
int rf_sock_events(const struct rf_sock *sock);

/* Something changed: tell those who wait, poll, or watch an event fd. */
void rf_sock_changed(struct rf_sock *sock);

/**
 * rf_sock_settle() - Do what the connection asks for after a change
 *
 * Sends what it owes, as far as there is room; has the guest's thread look after its timer and its
 * end. Then rf_sock_changed().
 *
 * Return: RF_TX_* bits, for rf_guest_do() once the mutex is released.
 */
unsigned rf_sock_settle(struct rf_sock *sock);

/**
 * rf_sock_unlock() - Release the mutex, and do what publishing asked for
 * @todo:	RF_TX_* bits; the socket was, or is, connected if there are any
 * Context: any thread but the guest's own.
 */
void rf_sock_unlock(struct rf_sock *sock, unsigned todo);

/* The connection is DEAD: what that means to the socket. */
void rf_sock_died(struct rf_sock *sock);

/* So many received bytes were read, or dropped. */
void rf_sock_consumed(struct rf_sock *sock, uint32_t bytes);

/* Nothing more will be read: drop what is there. */
void rf_sock_drop_received(struct rf_sock *sock);

/* The pending error, which is none any more then. Return: -errno, or 0. */
int rf_sock_take_error(struct rf_sock *sock);

/**
 * rf_sock_report() - Return an error to the program: a pending one is reported once
 * @r:	-errno; the pending error or another
 * Context: the socket's mutex not held.
 * Return: @r
 */
int rf_sock_report(struct rf_sock *sock, int r);

/* What a connection of this socket starts with. */
void rf_sock_params(const struct rf_sock *sock, struct rf_vsock_params *ret_params);

/* Has the peer, or the end of the connection, or RF_SHUT_RD put an end of file behind the data? */
bool rf_sock_at_eof(const struct rf_sock *sock);

/* Is sending over for good? */
bool rf_sock_cannot_send(const struct rf_sock *sock);

#endif
