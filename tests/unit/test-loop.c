/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fd.h"

/* What the callbacks of one test did, in order, one letter each. */
static char journal[64];

static void note(char what)
{
	size_t len = strlen(journal);

	assert_true(len < sizeof(journal) - 1);
	journal[len] = what;
	journal[len + 1] = '\0';
}

static void assert_journal(const char *expected)
{
	assert_string_equal(journal, expected);
	journal[0] = '\0';
}

/* A descriptor, a timer and work with one owner; @act is what its callbacks do. */
struct owner {
	struct rf_watch watch;
	struct rf_timer timer;
	struct rf_work work;
	struct rf_loop *loop;
	int fd;
	char name;
	void (*act)(struct owner *o);
	struct owner *other;
	uint32_t events;
};

static void act(struct owner *o)
{
	note(o->name);
	if (o->act)
		o->act(o);
}

static void on_ready(struct rf_watch *watch, uint32_t events)
{
	struct owner *o = RF_CONTAINER_OF(watch, struct owner, watch);

	o->events = events;
	rf_eventfd_drain(o->fd);
	act(o);
}

static void on_expired(struct rf_timer *timer)
{
	act(RF_CONTAINER_OF(timer, struct owner, timer));
}

static void on_work(struct rf_work *work)
{
	act(RF_CONTAINER_OF(work, struct owner, work));
}

static struct owner *owner_new(struct rf_loop *loop, char name, void (*what)(struct owner *o))
{
	struct owner *o = calloc(1, sizeof(*o));

	assert_non_null(o);
	o->watch.ready = on_ready;
	o->timer.expired = on_expired;
	o->work.run = on_work;
	o->loop = loop;
	o->name = name;
	o->act = what;
	o->fd = rf_eventfd_new();
	assert_true(o->fd >= 0);
	return o;
}

static void owner_free(struct owner *o)
{
	rf_watch_remove(&o->watch);
	rf_timer_stop(&o->timer);
	rf_work_cancel(&o->work);
	rf_fd_close(o->fd);
	free(o);
}

static struct owner *watching(struct rf_loop *loop, char name, void (*what)(struct owner *o))
{
	struct owner *o = owner_new(loop, name, what);

	assert_int_equal(rf_watch_add(loop, &o->watch, o->fd, EPOLLIN), 0);
	assert_true(rf_watch_active(&o->watch));
	return o;
}

static int setup(void **state)
{
	struct rf_loop *loop;

	journal[0] = '\0';
	if (rf_loop_new(&loop) < 0)
		return -1;
	*state = loop;
	return 0;
}

static int teardown(void **state)
{
	rf_loop_free(*state);
	return 0;
}

static void turn(struct rf_loop *loop)
{
	assert_int_equal(rf_loop_turn(loop, 0), 0);
}

static void quit(struct owner *o)
{
	rf_loop_quit(o->loop);
}

static void test_watch(void **state)
{
	struct rf_loop *loop = *state;
	struct owner *o = watching(loop, 'a', NULL);

	turn(loop);
	assert_journal("");
	rf_eventfd_signal(o->fd);
	turn(loop);
	turn(loop);
	assert_journal("a");
	assert_int_equal(o->events, EPOLLIN);
	/* The same descriptor cannot be watched twice, and a watch that failed is not active. */
	o->other = owner_new(loop, 'b', NULL);
	assert_int_equal(rf_watch_add(loop, &o->other->watch, o->fd, EPOLLIN), -EEXIST);
	assert_int_equal(rf_watch_add(loop, &o->other->watch, -1, EPOLLIN), -EBADF);
	assert_false(rf_watch_active(&o->other->watch));
	owner_free(o->other);

	rf_watch_remove(&o->watch);
	assert_false(rf_watch_active(&o->watch));
	rf_eventfd_signal(o->fd);
	turn(loop);
	assert_journal("");
	assert_int_equal(rf_counter_read(&rf_loop_counters(loop)->loop_events), 1);
	owner_free(o);
}

static void test_watch_set(void **state)
{
	struct rf_loop *loop = *state;
	struct owner *o = watching(loop, 'a', NULL);

	rf_eventfd_signal(o->fd);
	assert_int_equal(rf_watch_set(&o->watch, 0), 0);
	turn(loop);
	assert_journal("");
	assert_int_equal(rf_watch_set(&o->watch, EPOLLOUT), 0);
	turn(loop);
	assert_journal("a");
	assert_int_equal(o->events, EPOLLOUT);
	/* No system call for the same events: the descriptor is not even looked at. */
	o->watch.fd = -1;
	assert_int_equal(rf_watch_set(&o->watch, EPOLLOUT), 0);
	assert_int_equal(rf_watch_set(&o->watch, EPOLLIN), -EBADF);
	assert_int_equal(o->watch.events, EPOLLOUT);
	o->watch.fd = o->fd;
	owner_free(o);
}

