/* SPDX-License-Identifier: BSD-3-Clause */
#include "vhost/front.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fd.h"
#include "open_fds.h"
#include "vu_lab.h"

#define PF(bit)     (UINT64_C(1) << (bit))
#define F_VERSION_1 (UINT64_C(1) << 32)
#define F_EVENT_IDX (UINT64_C(1) << 29)
#define BIT_30      RF_VU_F_PROTOCOL_FEATURES
/* Where it is waited for in vain; and where it is not, on a busy machine. */
#define TIMEOUT_NS (200 * RF_NS_PER_MS)
#define PATIENT_NS (20 * RF_NS_PER_SEC)
#define ALL_PF                                                            \
	(PF(RF_VU_PF_MQ) | PF(RF_VU_PF_REPLY_ACK) | PF(RF_VU_PF_CONFIG) | \
	 PF(RF_VU_PF_CONFIGURE_MEM_SLOTS))

/* What a fake back end does to one of its answers. */
enum fault {
	FAULT_NONE,
	FAULT_ID,           /* the reply is to another request */
	FAULT_NO_REPLY_BIT, /* flags 0x1 */
	FAULT_ECHO,         /* flags 0xd: need_reply echoed */
	FAULT_VERSION,      /* flags 0x6 */
	FAULT_SHORT,        /* one byte of payload less */
	FAULT_LONG,         /* one more */
	FAULT_HUGE,         /* a size of 4 GiB - 1 */
	FAULT_EMPTY,        /* no payload */
	FAULT_FD,           /* a descriptor with it */
	FAULT_FLOOD,        /* many */
	FAULT_NACK,         /* u64 1 */
	FAULT_SILENT,
	FAULT_DRIP,   /* half a header, then silence */
	FAULT_HALF,   /* a header without its payload, then hang-up */
	FAULT_HANGUP, /* instead of the reply */
	FAULT_UNREAD, /* hang-up before reading the request */
};

struct fake {
	int fd;
	uint64_t features, protocol_features, acked;
	uint32_t at;
	enum fault fault;
	char seen[1024];
	unsigned n_fds;
	pthread_t thread;
};

static void fake_see(struct fake *fake, const struct rf_vu_message *msg)
{
	char word[64];

	snprintf(word, sizeof(word), "%s%s", rf_vu_request_name(msg->hdr.request),
		 msg->hdr.flags & RF_VU_FLAG_NEED_REPLY ? "!" : "");
	vu_lab_append(fake->seen, sizeof(fake->seen), " ", word);
	fake->n_fds += msg->n_fds;
	if (msg->hdr.request == RF_VU_SET_FEATURES)
		fake->acked = msg->payload.u64;
}

static bool fake_receive(struct fake *fake, struct rf_vu_message *ret_msg)
{
	ssize_t n = rf_fd_recv(fake->fd, &ret_msg->hdr, sizeof(ret_msg->hdr), ret_msg->fds,
			       RF_VU_MAX_FDS, &ret_msg->n_fds);

	if (n <= 0)
		return false;
	if (ret_msg->hdr.size &&
	    recv(fake->fd, ret_msg->payload.bytes, ret_msg->hdr.size, MSG_WAITALL) <= 0)
		return false;
	fake_see(fake, ret_msg);
	for (unsigned i = 0; i < ret_msg->n_fds; i++)
		rf_fd_close(ret_msg->fds[i]);
	return true;
}

/* The honest answer goes into @msg. Return: false if there is none. */
static bool fake_answer(const struct fake *fake, struct rf_vu_message *msg)
{
	bool natural = rf_vu_request_def(msg->hdr.request)->reply == RF_VU_REPLY_ALWAYS;
	bool ack = msg->hdr.flags & RF_VU_FLAG_NEED_REPLY;

	msg->hdr.flags = 0x5;
	switch (msg->hdr.request) {
	case RF_VU_GET_CONFIG:
		memset(msg->payload.config.data, 0x2a, msg->payload.config.size);
		return true;
	case RF_VU_GET_FEATURES:
		msg->payload.u64 = fake->features;
		break;
	case RF_VU_GET_PROTOCOL_FEATURES:
		msg->payload.u64 = fake->protocol_features;
		break;
	default:
		msg->payload.u64 = natural ? 2 : 0;
	}
	msg->hdr.size = 8;
	return natural || ack;
}

