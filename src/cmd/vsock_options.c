/* SPDX-License-Identifier: BSD-3-Clause */
#include "vsock_setup.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "host/limits.h"
#include "vsock/packet.h"

static int parse_vm(const struct rf_opt *opt RF_UNUSED, const char *value, void *options,
		    char *allowed, size_t allowed_bytes)
{
	struct rf_vsock_setup *setup = options;

	if (setup->n_vms == RF_ARRAY_SIZE(setup->vms)) {
		snprintf(allowed, allowed_bytes, "at most %u devices", RF_VSOCK_MAX_DEVICES);
		return -EINVAL;
	}
	setup->vms[setup->n_vms++] = value;
	return 0;
}

static int parse_tune(const struct rf_opt *opt RF_UNUSED, const char *value, void *options,
		      char *allowed, size_t allowed_bytes)
{
	struct rf_vsock_spec *spec = options;

	return rf_opt_switch(rf_host_switch_defs, rf_host_n_switches, &spec->switches, value,
			     allowed, allowed_bytes);
}

/* A number with the suffix ms or s. */
static int time_parse(const char *text, uint64_t *ret_ns)
{
	size_t digits = strspn(text, "0123456789");
	bool ms = !strcmp(text + digits, "ms");
	char number[16];
	uint64_t value;

	if ((!ms && strcmp(text + digits, "s") != 0) || digits >= sizeof(number))
		return -EINVAL;
	memcpy(number, text, digits);
	number[digits] = '\0';
	if (rf_number_parse(number, &value) < 0)
		return -EINVAL;
	value *= ms ? RF_NS_PER_MS : RF_NS_PER_SEC;
	if (value < RF_HOST_TIME_MIN_MS * RF_NS_PER_MS ||
	    value > RF_HOST_TIME_MAX_MS * RF_NS_PER_MS)
		return -ERANGE;
	*ret_ns = value;
	return 0;
}

static int parse_timeout(const struct rf_opt *opt RF_UNUSED, const char *value, void *options,
			 char *allowed, size_t allowed_bytes)
{
	struct rf_vsock_spec *spec = options;
	const struct {
		const char *name;
		uint64_t *ns;
	} times[] = {
		{ "handshake=", &spec->handshake_ns },
		{ "shutdown=", &spec->shutdown_ns },
		{ "connect-line=", &spec->line_ns },
		{ "connect_line=", &spec->line_ns },
	};

	for (size_t i = 0; i < RF_ARRAY_SIZE(times); i++) {
		size_t len = strlen(times[i].name);

		if (!strncmp(value, times[i].name, len) &&
		    time_parse(value + len, times[i].ns) == 0)
			return 0;
	}
	snprintf(allowed, allowed_bytes,
		 "handshake=TIME, shutdown=TIME or connect-line=TIME, a TIME from %ums to %us (a "
		 "number with ms or s)",
		 RF_HOST_TIME_MIN_MS, RF_HOST_TIME_MAX_MS / 1000);
	return -EINVAL;
}

static int parse_ok_port(const struct rf_opt *opt RF_UNUSED, const char *value, void *options,
			 char *allowed, size_t allowed_bytes)
{
	enum rf_host_ok_port *port = &((struct rf_vsock_spec *)options)->ok_port;

	if (!strcmp(value, "guest")) {
		*port = RF_HOST_OK_PORT_GUEST;
	} else if (!strcmp(value, "host")) {
		*port = RF_HOST_OK_PORT_HOST;
	} else {
		snprintf(allowed, allowed_bytes, "guest or host");
		return -EINVAL;
	}
	return 0;
}

/* A number or a name; -1, which chown(2) takes for "leave it", is neither. */
static int user_parse(const char *text, uid_t *ret_uid)
{
	const struct passwd *entry;
	uint32_t number;

	if (rf_port_parse(text, &number) == 0) {
		*ret_uid = number;
		return 0;
	}
	/* There is one thread yet. */
	/* cppcheck-suppress getpwnamCalled */
	entry = getpwnam(text);
	if (!entry)
		return -ENOENT;
	*ret_uid = entry->pw_uid;
	return 0;
}

