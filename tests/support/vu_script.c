/* SPDX-License-Identifier: BSD-3-Clause */
/* The interpreter of the scripts that vu_lab.h describes. */
#include <inttypes.h>
#include <linux/virtio_ring.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "vu_lab.h"

#define MAX_WORDS    32
#define MAX_SEND_FDS 16

#define script_fail(step, ...)                                                \
	do {                                                                  \
		print_error("%s:%u: ", (step)->lab->name, (step)->lab->line); \
		print_error(__VA_ARGS__);                                     \
		print_error("\n");                                            \
		fail();                                                       \
	} while (0)

/* A line of the script, taken apart, and the message it makes. */
struct step {
	struct vu_lab *lab;
	char *words[MAX_WORDS];
	unsigned n_words, next;
	struct rf_vu_message msg;
	int fds[MAX_SEND_FDS];
	unsigned n_fds;
};

static bool more(const struct step *step)
{
	return step->next < step->n_words;
}

static char *word(struct step *step)
{
	if (!more(step))
		script_fail(step, "a word is missing");
	return step->words[step->next++];
}

/* Take the next word if it is this one. */
static bool take(struct step *step, const char *what)
{
	if (!more(step) || strcmp(step->words[step->next], what))
		return false;
	step->next++;
	return true;
}

/* Take the next word if it is "NAME=number". */
static bool take_value(struct step *step, const char *name, uint64_t *ret_value)
{
	size_t len = strlen(name);

	if (!more(step) || strncmp(step->words[step->next], name, len) ||
	    step->words[step->next][len] != '=')
		return false;
	*ret_value = strtoull(step->words[step->next++] + len + 1, NULL, 0);
	return true;
}

static uint64_t number(struct step *step)
{
	char *text = word(step), *end;
	uint64_t value = strtoull(text, &end, 0);

	if (*end || end == text)
		script_fail(step, "\"%s\" is no number", text);
	return value;
}

static struct vu_lab_ring *ring_number(struct step *step)
{
	uint64_t ring = number(step);

	if (ring >= step->lab->device.n_rings)
		script_fail(step, "there is no ring %" PRIu64, ring);
	return &step->lab->rings[ring];
}

static bool yes_or_no(struct step *step)
{
	if (take(step, "yes"))
		return true;
	if (!take(step, "no"))
		script_fail(step, "yes or no?");
	return false;
}

static void add_fd(struct step *step, int fd)
{
	assert_true(fd >= 0 && step->n_fds < MAX_SEND_FDS);
	step->fds[step->n_fds++] = fd;
}

static void parse_region(struct step *step, struct rf_vu_mem_region *ret_region)
{
	struct vu_lab *lab = step->lab;
	char *p = word(step);
	uint64_t v[4];

	for (unsigned i = 0; i < 4; i++) {
		v[i] = strtoull(p, &p, 0);
		p += *p == ',';
	}
	*ret_region = (struct rf_vu_mem_region){
		.gpa = v[0], .size = v[1], .uva = v[2], .mmap_offset = v[3]
	};
	/* Sizes that no file can have are for the session to refuse. */
	if (v[1] < UINT64_C(1) << 40 && v[3] < UINT64_C(1) << 40 &&
	    v[1] + v[3] > lab->memfd_bytes) {
		lab->memfd_bytes = v[1] + v[3];
		assert_int_equal(ftruncate(lab->memfd, (off_t)lab->memfd_bytes), 0);
	}
	add_fd(step, dup(lab->memfd));
}

static bool same_region(const struct rf_vu_mem_region *a, const struct rf_vu_mem_region *b)
{
	return a->gpa == b->gpa && a->size == b->size && a->uva == b->uva;
}

static void parse_table(struct step *step)
{
	struct vu_lab *lab = step->lab;
	struct rf_vu_mem_table *table = &step->msg.payload.table;

	lab->n_regions = 0;
	while (more(step) && step->words[step->next][0] == '0') {
		struct rf_vu_mem_region region;

		parse_region(step, &region);
		if (table->n_regions < RF_VU_MAX_TABLE_REGIONS)
			table->regions[table->n_regions] = region;
		table->n_regions++;
		assert_true(lab->n_regions < VU_LAB_MAX_REGIONS);
		lab->regions[lab->n_regions++] = region;
	}
	step->msg.hdr.size = 8 + 32 * table->n_regions;
}

