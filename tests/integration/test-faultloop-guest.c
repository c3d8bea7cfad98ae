/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The Nth system call and the Nth allocation of the guest half fail, once and for ever: while it
 * attaches, connects, listens, carries bytes and closes, and while it attaches again to a back end
 * that went. The guest has its own thread, so that points do not always come in the same order;
 * each run lets one of them fail nevertheless.
 *
 * All of the first 200 points of a scenario are tried, and a sample of the others; all of them if
 * RF_FAULTLOOP_FULL is set.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "fake_vsock_backend.h"
#include "fault_loop.h"
#include "guest_rig.h"
#include "ringferry/guest.h"

#define LISTEN_PORT 700u
#define BYTES       20000u

/* Longer than any timeout of the guest's: what takes so long hangs. */
#define HANG_MS 5000
/* Something that need not come. */
#define MAY_MS 100
/* Pauses between attempts are cut to a millisecond. */
#define RETRY_US 3000
/* Patience of rf_guest_open(), on the warped clock. */
#define OPEN_MS 300

static uint8_t sent[BYTES], got[BYTES + 1];

/* Wait until the socket has something to say. */
static void wait_for(struct rf_guest *guest, int sock, short events)
{
	struct rf_pollfd pfd = { .sock = sock, .events = events };
	int r = FAULT_RUN(rf_poll(guest, &pfd, 1, HANG_MS));

	if (r == 0)
		FAULT_FAIL("a socket hangs");
	/* It could not wait, for want of memory. */
	if (r < 0)
		usleep(1000);
}

/* Send bytes and read them again, to the end. Return: did all come? */
static bool echo(struct rf_guest *guest, int sock)
{
	size_t out = 0, in = 0;
	ssize_t n;

	do {
		n = FAULT_RUN(rf_send(guest, sock, sent + out, BYTES - out, 0));
		if (n > 0)
			out += (size_t)n;
		else if (n == -EAGAIN)
			wait_for(guest, sock, RF_POLLOUT);
		else
			return false;
	} while (out < BYTES);
	if (FAULT_RUN(rf_shutdown(guest, sock, RF_SHUT_WR)) < 0)
		return false;
	do {
		n = FAULT_RUN(rf_recv(guest, sock, got + in, BYTES - in + 1, 0));
		if (n > 0)
			in += (size_t)n;
		else if (n == -EAGAIN)
			wait_for(guest, sock, RF_POLLIN);
	} while (n > 0 || n == -EAGAIN);
	if (n == 0 && (in != BYTES || memcmp(sent, got, BYTES) != 0))
		FAULT_FAIL("%zu of %u bytes came before an orderly end", in, BYTES);
	return n == 0;
}

static bool connect_and_echo(struct rf_guest *guest)
{
	const struct rf_sockaddr addr = { .cid = RF_CID_HOST, .port = FAKE_ECHO };
	int sock = FAULT_RUN(rf_socket(guest, RF_SOCK_STREAM | RF_SOCK_NONBLOCK));
	uint64_t error = 0;
	bool works;
	int r;

	if (sock < 0)
		return false;
	r = FAULT_RUN(rf_connect(guest, sock, &addr));
	works = r == -EINPROGRESS || r == 0;
	if (works) {
		(void)FAULT_RUN(rf_event_fd(guest, sock, RF_POLLIN));
		wait_for(guest, sock, RF_POLLOUT);
		works = rf_getsockopt(guest, sock, RF_SO_ERROR, &error) == 0 && !error &&
			echo(guest, sock);
	}
	assert_int_equal(FAULT_RUN(rf_close(guest, sock)), 0);
	return works;
}

