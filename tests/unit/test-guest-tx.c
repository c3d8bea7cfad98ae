/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which way packets take to the transmit ring: guest/tx.c, and the guest's thread as far as it has
 * to do with that. Linked with --wrap for allocations and pthread_mutex_unlock().
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "guest.h"
#include "guest_rig.h"
#include "pattern.h"

#define WINDOW 262144u

/* Entries for data of a ring of the default size, and slots. */
#define DATA_ENTRIES 224u
#define DATA_SLOTS   448u

static uint8_t bytes[4096];

/* Allocations of this thread. */
static _Thread_local unsigned allocations;

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_malloc(size_t n)
{
	allocations++;
	return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
	allocations++;
	return __real_calloc(n, size);
}

/* Called once, just before this mutex is released. */
static pthread_mutex_t *_Atomic last_moment_of;
static void (*last_moment)(void);

int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	pthread_mutex_t *wanted = mutex;

	if (atomic_compare_exchange_strong(&last_moment_of, &wanted, NULL))
		last_moment();
	return __real_pthread_mutex_unlock(mutex);
}

/* A rig, what it has counted before, two connections, and a thread that can hold the ring. */
struct bench {
	struct rig rig;
	struct rf_tx *tx;
	struct rig_conn a, b;
	uint64_t before[6];
	pthread_t holder;
	sem_t held, go_on;
};

static const char *const ways[] = {
	"tx_direct",         "tx_queued_busy", "tx_queued_full",
	"tx_queued_earlier", "tx_queued_off",  "tx_packets",
};

static void bench_open(struct bench *bench, const char *tune)
{
	const struct rig_options options = { .tune = tune };

	rig_open(&bench->rig, &options);
	bench->tx = &bench->rig.guest->device->tx;
	bench->a = rig_connect(&bench->rig, 1, 1u << 30);
	bench->b = rig_connect(&bench->rig, 2, 1u << 30);
	for (unsigned i = 0; i < 6; i++)
		bench->before[i] = rig_counter(&bench->rig, ways[i]);
}

static void *hold(void *arg)
{
	struct bench *bench = arg;

	pthread_mutex_lock(&bench->tx->mutex);
	sem_post(&bench->held);
	sem_wait(&bench->go_on);
	pthread_mutex_unlock(&bench->tx->mutex);
	return NULL;
}

/* Somebody else has the ring's mutex from now on, and does not look at what is handed over. */
static void hold_ring(struct bench *bench)
{
	sem_init(&bench->held, 0, 0);
	sem_init(&bench->go_on, 0, 0);
	assert_int_equal(pthread_create(&bench->holder, NULL, hold, bench), 0);
	sem_wait(&bench->held);
}

static void let_ring_go(struct bench *bench)
{
	sem_post(&bench->go_on);
	pthread_join(bench->holder, NULL);
	sem_destroy(&bench->go_on);
	sem_destroy(&bench->held);
}

static void bench_close(struct bench *bench)
{
	rig_close(&bench->rig);
}

/* So many packets took these ways, and no others any way. */
static void assert_ways(struct bench *bench, unsigned direct, unsigned busy, unsigned full,
			unsigned earlier, unsigned off)
{
	const uint64_t wanted[] = { direct, busy, full, earlier, off };
	uint64_t sum = 0;

	rig_wait_counter(&bench->rig, "tx_packets",
			 bench->before[5] + direct + busy + full + earlier + off);
	for (unsigned i = 0; i < 5; i++) {
		uint64_t n = rig_counter(&bench->rig, ways[i]);

		sum += n;
		if (n - bench->before[i] != wanted[i])
			fail_msg("%s: %lu, not %lu", ways[i], (unsigned long)(n - bench->before[i]),
				 (unsigned long)wanted[i]);
	}
	assert_int_equal(sum, rig_counter(&bench->rig, "tx_packets"));
	/* Nobody has left with it. */
	assert_int_equal(pthread_mutex_trylock(&bench->tx->mutex), 0);
	pthread_mutex_unlock(&bench->tx->mutex);
}

