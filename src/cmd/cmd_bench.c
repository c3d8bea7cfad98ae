/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ringferry bench: measurements.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/counter.h"
#include "base/util.h"
#include "bench/run.h"
#include "options.h"

#define SECONDS_MIN 0.01
#define SECONDS_MAX 3600.0

/**
 * struct bench_options - What was typed
 * @bench:	What is asked for
 * @streams, @rotate, @runs, @queue_size: Numbers of it, as the table of options stores them
 */
struct bench_options {
	struct rf_bench_options bench;
	uint64_t streams;
	uint64_t rotate;
	uint64_t runs;
	uint64_t queue_size;
};

static struct rf_bench_options *bench_of(void *options)
{
	return &((struct bench_options *)options)->bench;
}

static int parse_via(const struct rf_opt *opt RF_UNUSED, const char *value, void *options,
		     char *allowed, size_t allowed_bytes)
{
	bool embed = !strcmp(value, "embed");

	bench_of(options)->via = embed ? RF_BENCH_EMBED : RF_BENCH_UNIX;
	if (embed || !strcmp(value, "unix"))
		return 0;
	snprintf(allowed, allowed_bytes, "unix or embed");
	return -EINVAL;
}

static int parse_dir(const struct rf_opt *opt RF_UNUSED, const char *value, void *options,
		     char *allowed, size_t allowed_bytes)
{
	static const struct {
		const char *name;
		unsigned dirs;
	} names[] = {
		{ "g2h", RF_BENCH_G2H },
		{ "h2g", RF_BENCH_H2G },
		{ "both", RF_BENCH_BOTH },
	};

	for (size_t i = 0; i < RF_ARRAY_SIZE(names); i++) {
		if (strcmp(value, names[i].name) != 0)
			continue;
		bench_of(options)->dirs = names[i].dirs;
		return 0;
	}
	snprintf(allowed, allowed_bytes, "g2h, h2g or both");
	return -EINVAL;
}

static int parse_size(const struct rf_opt *opt RF_UNUSED, const char *value, void *options,
		      char *allowed, size_t allowed_bytes)
{
	struct rf_bench_options *bench = bench_of(options);
	uint64_t bytes;

	if (rf_size_parse(value, &bytes) < 0 || bytes < 1 || bytes > RF_BENCH_MAX_SIZE ||
	    bench->n_sizes == RF_BENCH_MAX_SIZES) {
		snprintf(allowed, allowed_bytes,
			 "at most %u numbers from 1 to 16m (k, m allowed) with , between them",
			 RF_BENCH_MAX_SIZES);
		return -EINVAL;
	}
	bench->sizes[bench->n_sizes++] = (uint32_t)bytes;
	return 0;
}

static int parse_seconds(const struct rf_opt *opt, const char *value, void *options, char *allowed,
			 size_t allowed_bytes)
{
	double *seconds = (double *)(void *)((char *)options + opt->offset), number;
	char *end;

	number = strtod(value, &end);
	if (end == value || *end || !(number >= SECONDS_MIN && number <= SECONDS_MAX)) {
		snprintf(allowed, allowed_bytes, "a number of seconds from %g to %g", SECONDS_MIN,
			 SECONDS_MAX);
		return -EINVAL;
	}
	*seconds = number;
	return 0;
}

static int add_variant(struct rf_bench_options *bench, const char *value,
		       int (*parse)(const char *text, struct rf_bench_variant *ret_variant,
				    char *ret_wrong),
		       char *allowed, size_t allowed_bytes)
{
	struct rf_bench_variant variant;
	char wrong[RF_BENCH_WRONG_BYTES];

	if (bench->n_variants == RF_BENCH_MAX_VARIANTS) {
		snprintf(allowed, allowed_bytes, "at most %u variants and back ends",
			 RF_BENCH_MAX_VARIANTS);
		return -EINVAL;
	}
	if (parse(value, &variant, wrong) < 0) {
		snprintf(allowed, allowed_bytes, "%s", wrong);
		return -EINVAL;
	}
	for (unsigned i = 0; i < bench->n_variants; i++) {
		if (strcmp(bench->variants[i].name, variant.name) != 0)
			continue;
		snprintf(allowed, allowed_bytes, "a name that was not given before");
		return -EINVAL;
	}
	bench->variants[bench->n_variants++] = variant;
	return 0;
}

static int parse_variant(const struct rf_opt *opt RF_UNUSED, const char *value, void *options,
			 char *allowed, size_t allowed_bytes)
{
	return add_variant(bench_of(options), value, rf_bench_variant_parse, allowed,
			   allowed_bytes);
}

