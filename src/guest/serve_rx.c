/* SPDX-License-Identifier: BSD-3-Clause */
#include "serve_rx.h"

#include <errno.h>
#include <sys/timerfd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/probe.h"
#include "deliver.h"
#include "guest.h"
#include "serve.h"

/* Packets taken in one turn, before timers and other rings have theirs. */
#define BUDGET 256u
/* Of these, how many are taken before buffers in their place are published. */
#define BATCH 32u
/* Looks at the ring between looks at the clock. */
#define LOOKS_PER_CLOCK 8u

static void lock(struct rf_serve_rx *rx)
{
	if (pthread_mutex_trylock(&rx->mutex) == 0)
		return;
	/* Those who poll let it go, and take it again, all the time. */
	atomic_fetch_add(&rx->wanted, 1);
	pthread_mutex_lock(&rx->mutex);
	atomic_fetch_sub(&rx->wanted, 1);
}

static void publish(struct rf_guest *guest, struct rf_device *device)
{
	if (!rf_rx_publish(&device->rx))
		return;
	rf_count(&guest->counters.rx_kicks, 1);
	RF_PROBE(rx_kicks, device, RF_GUEST_RX);
	rf_eventfd_signal_peer(device->kick_fds[RF_GUEST_RX]);
}

static bool arm(struct rf_serve_rx *rx)
{
	/* What came already is not going to be notified. */
	rx->disarmed = rf_drvq_arm(rx->device->rx.q);
	return rx->disarmed;
}

static void send_resets(struct rf_guest *guest)
{
	struct rf_serve_rx *rx = &guest->rx;
	bool stalled = rx->stalled;

	if (rf_vsock_sched_has_control(&rx->resets))
		rx->todo |= rf_tx_resets(&rx->device->tx, &rx->resets);
	rx->stalled = !rf_vsock_sched_reset_room(&rx->resets);
	if (rx->stalled && !stalled)
		rf_count(&guest->counters.back_pressure, 1);
}

/*
 * Take up to a batch of packets, and no more while there is no place for an answer that may be
 * owed. Return: false if there are none left; the next one will notify, if @arms. Context: mutex
 * held; there is a device.
 */
static bool batch(struct rf_guest *guest, bool arms, unsigned *ret_packets)
{
	struct rf_serve_rx *rx = &guest->rx;
	struct rf_device *device = rx->device;
	bool more = !rx->stalled;
	unsigned packets = 0;

	for (unsigned n = 0; more && n < BATCH && rf_vsock_sched_reset_room(&rx->resets); n++) {
		uint32_t used;
		struct rf_chunk *chunk = rf_rx_get(&device->rx, &used);

		if (!chunk) {
			more = arms && arm(rx);
			continue;
		}
		rf_rx_refill(&device->rx, rf_deliver(guest, chunk, used) ? NULL : chunk);
		/* After its effect, so that who waits for the one finds the other. */
		rf_count(&guest->counters.rx_packets, 1);
		packets++;
	}
	publish(guest, device);
	send_resets(guest);
	*ret_packets = packets;
	return more && !rx->stalled;
}

/* The guest's thread. */

static bool broken(const struct rf_device *device)
{
	return rf_drvq_broken(device->rx.q) != RF_RING_NONE;
}

static void turn(struct rf_guest *guest, bool arms)
{
	struct rf_serve_rx *rx = &guest->rx;
	bool more = true, stalled = false, breaks = false;
	unsigned packets;

	for (unsigned n = 0; more && n < BUDGET; n += BATCH) {
		lock(rx);
		more = batch(guest, arms, &packets);
		stalled = rx->stalled;
		breaks = broken(rx->device);
		guest->todo |= rx->todo;
		rx->todo = 0;
		pthread_mutex_unlock(&rx->mutex);
	}
	/* What is there cannot be taken: to look for it would never end. */
	if (stalled)
		rf_idle_cancel(&rx->idle);
	if (breaks)
		rf_serve_broken(guest, guest->device->rx.q);
	else if (more)
		rf_work_queue(guest->loop, &rx->again);
	else if (!arms && !stalled && rf_loop_polling(guest->loop))
		rf_idle_queue(guest->loop, &rx->idle);
}

void rf_serve_rx_turn(struct rf_guest *guest)
{
	turn(guest, !rf_loop_polling(guest->loop));
}

static void again(struct rf_work *work)
{
	rf_serve_rx_turn(RF_CONTAINER_OF(work, struct rf_guest, rx.again));
}

/* Nobody else looks at the ring while the guest's thread polls. */
static bool idle_peek(struct rf_idle *idle)
{
	struct rf_guest *guest = RF_CONTAINER_OF(idle, struct rf_guest, rx.idle);
	struct rf_drvq *q = guest->device->rx.q;

	if (!guest->rx.disarmed) {
		guest->rx.disarmed = true;
		rf_drvq_disarm(q);
	}
	if (!rf_drvq_peek(q) && !broken(guest->device))
		return false;
	rf_work_queue(guest->loop, &guest->rx.again);
	return true;
}