/* One packet; its length is its name. Whatever is in the way, the call returns. */
static void put(struct bench *bench, const struct rig_conn *c, size_t len)
{
	assert_int_equal(rf_send(bench->rig.guest, c->sock, bytes, len, RF_MSG_DONTWAIT), len);
}

static void expect(struct bench *bench, const struct rig_conn *c, uint16_t op, uint32_t len)
{
	struct rf_vsock_hdr hdr;

	do {
		fake_next(bench->rig.fake, &hdr, NULL);
	} while (hdr.op == VIRTIO_VSOCK_OP_CREDIT_REQUEST);
	assert_int_equal(hdr.src_port, c->host.dst_port);
	assert_int_equal(hdr.op, op);
	assert_int_equal(hdr.len, len);
}

static void straight(void **state)
{
	struct bench bench;

	(void)state;
	bench_open(&bench, NULL);
	for (unsigned i = 1; i <= 500; i++) {
		put(&bench, &bench.a, i);
		expect(&bench, &bench.a, VIRTIO_VSOCK_OP_RW, i);
	}
	assert_int_equal(rf_shutdown(bench.rig.guest, bench.b.sock, RF_SHUT_WR), 0);
	expect(&bench, &bench.b, VIRTIO_VSOCK_OP_SHUTDOWN, 0);
	assert_ways(&bench, 501, 0, 0, 0, 0);
	assert_int_equal(rig_counter(&bench.rig, "tx_worker_runs"), 0);
	bench_close(&bench);
}

/* Somebody holds the ring: packets are queued, of all sockets in their order; the next one that
   gets hold of it puts all of them onto the ring, with one notification. */
static void busy(void **state)
{
	struct bench bench;
	uint64_t kicks;

	(void)state;
	bench_open(&bench, NULL);
	kicks = rig_counter(&bench.rig, "tx_kicks");
	hold_ring(&bench);
	put(&bench, &bench.a, 1);
	put(&bench, &bench.b, 2);
	put(&bench, &bench.a, 3);
	assert_int_equal(rf_shutdown(bench.rig.guest, bench.a.sock, RF_SHUT_WR), 0);
	put(&bench, &bench.b, 4);
	fake_expect_none(bench.rig.fake, 10);
	let_ring_go(&bench);
	/* The holder would have looked; we have not. */
	fake_expect_none(bench.rig.fake, 10);
	put(&bench, &bench.b, 5);
	expect(&bench, &bench.a, VIRTIO_VSOCK_OP_RW, 1);
	expect(&bench, &bench.b, VIRTIO_VSOCK_OP_RW, 2);
	expect(&bench, &bench.a, VIRTIO_VSOCK_OP_RW, 3);
	expect(&bench, &bench.a, VIRTIO_VSOCK_OP_SHUTDOWN, 0);
	expect(&bench, &bench.b, VIRTIO_VSOCK_OP_RW, 4);
	expect(&bench, &bench.b, VIRTIO_VSOCK_OP_RW, 5);
	assert_ways(&bench, 0, 1, 0, 5, 0);
	assert_in_range(rig_counter(&bench.rig, "tx_kicks") - kicks, 0, 1);
	bench_close(&bench);
}

static struct bench *last_bench;

static void *put_one(void *arg)
{
	put(arg, &((struct bench *)arg)->b, 2);
	return NULL;
}

static void put_meanwhile(void)
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, put_one, last_bench), 0);
	pthread_join(thread, NULL);
}

/*
 * A packet that is handed over after the holder's last look and before it lets go is not left
 * behind: it looks again.
 */
static void at_the_last_moment(void **state)
{
	struct bench bench;

	(void)state;
	bench_open(&bench, NULL);
	last_bench = &bench;
	last_moment = put_meanwhile;
	atomic_store(&last_moment_of, &bench.tx->mutex);
	put(&bench, &bench.a, 1);
	expect(&bench, &bench.a, VIRTIO_VSOCK_OP_RW, 1);
	expect(&bench, &bench.b, VIRTIO_VSOCK_OP_RW, 2);
	assert_ways(&bench, 1, 1, 0, 0, 0);
	bench_close(&bench);
}

