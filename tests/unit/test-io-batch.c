/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sends and receives in one system call return what they return one by one, whatever the sockets
 * are like; and where io_uring cannot be had, or fails, nothing is lost.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "io_batch.h"

#define BYTES 10000u

/* What io_uring's calls return instead, so many times. */
static struct {
	int init, init_times;
	int submit, submit_times;
} fault;

int __real_io_uring_queue_init_params(unsigned n, struct io_uring *ring, struct io_uring_params *p);
int __wrap_io_uring_queue_init_params(unsigned n, struct io_uring *ring, struct io_uring_params *p);
int __real_io_uring_submit_and_wait(struct io_uring *ring, unsigned n);
int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned n);

int __wrap_io_uring_queue_init_params(unsigned n, struct io_uring *ring, struct io_uring_params *p)
{
	if (fault.init_times && fault.init_times--)
		return fault.init;
	return __real_io_uring_queue_init_params(n, ring, p);
}

int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned n)
{
	if (fault.submit_times && fault.submit_times--)
		return fault.submit;
	return __real_io_uring_submit_and_wait(ring, n);
}

/* What a socket is like before. */
enum like {
	LIKE_FREE,
	LIKE_FULL,
	LIKE_NEARLY_FULL,
	LIKE_CLOSED,
	LIKE_CLOSED_UNREAD,
	LIKE_PEER_SHUT_RD,
	LIKE_PEER_SHUT_WR,
	LIKE_HOLDS_SOME,
	LIKE_NO_SOCKET,
	LIKE_BAD_MEMORY,
	LIKE_HALF_BAD_MEMORY,
	N_LIKE,
};

static const char *const like_names[N_LIKE] = {
	[LIKE_FREE] = "free",
	[LIKE_FULL] = "full",
	[LIKE_NEARLY_FULL] = "nearly full",
	[LIKE_CLOSED] = "closed by the peer",
	[LIKE_CLOSED_UNREAD] = "closed by the peer with bytes unread",
	[LIKE_PEER_SHUT_RD] = "the peer reads no more",
	[LIKE_PEER_SHUT_WR] = "the peer sends no more",
	[LIKE_HOLDS_SOME] = "bytes wait",
	[LIKE_NO_SOCKET] = "no socket",
	[LIKE_BAD_MEMORY] = "no memory there",
	[LIKE_HALF_BAD_MEMORY] = "memory that ends",
};

/**
 * struct end - One socket and its message
 */
struct end {
	int fd, peer;
	struct iovec iov[2];
	uint8_t bytes[BYTES];
};

static uint8_t *hole;

static void fill(int fd)
{
	uint8_t buf[BYTES] = { 0 };

	while (send(fd, buf, sizeof(buf), MSG_DONTWAIT) > 0)
		;
}

