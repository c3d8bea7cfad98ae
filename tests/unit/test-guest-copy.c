/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What happens while a call copies bytes and holds no lock: guest/stream_send.c, stream_recv.c,
 * tx.c.
 *
 * The caller's buffer ends in a page that cannot be touched. Whoever does stops in a signal
 * handler, in the middle of its copy, until the test lets it go on.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "guest_rig.h"
#include "pattern.h"

#define WINDOW 262144u
#define HALF   65536u

/* Two halves; the second is the page that cannot be touched. */
static uint8_t *buf;
static int stopped[2], go_on[2];

static void touched(int number)
{
	char byte = 'x';

	(void)number;
	/* Only what a signal handler may call. */
	(void)!write(stopped[1], &byte, 1);
	(void)!read(go_on[0], &byte, 1);
	mprotect(buf + HALF, HALF, PROT_READ | PROT_WRITE);
}

/* A call that copies to or from the end of the first half and the beginning of the second. */
struct copier {
	struct rig *rig;
	int sock;
	size_t before, len;
	pthread_t thread;
	ssize_t result;
};

static void *sender_run(void *arg)
{
	struct copier *c = arg;

	c->result = rf_send(c->rig->guest, c->sock, buf + HALF - c->before, c->len, 0);
	return NULL;
}

/* More than what is copied at once, see guest/small.h. */
static void *large_sender_run(void *arg)
{
	struct copier *c = arg;

	c->len = 5000;
	return sender_run(c);
}

static void *reader_run(void *arg)
{
	struct copier *c = arg;

	c->result = rf_recv(c->rig->guest, c->sock, buf + HALF - c->before, c->len, 0);
	return NULL;
}

/* Returns when it is in the middle of its copy. */
static void copier_start(struct copier *c, void *(*run)(void *), struct rig *rig, int sock)
{
	const struct sigaction action = { .sa_handler = touched };
	char byte;

	/* cmocka has set its own for each case. */
	assert_int_equal(sigaction(SIGSEGV, &action, NULL), 0);
	*c = (struct copier){ .rig = rig, .sock = sock, .before = 500, .len = 1000 };
	pattern_fill(buf, 0, HALF);
	assert_int_equal(mprotect(buf + HALF, HALF, PROT_NONE), 0);
	assert_int_equal(pthread_create(&c->thread, NULL, run, c), 0);
	assert_int_equal(read(stopped[0], &byte, 1), 1);
}

static void let_go(void)
{
	assert_int_equal(write(go_on[1], "x", 1), 1);
}

static ssize_t copier_end(struct copier *c)
{
	let_go();
	pthread_join(c->thread, NULL);
	return c->result;
}

static void ends_while(struct rig *rig, void *(*run)(void *))
{
	struct rig_conn c = rig_connect(rig, 1, WINDOW);
	struct copier s;

	copier_start(&s, run, rig, c.sock);
	assert_int_equal(rf_close(rig->guest, c.sock), 0);
	assert_int_equal(copier_end(&s), -EBADF);
	fake_expect(rig->fake, VIRTIO_VSOCK_OP_SHUTDOWN);

	c = rig_connect(rig, 2, WINDOW);
	copier_start(&s, run, rig, c.sock);
	rig_send_op(rig, &c, VIRTIO_VSOCK_OP_RST, 0);
	rig_wait_counter(rig, "rx_resets", 1);
	assert_int_equal(copier_end(&s), -ECONNRESET);

	c = rig_connect(rig, 3, WINDOW);
	copier_start(&s, run, rig, c.sock);
	assert_int_equal(rf_shutdown(rig->guest, c.sock, RF_SHUT_WR), 0);
	fake_expect(rig->fake, VIRTIO_VSOCK_OP_SHUTDOWN);
	assert_int_equal(copier_end(&s), -EPIPE);

	c = rig_connect(rig, 4, WINDOW);
	copier_start(&s, run, rig, c.sock);
	fake_hang_up(rig->fake);
	rig_wait_counter(rig, "detachments", 1);
	assert_int_equal(copier_end(&s), -ECONNRESET);
	fake_expect_none(rig->fake, 10);
}

static void ends_while_sending(void **state)
{
	ends_while(*state, large_sender_run);
}

/* Nor does a small send, whose bytes are copied with the socket's mutex held, keep anybody. */
static void ends_while_sending_little(void **state)
{
	ends_while(*state, sender_run);
}

/* The peer takes its credit back: nothing goes out that it has no room for. */
static void credit_shrinks_while_sending(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1, WINDOW);
	uint64_t packets = rig_counter(rig, "rx_packets");
	struct copier s;

	copier_start(&s, large_sender_run, rig, c.sock);
	c.host.buf_alloc = 300;
	rig_send_op(rig, &c, VIRTIO_VSOCK_OP_CREDIT_UPDATE, 0);
	rig_wait_counter(rig, "rx_packets", packets + 1);
	let_go();
	assert_int_equal(fake_expect(rig->fake, VIRTIO_VSOCK_OP_RW).len, 300);
	fake_expect_none(rig->fake, 10);
	c.host.buf_alloc = WINDOW;
	rig_send_op(rig, &c, VIRTIO_VSOCK_OP_CREDIT_UPDATE, 0);
	assert_int_equal(fake_expect(rig->fake, VIRTIO_VSOCK_OP_RW).len, 4700);
	pthread_join(s.thread, NULL);
	assert_int_equal(s.result, 5000);
}

static void *blocked_run(void *arg)
{
	struct copier *c = arg;

	c->result = rf_send(c->rig->guest, c->sock, "hello", 5, 0);
	return NULL;
}

/*
 * The only slots are with senders that copy: nothing is out that the back end could return, and who
 * waits must hear of a slot all the same.
 */
