/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The line with which a host program asks for a port of the guest: "CONNECT <port>\n".
 */
#ifndef RF_HOST_CONNECT_LINE_H
#define RF_HOST_CONNECT_LINE_H

#include <stddef.h>
#include <stdint.h>

/**
 * rf_connect_line_parse() - Read a complete line
 * @line:	The line without its line feed; need not end in NUL
 * @len:	Its length
 * @ret_port:	The port
 *
 * The word in any case, blanks, a decimal number up to 2^32 - 2, and nothing more than blanks and a
 * carriage return behind it.
 *
 * Return: 0, or -EINVAL.
 */
int rf_connect_line_parse(const char *line, size_t len, uint32_t *ret_port);

#endif