/* Edge-triggered: what was reported once is not reported again. */
static void test_edge(void **state)
{
	struct rf_loop *loop = *state;
	struct owner *o = owner_new(loop, 'a', NULL);
	int pair[2];

	assert_int_equal(pipe2(pair, O_CLOEXEC | O_NONBLOCK), 0);
	assert_int_equal(rf_watch_add(loop, &o->watch, pair[0], EPOLLIN | EPOLLET), 0);
	assert_int_equal(write(pair[1], "x", 1), 1);
	turn(loop);
	turn(loop);
	assert_journal("a");
	rf_fd_close(pair[1]);
	turn(loop);
	turn(loop);
	assert_journal("a");
	assert_int_equal(o->events, EPOLLIN | EPOLLHUP);
	owner_free(o);
	rf_fd_close(pair[0]);
}

static void remove_other(struct owner *o)
{
	rf_watch_remove(&o->other->watch);
}

static void free_other(struct owner *o)
{
	if (o->other)
		owner_free(o->other);
	o->other = NULL;
}

/*
 * Free the other owner, whose event was collected in the same batch, and put a new one in its
 * place: same descriptor number, and most likely the same memory.
 */
static void replace_other(struct owner *o)
{
	int fd = o->other->fd;

	owner_free(o->other);
	o->other = watching(o->loop, 'n', NULL);
	assert_int_equal(o->other->fd, fd);
	o->act = NULL;
}

static void readd_other(struct owner *o)
{
	rf_watch_remove(&o->other->watch);
	rf_eventfd_drain(o->other->fd);
	assert_int_equal(rf_watch_add(o->loop, &o->other->watch, o->other->fd, EPOLLIN), 0);
}

static void mute_other(struct owner *o)
{
	assert_int_equal(rf_watch_set(&o->other->watch, 0), 0);
}

/* An event that was collected for a watch is not delivered when a callback before it ... */
static void test_stale_events(void **state)
{
	static const struct {
		void (*what)(struct owner *o);
		const char *why;
	} rows[] = {
		/* 0 */ { remove_other, "removed the watch" },
		/* 1 */ { free_other, "freed its owner" },
		/* 2 */ { replace_other, "freed its owner and registered another one" },
		/* 3 */ { readd_other, "removed it and added it again" },
		/* 4 */ { mute_other, "took interest away" },
	};
	struct rf_loop *loop = *state;

	for (size_t i = 0; i < RF_ARRAY_SIZE(rows); i++) {
		struct owner *a = watching(loop, 'a', rows[i].what);

		/* From a watch: the one that became ready first is called first. */
		print_message("row %zu: %s\n", i, rows[i].why);
		a->other = watching(loop, 'b', NULL);
		rf_eventfd_signal(a->fd);
		rf_eventfd_signal(a->other->fd);
		turn(loop);
		assert_journal("a");
		free_other(a);

		/* From a timer, which runs between collecting and delivering. */
		rf_watch_remove(&a->watch);
		a->act = rows[i].what;
		a->other = watching(loop, 'b', NULL);
		rf_eventfd_signal(a->other->fd);
		assert_int_equal(rf_timer_start(loop, &a->timer, 1), 0);
		turn(loop);
		assert_journal("a");
		free_other(a);
		owner_free(a);
	}
}

/* Removing a watch whose event of an earlier turn was delivered takes nobody else's away. */
static void test_removal_is_exact(void **state)
{
	struct rf_loop *loop = *state;
	struct owner *a = watching(loop, 'a', NULL), *b = watching(loop, 'b', NULL);
	struct owner *t = owner_new(loop, 't', remove_other);

	rf_eventfd_signal(a->fd);
	turn(loop);
	t->other = a;
	rf_eventfd_signal(b->fd);
	assert_int_equal(rf_timer_start(loop, &t->timer, 1), 0);
	turn(loop);
	assert_journal("atb");
	owner_free(a);
	owner_free(b);
	owner_free(t);
}

