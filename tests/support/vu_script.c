/* SPDX-License-Identifier: BSD-3-Clause */
/* The interpreter of the scripts that vu_lab.h describes. */
#include <inttypes.h>
#include <linux/virtio_ring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "vu_step.h"

static struct vu_lab_ring *ring_number(struct vu_step *step)
{
	uint64_t ring = vu_step_number(step);

	if (ring >= step->lab->device.n_rings)
		vu_step_fail(step, "there is no ring %" PRIu64, ring);
	return &step->lab->rings[ring];
}

static bool yes_or_no(struct vu_step *step)
{
	if (vu_step_take(step, "yes"))
		return true;
	if (!vu_step_take(step, "no"))
		vu_step_fail(step, "yes or no?");
	return false;
}

static void send_step(struct vu_step *step)
{
	uint8_t buf[RF_VU_HDR_BYTES + RF_VU_MAX_PAYLOAD];
	size_t size = rf_min_size(step->msg.hdr.size, RF_VU_MAX_PAYLOAD);

	memcpy(buf, &step->msg.hdr, RF_VU_HDR_BYTES);
	memcpy(buf + RF_VU_HDR_BYTES, step->msg.payload.bytes, size);
	vu_lab_send(step->lab, buf, RF_VU_HDR_BYTES + size, step->fds, step->n_fds);
	while (step->n_fds)
		rf_fd_close(step->fds[--step->n_fds]);
}

static void get_reply(struct vu_step *step, struct rf_vu_message *ret_reply)
{
	if (!vu_lab_recv(step->lab, ret_reply))
		vu_step_fail(step, "no reply; last line of the log: %s", step->lab->last_log);
	/* QEMU insists on exactly this: need_reply is never echoed. */
	if (ret_reply->hdr.flags != 0x5)
		vu_step_fail(step, "reply with flags 0x%x", ret_reply->hdr.flags);
	if (ret_reply->hdr.request != step->msg.hdr.request)
		vu_step_fail(step, "reply to request %u", ret_reply->hdr.request);
}

static void check_reason(struct vu_step *step)
{
	const char *name = vu_step_word(step);
	static const struct {
		const char *name, *text;
	} reasons[] = {
#define X(n, t) { #n, t },
		RF_VU_REASONS(X)
#undef X
	};

	for (unsigned i = 0; i < RF_ARRAY_SIZE(reasons); i++) {
		if (strcmp(reasons[i].name, name) != 0)
			continue;
		if (!strstr(step->lab->last_log, reasons[i].text))
			vu_step_fail(step, "the log says \"%s\"", step->lab->last_log);
		return;
	}
	vu_step_fail(step, "there is no reason %s", name);
}

static void check_config(struct vu_step *step, const struct rf_vu_message *reply, const char *hex)
{
	const struct rf_vu_config *config = &reply->payload.config;

	if (!strcmp(hex, "-"))
		hex = "";
	if (reply->hdr.size != step->msg.hdr.size || strlen(hex) != (size_t)2 * config->size)
		vu_step_fail(step, "reply of %u bytes", reply->hdr.size);
	for (size_t i = 0; i < config->size; i++) {
		char digits[3] = { hex[2 * i], hex[2 * i + 1] };

		if (config->data[i] != strtoul(digits, NULL, 16))
			vu_step_fail(step, "byte %zu of the configuration is %02x", i,
				     config->data[i]);
	}
}

static void check_value(struct vu_step *step, const struct rf_vu_message *reply)
{
	uint64_t value = reply->payload.u64;

	if (reply->hdr.size != 8)
		vu_step_fail(step, "reply of %u bytes", reply->hdr.size);
	if (reply->hdr.request == RF_VU_GET_VRING_BASE) {
		if (reply->payload.state.index != step->msg.payload.state.index)
			vu_step_fail(step, "base of ring %u", reply->payload.state.index);
		value = reply->payload.state.num;
	}
	if (!vu_step_take(step, "any") && value != vu_step_number(step))
		vu_step_fail(step, "the reply is 0x%" PRIx64, value);
}