static int group_parse(const char *text, gid_t *ret_gid)
{
	const struct group *entry;
	uint32_t number;

	if (rf_port_parse(text, &number) == 0) {
		*ret_gid = number;
		return 0;
	}
	/* cppcheck-suppress getgrnamCalled */
	entry = getgrnam(text);
	if (!entry)
		return -ENOENT;
	*ret_gid = entry->gr_gid;
	return 0;
}

static int parse_owner(const struct rf_opt *opt RF_UNUSED, const char *value, void *options,
		       char *allowed, size_t allowed_bytes)
{
	struct rf_vsock_spec *spec = options;
	const char *colon = strchr(value, ':');
	size_t len = colon ? (size_t)(colon - value) : strlen(value);
	gid_t gid = (gid_t)-1;
	char user[256];
	uid_t uid;

	if (len < sizeof(user)) {
		memcpy(user, value, len);
		user[len] = '\0';
	}
	if (len >= sizeof(user) || user_parse(user, &uid) < 0 ||
	    (colon && group_parse(colon + 1, &gid) < 0)) {
		snprintf(allowed, allowed_bytes,
			 "USER or USER:GROUP, names that this host knows or numbers");
		return -EINVAL;
	}
	spec->uds_uid = uid;
	spec->uds_gid = gid;
	return 0;
}

static int parse_group(const struct rf_opt *opt RF_UNUSED, const char *value, void *options,
		       char *allowed, size_t allowed_bytes)
{
	struct rf_vsock_spec *spec = options;

	if (!*value) {
		snprintf(allowed, allowed_bytes, "names with + between them");
		return -EINVAL;
	}
	spec->n_groups++;
	spec->foreign_group |= strcmp(value, "default") != 0;
	return 0;
}

static int parse_listen(const struct rf_opt *opt RF_UNUSED, const char *value, void *options,
			char *allowed, size_t allowed_bytes)
{
	struct rf_vsock_spec *spec = options;
	uint32_t port;

	if (spec->n_forward_listen == RF_VSOCK_MAX_LISTEN || rf_port_parse(value, &port) < 0) {
		snprintf(allowed, allowed_bytes,
			 "at most %u ports from 0 to %u with + between them", RF_VSOCK_MAX_LISTEN,
			 UINT32_MAX - 1);
		return -EINVAL;
	}
	spec->forward_listen[spec->n_forward_listen++] = port;
	return 0;
}

#define AT(member)     offsetof(struct rf_vsock_spec, member)
#define IN_ALL(member) offsetof(struct rf_vsock_setup, member)

#define SWITCH_HELP(name, type, def, values, help) " " #name "=" values ", default " def "."