/* Make an answer wrong. Return: how many bytes of it to send. */
static size_t fake_spoil(enum fault fault, struct rf_vu_message *msg)
{
	size_t len = RF_VU_HDR_BYTES + msg->hdr.size;

	switch (fault) {
	case FAULT_ID:
		msg->hdr.request++;
		return len;
	case FAULT_NO_REPLY_BIT:
		msg->hdr.flags = 0x1;
		return len;
	case FAULT_ECHO:
		msg->hdr.flags = 0xd;
		return len;
	case FAULT_VERSION:
		msg->hdr.flags = 0x6;
		return len;
	case FAULT_SHORT:
		msg->hdr.size--;
		return len - 1;
	case FAULT_LONG:
		msg->hdr.size++;
		return len + 1;
	case FAULT_HUGE:
		msg->hdr.size = UINT32_MAX;
		return len;
	case FAULT_EMPTY:
		msg->hdr.size = 0;
		return RF_VU_HDR_BYTES;
	case FAULT_NACK:
		msg->payload.u64 = 1;
		return len;
	case FAULT_DRIP:
		return 6;
	case FAULT_HALF:
		return RF_VU_HDR_BYTES;
	case FAULT_SILENT:
	case FAULT_HANGUP:
		return 0;
	default:
		return len;
	}
}

/* Return: false if the connection is to be closed. */
static bool fake_serve(struct fake *fake, struct rf_vu_message *msg)
{
	enum fault fault = msg->hdr.request == fake->at ? fake->fault : FAULT_NONE;
	unsigned n_fds = fault == FAULT_FD ? 1 : fault == FAULT_FLOOD ? 100 : 0;
	uint8_t buf[RF_VU_HDR_BYTES + RF_VU_MAX_PAYLOAD + 1] = { 0 };
	int fds[100];
	size_t len;

	if (!fake_answer(fake, msg))
		return fault != FAULT_HANGUP;
	len = fake_spoil(fault, msg);
	memcpy(buf, &msg->hdr, RF_VU_HDR_BYTES);
	memcpy(buf + RF_VU_HDR_BYTES, msg->payload.bytes, RF_VU_MAX_PAYLOAD);
	for (unsigned i = 0; i < n_fds; i++)
		fds[i] = fake->fd;
	if (len)
		(void)rf_fd_send(fake->fd, buf, len, fds, n_fds);
	return fault != FAULT_HANGUP && fault != FAULT_HALF;
}

static void *fake_run(void *arg)
{
	struct fake *fake = arg;
	struct rf_vu_message msg;

	while (fake->fault != FAULT_UNREAD && fake_receive(fake, &msg))
		if (!fake_serve(fake, &msg))
			break;
	close(fake->fd);
	return NULL;
}

static char last_line[256];

static void sink(void *ctx RF_UNUSED, enum rf_log_level level RF_UNUSED, const char *name RF_UNUSED,
		 const char *line)
{
	snprintf(last_line, sizeof(last_line), "%s", line);
}

static const struct rf_log last_log = { .level = RF_LOG_DEBUG, .sink = sink };

static struct rf_vu_front *front_new(int fd, uint64_t timeout_ns)
{
	struct rf_vu_front *front;

	last_line[0] = '\0';
	assert_int_equal(rf_vu_front_new(fd, timeout_ns, &last_log, &front), 0);
	return front;
}

/* Why the last session is over, as the log tells it; RF_VU_NONE if it tells nothing. */
static enum rf_vu_reason logged_reason(void)
{
	for (unsigned reason = 1; reason < RF_VU_N_REASONS; reason++) {
		const char *text = rf_vu_reason_text(reason);

		if (strlen(last_line) > strlen(text) &&
		    !strcmp(last_line + strlen(last_line) - strlen(text), text))
			return reason;
	}
	assert_string_equal(last_line, "");
	return RF_VU_NONE;
}