/* Who holds the ring finds what was handed over meanwhile, without anybody else's doing. */
static void holder_looks_again(void **state)
{
	struct bench bench;
	unsigned n;

	(void)state;
	bench_open(&bench, NULL);
	hold_ring(&bench);
	put(&bench, &bench.a, 1);
	let_ring_go(&bench);
	/* Any of those who hold it: this one has only come to wait for a slot. */
	fake_hold_tx(bench.rig.fake, true);
	for (n = 1; n < DATA_SLOTS; n++)
		put(&bench, &bench.a, 1);
	assert_int_equal(rf_send(bench.rig.guest, bench.a.sock, bytes, 1, RF_MSG_DONTWAIT),
			 -EAGAIN);
	fake_hold_tx(bench.rig.fake, false);
	for (n = 0; n < DATA_SLOTS; n++)
		expect(&bench, &bench.a, VIRTIO_VSOCK_OP_RW, 1);
	bench_close(&bench);
}

/* A full ring: as many packets again are queued; order is kept, and nothing is lost. */
static void full(void **state)
{
	struct bench bench;
	unsigned n;

	(void)state;
	bench_open(&bench, NULL);
	fake_hold_tx(bench.rig.fake, true);
	for (n = 1; n <= DATA_SLOTS; n++)
		put(&bench, n % 2 ? &bench.a : &bench.b, n);
	assert_int_equal(rf_send(bench.rig.guest, bench.a.sock, bytes, 1, RF_MSG_DONTWAIT),
			 -EAGAIN);
	fake_hold_tx(bench.rig.fake, false);
	for (n = 1; n <= DATA_SLOTS; n++)
		expect(&bench, n % 2 ? &bench.a : &bench.b, VIRTIO_VSOCK_OP_RW, n);
	assert_ways(&bench, DATA_ENTRIES, 0, 1, DATA_ENTRIES - 1, 0);
	assert_true(rig_counter(&bench.rig, "tx_worker_runs") > 0);
	bench_close(&bench);
}

/*
 * Control packets pass what is queued of others, and nothing of their own connection. @b has
 * nothing queued, @a has.
 */
static void control_and_backlog(void **state)
{
	struct bench bench;
	unsigned n;

	(void)state;
	bench_open(&bench, NULL);
	fake_hold_tx(bench.rig.fake, true);
	for (n = 1; n <= DATA_ENTRIES + 3; n++)
		put(&bench, &bench.a, n);
	assert_int_equal(rf_shutdown(bench.rig.guest, bench.a.sock, RF_SHUT_WR), 0);
	assert_int_equal(rf_shutdown(bench.rig.guest, bench.b.sock, RF_SHUT_WR), 0);
	fake_hold_tx(bench.rig.fake, false);
	for (n = 1; n <= DATA_ENTRIES; n++)
		expect(&bench, &bench.a, VIRTIO_VSOCK_OP_RW, n);
	expect(&bench, &bench.b, VIRTIO_VSOCK_OP_SHUTDOWN, 0);
	for (; n <= DATA_ENTRIES + 3; n++)
		expect(&bench, &bench.a, VIRTIO_VSOCK_OP_RW, n);
	expect(&bench, &bench.a, VIRTIO_VSOCK_OP_SHUTDOWN, 0);
	assert_ways(&bench, DATA_ENTRIES, 0, 1, 4, 0);
	bench_close(&bench);
}

static void switched_off(void **state)
{
	struct bench bench;

	(void)state;
	bench_open(&bench, "direct-tx=off");
	for (unsigned i = 1; i <= 500; i++) {
		put(&bench, &bench.a, i);
		expect(&bench, &bench.a, VIRTIO_VSOCK_OP_RW, i);
	}
	assert_int_equal(rf_shutdown(bench.rig.guest, bench.b.sock, RF_SHUT_WR), 0);
	expect(&bench, &bench.b, VIRTIO_VSOCK_OP_SHUTDOWN, 0);
	assert_ways(&bench, 0, 0, 0, 0, 501);
	assert_in_range(rig_counter(&bench.rig, "tx_worker_runs"), 2, 503);
	assert_int_equal(rig_counter(&bench.rig, "tx_direct"), 0);
	bench_close(&bench);
}

