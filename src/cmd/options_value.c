/* SPDX-License-Identifier: BSD-3-Clause */
#include "options.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/counter.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/util.h"

int rf_number_parse(const char *text, uint64_t *ret_value)
{
	uint64_t value = 0;

	if (!*text)
		return -EINVAL;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return -EINVAL;
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
			return -ERANGE;
	}
	*ret_value = value;
	return 0;
}

int rf_port_parse(const char *text, uint32_t *ret_port)
{
	uint64_t value;

	if (rf_number_parse(text, &value) < 0 || value > UINT32_MAX - 1)
		return -EINVAL;
	*ret_port = (uint32_t)value;
	return 0;
}

static int mode_parse(const char *text, uint64_t *ret_mode)
{
	uint64_t mode = 0;

	if (!*text)
		return -EINVAL;
	for (; *text; text++) {
		if (*text < '0' || *text > '7' || mode > 0777)
			return -EINVAL;
		mode = mode * 8 + (uint64_t)(*text - '0');
	}
	*ret_mode = mode;
	return 0;
}

static void size_format(uint64_t bytes, char *buf, size_t buf_bytes)
{
	static const char suffix[] = { 'g', 'm', 'k' };

	for (unsigned i = 0; i < RF_ARRAY_SIZE(suffix); i++) {
		uint64_t unit = UINT64_C(1) << (30 - 10 * i);

		if (bytes && bytes % unit == 0) {
			snprintf(buf, buf_bytes, "%" PRIu64 "%c", bytes / unit, suffix[i]);
			return;
		}
	}
	snprintf(buf, buf_bytes, "%" PRIu64, bytes);
}

void rf_opt_allowed(const struct rf_opt *opt, char *buf, size_t buf_bytes)
{
	char min[24], max[24];

	switch (opt->kind) {
	case RF_OPT_FLAG:
		snprintf(buf, buf_bytes, "--%s without an argument", opt->name);
		break;
	case RF_OPT_STRING:
	case RF_OPT_CUSTOM:
	case RF_OPT_LIST:
		snprintf(buf, buf_bytes, "%s", opt->arg);
		break;
	case RF_OPT_NUMBER:
		snprintf(buf, buf_bytes, "a number from %" PRIu64 " to %" PRIu64, opt->min,
			 opt->max);
		break;
	case RF_OPT_SIZE:
		size_format(opt->min, min, sizeof(min));
		size_format(opt->max, max, sizeof(max));
		snprintf(buf, buf_bytes, "%s to %s bytes (a number with or without k, m, g)", min,
			 max);
		break;
	case RF_OPT_MODE:
		snprintf(buf, buf_bytes, "an octal mode from 0 to 0777");
		break;
	}
}

static int value_wrong(const struct rf_opt *opt, const char *value, const char *allowed,
		       char *ret_wrong)
{
	char text[160];

	if (!*allowed) {
		rf_opt_allowed(opt, text, sizeof(text));
		allowed = text;
	}
	snprintf(ret_wrong, RF_OPT_WRONG_BYTES, "\"%.200s\" is not allowed; allowed: %s", value,
		 allowed);
	return -EINVAL;
}

int rf_opt_store_item(const struct rf_opt *opt, const char *value, void *options, char *ret_wrong)
{
	char allowed[256] = "";

	if (opt->parse(opt, value, options, allowed, sizeof(allowed)) < 0)
		return value_wrong(opt, value, allowed, ret_wrong);
	return 0;
}

static int store_list(const struct rf_opt *opt, const char *value, void *options, char *ret_wrong)
{
	char item[256];
	size_t len;
	int r = 0;

	for (const char *at = value; r == 0; at += len + 1) {
		len = strcspn(at, "+,");
		if (len >= sizeof(item))
			return value_wrong(opt, at, "", ret_wrong);
		memcpy(item, at, len);
		item[len] = '\0';
		r = rf_opt_store_item(opt, item, options, ret_wrong);
		if (!at[len])
			break;
	}
	return r;
}

static int store_number(const struct rf_opt *opt, const char *value, void *at, char *ret_wrong)
{
	uint64_t number = 0, min = opt->min, max = opt->max;
	int r;

	switch (opt->kind) {
	case RF_OPT_SIZE:
		r = rf_size_parse(value, &number);
		break;
	case RF_OPT_MODE:
		r = mode_parse(value, &number);
		min = 0;
		max = 0777;
		break;
	default:
		r = rf_number_parse(value, &number);
		break;
	}
	if (r < 0 || number < min || number > max)
		return value_wrong(opt, value, "", ret_wrong);
	*(uint64_t *)at = number;
	return 0;
}

