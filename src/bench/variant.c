/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Variants: the same measurement under other switches, or of something else.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/run.h"
#include "guest/switches.h"
#include "host/vsock_device.h"

/* Halves, as bits. */
enum {
	HOST = 1,
	GUEST = 2,
};

static int wrong(char *ret_wrong, const char *what, const char *allowed)
{
	snprintf(ret_wrong, RF_BENCH_WRONG_BYTES, "%.80s; allowed: %.220s", what, allowed);
	return -EINVAL;
}

void rf_bench_variant_init(struct rf_bench_variant *variant, const char *name,
			   enum rf_bench_kind kind)
{
	*variant = (struct rf_bench_variant){ .kind = kind,
					      .host_poll_us = RF_BENCH_POLL_UNSET,
					      .guest_poll_us = RF_BENCH_POLL_UNSET };
	snprintf(variant->name, sizeof(variant->name), "%s", name);
}

/* A table of switches, and where its settings are collected as text. */
struct half {
	unsigned bit;
	const struct rf_switch_def *defs;
	size_t n;
	char *tune;
};

/* Return: 0, -ENOENT if this half has no such switch, -EINVAL for a value it does not have. */
static int set_switch(const struct half *half, const char *key, const char *value,
		      const struct rf_switch_def **ret_def)
{
	/* Of either half; what is set does not matter. */
	union {
		struct rf_host_switches host;
		struct rf_guest_switches guest;
	} scratch;
	size_t used = strlen(half->tune);
	char text[96];
	int r;

	r = snprintf(text, sizeof(text), "%s%s=%s", used ? "," : "", key, value);
	if (r >= (int)sizeof(text) || used + (size_t)r >= RF_BENCH_TUNE_BYTES)
		return -E2BIG;
	r = rf_switch_set(half->defs, half->n, &scratch, text + (used != 0),
			  (size_t)r - (used != 0), ret_def);
	if (r == 0)
		memcpy(half->tune + used, text, strlen(text) + 1);
	return r;
}

static void list_keys(const struct half *halves, size_t n, char *text, size_t bytes)
{
	size_t used = (size_t)snprintf(text, bytes, "poll-us, queue-size, window, thread");

	for (size_t h = 0; h < n; h++)
		for (size_t i = 0; i < halves[h].n && used < bytes; i++)
			used += (size_t)snprintf(text + used, bytes - used, ", %s%s",
						 halves[h].bit == HOST ? "host." : "guest.",
						 halves[h].defs[i].name);
}

static int set_switches(struct rf_bench_variant *variant, unsigned bits, const char *key,
			const char *value, char *ret_wrong)
{
	const struct half halves[] = {
		{ HOST, rf_host_switch_defs, rf_host_n_switches, variant->host_tune },
		{ GUEST, rf_guest_switch_defs, rf_guest_n_switches, variant->guest_tune },
	};
	char what[160], allowed[RF_BENCH_WRONG_BYTES];
	const struct rf_switch_def *def = NULL;
	bool known = false;

	for (size_t h = 0; h < RF_ARRAY_SIZE(halves); h++) {
		int r = -ENOENT;

		if (halves[h].bit & bits)
			r = set_switch(&halves[h], key, value, &def);
		known |= r == 0;
		if (r == -EINVAL && def) {
			snprintf(what, sizeof(what), "%.30s=%.30s", key, value);
			return wrong(ret_wrong, what, def->values);
		}
		if (r == -E2BIG)
			return wrong(ret_wrong, "too long", "shorter lists");
	}
	if (known)
		return 0;
	list_keys(halves, RF_ARRAY_SIZE(halves), allowed, sizeof(allowed));
	snprintf(what, sizeof(what), "no such key: %.60s", key);
	return wrong(ret_wrong, what, allowed);
}

static int number(const char *text, uint32_t min, uint32_t max, uint32_t *ret)
{
	uint64_t value;

	/* A size may have a suffix; that a number of microseconds may, too, harms nobody. */
	if (rf_size_parse(text, &value) < 0 || value < min || value > max)
		return -EINVAL;
	*ret = (uint32_t)value;
	return 0;
}

static int set_poll(struct rf_bench_variant *variant, unsigned bits, const char *value,
		    char *ret_wrong)
{
	uint32_t us = 0;
	int poll = RF_BENCH_POLL_AUTO;

	if (strcmp(value, "auto") != 0) {
		if (number(value, 0, RF_LOOP_POLL_MAX_US, &us) < 0)
			return wrong(ret_wrong, "poll-us", "0 to 1000, or auto");
		poll = (int)us;
	}
	if (bits & HOST)
		variant->host_poll_us = poll;
	if (bits & GUEST)
		variant->guest_poll_us = poll;
	return 0;
}

