/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * vsockcmd connect CID PORT | accept PORT, then WORDS - one vsock stream, step by step, in the
 * guest.
 *
 *   send N   send N bytes in one call       shut HOW   shutdown(): 0 receive, 1 send, 2 both
 *   recv N   receive exactly N bytes        sleep MS   wait
 *   data N   the same, and look at them
 *   eof      receive to end of file         buffer N   set SO_VM_SOCKETS_BUFFER_SIZE
 *   epipe    send() must give EPIPE         lowat N    set SO_RCVLOWAT
 *   reset    recv() must give ECONNRESET    poll WHAT  wait until poll() gives just these of in,
 *                                                      out, rdhup, hup, err ("in,rdhup"), or -
 *
 * Byte n of a stream is n modulo 251. What is waited for must come within 10 s; recv, eof and send
 * are not bounded.
 */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "vsockaddr.h"

#define POLL_MS 10000

static uint8_t buf[1 << 20];
static size_t n_sent;

static const struct {
	const char *name;
	int bit;
} poll_bits[] = {
	{ "in", POLLIN },   { "out", POLLOUT }, { "rdhup", POLLRDHUP },
	{ "hup", POLLHUP }, { "err", POLLERR },
};
#define N_POLL_BITS (sizeof(poll_bits) / sizeof(poll_bits[0]))

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

static int receive_data(int sock, size_t len)
{
	static size_t n_received;

	while (len > 0) {
		ssize_t n = recv(sock, buf, len < sizeof(buf) ? len : sizeof(buf), 0);

		if (n <= 0)
			return fail(n < 0 ? "recv" : "end of file");
		for (ssize_t i = 0; i < n; i++) {
			if (buf[i] == (uint8_t)(n_received++ % 251))
				continue;
			fprintf(stderr, "byte %zu is wrong\n", n_received - 1);
			return -1;
		}
		len -= (size_t)n;
	}
	return 0;
}

static int poll_mask(const char *text)
{
	int mask = 0;

	for (size_t i = 0; i < N_POLL_BITS; i++) {
		size_t len = strlen(poll_bits[i].name);

		for (const char *at = text; at; at = strchr(at, ',')) {
			at += *at == ',';
			if (strncmp(at, poll_bits[i].name, len) == 0 &&
			    (at[len] == ',' || at[len] == 0))
				mask |= poll_bits[i].bit;
		}
	}
	return mask;
}

/* Return: 0 as soon as poll() gives just what @text names. */
static int wait_poll(int sock, const char *text)
{
	struct pollfd pollfd = { .fd = sock, .events = POLLIN | POLLOUT | POLLRDHUP };
	int mask = poll_mask(text);

	for (unsigned i = 0; i < POLL_MS / 10; i++) {
		if (poll(&pollfd, 1, 0) < 0)
			return fail("poll");
		if (pollfd.revents == mask)
			return 0;
		usleep(10000);
	}
	fprintf(stderr, "poll: not %s, but", text);
	for (size_t i = 0; i < N_POLL_BITS; i++)
		if (pollfd.revents & poll_bits[i].bit)
			fprintf(stderr, " %s", poll_bits[i].name);
	fputc('\n', stderr);
	return -1;
}

static int expect_error(const char *what, ssize_t n, int wanted)
{
	if (n < 0 && errno == wanted)
		return 0;
	if (n >= 0)
		errno = 0;
	return fail(what);
}

static int set_buffer(int sock, uint64_t size)
{
	return setsockopt(sock, AF_VSOCK, SO_VM_SOCKETS_BUFFER_SIZE, &size, sizeof(size));
}

static int set_lowat(int sock, int bytes)
{
	return setsockopt(sock, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes));
}

static bool is(const char *verb, const char *name)
{
	return strcmp(verb, name) == 0;
}

static bool takes_value(const char *verb)
{
	return !is(verb, "eof") && !is(verb, "epipe") && !is(verb, "reset");
}

static int step(int sock, const char *verb, const char *value)
{
	unsigned long n = strtoul(value, NULL, 10);

	if (is(verb, "eof"))
		return receive(sock, SIZE_MAX);
	if (is(verb, "epipe"))
		return expect_error("EPIPE", send(sock, buf, 1, MSG_NOSIGNAL), EPIPE);
	if (is(verb, "reset"))
		return expect_error("ECONNRESET", recv(sock, buf, 1, 0), ECONNRESET);
	if (is(verb, "send"))
		return send_bytes(sock, n);
	if (is(verb, "recv"))
		return receive(sock, n);
	if (is(verb, "data"))
		return receive_data(sock, n);
	if (is(verb, "shut"))
		return shutdown(sock, (int)n);
	if (is(verb, "sleep"))
		return usleep((unsigned)n * 1000);
	if (is(verb, "buffer"))
		return set_buffer(sock, n);
	if (is(verb, "lowat"))
		return set_lowat(sock, (int)n);
	if (is(verb, "poll"))
		return wait_poll(sock, value);
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
	sock = open_stream(vsock_new(), &addr);
	if (sock < 0)
		return 1;
	for (words += n_words; words[0]; words++) {
		const char *verb = words[0];

		if (takes_value(verb) && !*++words)
			return 2;
		if (step(sock, verb, *words) < 0) {
			fprintf(stderr, "word %td, %s, failed\n", words - argv, verb);
			return 1;
		}
	}
	return close(sock);
}
