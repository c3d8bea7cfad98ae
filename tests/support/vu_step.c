/* SPDX-License-Identifier: BSD-3-Clause */
#include "vu_step.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

bool vu_step_more(const struct vu_step *step)
{
	return step->next < step->n_words;
}

char *vu_step_word(struct vu_step *step)
{
	if (!vu_step_more(step))
		vu_step_fail(step, "a word is missing");
	return step->words[step->next++];
}

bool vu_step_take(struct vu_step *step, const char *what)
{
	if (!vu_step_more(step) || strcmp(step->words[step->next], what) != 0)
		return false;
	step->next++;
	return true;
}

bool vu_step_take_value(struct vu_step *step, const char *name, uint64_t *ret_value)
{
	size_t len = strlen(name);

	if (!vu_step_more(step) || strncmp(step->words[step->next], name, len) != 0 ||
	    step->words[step->next][len] != '=')
		return false;
	*ret_value = strtoull(step->words[step->next++] + len + 1, NULL, 0);
	return true;
}

uint64_t vu_step_number(struct vu_step *step)
{
	char *text = vu_step_word(step), *end;
	uint64_t value = strtoull(text, &end, 0);

	if (*end || end == text)
		vu_step_fail(step, "\"%s\" is no number", text);
	return value;
}

static void add_fd(struct vu_step *step, int fd)
{
	assert_true(fd >= 0 && step->n_fds < VU_STEP_MAX_FDS);
	step->fds[step->n_fds++] = fd;
}

static void parse_region(struct vu_step *step, struct rf_vu_mem_region *ret_region)
{
	struct vu_lab *lab = step->lab;
	char *p = vu_step_word(step);
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

static void parse_table(struct vu_step *step)
{
	struct vu_lab *lab = step->lab;
	struct rf_vu_mem_table *table = &step->msg.payload.table;

	lab->n_regions = 0;
	while (vu_step_more(step) && step->words[step->next][0] == '0') {
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

static void parse_single(struct vu_step *step)
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

static void parse_addr(struct vu_step *step)
{
	struct rf_vu_vring_addr *addr = &step->msg.payload.addr;

	addr->index = (uint32_t)vu_step_number(step);
	addr->flags = (uint32_t)vu_step_number(step);
	addr->desc = vu_step_number(step);
	addr->used = vu_step_number(step);
	addr->avail = vu_step_number(step);
	addr->log = vu_step_number(step);
	step->msg.hdr.size = sizeof(*addr);
	if (addr->index < step->lab->device.n_rings) {
		step->lab->rings[addr->index].desc = addr->desc;
		step->lab->rings[addr->index].used = addr->used;
		step->lab->rings[addr->index].avail = addr->avail;
	}
}

static void parse_vring_fd(struct vu_step *step)
{
	struct vu_lab *lab = step->lab;
	struct vu_lab_ring *ring;
	int fd = -1, *mine;

	step->msg.payload.u64 = vu_step_number(step);
	step->msg.hdr.size = sizeof(step->msg.payload.u64);
	if (vu_step_take(step, "nofd")) {
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

static void parse_state(struct vu_step *step)
{
	struct rf_vu_vring_state *state = &step->msg.payload.state;

	state->index = (uint32_t)vu_step_number(step);
	if (step->msg.hdr.request != RF_VU_GET_VRING_BASE)
		state->num = (uint32_t)vu_step_number(step);
	step->msg.hdr.size = sizeof(*state);
	if (step->msg.hdr.request == RF_VU_SET_VRING_NUM &&
	    state->index < step->lab->device.n_rings)
		step->lab->rings[state->index].num = state->num;
}

void vu_step_parse_payload(struct vu_step *step)
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
		msg->payload.config.offset = (uint32_t)vu_step_number(step);
		msg->payload.config.size = (uint32_t)vu_step_number(step);
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
		msg->payload.u64 = vu_step_number(step);
		msg->hdr.size = sizeof(msg->payload.u64);
	}
}

static void set_n_fds(struct vu_step *step, uint64_t n)
{
	while (step->n_fds > n)
		rf_fd_close(step->fds[--step->n_fds]);
	while (step->n_fds < n)
		add_fd(step, rf_eventfd_new());
}

void vu_step_parse_options(struct vu_step *step)
{
	struct rf_vu_hdr *hdr = &step->msg.hdr;
	uint64_t value;

	hdr->flags = RF_VU_PROTOCOL_VERSION;
	for (;;) {
		if (vu_step_take(step, "need"))
			hdr->flags |= RF_VU_FLAG_NEED_REPLY;
		else if (vu_step_take_value(step, "flags", &value))
			hdr->flags = (uint32_t)value;
		else if (vu_step_take_value(step, "size", &value))
			hdr->size = (uint32_t)value;
		else if (vu_step_take_value(step, "fds", &value))
			set_n_fds(step, value);
		else
			return;
	}
}