/* A watch that removes and frees itself in its callback. */
static void test_free_self(void **state)
{
	struct rf_loop *loop = *state;
	struct owner *o = watching(loop, 'a', owner_free);

	rf_eventfd_signal(o->fd);
	turn(loop);
	o = owner_new(loop, 'b', owner_free);
	assert_int_equal(rf_timer_start(loop, &o->timer, 1), 0);
	turn(loop);
	o = owner_new(loop, 'c', owner_free);
	rf_work_queue(loop, &o->work);
	turn(loop);
	assert_journal("abc");
}

/* More ready watches than one batch holds: each is called, none twice. */
static void test_many_watches(void **state)
{
	struct rf_loop *loop = *state;
	struct owner *owners[150];
	unsigned turns = 0;

	for (size_t i = 0; i < RF_ARRAY_SIZE(owners); i++) {
		owners[i] = watching(loop, 0, NULL);
		rf_eventfd_signal(owners[i]->fd);
	}
	while (rf_counter_read(&rf_loop_counters(loop)->loop_events) < RF_ARRAY_SIZE(owners)) {
		turn(loop);
		assert_true(++turns < 10);
	}
	turn(loop);
	assert_int_equal(rf_counter_read(&rf_loop_counters(loop)->loop_events), 150);
	for (size_t i = 0; i < RF_ARRAY_SIZE(owners); i++) {
		assert_int_equal(owners[i]->events, EPOLLIN);
		owner_free(owners[i]);
	}
}

/* Random starts, moves and stops; then they expire in the order of their deadlines. */
static uint64_t last_deadline_ns;
static unsigned expired;

static void on_ordered(struct rf_timer *timer)
{
	assert_true(timer->deadline_ns >= last_deadline_ns);
	assert_false(rf_timer_active(timer));
	last_deadline_ns = timer->deadline_ns;
	expired++;
}

static void test_timer_order(void **state)
{
	struct rf_loop *loop = *state;
	struct rf_timer timers[100] = { 0 };
	uint64_t base_ns = rf_clock_now() + 20 * RF_NS_PER_MS;
	unsigned active = 0;

	srandom(1);
	last_deadline_ns = 0;
	expired = 0;
	for (unsigned i = 0; i < 2000; i++) {
		struct rf_timer *t = &timers[random() % 100];

		t->expired = on_ordered;
		if (random() % 4 == 0) {
			rf_timer_stop(t);
			assert_false(rf_timer_active(t));
			continue;
		}
		assert_int_equal(rf_timer_start(loop, t, base_ns + (uint64_t)(random() % 50)), 0);
		assert_true(rf_timer_active(t));
	}
	for (unsigned i = 0; i < RF_ARRAY_SIZE(timers); i++)
		active += rf_timer_active(&timers[i]);
	assert_true(active > 50);
	usleep(25000);
	turn(loop);
	assert_int_equal(expired, active);
	assert_int_equal(rf_counter_read(&rf_loop_counters(loop)->loop_timers), active);
}

/* The loop sleeps until the deadline: one turn, neither too early nor spinning at the end. */
static void test_timer_sleep(void **state)
{
	struct rf_loop *loop = *state;
	struct owner *o = owner_new(loop, 't', NULL);
	uint64_t deadline_ns = rf_clock_now() + 21 * RF_NS_PER_MS - 1000;

	assert_int_equal(rf_timer_start(loop, &o->timer, deadline_ns), 0);
	assert_int_equal(rf_loop_turn(loop, -1), 0);
	assert_journal("t");
	assert_true(rf_loop_now(loop) >= deadline_ns);
	assert_int_equal(rf_counter_read(&rf_loop_counters(loop)->loop_wakeups), 1);
	/* An earlier limit of the caller holds. */
	deadline_ns = rf_clock_now() + 3600 * RF_NS_PER_SEC;
	assert_int_equal(rf_timer_start(loop, &o->timer, deadline_ns), 0);
	assert_int_equal(rf_loop_turn(loop, 5), 0);
	assert_journal("");
	assert_true(rf_timer_active(&o->timer));
	owner_free(o);
}

static void restart_past(struct owner *o)
{
	assert_int_equal(rf_timer_start(o->loop, &o->timer, 1), 0);
}

/* A timer that starts itself again in the past gives way, and does not let the loop sleep. */
static void test_timer_past(void **state)
{
	struct rf_loop *loop = *state;
	struct owner *o = owner_new(loop, 't', restart_past);
	struct owner *w = watching(loop, 'w', NULL);

	restart_past(o);
	rf_eventfd_signal(w->fd);
	turn(loop);
	assert_journal("tw");
	assert_int_equal(rf_loop_turn(loop, -1), 0);
	assert_journal("t");
	assert_int_equal(rf_counter_read(&rf_loop_counters(loop)->loop_wakeups), 0);
	owner_free(w);
	owner_free(o);
}