/* The same with a ring that is full, and senders that wait for slots. */
static void switched_off_and_full(void **state)
{
	struct bench bench;
	unsigned n;

	(void)state;
	bench_open(&bench, "direct-tx=off");
	fake_hold_tx(bench.rig.fake, true);
	for (n = 1; n <= DATA_SLOTS; n++)
		put(&bench, n % 2 ? &bench.a : &bench.b, n);
	assert_int_equal(rf_send(bench.rig.guest, bench.a.sock, bytes, 1, RF_MSG_DONTWAIT),
			 -EAGAIN);
	assert_int_equal(rf_shutdown(bench.rig.guest, bench.a.sock, RF_SHUT_WR), 0);
	fake_hold_tx(bench.rig.fake, false);
	for (n = 1; n <= DATA_SLOTS; n++)
		expect(&bench, n % 2 ? &bench.a : &bench.b, VIRTIO_VSOCK_OP_RW, n);
	expect(&bench, &bench.a, VIRTIO_VSOCK_OP_SHUTDOWN, 0);
	assert_ways(&bench, 0, 0, 0, 0, DATA_SLOTS + 1);
	bench_close(&bench);
}

/* The thread is woken when it sleeps, and not for each packet when it does not. */
static void worker_is_woken_once(void **state)
{
	struct bench bench;
	uint64_t wakeups;

	(void)state;
	bench_open(&bench, "direct-tx=off");
	usleep(20000);
	wakeups = rig_counter(&bench.rig, "loop_wakeups");
	/* It gets as far as the ring, and waits for us. */
	hold_ring(&bench);
	put(&bench, &bench.a, 1);
	usleep(20000);
	for (unsigned i = 2; i <= 200; i++)
		put(&bench, &bench.a, i);
	let_ring_go(&bench);
	for (unsigned i = 1; i <= 200; i++)
		expect(&bench, &bench.a, VIRTIO_VSOCK_OP_RW, i);
	/* For the first packet, and perhaps to look once more; the rest is for credit. */
	assert_in_range(rig_counter(&bench.rig, "loop_wakeups") - wakeups, 1, 10);
	bench_close(&bench);
}

/* Neither straight nor queued; Linux 6.12-rc1 did, where nobody may sleep. */
static void sending_allocates_nothing(void **state)
{
	struct bench bench;

	(void)state;
	bench_open(&bench, NULL);
	put(&bench, &bench.a, 1);
	allocations = 0;
	put(&bench, &bench.a, 2);
	hold_ring(&bench);
	put(&bench, &bench.a, 3);
	put(&bench, &bench.a, 4);
	let_ring_go(&bench);
	fake_hold_tx(bench.rig.fake, true);
	for (unsigned i = 0; i < DATA_ENTRIES + 10; i++)
		put(&bench, &bench.a, 5);
	assert_int_equal(allocations, 0);
	fake_hold_tx(bench.rig.fake, false);
	bench_close(&bench);
}

/* The device goes while packets are on the ring, in the backlog, and handed over. */
static void stopped_with_packets_queued(void **state)
{
	static const char *const tunes[] = { "direct-tx=on", "direct-tx=off" };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct bench bench;
		struct rig_conn c;

		bench_open(&bench, tunes[i]);
		fake_hold_tx(bench.rig.fake, true);
		for (unsigned n = 0; n < DATA_ENTRIES + 20; n++)
			put(&bench, &bench.a, 1);
		assert_int_equal(rf_shutdown(bench.rig.guest, bench.a.sock, RF_SHUT_WR), 0);
		hold_ring(&bench);
		put(&bench, &bench.b, 2);
		let_ring_go(&bench);
		fake_hang_up(bench.rig.fake);
		rig_wait_counter(&bench.rig, "detachments", 1);
		assert_int_equal(rf_send(bench.rig.guest, bench.b.sock, bytes, 1, 0), -ECONNRESET);
		/* The socket still has the earlier device. */
		assert_int_equal(pthread_mutex_trylock(&bench.tx->mutex), 0);
		assert_true(STAILQ_EMPTY(&bench.tx->backlog) && !bench.tx->has_backlog);
		pthread_mutex_unlock(&bench.tx->mutex);
		fake_hold_tx(bench.rig.fake, false);
		rig_wait_counter(&bench.rig, "attachments", 2);
		fake_wait_attached(bench.rig.fake);
		fake_forget(bench.rig.fake);
		/* Nothing of it is in the way of the next one. */
		assert_int_equal(rf_close(bench.rig.guest, bench.a.sock), 0);
		c = rig_connect(&bench.rig, 3, WINDOW);
		put(&bench, &c, 7);
		expect(&bench, &c, VIRTIO_VSOCK_OP_RW, 7);
		bench_close(&bench);
	}
}

