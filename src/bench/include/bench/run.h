/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ringferry bench: what is measured, and how.
 *
 * A *part* (stream, pingpong, ...) measures *cases*: one row each of the final table, such as
 * "4 KiB, guest to host, variant default". The cases that are to be compared are run in turn, round
 * by round, so that whatever the machine does meanwhile meets all of them; ratios are taken within
 * rounds. A *variant* says under which switches a case runs, or instead of what (a plain socket,
 * another back end).
 *
 * Context: one thread. What is measured runs in processes of its own.
 */
#ifndef RF_BENCH_RUN_H
#define RF_BENCH_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RF_BENCH_MAX_RUNS     101u
#define RF_BENCH_MAX_SIZES    32u
#define RF_BENCH_MAX_VARIANTS 16u
#define RF_BENCH_MAX_STREAMS  256u
#define RF_BENCH_MAX_ROTATE   16384u
#define RF_BENCH_MAX_SIZE     (16u << 20)
#define RF_BENCH_NAME_BYTES   32u
#define RF_BENCH_TUNE_BYTES   256u
#define RF_BENCH_PATH_BYTES   108u

/* What a message says of what is wrong with an argument. */
#define RF_BENCH_WRONG_BYTES 320u

enum rf_bench_via {
	RF_BENCH_UNIX,  /* the back end is a process, host programs come through its unix socket */
	RF_BENCH_EMBED, /* the host half is in the host program's process */
};

/* Directions; as a set, bits. */
enum rf_bench_dir {
	RF_BENCH_G2H = 1,
	RF_BENCH_H2G = 2,
	RF_BENCH_BOTH = 3,
};

enum rf_bench_kind {
	RF_BENCH_OURS,     /* both halves are ours */
	RF_BENCH_RAW,      /* a plain AF_UNIX stream socket, its default buffers */
	RF_BENCH_RAW_BEST, /* the same with the best of several SO_SNDBUF */
	RF_BENCH_EXTERNAL, /* our guest half and somebody else's back end, which runs */
	RF_BENCH_KERNEL,   /* our guest half on /dev/vhost-vsock; host programs use AF_VSOCK */
};

/* A half's time of polling before it sleeps. */
#define RF_BENCH_POLL_AUTO  (-1)
#define RF_BENCH_POLL_UNSET (-2)

/**
 * struct rf_bench_variant - Under which circumstances a case runs
 * @name:	For tables
 * @kind:	What is behind it
 * @host_tune:	Switches of the host half, as --tune takes them; empty for the defaults
 * @guest_tune:	Switches of the guest half, likewise
 * @host_poll_us: How long the host half polls before it sleeps, RF_BENCH_POLL_AUTO or
 *		RF_BENCH_POLL_UNSET
 * @guest_poll_us: Likewise the guest half
 * @queue_size:	Size of the rings, 0 for that of the options
 * @window:	Receive window of both halves in bytes, 0 for their defaults
 * @same_thread: RF_BENCH_EMBED: the host half is served by the thread that uses it
 * @socket:	RF_BENCH_EXTERNAL: its vhost-user socket
 * @uds:	RF_BENCH_EXTERNAL: its hybrid socket
 */
struct rf_bench_variant {
	char name[RF_BENCH_NAME_BYTES];
	enum rf_bench_kind kind;
	char host_tune[RF_BENCH_TUNE_BYTES];
	char guest_tune[RF_BENCH_TUNE_BYTES];
	int host_poll_us;
	int guest_poll_us;
	uint32_t queue_size;
	uint32_t window;
	bool same_thread;
	char socket[RF_BENCH_PATH_BYTES];
	char uds[RF_BENCH_PATH_BYTES];
};

/**
 * rf_bench_variant_init() - A variant with all defaults
 * @name:	Its name, shortened if it is too long
 */
void rf_bench_variant_init(struct rf_bench_variant *variant, const char *name,
			   enum rf_bench_kind kind);

/**
 * rf_bench_variant_parse() - Read "NAME", or "NAME:key=value,..."
 * @ret_wrong:	What is wrong and what is allowed, RF_BENCH_WRONG_BYTES
 *
 * A key is a switch, which is set in every half that has it, or of one half only with "host." or
 * "guest." before it; or poll-us (likewise), queue-size, window, or thread (same|other). The names
 * raw and raw-best are those of plain sockets.
 *
 * Return: 0, or -EINVAL.
 */