static void slots_are_held_while_sending(void **state)
{
	/* A ring of 2 has two slots for data. */
	const struct rig_options options = { .queue_size = 2 };
	struct copier s[2], blocked;
	struct rig_conn a[2], b;
	struct rig rig;

	(void)state;
	rig_open(&rig, &options);
	b = rig_connect(&rig, 1, WINDOW);
	/* Sent, and returned when the back end has taken it. */
	for (unsigned i = 0; i < 2; i++) {
		a[i] = rig_connect(&rig, 2 + i, WINDOW);
		copier_start(&s[i], large_sender_run, &rig, a[i].sock);
	}
	blocked = (struct copier){ .rig = &rig, .sock = b.sock };
	assert_int_equal(pthread_create(&blocked.thread, NULL, blocked_run, &blocked), 0);
	rig_wait_counter(&rig, "tx_waits", 1);
	let_go();
	let_go();
	for (unsigned i = 0; i < 2; i++) {
		pthread_join(s[i].thread, NULL);
		assert_int_equal(s[i].result, 5000);
		fake_expect(rig.fake, VIRTIO_VSOCK_OP_RW);
	}
	pthread_join(blocked.thread, NULL);
	assert_int_equal(blocked.result, 5);
	fake_expect(rig.fake, VIRTIO_VSOCK_OP_RW);

	/* Given back unused. */
	for (unsigned i = 0; i < 2; i++)
		copier_start(&s[i], large_sender_run, &rig, a[i].sock);
	assert_int_equal(pthread_create(&blocked.thread, NULL, blocked_run, &blocked), 0);
	rig_wait_counter(&rig, "tx_waits", 2);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(rf_shutdown(rig.guest, a[i].sock, RF_SHUT_WR), 0);
	let_go();
	let_go();
	for (unsigned i = 0; i < 2; i++) {
		pthread_join(s[i].thread, NULL);
		assert_int_equal(s[i].result, -EPIPE);
	}
	pthread_join(blocked.thread, NULL);
	assert_int_equal(blocked.result, 5);
	rig_close(&rig);
}

static void send_pattern(struct rig *rig, const struct rig_conn *c, unsigned at, uint32_t len)
{
	uint8_t bytes[2000];

	pattern_fill(bytes, at, len);
	rig_send(rig, c, bytes, len);
}

static void check_pattern(const uint8_t *bytes, unsigned at, unsigned len)
{
	assert_int_equal(pattern_check(bytes, at, len), len);
}

/* What arrives meanwhile comes behind what was left. */
static void data_arrives_while_reading(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1, WINDOW);
	uint8_t bytes[3000];
	struct copier r;

	send_pattern(rig, &c, 0, 1500);
	rig_wait_counter(rig, "rx_packets", 2);
	copier_start(&r, reader_run, rig, c.sock);
	send_pattern(rig, &c, 1500, 100);
	send_pattern(rig, &c, 1600, 1000);
	rig_wait_counter(rig, "rx_packets", 4);
	assert_int_equal(rig_option(rig, c.sock, RF_SO_INQ), 2600);
	/* Another reader waits for its turn, even one that may not block. */
	assert_int_equal(copier_end(&r), 1000);
	check_pattern(buf + HALF - 500, 0, 1000);
	assert_int_equal(rf_recv(rig->guest, c.sock, bytes, sizeof(bytes), 0), 1600);
	check_pattern(bytes, 1000, 1600);
}

static void ends_while_reading(void **state)
{
	struct rig *rig = *state;
	struct rig_conn c = rig_connect(rig, 1, WINDOW);
	struct copier r;
	char byte;

	send_pattern(rig, &c, 0, 1500);
	rig_wait_counter(rig, "rx_packets", 2);
	copier_start(&r, reader_run, rig, c.sock);
	assert_int_equal(rf_close(rig->guest, c.sock), 0);
	assert_int_equal(copier_end(&r), 1000);
	fake_expect(rig->fake, VIRTIO_VSOCK_OP_SHUTDOWN);

	c = rig_connect(rig, 2, WINDOW);
	send_pattern(rig, &c, 0, 1500);
	rig_wait_counter(rig, "rx_packets", 4);
	copier_start(&r, reader_run, rig, c.sock);
	assert_int_equal(rf_shutdown(rig->guest, c.sock, RF_SHUT_RD), 0);
	assert_int_equal(copier_end(&r), 1000);
	fake_expect(rig->fake, VIRTIO_VSOCK_OP_SHUTDOWN);
	assert_int_equal(rf_recv(rig->guest, c.sock, &byte, 1, 0), 0);
	assert_int_equal(rig_option(rig, c.sock, RF_SO_INQ), 0);

	c = rig_connect(rig, 3, WINDOW);
	send_pattern(rig, &c, 0, 1500);
	rig_wait_counter(rig, "rx_packets", 6);
	copier_start(&r, reader_run, rig, c.sock);
	fake_hang_up(rig->fake);
	rig_wait_counter(rig, "detachments", 1);
	assert_int_equal(copier_end(&r), 1000);
	check_pattern(buf + HALF - 500, 0, 1000);
	assert_int_equal(rf_recv(rig->guest, c.sock, buf, 1000, 0), 500);
	assert_int_equal(rf_recv(rig->guest, c.sock, &byte, 1, 0), -ECONNRESET);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_CASE(ends_while_sending),
		RIG_CASE(ends_while_sending_little),
		RIG_CASE(credit_shrinks_while_sending),
		cmocka_unit_test(slots_are_held_while_sending),
		RIG_CASE(data_arrives_while_reading),
		RIG_CASE(ends_while_reading),
	};

	buf = mmap(NULL, 2 * HALF, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buf == MAP_FAILED || pipe(stopped) < 0 || pipe(go_on) < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