static void *closer_run(void *arg)
{
	const struct rig *rig = arg;

	rf_guest_close(rig->guest);
	return NULL;
}

/* What is queued when the guest closes is the back end's to take, too. */
static void closed_with_packets_queued(void **state)
{
	static const char *const tunes[] = { "direct-tx=on", "direct-tx=off" };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct bench bench;
		pthread_t closer;

		bench_open(&bench, tunes[i]);
		fake_hold_tx(bench.rig.fake, true);
		for (unsigned n = 1; n <= DATA_SLOTS; n++)
			put(&bench, &bench.a, n);
		assert_int_equal(pthread_create(&closer, NULL, closer_run, &bench.rig), 0);
		usleep(20000);
		fake_hold_tx(bench.rig.fake, false);
		pthread_join(closer, NULL);
		for (unsigned n = 1; n <= DATA_ENTRIES; n++)
			expect(&bench, &bench.a, VIRTIO_VSOCK_OP_RW, n);
		/* Passes what is queued of others. */
		expect(&bench, &bench.b, VIRTIO_VSOCK_OP_SHUTDOWN, 0);
		for (unsigned n = DATA_ENTRIES + 1; n <= DATA_SLOTS; n++)
			expect(&bench, &bench.a, VIRTIO_VSOCK_OP_RW, n);
		expect(&bench, &bench.a, VIRTIO_VSOCK_OP_SHUTDOWN, 0);
		bench.rig.guest = NULL;
		bench_close(&bench);
	}
}

static void ask_in_vain(struct bench *bench, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++) {
		struct rf_vsock_hdr hdr = fake_hdr(VIRTIO_VSOCK_OP_RW, i, 99);

		fake_send(bench->rig.fake, &hdr, NULL);
	}
}

/*
 * Replies that go straight do not count against the budget of owed ones: however many there are,
 * packets are taken. Nor do those that are queued because the ring is busy: they have slots.
 */
static void replies_that_go_straight(void **state)
{
	struct bench bench;

	(void)state;
	bench_open(&bench, NULL);
	for (uint32_t i = 0; i < 20 * RF_VSOCK_RESETS; i++) {
		ask_in_vain(&bench, i, i + 1);
		assert_int_equal(fake_expect(bench.rig.fake, VIRTIO_VSOCK_OP_RST).dst_port, i);
	}
	assert_ways(&bench, 20 * RF_VSOCK_RESETS, 0, 0, 0, 0);
	assert_int_equal(rig_counter(&bench.rig, "back_pressure"), 0);

	/* 32 slots for control packets, a few of which are still to be taken back. */
	hold_ring(&bench);
	ask_in_vain(&bench, 0, 20);
	rig_wait_counter(&bench.rig, "rx_packets", 2 + 20 * RF_VSOCK_RESETS + 20);
	put(&bench, &bench.a, 1);
	let_ring_go(&bench);
	put(&bench, &bench.a, 2);
	for (uint32_t i = 0; i < 20; i++)
		assert_int_equal(fake_expect(bench.rig.fake, VIRTIO_VSOCK_OP_RST).dst_port, i);
	assert_int_equal(rig_counter(&bench.rig, "back_pressure"), 0);
	bench_close(&bench);
}

