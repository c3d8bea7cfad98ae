/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Our guest against our host, in all modes of both that concern credit and the number of packets:
 * every byte comes, in both directions at once, however small the writes and slow the readers.
 */
#include "host_lab.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "prng.h"

/* What streams carry each way: more than a window of bytes, or of packets. */
static const struct writes {
	size_t each, bytes;
} writes[] = {
	{ 1, 3000 },
	{ 100, 300000 },
	{ 4096, 600000 },
};
#define N_STREAMS (sizeof(writes) / sizeof(writes[0]))
#define MAX_BYTES 600000u

/* Guests; that with the smallest ring moves less: one packet at a time takes its time. */
static const struct guest_row {
	const char *what;
	uint32_t queue_size, rx_buf_bytes, share;
	const char *tune;
	int poll_us;
} guest_rows[] = {
	/* 0 */ { "as usual", 256, 65536, 1, NULL, 0 },
	/* 1 */ { "small buffers, so that packets are small, too", 256, 256, 1, NULL, 0 },
	/* 2 */ { "smallest ring", 2, 65536, 16, NULL, 0 },
};

/* Ways of receiving; what the others vary does not matter to them. */
static const struct guest_row rx_rows[] = {
	/* 0 */ { "callers poll", 256, 65536, 4, NULL, 50 },
	/* 1 */ { "callers poll, a small ring", 4, 65536, 16, NULL, 1000 },
	/* 2 */ { "callers poll if it pays", 256, 65536, 8, NULL, RF_POLL_AUTO },
	/* 3 */ { "buffers of one page", 256, 65536, 1, "rx-buf=4k", 0 },
	/* 4 */ { "its thread polls", 256, 65536, 8, "poll-by=worker", 50 },
};

/* How the host tells of credit. */
static const char *const tunes[] = { "credit=batched", "credit=eager", "credit=linux" };

/**
 * struct stream - A connection and what it carries
 * @guest, @sock: One end
 * @fd:		The other
 * @each, @bytes: Size of a write, and of all
 * @data:	From the guest, and to the guest
 * @failed:	What went wrong, or NULL
 */
struct stream {
	struct rf_guest *guest;
	int sock, fd;
	size_t each, bytes;
	uint8_t *data[2];
	const char *_Atomic failed;
};

static ssize_t put(const struct stream *s, bool from_guest, const uint8_t *buf, size_t len)
{
	return from_guest ? rf_send(s->guest, s->sock, buf, len, 0)
			  : send(s->fd, buf, len, MSG_NOSIGNAL);
}

static ssize_t get(const struct stream *s, bool from_guest, uint8_t *buf, size_t len)
{
	return from_guest ? recv(s->fd, buf, len, 0) : rf_recv(s->guest, s->sock, buf, len, 0);
}

static void write_all(struct stream *s, bool from_guest)
{
	const uint8_t *data = s->data[!from_guest];
	size_t at, len;

	for (at = 0; at < s->bytes; at += len) {
		len = s->bytes - at;
		if (len > s->each)
			len = s->each;
		if (put(s, from_guest, data + at, len) != (ssize_t)len) {
			s->failed = from_guest ? "the guest cannot send" : "the host cannot send";
			return;
		}
	}
	if (from_guest)
		rf_shutdown(s->guest, s->sock, RF_SHUT_WR);
	else
		shutdown(s->fd, SHUT_WR);
}

/* Reads of all sizes, now and then late. */
static void read_all(struct stream *s, bool from_guest)
{
	const uint8_t *data = s->data[!from_guest];
	uint64_t seed = s->each * 2 + from_guest;
	uint8_t *buf = malloc(MAX_BYTES);
	size_t at = 0;
	ssize_t n;

	usleep(1000);
	while ((n = get(s, from_guest, buf, 1 + prng_below(&seed, 65536))) > 0) {
		if (at + (size_t)n > s->bytes || memcmp(buf, data + at, (size_t)n) != 0)
			break;
		at += (size_t)n;
		if (!prng_below(&seed, 16))
			usleep(prng_below(&seed, 500));
	}
	free(buf);
	if (n != 0 || at != s->bytes)
		s->failed = n < 0   ? "an error came"
			    : n > 0 ? "bytes are wrong, or too many"
				    : "bytes are missing";
}

static void *guest_sends(void *arg)
{
	write_all(arg, true);
	return NULL;
}

