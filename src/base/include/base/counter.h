/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counters and switches: each layer has one table of each, made from one X-macro list, and
 * everything that prints or sets them works from the table.
 */
#ifndef RF_BASE_COUNTER_H
#define RF_BASE_COUNTER_H

#include <jansson.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

/* A counter. One thread counts, any thread may read. */
typedef _Atomic uint64_t rf_counter;

/* Count from the one thread that owns the counter: no locked instruction. */
static inline void rf_count(rf_counter *c, uint64_t n)
{
	atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

/* Count from any thread. */
static inline void rf_count_shared(rf_counter *c, uint64_t n)
{
	atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}

static inline uint64_t rf_counter_read(const rf_counter *c)
{
	return atomic_load_explicit((rf_counter *)(uintptr_t)c, memory_order_relaxed);
}

/**
 * struct rf_counter_def - One row of a layer's table of counters
 * @name:	Name as printed
 * @help:	What one count stands for
 * @offset:	Where the rf_counter lies in the layer's structure
 */
struct rf_counter_def {
	const char *name;
	const char *help;
	size_t offset;
};

/* Members and table rows from a list macro whose X takes (name, help). */
#define RF_COUNTER_MEMBER(name, help)    rf_counter name;
#define RF_COUNTER_ROW(type, name, help) { #name, help, offsetof(type, name) },

/**
 * rf_counters_json() - All counters of one table as a JSON object
 * @defs:	Table
 * @n:		Its rows
 * @base:	The structure that holds the counters
 *
 * Context: any thread; each value is read once, the set is no snapshot.
 * Return: a new reference, or NULL when out of memory.
 */
json_t *rf_counters_json(const struct rf_counter_def *defs, size_t n, const void *base);

enum rf_switch_type {
	RF_SWITCH_BOOL, /* on, off: stored as bool */
	RF_SWITCH_ENUM, /* one of @values: its index, stored as int */
};

/**
 * struct rf_switch_def - One row of a layer's table of switches
 * @name:	Name as in --tune name=value
 * @type:	What the value is
 * @offset:	Where it lies in the layer's structure
 * @def:	Default, as text
 * @values:	The allowed words separated by '|'
 * @help:	What it does, and what the other position recreates
 */
struct rf_switch_def {
	const char *name;
	enum rf_switch_type type;
	size_t offset;
	const char *def;
	const char *values;
	const char *help;
};

/**
 * rf_switches_default() - Set every switch of a table to its default
 */
void rf_switches_default(const struct rf_switch_def *defs, size_t n, void *base);

/**
 * rf_switch_set() - Set one switch from "NAME=VALUE"
 * @defs:	Table
 * @n:		Its rows
 * @base:	Structure that holds the values
 * @text:	NAME=VALUE; need not end in NUL
 * @len:	Its length
 * @ret_def:	The row, also when the value is refused (so that the caller can say what is
 *		allowed), or NULL if there is none of that name
 *
 * Return: 0, -ENOENT if there is no such switch, -EINVAL if the value is not allowed.
 */
int rf_switch_set(const struct rf_switch_def *defs, size_t n, void *base, const char *text,
		  size_t len, const struct rf_switch_def **ret_def);

/* Room for what rf_switches_parse() has to say. */
#define RF_SWITCHES_WRONG_BYTES 256

/**
 * rf_switches_parse() - Set switches from "NAME=VALUE,NAME=VALUE"
 * @defs:	Table
 * @n:		Its rows
 * @base:	Structure that holds the values; those before a wrong one are set all the same
 * @list:	What to set; NULL or empty for nothing
 * @ret_wrong:	What is wrong and what is allowed, RF_SWITCHES_WRONG_BYTES
 *
 * Return: 0, or -EINVAL.
 */
int rf_switches_parse(const struct rf_switch_def *defs, size_t n, void *base, const char *list,
		      char *ret_wrong);

/* The names of a table's switches, separated by commas, as far as there is room. */
void rf_switches_names(const struct rf_switch_def *defs, size_t n, char *buf, size_t buf_bytes);

/**
 * rf_switches_json() - All switches of one table and their values as a JSON object
 * Return: a new reference, or NULL when out of memory.
 */
json_t *rf_switches_json(const struct rf_switch_def *defs, size_t n, const void *base);

/**
 * rf_size_parse() - Read a number of bytes: decimal, optional suffix k, m or g (powers of 1024)
 * Return: 0, -EINVAL if it is no such number, -ERANGE if it does not fit.
 */
int rf_size_parse(const char *text, uint64_t *ret_bytes);

#endif