static void stop_other_timer(struct owner *o)
{
	rf_timer_stop(&o->other->timer);
}

/* A timer that an expired one stops does not expire, though its time has come. */
static void test_timer_stops_timer(void **state)
{
	struct rf_loop *loop = *state;
	struct owner *a = owner_new(loop, 'a', stop_other_timer);
	struct owner *b = owner_new(loop, 'b', NULL);
	uint64_t now_ns = rf_clock_now();

	a->other = b;
	assert_int_equal(rf_timer_start(loop, &b->timer, now_ns + 2), 0);
	assert_int_equal(rf_timer_start(loop, &a->timer, now_ns + 1), 0);
	usleep(10);
	turn(loop);
	turn(loop);
	assert_journal("a");
	owner_free(a);
	owner_free(b);
}

static void queue_self(struct owner *o)
{
	rf_work_queue(o->loop, &o->work);
}

static void cancel_other(struct owner *o)
{
	rf_work_cancel(&o->other->work);
}

static void test_work(void **state)
{
	struct rf_loop *loop = *state;
	struct owner *a = owner_new(loop, 'a', queue_self);
	struct owner *b = owner_new(loop, 'b', NULL);

	rf_work_queue(loop, &a->work);
	rf_work_queue(loop, &b->work);
	/* Queued already: stays where it is. */
	rf_work_queue(loop, &a->work);
	assert_non_null(b->work.loop);
	/* Would sleep for ever if it looked at the timeout; what queues itself waits a turn. */
	assert_int_equal(rf_loop_turn(loop, -1), 0);
	assert_journal("ab");
	assert_non_null(a->work.loop);
	assert_null(b->work.loop);
	assert_int_equal(rf_loop_turn(loop, -1), 0);
	assert_journal("a");
	/* These turns could not sleep, so they are no wake-ups. */
	assert_int_equal(rf_counter_read(&rf_loop_counters(loop)->loop_wakeups), 0);

	/* The last of the queue cancelled while the queue runs. */
	rf_work_cancel(&a->work);
	a->act = cancel_other;
	a->other = b;
	rf_work_queue(loop, &a->work);
	rf_work_queue(loop, &b->work);
	turn(loop);
	turn(loop);
	assert_journal("a");
	rf_work_cancel(&b->work);
	owner_free(a);
	owner_free(b);
}

/* Work may be left when the loop is freed; cancelling it later is harmless. */
static void test_work_left(void **state RF_UNUSED)
{
	struct rf_loop *loop;
	struct owner *o;

	assert_int_equal(rf_loop_new(&loop), 0);
	o = owner_new(loop, 'a', NULL);
	rf_work_queue(loop, &o->work);
	rf_loop_free(loop);
	assert_null(o->work.loop);
	owner_free(o);
	assert_journal("");
}

static void queue_work(struct owner *o)
{
	rf_work_queue(o->loop, &o->other->work);
}

/* Timers, then watches, then work, that of this turn's callbacks included. */
static void test_order_of_turn(void **state)
{
	struct rf_loop *loop = *state;
	struct owner *t = owner_new(loop, 't', queue_work);
	struct owner *r = watching(loop, 'r', queue_work);
	struct owner *w = owner_new(loop, 'w', NULL);

	t->other = owner_new(loop, 'x', NULL);
	r->other = w;
	assert_int_equal(rf_timer_start(loop, &t->timer, 1), 0);
	rf_eventfd_signal(r->fd);
	turn(loop);
	assert_journal("trxw");
	owner_free(t->other);
	owner_free(t);
	owner_free(r);
	owner_free(w);
}

static void test_quit_before_run(void **state)
{
	struct rf_loop *loop = *state;
	struct owner *o = owner_new(loop, 'a', quit);

	rf_loop_quit(loop);
	assert_int_equal(rf_loop_run(loop), 0);
	/* It counts once: the next run goes on to the next quit. */
	rf_work_queue(loop, &o->work);
	assert_int_equal(rf_loop_run(loop), 0);
	assert_journal("a");
	owner_free(o);
}

static void *waker(void *arg)
{
	struct rf_loop *loop = arg;

	usleep(20000);
	rf_loop_wake(loop);
	usleep(20000);
	rf_loop_quit(loop);
	return NULL;
}

