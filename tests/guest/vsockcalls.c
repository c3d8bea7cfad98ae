/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Many short connections in turn, in the guest.
 *
 *   vsockcalls echo PORT                 serve: what comes goes back, until killed
 *   vsockcalls call CID PORT N [FROM]    N calls in turn, each with its own question of 4 to 200
 *                                        bytes, half-closed, and the same as the answer; all from
 *                                        local port FROM if it is given, as soon as it is free
 *   vsockcalls refused CID PORT N        N connects in turn that must end in ECONNRESET
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "vsockaddr.h"

#define QUESTION_MAX 200u

static bool send_all(int sock, const uint8_t *data, size_t len)
{
	while (len > 0) {
		ssize_t n = send(sock, data, len, MSG_NOSIGNAL);

		if (n <= 0)
			return false;
		data += n;
		len -= (size_t)n;
	}
	return true;
}

static void *echo(void *arg)
{
	int sock = (int)(intptr_t)arg;
	uint8_t data[4096];
	ssize_t n;

	while ((n = recv(sock, data, sizeof(data), 0)) > 0)
		if (!send_all(sock, data, (size_t)n))
			break;
	close(sock);
	return NULL;
}

__attribute__((noreturn)) static void serve(unsigned port)
{
	int listener = vsock_listen(port, 256);
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, 65536);
	for (;;) {
		int sock = accept(listener, NULL, NULL);
		pthread_t thread;

		if (sock < 0)
			fatal("accept");
		errno = pthread_create(&thread, &attr, echo, (void *)(intptr_t)sock);
		if (errno)
			fatal("thread");
	}
}

/*
 * A socket that was closed keeps its port until the host has answered with RST; the kernel itself
 * would give up waiting after 8 s.
 */
static void bind_again(int sock, unsigned port)
{
	for (unsigned i = 0; vsock_bind(sock, port) < 0; i++) {
		if (errno != EADDRINUSE || i == 4000)
			fatal("bind");
		usleep(1000);
	}
}

static void call(unsigned cid, unsigned port, unsigned i, unsigned from)
{
	uint8_t question[QUESTION_MAX], answer[QUESTION_MAX + 1];
	size_t len = 4 + i % (QUESTION_MAX - 3), got = 0;
	int sock = vsock_new();
	ssize_t n;

	memset(question, (int)(i % 251), len);
	memcpy(question, &i, 4);
	if (from)
		bind_again(sock, from);
	if (vsock_connect(sock, cid, port) < 0)
		fatal("connect");
	if (!send_all(sock, question, len) || shutdown(sock, SHUT_WR) < 0)
		fatal("send");
	while ((n = recv(sock, answer + got, sizeof(answer) - got, 0)) > 0)
		got += (size_t)n;
	if (n < 0)
		fatal("recv");
	if (got != len || memcmp(question, answer, len) != 0) {
		printf("call %u: %zu of %zu bytes, or others than were sent\n", i, got, len);
		exit(1);
	}
	close(sock);
}

static void refused(unsigned cid, unsigned port, unsigned i)
{
	int sock = vsock_new();

	if (vsock_connect(sock, cid, port) == 0 || errno != ECONNRESET) {
		printf("connect %u: %m\n", i);
		exit(1);
	}
	close(sock);
}

int main(int argc, char **argv)
{
	unsigned i, n;

	if (argc == 3 && strcmp(argv[1], "echo") == 0)
		serve(number(argv[2]));
	if (argc < 5)
		return 2;
	n = number(argv[4]);
	for (i = 0; i < n; i++) {
		if (strcmp(argv[1], "call") == 0)
			call(number(argv[2]), number(argv[3]), i, argc > 5 ? number(argv[5]) : 0);
		else if (strcmp(argv[1], "refused") == 0)
			refused(number(argv[2]), number(argv[3]), i);
		else
			return 2;
	}
	return 0;
}
