/* SPDX-License-Identifier: BSD-3-Clause */
#include "published.h"

#include "base/util.h"

#define DIRECT                                                                                    \
	"\"vsock/virtio: avoid queuing packets when intermediate queue is empty\", v4, 2024 (in " \
	"Linux "                                                                                  \
	"6.12), fio and iperf-vsock"
#define FEWER                                                                                \
	"\"vsock/virtio: optimizations to increase the throughput\", RFC, 4 April 2019 (in " \
	"Linux 5.4 without its last step), iperf3 for AF_VSOCK"

/* Microseconds; the figures of v2, of 2 July 2024, are not comparable (they were told as ns). */
static const struct rf_bench_published_line direct_means[] = {
	{ 64, 1, { 16.78, 13.57 } },
	{ 512, 1, { 17.35, 14.11 } },
	{ 4096, 1, { 19.87, 14.96 } },
};

static const struct rf_bench_published_line direct_rates[] = {
	{ 4096, 1, { 6.87, 10.5 } }, { 65536, 1, { 29.3, 39.4 } }, { 131072, 1, { 29.5, 39.9 } },
	{ 4096, 2, { 10.5, 17.8 } }, { 65536, 2, { 32.8, 47.7 } }, { 131072, 2, { 33.2, 48.5 } },
	{ 4096, 4, { 12.7, 16.9 } }, { 65536, 4, { 33.6, 48.1 } }, { 131072, 4, { 34.2, 50.5 } },
};

static const struct rf_bench_published_line fewer_to_guest[] = {
	{ 64, 1, { 0.060, 0.102, 0.102, 0.096 } }, { 256, 1, { 0.22, 0.40, 0.40, 0.36 } },
	{ 512, 1, { 0.42, 0.82, 0.85, 0.74 } },    { 1024, 1, { 0.7, 1.6, 1.6, 1.5 } },
	{ 2048, 1, { 1.5, 3.0, 3.1, 2.9 } },       { 4096, 1, { 2.5, 5.2, 5.3, 5.3 } },
	{ 8192, 1, { 3.9, 8.4, 8.6, 8.8 } },       { 16384, 1, { 6.6, 11.1, 11.3, 12.8 } },
	{ 32768, 1, { 9.9, 15.8, 15.8, 18.1 } },   { 65536, 1, { 13.5, 17.4, 17.7, 21.4 } },
	{ 131072, 1, { 17.9, 19.0, 19.0, 23.6 } }, { 262144, 1, { 18.0, 19.4, 19.8, 24.4 } },
	{ 524288, 1, { 18.4, 19.6, 20.1, 25.3 } },
};

static const struct rf_bench_published_line fewer_to_host[] = {
	{ 64, 1, { 0.088, 0.100, 0.101 } }, { 256, 1, { 0.35, 0.36, 0.41 } },
	{ 512, 1, { 0.70, 0.74, 0.73 } },   { 1024, 1, { 1.1, 1.3, 1.3 } },
	{ 2048, 1, { 2.4, 2.4, 2.6 } },     { 4096, 1, { 4.3, 4.3, 4.5 } },
	{ 8192, 1, { 7.3, 7.4, 7.6 } },     { 16384, 1, { 9.2, 9.6, 11.1 } },
	{ 32768, 1, { 8.3, 8.9, 18.1 } },   { 65536, 1, { 8.3, 8.9, 25.4 } },
	{ 131072, 1, { 7.2, 8.7, 26.7 } },  { 262144, 1, { 7.7, 8.4, 24.9 } },
	{ 524288, 1, { 7.7, 8.5, 25.0 } },
};

#define LINES(name) .lines = (name), .n_lines = RF_ARRAY_SIZE(name)

const struct rf_bench_published rf_bench_published[] = {
	{
		.preset = "published-a",
		.title = "mean round trip, the worker sleeps",
		.source = DIRECT,
		.unit = "us",
		.latency = true,
		.dir = RF_BENCH_G2H,
		.steps = { { "queued", "queued:direct-tx=off,poll-us=0" },
			   { "direct", "direct:direct-tx=on,poll-us=0" } },
		.n_steps = 2,
		LINES(direct_means),
	},
	{
		.preset = "published-a",
		.title =
			"mean round trip, worker and back end poll for 50 us (published: as above)",
		.source = DIRECT,
		.unit = "us",
		.latency = true,
		.dir = RF_BENCH_G2H,
		.steps = { { "queued", "queued-polling:direct-tx=off,poll-by=worker,poll-us=50" },
			   { "direct", "direct-polling:direct-tx=on,poll-by=worker,poll-us=50" } },
		.n_steps = 2,
		LINES(direct_means),
	},
	{
		.preset = "published-a",
		.title = "streams, guest to host",
		.source = DIRECT,
		.unit = "Gb/s",
		.dir = RF_BENCH_G2H,
		.steps = { { "queued", "queued:direct-tx=off,join=off" },
			   { "direct", "direct:direct-tx=on,join=off" } },
		.n_steps = 2,
		LINES(direct_rates),
	},
	{
		.preset = "published-b",
		.title = "stream, host to guest",
		.source = FEWER,
		.unit = "Gb/s",
		.dir = RF_BENCH_H2G,
		.steps = { { "before", "before:join=off,credit=eager,split=off,max-"
				       "packet=4k,rx-buf=4k" },
			   { "few updates", "p1:join=off,credit=linux,split=off,max-"
					    "packet=4k,rx-buf=4k" },
			   { "64K packets", "p23:join=off,credit=linux,max-packet=64k,rx-buf=4k" },
			   { "64K buffers",
			     "p4:join=off,credit=linux,max-packet=64k,rx-buf=64k" } },
		.n_steps = 4,
		LINES(fewer_to_guest),
	},
	{
		.preset = "published-b",
		.title = "stream, guest to host",
		.source = FEWER,
		.unit = "Gb/s",
		.dir = RF_BENCH_G2H,
		.steps = { { "before", "before:join=off,credit=eager,split=off,max-"
				       "packet=4k,rx-buf=4k" },
			   { "few updates", "p1:join=off,credit=linux,split=off,max-"
					    "packet=4k,rx-buf=4k" },
			   { "64K packets",
			     "p23:join=off,credit=linux,max-packet=64k,rx-buf=4k" } },
		.n_steps = 3,
		LINES(fewer_to_host),
	},
};

const size_t rf_bench_n_published = RF_ARRAY_SIZE(rf_bench_published);
