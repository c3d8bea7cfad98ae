/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * AF_VSOCK sockets of the programs that run in the test guest.
 */
#ifndef RF_TEST_VSOCKADDR_H
#define RF_TEST_VSOCKADDR_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/vm_sockets.h>

static inline unsigned number(const char *text)
{
	return (unsigned)strtoul(text, NULL, 10);
}

static inline void fatal(const char *what)
{
	perror(what);
	exit(1);
}

static inline int vsock_new(void)
{
	int sock = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (sock < 0)
		fatal("socket");
	return sock;
}

/* As bind(2). */
static inline int vsock_bind(int sock, unsigned port)
{
	struct sockaddr_vm addr = { .svm_family = AF_VSOCK,
				    .svm_cid = VMADDR_CID_ANY,
				    .svm_port = port };

	return bind(sock, (const struct sockaddr *)&addr, sizeof(addr));
}

/* As connect(2). */
static inline int vsock_connect(int sock, unsigned cid, unsigned port)
{
	struct sockaddr_vm addr = { .svm_family = AF_VSOCK, .svm_cid = cid, .svm_port = port };

	return connect(sock, (const struct sockaddr *)&addr, sizeof(addr));
}

static inline int vsock_listen(unsigned port, int backlog)
{
	int sock = vsock_new();

	if (vsock_bind(sock, port) < 0 || listen(sock, backlog) < 0)
		fatal("listen");
	return sock;
}

#endif
