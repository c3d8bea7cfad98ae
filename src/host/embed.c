/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ringferry/host.h: devices on a loop of one's own.
 *
 * DOC: Theory of operation. One thread at a time holds the host: the one whose turn of the loop it
 * is, or one that adds or removes a device. Who wants it while a turn goes on is counted in
 * @waiting and wakes the loop; the next turn does not begin before all of them were served. A
 * thread that holds the host may call in again from a callback. What is told of a connection does
 * not wait: its device is put on @told, and has a turn in the same or the next rf_host_dispatch().
 *
 * A device that is removed from a callback of one of its connections is in use further up the
 * stack: it is muted, and removed when the host is released.
 */
#include "ringferry/host.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/timerfd.h>

#include "base/fd.h"
#include "base/loop.h"
#include "embed_device.h"
#include "embed_options.h"

/**
 * struct rf_host - A host
 * @loop:	Loop
 * @log:	Log of all devices, which goes on to @log_line
 * @log_line, @log_ctx: The program's
 * @stop:	rf_host_run() is to return
 * @mutex:	Protects @held, @holder, @waiting, @nested and @told
 * @released:	@held or @waiting went down
 * @held:	A thread holds the host
 * @holder:	Which
 * @nested:	Calls of it that go on inside of callbacks
 * @waiting:	Threads that wait for it, turns not counted
 * @told:	Devices of which another thread has told something, by @told_link
 * @any_told:	There are some
 * @logging:	@log_line is being called
 * @timer_fd:	timerfd that tells rf_host_fd()'s user of what is no event; -1 before
 * @timer_ns:	What it is set to, as rf_loop_deadline() gives it
 * @timer:	Its watch
 * @devices:	Devices
 * @doomed:	Devices to be removed when the host is released
 */
struct rf_host {
	struct rf_loop *loop;
	struct rf_log log;
	void (*log_line)(void *ctx, int level, const char *device, const char *line);
	void *log_ctx;
	atomic_bool stop;
	pthread_mutex_t mutex;
	pthread_cond_t released;
	bool held;
	pthread_t holder;
	unsigned nested, waiting;
	bool logging;
	int timer_fd;
	uint64_t timer_ns;
	struct rf_watch timer;
	LIST_HEAD(, rf_host_device) told;
	atomic_bool any_told;
	TAILQ_HEAD(devices, rf_host_device) devices, doomed;
};

/**
 * struct rf_host_device - A device of a host
 * @host:	Its host
 * @link:	In host->devices or host->doomed
 * @told, @told_link: It is in host->told
 * @vsock:	What is served
 * @plug:	Its plug of the program's own connections
 * @left, @left_ctx: The program's
 */
struct rf_host_device {
	struct rf_host *host;
	TAILQ_ENTRY(rf_host_device) link;
	LIST_ENTRY(rf_host_device) told_link;
	bool told;
	struct rf_vsock_device *vsock;
	struct rf_vsock_plug *plug;
	void (*left)(void *ctx, struct rf_host_device *device, int orderly);
	void *left_ctx;
};

static bool holds(const struct rf_host *host)
{
	return host->held && pthread_equal(host->holder, pthread_self());
}

static void wait_and_hold(struct rf_host *host, bool turn)
{
	while (host->held || (turn && host->waiting))
		pthread_cond_wait(&host->released, &host->mutex);
	host->held = true;
	host->holder = pthread_self();
}

/* Return: 0, or -EBUSY from the log callback. */
static int hold(struct rf_host *host)
{
	int r = 0;

	pthread_mutex_lock(&host->mutex);
	if (holds(host)) {
		r = host->logging ? -EBUSY : 0;
		host->nested += r == 0;
	} else {
		host->waiting++;
		if (host->held)
			rf_loop_wake(host->loop);
		wait_and_hold(host, false);
		host->waiting--;
	}
	pthread_mutex_unlock(&host->mutex);
	return r;
}

