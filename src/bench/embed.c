/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams via embed, in two ways. *Other thread*: the guest is a process as always, and the host
 * program's process serves it by a thread, whose callbacks take and give payload. *Same thread*:
 * guest and host half are in one process, and one thread sends a while, then serves, and so on:
 * nobody waits for anybody, and what was sent is still in the cache.
 */
#include "embed.h"

#include <errno.h>
#include <pthread.h>
#include <ringferry/guest.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "back_end.h"
#include "end.h"
#include "limit.h"

#define READ_SIZE (256u << 10)
/* What is sent before it is served, at most: it stays in the second-level cache. */
#define BURST_BYTES (128u << 10)
#define WAIT_US     1000
#define WINDOW      (1u << 20)

/* A thread that serves the host while others wait. */
struct server {
	struct rf_bench_embed *embed;
	_Atomic bool stop;
	pthread_t thread;
};

static void *serve(void *arg)
{
	struct server *server = arg;

	while (!atomic_load(&server->stop)) {
		rf_bench_embed_connect(server->embed);
		(void)rf_host_dispatch(server->embed->host, 1);
	}
	return NULL;
}

static void server_start(struct server *server, struct rf_bench_embed *embed)
{
	server->embed = embed;
	atomic_store(&server->stop, false);
	if (pthread_create(&server->thread, NULL, serve, server) != 0)
		rf_bench_team_fail(embed->team, EAGAIN, "thread");
}

static void server_stop(struct server *server)
{
	atomic_store(&server->stop, true);
	pthread_join(server->thread, NULL);
}

static char *host_counters(void *host)
{
	return rf_host_counters_json(host);
}

static void wait_for(const struct rf_bench_embed *embed, enum rf_bench_embed_state state)
{
	while (!rf_bench_embed_reached(embed, state))
		usleep(WAIT_US);
}

static int poll_us(const struct rf_bench_variant *variant)
{
	if (variant->host_poll_us == RF_BENCH_POLL_AUTO)
		return RF_HOST_POLL_AUTO;
	return variant->host_poll_us < 0 ? 0 : variant->host_poll_us;
}

static void *run_host(void *host)
{
	(void)rf_host_run(host);
	return NULL;
}

static void other_thread_main(struct rf_bench_team *team, const void *ctx)
{
	const struct rf_bench_row *row = ctx;
	struct rf_bench_embed embed;
	pthread_t thread;

	rf_bench_embed_init(&embed, team, row, -1, poll_us(team->variant));
	rf_bench_team_answer(team, RF_BENCH_HOST, host_counters, embed.host);
	if (pthread_create(&thread, NULL, run_host, embed.host) != 0)
		rf_bench_team_fail(team, EAGAIN, "thread");
	while (!rf_bench_embed_reached(&embed, RF_BENCH_EMBED_OPEN)) {
		rf_bench_embed_connect(&embed);
		usleep(WAIT_US);
	}
	atomic_fetch_add(&team->shared->ready, row->streams);
	while (!atomic_load(&team->shared->stop))
		usleep(10 * WAIT_US);
	wait_for(&embed, RF_BENCH_EMBED_OVER);
	rf_host_stop(embed.host);
	pthread_join(thread, NULL);
	/* Somebody may just be asking for the counters: the process ends, and all with it. */
}

/**
 * struct both - Guest and host half in one thread
 * @ends:	The guest's ends of streams
 * @bytes:	By stream, sent or received
 * @ended:	By stream: the guest has read the end of file
 */
struct both {
	struct rf_bench_embed embed;
	struct rf_guest *guest;
	struct rf_bench_end ends[RF_BENCH_MAX_STREAMS];
	uint64_t bytes[RF_BENCH_MAX_STREAMS];
	bool ended[RF_BENCH_MAX_STREAMS];
};

/* Return: bytes that were sent. */
static size_t send_burst(struct both *both, unsigned i)
{
	struct rf_bench_team *team = both->embed.team;
	uint64_t start = rf_bench_payload_start(i);
	size_t sent = 0, size = both->embed.row->size;

	while (sent < BURST_BYTES) {
		ssize_t n =
			rf_send(both->guest, both->ends[i].fd,
				rf_bench_payload_at(&both->embed.payload, start + both->bytes[i]),
				size, RF_MSG_DONTWAIT);

		if (n == -EAGAIN)
			break;
		if (n < 0)
			rf_bench_team_fail(team, (int)-n, "send");
		sent += (size_t)n;
		both->bytes[i] += (size_t)n;
	}
	atomic_store_explicit(&team->shared->lanes[i].sent, both->bytes[i], memory_order_relaxed);
	return sent;
}