static void parse_single(struct step *step)
{
	struct vu_lab *lab = step->lab;
	struct rf_vu_mem_region *region = &step->msg.payload.single.region;
	unsigned i = 0;

	parse_region(step, region);
	step->msg.hdr.size = sizeof(step->msg.payload.single);
	while (i < lab->n_regions && !same_region(&lab->regions[i], region))
		i++;
	if (step->msg.hdr.request == RF_VU_REM_MEM_REG) {
		rf_fd_close(step->fds[--step->n_fds]);
		if (i < lab->n_regions)
			lab->regions[i] = lab->regions[--lab->n_regions];
	} else if (i == lab->n_regions) {
		assert_true(lab->n_regions < VU_LAB_MAX_REGIONS);
		lab->regions[lab->n_regions++] = *region;
	}
}

static void parse_addr(struct step *step)
{
	struct rf_vu_vring_addr *addr = &step->msg.payload.addr;

	addr->index = (uint32_t)number(step);
	addr->flags = (uint32_t)number(step);
	addr->desc = number(step);
	addr->used = number(step);
	addr->avail = number(step);
	addr->log = number(step);
	step->msg.hdr.size = sizeof(*addr);
	if (addr->index < step->lab->device.n_rings) {
		step->lab->rings[addr->index].desc = addr->desc;
		step->lab->rings[addr->index].used = addr->used;
		step->lab->rings[addr->index].avail = addr->avail;
	}
}

static void parse_vring_fd(struct step *step)
{
	struct vu_lab *lab = step->lab;
	struct vu_lab_ring *ring;
	int fd = -1, *mine;

	step->msg.payload.u64 = number(step);
	step->msg.hdr.size = sizeof(step->msg.payload.u64);
	if (take(step, "nofd")) {
		step->msg.payload.u64 |= RF_VU_VRING_NOFD;
	} else {
		fd = rf_eventfd_new();
		add_fd(step, fd);
	}
	if (step->msg.payload.u64 >= lab->device.n_rings)
		return;
	ring = &lab->rings[step->msg.payload.u64];
	mine = step->msg.hdr.request == RF_VU_SET_VRING_KICK   ? &ring->kick
	       : step->msg.hdr.request == RF_VU_SET_VRING_CALL ? &ring->call
							       : &ring->err;
	rf_fd_close(*mine);
	*mine = dup(fd);
}

static void parse_state(struct step *step)
{
	struct rf_vu_vring_state *state = &step->msg.payload.state;

	state->index = (uint32_t)number(step);
	if (step->msg.hdr.request != RF_VU_GET_VRING_BASE)
		state->num = (uint32_t)number(step);
	step->msg.hdr.size = sizeof(*state);
	if (step->msg.hdr.request == RF_VU_SET_VRING_NUM &&
	    state->index < step->lab->device.n_rings)
		step->lab->rings[state->index].num = state->num;
}

static void parse_payload(struct step *step)
{
	struct rf_vu_message *msg = &step->msg;

	switch (msg->hdr.request) {
	case RF_VU_SET_MEM_TABLE:
		parse_table(step);
		break;
	case RF_VU_ADD_MEM_REG:
	case RF_VU_REM_MEM_REG:
		parse_single(step);
		break;
	case RF_VU_SET_VRING_ADDR:
		parse_addr(step);
		break;
	case RF_VU_SET_VRING_NUM:
	case RF_VU_SET_VRING_BASE:
	case RF_VU_GET_VRING_BASE:
	case RF_VU_SET_VRING_ENABLE:
		parse_state(step);
		break;
	case RF_VU_SET_VRING_KICK:
	case RF_VU_SET_VRING_CALL:
	case RF_VU_SET_VRING_ERR:
		parse_vring_fd(step);
		break;
	case RF_VU_GET_CONFIG:
	case RF_VU_SET_CONFIG:
		msg->payload.config.offset = (uint32_t)number(step);
		msg->payload.config.size = (uint32_t)number(step);
		msg->hdr.size = 12 + msg->payload.config.size;
		break;
	case RF_VU_SET_LOG_FD:
	case RF_VU_SET_BACKEND_REQ_FD:
		add_fd(step, rf_eventfd_new());
		break;
	default:
		if (rf_vu_request_def(msg->hdr.request) &&
		    !rf_vu_request_def(msg->hdr.request)->min_size)
			break;
		msg->payload.u64 = number(step);
		msg->hdr.size = sizeof(msg->payload.u64);
	}
}