static int parse_backend(const struct rf_opt *opt RF_UNUSED, const char *value, void *options,
			 char *allowed, size_t allowed_bytes)
{
	return add_variant(bench_of(options), value, rf_bench_backend_parse, allowed,
			   allowed_bytes);
}

static int parse_pin(const struct rf_opt *opt RF_UNUSED, const char *value, void *options,
		     char *allowed, size_t allowed_bytes)
{
	struct rf_bench_options *bench = bench_of(options);
	char wrong[RF_BENCH_WRONG_BYTES];

	if (rf_bench_place_parse(value, &bench->place, &bench->best_place, wrong) == 0)
		return 0;
	snprintf(allowed, allowed_bytes, "%s", wrong);
	return -EINVAL;
}

static int parse_preset(const struct rf_opt *opt RF_UNUSED, const char *value, void *options,
			char *allowed, size_t allowed_bytes)
{
	char wrong[RF_BENCH_WRONG_BYTES];

	bench_of(options)->preset = value;
	if (rf_bench_preset_parse(value, wrong) == 0)
		return 0;
	snprintf(allowed, allowed_bytes, "%s", wrong);
	return -EINVAL;
}

#define AT(member) offsetof(struct bench_options, member)

static const struct rf_opt opts[] = {
	{ "via", 0, RF_OPT_CUSTOM, "WAY",
	  "What is between guest and host program: unix, a back end that is a process of its own, "
	  "with its unix sockets; embed, only for stream: the host half is in the host program's "
	  "process. Default unix.",
	  .parse = parse_via },
	{ "dir", 0, RF_OPT_CUSTOM, "DIR",
	  "g2h, guest to host; h2g, host to guest; or both, one after the other. Default both.",
	  .parse = parse_dir },
	{ "sizes", 0, RF_OPT_LIST, "LIST",
	  "Bytes per message, 1 to 16m (k, m allowed). Default: several, the part's own.",
	  .parse = parse_size },
	{ "streams", 0, RF_OPT_NUMBER, "N",
	  "stream: connections at once, each with a thread at both ends. Default 1.", .min = 1,
	  .max = RF_BENCH_MAX_STREAMS, .offset = AT(streams) },
	{ "rotate", 0, RF_OPT_NUMBER, "N",
	  "stream: send message by message on the next one of so many connections. Default 1.",
	  .min = 1, .max = RF_BENCH_MAX_ROTATE, .offset = AT(rotate) },
	{ "seconds", 0, RF_OPT_CUSTOM, "S", "Length of a run, 0.01 to 3600. Default 0.5.",
	  .parse = parse_seconds, .offset = AT(bench.seconds) },
	{ "runs", 0, RF_OPT_NUMBER, "N", "Rounds: runs per figure. Default 5.", .min = 1,
	  .max = RF_BENCH_MAX_RUNS, .offset = AT(runs) },
	{ "variant", 0, RF_OPT_CUSTOM, "VARIANT",
	  "NAME, or NAME:KEY=VALUE,...: measure under these switches, those of both halves' "
	  "--tune, poll-us, queue-size, window, "
	  "thread=same|other; \"host.\" or \"guest.\" before a key narrows it to one half. raw is "
	  "a "
	  "plain socket, raw-best one with the best SO_SNDBUF. May be repeated. Default: raw, "
	  "raw-best (only stream) and default.",
	  .parse = parse_variant },
	{ "backend", 0, RF_OPT_CUSTOM, "BACKEND",
	  "NAME=SOCKET,UDS: measure another back end that is running, too: its vhost-user socket "
	  "and its hybrid "
	  "socket. Or kernel: the kernel's, with host programs on AF_VSOCK. May be repeated.",
	  .parse = parse_backend },
	{ "preset", 0, RF_OPT_CUSTOM, "NAME",
	  "In place of PART, published-a or published-b: measure what published tables did, with "
	  "the same mechanisms on and off as there, and print them side by side.",
	  .parse = parse_preset },
	{ "pin", 0, RF_OPT_CUSTOM, "PLACE",
	  "Cores of guest, back end and host program, G:B:H, each a number or any; or by name: "
	  "split-host (0:1:1), split-guest (0:0:1), three (0:1:2), one (0:0:0), free; or best, "
	  "found out for each row by short runs. Default best.",
	  .parse = parse_pin },
	{ "queue-size", 0, RF_OPT_NUMBER, "N",
	  "Size of the rings, a power of two from 2 to 32768. Default 256.", .min = 2, .max = 32768,
	  .offset = AT(queue_size) },
	{ "idle-seconds", 0, RF_OPT_CUSTOM, "S",
	  "conns: how long idle connections are watched, 0.01 to 3600. Default 5.",
	  .parse = parse_seconds, .offset = AT(bench.idle_seconds) },
	{ "json", 0, RF_OPT_STRING, "FILE", "Write all rows to it.", .offset = AT(bench.json) },
	{ "plot", 0, RF_OPT_STRING, "FILE", "Draw all rows into it, as SVG.",
	  .offset = AT(bench.plot) },
};

