/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * host-two DIR - serve the vsock of two virtual machines until SIGINT or SIGTERM.
 *
 * The VMMs, or "ringferry guest", connect to DIR/vm3.sock and DIR/vm4.sock; host programs reach the
 * guests at DIR/vm3.vsock and DIR/vm4.vsock. Counters are printed in the end.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ringferry/host.h>

static struct rf_host *host;

static struct vm {
	const char *name;
	unsigned cid;
} vms[] = { { "vm3", 3 }, { "vm4", 4 } };

static void stop(int sig)
{
	(void)sig;
	/* NOLINTNEXTLINE(bugprone-signal-handler,cert-sig30-c): ringferry/host.h allows it */
	rf_host_stop(host);
}

static void print_line(void *ctx, int level, const char *device, const char *line)
{
	(void)ctx;
	fprintf(stderr, "host-two: %s: %s%s\n", device ? device : "options",
		level <= RF_HOST_LOG_WARNING ? "! " : "", line);
}

static void print_left(void *ctx, struct rf_host_device *device, int orderly)
{
	const struct vm *vm = ctx;

	(void)device;
	printf("%s has left%s\n", vm->name, orderly ? "" : ", not of its own will");
	fflush(stdout);
}

static int serve(const char *dir, struct vm *vm)
{
	struct rf_host_vsock_options options;
	struct rf_host_device *device;
	char sock[200], uds[200];

	snprintf(sock, sizeof(sock), "%s/%s.sock", dir, vm->name);
	snprintf(uds, sizeof(uds), "%s/%s.vsock", dir, vm->name);
	rf_host_vsock_options_init(&options);
	options.guest_cid = vm->cid;
	options.name = vm->name;
	options.socket_path = sock;
	options.uds_path = uds;
	options.left = print_left;
	options.left_ctx = vm;
	return rf_host_add_vsock(host, &options, &device);
}

int main(int argc, char **argv)
{
	struct rf_host_options options;
	char *counters;
	int r;

	if (argc != 2) {
		fprintf(stderr, "usage: host-two DIR\n");
		return 2;
	}
	rf_host_options_init(&options);
	options.log = print_line;
	r = rf_host_new(&options, &host);
	if (r == 0)
		r = serve(argv[1], &vms[0]);
	if (r == 0)
		r = serve(argv[1], &vms[1]);
	if (r == 0) {
		signal(SIGINT, stop);
		signal(SIGTERM, stop);
		printf("ready\n");
		fflush(stdout);
		r = rf_host_run(host);
	}
	if (r < 0)
		fprintf(stderr, "host-two: %s\n", strerror(-r));
	counters = r < 0 ? NULL : rf_host_counters_json(host);
	if (counters)
		puts(counters);
	free(counters);
	rf_host_free(host);
	return r < 0;
}