/* Return: 0, or -EBUSY from a callback. */
static int hold_turn(struct rf_host *host)
{
	int r = 0;

	pthread_mutex_lock(&host->mutex);
	if (holds(host))
		r = -EBUSY;
	else
		wait_and_hold(host, true);
	pthread_mutex_unlock(&host->mutex);
	return r;
}

/* Who watches rf_host_fd() is also to come for timers and work, of which epoll knows nothing. */
static void set_timer(struct rf_host *host)
{
	/* What another thread told during the turn's last look is to be heard with the next one. */
	uint64_t ns = atomic_load(&host->any_told) ? 0 : rf_loop_deadline(host->loop);
	struct itimerspec when = { 0 };

	if (host->timer_fd < 0 || ns == host->timer_ns)
		return;
	host->timer_ns = ns;
	/* A moment of 0 would stop the timer. */
	if (ns != UINT64_MAX) {
		when.it_value.tv_sec = (time_t)(ns / RF_NS_PER_SEC);
		when.it_value.tv_nsec = ns ? (long)(ns % RF_NS_PER_SEC) : 1;
	}
	(void)timerfd_settime(host->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

/* It is in host->devices or host->doomed no more. */
static void free_device(struct rf_host_device *device)
{
	struct rf_host *host = device->host;

	pthread_mutex_lock(&host->mutex);
	if (device->told)
		LIST_REMOVE(device, told_link);
	device->told = true;
	pthread_mutex_unlock(&host->mutex);
	rf_embed_mute(device->plug);
	rf_vsock_device_free(device->vsock);
	free(device);
}

static void release(struct rf_host *host)
{
	struct rf_host_device *device;

	/* Only the thread that holds the host changes this. */
	while (!host->nested && (device = TAILQ_FIRST(&host->doomed))) {
		TAILQ_REMOVE(&host->doomed, device, link);
		free_device(device);
	}
	pthread_mutex_lock(&host->mutex);
	if (host->nested) {
		host->nested--;
	} else {
		set_timer(host);
		host->held = false;
		pthread_cond_broadcast(&host->released);
	}
	pthread_mutex_unlock(&host->mutex);
}

static void log_sink(void *ctx, enum rf_log_level level, const char *name, const char *line)
{
	struct rf_host *host = ctx;

	host->logging = true;
	host->log_line(host->log_ctx, (int)level, name, line);
	host->logging = false;
}

void rf_host_options_init(struct rf_host_options *options)
{
	*options = (struct rf_host_options){
		.size = sizeof(*options),
		.log_level = RF_HOST_LOG_INFO,
	};
}

static void set_poll(struct rf_loop *loop, int poll_us)
{
	if (poll_us == RF_HOST_POLL_AUTO)
		rf_loop_set_poll(loop, RF_LOOP_POLL_AUTO);
	else if (poll_us == RF_HOST_POLL_BUSY)
		rf_loop_set_poll(loop, RF_LOOP_POLL_BUSY);
	else
		rf_loop_set_poll(loop, (uint32_t)poll_us);
}

static int host_init(struct rf_host *host, const struct rf_host_options *options)
{
	int r;

	_Static_assert((int)RF_LOG_ERROR == RF_HOST_LOG_ERROR, "the same levels");
	_Static_assert((int)RF_LOG_DEBUG == RF_HOST_LOG_DEBUG, "the same levels");

	pthread_mutex_init(&host->mutex, NULL);
	pthread_cond_init(&host->released, NULL);
	host->timer_fd = -1;
	host->timer_ns = UINT64_MAX;
	LIST_INIT(&host->told);
	TAILQ_INIT(&host->devices);
	TAILQ_INIT(&host->doomed);
	host->log_line = options->log;
	host->log_ctx = options->log_ctx;
	host->log = (struct rf_log){
		.level = (enum rf_log_level)options->log_level,
		.sink = log_sink,
		.ctx = host,
	};
	r = rf_loop_new(&host->loop);
	if (r == 0)
		set_poll(host->loop, options->poll_us);
	return r;
}

int rf_host_new(const struct rf_host_options *options, struct rf_host **ret_host)
{
	struct rf_host_options defaults;
	struct rf_host *host;
	int r;

	rf_host_options_init(&defaults);
	if (!options)
		options = &defaults;
	if (options->size != sizeof(*options) || options->log_level < RF_HOST_LOG_ERROR ||
	    options->log_level > RF_HOST_LOG_DEBUG || options->poll_us < RF_HOST_POLL_BUSY ||
	    options->poll_us > (int)RF_LOOP_POLL_MAX_US)
		return -EINVAL;
	host = calloc(1, sizeof(*host));
	if (!host)
		return -ENOMEM;
	r = host_init(host, options);
	if (r < 0) {
		rf_host_free(host);
		return r;
	}
	*ret_host = host;
	return 0;
}

void rf_host_free(struct rf_host *host)
{
	struct rf_host_device *device;
	int r;

	if (!host)
		return;
	r = hold_turn(host);
	assert(r == 0);
	while ((device = TAILQ_FIRST(&host->devices))) {
		TAILQ_REMOVE(&host->devices, device, link);
		free_device(device);
	}
	assert(TAILQ_EMPTY(&host->doomed));
	rf_watch_remove(&host->timer);
	rf_fd_close(host->timer_fd);
	rf_loop_free(host->loop);
	pthread_cond_destroy(&host->released);
	pthread_mutex_destroy(&host->mutex);
	free(host);
}

static void vsock_left(void *ctx, bool orderly)
{
	struct rf_host_device *device = ctx;

	if (device->left)
		device->left(device->left_ctx, device, orderly);
}

static const struct rf_log *log_of(const struct rf_host *host)
{
	return host->log_line ? &host->log : NULL;
}

static int add_vsock(struct rf_host *host, const struct rf_host_vsock_options *options,
		     struct rf_host_device **ret_device)
{
	struct rf_host_device *device = calloc(1, sizeof(*device));
	struct rf_vsock_device_options vsock;
	char name[RF_EMBED_NAME_BYTES];
	int r = device ? 0 : -ENOMEM;

	if (r == 0)
		r = rf_embed_options(options, log_of(host), name, &vsock);
	if (r < 0) {
		rf_fd_close(options->socket_fd);
		free(device);
		return r;
	}
	device->host = host;
	device->left = options->left;
	device->left_ctx = options->left_ctx;
	vsock.left = vsock_left;
	vsock.ctx = device;
	r = rf_vsock_device_new(host->loop, &vsock, &device->vsock);
	if (r < 0) {
		free(device);
		return r;
	}
	device->plug = rf_vsock_device_plug(device->vsock, &rf_vsock_plug_embed);
	rf_embed_set_ctx(device->plug, device);
	TAILQ_INSERT_TAIL(&host->devices, device, link);
	*ret_device = device;
	return 0;
}

int rf_host_add_vsock(struct rf_host *host, const struct rf_host_vsock_options *options,
		      struct rf_host_device **ret_device)
{
	/* Of other options nothing is known, socket_fd included. */
	bool known = options->size == sizeof(*options);
	int r = hold(host);

	if (r < 0) {
		if (known)
			rf_fd_close(options->socket_fd);
		return r;
	}
	if (known) {
		r = add_vsock(host, options, ret_device);
	} else {
		rf_log(log_of(host), RF_LOG_ERROR,
		       "option size: not as rf_host_vsock_options_init() sets it");
		r = -EINVAL;
	}
	release(host);
	return r;
}

int rf_host_remove(struct rf_host_device *device)
{
	struct rf_host *host = device->host;
	int r = hold(host);

	if (r < 0)
		return r;
	TAILQ_REMOVE(&host->devices, device, link);
	if (rf_embed_calling(device->plug)) {
		rf_embed_mute(device->plug);
		device->left = NULL;
		TAILQ_INSERT_TAIL(&host->doomed, device, link);
	} else {
		free_device(device);
	}
	release(host);
	return 0;
}

int rf_embed_hold(struct rf_host_device *device)
{
	return hold(device->host);
}

void rf_embed_release(struct rf_host_device *device)
{
	release(device->host);
}

struct rf_vsock_plug *rf_embed_plug(const struct rf_host_device *device)
{
	return device->plug;
}

void rf_embed_kick(struct rf_host_device *device)
{
	struct rf_host *host = device->host;

	pthread_mutex_lock(&host->mutex);
	if (!host->held || holds(host)) {
		rf_embed_wake(device->plug);
		if (!host->held)
			set_timer(host);
	} else if (!device->told) {
		device->told = true;
		LIST_INSERT_HEAD(&host->told, device, told_link);
		atomic_store(&host->any_told, true);
		rf_loop_wake(host->loop);
	}
	pthread_mutex_unlock(&host->mutex);
}

/* Queue the turns of devices of which something was told. Return: true if there was one. */
static bool hear(struct rf_host *host)
{
	struct rf_host_device *device;

	if (!atomic_exchange(&host->any_told, false))
		return false;
	pthread_mutex_lock(&host->mutex);
	while ((device = LIST_FIRST(&host->told))) {
		LIST_REMOVE(device, told_link);
		device->told = false;
		rf_embed_wake(device->plug);
	}
	pthread_mutex_unlock(&host->mutex);
	return true;
}

int rf_host_dispatch(struct rf_host *host, int timeout_ms)
{
	int r;

	if (timeout_ms < -1)
		return -EINVAL;
	r = hold_turn(host);
	if (r < 0)
		return r;
	(void)hear(host);
	r = rf_loop_turn(host->loop, timeout_ms);
	/* What woke the loop is to be served by this call. There is work now: nothing waits. */
	if (r == 0 && hear(host))
		r = rf_loop_turn(host->loop, timeout_ms);
	release(host);
	return r;
}

int rf_host_run(struct rf_host *host)
{
	int r = 0;

	while (r == 0 && !atomic_exchange(&host->stop, false))
		r = rf_host_dispatch(host, -1);
	return r;
}

void rf_host_stop(struct rf_host *host)
{
	atomic_store(&host->stop, true);
	rf_loop_wake(host->loop);
}

/* It stays readable until it is set anew, which the end of each turn does. */
static void timer_ready(struct rf_watch *watch RF_UNUSED, uint32_t events RF_UNUSED)
{
}

static int open_timer(struct rf_host *host)
{
	RF_AUTO_FD int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	int r;

	if (fd < 0)
		return -errno;
	host->timer.ready = timer_ready;
	r = rf_watch_add(host->loop, &host->timer, fd, EPOLLIN);
	if (r == 0)
		host->timer_fd = rf_fd_steal(&fd);
	return r;
}

int rf_host_fd(struct rf_host *host)
{
	int r = hold(host);

	if (r < 0)
		return r;
	if (host->timer_fd < 0)
		r = open_timer(host);
	release(host);
	return r < 0 ? r : rf_loop_fd(host->loop);
}

static json_t *counters(const struct rf_host *host)
{
	json_t *devices = json_array();
	const struct rf_host_device *device;

	TAILQ_FOREACH (device, &host->devices, link) {
		if (json_array_append_new(devices, rf_vsock_device_json(device->vsock)) < 0) {
			json_decref(devices);
			return NULL;
		}
	}
	return json_pack("{s:o*, s:o}", "loop",
			 rf_counters_json(rf_loop_counter_defs, rf_loop_n_counters,
					  rf_loop_counters(host->loop)),
			 "devices", devices);
}

char *rf_host_counters_json(struct rf_host *host)
{
	json_t *json;
	char *text;

	if (hold(host) < 0)
		return NULL;
	json = counters(host);
	release(host);
	text = json ? json_dumps(json, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
	json_decref(json);
	return text;
}
