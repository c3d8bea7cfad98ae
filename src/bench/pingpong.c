/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pingpong: the time of a message's way there and of one of the same size back.
 *
 * The guest sends, and waits for the answer; the host program reads and answers. Both compare every
 * byte. Round trips of a warm-up do not count.
 */
#include <errno.h>
#include <ringferry/guest.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "back_end.h"
#include "base/clock.h"
#include "end.h"
#include "parts.h"
#include "payload.h"

#define DEFAULT_RUNS 5u
#define WARM_UP_S    0.02

/* One end of the table: pattern and buffer. */
struct player {
	struct rf_bench_team *team;
	const struct rf_bench_end *end;
	size_t size;
	struct rf_bench_payload payload;
	char *buf;
};

static void player_init(struct player *player, struct rf_bench_team *team,
			const struct rf_bench_end *end, size_t size)
{
	*player = (struct player){ .team = team, .end = end, .size = size };
	player->buf = aligned_alloc(64, rf_align_up(size, 64));
	if (!player->buf || rf_bench_payload_init(&player->payload, size) < 0)
		rf_bench_team_fail(team, ENOMEM, "buffer");
	atomic_fetch_add(&team->shared->ready, 1);
}

static void player_fini(struct player *player)
{
	rf_bench_payload_fini(&player->payload);
	free(player->buf);
}

/* Return: false at the end of file. */
static bool take_ball(struct player *player, uint64_t pos)
{
	size_t n = rf_bench_end_recv_all(player->team, player->end, player->buf, player->size);

	if (n == 0)
		return false;
	if (n != player->size ||
	    !rf_bench_payload_check(&player->payload, pos, player->buf, player->size))
		rf_bench_team_fail(player->team, 0, "a byte is not the one that was sent");
	return true;
}

static void serve(struct rf_bench_team *team, const struct rf_bench_end *end, size_t size)
{
	struct rf_bench_shared *shared = team->shared;
	struct player player;
	uint32_t n = 0;

	player_init(&player, team, end, size);
	for (uint64_t pos = 0; !atomic_load_explicit(&shared->stop, memory_order_relaxed);
	     pos += size) {
		uint64_t begin = rf_clock_now(), ns;

		rf_bench_end_send(team, end, rf_bench_payload_at(&player.payload, pos), size);
		if (!take_ball(&player, pos))
			rf_bench_team_fail(team, 0, "the answer ends early");
		ns = rf_clock_now() - begin;
		if (!atomic_load_explicit(&shared->measure, memory_order_relaxed))
			continue;
		if (n < RF_BENCH_MAX_TIMES)
			shared->times_ns[n++] = ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
		atomic_store_explicit(&shared->n_times, n, memory_order_relaxed);
		atomic_store_explicit(&shared->lanes[0].received, (uint64_t)n * size,
				      memory_order_relaxed);
	}
	rf_bench_end_shutdown(end);
	(void)rf_bench_end_recv(team, end, player.buf, 1);
	player_fini(&player);
}

static void answer(struct rf_bench_team *team, const struct rf_bench_end *end, size_t size)
{
	struct player player;

	player_init(&player, team, end, size);
	for (uint64_t pos = 0; take_ball(&player, pos); pos += size)
		rf_bench_end_send(team, end, rf_bench_payload_at(&player.payload, pos), size);
	player_fini(&player);
}

static void guest_main(struct rf_bench_team *team, const void *row)
{
	struct rf_guest *guest = rf_bench_guest_open(team, -1);
	struct rf_bench_end end;

	rf_bench_guest_answer(team, guest);
	rf_bench_ends_open(team, guest, true, &end, 1);
	serve(team, &end, ((const struct rf_bench_row *)row)->size);
	rf_guest_close(guest);
}

static void host_main(struct rf_bench_team *team, const void *row)
{
	struct rf_bench_end end;

	rf_bench_ends_open(team, NULL, false, &end, 1);
	answer(team, &end, ((const struct rf_bench_row *)row)->size);
}

struct raw {
	const struct rf_bench_row *row;
	int pair[2];
};

static void raw_guest_main(struct rf_bench_team *team, const void *ctx)
{
	const struct raw *raw = ctx;
	struct rf_bench_end end = { .fd = raw->pair[0] };

	close(raw->pair[1]);
	serve(team, &end, raw->row->size);
}

static void raw_host_main(struct rf_bench_team *team, const void *ctx)
{
	const struct raw *raw = ctx;
	struct rf_bench_end end = { .fd = raw->pair[1] };

	close(raw->pair[0]);
	answer(team, &end, raw->row->size);
	close(end.fd);
}

static int start(struct rf_bench_team *team, const struct rf_bench_row *row)
{
	int r = rf_bench_back_end_listen(team, 1);

	if (r == 0)
		r = rf_bench_team_fork(team, RF_BENCH_GUEST, guest_main, row);
	if (r == 0)
		r = rf_bench_team_fork(team, RF_BENCH_HOST, host_main, row);
	return r;
}

static int start_raw(struct rf_bench_team *team, const struct rf_bench_row *row)
{
	struct raw raw = { .row = row };
	int r;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, raw.pair) < 0)
		return rf_bench_error(errno, "socketpair");
	r = rf_bench_team_fork(team, RF_BENCH_GUEST, raw_guest_main, &raw);
	if (r == 0)
		r = rf_bench_team_fork(team, RF_BENCH_HOST, raw_host_main, &raw);
	close(raw.pair[0]);
	close(raw.pair[1]);
	return r;
}

static int measure(struct rf_bench_team *team, double seconds, struct rf_bench_sample *ret)
{
	static struct rf_bench_state begin, end;
	int r = rf_bench_team_ready(team, 2);

	if (r == 0)
		r = rf_bench_team_sleep(team, WARM_UP_S);
	if (r < 0)
		return r;
	rf_bench_state_begin(team, &begin);
	atomic_store(&team->shared->measure, true);
	r = rf_bench_team_sleep(team, seconds);
	atomic_store(&team->shared->measure, false);
	rf_bench_state_end(team, &end);
	rf_bench_sample_fill(&begin, &end, 1, ret);
	if (r == 0)
		r = rf_bench_team_finish(team);
	if (r < 0)
		return r;
	ret->latency = rf_bench_latency(team->shared->times_ns, team->shared->n_times);
	/* Both ways. */
	ret->bytes *= 2;
	ret->gbps = 0;
	return 0;
}

static int run_case(struct rf_bench *bench, const struct rf_bench_case *c,
		    const struct rf_bench_place *place, double seconds, struct rf_bench_sample *ret)
{
	bool raw = c->variant->kind == RF_BENCH_RAW || c->variant->kind == RF_BENCH_RAW_BEST;
	struct rf_bench_team team;
	int r = rf_bench_team_open(&team, bench, c->variant, place, 1);

	if (r == 0)
		r = raw ? start_raw(&team, c->row) : start(&team, c->row);
	if (r == 0)
		r = measure(&team, seconds, ret);
	rf_bench_team_close(&team);
	return r;
}

int rf_bench_pingpong(struct rf_bench *bench)
{
	static const uint32_t sizes[] = { 512, 4096 };
	const struct rf_bench_grid grid = { .bench = "pingpong",
					    .sizes = sizes,
					    .n_sizes = RF_ARRAY_SIZE(sizes),
					    .dirs = RF_BENCH_G2H,
					    .runs = DEFAULT_RUNS,
					    .latency = true,
					    .run = run_case };

	return rf_bench_grid(bench, &grid);
}