/* Return: 0, or the exit status. */
static int check_embed(const struct rf_bench_options *bench)
{
	if (bench->via != RF_BENCH_EMBED)
		return 0;
	if (strcmp(bench->part, "stream") != 0)
		return rf_opts_error(&rf_cmd_bench, "--via",
				     "embed is not allowed with %s, only with stream", bench->part);
	if (bench->rotate)
		return rf_opts_error(&rf_cmd_bench, "--rotate", "not allowed with --via embed");
	for (unsigned i = 0; i < bench->n_variants; i++)
		if (bench->variants[i].kind == RF_BENCH_EXTERNAL ||
		    bench->variants[i].kind == RF_BENCH_KERNEL)
			return rf_opts_error(&rf_cmd_bench, "--backend",
					     "not allowed with --via embed");
	return 0;
}

static int check(const struct bench_options *options)
{
	const struct rf_bench_options *bench = &options->bench;

	if (!rf_is_power_of_2(options->queue_size))
		return rf_opts_error(&rf_cmd_bench, "--queue-size",
				     "%llu is not allowed; a power of two from 2 to 32768 is",
				     (unsigned long long)options->queue_size);
	if ((uint64_t)bench->streams * (bench->rotate ? bench->rotate : 1) > RF_BENCH_MAX_ROTATE)
		return rf_opts_error(&rf_cmd_bench, "--rotate",
				     "%u streams of %u connections are too many; allowed: %u "
				     "connections",
				     bench->streams, bench->rotate, RF_BENCH_MAX_ROTATE);
	return check_embed(bench);
}

/* Return: 0, or the exit status. */
static int check_part(const struct rf_bench_options *bench, bool named)
{
	const char *name = named ? bench->part : "PART";
	char names[128] = "";
	size_t len = 0;

	if (bench->preset && named)
		return rf_opts_error(&rf_cmd_bench, name, "no part is allowed with --preset");
	if (bench->preset)
		return 0;
	for (const struct rf_bench_part *part = rf_bench_parts; part->name; part++) {
		if (!strcmp(part->name, name))
			return 0;
		len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s", len ? ", " : "",
					part->name);
	}
	return rf_opts_error(&rf_cmd_bench, name,
			     named ? "no such part; allowed: %s"
				   : "it is missing; allowed: %s, or --preset",
			     names);
}

static int bench_main(int argc, char **argv)
{
	/* With room for all variants. */
	static struct bench_options options;
	struct rf_bench_options *bench = &options.bench;
	int status, first;

	rf_bench_options_init(bench);
	options.streams = bench->streams;
	options.queue_size = bench->queue_size;
	if (!rf_opts_parse(&rf_cmd_bench, argc, argv, &options, &status, &first))
		return status;
	bench->part = first < argc ? argv[first] : bench->preset;
	bench->streams = (unsigned)options.streams;
	bench->rotate = options.rotate > 1 ? (unsigned)options.rotate : 0;
	bench->runs = (unsigned)options.runs;
	bench->queue_size = (uint32_t)options.queue_size;
	status = check_part(bench, first < argc);
	if (status == 0)
		status = check(&options);
	return status ? status : rf_bench_run(bench);
}

const struct rf_cmd rf_cmd_bench = {
	.name = "bench",
	.usage = "[stream|pingpong|limits|conns]",
	.summary = "Measure throughput and latency, beside a plain socket.",
	.details =
		"Measure on a machine that does nothing else. What is compared runs in turn, round "
		"by round; ratios are taken within rounds. Guest, back end and host program are "
		"processes of their own, and every byte is checked by its receiver.",
	.opts = opts,
	.n_opts = RF_ARRAY_SIZE(opts),
	.min_operands = 0,
	.max_operands = 1,
	.main = bench_main,
};