static bool idle_arm(struct rf_idle *idle)
{
	struct rf_guest *guest = RF_CONTAINER_OF(idle, struct rf_guest, rx.idle);

	if (!arm(&guest->rx))
		return false;
	rf_work_queue(guest->loop, &guest->rx.again);
	return true;
}

/* The timer runs once: one that is not read would not run again by itself. */
static void start_grace(struct rf_serve_rx *rx)
{
	const struct itimerspec spec = { .it_value = { .tv_nsec = RF_SERVE_RX_GRACE_NS } };

	atomic_store(&rx->grace, timerfd_settime(rx->grace_fd, 0, &spec, NULL) == 0);
}

/* Each millisecond while callers poll, and once more. */
static void grace_over(struct rf_watch *watch, uint32_t events RF_UNUSED)
{
	struct rf_guest *guest = RF_CONTAINER_OF(watch, struct rf_guest, rx.grace_watch);
	struct rf_serve_rx *rx = &guest->rx;
	bool goes_on;

	lock(rx);
	goes_on = rx->polled && !atomic_load(&rx->n_asleep);
	rx->polled = false;
	atomic_store(&rx->grace, false);
	if (goes_on)
		start_grace(rx);
	goes_on = atomic_load(&rx->grace);
	rf_count(&guest->counters.rx_grace_ticks, 1);
	pthread_mutex_unlock(&rx->mutex);
	if (guest->device)
		turn(guest, !goes_on);
}

void rf_serve_rx_begin(struct rf_guest *guest, struct rf_device *device)
{
	struct rf_serve_rx *rx = &guest->rx;

	lock(rx);
	rf_vsock_sched_init(&rx->resets);
	rx->stalled = false;
	rx->disarmed = false;
	rx->device = device;
	pthread_mutex_unlock(&rx->mutex);
}

void rf_serve_rx_end(struct rf_guest *guest)
{
	struct rf_serve_rx *rx = &guest->rx;

	lock(rx);
	rx->device = NULL;
	rx->todo = 0;
	pthread_mutex_unlock(&rx->mutex);
	rf_work_cancel(&rx->again);
	rf_idle_cancel(&rx->idle);
}

void rf_serve_rx_room(struct rf_guest *guest)
{
	struct rf_serve_rx *rx = &guest->rx;
	bool goes_on;

	lock(rx);
	goes_on = rx->stalled;
	send_resets(guest);
	goes_on = goes_on && !rx->stalled;
	guest->todo |= rx->todo;
	rx->todo = 0;
	pthread_mutex_unlock(&rx->mutex);
	if (goes_on)
		rf_work_queue(guest->loop, &rx->again);
}

void rf_serve_rx_hold(struct rf_guest *guest)
{
	lock(&guest->rx);
}

void rf_serve_rx_go_on(struct rf_guest *guest)
{
	pthread_mutex_unlock(&guest->rx.mutex);
}

/* Callers. */

/* Let go of the mutex and do what is to be done then. */
static void unlock_as_caller(struct rf_guest *guest)
{
	struct rf_serve_rx *rx = &guest->rx;
	struct rf_device *device = rx->device;
	unsigned todo = rx->todo;
	bool breaks = device && broken(device);

	rx->todo = 0;
	if (!todo && !breaks) {
		pthread_mutex_unlock(&rx->mutex);
		return;
	}
	rf_device_ref(device);
	pthread_mutex_unlock(&rx->mutex);
	rf_guest_do(guest, device, todo);
	if (breaks)
		rf_eventfd_signal_peer(device->call_fds[RF_GUEST_RX]);
	rf_device_unref(device);
}

static void disarm(struct rf_serve_rx *rx)
{
	rx->polled = true;
	if (rx->disarmed)
		return;
	/* This thread may be kept from polling: only those who sleep could not help themselves. */
	if (atomic_load(&rx->n_asleep) && !atomic_load(&rx->grace))
		start_grace(rx);
	rx->disarmed = true;
	rf_drvq_disarm(rx->device->rx.q);
}

void rf_serve_rx_look(struct rf_guest *guest)
{
	struct rf_serve_rx *rx = &guest->rx;
	unsigned packets = 0;

	if (atomic_load_explicit(&rx->wanted, memory_order_relaxed) ||
	    pthread_mutex_trylock(&rx->mutex) != 0)
		return;
	if (rx->device && !rx->stalled) {
		disarm(rx);
		if (rf_drvq_peek(rx->device->rx.q))
			batch(guest, false, &packets);
		rf_count(&guest->counters.rx_polled_packets, packets);
	}
	unlock_as_caller(guest);
}