/* Return: bytes that were received, and one for the end of file. */
static size_t receive_burst(struct both *both, unsigned i, char *buf)
{
	struct rf_bench_team *team = both->embed.team;
	ssize_t n;

	if (both->ended[i])
		return 0;
	n = rf_recv(both->guest, both->ends[i].fd, buf, READ_SIZE, RF_MSG_DONTWAIT);
	if (n == -EAGAIN)
		return 0;
	if (n < 0)
		rf_bench_team_fail(team, (int)-n, "receive");
	if (!rf_bench_payload_check(&both->embed.payload,
				    rf_bench_payload_start(i) + both->bytes[i], buf, (size_t)n))
		rf_bench_team_fail(team, 0, "a byte is not the one that was sent");
	both->ended[i] = n == 0;
	both->bytes[i] += (size_t)n;
	atomic_store_explicit(&team->shared->lanes[i].received, both->bytes[i],
			      memory_order_relaxed);
	return n ? (size_t)n : 1;
}

/* One turn of the host half. The guest's thread may have to do something, on the same core. */
static void serve_once(struct both *both, size_t progress)
{
	int r = rf_host_dispatch(both->embed.host, 0);

	if (r < 0)
		rf_bench_team_fail(both->embed.team, -r, "the host half");
	if (!progress)
		sched_yield();
}

static void send_and_serve(struct both *both)
{
	const struct rf_bench_shared *shared = both->embed.team->shared;
	unsigned n = both->embed.row->streams;

	while (!atomic_load_explicit(&shared->stop, memory_order_relaxed))
		for (unsigned i = 0; i < n; i++)
			serve_once(both, send_burst(both, i));
	for (unsigned i = 0; i < n; i++)
		rf_bench_end_shutdown(&both->ends[i]);
	while (!rf_bench_embed_reached(&both->embed, RF_BENCH_EMBED_DONE))
		serve_once(both, 0);
}

static void serve_and_receive(struct both *both)
{
	unsigned n = both->embed.row->streams, open = n;
	char *buf = aligned_alloc(64, READ_SIZE);
	size_t progress = 0;

	if (!buf)
		rf_bench_team_fail(both->embed.team, ENOMEM, "buffer");
	while (open) {
		serve_once(both, progress);
		progress = open = 0;
		for (unsigned i = 0; i < n; i++) {
			progress += receive_burst(both, i, buf);
			open += !both->ended[i];
		}
	}
	free(buf);
}

static void same_thread_main(struct rf_bench_team *team, const void *ctx)
{
	const struct rf_bench_row *row = ctx;
	static struct both both;
	struct server server;
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		rf_bench_team_fail(team, errno, "socketpair");
	rf_bench_embed_init(&both.embed, team, row, pair[1], RF_HOST_POLL_BUSY);
	rf_bench_team_answer(team, RF_BENCH_HOST, host_counters, both.embed.host);
	server_start(&server, &both.embed);
	both.guest = rf_bench_guest_open(team, pair[0]);
	rf_bench_guest_answer(team, both.guest);
	rf_bench_ends_open(team, both.guest, row->dir == RF_BENCH_G2H, both.ends, row->streams);
	wait_for(&both.embed, RF_BENCH_EMBED_OPEN);
	server_stop(&server);
	atomic_fetch_add(&team->shared->ready, 2 * row->streams);
	if (row->dir == RF_BENCH_G2H)
		send_and_serve(&both);
	else
		serve_and_receive(&both);
}

static int start(struct rf_bench_team *team, const struct rf_bench_row *row)
{
	int r;

	if (team->variant->same_thread)
		return rf_bench_team_fork(team, RF_BENCH_HOST, same_thread_main, row);
	r = rf_bench_team_fork(team, RF_BENCH_HOST, other_thread_main, row);
	return r < 0 ? r : rf_bench_stream_guest(team, row);
}

/* Instead of a plain socket: the same copies, and nothing else. */
static int run_copies(struct rf_bench *bench, const struct rf_bench_case *c,
		      const struct rf_bench_place *place, double seconds,
		      struct rf_bench_sample *ret)
{
	const struct rf_bench_limit_pipeline how = {
		.size = c->row->size,
		.slots = bench->options->queue_size,
		.window = WINDOW,
		.two_threads = c->variant->kind == RF_BENCH_RAW,
		.check = true,
		.cores = { place->guest, place->host },
		.seconds = seconds,
	};
	int r = rf_bench_limit_pipeline(&how, &ret->gbps);

	return r < 0 ? rf_bench_error(-r, "%s", c->variant->name) : 0;
}

int rf_bench_embed_run(struct rf_bench *bench, const struct rf_bench_case *c,
		       const struct rf_bench_place *place, double seconds,
		       struct rf_bench_sample *ret)
{
	struct rf_bench_team team;
	int r;

	if (c->variant->kind != RF_BENCH_OURS)
		return run_copies(bench, c, place, seconds, ret);
	r = rf_bench_team_open(&team, bench, c->variant, place, c->row->streams);
	if (r == 0)
		r = start(&team, c->row);
	if (r == 0)
		r = rf_bench_stream_measure(&team, c->row, seconds, ret);
	rf_bench_team_close(&team);
	return r;
}