const struct rf_opt rf_vsock_opts[RF_VSOCK_N_OPTS] = {
	{ "vm", 0, RF_OPT_CUSTOM, "LIST",
	  "A device, as KEY=VALUE,...: the keys are the options below that are marked with a star. "
	  "May be repeated, for several devices.",
	  .parse = parse_vm },
	{ "config", 0, RF_OPT_STRING, "FILE",
	  "YAML file with the list \"vms\" of devices, which have the same keys.",
	  .offset = IN_ALL(config) },
	{ "guest-cid", 0, RF_OPT_NUMBER, "N", "* The guest's CID, 3 to 4294967294. Default 3.",
	  .key = true, .min = 3, .max = RF_VSOCK_CID_ANY - 1, .offset = AT(guest_cid) },
	{ "socket", 0, RF_OPT_STRING, "PATH",
	  "* vhost-user socket on which the VMM, or a user-space guest, connects. Required unless "
	  "--fd is given.",
	  .key = true, .offset = AT(socket) },
	{ "uds-path", 0, RF_OPT_STRING, "PATH",
	  "* Hybrid socket: host programs connect to PATH and send \"CONNECT port\"; the guest's "
	  "connections to port P of the host go to PATH_P. Required.",
	  .key = true, .offset = AT(uds_path) },
	{ "tx-buffer-size", 0, RF_OPT_SIZE, "BYTES",
	  "* Bytes that the guest may have under way on one connection, 4k to 1g. Default 1048576.",
	  .key = true, .min = RF_VSOCK_WINDOW_MIN, .max = RF_VSOCK_WINDOW_MAX,
	  .offset = AT(window) },
	{ "queue-size", 0, RF_OPT_NUMBER, "N",
	  "* Largest ring that the guest may set up, a power of two from 2 to 32768. Default 1024.",
	  .key = true, .min = RF_VSOCK_QUEUE_MIN, .max = RF_VSOCK_QUEUE_MAX,
	  .offset = AT(queue_size) },
	{ "max-connections", 0, RF_OPT_NUMBER, "N",
	  "* Connections at once, 1 to 65536; --check tells the memory they may pin. Default 1024.",
	  .key = true, .min = 1, .max = RF_HOST_CONNS_LIMIT, .offset = AT(max_conns) },
	{ "timeouts", 0, RF_OPT_LIST, "LIST",
	  "* Times as NAME=TIME,... with the names handshake, shutdown and connect-line, TIME a "
	  "number with ms or s; between two of them + is allowed, too, and in --vm the only one. "
	  "Default handshake=2s,shutdown=8s,connect-line=10s.",
	  .key = true, .parse = parse_timeout },
	{ "ok-port", 0, RF_OPT_CUSTOM, "PORT",
	  "* Which port of a connection the line \"OK port\" names: guest or host. Default guest.",
	  .key = true, .parse = parse_ok_port },
	{ "socket-mode", 0, RF_OPT_MODE, "MODE",
	  "* Permissions of the vhost-user socket, octal. Default: what the umask leaves.",
	  .key = true, .offset = AT(socket_mode) },
	{ "uds-mode", 0, RF_OPT_MODE, "MODE",
	  "* Permissions of the hybrid socket, octal. Default: what the umask leaves.", .key = true,
	  .offset = AT(uds_mode) },
	{ "uds-owner", 0, RF_OPT_CUSTOM, "OWNER",
	  "* Owner of the hybrid socket, as USER or USER:GROUP, names or numbers. Default: who "
	  "runs the program.",
	  .key = true, .parse = parse_owner },
	{ "fd", 0, RF_OPT_NUMBER, "N",
	  "* Use descriptor N, a listening vhost-user socket or a front end's connected one, "
	  "instead of --socket. A device with a connected one ends when the front end leaves.",
	  .key = true, .max = INT32_MAX, .offset = AT(fd) },
	{ "tune", 0, RF_OPT_LIST, "NAME=VALUE",
	  "* Set a switch, for measurements; may be repeated." RF_HOST_SWITCHES(SWITCH_HELP),
	  .key = true, .parse = parse_tune },
	{ "groups", 0, RF_OPT_LIST, "NAMES",
	  "* Groups of guests that may talk to each other. Only \"default\", the default, is "
	  "allowed: connections between guests are not served yet.",
	  .key = true, .parse = parse_group },
	{ "forward-cid", 0, RF_OPT_NUMBER, "N",
	  "* Instead of --uds-path: use the host's own vsock. Not served yet.", .key = true,
	  .max = RF_VSOCK_CID_ANY - 1, .offset = AT(forward_cid) },
	{ "forward-listen", 0, RF_OPT_LIST, "PORTS",
	  "* With --forward-cid: ports to listen on. Not served yet.", .key = true,
	  .parse = parse_listen },
	{ "check", 0, RF_OPT_FLAG, NULL,
	  "Check all options and print one line for each device, and their sum, but serve nothing.",
	  .offset = IN_ALL(check) },
	{ "exit-on-disconnect", 0, RF_OPT_FLAG, NULL,
	  "End a device when its front end leaves, and the program with the last device.",
	  .offset = IN_ALL(exit_on_disconnect) },
	{ "poll-us", 0, RF_OPT_CUSTOM, "N",
	  "Before sleeping, look for N microseconds, 0 to 1000, whether a guest or a host program "
	  "has more: answers come sooner, for CPU time. Nothing is polled while nothing happens. "
	  "auto: for 50 at most, as long as it pays. Default 0.",
	  .parse = rf_opt_poll_us, .offset = IN_ALL(poll_us) },
	{ "print-ready", 0, RF_OPT_FLAG, NULL,
	  "Print the line \"ready\" on standard output when the sockets are open.",
	  .offset = IN_ALL(print_ready) },
	{ "log-level", 0, RF_OPT_CUSTOM, "LEVEL", "error, warning, info or debug. Default warning.",
	  .parse = rf_opt_log_level, .offset = IN_ALL(log_level) },
	{ "version", 'V', RF_OPT_FLAG, NULL, "Show the version and exit.",
	  .offset = IN_ALL(version) },
};
