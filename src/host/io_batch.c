/* SPDX-License-Identifier: BSD-3-Clause */
#include "io_batch.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* Rings that fail in a row before it is not tried any more. */
#define MAX_BROKEN 3u

static void refuse(struct rf_io_batch *batch, int error)
{
	batch->refused = true;
	rf_log(batch->log, RF_LOG_INFO,
	       "io_uring cannot be used (%s): one system call for each connection",
	       strerror(-error));
}

static void close_ring(struct rf_io_batch *batch)
{
	if (batch->open)
		io_uring_queue_exit(&batch->ring);
	batch->open = false;
}

static int make_ring(struct rf_io_batch *batch, unsigned flags)
{
	struct io_uring_params params = { .flags = flags };

	return io_uring_queue_init_params(RF_IO_BATCH_MAX, &batch->ring, &params);
}

static bool open_ring(struct rf_io_batch *batch)
{
	int r = -EINVAL;

	if (batch->open || batch->refused)
		return batch->open;
	if (!batch->any_thread)
		r = make_ring(batch, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
	/* Linux before 6.1 has not heard of these. */
	if (r == -EINVAL)
		r = make_ring(batch, 0);
	if (r < 0)
		refuse(batch, r);
	batch->open = r >= 0;
	return batch->open;
}

static void put(struct io_uring *ring, struct rf_io_op *op)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

	assert(sqe);
	if (op->send)
		io_uring_prep_sendmsg(sqe, op->fd, &op->msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	else
		io_uring_prep_recvmsg(sqe, op->fd, &op->msg, MSG_DONTWAIT);
	io_uring_sqe_set_data(sqe, op);
	op->result = -EINTR;
}

static unsigned collect(struct io_uring *ring)
{
	struct io_uring_cqe *cqe;
	unsigned head, n = 0;

	io_uring_for_each_cqe(ring, head, cqe)
	{
		struct rf_io_op *op = io_uring_cqe_get_data(cqe);

		op->result = cqe->res;
		n++;
	}
	io_uring_cq_advance(ring, n);
	return n;
}

/*
 * Submit what was put and wait for all of it. What the kernel has taken it has carried out, too; so
 * when it fails, only what it did not take is missing.
 *
 * Return: 0, or -errno; @ret_done operations were carried out.
 */
static int submit(struct io_uring *ring, unsigned n, unsigned *ret_done)
{
	unsigned done = 0, more;
	int r;

	do {
		r = io_uring_submit_and_wait(ring, n - done);
		more = collect(ring);
		done += more;
	} while (done < n && (more || r > 0 || r == -EINTR));
	*ret_done = done;
	return done == n ? 0 : r < 0 ? r : -EAGAIN;
}

bool rf_io_batch_run(struct rf_io_batch *batch, struct rf_io_op *ops, unsigned n)
{
	unsigned i, done = 0;
	int r = 0;

	assert(n <= RF_IO_BATCH_MAX);
	while (!done && open_ring(batch)) {
		for (i = 0; i < n; i++)
			put(&batch->ring, &ops[i]);
		r = submit(&batch->ring, n, &done);
		if (r == 0) {
			batch->broken = 0;
			break;
		}
		/* What was not taken must not be: a new ring next time. */
		close_ring(batch);
		/* Made by another thread? */
		if (r == -EEXIST && !batch->any_thread)
			batch->any_thread = true;
		else if (++batch->broken == MAX_BROKEN)
			refuse(batch, r);
	}
	return done > 0;
}

void rf_io_batch_fini(struct rf_io_batch *batch)
{
	close_ring(batch);
}