int rf_bench_variant_parse(const char *text, struct rf_bench_variant *ret_variant, char *ret_wrong);

/**
 * rf_bench_backend_parse() - Read "NAME=VHOST_USER_SOCKET,UDS", or "kernel"
 * @ret_wrong:	As above
 *
 * Return: 0, or -EINVAL.
 */
int rf_bench_backend_parse(const char *text, struct rf_bench_variant *ret_variant, char *ret_wrong);

/**
 * rf_bench_preset_parse() - Is there a preset of this name?
 * @ret_wrong:	All names, RF_BENCH_WRONG_BYTES
 *
 * Return: 0, or -EINVAL.
 */
int rf_bench_preset_parse(const char *name, char *ret_wrong);

/* "Wherever the scheduler likes", as a core. */
#define RF_BENCH_ANY_CORE (-1)

/**
 * struct rf_bench_place - Where the processes of a run are, and what they ask for
 * @name:	For people
 * @guest:	Core of the guest, counted among those that this process may use; of the guest's end
 *		of a plain socket
 * @back_end:	Core of the back end
 * @host:	Core of the host program; of the host's end of a plain socket
 * @sndbuf:	SO_SNDBUF of a plain socket, 0 for the default
 */
struct rf_bench_place {
	char name[48];
	int guest;
	int back_end;
	int host;
	int sndbuf;
};

/**
 * rf_bench_place_parse() - Read "best", a name of a placement, or GUEST:BACKEND:HOST
 * @ret_best:	The best of all is to be found out
 * @ret_wrong:	As above
 *
 * Return: 0, or -EINVAL.
 */
int rf_bench_place_parse(const char *text, struct rf_bench_place *ret_place, bool *ret_best,
			 char *ret_wrong);

/**
 * struct rf_bench_options - What is asked for
 * @part:	The part's name, or that of a preset
 * @via:	What is between guest and host program
 * @dirs:	Directions, bits of enum rf_bench_dir
 * @sizes:	Bytes per message; none for the part's own
 * @n_sizes:	Their number
 * @streams:	Connections at once, each with a thread at both ends
 * @rotate:	Connections of each stream that messages rotate over, 0 for one that does not
 * @seconds:	Length of a measured run
 * @runs:	Rounds, 0 for the part's own
 * @variants:	Variants, in the order of the tables; none for default, raw and raw-best
 * @n_variants:	Their number
 * @place:	Where processes are, unless @best_place
 * @best_place:	For each case the best placement is found out by short runs
 * @queue_size:	Size of the rings
 * @json:	File for the rows, or NULL
 * @plot:	File for a plot of them, or NULL
 * @preset:	Measure what the published tables of this name did, not a part; or NULL
 * @idle_seconds: conns: how long idle connections are watched
 */
struct rf_bench_options {
	const char *part;
	enum rf_bench_via via;
	unsigned dirs;
	uint32_t sizes[RF_BENCH_MAX_SIZES];
	unsigned n_sizes;
	unsigned streams;
	unsigned rotate;
	double seconds;
	unsigned runs;
	struct rf_bench_variant variants[RF_BENCH_MAX_VARIANTS];
	unsigned n_variants;
	struct rf_bench_place place;
	bool best_place;
	uint32_t queue_size;
	const char *json;
	const char *plot;
	const char *preset;
	double idle_seconds;
};

void rf_bench_options_init(struct rf_bench_options *options);

struct rf_bench;

/**
 * struct rf_bench_part - Something to measure
 * @name:	As typed
 * @summary:	For --help
 * @run:	Measures, prints; returns 0 or -errno, after saying on standard error what failed
 */
struct rf_bench_part {
	const char *name;
	const char *summary;
	int (*run)(struct rf_bench *bench);
};

/* All of them; the last one has no name. */
extern const struct rf_bench_part rf_bench_parts[];

/**
 * rf_bench_run() - Measure what is asked for: print tables, write the files
 *
 * Return: the exit status: 0; 1 after a line on standard error; 130 when it was interrupted.
 */
int rf_bench_run(const struct rf_bench_options *options);

#endif