static void set_n_fds(struct step *step, uint64_t n)
{
	while (step->n_fds > n)
		rf_fd_close(step->fds[--step->n_fds]);
	while (step->n_fds < n)
		add_fd(step, rf_eventfd_new());
}

static void parse_options(struct step *step)
{
	struct rf_vu_hdr *hdr = &step->msg.hdr;
	uint64_t value;

	hdr->flags = RF_VU_PROTOCOL_VERSION;
	for (;;) {
		if (take(step, "need"))
			hdr->flags |= RF_VU_FLAG_NEED_REPLY;
		else if (take_value(step, "flags", &value))
			hdr->flags = (uint32_t)value;
		else if (take_value(step, "size", &value))
			hdr->size = (uint32_t)value;
		else if (take_value(step, "fds", &value))
			set_n_fds(step, value);
		else
			return;
	}
}

static void send_step(struct step *step)
{
	uint8_t buf[RF_VU_HDR_BYTES + RF_VU_MAX_PAYLOAD];
	size_t size = rf_min_size(step->msg.hdr.size, RF_VU_MAX_PAYLOAD);

	memcpy(buf, &step->msg.hdr, RF_VU_HDR_BYTES);
	memcpy(buf + RF_VU_HDR_BYTES, step->msg.payload.bytes, size);
	vu_lab_send(step->lab, buf, RF_VU_HDR_BYTES + size, step->fds, step->n_fds);
	while (step->n_fds)
		rf_fd_close(step->fds[--step->n_fds]);
}

static void get_reply(struct step *step, struct rf_vu_message *ret_reply)
{
	if (!vu_lab_recv(step->lab, ret_reply))
		script_fail(step, "no reply; last line of the log: %s", step->lab->last_log);
	/* QEMU insists on exactly this: need_reply is never echoed. */
	if (ret_reply->hdr.flags != 0x5)
		script_fail(step, "reply with flags 0x%x", ret_reply->hdr.flags);
	if (ret_reply->hdr.request != step->msg.hdr.request)
		script_fail(step, "reply to request %u", ret_reply->hdr.request);
}

static void check_reason(struct step *step)
{
	const char *name = word(step);
	static const struct {
		const char *name, *text;
	} reasons[] = {
#define X(n, t) { #n, t },
		RF_VU_REASONS(X)
#undef X
	};

	for (unsigned i = 0; i < RF_ARRAY_SIZE(reasons); i++) {
		if (strcmp(reasons[i].name, name))
			continue;
		if (!strstr(step->lab->last_log, reasons[i].text))
			script_fail(step, "the log says \"%s\"", step->lab->last_log);
		return;
	}
	script_fail(step, "there is no reason %s", name);
}

static void check_config(struct step *step, const struct rf_vu_message *reply, const char *hex)
{
	const struct rf_vu_config *config = &reply->payload.config;

	if (!strcmp(hex, "-"))
		hex = "";
	if (reply->hdr.size != step->msg.hdr.size || strlen(hex) != 2 * config->size)
		script_fail(step, "reply of %u bytes", reply->hdr.size);
	for (unsigned i = 0; i < config->size; i++) {
		unsigned byte;

		if (sscanf(hex + 2 * i, "%2x", &byte) != 1 || config->data[i] != byte)
			script_fail(step, "byte %u of the configuration is %02x", i,
				    config->data[i]);
	}
}

static void check_value(struct step *step, const struct rf_vu_message *reply)
{
	uint64_t value = reply->payload.u64;

	if (reply->hdr.size != 8)
		script_fail(step, "reply of %u bytes", reply->hdr.size);
	if (reply->hdr.request == RF_VU_GET_VRING_BASE) {
		if (reply->payload.state.index != step->msg.payload.state.index)
			script_fail(step, "base of ring %u", reply->payload.state.index);
		value = reply->payload.state.num;
	}
	if (!take(step, "any") && value != number(step))
		script_fail(step, "the reply is 0x%" PRIx64, value);
}

