/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/counter.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

json_t *rf_counters_json(const struct rf_counter_def *defs, size_t n, const void *base)
{
	json_t *object = json_object();

	for (size_t i = 0; object && i < n; i++) {
		const rf_counter *c = (const void *)((const char *)base + defs[i].offset);
		json_t *value = json_integer((json_int_t)rf_counter_read(c));

		if (json_object_set_new(object, defs[i].name, value) < 0) {
			json_decref(object);
			return NULL;
		}
	}
	return object;
}

int rf_size_parse(const char *text, uint64_t *ret_bytes)
{
	static const char units[] = "kmg";
	const char *unit;
	uint64_t bytes = 0;
	bool fits = true;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	for (; *text >= '0' && *text <= '9'; text++) {
		fits = fits && !__builtin_mul_overflow(bytes, 10, &bytes) &&
		       rf_add_u64(bytes, (uint64_t)(*text - '0'), &bytes);
	}
	unit = *text ? strchr(units, *text) : NULL;
	if (unit)
		text++;
	if (*text)
		return -EINVAL;
	if (unit && __builtin_mul_overflow(bytes, UINT64_C(1024) << (10 * (unit - units)), &bytes))
		fits = false;
	if (!fits)
		return -ERANGE;
	*ret_bytes = bytes;
	return 0;
}

/* The index of a word among words separated by '|', or -EINVAL. */
static int word_index(const char *words, const char *word, size_t len)
{
	for (int i = 0;; i++) {
		size_t n = strcspn(words, "|");

		if (n == len && !memcmp(words, word, n))
			return i;
		if (!words[n])
			return -EINVAL;
		words += n + 1;
	}
}

static int value_set(const struct rf_switch_def *def, void *base, const char *value, size_t len)
{
	char *where = (char *)base + def->offset;
	int word;

	switch (def->type) {
	case RF_SWITCH_BOOL:
		word = word_index("off|on", value, len);
		if (word < 0)
			return word;
		*(bool *)(void *)where = word;
		return 0;
	case RF_SWITCH_ENUM:
		word = word_index(def->values, value, len);
		if (word < 0)
			return word;
		*(int *)(void *)where = word;
		return 0;
	}
	assert(!"type of a switch");
	return -EINVAL;
}

void rf_switches_default(const struct rf_switch_def *defs, size_t n, void *base)
{
	for (size_t i = 0; i < n; i++) {
		int rc = value_set(&defs[i], base, defs[i].def, strlen(defs[i].def));

		assert(rc == 0);
	}
}

int rf_switch_set(const struct rf_switch_def *defs, size_t n, void *base, const char *text,
		  size_t len, const struct rf_switch_def **ret_def)
{
	const char *equals = memchr(text, '=', len);
	size_t name_len = equals ? (size_t)(equals - text) : 0;

	*ret_def = NULL;
	for (size_t i = 0; equals && i < n; i++) {
		if (strlen(defs[i].name) != name_len || memcmp(defs[i].name, text, name_len) != 0)
			continue;
		*ret_def = &defs[i];
		return value_set(&defs[i], base, equals + 1, len - name_len - 1);
	}
	return -ENOENT;
}

void rf_switches_names(const struct rf_switch_def *defs, size_t n, char *buf, size_t buf_bytes)
{
	size_t used = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < n && used < buf_bytes; i++)
		used += (size_t)snprintf(buf + used, buf_bytes - used, "%s%s", i ? ", " : "",
					 defs[i].name);
}

static void say_wrong(const struct rf_switch_def *defs, size_t n, const struct rf_switch_def *def,
		      const char *text, size_t len, char *ret_wrong)
{
	char names[RF_SWITCHES_WRONG_BYTES / 2];
	int quoted = (int)rf_min_size(len, RF_SWITCHES_WRONG_BYTES / 4);

	if (def) {
		snprintf(ret_wrong, RF_SWITCHES_WRONG_BYTES, "%.*s is not allowed; %s=%s is",
			 quoted, text, def->name, def->values);
		return;
	}
	rf_switches_names(defs, n, names, sizeof(names));
	snprintf(ret_wrong, RF_SWITCHES_WRONG_BYTES, "%.*s is no switch with a value; %s are",
		 quoted, text, names);
}

int rf_switches_parse(const struct rf_switch_def *defs, size_t n, void *base, const char *list,
		      char *ret_wrong)
{
	if (!list || !*list)
		return 0;
	for (;;) {
		size_t len = strcspn(list, ",");
		const struct rf_switch_def *def;

		if (rf_switch_set(defs, n, base, list, len, &def) < 0) {
			say_wrong(defs, n, def, list, len, ret_wrong);
			return -EINVAL;
		}
		if (!list[len])
			return 0;
		list += len + 1;
	}
}

static json_t *word_json(const char *words, int index)
{
	for (; index > 0; index--)
		words += strcspn(words, "|") + 1;
	return json_stringn(words, strcspn(words, "|"));
}

static json_t *value_json(const struct rf_switch_def *def, const void *base)
{
	const void *where = (const char *)base + def->offset;

	switch (def->type) {
	case RF_SWITCH_BOOL:
		return json_boolean(*(const bool *)where);
	case RF_SWITCH_ENUM:
		return word_json(def->values, *(const int *)where);
	}
	assert(!"type of a switch");
	return NULL;
}

json_t *rf_switches_json(const struct rf_switch_def *defs, size_t n, const void *base)
{
	json_t *object = json_object();

	for (size_t i = 0; object && i < n; i++) {
		if (json_object_set_new(object, defs[i].name, value_json(&defs[i], base)) < 0) {
			json_decref(object);
			return NULL;
		}
	}
	return object;
}