static bool accept_and_close(struct rf_guest *guest, struct fake_backend *fake)
{
	const struct rf_sockaddr addr = { .cid = RF_CID_ANY, .port = LISTEN_PORT };
	int sock = FAULT_RUN(rf_socket(guest, RF_SOCK_STREAM | RF_SOCK_NONBLOCK));
	struct rf_pollfd pfd = { .sock = sock, .events = RF_POLLIN };
	int conn = -1;

	if (sock < 0)
		return false;
	assert_int_equal(FAULT_RUN(rf_bind(guest, sock, &addr)), 0);
	assert_int_equal(FAULT_RUN(rf_listen(guest, sock, 1)), 0);
	if (fault_harmless()) {
		fake_connect(fake, LISTEN_PORT);
		(void)FAULT_RUN(rf_poll(guest, &pfd, 1, MAY_MS));
		conn = FAULT_RUN(rf_accept(guest, sock, NULL, RF_SOCK_NONBLOCK));
	}
	if (conn >= 0)
		assert_int_equal(FAULT_RUN(rf_close(guest, conn)), 0);
	assert_int_equal(FAULT_RUN(rf_close(guest, sock)), 0);
	return conn >= 0;
}

static struct rf_guest *open_guest(struct fake_backend *fake)
{
	struct rf_guest_options o;
	struct rf_guest *guest = NULL;
	int r;

	rf_guest_options_init(&o);
	o.socket_path = fake_path(fake);
	o.connect_timeout_ms = OPEN_MS;
	o.queue_size = 16;
	r = FAULT_RUN(rf_guest_open(&o, &guest));
	if (r == 0)
		return guest;
	if (guest || !fault_end() || fault_harmless())
		FAULT_FAIL("opening returned %d", r);
	o.connect_timeout_ms = HANG_MS;
	assert_int_equal(rf_guest_open(&o, &guest), 0);
	return guest;
}

/* The system has recovered: so must the guest, by itself. */
static void recovered(struct rf_guest *guest)
{
	bool works = false;

	for (unsigned i = 0; i < HANG_MS && !works; i++) {
		works = connect_and_echo(guest);
		if (!works)
			usleep(1000);
	}
	if (!works)
		FAULT_FAIL("the guest does not recover");
}

static void close_guest(struct rf_guest *guest)
{
	fault_enter();
	rf_guest_close(guest);
	fault_leave();
	(void)fault_end();
}

static void life(void)
{
	struct fake_backend *fake;
	struct rf_guest *guest;
	bool works;

	fault_pause(true);
	fake = fake_new(&fake_automatic);
	fault_pause(false);
	guest = open_guest(fake);
	works = connect_and_echo(guest);
	works &= accept_and_close(guest, fake);
	if (!works && fault_harmless())
		FAULT_FAIL("a connection ended");
	if (fault_hit()) {
		(void)fault_end();
		recovered(guest);
	}
	close_guest(guest);
	fake_free(fake);
}

static uint64_t attachments(struct fake_backend *fake, struct rf_guest *guest)
{
	struct rig rig = { .fake = fake, .guest = guest };

	return rig_counter(&rig, "attachments");
}

/* The back end goes, and is there again at once. */
static void attaching_again(void)
{
	struct fake_backend *fake;
	struct rf_guest *guest;

	fault_pause(true);
	fake = fake_new(&fake_automatic);
	guest = open_guest(fake);
	fake_wait_attached(fake);
	fault_pause(false);
	fake_hang_up(fake);
	for (unsigned i = 0; i < HANG_MS && attachments(fake, guest) < 2 && !fault_hit(); i++)
		usleep(1000);
	/* For ever lasts a moment, with another try in it. */
	if (!fault_harmless())
		usleep(RETRY_US);
	(void)fault_end();
	recovered(guest);
	close_guest(guest);
	fake_free(fake);
}

static void guest_life(void **state)
{
	(void)state;
	fault_loop("a guest's life", life);
}

static void guest_attaches_again(void **state)
{
	(void)state;
	fault_loop("attaching again", attaching_again);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FAULT_TEST(guest_life),
		FAULT_TEST(guest_attaches_again),
	};

	alarm(500);
	for (unsigned i = 0; i < BYTES; i++)
		sent[i] = (uint8_t)(i * 31 + (i >> 8));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
