/* SPDX-License-Identifier: BSD-3-Clause */
#include "connect_line.h"

#include <errno.h>
#include <stdbool.h>
#include <strings.h>

#include "vsock/packet.h"

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

int rf_connect_line_parse(const char *line, size_t len, uint32_t *ret_port)
{
	static const char word[] = "connect";
	size_t i = sizeof(word) - 1;
	uint64_t port = 0;

	if (len <= i || strncasecmp(line, word, i) != 0 || !is_blank(line[i]))
		return -EINVAL;
	while (i < len && is_blank(line[i]))
		i++;
	if (i == len || !is_digit(line[i]))
		return -EINVAL;
	for (; i < len && is_digit(line[i]); i++) {
		port = port * 10 + (uint64_t)(line[i] - '0');
		if (port >= RF_VSOCK_PORT_ANY)
			return -EINVAL;
	}
	while (i < len && (is_blank(line[i]) || line[i] == '\r'))
		i++;
	if (i != len)
		return -EINVAL;
	*ret_port = (uint32_t)port;
	return 0;
}
