/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The guest: its sockets, its device and the thread that serves them.
 */
#ifndef RF_GUEST_GUEST_H
#define RF_GUEST_GUEST_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"
#include "base/loop.h"
#include "counters.h"
#include "device.h"
#include "guest/switches.h"
#include "ports.h"
#include "ringferry/guest.h"
#include "serve_rx.h"
#include "socket.h"
#include "vsock/limits.h"
#include "vsock/table.h"

/* A power of two: with 16,384 connections, chains of one. */
#define RF_GUEST_CONN_BUCKETS 16384u

/* How the guest's thread and the transmit ring are to each other (RF_TX_WAKE). */
enum {
	/* Whoever wants it to look has to wake it. */
	RF_TX_ASLEEP,
	/* It looks again before it sleeps. */
	RF_TX_AWAKE,
	/* The same, and somebody has asked it to. */
	RF_TX_ASKED,
};

/**
 * struct rf_guest - A guest
 * @log:	Log, or NULL; it is @to_program, which passes lines on
 * @device_options: How to attach
 * @reconnect:	Attach again when the device is gone
 * @window:	Receive window of new sockets
 * @packet_bound: RF_PACKETS_*
 * @switches:	Switches
 * @counters:	Counters
 * @slots:	Sockets
 * @cid:	CID, 0 while there is no device
 * @table_mutex: Protects @conns, @ports, @device and what socket.h says
 * @conns:	Connections by name
 * @ports:	Bound sockets by port
 * @device:	Current attachment, a reference; NULL while there is none
 * @rx:		Serving the receive ring
 * @attention_mutex: Protects @attention
 * @attention:	Sockets that the thread is to look after; each holds a reference on itself
 * @tx_watch:	Does the thread look at the transmit ring? RF_TX_ASLEEP etc.
 * @closing:	rf_guest_close() was called
 * @abort:	To end an attempt to attach
 * @thread:	The guest's thread; what follows is its own
 * @loop:	Its loop
 * @front_watch, @call_watches, @err_watch: the device's descriptors
 * @tx_work, @tx_idle: More to do on the transmit ring; it is looked at for a while before sleeping
 * @retry_timer: Next try to attach
 * @retry_ns:	Pause before it
 * @attached_ns: When the device was attached
 * @todo:	RF_TX_* bits to do at the end of the turn
 */
struct rf_guest {
	const struct rf_log *log;
	struct rf_log to_program;
	void (*log_line)(void *ctx, int level, const char *line);
	void *log_ctx;
	struct rf_device_options device_options;
	bool reconnect;
	uint32_t window;
	int packet_bound;
	struct rf_guest_switches switches;
	struct rf_guest_counters counters;
	struct rf_sock_slots slots;
	_Atomic uint32_t cid;

	pthread_mutex_t table_mutex;
	struct rf_vsock_table conns;
	struct rf_vsock_bucket buckets[RF_GUEST_CONN_BUCKETS];
	struct rf_ports ports;
	struct rf_device *device;

	struct rf_serve_rx rx;

	pthread_mutex_t attention_mutex;
	struct rf_sock_list attention;
	atomic_int tx_watch;
	atomic_bool closing;
	struct rf_device_abort abort;

	pthread_t thread;
	struct rf_loop *loop;
	struct rf_watch front_watch, err_watch;
	struct rf_watch call_watches[RF_GUEST_N_RINGS];
	struct rf_work tx_work;
	struct rf_idle tx_idle;
	struct rf_timer retry_timer;
	uint64_t retry_ns;
	uint64_t attached_ns;
	unsigned todo;
};

/* Payload that one packet may carry. */
static inline uint32_t rf_guest_max_payload(const struct rf_guest *guest)
{
	return guest->switches.max_packet == RF_GUEST_MAX_PACKET_4K ? 4096u : RF_VSOCK_MAX_PAYLOAD;
}

/**
 * rf_guest_do() - Do what publishing asked for
 * @device:	Device that it was on; the caller keeps it alive
 * @todo:	RF_TX_* bits
 * Context: any thread but the guest's own, which adds to guest->todo; no mutex held.
 */
void rf_guest_do(struct rf_guest *guest, struct rf_device *device, unsigned todo);

/* Have the guest's thread look after a socket (its timer, its end). Socket's mutex held. */
void rf_guest_attend(struct rf_guest *guest, struct rf_sock *sock);

/**
 * rf_guest_find() - The socket of a connection
 * @key:	The connection's name
 *
 * A connection that is over is taken out of the table on the way. Context: table_mutex held.
 *
 * Return: the socket with a reference for the caller, or NULL.
 */
struct rf_sock *rf_guest_find(struct rf_guest *guest, const struct rf_vsock_key *key);

/**
 * rf_guest_list(), rf_guest_unlist() - Put a socket's connection into the table, take it out
 *
 * Context: table_mutex and the socket's mutex held; unlisting leaves the table's reference to the
 * caller.
 */
void rf_guest_list(struct rf_guest *guest, struct rf_sock *sock);
void rf_guest_unlist(struct rf_guest *guest, struct rf_sock *sock);

/* The guest's thread, from its start to its end; @arg is the guest. */
void *rf_guest_run(void *arg);

#endif
