/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * File descriptors: scopes, eventfds, unix sockets and the descriptors that travel over them.
 *
 * All descriptors made here are close-on-exec and non-blocking unless it says otherwise.
 */
#ifndef RF_BASE_FD_H
#define RF_BASE_FD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/util.h"

/**
 * rf_fd_close() - Close a descriptor if there is one
 * @fd:	Descriptor, or a negative number: nothing happens
 *
 * errno is preserved.
 * Return: -1, so that "fd = rf_fd_close(fd)" also forgets it.
 */
int rf_fd_close(int fd);

void rf_fd_close_auto(int *fd);

/* A descriptor that is closed when its scope ends; rf_fd_steal() takes it out. */
#define RF_AUTO_FD __attribute__((cleanup(rf_fd_close_auto)))

static inline int rf_fd_steal(int *fd)
{
	int stolen = *fd;

	*fd = -1;
	return stolen;
}

/**
 * rf_fd_set_nonblock() - Make a descriptor non-blocking and close-on-exec
 * Return: 0, or -errno.
 */
int rf_fd_set_nonblock(int fd);

/**
 * rf_eventfd_new() - Make an eventfd, counter 0, non-blocking
 * Return: the descriptor, or -errno.
 */
int rf_eventfd_new(void);

/**
 * rf_eventfd_signal() - Add one to an eventfd
 * @fd:	eventfd of our own: nobody else can make it blocking
 */
void rf_eventfd_signal(int fd);

/**
 * rf_eventfd_signal_peer() - Add one to an eventfd that a peer shares
 * @fd:	What was said to be an eventfd: it may be full, blocking, or none at all (it then gets no
 *	signal). Where the kernel gives no asynchronous I/O, O_NONBLOCK must be set on it and is
 *	trusted.
 *
 * It never blocks. Context: any thread; not in a child process of one that called it.
 */
void rf_eventfd_signal_peer(int fd);

/**
 * rf_eventfd_drain() - Set an eventfd back to 0 with one read
 * Return: true if it had been signalled.
 */
bool rf_eventfd_drain(int fd);

/* As many descriptors as one SCM_RIGHTS message can carry on Linux (SCM_MAX_FD). */
#define RF_FD_PASS_MAX 253

/**
 * rf_fd_recv() - Receive bytes and the descriptors that ride on them
 * @sock:	Unix stream socket
 * @buf:	Where the bytes go
 * @len:	At most so many bytes
 * @fds:	Where descriptors go (close-on-exec), at most @max_fds; the caller owns them
 * @max_fds:	Room in @fds
 * @ret_n_fds:	Number of descriptors stored
 *
 * No descriptor leaks: what does not fit is closed, and then the call fails.
 *
 * Return: bytes received, 0 at end of file, -EAGAIN, -EMSGSIZE if more than @max_fds descriptors
 * came or the kernel truncated them (all were closed), or another -errno.
 */
ssize_t rf_fd_recv(int sock, void *buf, size_t len, int *fds, unsigned max_fds,
		   unsigned *ret_n_fds);

/**
 * rf_fd_send() - Send bytes with descriptors on the first of them
 * @sock:	Unix stream socket
 * @buf:	Bytes, at least one
 * @len:	Their number
 * @fds:	Descriptors to pass; they stay the caller's
 * @n_fds:	Their number, 0 to RF_FD_PASS_MAX
 *
 * Return: bytes sent (may be fewer), or -errno (never SIGPIPE).
 */
ssize_t rf_fd_send(int sock, const void *buf, size_t len, const int *fds, unsigned n_fds);

/**
 * rf_fd_raise_limit() - Raise RLIMIT_NOFILE's soft limit towards @want
 * Return: the limit now in force (may be below @want), or -errno.
 */
int64_t rf_fd_raise_limit(uint64_t want);

#endif
