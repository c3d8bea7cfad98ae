/* SPDX-License-Identifier: BSD-3-Clause */
#include "guest.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/clock.h"
#include "base/fd.h"
#include "close.h"
#include "ring/devq.h"
#include "serve.h"

#define QUEUE_SIZE_MIN  2u
#define RX_BUF_MIN      256u
#define RX_BUF_MAX      (1u << 20)
#define POLL_MAX_US     1000
#define CONNECT_WAIT_MS 10000

/* Pauses between attempts of rf_guest_open(). */
#define RETRY_MIN_NS (10 * RF_NS_PER_MS)
#define RETRY_MAX_NS (1 * RF_NS_PER_SEC)

void rf_guest_options_init(struct rf_guest_options *options)
{
	*options = (struct rf_guest_options){
		.size = sizeof(*options),
		.socket_fd = -1,
		.queue_size = 256,
		.rx_buf_bytes = 65536,
		.window_bytes = RF_VSOCK_WINDOW_DEFAULT,
		.connect_timeout_ms = CONNECT_WAIT_MS,
		.reconnect = 1,
		.log_level = RF_GUEST_LOG_INFO,
	};
}

/* One way to a back end, and a CID for the one that does not know it. */
static bool back_end_allowed(const struct rf_guest_options *options)
{
	bool path = options->socket_path && *options->socket_path;
	bool device = options->vhost_device && *options->vhost_device;

	return path + (options->socket_fd >= 0) + device == 1 &&
	       (device ? rf_vsock_cid_usable(options->guest_cid) : !options->guest_cid);
}

static bool options_allowed(const struct rf_guest_options *options)
{
	return back_end_allowed(options) && rf_is_power_of_2(options->queue_size) &&
	       options->queue_size >= QUEUE_SIZE_MIN && options->queue_size <= RF_RING_MAX_NUM &&
	       options->rx_buf_bytes >= RX_BUF_MIN && options->rx_buf_bytes <= RX_BUF_MAX &&
	       options->window_bytes >= RF_VSOCK_WINDOW_MIN &&
	       options->window_bytes <= RF_VSOCK_WINDOW_MAX && options->connect_timeout_ms >= -1 &&
	       options->log_level >= RF_GUEST_LOG_ERROR &&
	       options->log_level <= RF_GUEST_LOG_DEBUG && options->poll_us >= RF_POLL_AUTO &&
	       options->poll_us <= POLL_MAX_US && options->packet_bound >= RF_PACKETS_UNBOUNDED &&
	       options->packet_bound <= RF_PACKETS_RESET && options->credit >= RF_CREDIT_BATCHED &&
	       options->credit <= RF_CREDIT_LINUX;
}

static void log_sink(void *ctx, enum rf_log_level level, const char *name RF_UNUSED,
		     const char *line)
{
	const struct rf_guest *guest = ctx;

	guest->log_line(guest->log_ctx, (int)level, line);
}

static void log_init(struct rf_guest *guest, const struct rf_guest_options *options)
{
	_Static_assert((int)RF_VSOCK_TELL_EAGER == RF_CREDIT_EAGER, "the same order");
	_Static_assert((int)RF_VSOCK_TELL_LINUX == RF_CREDIT_LINUX, "the same order");
	_Static_assert((int)RF_LOG_ERROR == RF_GUEST_LOG_ERROR, "the same levels");
	_Static_assert((int)RF_LOG_DEBUG == RF_GUEST_LOG_DEBUG, "the same levels");

	guest->log_line = options->log;
	guest->log_ctx = options->log_ctx;
	guest->log = options->log ? &guest->to_program : NULL;
	guest->to_program = (struct rf_log){
		.level = (enum rf_log_level)options->log_level,
		.sink = log_sink,
		.ctx = guest,
	};
}

