/* SPDX-License-Identifier: BSD-3-Clause */
#include "linux_packets.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* One element more; ends the test when out of memory. */
static void *grow(void *array, unsigned n, size_t size)
{
	array = realloc(array, (n + 1) * size);
	assert_non_null(array);
	memset((char *)array + n * size, 0, size);
	return array;
}

/* "44r+4096r": the guest's buffers are all readable by the device, the host's all writable. */
static void parse_sizes(char *sizes, struct linux_packet *packet)
{
	char *rest = NULL;
	char *word;

	for (word = strtok_r(sizes, "+", &rest); word; word = strtok_r(NULL, "+", &rest)) {
		char access = 0;

		assert_true(packet->n_pieces < LINUX_MAX_PIECES);
		assert_int_equal(
			sscanf(word, "%u%c", &packet->piece_bytes[packet->n_pieces++], &access), 2);
		assert_int_equal(access, packet->from_guest ? 'r' : 'w');
	}
}

static void parse_header(const char *hex, struct linux_packet *packet)
{
	assert_int_equal(strlen(hex), 2 * sizeof(packet->wire));
	for (size_t i = 0; i < sizeof(packet->wire); i++) {
		unsigned byte = 0;

		assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
		packet->wire[i] = (uint8_t)byte;
	}
	rf_vsock_hdr_decode(packet->wire, &packet->hdr);
}

static void parse_packet(const char *line, struct linux_packet *packet)
{
	char sender[8], layout[16], sizes[80], hex[100];
	unsigned payload = 0;

	assert_int_equal(
		sscanf(line, "%7s %15s %79s %99s %u", sender, layout, sizes, hex, &payload), 5);
	packet->from_guest = strcmp(sender, "guest") == 0;
	assert_true(packet->from_guest || strcmp(sender, "host") == 0);
	packet->indirect = strcmp(layout, "indirect") == 0;
	assert_true(packet->indirect || strcmp(layout, "direct") == 0);
	parse_sizes(sizes, packet);
	parse_header(hex, packet);
	assert_int_equal(payload, packet->hdr.len);
}

static void parse_line(const char *line, struct linux_scenes *all)
{
	struct linux_scene *scene;

	if (line[0] == '#' || line[0] == '\n')
		return;
	if (strncmp(line, "scene ", 6) == 0) {
		all->scenes = grow(all->scenes, all->n_scenes, sizeof(*scene));
		assert_int_equal(sscanf(line, "scene %39s", all->scenes[all->n_scenes++].name), 1);
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
