/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/counter.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define TOY_COUNTERS(X)                \
	X(toy_packets, "packets seen") \
	X(toy_bytes, "bytes seen")

struct toy {
	char before;
	TOY_COUNTERS(RF_COUNTER_MEMBER)
	bool direct;
	int credit;
};

#define ROW(name, help) RF_COUNTER_ROW(struct toy, name, help)
static const struct rf_counter_def counter_defs[] = { TOY_COUNTERS(ROW) };

static const struct rf_switch_def switch_defs[] = {
	{ "direct", RF_SWITCH_BOOL, offsetof(struct toy, direct), "on", "on|off", "send at once" },
	{ "credit", RF_SWITCH_ENUM, offsetof(struct toy, credit), "lazy", "eager|lazy|off",
	  "when to update credit" },
};

static void assert_json(json_t *json, const char *expected)
{
	char *text = json_dumps(json, JSON_COMPACT | JSON_PRESERVE_ORDER);

	assert_string_equal(text, expected);
	free(text);
	json_decref(json);
}

static void test_counting(void **state RF_UNUSED)
{
	struct toy toy = { 0 };

	rf_count(&toy.toy_packets, 1);
	rf_count(&toy.toy_packets, 2);
	rf_count_shared(&toy.toy_bytes, 40);
	rf_count_shared(&toy.toy_bytes, 2);
	assert_int_equal(rf_counter_read(&toy.toy_packets), 3);
	assert_int_equal(rf_counter_read(&toy.toy_bytes), 42);
	assert_json(rf_counters_json(counter_defs, RF_ARRAY_SIZE(counter_defs), &toy),
		    "{\"toy_packets\":3,\"toy_bytes\":42}");
	assert_string_equal(counter_defs[1].help, "bytes seen");
}

static void test_defaults(void **state RF_UNUSED)
{
	struct toy toy = { 0 };

	rf_switches_default(switch_defs, RF_ARRAY_SIZE(switch_defs), &toy);
	assert_true(toy.direct);
	assert_int_equal(toy.credit, 1);
	assert_json(rf_switches_json(switch_defs, RF_ARRAY_SIZE(switch_defs), &toy),
		    "{\"direct\":true,\"credit\":\"lazy\"}");
}

/* @expected: all switches afterwards; those of a refused value stay at their defaults. */
static const struct set_row {
	const char *text;
	int result;
	int def;
	const char *expected;
} set_rows[] = {
	/* 0 */ { "direct=off", 0, 0, "{\"direct\":false,\"credit\":\"lazy\"}" },
	/* 1 */ { "direct=on", 0, 0, "{\"direct\":true,\"credit\":\"lazy\"}" },
	/* 2 */ { "credit=eager", 0, 1, "{\"direct\":true,\"credit\":\"eager\"}" },
	/* 3 */ { "credit=off", 0, 1, "{\"direct\":true,\"credit\":\"off\"}" },
	/* 4 */ { "direct=true", -EINVAL, 0, NULL },
	/* 5 */ { "direct=", -EINVAL, 0, NULL },
	/* 6 */ { "credit=laz", -EINVAL, 1, NULL },
	/* 7 */ { "credit=lazyy", -EINVAL, 1, NULL },
	/* 8 */ { "credit=eager|lazy", -EINVAL, 1, NULL },
	/* 9 */ { "credit=", -EINVAL, 1, NULL },
	/* 10 */ { "credi=eager", -ENOENT, -1, NULL },
	/* 11 */ { "creditt=eager", -ENOENT, -1, NULL },
	/* 12 */ { "=on", -ENOENT, -1, NULL },
	/* 13 */ { "", -ENOENT, -1, NULL },
	/* 14 */ { "direct", -ENOENT, -1, NULL },
	/* 15 */ { "credit==off", -EINVAL, 1, NULL },
};

static void test_set(void **state RF_UNUSED)
{
	for (size_t i = 0; i < RF_ARRAY_SIZE(set_rows); i++) {
		const struct set_row *row = &set_rows[i];
		const struct rf_switch_def *def = NULL;
		struct toy toy = { 0 };
		char text[32];
		int r;

		print_message("row %zu\n", i);
		/* It ends at its length, not at a NUL. */
		snprintf(text, sizeof(text), "%s=x", row->text);
		rf_switches_default(switch_defs, RF_ARRAY_SIZE(switch_defs), &toy);
		r = rf_switch_set(switch_defs, RF_ARRAY_SIZE(switch_defs), &toy, text,
				  strlen(row->text), &def);
		assert_int_equal(r, row->result);
		assert_ptr_equal(def, row->def < 0 ? NULL : &switch_defs[row->def]);
		assert_json(rf_switches_json(switch_defs, RF_ARRAY_SIZE(switch_defs), &toy),
			    row->expected ? row->expected
					  : "{\"direct\":true,\"credit\":\"lazy\"}");
	}
}

