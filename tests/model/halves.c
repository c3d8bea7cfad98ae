/* SPDX-License-Identifier: BSD-3-Clause */
#include "halves.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "base/clock.h"
#include "guest.h"
#include "model_run.h"

#define CID      7u
#define START_NS (1000 * RF_NS_PER_SEC)
/* Of real time. */
#define PATIENCE_S 20u

/* The guest's thread waits for @go before each turn and says when it was @done. */
static sem_t go, done;
static atomic_bool free_run;
static const struct rf_loop *host_loop;
static _Atomic uint64_t now_ns = START_NS;
static int sndbuf;
static bool in_host_turn;

uint64_t __wrap_rf_clock_now(void);
int __real_rf_loop_turn(struct rf_loop *loop, int timeout_ms);
int __wrap_rf_loop_turn(struct rf_loop *loop, int timeout_ms);
ssize_t __real_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __real_recvmsg(int fd, struct msghdr *msg, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags);
int __real_setsockopt(int fd, int level, int name, const void *value, socklen_t len);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t len);

uint64_t __wrap_rf_clock_now(void)
{
	return now_ns;
}

int __wrap_rf_loop_turn(struct rf_loop *loop, int timeout_ms)
{
	if (loop == host_loop)
		return __real_rf_loop_turn(loop, timeout_ms);
	if (!free_run) {
		sem_post(&done);
		while (sem_wait(&go) < 0)
			;
	}
	return __real_rf_loop_turn(loop, 0);
}

void (*halves_meanwhile)(void);

ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	if (in_host_turn && halves_meanwhile)
		halves_meanwhile();
	return __real_sendmsg(fd, msg, flags);
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *msg, int flags)
{
	if (in_host_turn && halves_meanwhile)
		halves_meanwhile();
	return __real_recvmsg(fd, msg, flags);
}

/* Small send buffers of host programs' sockets: what does not fit has to wait in the device. */
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	if (level == SOL_SOCKET && name == SO_SNDBUF)
		value = &sndbuf;
	return __real_setsockopt(fd, level, name, value, len);
}

uint64_t halves_now(void)
{
	return now_ns;
}

void halves_pass_time(uint64_t ns)
{
	now_ns += ns;
}

static void wait_for_guest(void)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += PATIENCE_S;
	MODEL_CHECK(sem_timedwait(&done, &until) == 0);
}

/* The guest's thread attaches within a turn, for which the host has to answer. */
static void serve_attaching(struct halves *h)
{
	for (unsigned ms = 0; sem_trywait(&done) < 0; ms++) {
		struct pollfd pfd = { .fd = rf_loop_fd(h->loop), .events = POLLIN };

		MODEL_CHECK(ms < PATIENCE_S * 1000);
		if (poll(&pfd, 1, 1) > 0)
			rf_loop_turn(h->loop, 0);
	}
}

/* Would a loop that sleeps wake up? */
static bool ready(const struct rf_loop *loop)
{
	struct pollfd pfd = { .fd = rf_loop_fd(loop), .events = POLLIN };

	return rf_loop_deadline(loop) <= now_ns || poll(&pfd, 1, 0) > 0;
}

bool halves_turn(struct halves *h, unsigned side)
{
	if (!ready(side == 0 ? h->loop : h->guest->loop))
		return false;
	if (side == 0) {
		in_host_turn = true;
		rf_loop_turn(h->loop, 0);
		in_host_turn = false;
		return true;
	}
	sem_post(&go);
	if (rf_guest_cid(h->guest))
		wait_for_guest();
	else
		serve_attaching(h);
	return true;
}

struct opening {
	struct rf_guest_options options;
	struct rf_guest *guest;
	int result;
};

static void *open_guest(void *arg)
{
	struct opening *o = arg;

	o->result = rf_guest_open(&o->options, &o->guest);
	return NULL;
}