static void check_answer(struct vu_step *step)
{
	struct rf_vu_message reply;
	char stray;

	if (vu_step_take(step, "=")) {
		get_reply(step, &reply);
		if (step->msg.hdr.request == RF_VU_GET_CONFIG)
			check_config(step, &reply, vu_step_word(step));
		else
			check_value(step, &reply);
	} else if (vu_step_take(step, "ack")) {
		get_reply(step, &reply);
		if (reply.hdr.size != 8 || reply.payload.u64)
			vu_step_fail(step, "refused: %s", step->lab->last_log);
	} else if (vu_step_take(step, "nack")) {
		get_reply(step, &reply);
		if (reply.hdr.size != 8 || !reply.payload.u64)
			vu_step_fail(step, "not refused");
		check_reason(step);
	} else if (vu_step_take(step, "empty")) {
		get_reply(step, &reply);
		assert_int_equal(reply.hdr.size, 0);
	} else if (vu_step_take(step, "anyreply")) {
		(void)vu_lab_recv(step->lab, &reply);
	}
	if (recv(step->lab->peer, &stray, 1, 0) > 0)
		vu_step_fail(step, "a reply that nobody asked for");
	if (vu_step_more(step))
		vu_step_fail(step, "\"%s\" was not expected", vu_step_word(step));
}

/* Would a front end that negotiates leave this out? */
static bool is_left_out(struct vu_step *step, uint32_t request)
{
	const struct rf_vu_request_def *def = rf_vu_request_def(request);

	return step->lab->polite &&
	       (!def || (def->feature >= 0 &&
			 !(step->lab->device.protocol_features & UINT64_C(1) << def->feature)));
}

static void run_request(struct vu_step *step, uint32_t request)
{
	step->msg.hdr.request = request;
	if (is_left_out(step, request))
		return;
	vu_lab_open(step->lab);
	vu_step_parse_payload(step);
	if (step->lab->polite && request == RF_VU_SET_PROTOCOL_FEATURES)
		step->msg.payload.u64 &= step->lab->device.protocol_features;
	vu_step_parse_options(step);
	send_step(step);
	vu_lab_pump(step->lab);
	check_answer(step);
}

static void do_device(struct vu_step *step)
{
	struct rf_vu_device *device = &step->lab->device;
	uint64_t value;

	while (vu_step_more(step)) {
		if (vu_step_take_value(step, "features", &value))
			device->features = value & ~RF_VU_F_PROTOCOL_FEATURES;
		else if (vu_step_take_value(step, "protocol", &value))
			device->protocol_features = value;
		else if (vu_step_take_value(step, "rings", &value))
			device->n_rings = (unsigned)value;
		else if (vu_step_take_value(step, "max_num", &value))
			device->max_num = (uint32_t)value;
		else if (vu_step_take_value(step, "queue_num", &value))
			device->queue_num = value;
		else if (vu_step_take_value(step, "polite", &value))
			step->lab->polite = value;
		else
			vu_step_fail(step, "\"%s\" was not expected", vu_step_word(step));
	}
}

static void do_expect(struct vu_step *step)
{
	char events[1024] = "";

	while (vu_step_more(step))
		vu_lab_append(events, sizeof(events), " ", vu_step_word(step));
	vu_lab_expect(step->lab, events);
}

static void do_kick(struct vu_step *step)
{
	rf_eventfd_signal(ring_number(step)->kick);
	vu_lab_pump(step->lab);
}

static void do_kicks(struct vu_step *step)
{
	struct vu_lab_ring *ring = ring_number(step);
	uint64_t want = vu_step_number(step);

	if (ring->kicks != want)
		vu_step_fail(step, "%u kicks", ring->kicks);
	ring->kicks = 0;
}

