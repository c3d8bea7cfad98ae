/* SPDX-License-Identifier: BSD-3-Clause */
#include "vu_lab.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "open_fds.h"

#define ALL_PROTOCOL_FEATURES 0x1a209u

static unsigned fds_before;

#define lab_fail(lab, ...)                                        \
	do {                                                      \
		print_error("%s:%u: ", (lab)->name, (lab)->line); \
		print_error(__VA_ARGS__);                         \
		print_error("\n");                                \
		fail();                                           \
	} while (0)

/* Text that does not fit fails the test. */
void vu_lab_append(char *buf, size_t bytes, const char *separator, const char *text)
{
	size_t len = strlen(buf);
	int n = snprintf(buf + len, bytes - len, "%s%s", len ? separator : "", text);

	assert_true(n >= 0 && (size_t)n < bytes - len);
}

static void note(struct vu_lab *lab, const char *fmt, ...) RF_PRINTF(2, 3);

static void note(struct vu_lab *lab, const char *fmt, ...)
{
	char event[64];
	va_list args;

	va_start(args, fmt);
	vsnprintf(event, sizeof(event), fmt, args);
	va_end(args);
	if (!lab->session)
		lab_fail(lab, "\"%s\" after the session was freed", event);
	vu_lab_append(lab->journal, sizeof(lab->journal), " ", event);
	if (lab->hook)
		lab->hook(lab, event);
}

static const char *reason_name(enum rf_vu_reason reason)
{
	static const char *const names[] = {
#define X(name, text) #name,
		RF_VU_REASONS(X)
#undef X
	};

	return names[reason];
}

static int op_get_config(void *ctx, uint32_t offset, void *buf, uint32_t len)
{
	static const uint8_t config[VU_LAB_CONFIG_BYTES] = { 42 };

	(void)ctx;
	assert_true(offset <= sizeof(config) && len <= sizeof(config) - offset);
	memcpy(buf, config + offset, len);
	return 0;
}

static void op_ring_started(void *ctx, unsigned ring, uint16_t base)
{
	struct vu_lab *lab = ctx;

	assert_true(rf_devq_running(rf_vu_session_queue(lab->session, ring)));
	note(lab, "start%u@%u", ring, base);
}

static void op_ring_stopping(void *ctx, unsigned ring)
{
	struct vu_lab *lab = ctx;

	assert_true(rf_devq_running(rf_vu_session_queue(lab->session, ring)));
	note(lab, "stopping%u", ring);
}

static void op_ring_stopped(void *ctx, unsigned ring, uint16_t base)
{
	struct vu_lab *lab = ctx;

	assert_false(rf_devq_running(rf_vu_session_queue(lab->session, ring)));
	note(lab, "stop%u@%u", ring, base);
}

static void op_ring_kicked(void *ctx, unsigned ring)
{
	struct vu_lab *lab = ctx;

	assert_true(rf_devq_running(rf_vu_session_queue(lab->session, ring)));
	lab->rings[ring].kicks++;
	if (lab->hook)
		lab->hook(lab, "kick");
}

static void op_reset(void *ctx)
{
	note(ctx, "reset");
}

static void op_closed(void *ctx, enum rf_vu_reason reason)
{
	struct vu_lab *lab = ctx;

	note(lab, "closed=%s", reason_name(reason));
	rf_vu_session_free(lab->session);
	lab->session = NULL;
}

static void sink(void *ctx, enum rf_log_level level, const char *name, const char *line)
{
	struct vu_lab *lab = ctx;

	(void)level;
	(void)name;
	snprintf(lab->last_log, sizeof(lab->last_log), "%s", line);
	vu_lab_append(lab->log_text, sizeof(lab->log_text), "\n", line);
}

void vu_lab_init(struct vu_lab *lab, const char *name)
{
	fds_before = open_fds();
	*lab = (struct vu_lab){
		.name = name,
		.peer = -1,
		.device = { .features = 0x10130000002u,
			    .protocol_features = ALL_PROTOCOL_FEATURES,
			    .n_rings = 2,
			    .max_num = 1024,
			    .queue_num = 2,
			    .config_bytes = VU_LAB_CONFIG_BYTES,
			    .ops = &lab->ops,
			    .ctx = lab,
			    .log = &lab->log },
		.ops = { .get_config = op_get_config,
			 .ring_started = op_ring_started,
			 .ring_stopping = op_ring_stopping,
			 .ring_stopped = op_ring_stopped,
			 .ring_kicked = op_ring_kicked,
			 .reset = op_reset,
			 .closed = op_closed },
		.log = { .level = RF_LOG_DEBUG, .sink = sink, .ctx = lab },
	};
	lab->memfd = memfd_create("guest", MFD_CLOEXEC);
	assert_true(lab->memfd >= 0);
	for (unsigned i = 0; i < RF_VU_MAX_RINGS; i++)
		lab->rings[i].kick = lab->rings[i].call = lab->rings[i].err = -1;
	assert_int_equal(rf_loop_new(&lab->loop), 0);
}

