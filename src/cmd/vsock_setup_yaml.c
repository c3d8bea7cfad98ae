/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The file of --config: YAML, of which only what is needed is allowed. One document, a mapping with
 * the list "vms", each element of which is a mapping from keys to values or lists of values.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>

#include "base/fd.h"
#include "base/util.h"
#include "vsock_setup.h"

/* What the top level may be. */
#define TOP_ALLOWED    "the key \"vms\" with a list of devices"
#define SYNTAX_ALLOWED "lines KEY: VALUE, indented with spaces, with a space behind the colon"

/**
 * struct reader - A walk through the events of the YAML parser
 * @cmd, @setup: whom the errors and the devices are for
 * @text, @bytes: the file
 * @parser:	libyaml's
 * @event:	The event at which the walk stands
 * @line:	Its line
 * @status:	Exit status once something was wrong; nothing is read any more
 */
struct reader {
	const struct rf_cmd *cmd;
	struct rf_vsock_setup *setup;
	const uint8_t *text;
	size_t bytes;
	yaml_parser_t parser;
	yaml_event_t event;
	uint32_t line;
	int status;
};

/* Always false: an error ends the walk. */
#define FAIL(reader, where, key, ...)                                                           \
	((reader)->status =                                                                     \
		 rf_vsock_setup_error((reader)->cmd, (reader)->setup, where, key, __VA_ARGS__), \
	 false)

static uint32_t line_of_offset(const struct reader *reader, size_t offset)
{
	uint32_t line = 1;

	for (size_t i = 0; i < rf_min_size(offset, reader->bytes); i++)
		line += reader->text[i] == '\n';
	return line;
}

/* What has no end, as a key without colon, is noticed in a later line than it begins. */
static uint32_t line_of_problem(const yaml_parser_t *parser)
{
	bool begins = parser->error == YAML_SCANNER_ERROR && parser->context;

	return (uint32_t)(begins ? parser->context_mark.line : parser->problem_mark.line) + 1;
}

static bool parser_failed(struct reader *reader)
{
	const yaml_parser_t *parser = &reader->parser;
	uint32_t line = line_of_problem(parser);

	if (parser->error == YAML_MEMORY_ERROR)
		return FAIL(reader, line, NULL, "no memory");
	if (parser->error == YAML_READER_ERROR)
		return FAIL(reader, line_of_offset(reader, parser->problem_offset), NULL,
			    "no UTF-8 text (%s); allowed: YAML in UTF-8",
			    parser->problem ? parser->problem : "unknown");
	return FAIL(reader, line, NULL, "no YAML: %s; allowed: " SYNTAX_ALLOWED,
		    parser->problem ? parser->problem : "unknown");
}

static const char *anchor_of(const yaml_event_t *event)
{
	switch (event->type) {
	case YAML_SCALAR_EVENT:
		return (const char *)event->data.scalar.anchor;
	case YAML_SEQUENCE_START_EVENT:
		return (const char *)event->data.sequence_start.anchor;
	case YAML_MAPPING_START_EVENT:
		return (const char *)event->data.mapping_start.anchor;
	default:
		return NULL;
	}
}

static const char *tag_of(const yaml_event_t *event)
{
	switch (event->type) {
	case YAML_SCALAR_EVENT:
		return (const char *)event->data.scalar.tag;
	case YAML_SEQUENCE_START_EVENT:
		return (const char *)event->data.sequence_start.tag;
	case YAML_MAPPING_START_EVENT:
		return (const char *)event->data.mapping_start.tag;
	default:
		return NULL;
	}
}

/* Go on to the next event. Return: false at an error. */
static bool next(struct reader *reader)
{
	const char *tag, *anchor;

	if (reader->status)
		return false;
	yaml_event_delete(&reader->event);
	if (!yaml_parser_parse(&reader->parser, &reader->event))
		return parser_failed(reader);
	reader->line = (uint32_t)reader->event.start_mark.line + 1;
	anchor = anchor_of(&reader->event);
	tag = tag_of(&reader->event);
	if (reader->event.type == YAML_ALIAS_EVENT)
		return FAIL(reader, reader->line, NULL,
			    "the alias \"*%.64s\" is not allowed; allowed: the value itself",
			    (const char *)reader->event.data.alias.anchor);
	if (anchor)
		return FAIL(reader, reader->line, NULL,
			    "the anchor \"&%.64s\" is not allowed; allowed: values without anchors",
			    anchor);
	if (tag)
		return FAIL(reader, reader->line, NULL,
			    "the tag \"%.64s\" is not allowed; allowed: values without tags", tag);
	return true;
}

