/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A guest without a virtual machine that sends back what it gets: the smallest use of
 * ringferry/guest.h. One connection at a time; it ends after the first.
 *
 *   guest-echo /run/vm4.sock 7
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ringferry/guest.h"

static void echo(struct rf_guest *guest, int sock)
{
	char buf[65536];
	ssize_t n;

	while ((n = rf_recv(guest, sock, buf, sizeof(buf), 0)) > 0) {
		if (rf_send(guest, sock, buf, (size_t)n, 0) < n)
			break;
	}
	rf_close(guest, sock);
}

static int serve(struct rf_guest *guest, uint32_t port)
{
	const struct rf_sockaddr addr = { .cid = RF_CID_ANY, .port = port };
	struct rf_sockaddr peer;
	int listener = rf_socket(guest, RF_SOCK_STREAM);
	int sock, r;

	r = rf_bind(guest, listener, &addr);
	if (r == 0)
		r = rf_listen(guest, listener, 8);
	if (r < 0)
		return r;
	printf("CID %u listens on port %u\n", (unsigned)rf_guest_cid(guest), (unsigned)port);
	fflush(stdout);
	sock = rf_accept(guest, listener, &peer, 0);
	if (sock < 0)
		return sock;
	printf("connection from %u:%u\n", (unsigned)peer.cid, (unsigned)peer.port);
	echo(guest, sock);
	return 0;
}

int main(int argc, char **argv)
{
	struct rf_guest_options options;
	struct rf_guest *guest;
	int r;

	if (argc != 3) {
		fprintf(stderr, "usage: %s BACK-END-SOCKET PORT\n", argv[0]);
		return 2;
	}
	rf_guest_options_init(&options);
	options.socket_path = argv[1];
	r = rf_guest_open(&options, &guest);
	if (r == 0) {
		r = serve(guest, (uint32_t)strtoul(argv[2], NULL, 10));
		rf_guest_close(guest);
	}
	if (r < 0)
		fprintf(stderr, "%s: %s\n", argv[0], strerror(-r));
	return r < 0;
}
