/* SPDX-License-Identifier: BSD-3-Clause */
/* The guest's switches: guest/switches.c, and what each of them does. */
#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "guest/switches.h"
#include "guest_rig.h"
#include "pattern.h"

#define WINDOW 262144u

static uint8_t bytes[65536];

/* Lines that the guest logged. */
struct lines {
	unsigned n;
	int level;
	char last[512];
};

static void log_line(void *ctx, int level, const char *line)
{
	struct lines *lines = ctx;

	lines->n++;
	lines->level = level;
	snprintf(lines->last, sizeof(lines->last), "%s", line);
}

/* What is wrong is told in one line, and with it what is allowed. */
static void wrong_text(void **state)
{
	static const struct {
		int row;
		const char *tune, *line;
	} rows[] = {
		{ 1, "max-packet=8k",
		  "option tune: max-packet=8k is not allowed; max-packet=64k|4k is" },
		{ 2, "max-packet=4k,credit=never",
		  "option tune: credit=never is not allowed; credit=batched|eager|linux is" },
		{ 3, "max_packet=4k", "option tune: max_packet=4k is no switch with a value; " },
		{ 4, "credit", "option tune: credit is no switch with a value; " },
		{ 5, "credit=eager,", "option tune:  is no switch with a value; " },
		{ 6, "merge=off", "option tune: merge=off is no switch with a value; " },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct rf_guest_options o;
		struct lines lines = { 0 };
		struct rf_guest *guest;

		print_message("row %d\n", rows[i].row);
		rf_guest_options_init(&o);
		o.socket_path = "/nonexistent/socket";
		o.connect_timeout_ms = 0;
		o.tune = rows[i].tune;
		o.log = log_line;
		o.log_ctx = &lines;
		assert_int_equal(rf_guest_open(&o, &guest), -EINVAL);
		assert_int_equal(lines.n, 1);
		assert_int_equal(lines.level, RF_GUEST_LOG_ERROR);
		assert_int_equal(strncmp(lines.last, rows[i].line, strlen(rows[i].line)), 0);
		if (strstr(rows[i].line, "no switch"))
			for (size_t k = 0; k < rf_guest_n_switches; k++)
				assert_non_null(strstr(lines.last, rf_guest_switch_defs[k].name));
	}
}

/* The value that is printed with the counters. */
static void assert_switch(struct rig *rig, const char *name, const char *value)
{
	char *text = rf_guest_counters_json(rig->guest);
	json_t *counters, *found;

	assert_non_null(text);
	counters = json_loads(text, 0, NULL);
	free(text);
	found = json_object_get(json_object_get(counters, "switches"), name);
	if (json_is_boolean(found))
		assert_string_equal(json_is_true(found) ? "on" : "off", value);
	else
		assert_string_equal(json_string_value(found), value);
	json_decref(counters);
}

static void defaults(void **state)
{
	/* Rigs have it off. */
	const struct rig_options options = { .tune = "join=on" };
	struct rig rig;

	(void)state;
	rig_open(&rig, &options);
	for (size_t i = 0; i < rf_guest_n_switches; i++)
		assert_switch(&rig, rf_guest_switch_defs[i].name, rf_guest_switch_defs[i].def);
	rig_close(&rig);
}

/* @credit as an option, unless @tune has another word for it. */
static void credit(void **state)
{
	static const struct {
		int option;
		const char *tune, *wanted;
	} rows[] = {
		{ RF_CREDIT_BATCHED, "", "batched" },
		{ RF_CREDIT_EAGER, NULL, "eager" },
		{ RF_CREDIT_LINUX, "max-packet=4k", "linux" },
		{ RF_CREDIT_LINUX, "credit=eager", "eager" },
		{ RF_CREDIT_EAGER, "credit=batched", "batched" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct rig_options options = { .credit = rows[i].option,
						     .tune = rows[i].tune };
		struct rig rig;

		rig_open(&rig, &options);
		assert_switch(&rig, "credit", rows[i].wanted);
		rig_close(&rig);
	}
}

/* eager: the host is told of each byte that was read. */
static void credit_eager(void **state)
{
	const struct rig_options options = { .tune = "credit=eager" };
	struct rig_conn c;
	struct rig rig;
	uint8_t byte;

	(void)state;
	rig_open(&rig, &options);
	c = rig_connect(&rig, 1234, WINDOW);
	rig_send(&rig, &c, bytes, 2);
	for (uint32_t i = 1; i <= 2; i++) {
		assert_int_equal(rf_recv(rig.guest, c.sock, &byte, 1, 0), 1);
		assert_int_equal(fake_expect(rig.fake, VIRTIO_VSOCK_OP_CREDIT_UPDATE).fwd_cnt, i);
	}
	rig_close(&rig);
}

static void max_packet(void **state)
{
	static const struct {
		const char *tune;
		uint32_t payload;
	} rows[] = { { "max-packet=64k", 65536 }, { "max-packet=4k", 4096 } };
	static uint8_t payload[RF_VSOCK_HDR_BYTES + 65536];

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct rig_options options = { .tune = rows[i].tune };
		struct rf_vsock_hdr hdr;
		struct rig_conn c;
		struct rig rig;

		rig_open(&rig, &options);
		c = rig_connect(&rig, 1234, WINDOW);
		assert_int_equal(rf_send(rig.guest, c.sock, bytes, sizeof(bytes), 0),
				 sizeof(bytes));
		for (uint32_t at = 0; at < sizeof(bytes); at += hdr.len) {
			fake_next(rig.fake, &hdr, payload);
			assert_int_equal(hdr.op, VIRTIO_VSOCK_OP_RW);
			assert_int_equal(hdr.len, rows[i].payload);
			assert_memory_equal(payload, bytes + at, hdr.len);
		}
		rig_close(&rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wrong_text), cmocka_unit_test(defaults),
		cmocka_unit_test(credit),     cmocka_unit_test(credit_eager),
		cmocka_unit_test(max_packet),
	};

	pattern_fill(bytes, 0, sizeof(bytes));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