/* Whoever has a line feed in a path has made a mistake, and would break lines of the log. */
static int store_string(const struct rf_opt *opt, const char *value, const char **at,
			char *ret_wrong)
{
	const char *wrong = *value ? NULL : "it is empty";

	for (const char *p = value; *p; p++)
		if (iscntrl((unsigned char)*p))
			wrong = "a control character is in it";
	if (wrong) {
		snprintf(ret_wrong, RF_OPT_WRONG_BYTES, "%s; allowed: %s", wrong, opt->arg);
		return -EINVAL;
	}
	*at = value;
	return 0;
}

int rf_opt_store(const struct rf_opt *opt, const char *value, void *options, char *ret_wrong)
{
	void *at = (char *)options + opt->offset;

	switch (opt->kind) {
	case RF_OPT_FLAG:
		assert(!"a flag has no value");
		return -EINVAL;
	case RF_OPT_STRING:
		return store_string(opt, value, at, ret_wrong);
	case RF_OPT_CUSTOM:
		return rf_opt_store_item(opt, value, options, ret_wrong);
	case RF_OPT_LIST:
		return store_list(opt, value, options, ret_wrong);
	default:
		return store_number(opt, value, at, ret_wrong);
	}
}

static bool key_equal(const char *name, const char *key, size_t key_len)
{
	if (strlen(name) != key_len)
		return false;
	for (size_t i = 0; i < key_len; i++)
		if (key[i] != name[i] && !(key[i] == '_' && name[i] == '-'))
			return false;
	return true;
}

const struct rf_opt *rf_opt_find_key(const struct rf_cmd *cmd, const char *key, size_t key_len)
{
	for (size_t i = 0; i < cmd->n_opts; i++)
		if (cmd->opts[i].key && key_equal(cmd->opts[i].name, key, key_len))
			return &cmd->opts[i];
	return NULL;
}

void rf_opt_list_keys(const struct rf_cmd *cmd, char *buf, size_t buf_bytes)
{
	const char *comma = "";
	size_t len = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < cmd->n_opts; i++) {
		if (!cmd->opts[i].key)
			continue;
		len += (size_t)snprintf(buf + len, buf_bytes - len, "%s%s", comma,
					cmd->opts[i].name);
		len = rf_min_size(len, buf_bytes - 1);
		comma = ", ";
	}
}

int rf_opt_log_level(const struct rf_opt *opt, const char *value, void *options, char *allowed,
		     size_t allowed_bytes)
{
	int level = rf_log_level_parse(value);

	if (level < 0) {
		snprintf(allowed, allowed_bytes, "error, warning, info or debug");
		return -EINVAL;
	}
	*(int *)(void *)((char *)options + opt->offset) = level;
	return 0;
}

int rf_opt_poll_us(const struct rf_opt *opt, const char *value, void *options, char *allowed,
		   size_t allowed_bytes)
{
	int *poll_us = (int *)(void *)((char *)options + opt->offset);
	uint64_t number;

	if (!strcmp(value, "auto")) {
		*poll_us = RF_OPT_POLL_AUTO;
		return 0;
	}
	if (rf_number_parse(value, &number) < 0 || number > RF_LOOP_POLL_MAX_US) {
		snprintf(allowed, allowed_bytes, "auto or a number from 0 to %u",
			 RF_LOOP_POLL_MAX_US);
		return -EINVAL;
	}
	*poll_us = (int)number;
	return 0;
}

int rf_opt_switch(const struct rf_switch_def *defs, size_t n, void *base, const char *value,
		  char *allowed, size_t allowed_bytes)
{
	const struct rf_switch_def *def;
	int len;

	if (rf_switch_set(defs, n, base, value, strlen(value), &def) == 0)
		return 0;
	if (def) {
		snprintf(allowed, allowed_bytes, "%s=%s", def->name, def->values);
		return -EINVAL;
	}
	len = snprintf(allowed, allowed_bytes, "NAME=VALUE with NAME one of ");
	if ((size_t)len < allowed_bytes)
		rf_switches_names(defs, n, allowed + len, allowed_bytes - (size_t)len);
	return -EINVAL;
}