static void check_answer(struct step *step)
{
	struct rf_vu_message reply;
	char stray;

	if (take(step, "=")) {
		get_reply(step, &reply);
		if (step->msg.hdr.request == RF_VU_GET_CONFIG)
			check_config(step, &reply, word(step));
		else
			check_value(step, &reply);
	} else if (take(step, "ack")) {
		get_reply(step, &reply);
		if (reply.hdr.size != 8 || reply.payload.u64)
			script_fail(step, "refused: %s", step->lab->last_log);
	} else if (take(step, "nack")) {
		get_reply(step, &reply);
		if (reply.hdr.size != 8 || !reply.payload.u64)
			script_fail(step, "not refused");
		check_reason(step);
	} else if (take(step, "empty")) {
		get_reply(step, &reply);
		assert_int_equal(reply.hdr.size, 0);
	} else if (take(step, "anyreply")) {
		(void)vu_lab_recv(step->lab, &reply);
	}
	if (recv(step->lab->peer, &stray, 1, 0) > 0)
		script_fail(step, "a reply that nobody asked for");
	if (more(step))
		script_fail(step, "\"%s\" was not expected", word(step));
}

/* Would a front end that negotiates leave this out? */
static bool is_left_out(struct step *step, uint32_t request)
{
	const struct rf_vu_request_def *def = rf_vu_request_def(request);

	return step->lab->polite &&
	       (!def || (def->feature >= 0 &&
			 !(step->lab->device.protocol_features & UINT64_C(1) << def->feature)));
}

static void run_request(struct step *step, uint32_t request)
{
	step->msg.hdr.request = request;
	if (is_left_out(step, request))
		return;
	vu_lab_open(step->lab);
	parse_payload(step);
	if (step->lab->polite && request == RF_VU_SET_PROTOCOL_FEATURES)
		step->msg.payload.u64 &= step->lab->device.protocol_features;
	parse_options(step);
	send_step(step);
	vu_lab_pump(step->lab);
	check_answer(step);
}

static void do_device(struct step *step)
{
	struct rf_vu_device *device = &step->lab->device;
	uint64_t value;

	while (more(step)) {
		if (take_value(step, "features", &value))
			device->features = value & ~RF_VU_F_PROTOCOL_FEATURES;
		else if (take_value(step, "protocol", &value))
			device->protocol_features = value;
		else if (take_value(step, "rings", &value))
			device->n_rings = (unsigned)value;
		else if (take_value(step, "max_num", &value))
			device->max_num = (uint32_t)value;
		else if (take_value(step, "queue_num", &value))
			device->queue_num = value;
		else if (take_value(step, "polite", &value))
			step->lab->polite = value;
		else
			script_fail(step, "\"%s\" was not expected", word(step));
	}
}

static void do_expect(struct step *step)
{
	char events[1024] = "";

	while (more(step)) {
		if (events[0])
			strcat(events, " ");
		strcat(events, word(step));
		assert_true(strlen(events) < sizeof(events) - 64);
	}
	vu_lab_expect(step->lab, events);
}

static void do_kick(struct step *step)
{
	rf_eventfd_signal(ring_number(step)->kick);
	vu_lab_pump(step->lab);
}

static void do_kicks(struct step *step)
{
	struct vu_lab_ring *ring = ring_number(step);
	uint64_t want = number(step);

	if (ring->kicks != want)
		script_fail(step, "%u kicks", ring->kicks);
	ring->kicks = 0;
}

/* Buffers of 64 readable bytes at the start of guest memory. */
static void do_avail(struct step *step)
{
	struct vu_lab *lab = step->lab;
	struct vu_lab_ring *ring = ring_number(step);
	size_t desc_bytes = ring->num * sizeof(struct vring_desc);
	size_t avail_bytes = sizeof(struct vring_avail) + ring->num * sizeof(uint16_t);
	struct vring_desc *desc = vu_lab_map(lab, ring->desc, desc_bytes);
	struct vring_avail *avail = vu_lab_map(lab, ring->avail, avail_bytes);

	for (uint64_t n = number(step); n; n--) {
		uint16_t slot = avail->idx % ring->num;

		desc[slot] = (struct vring_desc){ .addr = lab->regions[0].gpa, .len = 64 };
		avail->ring[slot] = slot;
		avail->idx++;
	}
	vu_lab_unmap(desc, desc_bytes);
	vu_lab_unmap(avail, avail_bytes);
}

