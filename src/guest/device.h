/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One attachment to a back end: session, memory, rings. A new one is made each time: what an
 * earlier back end still writes to reaches nobody, and what readers hold of the earlier memory
 * stays valid.
 */
#ifndef RF_GUEST_DEVICE_H
#define RF_GUEST_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"
#include "counters.h"
#include "guest/switches.h"
#include "memory.h"
#include "rx.h"
#include "transport.h"
#include "tx.h"

/**
 * struct rf_device_options - How to attach
 * @path:	The back end's socket, a word for it if there is @socket_fd, or the kernel's device
 * @socket_fd:	A connected socket for the one attempt there is; -1 once it was taken, or without
 * @kernel_cid:	CID to ask the kernel's device for; 0 if the back end has a socket
 * @queue_size:	Entries of the rx and the tx ring
 * @rx_payload:	Payload bytes of the largest receive buffer
 * @switches:	Switches
 * @log:	Log
 */
struct rf_device_options {
	char *path;
	int socket_fd;
	uint32_t kernel_cid;
	uint32_t queue_size;
	uint32_t rx_payload;
	const struct rf_guest_switches *switches;
	const struct rf_log *log;
};

/**
 * struct rf_device_abort - A way to end an attempt to attach from another thread
 * @mutex:	Protects the others
 * @fd:		The attempt's socket, or -1
 * @aborted:	No further attempts
 */
struct rf_device_abort {
	pthread_mutex_t mutex;
	int fd;
	bool aborted;
};

/**
 * struct rf_device - An attachment
 * @refs:	References: the guest's, and one of each socket whose connection was on it
 * @transport:	Way to the back end; NULL once detached
 * @mem:	Memory
 * @tx:		Transmit ring
 * @rx:		Receive ring
 * @event_q:	Event ring, or NULL
 * @kick_fds, @call_fds, @err_fd: eventfds
 * @n_rings:	Rings the back end was given: 2, or 3 with the event ring
 * @cid:	The guest's CID
 */
struct rf_device {
	atomic_uint refs;
	struct rf_transport *transport;
	struct rf_guest_mem mem;
	struct rf_tx tx;
	struct rf_rx rx;
	struct rf_drvq *event_q;
	int kick_fds[RF_GUEST_N_RINGS], call_fds[RF_GUEST_N_RINGS], err_fd;
	unsigned n_rings;
	uint32_t cid;
};

/**
 * rf_device_attach() - Connect to the back end, negotiate, share memory and start the rings
 * @abort:	Ends the attempt with an error
 *
 * Return: 0; -EPROTO if the back end broke off or answered nonsense; -ENOTSUP if it is no vsock
 * back end with configuration space and virtio 1; -ECANCELED if aborted; -EADDRINUSE if another
 * guest of the kernel has the CID; or an -errno of socket(2), connect(2) or open(2).
 */
int rf_device_attach(struct rf_device_options *options, struct rf_guest_counters *counters,
		     struct rf_device_abort *abort, struct rf_device **ret_device);

/* End the attempt that is going on, and let no other begin. Context: any thread. */
void rf_device_abort(struct rf_device_abort *abort);

void rf_device_ref(struct rf_device *device);

/* NULL may be given. */
void rf_device_unref(struct rf_device *device);

/**
 * rf_device_detach() - Part from the back end
 *
 * Memory and rings stay for those who hold references.
 */
void rf_device_detach(struct rf_device *device);

/* Ask the back end for the CID. Return: 0, -EPROTO for one that cannot be, or another -errno. */
int rf_device_read_cid(struct rf_device *device);

/**
 * rf_device_event() - Take an event
 * @ret_reset:	Becomes true if it was a transport reset
 * Return: false if there was none; the next one will notify then.
 */
bool rf_device_event(struct rf_device *device, bool *ret_reset);

#endif