void vu_lab_open(struct vu_lab *lab)
{
	int sv[2];

	if (lab->peer >= 0)
		return;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	lab->peer = sv[0];
	assert_int_equal(rf_fd_set_nonblock(lab->peer), 0);
	assert_int_equal(
		rf_vu_session_new(lab->loop, sv[1], &lab->device, &lab->counters, &lab->session),
		0);
}

void vu_lab_fini(struct vu_lab *lab)
{
	lab->hook = NULL;
	rf_vu_session_free(lab->session);
	rf_loop_free(lab->loop);
	rf_fd_close(lab->peer);
	rf_fd_close(lab->memfd);
	for (unsigned i = 0; i < RF_VU_MAX_RINGS; i++) {
		rf_fd_close(lab->rings[i].kick);
		rf_fd_close(lab->rings[i].call);
		rf_fd_close(lab->rings[i].err);
	}
	if (open_fds() != fds_before)
		lab_fail(lab, "%u descriptors, %u before", open_fds(), fds_before);
}

void vu_lab_pump(struct vu_lab *lab)
{
	/* Enough for the longest burst that a test sends, a few messages a turn. */
	for (unsigned i = 0; i < 24; i++)
		assert_int_equal(rf_loop_turn(lab->loop, 0), 0);
}

size_t vu_lab_encode(uint8_t *buf, uint32_t request, uint32_t flags, const void *payload,
		     uint32_t payload_bytes)
{
	struct rf_vu_hdr hdr = { request, flags, payload_bytes };

	memcpy(buf, &hdr, sizeof(hdr));
	if (payload_bytes)
		memcpy(buf + sizeof(hdr), payload, payload_bytes);
	return sizeof(hdr) + payload_bytes;
}

void vu_lab_send(struct vu_lab *lab, const void *buf, size_t len, const int *fds, unsigned n_fds)
{
	ssize_t n = rf_fd_send(lab->peer, buf, len, fds, n_fds);

	if (n != (ssize_t)len)
		lab_fail(lab, "sent %zd of %zu bytes", n, len);
}

bool vu_lab_recv(struct vu_lab *lab, struct rf_vu_message *ret_msg)
{
	ssize_t n = recv(lab->peer, &ret_msg->hdr, sizeof(ret_msg->hdr), 0);

	if (n <= 0)
		return false;
	assert_int_equal(n, sizeof(ret_msg->hdr));
	assert_true(ret_msg->hdr.size <= sizeof(ret_msg->payload));
	if (ret_msg->hdr.size)
		assert_int_equal(recv(lab->peer, ret_msg->payload.bytes, ret_msg->hdr.size, 0),
				 ret_msg->hdr.size);
	return true;
}

void vu_lab_expect(struct vu_lab *lab, const char *events)
{
	if (strcmp(lab->journal, events) != 0)
		lab_fail(lab, "the device saw \"%s\" instead of \"%s\"", lab->journal, events);
	lab->journal[0] = '\0';
}

/* Where in the memfd an address of the front end lies. */
static off_t file_offset(struct vu_lab *lab, uint64_t uva)
{
	for (unsigned i = 0; i < lab->n_regions; i++) {
		const struct rf_vu_mem_region *r = &lab->regions[i];

		if (uva >= r->uva && uva - r->uva < r->size)
			return (off_t)(uva - r->uva + r->mmap_offset);
	}
	lab_fail(lab, "no memory at 0x%" PRIx64, uva);
	return -1;
}

/* The file offset, not the address, decides where pages begin. */
void *vu_lab_map(struct vu_lab *lab, uint64_t uva, size_t bytes)
{
	off_t offset = file_offset(lab, uva);
	size_t in_page = (size_t)offset % 4096;
	uint8_t *p = mmap(NULL, in_page + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, lab->memfd,
			  offset - (off_t)in_page);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p + in_page;
}

void vu_lab_unmap(void *p, size_t bytes)
{
	size_t in_page = (uintptr_t)p % 4096;

	munmap((uint8_t *)p - in_page, in_page + bytes);
}

void vu_lab_script(const char *name, const char *script)
{
	struct vu_lab lab;

	vu_lab_init(&lab, name);
	vu_lab_run(&lab, script);
	vu_lab_expect(&lab, "");
	vu_lab_fini(&lab);
}
