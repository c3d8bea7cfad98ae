/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Faults for a rig: a turn of the loop is code under test, whoever asks for it, and what the fake
 * guest finds wrong after a fault is the fault's doing.
 */
#include <errno.h>
#include <liburing.h>
#include <stdio.h>
#include <string.h>

#include "fake_guest.h"
#include "fault_plan.h"

_Noreturn void __real_fake_failed(const char *file, int line, const char *what);
_Noreturn void __wrap_fake_failed(const char *file, int line, const char *what);

_Noreturn void __wrap_fake_failed(const char *file, int line, const char *what)
{
	/* A loop that does not come to rest is always wrong. */
	if (fault_may_escape && fault_hit() && !strstr(what, "MANY_TURNS"))
		longjmp(fault_escape, 1);
	fprintf(stderr, "fault: %s\n", fault_text());
	__real_fake_failed(file, line, what);
}

int __real_rf_loop_turn(struct rf_loop *loop, int timeout_ms);
int __wrap_rf_loop_turn(struct rf_loop *loop, int timeout_ms);

int __wrap_rf_loop_turn(struct rf_loop *loop, int timeout_ms)
{
	fault_turn();
	return FAULT_RUN(__real_rf_loop_turn(loop, timeout_ms));
}

/* io_uring's calls, which the host half alone makes. They return -errno. */
int __real_io_uring_queue_init_params(unsigned n, struct io_uring *ring, struct io_uring_params *p);
int __wrap_io_uring_queue_init_params(unsigned n, struct io_uring *ring, struct io_uring_params *p);
int __real_io_uring_submit_and_wait(struct io_uring *ring, unsigned n);
int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned n);

int __wrap_io_uring_queue_init_params(unsigned n, struct io_uring *ring, struct io_uring_params *p)
{
	static const struct fault_call call = { "io_uring_setup",
						{ EPERM, ENOSYS, ENOMEM, EMFILE } };
	int way = fault_decide(&call);

	return way ? -way : __real_io_uring_queue_init_params(n, ring, p);
}

int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned n)
{
	static const struct fault_call call = { "io_uring_enter",
						{ EACCES, ENOMEM, EBUSY, -EINTR, -EAGAIN } };
	int way = fault_decide(&call);

	return way ? -way : __real_io_uring_submit_and_wait(ring, n);
}