static struct rf_vu_front *fake_start(struct fake *fake)
{
	bool vain = fake->fault == FAULT_SILENT || fake->fault == FAULT_DRIP;
	struct rf_vu_front *front;
	int sv[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	fake->fd = sv[1];
	assert_int_equal(pthread_create(&fake->thread, NULL, fake_run, fake), 0);
	front = front_new(sv[0], vain ? TIMEOUT_NS : PATIENT_NS);
	assert_int_equal(rf_vu_front_fd(front), sv[0]);
	return front;
}

static void fake_stop(struct fake *fake, struct rf_vu_front *front)
{
	rf_vu_front_free(front);
	pthread_join(fake->thread, NULL);
}

/* All that a front end does in its life; the first error ends it. */
static int live(struct rf_vu_front *front, int memfd, int kick, int call)
{
	struct rf_mem_region regions[] = {
		{ .gpa = { 0 }, .uva = { 0x7f0000000000 }, .size = 0x100000 },
		{ .gpa = { 0x100000 },
		  .uva = { 0x7f0000200000 },
		  .size = 0x100000,
		  .offset = 0x100000 },
	};
	struct rf_vhost_vring ring = { .num = 256,
				       .base = 5,
				       .desc = { 0x7f0000001000 },
				       .driver = { 0x7f0000003000 },
				       .device = { 0x7f0000004000 },
				       .kick_fd = kick,
				       .call_fd = call,
				       .err_fd = -1 };
	int fds[] = { memfd, memfd };
	uint64_t features, protocol, num, config;
	int r = rf_vu_front_negotiate(front, F_VERSION_1 | F_EVENT_IDX, F_VERSION_1, ALL_PF,
				      &features, &protocol);

	if (r == 0 && protocol & PF(RF_VU_PF_MQ))
		r = rf_vu_front_get_queue_num(front, &num);
	if (r == 0 && protocol & PF(RF_VU_PF_CONFIG))
		r = rf_vu_front_get_config(front, 0, &config, sizeof(config));
	if (r == 0)
		r = rf_vu_front_set_features(front, features);
	if (r == 0)
		r = rf_vu_front_set_mem(front, regions, fds, 2);
	if (r == 0)
		r = rf_vu_front_start_ring(front, 0, &ring);
	ring.err_fd = call;
	ring.base = 0;
	if (r == 0)
		r = rf_vu_front_start_ring(front, 1, &ring);
	return r;
}

static const struct {
	const char *name;
	uint64_t features, protocol_features;
	unsigned n_fds;
	const char *seen;
} orders[] = {
	{ "everything", BIT_30 | F_VERSION_1, UINT64_MAX, 2 + 2 + 3,
	  "SET_OWNER GET_FEATURES GET_PROTOCOL_FEATURES SET_PROTOCOL_FEATURES GET_QUEUE_NUM "
	  "GET_CONFIG SET_FEATURES! ADD_MEM_REG! ADD_MEM_REG! "
	  "SET_VRING_NUM! SET_VRING_BASE! SET_VRING_ADDR! SET_VRING_CALL! SET_VRING_KICK! "
	  "SET_VRING_ENABLE! "
	  "SET_VRING_NUM! SET_VRING_BASE! SET_VRING_ADDR! SET_VRING_CALL! SET_VRING_ERR! "
	  "SET_VRING_KICK! SET_VRING_ENABLE!" },
	{ "no REPLY_ACK", BIT_30 | F_VERSION_1, 0, 2 + 2 + 3,
	  "SET_OWNER GET_FEATURES GET_PROTOCOL_FEATURES SET_PROTOCOL_FEATURES GET_FEATURES "
	  "SET_FEATURES GET_FEATURES SET_MEM_TABLE GET_FEATURES "
	  "SET_VRING_NUM SET_VRING_BASE SET_VRING_ADDR SET_VRING_CALL SET_VRING_KICK "
	  "SET_VRING_ENABLE GET_FEATURES "
	  "SET_VRING_NUM SET_VRING_BASE SET_VRING_ADDR SET_VRING_CALL SET_VRING_ERR "
	  "SET_VRING_KICK SET_VRING_ENABLE GET_FEATURES" },
	{ "no bit 30", F_VERSION_1, UINT64_MAX, 2 + 2 + 3,
	  "SET_OWNER GET_FEATURES GET_FEATURES "
	  "SET_FEATURES GET_FEATURES SET_MEM_TABLE GET_FEATURES "
	  "SET_VRING_NUM SET_VRING_BASE SET_VRING_ADDR SET_VRING_CALL SET_VRING_KICK "
	  "GET_FEATURES "
	  "SET_VRING_NUM SET_VRING_BASE SET_VRING_ADDR SET_VRING_CALL SET_VRING_ERR "
	  "SET_VRING_KICK GET_FEATURES" },
};

static void test_orders(void **state)
{
	int memfd = memfd_create("guest", MFD_CLOEXEC), event = rf_eventfd_new();

	(void)state;
	for (size_t i = 0; i < RF_ARRAY_SIZE(orders); i++) {
		struct fake fake = { .features = orders[i].features,
				     .protocol_features = orders[i].protocol_features };
		struct rf_vu_front *front = fake_start(&fake);

		assert_int_equal(live(front, memfd, event, event), 0);
		assert_int_equal(logged_reason(), RF_VU_NONE);
		fake_stop(&fake, front);
		assert_string_equal(fake.seen, orders[i].seen);
		assert_int_equal(fake.n_fds, orders[i].n_fds);
		/* Bit 30 is acknowledged if it was offered, and what was not offered is not. */
		assert_int_equal(fake.acked, orders[i].features);
	}
	close(memfd);
	close(event);
}

/* Hostile and broken back ends: what is wrong where, and how the session ends. */
static const struct {
	unsigned row;
	uint32_t at;
	enum fault fault;
	int result;
	enum rf_vu_reason reason;
} faults[] = {
	{ 1, RF_VU_GET_FEATURES, FAULT_ID, -EPROTO, RF_VU_REPLY },
	{ 2, RF_VU_GET_FEATURES, FAULT_NO_REPLY_BIT, -EPROTO, RF_VU_REPLY },
	{ 3, RF_VU_GET_FEATURES, FAULT_ECHO, -EPROTO, RF_VU_REPLY },
	{ 4, RF_VU_GET_FEATURES, FAULT_VERSION, -EPROTO, RF_VU_REPLY },
	{ 5, RF_VU_GET_FEATURES, FAULT_SHORT, -EPROTO, RF_VU_REPLY },
	{ 6, RF_VU_GET_FEATURES, FAULT_LONG, -EPROTO, RF_VU_REPLY },
	{ 7, RF_VU_GET_FEATURES, FAULT_HUGE, -EPROTO, RF_VU_REPLY },
	{ 8, RF_VU_GET_FEATURES, FAULT_EMPTY, -EPROTO, RF_VU_REPLY },
	{ 9, RF_VU_GET_FEATURES, FAULT_FD, -EPROTO, RF_VU_FDS },
	{ 10, RF_VU_GET_FEATURES, FAULT_FLOOD, -EPROTO, RF_VU_FDS },
	{ 11, RF_VU_GET_FEATURES, FAULT_SILENT, -ETIMEDOUT, RF_VU_STALLED },
	{ 12, RF_VU_GET_FEATURES, FAULT_DRIP, -ETIMEDOUT, RF_VU_STALLED },
	{ 13, RF_VU_GET_FEATURES, FAULT_HALF, -EPROTO, RF_VU_HANGUP },
	{ 14, RF_VU_GET_FEATURES, FAULT_HANGUP, -EPROTO, RF_VU_HANGUP },
	{ 15, RF_VU_SET_OWNER, FAULT_UNREAD, -EPROTO, RF_VU_HANGUP },
	{ 20, RF_VU_SET_FEATURES, FAULT_NACK, -EPROTO, RF_VU_REFUSED },
	{ 21, RF_VU_ADD_MEM_REG, FAULT_NACK, -EPROTO, RF_VU_REFUSED },
	{ 22, RF_VU_SET_VRING_KICK, FAULT_NACK, -EPROTO, RF_VU_REFUSED },
	{ 23, RF_VU_SET_VRING_ENABLE, FAULT_NACK, -EPROTO, RF_VU_REFUSED },
	{ 24, RF_VU_SET_VRING_ADDR, FAULT_ECHO, -EPROTO, RF_VU_REPLY },
	{ 25, RF_VU_SET_VRING_ADDR, FAULT_SILENT, -ETIMEDOUT, RF_VU_STALLED },
	{ 26, RF_VU_SET_VRING_NUM, FAULT_HANGUP, -EPROTO, RF_VU_HANGUP },
	{ 30, RF_VU_GET_CONFIG, FAULT_EMPTY, -EPROTO, RF_VU_REFUSED },
	{ 31, RF_VU_GET_CONFIG, FAULT_SHORT, -EPROTO, RF_VU_REPLY },
	{ 32, RF_VU_GET_CONFIG, FAULT_LONG, -EPROTO, RF_VU_REPLY },
};

static void test_faults(void **state)
{
	int memfd = memfd_create("guest", MFD_CLOEXEC), event = rf_eventfd_new();
	unsigned fds = open_fds();

	(void)state;
	for (size_t i = 0; i < RF_ARRAY_SIZE(faults); i++) {
		struct fake fake = { .features = BIT_30 | F_VERSION_1,
				     .protocol_features = ALL_PF,
				     .at = faults[i].at,
				     .fault = faults[i].fault };
		struct rf_vu_front *front = fake_start(&fake);
		uint64_t unused;
		int r = live(front, memfd, event, event);

		if (r != faults[i].result || logged_reason() != faults[i].reason)
			fail_msg("row %u: %d, %s", faults[i].row, r,
				 rf_vu_reason_text(logged_reason()));
		/* It is over, whatever is asked next. */
		assert_int_equal(rf_vu_front_get_queue_num(front, &unused), -EPROTO);
		assert_int_equal(rf_vu_front_set_features(front, 0), -EPROTO);
		fake_stop(&fake, front);
		if (open_fds() != fds)
			fail_msg("row %u leaks descriptors", faults[i].row);
	}
	close(memfd);
	close(event);
}

/* Without REPLY_ACK a back end can only hang up, and the fence behind the request sees it. */
static void test_fence(void **state)
{
	int memfd = memfd_create("guest", MFD_CLOEXEC), event = rf_eventfd_new();
	static const uint32_t at[] = { RF_VU_SET_FEATURES, RF_VU_SET_MEM_TABLE,
				       RF_VU_SET_VRING_KICK, RF_VU_SET_PROTOCOL_FEATURES };

	(void)state;
	for (size_t i = 0; i < RF_ARRAY_SIZE(at); i++) {
		struct fake fake = { .features = BIT_30 | F_VERSION_1,
				     .at = at[i],
				     .fault = FAULT_HANGUP };
		struct rf_vu_front *front = fake_start(&fake);

		assert_int_equal(live(front, memfd, event, event), -EPROTO);
		assert_int_equal(logged_reason(), RF_VU_HANGUP);
		fake_stop(&fake, front);
	}
	close(memfd);
	close(event);
}

/* A needed feature that is not offered: not an error of the session. */
static void test_not_offered(void **state)
{
	struct fake fake = { .features = BIT_30 | F_EVENT_IDX, .protocol_features = ALL_PF };
	struct rf_vu_front *front = fake_start(&fake);
	uint64_t features = 1, protocol = 1;

	(void)state;
	assert_int_equal(
		rf_vu_front_negotiate(front, F_VERSION_1, F_VERSION_1, 0, &features, &protocol),
		-ENOTSUP);
	assert_int_equal(features, 1);
	assert_int_equal(protocol, 1);
	assert_int_equal(logged_reason(), RF_VU_NONE);
	assert_int_equal(rf_vu_front_negotiate(front, F_EVENT_IDX, 0, ALL_PF, &features, &protocol),
			 0);
	assert_int_equal(features, F_EVENT_IDX);
	assert_int_equal(protocol, ALL_PF);
	fake_stop(&fake, front);
}

/* Replies in single bytes are replies; a deadline is one for the whole answer. */
struct drip {
	int fd;
	unsigned delay_ms;
};

static void *drip_run(void *arg)
{
	struct drip *drip = arg;
	uint8_t request[64],
		reply[20] = { RF_VU_GET_QUEUE_NUM, 0, 0, 0, 5, 0, 0, 0, 8, 0, 0, 0, 3 };

	(void)!read(drip->fd, request, sizeof(request));
	for (size_t i = 0; i < sizeof(reply); i++) {
		usleep(drip->delay_ms * 1000);
		if (send(drip->fd, &reply[i], 1, MSG_NOSIGNAL) < 0)
			break;
	}
	close(drip->fd);
	return NULL;
}

static int drip(unsigned delay_ms, uint64_t *ret_num, enum rf_vu_reason *ret_reason)
{
	struct drip drip = { .delay_ms = delay_ms };
	struct rf_vu_front *front;
	pthread_t thread;
	int sv[2], r;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	drip.fd = sv[1];
	assert_int_equal(pthread_create(&thread, NULL, drip_run, &drip), 0);
	front = front_new(sv[0], TIMEOUT_NS);
	r = rf_vu_front_get_queue_num(front, ret_num);
	*ret_reason = logged_reason();
	rf_vu_front_free(front);
	pthread_join(thread, NULL);
	return r;
}

static void test_pieces(void **state)
{
	enum rf_vu_reason reason;
	uint64_t num = 0, begin;

	(void)state;
	assert_int_equal(drip(1, &num, &reason), 0);
	assert_int_equal(num, 3);
	begin = rf_clock_now();
	assert_int_equal(drip(50, &num, &reason), -ETIMEDOUT);
	assert_int_equal(reason, RF_VU_STALLED);
	assert_true(rf_clock_now() - begin >= TIMEOUT_NS);
}

/* A back end that never reads: sending has the deadline, too. */
static void test_full_socket(void **state)
{
	struct rf_vu_front *front;
	int sv[2], r, small = 1;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	setsockopt(sv[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	assert_int_equal(rf_fd_set_nonblock(sv[0]), 0);
	while (send(sv[0], sv, 1, 0) > 0)
		;
	front = front_new(sv[0], TIMEOUT_NS);
	r = rf_vu_front_set_features(front, 0);
	assert_int_equal(r, -ETIMEDOUT);
	assert_int_equal(logged_reason(), RF_VU_STALLED);
	rf_vu_front_free(front);
	close(sv[1]);
}

/* The socket is taken over also when that fails. */
static void test_new_fails(void **state)
{
	struct rf_vu_front *front;
	int fd = rf_eventfd_new();

	(void)state;
	close(fd);
	assert_int_equal(rf_vu_front_new(fd, TIMEOUT_NS, NULL, &front), -EBADF);
	rf_vu_front_free(NULL);
}

/* Our own session on the other side, in a thread of its own. */
struct served {
	struct vu_lab *lab;
	_Atomic bool stop;
};

static void *serve(void *arg)
{
	struct served *served = arg;

	while (!atomic_load(&served->stop))
		rf_loop_turn(served->lab->loop, 100);
	return NULL;
}

static void run_against_session(uint64_t protocol_features)
{
	struct rf_vu_front *front;
	struct served served = { 0 };
	int call = rf_eventfd_new(), kick = rf_eventfd_new();
	pthread_t thread;
	struct vu_lab lab;

	vu_lab_init(&lab, "front end");
	lab.device.protocol_features = protocol_features;
	assert_int_equal(ftruncate(lab.memfd, 0x200000), 0);
	vu_lab_open(&lab);
	served.lab = &lab;
	assert_int_equal(pthread_create(&thread, NULL, serve, &served), 0);
	front = front_new(rf_fd_steal(&lab.peer), 2 * RF_NS_PER_SEC);
	assert_int_equal(live(front, lab.memfd, kick, call), 0);
	assert_int_equal(logged_reason(), RF_VU_NONE);
	atomic_store(&served.stop, true);
	rf_loop_wake(lab.loop);
	pthread_join(thread, NULL);
	vu_lab_expect(&lab, "start0@5 start1@0");
	assert_int_equal(rf_counter_read(&lab.counters.vu_refused), 0);
	rf_vu_front_free(front);
	vu_lab_pump(&lab);
	vu_lab_expect(&lab, "stopping0 stop0@5 stopping1 stop1@0 closed=HANGUP");
	vu_lab_fini(&lab);
	close(call);
	close(kick);
}

static void test_against_session(void **state)
{
	(void)state;
	run_against_session(ALL_PF);
	run_against_session(0);
	run_against_session(PF(RF_VU_PF_REPLY_ACK));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_orders),    cmocka_unit_test(test_faults),
		cmocka_unit_test(test_fence),     cmocka_unit_test(test_not_offered),
		cmocka_unit_test(test_pieces),    cmocka_unit_test(test_full_socket),
		cmocka_unit_test(test_new_fails), cmocka_unit_test(test_against_session),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
