/* SPDX-License-Identifier: BSD-3-Clause */
/* 16,384 connections of one guest at once, with traffic that goes round all of them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "guest_rig.h"

#define MANY       16384u
#define GUEST_PORT 1234u
#define HOST_PORT  100000u

static struct rig_conn conns[MANY];

static void to_and_from(struct rig *rig, struct rig_conn *c, uint32_t number)
{
	struct rf_vsock_hdr hdr;
	uint32_t got = 0;

	rig_send(rig, c, &number, sizeof(number));
	assert_int_equal(rf_recv(rig->guest, c->sock, &got, sizeof(got), RF_MSG_WAITALL),
			 sizeof(got));
	assert_int_equal(got, number);
	number = ~number;
	assert_int_equal(rf_send(rig->guest, c->sock, &number, sizeof(number), 0), sizeof(number));
	do
		fake_next(rig->fake, &hdr, (uint8_t *)&got);
	while (hdr.op == VIRTIO_VSOCK_OP_CREDIT_UPDATE);
	assert_int_equal(hdr.op, VIRTIO_VSOCK_OP_RW);
	assert_int_equal(hdr.dst_port, c->host.src_port);
	assert_int_equal(got, number);
}

static void each_keeps_its_bytes(void **state)
{
	struct rig *rig = *state;
	int listener = rig_listen(rig, GUEST_PORT, 1);

	for (uint32_t i = 0; i < MANY; i++)
		conns[i] = rig_accept(rig, listener, GUEST_PORT, HOST_PORT + i);
	for (uint32_t i = 0; i < MANY; i++)
		to_and_from(rig, &conns[i], i);
	/* Another order: no connection is found where the one before it was. */
	for (uint32_t i = 0, at = 0; i < MANY; i++, at = (at + 4097) % MANY)
		to_and_from(rig, &conns[at], at);
	for (uint32_t i = 0; i < MANY; i++)
		rig_end(rig, &conns[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RIG_CASE(each_keeps_its_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