/* Buffers of 64 readable bytes at the start of guest memory. */
static void do_avail(struct vu_step *step)
{
	struct vu_lab *lab = step->lab;
	struct vu_lab_ring *ring = ring_number(step);
	size_t desc_bytes = ring->num * sizeof(struct vring_desc);
	size_t avail_bytes = sizeof(struct vring_avail) + ring->num * sizeof(uint16_t);
	struct vring_desc *desc = vu_lab_map(lab, ring->desc, desc_bytes);
	struct vring_avail *avail = vu_lab_map(lab, ring->avail, avail_bytes);

	for (uint64_t n = vu_step_number(step); n; n--) {
		uint16_t slot = avail->idx % ring->num;

		desc[slot] = (struct vring_desc){ .addr = lab->regions[0].gpa, .len = 64 };
		avail->ring[slot] = slot;
		avail->idx++;
	}
	vu_lab_unmap(desc, desc_bytes);
	vu_lab_unmap(avail, avail_bytes);
}

static void do_zero(struct vu_step *step)
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

static void do_take(struct vu_step *step)
{
	unsigned index = (unsigned)(ring_number(step) - step->lab->rings);
	struct rf_devq *q = rf_vu_session_queue(step->lab->session, index);
	unsigned want = (unsigned)vu_step_number(step);
	const struct rf_chain *chains;
	struct rf_chain taken[64];
	int n = rf_devq_look(q, want, &chains);

	if (n < (int)want)
		vu_step_fail(step, "%d buffers", n);
	assert_true(want <= RF_ARRAY_SIZE(taken));
	memcpy(taken, chains, want * sizeof(*chains));
	rf_devq_take(q, want);
	for (unsigned i = 0; i < want; i++)
		rf_devq_push(q, &taken[i], 0);
	rf_devq_publish(q);
	rf_vu_session_signal(step->lab->session, index);
}

static void check_eventfd(struct vu_step *step, int fd)
{
	bool want = yes_or_no(step);

	if (rf_eventfd_drain(fd) != want)
		vu_step_fail(step, want ? "not signalled" : "signalled");
}

static void do_called(struct vu_step *step)
{
	struct vu_lab_ring *ring = ring_number(step);

	check_eventfd(step, ring->call);
}

static void do_err(struct vu_step *step)
{
	struct vu_lab_ring *ring = ring_number(step);

	check_eventfd(step, ring->err);
}

static void do_hangup(struct vu_step *step)
{
	step->lab->peer = rf_fd_close(step->lab->peer);
	vu_lab_pump(step->lab);
}

static void run_line(struct vu_step *step)
{
	static const struct {
		const char *name;
		void (*run)(struct vu_step *step);
	} directives[] = {
		{ "device", do_device }, { "expect", do_expect }, { "kick", do_kick },
		{ "kicks", do_kicks },   { "avail", do_avail },   { "take", do_take },
		{ "zero", do_zero },     { "called", do_called }, { "err", do_err },
		{ "hangup", do_hangup },
	};
	const char *name = vu_step_word(step);
	uint32_t request = 1;

	for (unsigned i = 0; i < RF_ARRAY_SIZE(directives); i++) {
		if (strcmp(directives[i].name, name) != 0)
			continue;
		directives[i].run(step);
		return;
	}
	if (!strncmp(name, "REQUEST", 7))
		request = (uint32_t)vu_step_number(step);
	else
		while (request < 64 && strcmp(rf_vu_request_name(request), name) != 0)
			request++;
	if (request == 64)
		vu_step_fail(step, "\"%s\" is no step", name);
	run_request(step, request);
}

void vu_lab_run(struct vu_lab *lab, const char *script)
{
	char *copy = strdup(script), *lines = copy, *line;

	assert_non_null(copy);
	lab->line = 0;
	while ((line = strsep(&lines, "\n"))) {
		struct vu_step step = { .lab = lab };
		char *save = NULL, *w;

		lab->line++;
		if (strchr(line, '#'))
			*strchr(line, '#') = '\0';
		for (w = strtok_r(line, " \t", &save); w; w = strtok_r(NULL, " \t", &save)) {
			assert_true(step.n_words < VU_STEP_MAX_WORDS);
			step.words[step.n_words++] = w;
		}
		if (step.n_words)
			run_line(&step);
	}
	free(copy);
}
