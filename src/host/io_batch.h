/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sends and receives on several sockets in one system call: io_uring, made at first need.
 *
 * DOC: Theory of operation. The operations neither wait (MSG_DONTWAIT) nor outlive the call: the
 * kernel carries each out while it takes it, and rf_io_batch_run() collects all results before it
 * returns. So nothing is under way between turns, the memory they use may go at any time after, and
 * memory that vanishes is -EFAULT as from a system call. Where io_uring cannot be had (an old
 * kernel, kernel.io_uring_disabled, seccomp, no memory), the caller does without.
 *
 * Thread sanitizer, valgrind and address sanitizer do not see what the kernel writes through
 * io_uring; msan would need to be told.
 *
 * Context: exclusive access. The ring is best for the thread that first used it; it goes on with
 * any other.
 */
#ifndef RF_HOST_IO_BATCH_H
#define RF_HOST_IO_BATCH_H

#include <liburing.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "base/log.h"

/* Operations of one batch. */
#define RF_IO_BATCH_MAX 32u

/**
 * struct rf_io_batch - Batches; zero-initialised is none yet
 * @log:	Told once when there can be none; may be NULL
 * @ring:	Valid if @open
 * @open:	There is a ring
 * @any_thread:	Make it for any thread
 * @broken:	Rings that failed
 * @refused:	There will be none
 */
struct rf_io_batch {
	const struct rf_log *log;
	struct io_uring ring;
	bool open;
	bool any_thread;
	unsigned broken;
	bool refused;
};

/**
 * struct rf_io_op - One operation
 * @fd:		Socket
 * @send:	sendmsg() with MSG_NOSIGNAL, else recvmsg(); either with MSG_DONTWAIT
 * @msg:	Message
 * @result:	Bytes or -errno, as of the system call; -EINTR, too, if it was not carried out
 */
struct rf_io_op {
	int fd;
	bool send;
	struct msghdr msg;
	ssize_t result;
};

/**
 * rf_io_batch_run() - Carry out operations
 * @ops:	Operations on different sockets
 * @n:		Their number, at most RF_IO_BATCH_MAX
 *
 * Return: false if there is no io_uring to be had: none was carried out.
 */
bool rf_io_batch_run(struct rf_io_batch *batch, struct rf_io_op *ops, unsigned n);

/* Give the ring back. */
void rf_io_batch_fini(struct rf_io_batch *batch);

#endif