/* @tune has the last word. */
static int switches_init(struct rf_guest *guest, const struct rf_guest_options *options)
{
	struct rf_guest_switches *switches = &guest->switches;
	char wrong[RF_SWITCHES_WRONG_BYTES];
	int r;

	rf_switches_default(rf_guest_switch_defs, rf_guest_n_switches, switches);
	switches->credit = options->credit;
	r = rf_switches_parse(rf_guest_switch_defs, rf_guest_n_switches, switches, options->tune,
			      wrong);
	if (r < 0)
		rf_log(guest->log, RF_LOG_ERROR, "option tune: %s", wrong);
	return r;
}

static void guest_init(struct rf_guest *guest)
{
	uint64_t seed;

	if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != sizeof(seed))
		seed = rf_clock_now();
	rf_serve_rx_init(guest);
	pthread_mutex_init(&guest->table_mutex, NULL);
	pthread_mutex_init(&guest->attention_mutex, NULL);
	pthread_mutex_init(&guest->abort.mutex, NULL);
	guest->abort.fd = -1;
	TAILQ_INIT(&guest->attention);
	rf_sock_slots_init(&guest->slots);
	rf_vsock_table_init(&guest->conns, guest->buckets, RF_GUEST_CONN_BUCKETS, seed);
	rf_ports_init(&guest->ports, (uint32_t)(seed >> 32));
}

static void guest_free(struct rf_guest *guest)
{
	rf_serve_fini(guest);
	rf_serve_rx_fini(guest);
	rf_loop_free(guest->loop);
	rf_sock_slots_fini(&guest->slots);
	pthread_mutex_destroy(&guest->abort.mutex);
	pthread_mutex_destroy(&guest->attention_mutex);
	pthread_mutex_destroy(&guest->table_mutex);
	free(guest->device_options.path);
	rf_fd_close(guest->device_options.socket_fd);
	free(guest);
}

/* The back end's name for people, and where to find it if it has no descriptor. */
static const char *back_end_path(const struct rf_guest_options *options)
{
	if (options->guest_cid)
		return options->vhost_device;
	return options->socket_fd < 0 ? options->socket_path : "(given)";
}

/* Nothing to wait for at a descriptor, nor in the kernel. */
static bool one_try(const struct rf_guest_options *options)
{
	return options->socket_fd >= 0 || options->guest_cid;
}

static int guest_new(const struct rf_guest_options *options, struct rf_guest **ret_guest)
{
	struct rf_guest *guest = options_allowed(options) ? calloc(1, sizeof(*guest)) : NULL;
	int r;

	if (!guest) {
		rf_fd_close(options->socket_fd);
		return options_allowed(options) ? -ENOMEM : -EINVAL;
	}
	guest_init(guest);
	log_init(guest, options);
	guest->window = options->window_bytes;
	guest->packet_bound = options->packet_bound;
	guest->reconnect = options->reconnect && options->socket_fd < 0;
	guest->device_options = (struct rf_device_options){
		.path = strdup(back_end_path(options)),
		.socket_fd = options->socket_fd,
		.kernel_cid = options->guest_cid,
		.queue_size = options->queue_size,
		.rx_payload = options->rx_buf_bytes,
		.switches = &guest->switches,
		.log = guest->log,
	};
	r = switches_init(guest, options);
	if (r == 0)
		r = guest->device_options.path ? rf_loop_new(&guest->loop) : -ENOMEM;
	if (r == 0)
		r = rf_serve_rx_set_poll(guest, options->poll_us);
	if (r == 0)
		r = rf_serve_init(guest);
	if (r < 0) {
		guest_free(guest);
		return r;
	}
	*ret_guest = guest;
	return 0;
}

/* May another attempt end otherwise? The back end may not be up yet, or serve somebody else. */
static bool may_pass(int r)
{
	switch (r) {
	case -ENOENT:
	case -ECONNREFUSED:
	case -EAGAIN:
	case -EPROTO:
	case -ETIMEDOUT:
		return true;
	default:
		return false;
	}
}

static void sleep_ns(uint64_t ns)
{
	struct timespec pause = { (time_t)(ns / RF_NS_PER_SEC), (long)(ns % RF_NS_PER_SEC) };

	nanosleep(&pause, NULL);
}

