/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is printed on a standard stream between two moments.
 */
#ifndef CAPTURE_H
#define CAPTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* Return: a descriptor for capture_end(). */
static inline int capture_begin(FILE *stream, int fd, int *ret_saved)
{
	int file = memfd_create("output", MFD_CLOEXEC);

	assert_true(file >= 0);
	fflush(stream);
	*ret_saved = dup(fd);
	dup2(file, fd);
	return file;
}

static inline void capture_end(FILE *stream, int fd, int saved, int file, char *buf,
			       size_t buf_bytes)
{
	ssize_t n;

	fflush(stream);
	dup2(saved, fd);
	close(saved);
	n = pread(file, buf, buf_bytes - 1, 0);
	assert_true(n >= 0);
	buf[n] = '\0';
	close(file);
}

#endif
