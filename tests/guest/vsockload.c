/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * vsockload connect CID PORT | accept PORT, then KEY VALUE... - streams whose every byte is known,
 * both directions at once, in the guest. The host's half is class Load in load.py.
 *
 *   n N         connections, all open before the first byte moves (default 1)
 *   bytes N     send so many on each, then half-close (default 0)
 *   seconds N   send for so long instead
 *   chunk A:B   bytes of each send(), from A to B in turn (default 65536:65536)
 *   read N      most bytes of each recv() (default 65536)
 *   pause US    wait after each recv()
 *   wait MS     wait before the first recv()
 *   after 1     send only after the peer's end of file
 *   sizes A:B   with each turn set SO_VM_SOCKETS_BUFFER_SIZE, from A to B and back, doubling
 *
 * The sender of a direction begins with 4 bytes, which name the stream. Byte i of stream S is byte
 * (i + 7919 * S) of a block of 65521 random bytes, repeated: a byte that is lost, stands elsewhere
 * or comes from another connection, or from an earlier use of a buffer of a usual size, shows at
 * once.
 *
 * Prints "sent N received N" when all streams have ended in order.
 */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "vsockaddr.h"

#define BLOCK      65521u
#define PHASE      7919u
#define CHUNK_MAX  65536u
#define NAME_BYTES 4u

struct options {
	unsigned n, seconds, read, pause_us, wait_ms, after;
	unsigned chunk_min, chunk_max, size_min, size_max;
	uint64_t bytes;
};

struct stream {
	int sock;
	uint32_t name_out, name_in;
	uint64_t sent, received;
	unsigned chunk;
	bool shut, ended;
};

/* Two blocks, and what a send() or recv() may reach beyond. */
static uint8_t pattern[2 * BLOCK + CHUNK_MAX];
static uint8_t buf[CHUNK_MAX];

