/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/fd.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

int rf_fd_close(int fd)
{
	int saved = errno;

	/* After EINTR the descriptor is gone on Linux: never close it again. */
	if (fd >= 0)
		close(fd);
	errno = saved;
	return -1;
}

void rf_fd_close_auto(int *fd)
{
	rf_fd_close(*fd);
}

int rf_fd_set_nonblock(int fd)
{
	int status = fcntl(fd, F_GETFL);
	int flags = fcntl(fd, F_GETFD);

	if (status < 0 || flags < 0)
		return -errno;
	if (fcntl(fd, F_SETFL, status | O_NONBLOCK) < 0)
		return -errno;
	if (fcntl(fd, F_SETFD, flags | FD_CLOEXEC) < 0)
		return -errno;
	return 0;
}

int rf_eventfd_new(void)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	return fd < 0 ? -errno : fd;
}

void rf_eventfd_signal(int fd)
{
	const uint64_t one = 1;
	int saved = errno;

	/* A full counter is signalled already, and a peer that sent no eventfd misses its signals.
	 */
	if (write(fd, &one, sizeof(one)) < 0)
		errno = saved;
}

bool rf_eventfd_drain(int fd)
{
	uint64_t count;

	return read(fd, &count, sizeof(count)) > 0;
}

/* The descriptors that came with a message; returns their number. */
static unsigned received_fds(struct msghdr *msg, int *fds)
{
	unsigned n = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		unsigned count;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		count = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		assert(n + count <= RF_FD_PASS_MAX);
		memcpy(fds + n, CMSG_DATA(c), count * sizeof(int));
		n += count;
	}
	return n;
}

ssize_t rf_fd_recv(int sock, void *buf, size_t len, int *fds, unsigned max_fds, unsigned *ret_n_fds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(RF_FD_PASS_MAX * sizeof(int))];
	} control;
	struct iovec iov = { buf, len };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	int got[RF_FD_PASS_MAX];
	unsigned n;
	ssize_t r;

	do
		r = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return -errno;
	n = received_fds(&msg, got);
	/* The kernel cuts the list, too, when this process may not have so many descriptors. */
	if (n > max_fds || (msg.msg_flags & MSG_CTRUNC)) {
		while (n)
			rf_fd_close(got[--n]);
		return -EMSGSIZE;
	}
	if (n)
		memcpy(fds, got, n * sizeof(int));
	*ret_n_fds = n;
	return r;
}

ssize_t rf_fd_send(int sock, const void *buf, size_t len, const int *fds, unsigned n_fds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(RF_FD_PASS_MAX * sizeof(int))];
	} control;
	struct iovec iov = { (void *)(uintptr_t)buf, len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t r;

	assert(len > 0 && n_fds <= RF_FD_PASS_MAX);
	if (n_fds) {
		struct cmsghdr *c = &control.align;

		memset(&control, 0, sizeof(control));
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
	}
	do
		r = sendmsg(sock, &msg, MSG_NOSIGNAL);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : r;
}

int64_t rf_fd_raise_limit(uint64_t want)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return -errno;
	if (limit.rlim_cur < want && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = rf_min_u64(want, limit.rlim_max);
		if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
			return -errno;
	}
	return (int64_t)rf_min_u64(limit.rlim_cur, INT64_MAX);
}