/* @wrong: what is said, NULL if nothing is wrong. What stands before it is set all the same. */
static const struct parse_row {
	const char *list, *wrong, *expected;
} parse_rows[] = {
	/* 0 */ { NULL, NULL, "{\"direct\":true,\"credit\":\"lazy\"}" },
	/* 1 */ { "", NULL, "{\"direct\":true,\"credit\":\"lazy\"}" },
	/* 2 */ { "direct=off", NULL, "{\"direct\":false,\"credit\":\"lazy\"}" },
	/* 3 */ { "direct=off,credit=off", NULL, "{\"direct\":false,\"credit\":\"off\"}" },
	/* 4 */ { "direct=off,direct=on", NULL, "{\"direct\":true,\"credit\":\"lazy\"}" },
	/* 5 */
	{ "direct=off,credit=x", "credit=x is not allowed; credit=eager|lazy|off is",
	  "{\"direct\":false,\"credit\":\"lazy\"}" },
	/* 6 */
	{ "direct=maybe,credit=off", "direct=maybe is not allowed; direct=on|off is",
	  "{\"direct\":true,\"credit\":\"lazy\"}" },
	/* 7 */
	{ "direct=off,", " is no switch with a value; direct, credit are",
	  "{\"direct\":false,\"credit\":\"lazy\"}" },
	/* 8 */
	{ ",", " is no switch with a value; direct, credit are",
	  "{\"direct\":true,\"credit\":\"lazy\"}" },
	/* 9 */
	{ "direct", "direct is no switch with a value; direct, credit are",
	  "{\"direct\":true,\"credit\":\"lazy\"}" },
	/* 10 */
	{ "direct=off credit=off", "direct=off credit=off is not allowed; direct=on|off is",
	  "{\"direct\":true,\"credit\":\"lazy\"}" },
};

static void test_parse(void **state RF_UNUSED)
{
	for (size_t i = 0; i < RF_ARRAY_SIZE(parse_rows); i++) {
		const struct parse_row *row = &parse_rows[i];
		char wrong[RF_SWITCHES_WRONG_BYTES] = "nothing";
		struct toy toy = { 0 };

		print_message("row %zu\n", i);
		rf_switches_default(switch_defs, RF_ARRAY_SIZE(switch_defs), &toy);
		assert_int_equal(rf_switches_parse(switch_defs, RF_ARRAY_SIZE(switch_defs), &toy,
						   row->list, wrong),
				 row->wrong ? -EINVAL : 0);
		assert_string_equal(wrong, row->wrong ? row->wrong : "nothing");
		assert_json(rf_switches_json(switch_defs, RF_ARRAY_SIZE(switch_defs), &toy),
			    row->expected);
	}
}

/* Text without end is cut, not overrun; so is a list of names. */
static void test_long_text(void **state RF_UNUSED)
{
	char list[4096], wrong[RF_SWITCHES_WRONG_BYTES], names[10];
	struct toy toy;

	memset(list, 'x', sizeof(list) - 1);
	list[sizeof(list) - 1] = '\0';
	assert_int_equal(
		rf_switches_parse(switch_defs, RF_ARRAY_SIZE(switch_defs), &toy, list, wrong),
		-EINVAL);
	assert_non_null(strstr(wrong, "xx is no switch"));
	rf_switches_names(switch_defs, RF_ARRAY_SIZE(switch_defs), names, sizeof(names));
	assert_string_equal(names, "direct, c");
}

static const struct size_row {
	const char *text;
	int result;
	uint64_t bytes;
} size_rows[] = {
	/* 0 */ { "0", 0, 0 },
	/* 1 */ { "262144", 0, 262144 },
	/* 2 */ { "4k", 0, 4096 },
	/* 3 */ { "3m", 0, UINT64_C(3) << 20 },
	/* 4 */ { "7g", 0, UINT64_C(7) << 30 },
	/* 5 */ { "007", 0, 7 },
	/* 6 */ { "18446744073709551615", 0, UINT64_MAX },
	/* 7 */ { "18446744073709551616", -ERANGE, 0 },
	/* 8 */ { "17179869183g", 0, UINT64_C(17179869183) << 30 },
	/* 9 */ { "17179869184g", -ERANGE, 0 },
	/* 10 */ { "18014398509481984k", -ERANGE, 0 },
	/* 11 */ { "", -EINVAL, 0 },
	/* 12 */ { "k", -EINVAL, 0 },
	/* 13 */ { "-1", -EINVAL, 0 },
	/* 14 */ { "+1", -EINVAL, 0 },
	/* 15 */ { " 1", -EINVAL, 0 },
	/* 16 */ { "1 ", -EINVAL, 0 },
	/* 17 */ { "0x10", -EINVAL, 0 },
	/* 18 */ { "1kk", -EINVAL, 0 },
	/* 19 */ { "1K", -EINVAL, 0 },
	/* 20 */ { "1t", -EINVAL, 0 },
	/* 21 */ { "99999999999999999999x", -EINVAL, 0 },
	/* 22 */ { "1.5k", -EINVAL, 0 },
	/* 23 */ { "184467440737095516200", -ERANGE, 0 },
};

static void test_size(void **state RF_UNUSED)
{
	for (size_t i = 0; i < RF_ARRAY_SIZE(size_rows); i++) {
		const struct size_row *row = &size_rows[i];
		uint64_t bytes = 4711;

		print_message("row %zu: '%s'\n", i, row->text);
		assert_int_equal(rf_size_parse(row->text, &bytes), row->result);
		assert_int_equal(bytes, row->result ? 4711 : row->bytes);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counting),  cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_set),       cmocka_unit_test(test_parse),
		cmocka_unit_test(test_long_text), cmocka_unit_test(test_size),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