/* The first attachment, as often as @wait_ms allows. */
static int attach(struct rf_guest *guest, int wait_ms)
{
	uint64_t end_ns = wait_ms < 0 ? UINT64_MAX : rf_clock_now() + wait_ms * RF_NS_PER_MS;
	uint64_t pause_ns = RETRY_MIN_NS;
	struct rf_device *device;
	uint64_t now_ns;
	int r;

	for (;;) {
		r = rf_device_attach(&guest->device_options, &guest->counters, &guest->abort,
				     &device);
		if (r == 0)
			return rf_serve_device(guest, device);
		now_ns = rf_clock_now();
		if (!may_pass(r) || now_ns >= end_ns)
			break;
		sleep_ns(rf_min_u64(pause_ns, end_ns - now_ns));
		pause_ns = rf_min_u64(2 * pause_ns, RETRY_MAX_NS);
	}
	/* Nobody answered; one who answered nonsense is worth telling apart. */
	if (wait_ms && may_pass(r) && r != -EPROTO)
		r = -ETIMEDOUT;
	return r;
}

static int start_thread(struct rf_guest *guest)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&guest->thread, NULL, rf_guest_run, guest);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -r;
}

int rf_guest_open(const struct rf_guest_options *options, struct rf_guest **ret_guest)
{
	struct rf_guest *guest;
	int r;

	if (options->size != sizeof(*options))
		return -EINVAL;
	r = guest_new(options, &guest);
	if (r < 0)
		return r;
	r = attach(guest, one_try(options) ? 0 : options->connect_timeout_ms);
	if (r == 0) {
		r = start_thread(guest);
		if (r < 0)
			rf_serve_detach(guest, NULL);
	}
	if (r < 0) {
		guest_free(guest);
		return r;
	}
	*ret_guest = guest;
	return 0;
}

/* Connections that still come in wait for a listener, and end with it. */
static void close_all(struct rf_guest *guest)
{
	for (uint32_t i = 0; i < RF_SOCK_SLOTS; i++) {
		struct rf_sock *sock = atomic_load(&guest->slots.all[i]);

		if (!sock)
			break;
		rf_close(guest, rf_sock_fd(sock));
	}
}

void rf_guest_close(struct rf_guest *guest)
{
	if (!guest)
		return;
	close_all(guest);
	atomic_store(&guest->closing, true);
	rf_device_abort(&guest->abort);
	rf_loop_wake(guest->loop);
	pthread_join(guest->thread, NULL);
	guest_free(guest);
}

uint32_t rf_guest_cid(struct rf_guest *guest)
{
	return atomic_load(&guest->cid);
}

/* What the memory that is shared with the back end takes at this moment. */
static json_int_t memory_bytes(struct rf_guest *guest)
{
	uint64_t bytes = 0;

	pthread_mutex_lock(&guest->table_mutex);
	if (guest->device)
		bytes = rf_guest_mem_resident(&guest->device->mem);
	pthread_mutex_unlock(&guest->table_mutex);
	return (json_int_t)bytes;
}

char *rf_guest_counters_json(struct rf_guest *guest)
{
	json_t *all =
		rf_counters_json(rf_guest_counter_defs, rf_guest_n_counters, &guest->counters);
	json_t *loop = rf_counters_json(rf_loop_counter_defs, rf_loop_n_counters,
					rf_loop_counters(guest->loop));
	json_t *switches =
		rf_switches_json(rf_guest_switch_defs, rf_guest_n_switches, &guest->switches);
	char *text = NULL;

	if (all && loop && json_object_update(all, loop) == 0 &&
	    json_object_set_new(all, "memory_bytes", json_integer(memory_bytes(guest))) == 0 &&
	    json_object_set(all, "switches", switches) == 0)
		text = json_dumps(all, JSON_COMPACT | JSON_PRESERVE_ORDER);
	json_decref(all);
	json_decref(loop);
	json_decref(switches);
	return text;
}