static void do_zero(struct step *step)
{
	struct vu_lab *lab = step->lab;
	struct vu_lab_ring *ring = ring_number(step);
	struct rf_ring_extent extent;
	void *p;

	assert_int_equal(rf_ring_extent_get(RF_RING_SPLIT, ring->num, &extent), 0);
	p = vu_lab_map(lab, ring->desc, extent.desc_bytes);
	memset(p, 0, extent.desc_bytes);
	vu_lab_unmap(p, extent.desc_bytes);
	p = vu_lab_map(lab, ring->avail, extent.driver_bytes);
	memset(p, 0, extent.driver_bytes);
	vu_lab_unmap(p, extent.driver_bytes);
	p = vu_lab_map(lab, ring->used, extent.device_bytes);
	memset(p, 0, extent.device_bytes);
	vu_lab_unmap(p, extent.device_bytes);
}

static void do_take(struct step *step)
{
	unsigned index = (unsigned)(ring_number(step) - step->lab->rings);
	struct rf_devq *q = rf_vu_session_queue(step->lab->session, index);
	unsigned want = (unsigned)number(step);
	const struct rf_chain *chains;
	struct rf_chain taken[64];
	int n = rf_devq_look(q, want, &chains);

	if (n < (int)want)
		script_fail(step, "%d buffers", n);
	assert_true(want <= RF_ARRAY_SIZE(taken));
	memcpy(taken, chains, want * sizeof(*chains));
	rf_devq_take(q, want);
	for (unsigned i = 0; i < want; i++)
		rf_devq_push(q, &taken[i], 0);
	rf_devq_publish(q);
	rf_vu_session_signal(step->lab->session, index);
}

static void check_eventfd(struct step *step, int fd)
{
	bool want = yes_or_no(step);

	if (rf_eventfd_drain(fd) != want)
		script_fail(step, want ? "not signalled" : "signalled");
}

static void do_called(struct step *step)
{
	struct vu_lab_ring *ring = ring_number(step);

	check_eventfd(step, ring->call);
}

static void do_err(struct step *step)
{
	struct vu_lab_ring *ring = ring_number(step);

	check_eventfd(step, ring->err);
}

static void do_hangup(struct step *step)
{
	step->lab->peer = rf_fd_close(step->lab->peer);
	vu_lab_pump(step->lab);
}

static void run_line(struct step *step)
{
	static const struct {
		const char *name;
		void (*run)(struct step *step);
	} directives[] = {
		{ "device", do_device }, { "expect", do_expect }, { "kick", do_kick },
		{ "kicks", do_kicks },   { "avail", do_avail },   { "take", do_take },
		{ "zero", do_zero },     { "called", do_called }, { "err", do_err },
		{ "hangup", do_hangup },
	};
	const char *name = word(step);
	uint32_t request = 1;

	for (unsigned i = 0; i < RF_ARRAY_SIZE(directives); i++) {
		if (strcmp(directives[i].name, name))
			continue;
		directives[i].run(step);
		return;
	}
	if (!strncmp(name, "REQUEST", 7))
		request = (uint32_t)number(step);
	else
		while (request < 64 && strcmp(rf_vu_request_name(request), name))
			request++;
	if (request == 64)
		script_fail(step, "\"%s\" is no step", name);
	run_request(step, request);
}

void vu_lab_run(struct vu_lab *lab, const char *script)
{
	char *copy = strdup(script), *lines = copy, *line;

	assert_non_null(copy);
	lab->line = 0;
	while ((line = strsep(&lines, "\n"))) {
		struct step step = { .lab = lab };
		char *save = NULL, *w;

		lab->line++;
		if (strchr(line, '#'))
			*strchr(line, '#') = '\0';
		for (w = strtok_r(line, " \t", &save); w; w = strtok_r(NULL, " \t", &save)) {
			assert_true(step.n_words < MAX_WORDS);
			step.words[step.n_words++] = w;
		}
		if (step.n_words)
			run_line(&step);
	}
	free(copy);
}
