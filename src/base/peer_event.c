/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The signal that cannot be made to wait.
 *
 * An eventfd that is full makes write() wait unless O_NONBLOCK is set, and whoever shares the
 * descriptor can fill it and clear the flag between any look of ours and our write. The kernel's
 * own signal never waits, and one can be asked for: an asynchronous operation gives it when it is
 * over. The operation here polls the eventfd itself, which is always ready for one or the other, so
 * that it is over at once.
 */
#include <errno.h>
#include <linux/aio_abi.h>
#include <poll.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

/* Results that nobody wants are thrown away this many at a time. */
#define THROW_AWAY 64
#define TRIES      1000

/* The process's; 0 if the kernel gave none. */
static aio_context_t context;

static void make_context(void)
{
	if (syscall(SYS_io_setup, THROW_AWAY, &context) < 0)
		context = 0;
}

static int submit(int fd)
{
	struct iocb op = { .aio_lio_opcode = IOCB_CMD_POLL,
			   .aio_fildes = (uint32_t)fd,
			   .aio_buf = POLLIN | POLLOUT,
			   .aio_flags = IOCB_FLAG_RESFD,
			   .aio_resfd = (uint32_t)fd };
	struct iocb *ops[] = { &op };

	return syscall(SYS_io_submit, context, 1, ops) < 0 ? -errno : 0;
}

/* No signal may be lost. What remains of the race is between two calls, and for luck to decide. */
static void signal_if_room(int fd)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLOUT };

	if (poll(&poll_fd, 1, 0) == 1 && poll_fd.revents & POLLOUT)
		rf_eventfd_signal(fd);
}

void rf_eventfd_signal_peer(int fd)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int saved = errno;
	unsigned tries = 0;
	int r;

	pthread_once(&once, make_context);
	if (!context) {
		rf_eventfd_signal(fd);
		return;
	}
	/* Results fill the context. Other threads may be quicker to use the room that is made. */
	while ((r = submit(fd)) == -EAGAIN && tries++ < TRIES) {
		struct io_event results[THROW_AWAY];
		struct timespec at_once = { 0 };

		(void)syscall(SYS_io_getevents, context, 0, THROW_AWAY, results, &at_once);
	}
	if (r == -EAGAIN || r == -ENOMEM)
		signal_if_room(fd);
	errno = saved;
}