static void test_wake_from_thread(void **state)
{
	struct rf_loop *loop = *state;
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, waker, loop), 0);
	assert_int_equal(rf_loop_run(loop), 0);
	pthread_join(thread, NULL);
	assert_int_equal(rf_counter_read(&rf_loop_counters(loop)->loop_wakeups), 2);
	/* A wake-up is no event of a watch. */
	assert_int_equal(rf_counter_read(&rf_loop_counters(loop)->loop_events), 0);
}

static struct rf_loop *signal_loop;

static void on_signal(int number RF_UNUSED)
{
	rf_loop_quit(signal_loop);
}

/* epoll_wait() returns EINTR, which is no error; the handler's quit is seen. */
static void test_quit_from_signal(void **state)
{
	struct sigaction action = { .sa_handler = on_signal }, old;

	signal_loop = *state;
	assert_int_equal(sigaction(SIGALRM, &action, &old), 0);
	alarm(1);
	assert_int_equal(rf_loop_run(signal_loop), 0);
	assert_int_equal(sigaction(SIGALRM, &old, NULL), 0);
}

/* Idle is idle: nothing wakes the loop. */
static void test_idle(void **state)
{
	struct rf_loop *loop = *state;
	struct owner *o = watching(loop, 'a', NULL);
	uint64_t before_ns = rf_clock_now();

	assert_int_equal(rf_loop_turn(loop, 50), 0);
	assert_true(rf_clock_now() - before_ns >= 50 * RF_NS_PER_MS);
	assert_int_equal(rf_counter_read(&rf_loop_counters(loop)->loop_wakeups), 1);
	assert_journal("");
	owner_free(o);
}

/* Who sleeps elsewhere learns of events from the descriptor, of all else from the deadline. */
static void test_sleep_elsewhere(void **state)
{
	struct rf_loop *loop = *state;
	struct owner *o = watching(loop, 'o', NULL), *late = owner_new(loop, 'l', NULL);
	struct pollfd pfd = { .fd = rf_loop_fd(loop), .events = POLLIN };
	uint64_t now_ns = rf_clock_now();

	assert_true(rf_loop_deadline(loop) == UINT64_MAX);
	assert_int_equal(rf_timer_start(loop, &late->timer, now_ns + RF_NS_PER_SEC), 0);
	assert_true(rf_loop_deadline(loop) == now_ns + RF_NS_PER_SEC);
	rf_work_queue(loop, &o->work);
	assert_true(rf_loop_deadline(loop) == 0);
	assert_int_equal(poll(&pfd, 1, 0), 0);
	turn(loop);
	assert_journal("o");
	assert_true(rf_loop_deadline(loop) == now_ns + RF_NS_PER_SEC);
	rf_eventfd_signal(o->fd);
	assert_int_equal(poll(&pfd, 1, 0), 1);
	turn(loop);
	assert_journal("o");
	rf_loop_wake(loop);
	assert_int_equal(poll(&pfd, 1, 0), 1);
	turn(loop);
	assert_int_equal(poll(&pfd, 1, 0), 0);
	owner_free(o);
	owner_free(late);
	assert_true(rf_loop_deadline(loop) == UINT64_MAX);
}

static void test_removing_nothing(void **state)
{
	struct rf_watch watch = { 0 };
	struct rf_timer timer = { 0 };
	struct rf_work work = { 0 };

	rf_watch_remove(&watch);
	rf_timer_stop(&timer);
	rf_work_cancel(&work);
	rf_loop_free(NULL);
	turn(*state);
}

static void test_counter_table(void **state)
{
	json_t *json = rf_counters_json(rf_loop_counter_defs, rf_loop_n_counters,
					rf_loop_counters(*state));

	assert_int_equal(json_object_size(json), 6);
	assert_non_null(json_object_get(json, "loop_wakeups"));
	json_decref(json);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_watch),
		TEST(test_watch_set),
		TEST(test_edge),
		TEST(test_stale_events),
		TEST(test_removal_is_exact),
		TEST(test_free_self),
		TEST(test_many_watches),
		TEST(test_timer_order),
		TEST(test_timer_sleep),
		TEST(test_timer_past),
		TEST(test_timer_stops_timer),
		TEST(test_work),
		TEST(test_work_left),
		TEST(test_order_of_turn),
		TEST(test_quit_before_run),
		TEST(test_wake_from_thread),
		TEST(test_quit_from_signal),
		TEST(test_idle),
		TEST(test_sleep_elsewhere),
		TEST(test_removing_nothing),
		TEST(test_counter_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