static void *host_sends(void *arg)
{
	write_all(arg, false);
	return NULL;
}

static void *host_receives(void *arg)
{
	read_all(arg, true);
	return NULL;
}

static void *guest_receives(void *arg)
{
	read_all(arg, false);
	return NULL;
}

static void *(*const roles[])(void *) = { guest_sends, host_sends, host_receives, guest_receives };
#define N_ROLES (sizeof(roles) / sizeof(roles[0]))

static void open_stream(struct api *api, struct rf_guest *guest, const struct writes *w,
			uint32_t share, struct stream *s)
{
	uint64_t seed = 77 + w->each;

	s->guest = guest;
	s->each = w->each;
	s->bytes = w->bytes / share;
	s->failed = NULL;
	s->sock = api_open_conn(api, guest, &s->fd);
	for (unsigned k = 0; k < 2; k++) {
		s->data[k] = malloc(s->bytes);
		assert_non_null(s->data[k]);
		for (size_t at = 0; at < s->bytes; at++)
			s->data[k][at] = (uint8_t)prng_next(&seed);
	}
}

static void close_stream(struct stream *s)
{
	rf_close(s->guest, s->sock);
	close(s->fd);
	free(s->data[0]);
	free(s->data[1]);
}

static void cross(struct api *api, const struct rf_guest_options *options, uint32_t share)
{
	struct stream streams[N_STREAMS];
	pthread_t threads[N_STREAMS][N_ROLES];
	struct rf_guest *guest;
	unsigned i, k;

	assert_int_equal(rf_guest_open(options, &guest), 0);
	for (i = 0; i < N_STREAMS; i++)
		open_stream(api, guest, &writes[i], share, &streams[i]);
	for (i = 0; i < N_STREAMS; i++)
		for (k = 0; k < N_ROLES; k++)
			assert_int_equal(
				pthread_create(&threads[i][k], NULL, roles[k], &streams[i]), 0);
	for (i = 0; i < N_STREAMS; i++)
		for (k = 0; k < N_ROLES; k++)
			pthread_join(threads[i][k], NULL);
	for (i = 0; i < N_STREAMS; i++) {
		if (streams[i].failed)
			fail_msg("writes of %zu bytes: %s", writes[i].each, streams[i].failed);
		close_stream(&streams[i]);
	}
	rf_guest_close(guest);
}

static void one_mode(struct api *api, const struct guest_row *row, int packet_bound, int credit,
		     const char *tune)
{
	struct rf_host_vsock_options host;
	struct rf_guest_options guest;
	struct rf_host_device *device;

	print_message("# %s, packets %d, credit %d, host %s\n", row->what, packet_bound, credit,
		      tune);
	rf_guest_options_init(&guest);
	guest.socket_fd = api_pair_options(api, &host);
	/* The host allows no larger ring than that. */
	guest.queue_size = host.queue_size = row->queue_size;
	guest.rx_buf_bytes = row->rx_buf_bytes;
	guest.packet_bound = packet_bound;
	guest.credit = credit;
	guest.tune = row->tune;
	guest.poll_us = row->poll_us;
	host.tune = tune;
	device = api_add(api, &host);
	cross(api, &guest, row->share);
	assert_int_equal(rf_host_remove(device), 0);
}

static void all_modes(void **state)
{
	struct api *api = *state;

	api_begin(api);
	for (size_t row = 0; row < sizeof(guest_rows) / sizeof(guest_rows[0]); row++)
		for (int bound = RF_PACKETS_UNBOUNDED; bound <= RF_PACKETS_RESET; bound++)
			for (int credit = RF_CREDIT_BATCHED; credit <= RF_CREDIT_LINUX; credit++)
				for (size_t t = 0; t < sizeof(tunes) / sizeof(tunes[0]); t++)
					one_mode(api, &guest_rows[row], bound, credit, tunes[t]);
	api_end(api);
}

static void receiving(void **state)
{
	struct api *api = *state;

	api_begin(api);
	for (size_t row = 0; row < sizeof(rx_rows) / sizeof(rx_rows[0]); row++)
		one_mode(api, &rx_rows[row], RF_PACKETS_UNBOUNDED, RF_CREDIT_BATCHED, tunes[0]);
	api_end(api);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		API_TEST(all_modes),
		API_TEST(receiving),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