static void make_pattern(void)
{
	uint32_t x = 1;

	for (unsigned i = 0; i < sizeof(pattern); i++) {
		if (i % BLOCK == 0)
			x = 1;
		x = x * 1103515245u + 12345u;
		pattern[i] = (uint8_t)(x >> 16);
	}
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static const uint8_t *pattern_at(uint32_t name, uint64_t at)
{
	return pattern + (at + (uint64_t)name * PHASE) % BLOCK;
}

static unsigned next_chunk(const struct options *options, unsigned chunk)
{
	unsigned span = options->chunk_max - options->chunk_min + 1;

	return options->chunk_min + (chunk - options->chunk_min + 37) % span;
}

/* One send(); the first bytes are the stream's name. */
static void send_some(struct stream *stream, const struct options *options, uint64_t end)
{
	size_t len = stream->chunk;
	const void *data = pattern_at(stream->name_out, stream->sent);
	ssize_t n;

	if (len > end - stream->sent)
		len = (size_t)(end - stream->sent);
	if (stream->sent < NAME_BYTES) {
		data = (const uint8_t *)&stream->name_out + stream->sent;
		len = NAME_BYTES - (size_t)stream->sent;
	}
	n = send(stream->sock, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n < 0 && errno != EAGAIN)
		fatal("send");
	if (n > 0)
		stream->sent += (size_t)n;
	stream->chunk = next_chunk(options, stream->chunk);
}

static void check_bytes(struct stream *stream, const uint8_t *data, size_t len)
{
	while (len > 0 && stream->received < NAME_BYTES) {
		((uint8_t *)&stream->name_in)[stream->received++] = *data++;
		len--;
	}
	if (memcmp(data, pattern_at(stream->name_in, stream->received), len) != 0) {
		printf("stream %u: wrong bytes in [%llu, %llu)\n", stream->name_in,
		       (unsigned long long)stream->received,
		       (unsigned long long)stream->received + len);
		exit(1);
	}
	stream->received += len;
}

static void receive_some(struct stream *stream, const struct options *options)
{
	ssize_t n = recv(stream->sock, buf, options->read, MSG_DONTWAIT);

	if (n < 0 && errno != EAGAIN)
		fatal("recv");
	if (n == 0)
		stream->ended = true;
	if (n > 0)
		check_bytes(stream, buf, (size_t)n);
	if (n > 0 && options->pause_us)
		usleep(options->pause_us);
}

static void set_size(int sock, const struct options *options, unsigned turn)
{
	unsigned doublings = 0;
	uint64_t size;

	while (options->size_min << doublings < options->size_max)
		doublings++;
	/* Up and down again. */
	turn %= 2 * doublings + 1;
	size = (uint64_t)options->size_min << (turn <= doublings ? turn : 2 * doublings - turn);
	if (setsockopt(sock, AF_VSOCK, SO_VM_SOCKETS_BUFFER_SIZE, &size, sizeof(size)) < 0)
		fatal("SO_VM_SOCKETS_BUFFER_SIZE");
}

/* Return: is the stream still open? */
static bool serve_stream(struct stream *stream, const struct options *options, short events,
			 uint64_t end)
{
	if ((events & POLLOUT) && !stream->shut && stream->sent < end)
		send_some(stream, options, end);
	if (!stream->shut && stream->sent >= end && (!options->after || stream->ended)) {
		stream->shut = true;
		if (shutdown(stream->sock, SHUT_WR) < 0)
			fatal("shutdown");
	}
	if ((events & (POLLIN | POLLERR)) && !stream->ended)
		receive_some(stream, options);
	return !stream->shut || !stream->ended;
}

/* What to wait for; a stream that is over is not looked at. */
static struct pollfd interest(const struct stream *stream, bool may_read, bool after)
{
	struct pollfd interest = { .fd = -1 };

	if (stream->shut && stream->ended)
		return interest;
	interest.fd = stream->sock;
	if (!stream->shut && (!after || stream->ended))
		interest.events |= POLLOUT;
	if (!stream->ended && may_read)
		interest.events |= POLLIN;
	return interest;
}

static void run(struct stream *streams, const struct options *options)
{
	struct pollfd *polls = calloc(options->n, sizeof(*polls));
	uint64_t start = now_ms();
	unsigned left = options->n;

	for (unsigned turn = 0; left > 0; turn++) {
		uint64_t passed = now_ms() - start;
		uint64_t end = options->bytes;

		if (options->seconds)
			end = passed < options->seconds * 1000ull ? UINT64_MAX : 0;
		for (unsigned i = 0; i < options->n; i++) {
			polls[i] =
				interest(&streams[i], passed >= options->wait_ms, options->after);
			if (options->size_max && polls[i].fd >= 0)
				set_size(polls[i].fd, options, turn);
		}
		if (poll(polls, options->n, 100) < 0)
			fatal("poll");
		left = 0;
		for (unsigned i = 0; i < options->n; i++)
			if (polls[i].fd >= 0 &&
			    serve_stream(&streams[i], options, polls[i].revents, end))
				left++;
	}
	free(polls);
}

static void parse_range(const char *text, unsigned *ret_min, unsigned *ret_max)
{
	const char *colon = strchr(text, ':');

	*ret_min = number(text);
	*ret_max = colon ? number(colon + 1) : 0;
	if (!*ret_min || *ret_min > *ret_max)
		exit(2);
}

static void parse_options(char **words, struct options *options)
{
	for (; words[0] && words[1]; words += 2) {
		const char *key = words[0], *value = words[1];

		if (strcmp(key, "n") == 0)
			options->n = number(value);
		else if (strcmp(key, "bytes") == 0)
			options->bytes = strtoull(value, NULL, 10);
		else if (strcmp(key, "seconds") == 0)
			options->seconds = number(value);
		else if (strcmp(key, "chunk") == 0)
			parse_range(value, &options->chunk_min, &options->chunk_max);
		else if (strcmp(key, "read") == 0)
			options->read = number(value);
		else if (strcmp(key, "pause") == 0)
			options->pause_us = number(value);
		else if (strcmp(key, "wait") == 0)
			options->wait_ms = number(value);
		else if (strcmp(key, "after") == 0)
			options->after = number(value);
		else if (strcmp(key, "sizes") == 0)
			parse_range(value, &options->size_min, &options->size_max);
		else
			exit(2);
	}
	if (words[0] || options->read > CHUNK_MAX || options->chunk_max > CHUNK_MAX)
		exit(2);
}

/* "connect CID PORT" or "accept PORT". Return: the words behind it. */
static char **parse_address(char **words, unsigned *ret_cid, unsigned *ret_port)
{
	if (words[0] && strcmp(words[0], "connect") == 0 && words[1] && words[2]) {
		*ret_cid = number(words[1]);
		*ret_port = number(words[2]);
		return words + 3;
	}
	if (words[0] && strcmp(words[0], "accept") == 0 && words[1]) {
		*ret_cid = VMADDR_CID_ANY;
		*ret_port = number(words[1]);
		return words + 2;
	}
	exit(2);
}

int main(int argc, char **argv)
{
	struct options options = {
		.n = 1, .read = CHUNK_MAX, .chunk_min = CHUNK_MAX, .chunk_max = CHUNK_MAX
	};
	uint64_t sent = 0, received = 0;
	struct stream *streams;
	unsigned cid, port;
	int listener = -1;

	parse_options(parse_address(argv + (argc > 0), &cid, &port), &options);
	make_pattern();
	streams = calloc(options.n, sizeof(*streams));
	if (cid == VMADDR_CID_ANY)
		listener = vsock_listen(port, (int)options.n);
	for (unsigned i = 0; i < options.n; i++) {
		struct stream *stream = &streams[i];

		stream->name_out = (uint32_t)getpid() * 1000 + i;
		stream->chunk = options.chunk_min;
		stream->sock = listener >= 0 ? accept(listener, NULL, NULL) : vsock_new();
		if (listener < 0 && vsock_connect(stream->sock, cid, port) < 0)
			fatal("connect");
		if (stream->sock < 0)
			fatal("accept");
	}
	run(streams, &options);
	for (unsigned i = 0; i < options.n; i++) {
		sent += streams[i].sent;
		received += streams[i].received;
		close(streams[i].sock);
	}
	printf("sent %llu received %llu\n", (unsigned long long)sent, (unsigned long long)received);
	free(streams);
	return 0;
}
