/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the parts of the fake back end share: device and session (fake_vsock_backend.c), what the
 * test does by hand (fake_vsock_hand.c), and the host that it plays by itself (fake_vsock_host.c).
 */
#ifndef RF_TESTS_FAKE_VSOCK_BACKEND_PRIV_H
#define RF_TESTS_FAKE_VSOCK_BACKEND_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/fd.h"
#include "base/iov.h"
#include "base/loop.h"
#include "fake_vsock_backend.h"
#include "vhost/session.h"
#include "vsock/sched.h"
#include "vsock/table.h"

#define FAKE_BUCKETS 256

struct fake_packet {
	TAILQ_ENTRY(fake_packet) link;
	struct rf_vsock_hdr hdr;
	uint8_t payload[];
};

#define FAKE_QUEUE 4096u

/* A connection of the automatic host: bytes [@sent, @len) of @buf are to go back to the guest;
 * FAKE_SLOW: @lens are the packets that wait to be read. */
struct fake_conn {
	struct rf_vsock_conn conn;
	struct fake_backend *fake;
	struct rf_timer timer;
	uint32_t lens[FAKE_QUEUE];
	unsigned first, n;
	uint64_t at;
	uint32_t service;
	uint8_t *buf;
	uint32_t sent, len;
	uint64_t source_left;
	bool shut;
};

struct fake_backend {
	struct fake_options options;
	char dir[32];
	char path[64];
	struct rf_loop *loop;
	pthread_t thread;
	atomic_bool quit;

	pthread_mutex_t mutex;
	pthread_cond_t cond;
	void (*call)(struct fake_backend *fake, void *arg);
	void *call_arg;
	TAILQ_HEAD(, fake_packet) packets;
	bool attached;
	bool ignore_questions;

	int listen_fd;
	struct rf_watch listen_watch;
	struct rf_vu_session *session;
	struct rf_vu_counters counters;
	bool hold_tx;

	struct rf_vsock_table table;
	struct rf_vsock_bucket buckets[FAKE_BUCKETS];
	struct rf_vsock_sched sched;
	_Atomic uint64_t slow_bytes, overflows;
	uint32_t next_port;
};

/* Call @fn in the loop's thread, and wait for it. */
void fake_call(struct fake_backend *fake, void (*fn)(struct fake_backend *, void *), void *arg);

/* Take packets from the transmit ring, unless they are held. Loop thread. */
void fake_serve_tx(struct fake_backend *fake);

/* Take one of them. */
void fake_take_packet(struct fake_backend *fake, struct rf_devq *q, const struct rf_chain *chain);

/* Write a packet into the receive ring. Return: false if it has no room. Loop thread. */
bool fake_rx_put(struct fake_backend *fake, const struct rf_vsock_hdr *hdr, const void *payload,
		 uint32_t used);

/* The automatic host; loop thread. */
void fake_host_init(struct fake_backend *fake);
void fake_host_packet(struct fake_backend *fake, const struct rf_vsock_hdr *hdr,
		      const struct iovec *iov, unsigned n);
void fake_host_pump(struct fake_backend *fake);
void fake_host_reset(struct fake_backend *fake);

void fake_host_connect(struct fake_backend *fake, uint32_t guest_port);

/* fake_vsock_poke.c */
void fake_used_index_jump(struct rf_vu_session *session, unsigned ring);
void fake_session_write(struct rf_vu_session *session, const void *bytes, size_t len);

#endif
