/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How many descriptors this process has: compared before and after, it shows a leak.
 */
#ifndef RF_TESTS_OPEN_FDS_H
#define RF_TESTS_OPEN_FDS_H

#include <dirent.h>
#include <stdlib.h>

static inline unsigned open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	if (!dir)
		abort();
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

#endif