enum rf_polled rf_serve_rx_poll(struct rf_guest *guest, const atomic_uint *word, unsigned seen,
				uint64_t until_ns)
{
	bool learns = guest->rx.poll_ns == RF_SERVE_RX_AUTO, cut = false;
	uint64_t last_ns = learns ? rf_clock_now() : 0, now_ns;
	unsigned n;

	for (n = 0; atomic_load_explicit(word, memory_order_acquire) == seen; n++) {
		if (n % LOOKS_PER_CLOCK == LOOKS_PER_CLOCK - 1) {
			now_ns = rf_clock_now();
			if (now_ns >= until_ns)
				return RF_POLLED_NOTHING;
			cut |= now_ns - last_ns > RF_POLL_AUTO_CUT_NS;
			last_ns = now_ns;
		}
		rf_serve_rx_look(guest);
		rf_cpu_relax();
	}
	if (n <= 1)
		return RF_POLLED_AT_ONCE;
	if (learns && (cut || rf_clock_now() - last_ns > RF_POLL_AUTO_CUT_NS))
		return RF_POLLED_CUT;
	return RF_POLLED_CHANGE;
}

/* Arm the ring, unless it is; what came before that is taken. */
static void arm_as_caller(struct rf_guest *guest)
{
	struct rf_serve_rx *rx = &guest->rx;
	bool more = true;
	unsigned packets;

	for (unsigned n = 0; more; n += BATCH) {
		lock(rx);
		more = rx->device && rx->disarmed && !rx->stalled;
		if (more && n < BUDGET) {
			more = batch(guest, true, &packets);
			rf_count(&guest->counters.rx_polled_packets, packets);
		} else if (more) {
			/* A back end that is faster than this: the thread's turn has a budget. */
			rf_eventfd_signal_peer(rx->device->call_fds[RF_GUEST_RX]);
			more = false;
		}
		unlock_as_caller(guest);
	}
}

/*
 * Have the guest's thread look after the ring. If the timer runs, it has not expired since this
 * thread polled, or runs on because of that. Return: false if it cannot.
 */
static bool leave_to_thread(struct rf_serve_rx *rx)
{
	bool runs = atomic_load(&rx->grace);

	if (runs)
		return true;
	lock(rx);
	if (rx->disarmed && !atomic_load(&rx->grace))
		start_grace(rx);
	runs = !rx->disarmed || atomic_load(&rx->grace);
	pthread_mutex_unlock(&rx->mutex);
	return runs;
}

void rf_serve_rx_leave(struct rf_guest *guest)
{
	struct rf_serve_rx *rx = &guest->rx;

	if (!rf_serve_rx_polled(rx))
		return;
	if (atomic_load(&rx->n_asleep) || !leave_to_thread(rx))
		arm_as_caller(guest);
}

void rf_serve_rx_relied_on(struct rf_guest *guest)
{
	atomic_fetch_add(&guest->rx.n_asleep, 1);
}

void rf_serve_rx_doze(struct rf_guest *guest)
{
	rf_serve_rx_relied_on(guest);
	arm_as_caller(guest);
}

void rf_serve_rx_rouse(struct rf_guest *guest)
{
	atomic_fetch_sub(&guest->rx.n_asleep, 1);
}

void rf_serve_rx_init(struct rf_guest *guest)
{
	struct rf_serve_rx *rx = &guest->rx;

	pthread_mutex_init(&rx->mutex, NULL);
	rf_poll_auto_init(&rx->poll_auto);
	rx->again.run = again;
	rx->idle.peek = idle_peek;
	rx->idle.arm = idle_arm;
	rx->grace_watch.ready = grace_over;
	rx->grace_fd = -1;
}

int rf_serve_rx_set_poll(struct rf_guest *guest, int poll_us)
{
	struct rf_serve_rx *rx = &guest->rx;

	if (!poll_us)
		return 0;
	if (guest->switches.poll_by == RF_GUEST_POLL_BY_WORKER) {
		rf_loop_set_poll(guest->loop, poll_us < 0 ? RF_LOOP_POLL_AUTO : (uint32_t)poll_us);
		return 0;
	}
	rx->grace_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (rx->grace_fd < 0)
		return -errno;
	rx->poll_ns = poll_us < 0 ? RF_SERVE_RX_AUTO : (uint64_t)poll_us * RF_NS_PER_US;
	/* Edge-triggered, it need not be read. */
	return rf_watch_add(guest->loop, &rx->grace_watch, rx->grace_fd, EPOLLIN | EPOLLET);
}

void rf_serve_rx_fini(struct rf_guest *guest)
{
	rf_watch_remove(&guest->rx.grace_watch);
	rf_fd_close(guest->rx.grace_fd);
	pthread_mutex_destroy(&guest->rx.mutex);
}
