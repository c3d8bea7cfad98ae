/* SPDX-License-Identifier: BSD-3-Clause */
#include "vhost/message.h"

#include "base/util.h"

#define TABLE_HDR_BYTES  offsetof(struct rf_vu_mem_table, regions)
#define CONFIG_HDR_BYTES offsetof(struct rf_vu_config, data)

/* The payloads are copied from the wire as they are. */
_Static_assert(sizeof(struct rf_vu_hdr) == RF_VU_HDR_BYTES, "header");
_Static_assert(sizeof(struct rf_vu_vring_state) == 8, "ring state");
_Static_assert(sizeof(struct rf_vu_vring_addr) == 40, "ring addresses");
_Static_assert(sizeof(struct rf_vu_mem_region) == 32, "memory region");
_Static_assert(sizeof(struct rf_vu_mem_single) == 40, "single memory region");
_Static_assert(TABLE_HDR_BYTES == 8, "memory table");
_Static_assert(CONFIG_HDR_BYTES == 12, "configuration");
_Static_assert(sizeof(union rf_vu_payload) == RF_VU_MAX_PAYLOAD, "payload");

#define ROW(r, min, max, fds_min, fds_max, pf, answer) \
	[RF_VU_##r] = { .request = RF_VU_##r,          \
			.name = #r,                    \
			.min_size = min,               \
			.max_size = max,               \
			.min_fds = fds_min,            \
			.max_fds = fds_max,            \
			.feature = pf,                 \
			.reply = RF_VU_REPLY_##answer }

static const struct rf_vu_request_def defs[] = {
	ROW(GET_FEATURES, 0, 0, 0, 0, -1, ALWAYS),
	ROW(SET_FEATURES, 8, 8, 0, 0, -1, ACK),
	ROW(SET_OWNER, 0, 0, 0, 0, -1, ACK),
	ROW(RESET_OWNER, 0, 0, 0, 0, -1, ACK),
	ROW(SET_MEM_TABLE, TABLE_HDR_BYTES, sizeof(struct rf_vu_mem_table), 0, RF_VU_MAX_FDS, -1,
	    ACK),
	ROW(SET_LOG_BASE, 8, 16, 0, 1, RF_VU_PF_LOG_SHMFD, ALWAYS),
	ROW(SET_LOG_FD, 0, 0, 1, 1, -1, ACK),
	ROW(SET_VRING_NUM, 8, 8, 0, 0, -1, ACK),
	ROW(SET_VRING_ADDR, 40, 40, 0, 0, -1, ACK),
	ROW(SET_VRING_BASE, 8, 8, 0, 0, -1, ACK),
	ROW(GET_VRING_BASE, 8, 8, 0, 0, -1, ALWAYS),
	ROW(SET_VRING_KICK, 8, 8, 0, 1, -1, ACK),
	ROW(SET_VRING_CALL, 8, 8, 0, 1, -1, ACK),
	ROW(SET_VRING_ERR, 8, 8, 0, 1, -1, ACK),
	/* Legal from the moment bit 30 was offered, which it always is. */
	ROW(GET_PROTOCOL_FEATURES, 0, 0, 0, 0, -1, ALWAYS),
	ROW(SET_PROTOCOL_FEATURES, 8, 8, 0, 0, -1, ACK),
	ROW(GET_QUEUE_NUM, 0, 0, 0, 0, RF_VU_PF_MQ, ALWAYS),
	ROW(SET_VRING_ENABLE, 8, 8, 0, 0, -1, ACK),
	ROW(SEND_RARP, 8, 8, 0, 0, RF_VU_PF_RARP, ACK),
	ROW(NET_SET_MTU, 8, 8, 0, 0, RF_VU_PF_MTU, ACK),
	ROW(SET_BACKEND_REQ_FD, 0, 0, 1, 1, RF_VU_PF_BACKEND_REQ, ACK),
	ROW(GET_CONFIG, CONFIG_HDR_BYTES, sizeof(struct rf_vu_config), 0, 0, RF_VU_PF_CONFIG,
	    ALWAYS),
	ROW(SET_CONFIG, CONFIG_HDR_BYTES, sizeof(struct rf_vu_config), 0, 0, RF_VU_PF_CONFIG, ACK),
	ROW(RESET_DEVICE, 0, 0, 0, 0, RF_VU_PF_RESET_DEVICE, ACK),
	ROW(GET_MAX_MEM_SLOTS, 0, 0, 0, 0, RF_VU_PF_CONFIGURE_MEM_SLOTS, ALWAYS),
	ROW(ADD_MEM_REG, 40, 40, 1, 1, RF_VU_PF_CONFIGURE_MEM_SLOTS, ACK),
	/* Old front ends send a descriptor along, which is of no use. */
	ROW(REM_MEM_REG, 40, 40, 0, 1, RF_VU_PF_CONFIGURE_MEM_SLOTS, ACK),
	ROW(SET_STATUS, 8, 8, 0, 0, RF_VU_PF_STATUS, ACK),
	ROW(GET_STATUS, 0, 0, 0, 0, RF_VU_PF_STATUS, ALWAYS),
};

const struct rf_vu_request_def *rf_vu_request_def(uint32_t request)
{
	if (request >= RF_ARRAY_SIZE(defs) || !defs[request].name)
		return NULL;
	return &defs[request];
}

const char *rf_vu_request_name(uint32_t request)
{
	const struct rf_vu_request_def *def = rf_vu_request_def(request);

	return def ? def->name : "?";
}

enum rf_vu_reason rf_vu_check_hdr(const struct rf_vu_hdr *hdr)
{
	const struct rf_vu_request_def *def = rf_vu_request_def(hdr->request);

	if ((hdr->flags & RF_VU_FLAG_VERSION) != RF_VU_PROTOCOL_VERSION ||
	    hdr->flags & RF_VU_FLAG_REPLY)
		return RF_VU_VERSION;
	/* An unknown request is read to its end, so that it can be answered. */
	if (!def)
		return hdr->size > RF_VU_MAX_PAYLOAD ? RF_VU_SIZE : RF_VU_NONE;
	return hdr->size < def->min_size || hdr->size > def->max_size ? RF_VU_SIZE : RF_VU_NONE;
}

static enum rf_vu_reason check_table(const struct rf_vu_message *msg)
{
	const struct rf_vu_mem_table *table = &msg->payload.table;

	if (table->n_regions > RF_VU_MAX_TABLE_REGIONS ||
	    msg->hdr.size != TABLE_HDR_BYTES + table->n_regions * sizeof(table->regions[0]))
		return RF_VU_SIZE;
	return msg->n_fds == table->n_regions ? RF_VU_NONE : RF_VU_FDS;
}

enum rf_vu_reason rf_vu_check_request(const struct rf_vu_message *msg, uint64_t protocol_features)
{
	const struct rf_vu_request_def *def = rf_vu_request_def(msg->hdr.request);
	enum rf_vu_reason reason = rf_vu_check_hdr(&msg->hdr);

	if (reason)
		return reason;
	if (!def)
		return RF_VU_UNKNOWN;
	if (def->feature >= 0 && !(protocol_features & UINT64_C(1) << def->feature))
		return RF_VU_NOT_NEGOTIATED;
	if (msg->n_fds < def->min_fds || msg->n_fds > def->max_fds)
		return RF_VU_FDS;
	return def->request == RF_VU_SET_MEM_TABLE ? check_table(msg) : RF_VU_NONE;
}