static void prepare(struct end *e, enum like like)
{
	static const int small = 1;
	int fds[2];
	uint8_t buf[64 * 1024];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	e->fd = fds[0];
	e->peer = fds[1];
	memset(e->bytes, 'x', sizeof(e->bytes));
	e->iov[0] = (struct iovec){ e->bytes, BYTES / 2 };
	e->iov[1] = (struct iovec){ e->bytes + BYTES / 2, BYTES / 2 };
	switch (like) {
	case LIKE_FULL:
		fill(e->fd);
		break;
	case LIKE_NEARLY_FULL:
		setsockopt(e->fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
		break;
	case LIKE_CLOSED_UNREAD:
		assert_int_equal(send(e->fd, buf, 10, 0), 10);
		assert_int_equal(send(e->peer, buf, 10, 0), 10);
		__attribute__((fallthrough));
	case LIKE_CLOSED:
		close(e->peer);
		e->peer = -1;
		break;
	case LIKE_PEER_SHUT_RD:
		shutdown(e->peer, SHUT_RD);
		break;
	case LIKE_PEER_SHUT_WR:
		shutdown(e->peer, SHUT_WR);
		break;
	case LIKE_HOLDS_SOME:
		memset(buf, 'y', 100);
		assert_int_equal(send(e->peer, buf, 100, 0), 100);
		break;
	case LIKE_NO_SOCKET:
		close(e->fd);
		e->fd = open("/dev/null", O_RDWR);
		break;
	case LIKE_BAD_MEMORY:
		e->iov[0].iov_base = e->iov[1].iov_base = hole;
		assert_int_equal(send(e->peer, buf, BYTES, 0), BYTES);
		break;
	case LIKE_HALF_BAD_MEMORY:
		e->iov[1].iov_base = hole;
		assert_int_equal(send(e->peer, buf, BYTES, 0), BYTES);
		break;
	default:
		break;
	}
}

static void finish(struct end *e)
{
	close(e->fd);
	if (e->peer >= 0)
		close(e->peer);
}

static ssize_t alone(struct end *e, bool send_it)
{
	struct msghdr msg = { .msg_iov = e->iov, .msg_iovlen = 2 };
	ssize_t r = send_it ? sendmsg(e->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL)
			    : recvmsg(e->fd, &msg, MSG_DONTWAIT);

	return r < 0 ? -errno : r;
}

static void set_op(struct rf_io_op *op, struct end *e, bool send_it)
{
	*op = (struct rf_io_op){
		.fd = e->fd,
		.send = send_it,
		.msg = { .msg_iov = e->iov, .msg_iovlen = 2 },
	};
}

static void need_io_uring(void)
{
	struct io_uring ring;
	int r = io_uring_queue_init(1, &ring, 0);

	if (r < 0) {
		print_message("no io_uring: %s\n", strerror(-r));
		skip();
	}
	io_uring_queue_exit(&ring);
}

/* Every kind of socket in one batch; and its like alone. */
static void as_alone(bool send_it)
{
	static struct end ends[N_LIKE], likes[N_LIKE];
	struct rf_io_batch batch = { 0 };
	struct rf_io_op ops[N_LIKE];

	need_io_uring();
	for (enum like like = 0; like < N_LIKE; like++) {
		prepare(&ends[like], like);
		prepare(&likes[like], like);
		set_op(&ops[like], &ends[like], send_it);
	}
	assert_true(rf_io_batch_run(&batch, ops, N_LIKE));
	for (enum like like = 0; like < N_LIKE; like++) {
		ssize_t r = alone(&likes[like], send_it);

		if (ops[like].result != r)
			fail_msg("%s: %zd in a batch, %zd alone", like_names[like],
				 ops[like].result, r);
		assert_memory_equal(ends[like].bytes, likes[like].bytes, BYTES);
		finish(&ends[like]);
		finish(&likes[like]);
	}
	/* There was a partial one. */
	assert_in_range(ops[send_it ? LIKE_NEARLY_FULL : LIKE_HOLDS_SOME].result, 1, BYTES - 1);
	rf_io_batch_fini(&batch);
}

static void sends_as_alone(void **state)
{
	(void)state;
	as_alone(true);
}

static void receives_as_alone(void **state)
{
	(void)state;
	as_alone(false);
}

static void from_one_to_all(void **state)
{
	static struct end ends[RF_IO_BATCH_MAX];
	struct rf_io_batch batch = { 0 };
	struct rf_io_op ops[RF_IO_BATCH_MAX];

	(void)state;
	need_io_uring();
	for (unsigned n = 1; n <= RF_IO_BATCH_MAX; n++) {
		for (unsigned i = 0; i < n; i++) {
			prepare(&ends[i], LIKE_FREE);
			ends[i].iov[0].iov_len = i + 1;
			ends[i].iov[1].iov_len = 0;
			set_op(&ops[i], &ends[i], true);
		}
		assert_true(rf_io_batch_run(&batch, ops, n));
		for (unsigned i = 0; i < n; i++) {
			uint8_t buf[BYTES];

			assert_int_equal(ops[i].result, i + 1);
			assert_int_equal(recv(ends[i].peer, buf, sizeof(buf), 0), i + 1);
			finish(&ends[i]);
		}
	}
	rf_io_batch_fini(&batch);
}

/* Without io_uring: told once, not tried again. */
static unsigned n_lines;

static void count_line(void *ctx, enum rf_log_level level, const char *name, const char *line)
{
	(void)ctx;
	(void)level;
	(void)name;
	assert_non_null(strstr(line, "io_uring cannot be used"));
	n_lines++;
}

static const struct fault_row {
	const char *name;
	int init, init_times;
	int submit, submit_times;
	/* Of two batches: how many were run, and whether there is io_uring afterwards. */
	unsigned ran;
	bool refused;
} fault_rows[] = {
	{ "no fault", 0, 0, 0, 0, 2, false },
	{ "flags unknown", -EINVAL, 1, 0, 0, 2, false },
	{ "not in this kernel", -ENOSYS, 99, 0, 0, 0, true },
	{ "forbidden", -EPERM, 99, 0, 0, 0, true },
	{ "no memory", -ENOMEM, 1, 0, 0, 0, true },
	{ "no descriptor", -EMFILE, 1, 0, 0, 0, true },
	{ "made by another thread", 0, 0, -EEXIST, 1, 2, false },
	{ "a signal", 0, 0, -EINTR, 3, 2, false },
	{ "no memory for the operations, once", 0, 0, -ENOMEM, 1, 2, false },
	{ "busy, twice", 0, 0, -EBUSY, 2, 2, false },
	{ "entering forbidden", 0, 0, -EACCES, 99, 0, true },
	{ "nothing taken, for ever", 0, 0, 0, 99, 0, true },
};

static void faults(void **state)
{
	(void)state;
	need_io_uring();
	for (size_t row = 0; row < RF_ARRAY_SIZE(fault_rows); row++) {
		const struct fault_row *f = &fault_rows[row];
		const struct rf_log log = { .level = RF_LOG_DEBUG, .sink = count_line };
		struct rf_io_batch batch = { .log = &log };
		static struct end end;
		unsigned ran = 0;

		n_lines = 0;
		fault.init = f->init;
		fault.init_times = f->init_times;
		fault.submit = f->submit;
		fault.submit_times = f->submit_times;
		prepare(&end, LIKE_FREE);
		for (unsigned i = 0; i < 2; i++) {
			struct rf_io_op op;

			set_op(&op, &end, true);
			if (rf_io_batch_run(&batch, &op, 1)) {
				assert_int_equal(op.result, BYTES);
				ran++;
			}
		}
		fault.init_times = fault.submit_times = 0;
		if (ran != f->ran || batch.refused != f->refused || n_lines != f->refused)
			fail_msg("%s: %u ran, refused %d, %u lines", f->name, ran, batch.refused,
				 n_lines);
		rf_io_batch_fini(&batch);
		finish(&end);
	}
}

/* A ring is best for one thread, but goes on with another. */
static void *run_elsewhere(void *arg)
{
	static struct end end;
	struct rf_io_op op;
	bool ran;

	prepare(&end, LIKE_FREE);
	set_op(&op, &end, true);
	ran = rf_io_batch_run(arg, &op, 1) && op.result == BYTES;
	finish(&end);
	return ran ? arg : NULL;
}

static void another_thread(void **state)
{
	struct rf_io_batch batch = { 0 };

	(void)state;
	need_io_uring();
	for (unsigned i = 0; i < 3; i++) {
		pthread_t thread;
		void *ran;

		assert_non_null(run_elsewhere(&batch));
		assert_int_equal(pthread_create(&thread, NULL, run_elsewhere, &batch), 0);
		pthread_join(thread, &ran);
		assert_non_null(ran);
	}
	assert_true(batch.any_thread);
	assert_false(batch.refused);
	rf_io_batch_fini(&batch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sends_as_alone),  cmocka_unit_test(receives_as_alone),
		cmocka_unit_test(from_one_to_all), cmocka_unit_test(faults),
		cmocka_unit_test(another_thread),
	};

	hole = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (hole == MAP_FAILED)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
