/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stream: payload per second, and what it costs, of one or several streams in one direction.
 *
 * Each stream has a thread at both ends. It carries messages of one size, one send each; the
 * receiver reads as much as it can get at once and compares every byte. What arrives within a
 * window of time, after a warm-up, is the rate, for all streams the same window. At the end senders
 * shut down, and receivers have to have got all that was sent.
 *
 * With --rotate, message by message is sent on the next one of many connections, and received in
 * the same order: what is measured is how the time per packet depends on their number.
 */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <ringferry/guest.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "back_end.h"
#include "base/fd.h"
#include "embed.h"
#include "end.h"
#include "parts.h"
#include "payload.h"

#define READ_SIZE    (256u << 10)
#define WARM_UP      0.2
#define WARM_UP_MIN  0.02
#define WARM_UP_MAX  0.5
#define DEFAULT_RUNS 5u
/* Descriptors besides those of connections. */
#define OTHER_FDS 256u

/**
 * struct side - One side of a run, in its process
 * @row:	Size, direction and so on
 * @sends:	It sends
 * @guest:	The guest, or NULL
 * @ends:	Connections, @rotate for each stream or one
 */
struct side {
	struct rf_bench_team *team;
	const struct rf_bench_row *row;
	bool sends;
	struct rf_guest *guest;
	struct rf_bench_end *ends;
};

/* One stream of a side, a thread. */
struct stream {
	const struct side *side;
	unsigned number;
	struct rf_bench_end *ends;
	unsigned n_ends;
	struct rf_bench_payload payload;
};

static unsigned ends_per_stream(const struct rf_bench_row *row)
{
	return row->rotate ? row->rotate : 1;
}

static void count(_Atomic uint64_t *counter, uint64_t value)
{
	atomic_store_explicit(counter, value, memory_order_relaxed);
}

static void send_stream(struct stream *stream)
{
	struct rf_bench_team *team = stream->side->team;
	struct rf_bench_lane *lane = &team->shared->lanes[stream->number];
	uint64_t start = rf_bench_payload_start(stream->number), sent = 0;
	size_t size = stream->side->row->size;
	unsigned at = 0;

	while (!atomic_load_explicit(&team->shared->stop, memory_order_relaxed)) {
		rf_bench_end_send(team, &stream->ends[at],
				  rf_bench_payload_at(&stream->payload, start + sent), size);
		sent += size;
		count(&lane->sent, sent);
		at = at + 1 == stream->n_ends ? 0 : at + 1;
	}
	for (unsigned i = 0; i < stream->n_ends; i++)
		rf_bench_end_shutdown(&stream->ends[i]);
}

static void receive_stream(struct stream *stream)
{
	struct rf_bench_team *team = stream->side->team;
	struct rf_bench_lane *lane = &team->shared->lanes[stream->number];
	uint64_t start = rf_bench_payload_start(stream->number), got = 0;
	size_t size = stream->side->row->size;
	bool rotates = stream->n_ends > 1;
	char *buf = aligned_alloc(64, rotates ? rf_align_up(size, 64) : READ_SIZE);
	unsigned at = 0;
	size_t n;

	if (!buf)
		rf_bench_team_fail(team, ENOMEM, "buffer");
	do {
		n = rotates ? rf_bench_end_recv_all(team, &stream->ends[at], buf, size)
			    : rf_bench_end_recv(team, &stream->ends[0], buf, READ_SIZE);
		if (!rf_bench_payload_check(&stream->payload, start + got, buf, n))
			rf_bench_team_fail(team, 0, "a byte is not the one that was sent");
		got += n;
		count(&lane->received, got);
		at = at + 1 == stream->n_ends ? 0 : at + 1;
	} while (n);
	free(buf);
}

static void *run_stream(void *arg)
{
	struct stream *stream = arg;

	if (rf_bench_payload_init(&stream->payload,
				  stream->side->sends ? stream->side->row->size : 0) < 0)
		rf_bench_team_fail(stream->side->team, ENOMEM, "buffer");
	atomic_fetch_add(&stream->side->team->shared->ready, 1);
	if (stream->side->sends)
		send_stream(stream);
	else
		receive_stream(stream);
	rf_bench_payload_fini(&stream->payload);
	return NULL;
}