/* A header tells the credit of the moment when its packet was handed over. */
static void credit_of_a_queued_packet(void **state)
{
	struct bench bench;
	struct rf_vsock_hdr hdr;

	(void)state;
	bench_open(&bench, "credit=linux");
	rig_send(&bench.rig, &bench.a, bytes, 1000);
	assert_int_equal(rf_recv(bench.rig.guest, bench.a.sock, bytes, 300, 0), 300);
	hold_ring(&bench);
	put(&bench, &bench.a, 1);
	assert_int_equal(rf_recv(bench.rig.guest, bench.a.sock, bytes, 400, 0), 400);
	let_ring_go(&bench);
	put(&bench, &bench.a, 2);
	hdr = fake_expect(bench.rig.fake, VIRTIO_VSOCK_OP_RW);
	assert_int_equal(hdr.fwd_cnt, 300);
	hdr = fake_expect(bench.rig.fake, VIRTIO_VSOCK_OP_RW);
	assert_int_equal(hdr.fwd_cnt, 700);
	bench_close(&bench);
}

/* Its name, for those who look at threads from outside. */
static void thread_has_a_name(void **state)
{
	unsigned found = 0;
	struct bench bench;
	struct dirent *entry;
	DIR *dir;

	(void)state;
	bench_open(&bench, NULL);
	dir = opendir("/proc/self/task");
	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		char path[300], name[32] = "";
		int fd;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		if (read(fd, name, sizeof(name) - 1) > 0)
			found += !strcmp(name, "rf-guest\n");
		close(fd);
	}
	closedir(dir);
	assert_int_equal(found, 1);
	bench_close(&bench);
}

/* The same names again, while packets of the connection that had them wait: they go first. */
static void same_ports_again(void **state)
{
	struct rf_sockaddr local, peer = { RF_CID_HOST, 1 };
	struct bench bench;
	unsigned data = 0;
	int sock;

	(void)state;
	bench_open(&bench, NULL);
	assert_int_equal(rf_getsockname(bench.rig.guest, bench.a.sock, &local), 0);
	fake_hold_tx(bench.rig.fake, true);
	for (; data < DATA_ENTRIES + 10; data++)
		assert_int_equal(rf_send(bench.rig.guest, bench.a.sock, bytes, 1, 0), 1);
	rig_send_op(&bench.rig, &bench.a, VIRTIO_VSOCK_OP_RST, 0);
	rig_poll(&bench.rig, bench.a.sock, RF_POLLHUP);
	assert_int_equal(rf_close(bench.rig.guest, bench.a.sock), 0);
	sock = rf_socket(bench.rig.guest, RF_SOCK_STREAM | RF_SOCK_NONBLOCK);
	assert_int_equal(rf_bind(bench.rig.guest, sock, &local), 0);
	assert_int_equal(rf_connect(bench.rig.guest, sock, &peer), -EINPROGRESS);
	fake_hold_tx(bench.rig.fake, false);
	while (data--)
		fake_expect(bench.rig.fake, VIRTIO_VSOCK_OP_RW);
	fake_expect(bench.rig.fake, VIRTIO_VSOCK_OP_REQUEST);
	bench_close(&bench);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(straight),
		cmocka_unit_test(busy),
		cmocka_unit_test(at_the_last_moment),
		cmocka_unit_test(holder_looks_again),
		cmocka_unit_test(full),
		cmocka_unit_test(control_and_backlog),
		cmocka_unit_test(switched_off),
		cmocka_unit_test(switched_off_and_full),
		cmocka_unit_test(worker_is_woken_once),
		cmocka_unit_test(sending_allocates_nothing),
		cmocka_unit_test(stopped_with_packets_queued),
		cmocka_unit_test(closed_with_packets_queued),
		cmocka_unit_test(replies_that_go_straight),
		cmocka_unit_test(credit_of_a_queued_packet),
		cmocka_unit_test(thread_has_a_name),
		cmocka_unit_test(same_ports_again),
	};

	pattern_fill(bytes, 0, sizeof(bytes));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
