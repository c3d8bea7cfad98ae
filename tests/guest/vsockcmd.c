/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * vsockcmd connect CID PORT | accept PORT, then WORDS - one vsock stream, step by step, in the
 * guest.
 *
 *   send N   send N bytes in one call       shut HOW   shutdown(): 0 receive, 1 send, 2 both
 *   recv N   receive exactly N bytes        sleep MS   wait
 *   eof      receive to end of file
 *
 * Byte n of a stream is n modulo 251. It is built for recording packets only (record-packets.py).
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/vm_sockets.h>

static uint8_t buf[1 << 20];
static size_t n_sent;

static int fail(const char *what)
{
	perror(what);
	return -1;
}

/* "connect CID PORT" or "accept PORT": how many words it takes, 0 if it is neither. */
static int parse_address(char **words, struct sockaddr_vm *addr)
{
	if (words[0] && strcmp(words[0], "connect") == 0 && words[1] && words[2]) {
		addr->svm_cid = (unsigned)strtoul(words[1], NULL, 10);
		addr->svm_port = (unsigned)strtoul(words[2], NULL, 10);
		return 3;
	}
	if (words[0] && strcmp(words[0], "accept") == 0 && words[1]) {
		addr->svm_cid = VMADDR_CID_ANY;
		addr->svm_port = (unsigned)strtoul(words[1], NULL, 10);
		return 2;
	}
	return 0;
}

static int open_stream(int sock, const struct sockaddr_vm *addr)
{
	const struct sockaddr *generic = (const struct sockaddr *)addr;

	if (addr->svm_cid != VMADDR_CID_ANY)
		return connect(sock, generic, sizeof(*addr)) < 0 ? fail("connect") : sock;
	if (bind(sock, generic, sizeof(*addr)) < 0 || listen(sock, 1) < 0)
		return fail("listen");
	return accept(sock, NULL, NULL);
}

static int send_bytes(int sock, size_t len)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = (uint8_t)((n_sent + i) % 251);
	n_sent += len;
	return send(sock, buf, len, 0) == (ssize_t)len ? 0 : fail("send");
}

static int receive(int sock, size_t len)
{
	while (len > 0) {
		ssize_t n = recv(sock, buf, len < sizeof(buf) ? len : sizeof(buf), 0);

		if (n < 0)
			return fail("recv");
		if (n == 0)
			return len == SIZE_MAX ? 0 : fail("end of file");
		len -= len == SIZE_MAX ? 0 : (size_t)n;
	}
	return 0;
}

static int step(int sock, const char *verb, unsigned long number)
{
	if (strcmp(verb, "send") == 0)
		return send_bytes(sock, number);
	if (strcmp(verb, "recv") == 0)
		return receive(sock, number);
	if (strcmp(verb, "shut") == 0)
		return shutdown(sock, (int)number);
	if (strcmp(verb, "sleep") == 0)
		return usleep((unsigned)number * 1000);
	return -1;
}

int main(int argc, char **argv)
{
	struct sockaddr_vm addr = { .svm_family = AF_VSOCK };
	char **words = argv + 1;
	int n_words = argc > 1 ? parse_address(words, &addr) : 0;
	int sock;

	if (!n_words)
		return 2;
	sock = open_stream(socket(AF_VSOCK, SOCK_STREAM, 0), &addr);
	if (sock < 0)
		return 1;
	for (words += n_words; words[0]; words += 2) {
		if (strcmp(words[0], "eof") == 0) {
			if (receive(sock, SIZE_MAX) < 0)
				return 1;
			words--;
		} else if (!words[1] || step(sock, words[0], strtoul(words[1], NULL, 10)) < 0) {
			return 1;
		}
	}
	return close(sock);
}