static void run_streams(struct side *side)
{
	unsigned n = side->row->streams, each = ends_per_stream(side->row);
	struct stream *streams;
	pthread_t *threads;

	assert(n > 0);
	streams = calloc(n, sizeof(*streams));
	threads = calloc(n, sizeof(*threads));
	if (!streams || !threads)
		rf_bench_team_fail(side->team, ENOMEM, "streams");
	for (unsigned i = 0; i < n; i++) {
		streams[i] =
			(struct stream){ side, i, side->ends + (size_t)i * each, each, { NULL } };
		if (pthread_create(&threads[i], NULL, run_stream, &streams[i]) != 0)
			rf_bench_team_fail(side->team, EAGAIN, "thread");
	}
	for (unsigned i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	free(threads);
	free(streams);
}

static struct rf_bench_end *new_ends(const struct rf_bench_row *row)
{
	return calloc((size_t)row->streams * ends_per_stream(row), sizeof(struct rf_bench_end));
}

static void run_side(struct rf_bench_team *team, const struct rf_bench_row *row, bool in_guest)
{
	bool sends = in_guest == (row->dir == RF_BENCH_G2H);
	struct side side = { .team = team, .row = row, .sends = sends, .ends = new_ends(row) };
	unsigned n = row->streams * ends_per_stream(row);

	if (!side.ends)
		rf_bench_team_fail(team, ENOMEM, "streams");
	(void)rf_fd_raise_limit(n + OTHER_FDS);
	if (in_guest) {
		side.guest = rf_bench_guest_open(team, -1);
		rf_bench_guest_answer(team, side.guest);
	}
	rf_bench_ends_open(team, side.guest, sends, side.ends, n);
	run_streams(&side);
	/* Who sent waits for the other side's end: a guest that leaves may take data with it. */
	for (unsigned i = 0; sends && i < n; i++) {
		char byte;

		(void)rf_bench_end_recv(team, &side.ends[i], &byte, 1);
	}
	if (side.guest)
		rf_guest_close(side.guest);
}

static void guest_main(struct rf_bench_team *team, const void *row)
{
	run_side(team, row, true);
}

static void host_main(struct rf_bench_team *team, const void *row)
{
	run_side(team, row, false);
}

/* A plain socket: its pairs are made before both processes are. */
struct raw {
	const struct rf_bench_row *row;
	struct rf_bench_end *ends[2];
};

static void run_raw_side(struct rf_bench_team *team, const struct raw *raw, bool in_guest)
{
	bool sends = in_guest == (raw->row->dir == RF_BENCH_G2H);
	unsigned n = raw->row->streams * ends_per_stream(raw->row);
	struct side side = {
		.team = team, .row = raw->row, .sends = sends, .ends = raw->ends[in_guest]
	};

	for (unsigned i = 0; i < n; i++)
		close(raw->ends[!in_guest][i].fd);
	run_streams(&side);
}

static void raw_guest_main(struct rf_bench_team *team, const void *raw)
{
	run_raw_side(team, raw, true);
}

static void raw_host_main(struct rf_bench_team *team, const void *raw)
{
	run_raw_side(team, raw, false);
}

/* What was sent, and what has arrived, when all is over. */
static int check_totals(const struct rf_bench_team *team, unsigned streams)
{
	for (unsigned i = 0; i < streams; i++) {
		const struct rf_bench_lane *lane = &team->shared->lanes[i];
		uint64_t sent = atomic_load(&lane->sent), got = atomic_load(&lane->received);

		if (sent != got)
			return rf_bench_error(EPROTO,
					      "%s: stream %u: %llu bytes were sent, %llu arrived",
					      team->variant->name, i, (unsigned long long)sent,
					      (unsigned long long)got);
	}
	return 0;
}

static double warm_up(double seconds)
{
	seconds *= WARM_UP;
	return seconds < WARM_UP_MIN ? WARM_UP_MIN : seconds > WARM_UP_MAX ? WARM_UP_MAX : seconds;
}

int rf_bench_stream_measure(struct rf_bench_team *team, const struct rf_bench_row *row,
			    double seconds, struct rf_bench_sample *ret)
{
	static struct rf_bench_state begin, end;
	int r = rf_bench_team_ready(team, 2 * row->streams);

	if (r == 0)
		r = rf_bench_team_sleep(team, warm_up(seconds));
	if (r < 0)
		return r;
	rf_bench_state_begin(team, &begin);
	r = rf_bench_team_sleep(team, seconds);
	rf_bench_state_end(team, &end);
	rf_bench_sample_fill(&begin, &end, row->streams, ret);
	if (r == 0)
		r = rf_bench_team_finish(team);
	return r < 0 ? r : check_totals(team, row->streams);
}

int rf_bench_stream_guest(struct rf_bench_team *team, const struct rf_bench_row *row)
{
	return rf_bench_team_fork(team, RF_BENCH_GUEST, guest_main, row);
}

static int start(struct rf_bench_team *team, const struct rf_bench_row *row)
{
	int r = 0;

	if (row->dir == RF_BENCH_G2H)
		r = rf_bench_back_end_listen(team, (int)(row->streams * ends_per_stream(row)));
	if (r == 0)
		r = rf_bench_stream_guest(team, row);
	if (r == 0)
		r = rf_bench_team_fork(team, RF_BENCH_HOST, host_main, row);
	return r;
}

static int raw_pairs(struct raw *raw, unsigned n, int sndbuf)
{
	int pair[2];

	for (unsigned i = 0; i < n; i++) {
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
			return rf_bench_error(errno, "socketpair");
		for (int side = 0; side < 2; side++) {
			raw->ends[side][i].fd = pair[side];
			if (sndbuf)
				(void)setsockopt(pair[side], SOL_SOCKET, SO_SNDBUF, &sndbuf,
						 sizeof(sndbuf));
		}
	}
	return 0;
}

static void close_pairs(struct raw *raw, unsigned n)
{
	for (int side = 0; side < 2; side++) {
		for (unsigned i = 0; raw->ends[side] && i < n; i++)
			if (raw->ends[side][i].fd > 0)
				close(raw->ends[side][i].fd);
		free(raw->ends[side]);
	}
}

static int start_raw(struct rf_bench_team *team, const struct rf_bench_row *row, struct raw *raw)
{
	unsigned n = row->streams * ends_per_stream(row);
	int r;

	(void)rf_fd_raise_limit(2 * n + OTHER_FDS);
	*raw = (struct raw){ row, { new_ends(row), new_ends(row) } };
	if (!raw->ends[0] || !raw->ends[1])
		return rf_bench_error(ENOMEM, "streams");
	r = raw_pairs(raw, n, team->place->sndbuf);
	if (r == 0)
		r = rf_bench_team_fork(team, RF_BENCH_GUEST, raw_guest_main, raw);
	if (r == 0)
		r = rf_bench_team_fork(team, RF_BENCH_HOST, raw_host_main, raw);
	return r;
}

int rf_bench_stream_run(struct rf_bench *bench, const struct rf_bench_case *c,
			const struct rf_bench_place *place, double seconds,
			struct rf_bench_sample *ret)
{
	unsigned n = c->row->streams * ends_per_stream(c->row);
	bool raw_kind = c->variant->kind == RF_BENCH_RAW || c->variant->kind == RF_BENCH_RAW_BEST;
	struct raw raw = { NULL };
	struct rf_bench_team team;
	int r = rf_bench_team_open(&team, bench, c->variant, place, n);

	if (r == 0)
		r = raw_kind ? start_raw(&team, c->row, &raw) : start(&team, c->row);
	close_pairs(&raw, n);
	if (r == 0)
		r = rf_bench_stream_measure(&team, c->row, seconds, ret);
	rf_bench_team_close(&team);
	return r;
}

int rf_bench_stream(struct rf_bench *bench)
{
	static const uint32_t sizes[] = { 64, 256, 1024, 4096, 16384, 65536, 262144, 524288 };
	bool embed = bench->options->via == RF_BENCH_EMBED;
	const struct rf_bench_grid grid = { .bench = "stream",
					    .sizes = sizes,
					    .n_sizes = RF_ARRAY_SIZE(sizes),
					    .dirs = bench->options->dirs,
					    .runs = DEFAULT_RUNS,
					    .run = embed ? rf_bench_embed_run
							 : rf_bench_stream_run };

	return rf_bench_grid(bench, &grid);
}
