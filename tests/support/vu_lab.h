/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A vhost-user session under test: a device that writes down what the session asks of it, a front
 * end made of scripts, guest memory in a memfd.
 *
 * A script has one step per line; '#' begins a comment. A line that begins with the name of a
 * request sends it, runs the session until nothing happens any more, and checks the answer:
 *
 *	SET_FEATURES 0x160000002		u64 requests: the value
 *	SET_VRING_NUM 0 128			ring state requests: index, number
 *	SET_VRING_ADDR 0 FLAGS DESC USED AVAIL LOG
 *	SET_VRING_KICK 0 [nofd]			also _CALL and _ERR; a new eventfd goes along
 *	SET_MEM_TABLE GPA,SIZE,UVA,OFFSET ...	also ADD_MEM_REG and REM_MEM_REG; all of one memfd
 *	GET_CONFIG OFFSET SIZE			also SET_CONFIG
 *
 * and at the end of the line what bends it:
 *
 *	need			need_reply
 *	flags=N size=N fds=N	other flags, payload size, descriptors
 *
 * and its reply; without any of these there must be none:
 *
 *	= VALUE, = any		a number; hexadecimal bytes for GET_CONFIG
 *	ack, nack REASON	u64 0, u64 that is not 0
 *	empty			no payload
 *	anyreply		any, or none
 *
 * Other lines:
 *
 *	device NAME=N ...	before the first request; as in struct rf_vu_device, features with
 *				bit 30; polite=1: what a front end would not send to this device is
 *				left out (its protocol features are not offered)
 *	expect EVENT ...	what the device saw since the last such line: startR@BASE,
 *				stoppingR, stopR@BASE, reset, closed=REASON. What was not expected
 *				at the end of a script is an error.
 *	kick R			signal the ring's kick descriptor
 *	kicks R N		so many kicks were seen since the last such line, not counting the
 *				one that a signalled descriptor gives when the ring starts
 *	avail R N		the driver makes N buffers available
 *	take R N		the device consumes N buffers and notifies
 *	zero R			the driver sets the ring to its initial state
 *	called R yes|no		was the call descriptor signalled since the last such line?
 *	err R yes|no		the same for the error descriptor
 *	hangup			the front end goes
 */
#ifndef RF_TESTS_VU_LAB_H
#define RF_TESTS_VU_LAB_H

#include "vhost/session.h"

#define VU_LAB_CONFIG_BYTES 8
#define VU_LAB_MAX_REGIONS  16

struct vu_lab_ring {
	int kick, call, err;
	uint32_t num;
	uint64_t desc, used, avail;
	unsigned kicks;
};

/**
 * struct vu_lab - The session with everything around it
 * @hook:	Called from within each event of the device, before it returns
 */
struct vu_lab {
	const char *name;
	unsigned line;
	bool polite;

	struct rf_loop *loop;
	struct rf_vu_device device;
	struct rf_vu_device_ops ops;
	struct rf_vu_counters counters;
	struct rf_vu_session *session;
	struct rf_log log;
	char last_log[512], log_text[4096];
	char journal[2048];
	void (*hook)(struct vu_lab *lab, const char *event);

	int peer;
	int memfd;
	uint64_t memfd_bytes;
	struct rf_vu_mem_region regions[VU_LAB_MAX_REGIONS];
	unsigned n_regions;
	struct vu_lab_ring rings[RF_VU_MAX_RINGS];
};

/* Two rings, bit 30, all protocol features that a session serves, nothing connected yet. */
void vu_lab_init(struct vu_lab *lab, const char *name);

/* Connect; needed only before vu_lab_send() without a script. */
void vu_lab_open(struct vu_lab *lab);

/* Run a script in a lab that may have run others. */
void vu_lab_run(struct vu_lab *lab, const char *script);

/* Free everything, and check that no descriptor leaked since vu_lab_init() was called. */
void vu_lab_fini(struct vu_lab *lab);

/* All of the above. */
void vu_lab_script(const char *name, const char *script);

/* Turn the loop until nothing is to be done. */
void vu_lab_pump(struct vu_lab *lab);

/* Write a request with its payload to @buf. Return: its length. */
size_t vu_lab_encode(uint8_t *buf, uint32_t request, uint32_t flags, const void *payload,
		     uint32_t payload_bytes);

/* Send raw bytes with descriptors. */
void vu_lab_send(struct vu_lab *lab, const void *buf, size_t len, const int *fds, unsigned n_fds);

/* Receive a reply that is there. Return: false if nothing is. */
bool vu_lab_recv(struct vu_lab *lab, struct rf_vu_message *ret_msg);

/* Are these the events since the last check? */
void vu_lab_expect(struct vu_lab *lab, const char *events);

/* Our address of one in the front end's address space. */
void *vu_lab_map(struct vu_lab *lab, uint64_t uva, size_t bytes);
void vu_lab_unmap(void *p, size_t bytes);

/* Add text behind what is in a buffer, with a separator if there is something. */
void vu_lab_append(char *buf, size_t bytes, const char *separator, const char *text);

#endif