static int set_key(struct rf_bench_variant *variant, const char *key, const char *value,
		   char *ret_wrong)
{
	unsigned bits = !strncmp(key, "host.", 5)    ? HOST
			: !strncmp(key, "guest.", 6) ? GUEST
						     : HOST | GUEST;

	if (bits != (HOST | GUEST))
		key = strchr(key, '.') + 1;
	if (!strcmp(key, "poll-us"))
		return set_poll(variant, bits, value, ret_wrong);
	if (!strcmp(key, "queue-size")) {
		if (number(value, 2, RF_RING_MAX_NUM, &variant->queue_size) < 0 ||
		    !rf_is_power_of_2(variant->queue_size))
			return wrong(ret_wrong, "queue-size", "a power of two from 2 to 32768");
		return 0;
	}
	if (!strcmp(key, "window")) {
		if (number(value, RF_VSOCK_WINDOW_MIN, RF_VSOCK_WINDOW_MAX, &variant->window) < 0)
			return wrong(ret_wrong, "window", "4k to 1g bytes");
		return 0;
	}
	if (!strcmp(key, "thread")) {
		variant->same_thread = !strcmp(value, "same");
		if (!variant->same_thread && strcmp(value, "other") != 0)
			return wrong(ret_wrong, "thread", "same or other");
		return 0;
	}
	return set_switches(variant, bits, key, value, ret_wrong);
}

static int name_parse(const char *text, size_t len, char *name, char *ret_wrong)
{
	if (len == 0 || len >= RF_BENCH_NAME_BYTES)
		return wrong(ret_wrong, "its name", "1 to 31 characters");
	memcpy(name, text, len);
	name[len] = '\0';
	return 0;
}

int rf_bench_variant_parse(const char *text, struct rf_bench_variant *ret_variant, char *ret_wrong)
{
	char name[RF_BENCH_NAME_BYTES], keys[512], *rest = NULL;
	size_t len = strcspn(text, ":");
	int r = name_parse(text, len, name, ret_wrong);
	bool raw = r == 0 && !strcmp(name, "raw"), best = r == 0 && !strcmp(name, "raw-best");

	if (r < 0)
		return r;
	rf_bench_variant_init(ret_variant, name,
			      raw    ? RF_BENCH_RAW
			      : best ? RF_BENCH_RAW_BEST
				     : RF_BENCH_OURS);
	if (text[len] == '\0')
		return 0;
	if (raw || best)
		return wrong(ret_wrong, name, "no keys: it is a plain socket");
	if (strlen(text + len + 1) >= sizeof(keys))
		return wrong(ret_wrong, "too long", "511 characters");
	memcpy(keys, text + len + 1, strlen(text + len + 1) + 1);
	for (char *key = strtok_r(keys, ",", &rest); r == 0 && key;
	     key = strtok_r(NULL, ",", &rest)) {
		char *equals = strchr(key, '=');

		if (!equals)
			return wrong(ret_wrong, key, "NAME:key=value,...");
		*equals = '\0';
		r = set_key(ret_variant, key, equals + 1, ret_wrong);
	}
	return r;
}

int rf_bench_backend_parse(const char *text, struct rf_bench_variant *ret_variant, char *ret_wrong)
{
	static const char allowed[] = "NAME=VHOST_USER_SOCKET,UDS (107 bytes each), or kernel";
	const char *equals = strchr(text, '='), *comma = equals ? strchr(equals, ',') : NULL;
	char name[RF_BENCH_NAME_BYTES];
	size_t len;

	if (!strcmp(text, "kernel")) {
		rf_bench_variant_init(ret_variant, "kernel", RF_BENCH_KERNEL);
		return 0;
	}
	if (!comma)
		return wrong(ret_wrong, text, allowed);
	if (name_parse(text, (size_t)(equals - text), name, ret_wrong) < 0)
		return -EINVAL;
	rf_bench_variant_init(ret_variant, name, RF_BENCH_EXTERNAL);
	len = (size_t)(comma - equals) - 1;
	if (len == 0 || len >= RF_BENCH_PATH_BYTES || !comma[1] ||
	    strlen(comma + 1) >= RF_BENCH_PATH_BYTES)
		return wrong(ret_wrong, text, allowed);
	memcpy(ret_variant->socket, equals + 1, len);
	memcpy(ret_variant->uds, comma + 1, strlen(comma + 1) + 1);
	return 0;
}
