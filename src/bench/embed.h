/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * --via embed: the host half in the host program's process, through ringferry/host.h. Payload goes
 * between guest memory and the program's own by callbacks, one copy, no socket.
 */
#ifndef RF_BENCH_EMBED_H
#define RF_BENCH_EMBED_H

#include <ringferry/host.h>

#include "payload.h"
#include "team.h"

/* How far an embedded stream has come. */
enum rf_bench_embed_state {
	RF_BENCH_EMBED_NONE, /* no connection, or none any more after a refusal */
	RF_BENCH_EMBED_ASKED,
	RF_BENCH_EMBED_OPEN,
	RF_BENCH_EMBED_DONE, /* all was taken, or given */
	RF_BENCH_EMBED_OVER, /* its connection has ended after that */
};

struct rf_bench_embed;

/**
 * struct rf_bench_embed_stream - The host's end of one stream
 * @embed:	All of them
 * @state:	enum rf_bench_embed_state; the serving thread's, others look
 * @greeting:	The stream's number, with which its connection begins; accepted ones may come in any
 *		order
 * @greeted:	Bytes of it that were taken or given
 * @bytes:	Bytes of payload so far
 */
struct rf_bench_embed_stream {
	struct rf_bench_embed *embed;
	_Atomic int state;
	uint32_t greeting;
	unsigned greeted;
	uint64_t bytes;
};

/**
 * struct rf_bench_embed - A host half and its ends of streams
 * @row:	Size, direction and so on
 * @host, @device: The host half
 * @streams:	Ends of streams
 * @payload:	What is sent and expected
 * @buf:	Where received bytes are copied to
 */
struct rf_bench_embed {
	struct rf_bench_team *team;
	const struct rf_bench_row *row;
	struct rf_host *host;
	struct rf_host_device *device;
	struct rf_bench_embed_stream *streams;
	struct rf_bench_payload payload;
	char *buf;
};

/**
 * rf_bench_embed_init() - Make the host half; it does not return if that fails
 * @socket_fd:	Its end of a socketpair whose other end a guest has; -1 to listen on the team's
 *		socket
 * @poll_us:	As in struct rf_host_options
 *
 * If streams go to the host, its port is open then.
 */
void rf_bench_embed_init(struct rf_bench_embed *embed, struct rf_bench_team *team,
			 const struct rf_bench_row *row, int socket_fd, int poll_us);

/* If streams go to the guest, ask for those that are not there. From any thread. */
void rf_bench_embed_connect(struct rf_bench_embed *embed);

/* Have all streams come to this state, or beyond it? From any thread. */
bool rf_bench_embed_reached(const struct rf_bench_embed *embed, enum rf_bench_embed_state state);

/* stream.c: start the guest's process. Return: 0, or -errno after saying what failed. */
int rf_bench_stream_guest(struct rf_bench_team *team, const struct rf_bench_row *row);

/* stream.c: processes stand or are coming: the measurement itself. Return: likewise. */
int rf_bench_stream_measure(struct rf_bench_team *team, const struct rf_bench_row *row,
			    double seconds, struct rf_bench_sample *ret);

/* embed.c: one run of a stream. As @run of struct rf_bench_case. */
int rf_bench_embed_run(struct rf_bench *bench, const struct rf_bench_case *c,
		       const struct rf_bench_place *place, double seconds,
		       struct rf_bench_sample *ret);

#endif