static const char *kind_of(const yaml_event_t *event)
{
	switch (event->type) {
	case YAML_SEQUENCE_START_EVENT:
		return "a list";
	case YAML_MAPPING_START_EVENT:
		return "a mapping";
	default:
		return "a value";
	}
}

/* A value that stands for "nothing" in YAML. */
static bool is_null(const yaml_event_t *event)
{
	static const char *const nulls[] = { "", "~", "null", "Null", "NULL" };

	if (event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
		return false;
	for (size_t i = 0; i < RF_ARRAY_SIZE(nulls); i++)
		if (!strcmp((const char *)event->data.scalar.value, nulls[i]))
			return true;
	return false;
}

/* The scalar at which the walk stands, as the value of an option. */
static bool read_scalar(struct reader *reader, const struct rf_opt *opt, void *options, bool item)
{
	const char *value = (const char *)reader->event.data.scalar.value;
	size_t len = reader->event.data.scalar.length;
	char wrong[RF_OPT_WRONG_BYTES], allowed[160];
	char *kept;
	int r;

	if (is_null(&reader->event) || strlen(value) != len) {
		rf_opt_allowed(opt, allowed, sizeof(allowed));
		return FAIL(reader, reader->line, opt->name, "%s; allowed: %s",
			    strlen(value) != len ? "a NUL is in the value" : "it is empty",
			    allowed);
	}
	kept = rf_vsock_setup_keep(reader->setup, value, len);
	if (!kept)
		return FAIL(reader, reader->line, opt->name, "no memory");
	r = item ? rf_opt_store_item(opt, kept, options, wrong)
		 : rf_opt_store(opt, kept, options, wrong);
	return r == 0 || FAIL(reader, reader->line, opt->name, "%s", wrong);
}

static bool read_list(struct reader *reader, const struct rf_opt *opt, void *options)
{
	uint32_t line = reader->line;
	unsigned n = 0;

	for (; next(reader); n++) {
		if (reader->event.type == YAML_SEQUENCE_END_EVENT)
			return n || FAIL(reader, line, opt->name,
					 "the list is empty; allowed: at least one value");
		if (reader->event.type != YAML_SCALAR_EVENT)
			return FAIL(reader, reader->line, opt->name,
				    "%s in the list; allowed: values", kind_of(&reader->event));
		if (!read_scalar(reader, opt, options, true))
			return false;
	}
	return false;
}

static bool read_value(struct reader *reader, const struct rf_opt *opt, void *options)
{
	char allowed[160];

	if (!next(reader))
		return false;
	if (reader->event.type == YAML_SCALAR_EVENT)
		return read_scalar(reader, opt, options, false);
	if (reader->event.type == YAML_SEQUENCE_START_EVENT && opt->kind == RF_OPT_LIST)
		return read_list(reader, opt, options);
	rf_opt_allowed(opt, allowed, sizeof(allowed));
	return FAIL(reader, reader->line, opt->name, "%s is not allowed; allowed: %s",
		    kind_of(&reader->event),
		    opt->kind == RF_OPT_LIST ? "a list of values" : allowed);
}

/* A key of the mapping in which the walk stands, at @ret_end its end instead. */
static bool read_key(struct reader *reader, bool *ret_end)
{
	if (!next(reader))
		return false;
	*ret_end = reader->event.type == YAML_MAPPING_END_EVENT;
	if (!*ret_end && reader->event.type != YAML_SCALAR_EVENT)
		return FAIL(reader, reader->line, NULL, "%s as a key; allowed: a word",
			    kind_of(&reader->event));
	return true;
}

static bool read_device(struct reader *reader)
{
	struct rf_vsock_spec *spec;
	const struct rf_opt *opt;
	bool end;

	if (reader->event.type != YAML_MAPPING_START_EVENT)
		return FAIL(reader, reader->line, "vms",
			    "%s in the list; allowed: devices, which are lines KEY: VALUE",
			    kind_of(&reader->event));
	spec = rf_vsock_setup_add(reader->cmd, reader->setup, reader->line);
	while (spec && read_key(reader, &end)) {
		if (end)
			return true;
		opt = rf_vsock_setup_key(reader->cmd, reader->setup, spec,
					 (const char *)reader->event.data.scalar.value,
					 reader->event.data.scalar.length, reader->line);
		if (!opt || !read_value(reader, opt, spec))
			break;
	}
	reader->status = RF_EXIT_USAGE;
	return false;
}

static bool read_devices(struct reader *reader)
{
	uint32_t line;

	if (!next(reader))
		return false;
	line = reader->line;
	if (reader->event.type != YAML_SEQUENCE_START_EVENT)
		return FAIL(reader, line, "vms", "%s is not allowed; allowed: a list of devices",
			    kind_of(&reader->event));
	while (next(reader)) {
		if (reader->event.type == YAML_SEQUENCE_END_EVENT)
			return reader->setup->n_specs ||
			       FAIL(reader, line, "vms",
				    "the list is empty; allowed: at least one device");
		if (!read_device(reader))
			return false;
	}
	return false;
}

static bool read_top(struct reader *reader)
{
	uint32_t line = reader->line, first = 0;
	bool end;

	while (read_key(reader, &end)) {
		const char *key = (const char *)reader->event.data.scalar.value;

		if (end)
			return first ||
			       FAIL(reader, line, NULL, "it is empty; allowed: " TOP_ALLOWED);
		if (strcmp(key, "vms") != 0)
			return FAIL(reader, reader->line, NULL,
				    "\"%.64s\" is no key here; allowed: " TOP_ALLOWED, key);
		if (first)
			return FAIL(reader, reader->line, "vms",
				    "given twice, first in line %u; allowed: once", first);
		first = reader->line;
		if (!read_devices(reader))
			return false;
	}
	return false;
}

static bool read_document(struct reader *reader)
{
	if (!next(reader))
		return false;
	if (reader->event.type == YAML_STREAM_END_EVENT)
		return FAIL(reader, reader->line, NULL, "it is empty; allowed: " TOP_ALLOWED);
	if (!next(reader))
		return false;
	if (reader->event.type == YAML_SCALAR_EVENT && is_null(&reader->event))
		return FAIL(reader, reader->line, NULL, "it is empty; allowed: " TOP_ALLOWED);
	if (reader->event.type != YAML_MAPPING_START_EVENT)
		return FAIL(reader, reader->line, NULL, "%s is not allowed; allowed: " TOP_ALLOWED,
			    kind_of(&reader->event));
	if (!read_top(reader) || !next(reader) || !next(reader))
		return false;
	return reader->event.type == YAML_STREAM_END_EVENT ||
	       FAIL(reader, reader->line, NULL, "another document begins; allowed: one");
}

int rf_vsock_setup_yaml(const struct rf_cmd *cmd, struct rf_vsock_setup *setup, const void *text,
			size_t bytes)
{
	struct reader reader = { .cmd = cmd, .setup = setup, .text = text, .bytes = bytes };
	bool ok;

	if (!yaml_parser_initialize(&reader.parser))
		return rf_vsock_setup_error(cmd, setup, 1, NULL, "no memory");
	yaml_parser_set_encoding(&reader.parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&reader.parser, text, bytes);
	/* The first event is the beginning of the stream. */
	ok = next(&reader) && read_document(&reader);
	assert(ok == !reader.status);
	yaml_event_delete(&reader.event);
	yaml_parser_delete(&reader.parser);
	return reader.status;
}

/* Return: bytes read, at most @max, or -errno. */
static ssize_t read_file(const char *path, void *buf, size_t max)
{
	RF_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t got = 0;

	if (fd < 0)
		return -errno;
	while (got < max) {
		ssize_t n = read(fd, (char *)buf + got, max - got);

		if (n == 0)
			break;
		if (n < 0 && errno != EINTR)
			return -errno;
		got += n < 0 ? 0 : (size_t)n;
	}
	return (ssize_t)got;
}

int rf_vsock_setup_file(const struct rf_cmd *cmd, struct rf_vsock_setup *setup)
{
	char *text = malloc(RF_VSOCK_CONFIG_BYTES + 1);
	ssize_t bytes = text ? read_file(setup->file, text, RF_VSOCK_CONFIG_BYTES + 1) : -ENOMEM;
	int status;

	if (bytes < 0)
		status = rf_opts_error(cmd, "--config", "%.512s: %s; allowed: a file", setup->file,
				       strerror((int)-bytes));
	else if ((size_t)bytes > RF_VSOCK_CONFIG_BYTES)
		status = rf_opts_error(cmd, "--config",
				       "%.512s: the file is too large; allowed: at most %zu bytes",
				       setup->file, RF_VSOCK_CONFIG_BYTES);
	else
		status = rf_vsock_setup_yaml(cmd, setup, text, (size_t)bytes);
	free(text);
	return status;
}
