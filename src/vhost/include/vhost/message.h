/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * vhost-user messages: the codec. Pure: no system call, nothing allocated.
 *
 * DOC: Security model. The front end is one step away from its guest, and a back end that our guest
 * half talks to may be anyone's: no field is trusted. What the table below says of a request
 * (payload size, number of descriptors, protocol feature it needs) is checked centrally, before any
 * handler sees it; handlers check values.
 */
#ifndef RF_VHOST_MESSAGE_H
#define RF_VHOST_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vhost/reason.h"

/* Requests, front end to back end. Values are the protocol's. */
enum rf_vu_request {
	RF_VU_GET_FEATURES = 1,
	RF_VU_SET_FEATURES = 2,
	RF_VU_SET_OWNER = 3,
	RF_VU_RESET_OWNER = 4,
	RF_VU_SET_MEM_TABLE = 5,
	RF_VU_SET_LOG_BASE = 6,
	RF_VU_SET_LOG_FD = 7,
	RF_VU_SET_VRING_NUM = 8,
	RF_VU_SET_VRING_ADDR = 9,
	RF_VU_SET_VRING_BASE = 10,
	RF_VU_GET_VRING_BASE = 11,
	RF_VU_SET_VRING_KICK = 12,
	RF_VU_SET_VRING_CALL = 13,
	RF_VU_SET_VRING_ERR = 14,
	RF_VU_GET_PROTOCOL_FEATURES = 15,
	RF_VU_SET_PROTOCOL_FEATURES = 16,
	RF_VU_GET_QUEUE_NUM = 17,
	RF_VU_SET_VRING_ENABLE = 18,
	RF_VU_SEND_RARP = 19,
	RF_VU_NET_SET_MTU = 20,
	RF_VU_SET_BACKEND_REQ_FD = 21,
	RF_VU_GET_CONFIG = 24,
	RF_VU_SET_CONFIG = 25,
	RF_VU_RESET_DEVICE = 34,
	RF_VU_GET_MAX_MEM_SLOTS = 36,
	RF_VU_ADD_MEM_REG = 37,
	RF_VU_REM_MEM_REG = 38,
	RF_VU_SET_STATUS = 39,
	RF_VU_GET_STATUS = 40,
};

/* Virtio feature that says "protocol features follow"; not a feature of the guest. */
#define RF_VU_F_PROTOCOL_FEATURES (UINT64_C(1) << 30)

/* Protocol features: bit numbers. */
enum {
	RF_VU_PF_MQ = 0,
	RF_VU_PF_LOG_SHMFD = 1,
	RF_VU_PF_RARP = 2,
	RF_VU_PF_REPLY_ACK = 3,
	RF_VU_PF_MTU = 4,
	RF_VU_PF_BACKEND_REQ = 5,
	RF_VU_PF_CONFIG = 9,
	RF_VU_PF_RESET_DEVICE = 13,
	RF_VU_PF_CONFIGURE_MEM_SLOTS = 15,
	RF_VU_PF_STATUS = 16,
};

#define RF_VU_HDR_BYTES        12u
#define RF_VU_PROTOCOL_VERSION 1u
#define RF_VU_FLAG_VERSION     3u
#define RF_VU_FLAG_REPLY       (1u << 2)
#define RF_VU_FLAG_NEED_REPLY  (1u << 3)
/* Descriptors of one message: a memory table of 8 regions; one more shows that there were too many.
 */
#define RF_VU_MAX_FDS           8u
#define RF_VU_MAX_TABLE_REGIONS 8u
#define RF_VU_MAX_CONFIG        256u
/* Largest payload of any request that we know: a memory table. */
#define RF_VU_MAX_PAYLOAD (8u + 32u * RF_VU_MAX_TABLE_REGIONS + RF_VU_MAX_CONFIG)

/* The u64 of SET_VRING_KICK, _CALL and _ERR. */
#define RF_VU_VRING_INDEX_MASK 0xffu
#define RF_VU_VRING_NOFD       (1u << 8)

/**
 * struct rf_vu_hdr - Header of a message, in host byte order as on the wire
 */
struct rf_vu_hdr {
	uint32_t request;
	uint32_t flags;
	uint32_t size;
};

struct rf_vu_vring_state {
	uint32_t index;
	uint32_t num;
};

struct rf_vu_vring_addr {
	uint32_t index;
	uint32_t flags;
	uint64_t desc;
	uint64_t used;
	uint64_t avail;
	uint64_t log;
};

struct rf_vu_mem_region {
	uint64_t gpa;
	uint64_t size;
	uint64_t uva;
	uint64_t mmap_offset;
};

struct rf_vu_mem_table {
	uint32_t n_regions;
	uint32_t padding;
	struct rf_vu_mem_region regions[RF_VU_MAX_TABLE_REGIONS];
};

struct rf_vu_mem_single {
	uint64_t padding;
	struct rf_vu_mem_region region;
};

struct rf_vu_config {
	uint32_t offset;
	uint32_t size;
	uint32_t flags;
	uint8_t data[RF_VU_MAX_CONFIG];
};

/* Any payload. */
union rf_vu_payload {
	uint64_t u64;
	struct rf_vu_vring_state state;
	struct rf_vu_vring_addr addr;
	struct rf_vu_mem_table table;
	struct rf_vu_mem_single single;
	struct rf_vu_config config;
	uint8_t bytes[RF_VU_MAX_PAYLOAD];
};

/**
 * struct rf_vu_message - A message with its descriptors
 * @hdr:	Header
 * @payload:	hdr.size bytes
 * @fds:	Descriptors that came with it; a handler that keeps one sets its place to -1
 * @n_fds:	Their number
 */
struct rf_vu_message {
	struct rf_vu_hdr hdr;
	union rf_vu_payload payload;
	int fds[RF_VU_MAX_FDS];
	unsigned n_fds;
};

/* How a request is answered. */
enum rf_vu_reply {
	/* Only if need_reply is set and REPLY_ACK was negotiated: u64, 0 for success. */
	RF_VU_REPLY_ACK,
	/* Always, with a payload of its own; need_reply changes nothing. */
	RF_VU_REPLY_ALWAYS,
};

/**
 * struct rf_vu_request_def - What is fixed about a request
 * @request:	Request
 * @name:	For logs
 * @min_size:	Smallest payload
 * @max_size:	Largest payload
 * @min_fds:	Fewest descriptors
 * @max_fds:	Most descriptors
 * @feature:	Bit number of the protocol feature it needs, or -1
 * @reply:	How it is answered
 */
struct rf_vu_request_def {
	uint32_t request;
	const char *name;
	uint16_t min_size;
	uint16_t max_size;
	uint8_t min_fds;
	uint8_t max_fds;
	int8_t feature;
	enum rf_vu_reply reply;
};

/* The row of a request, or NULL if it is unknown here. */
const struct rf_vu_request_def *rf_vu_request_def(uint32_t request);

/* The name of a request, "?" if unknown. */
const char *rf_vu_request_name(uint32_t request);

/**
 * rf_vu_check_hdr() - Judge a header before its payload is read
 * @hdr:	Header received
 *
 * Return: RF_VU_NONE, or why the stream cannot go on (a VERSION or SIZE reason).
 */
enum rf_vu_reason rf_vu_check_hdr(const struct rf_vu_hdr *hdr);

/**
 * rf_vu_check_request() - Judge a complete request by its row
 * @msg:		Message
 * @protocol_features:	Protocol features that were negotiated
 *
 * Return: RF_VU_NONE, or why it is refused.
 */
enum rf_vu_reason rf_vu_check_request(const struct rf_vu_message *msg, uint64_t protocol_features);

#endif
