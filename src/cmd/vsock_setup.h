/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What ringferry vsock is told to serve: one table of options, and its three forms.
 *
 * A device is described by flags (one device), by --vm key=value,... (one each), or in the YAML
 * file of --config (a list of them). Whatever is wrong is told in one line on standard error that
 * says where it stands: "--guest-cid", "--vm 2: guest-cid" or "FILE:LINE: guest-cid".
 */
#ifndef RF_CMD_VSOCK_SETUP_H
#define RF_CMD_VSOCK_SETUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "host/vsock_device.h"
#include "options.h"

/* A configuration file that is larger is refused: it is read into memory. */
#define RF_VSOCK_CONFIG_BYTES ((size_t)1 << 20)

/* Devices in one process: their descriptors, and the time of the checks of each against each. */
#define RF_VSOCK_MAX_DEVICES 1024u

/* Ports of one forward-listen. */
#define RF_VSOCK_MAX_LISTEN 64u

/* A number that was not given. */
#define RF_VSOCK_UNSET UINT64_MAX

/**
 * struct rf_vsock_spec - One device as it was described
 * @guest_cid, @socket, @uds_path, @window, @queue_size, @max_conns: as the option says
 * @socket_mode, @uds_mode, @fd, @forward_cid: RF_VSOCK_UNSET if not given
 * @uds_uid, @uds_gid:	-1 if not given
 * @handshake_ns, @shutdown_ns, @line_ns, @ok_port, @switches: as the option says
 * @forward_listen:	Ports
 * @n_forward_listen:	Their number
 * @n_groups:		Groups given
 * @foreign_group:	One of them is not "default"
 * @where:	Line of the file, or number of the --vm, at which it begins
 * @given:	For each option of the table: 0 if it was not given, else the line or number
 */
struct rf_vsock_spec {
	uint64_t guest_cid;
	const char *socket;
	const char *uds_path;
	uint64_t window;
	uint64_t queue_size;
	uint64_t max_conns;
	uint64_t socket_mode;
	uint64_t uds_mode;
	uint64_t fd;
	uint64_t forward_cid;
	uid_t uds_uid;
	gid_t uds_gid;
	uint64_t handshake_ns;
	uint64_t shutdown_ns;
	uint64_t line_ns;
	enum rf_host_ok_port ok_port;
	struct rf_host_switches switches;
	uint32_t forward_listen[RF_VSOCK_MAX_LISTEN];
	unsigned n_forward_listen;
	unsigned n_groups;
	bool foreign_group;
	uint32_t where;
	uint32_t given[RF_OPTS_MAX];
};

struct rf_vsock_text {
	SLIST_ENTRY(rf_vsock_text) link;
	char text[];
};

/**
 * struct rf_vsock_setup - All that ringferry vsock was told
 * @flags:	The device that flags describe. First: the offsets of keys are those of a device.
 * @print_ready, @exit_on_disconnect, @check, @version, @log_level, @poll_us, @config: options of
 *		the program
 * @vms:	Arguments of --vm
 * @n_vms:	Their number
 * @file:	Name of the configuration file on error lines; NULL in the other forms
 * @specs:	The devices
 * @n_specs:	Their number
 * @texts:	Strings that @specs point to
 */
struct rf_vsock_setup {
	struct rf_vsock_spec flags;
	bool print_ready;
	bool exit_on_disconnect;
	bool check;
	bool version;
	int log_level;
	int poll_us;
	const char *config;
	const char *vms[RF_VSOCK_MAX_DEVICES];
	unsigned n_vms;
	const char *file;
	struct rf_vsock_spec *specs;
	unsigned n_specs;
	SLIST_HEAD(, rf_vsock_text) texts;
};

#define RF_VSOCK_N_OPTS 24u

extern const struct rf_opt rf_vsock_opts[RF_VSOCK_N_OPTS];

/* Set the defaults. */
void rf_vsock_setup_init(struct rf_vsock_setup *setup);

void rf_vsock_setup_free(struct rf_vsock_setup *setup);

/**
 * rf_vsock_setup_complete() - After rf_opts_parse(): read the form that was used, and check all
 * @cmd:	Subcommand whose table is rf_vsock_opts
 *
 * Return: 0, or the exit status.
 */
int rf_vsock_setup_complete(const struct rf_cmd *cmd, struct rf_vsock_setup *setup);

/* Checks of all devices, each by itself and against the others. Return: 0, or the exit status. */
int rf_vsock_setup_check(const struct rf_cmd *cmd, const struct rf_vsock_setup *setup);

/**
 * rf_vsock_setup_add() - Begin a device, with its defaults
 * @where:	Line of the file, or number of the --vm
 *
 * Return: the device, valid until the next call; NULL if there are too many, or no memory, which
 * has been told.
 */
struct rf_vsock_spec *rf_vsock_setup_add(const struct rf_cmd *cmd, struct rf_vsock_setup *setup,
					 uint32_t where);

/* Keep a string as long as @setup. Return: the copy, or NULL when out of memory. */
char *rf_vsock_setup_keep(struct rf_vsock_setup *setup, const char *text, size_t len);

/* How a place is called in the form that was used; what stands before an option's name there. */
void rf_vsock_setup_place(const struct rf_vsock_setup *setup, uint32_t where, char *buf,
			  size_t buf_bytes);
const char *rf_vsock_setup_dashes(const struct rf_vsock_setup *setup);

/**
 * rf_vsock_setup_error() - Say what is wrong at a place of the form that was used
 * @where:	Line of the file, or number of the --vm
 * @key:	Key; NULL for the place itself
 *
 * Return: RF_EXIT_USAGE.
 */
int rf_vsock_setup_error(const struct rf_cmd *cmd, const struct rf_vsock_setup *setup,
			 uint32_t where, const char *key, const char *fmt, ...) RF_PRINTF(5, 6);

/**
 * rf_vsock_setup_key() - The option that a key of a device names
 * @key:	Key; '_' may stand for '-'
 * @key_len:	Its length
 * @where:	Line of the file, or number of the --vm
 *
 * Return: the option; NULL if it is unknown or was given before, which has been told.
 */
const struct rf_opt *rf_vsock_setup_key(const struct rf_cmd *cmd,
					const struct rf_vsock_setup *setup,
					struct rf_vsock_spec *spec, const char *key, size_t key_len,
					uint32_t where);

/**
 * rf_vsock_setup_vm() - Read the argument of one --vm
 * @number:	Which one, from 1
 * Return: 0, or the exit status.
 */
int rf_vsock_setup_vm(const struct rf_cmd *cmd, struct rf_vsock_setup *setup, const char *argument,
		      uint32_t number);

/**
 * rf_vsock_setup_file() - Read the file of --config, whose name is @setup->file
 * Return: 0, or the exit status.
 */
int rf_vsock_setup_file(const struct rf_cmd *cmd, struct rf_vsock_setup *setup);

/* As rf_vsock_setup_file(), with what stands in it. */
int rf_vsock_setup_yaml(const struct rf_cmd *cmd, struct rf_vsock_setup *setup, const void *text,
			size_t bytes);

/**
 * rf_vsock_spec_memory() - Memory that the connections of a device may pin
 * @ret_socket_bytes:	Socket buffers of one connection, as this host grants them
 *
 * Each connection holds at most its window, in a buffer whose size is a power of two, and what the
 * kernel buffers in both directions of its socket.
 *
 * Return: bytes for all connections.
 */
uint64_t rf_vsock_spec_memory(const struct rf_vsock_spec *spec, uint64_t *ret_socket_bytes);

#endif