void halves_open(struct halves *h, uint32_t window, uint32_t queue_size, uint32_t rx_buf_bytes,
		 int sndbuf_bytes, int credit)
{
	struct opening opening;
	pthread_t opener;

	*h = (struct halves){ 0 };
	sndbuf = sndbuf_bytes;
	now_ns = START_NS;
	sem_init(&go, 0, 0);
	sem_init(&done, 0, 0);
	free_run = false;
	strcpy(h->dir, "/tmp/rf-model-XXXXXX");
	MODEL_CHECK(mkdtemp(h->dir));
	snprintf(h->front, sizeof(h->front), "%s/front", h->dir);
	snprintf(h->uds, sizeof(h->uds), "%s/uds", h->dir);
	MODEL_CHECK(rf_loop_new(&h->loop) == 0);
	host_loop = h->loop;
	rf_vsock_device_options_init(&h->options);
	h->options.guest_cid = CID;
	h->options.socket_path = h->front;
	h->options.plug_path = h->uds;
	h->options.window = window;
	h->options.switches.credit = credit;
	MODEL_CHECK(rf_vsock_device_new(h->loop, &h->options, &h->device) == 0);
	rf_guest_options_init(&opening.options);
	opening.options.socket_path = h->front;
	opening.options.queue_size = queue_size;
	opening.options.rx_buf_bytes = rx_buf_bytes;
	MODEL_CHECK(pthread_create(&opener, NULL, open_guest, &opening) == 0);
	serve_attaching(h);
	pthread_join(opener, NULL);
	MODEL_CHECK(opening.result == 0);
	h->guest = opening.guest;
}

void halves_close(struct halves *h)
{
	free_run = true;
	sem_post(&go);
	rf_guest_close(h->guest);
	rf_vsock_device_free(h->device);
	rf_loop_free(h->loop);
	sem_destroy(&go);
	sem_destroy(&done);
	MODEL_CHECK(rmdir(h->dir) == 0);
}

void halves_restart(struct halves *h)
{
	rf_vsock_device_free(h->device);
	MODEL_CHECK(rf_vsock_device_new(h->loop, &h->options, &h->device) == 0);
	for (unsigned i = 0; i < 200 && (i < 4 || !rf_guest_cid(h->guest)); i++) {
		halves_turn(h, 1);
		halves_turn(h, 0);
		halves_pass_time(10 * RF_NS_PER_MS);
	}
	MODEL_CHECK(rf_guest_cid(h->guest) == CID);
}

unsigned halves_connections(const struct halves *h, unsigned side)
{
	unsigned n;
	json_t *json;

	if (side == 1)
		return h->guest->conns.n_conns;
	json = rf_vsock_device_json(h->device);
	n = (unsigned)json_integer_value(json_object_get(json, "connections"));
	json_decref(json);
	return n;
}

unsigned halves_disorderly(const struct halves *h)
{
	json_t *json = rf_vsock_device_json(h->device), *value;
	const char *reason;
	unsigned n = 0;

	json_object_foreach(json_object_get(json, "ended"), reason,
			    value) if (strcmp(reason, "closed") != 0) n +=
		(unsigned)json_integer_value(value);
	json_decref(json);
	return n;
}

static int new_socket(struct sockaddr_un *ret_addr, const char *path)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	MODEL_CHECK(fd >= 0 && strlen(path) < sizeof(ret_addr->sun_path));
	*ret_addr = (struct sockaddr_un){ .sun_family = AF_UNIX };
	strcpy(ret_addr->sun_path, path);
	return fd;
}

int halves_listen(const struct halves *h, uint32_t port)
{
	struct sockaddr_un addr;
	char path[80];
	int fd;

	snprintf(path, sizeof(path), "%s_%u", h->uds, port);
	unlink(path);
	fd = new_socket(&addr, path);
	MODEL_CHECK(bind(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
	MODEL_CHECK(listen(fd, 4) == 0);
	return fd;
}

void halves_unlisten(const struct halves *h, uint32_t port, int fd)
{
	char path[80];

	snprintf(path, sizeof(path), "%s_%u", h->uds, port);
	unlink(path);
	close(fd);
}

int halves_ask(const struct halves *h, uint32_t port)
{
	struct sockaddr_un addr;
	int fd = new_socket(&addr, h->uds);

	MODEL_CHECK(connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0);
	MODEL_CHECK(dprintf(fd, "CONNECT %u\n", port) > 0);
	return fd;
}
