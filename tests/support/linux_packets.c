/* SPDX-License-Identifier: BSD-3-Clause */
#include "linux_packets.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"

/* One element more; ends the test when out of memory. */
static void *grow(void *array, unsigned n, size_t size)
{
	array = realloc(array, (n + 1) * size);
	assert_non_null(array);
	memset((char *)array + n * size, 0, size);
	return array;
}

static uint32_t parse_number(const char *text, char **ret_end)
{
	unsigned long number = strtoul(text, ret_end, 10);

	assert_true(*ret_end != text && number <= UINT32_MAX);
	return (uint32_t)number;
}

/* "44r+4096r": the guest's buffers are all readable by the device, the host's all writable. */
static void parse_sizes(const char *text, struct linux_packet *packet)
{
	for (;;) {
		char *end;

		assert_true(packet->n_pieces < LINUX_MAX_PIECES);
		packet->piece_bytes[packet->n_pieces++] = parse_number(text, &end);
		assert_int_equal(*end++, packet->from_guest ? 'r' : 'w');
		if (!*end)
			return;
		assert_int_equal(*end, '+');
		text = end + 1;
	}
}

static uint8_t parse_nibble(char digit)
{
	static const char digits[] = "0123456789abcdef";
	const char *at = digit ? strchr(digits, digit) : NULL;

	assert_non_null(at);
	return (uint8_t)(at - digits);
}

static void parse_header(const char *hex, struct linux_packet *packet)
{
	assert_int_equal(strlen(hex), 2 * sizeof(packet->wire));
	for (size_t i = 0; i < sizeof(packet->wire); i++)
		packet->wire[i] =
			(uint8_t)(parse_nibble(hex[2 * i]) << 4 | parse_nibble(hex[2 * i + 1]));
	rf_vsock_hdr_decode(packet->wire, &packet->hdr);
}

/* Is a word @yes? It must be @no otherwise. */
static bool parse_choice(const char *word, const char *yes, const char *no)
{
	if (strcmp(word, yes) == 0)
		return true;
	assert_string_equal(word, no);
	return false;
}

static void parse_packet(char *line, struct linux_packet *packet)
{
	char *words[5], *rest = NULL, *end;

	for (unsigned i = 0; i < RF_ARRAY_SIZE(words); i++) {
		words[i] = strtok_r(i ? NULL : line, " \n", &rest);
		assert_non_null(words[i]);
	}
	packet->from_guest = parse_choice(words[0], "guest", "host");
	packet->indirect = parse_choice(words[1], "indirect", "direct");
	parse_sizes(words[2], packet);
	parse_header(words[3], packet);
	assert_int_equal(parse_number(words[4], &end), packet->hdr.len);
}

static void parse_scene(char *line, struct linux_scene *scene)
{
	line[strcspn(line, "\n")] = '\0';
	assert_true(strlen(line) < sizeof(scene->name));
	memcpy(scene->name, line, strlen(line) + 1);
}

static void parse_line(char *line, struct linux_scenes *all)
{
	struct linux_scene *scene;

	if (line[0] == '#' || line[0] == '\n')
		return;
	if (strncmp(line, "scene ", 6) == 0) {
		all->scenes = grow(all->scenes, all->n_scenes, sizeof(*scene));
		parse_scene(line + 6, &all->scenes[all->n_scenes++]);
		return;
	}
	assert_true(all->n_scenes > 0);
	scene = &all->scenes[all->n_scenes - 1];
	scene->packets = grow(scene->packets, scene->n_packets, sizeof(*scene->packets));
	parse_packet(line, &scene->packets[scene->n_packets++]);
}

void linux_scenes_read(const char *name, struct linux_scenes *ret_scenes)
{
	char path[4096], line[512];
	FILE *file;

	memset(ret_scenes, 0, sizeof(*ret_scenes));
	snprintf(path, sizeof(path), "%s/%s", RF_FIXTURES, name);
	file = fopen(path, "re");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		parse_line(line, ret_scenes);
	fclose(file);
	assert_true(ret_scenes->n_scenes > 0);
}

void linux_scenes_free(struct linux_scenes *scenes)
{
	for (unsigned i = 0; i < scenes->n_scenes; i++)
		free(scenes->scenes[i].packets);
	free(scenes->scenes);
}

const struct linux_scene *linux_scene_find(const struct linux_scenes *scenes, const char *name)
{
	for (unsigned i = 0; i < scenes->n_scenes; i++)
		if (strcmp(scenes->scenes[i].name, name) == 0)
			return &scenes->scenes[i];
	fail_msg("no scene %s", name);
	return NULL;
}
