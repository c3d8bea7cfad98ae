/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * host-client UDS PORT TEXT - send TEXT to a port of the guest and print what comes back.
 *
 * With "ringferry guest --socket S --echo 7" as the guest, port 7 sends the text back.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <ringferry/client.h>

int main(int argc, char **argv)
{
	char buf[4096];
	ssize_t n;
	int fd;

	if (argc != 4) {
		fprintf(stderr, "usage: host-client UDS PORT TEXT\n");
		return 2;
	}
	fd = rf_client_connect(argv[1], (uint32_t)strtoul(argv[2], NULL, 10), 5000);
	if (fd < 0) {
		fprintf(stderr, "host-client: %s port %s: %s\n", argv[1], argv[2], strerror(-fd));
		return 1;
	}
	if (send(fd, argv[3], strlen(argv[3]), MSG_NOSIGNAL) < 0) {
		perror("host-client: send");
		return 1;
	}
	shutdown(fd, SHUT_WR);
	while ((n = read(fd, buf, sizeof(buf))) > 0)
		fwrite(buf, 1, (size_t)n, stdout);
	close(fd);
	return n < 0;
}
