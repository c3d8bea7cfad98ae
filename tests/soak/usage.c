/* SPDX-License-Identifier: BSD-3-Clause */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "soak.h"

long soak_count_fds(pid_t pid)
{
	char path[64];
	long n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

long soak_memory_kib(pid_t pid)
{
	char path[64], line[128];
	long kib = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, "RssAnon:", 8))
			kib = strtol(line + 8, NULL, 10);
	fclose(file);
	return kib;
}
