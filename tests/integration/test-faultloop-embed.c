/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The Nth system call and the Nth allocation fail while a program opens devices in its own process,
 * over sockets that it gives away.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/util.h"
#include "fault_loop.h"
#include "ringferry/host.h"

static char dir[32], uds[48];

/* Listen at an address that the kernel chooses. */
static int bind_nameless(int fd)
{
	const struct sockaddr_un addr = { .sun_family = AF_UNIX };

	if (bind(fd, (const struct sockaddr *)&addr, sizeof(addr.sun_family)) < 0)
		return -errno;
	return listen(fd, 1) < 0 ? -errno : 0;
}

/* A host in one's own process: sockets that were given, and a descriptor to watch it by. */
static void embedded(void)
{

	struct rf_host_vsock_options o;
	struct rf_host_device *device;
	struct rf_host *host = NULL;
	int fds[2], r;

	r = FAULT_RUN(rf_host_new(NULL, &host));
	if (r < 0) {
		assert_true(fault_hit() && !host);
		return;
	}
	r = FAULT_RUN(rf_host_fd(host));
	assert_true(r >= 0 || fault_hit());
	for (unsigned connected = 0; connected < 2; connected++) {
		rf_host_vsock_options_init(&o);
		o.guest_cid = 4;
		o.uds_path = uds;
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
		if (!connected) {
			close(fds[0]);
			fds[0] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
			assert_int_equal(bind_nameless(fds[0]), 0);
		}
		o.socket_fd = fds[0];
		r = FAULT_RUN(rf_host_add_vsock(host, &o, &device));
		assert_true(r == 0 || fault_hit());
		assert_true(FAULT_RUN(rf_host_dispatch(host, 0)) == 0);
		if (r == 0)
			assert_int_equal(FAULT_RUN(rf_host_remove(device)), 0);
		close(fds[1]);
		if (fault_hit())
			unlink(uds);
	}
	fault_enter();
	rf_host_free(host);
	fault_leave();
}

static void own_process(void **state)
{
	(void)state;
	fault_loop("a host in one's own process", embedded);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FAULT_TEST(own_process),
	};
	int r;

	alarm(500);
	snprintf(dir, sizeof(dir), "/tmp/rf-faults-XXXXXX");
	if (!mkdtemp(dir))
		return 1;
	snprintf(uds, sizeof(uds), "%s/uds", dir);
	r = cmocka_run_group_tests(tests, NULL, NULL);
	if (rmdir(dir) < 0)
		r = 1;
	return r;
}
