/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The front-end side of a vhost-user session: what a VMM does, for our user-space guest.
 *
 * Synchronous: each call sends a request and waits for the answer, up to a deadline. The back end
 * is not trusted: an answer that does not fit ends the session.
 *
 * Context: one thread at a time.
 */
#ifndef RF_VHOST_FRONT_H
#define RF_VHOST_FRONT_H

#include <stdint.h>

#include "base/log.h"
#include "ring/devq.h"
#include "ring/mem.h"
#include "vhost/message.h"
#include "vhost/reason.h"
#include "vhost/vring.h"

struct rf_vu_front;

/**
 * rf_vu_front_new() - Begin a session on a connected socket
 * @fd:		Connected unix stream socket; taken over, also on failure
 * @timeout_ns:	Time that the back end has for each answer
 * @log:	Log, or NULL; borrowed
 * Return: 0, or -errno.
 */
int rf_vu_front_new(int fd, uint64_t timeout_ns, const struct rf_log *log,
		    struct rf_vu_front **ret_front);

void rf_vu_front_free(struct rf_vu_front *front);

/* The socket, to watch it for hang-up. */
int rf_vu_front_fd(const struct rf_vu_front *front);

/**
 * rf_vu_front_negotiate() - SET_OWNER, features and protocol features
 * @want:		Virtio features wanted if offered
 * @need:		Virtio features without which to give up
 * @want_protocol:	Protocol features wanted if offered, as a mask
 * @ret_features:	Virtio features acknowledged (not yet sent: rf_vu_front_set_features())
 * @ret_protocol:	Protocol features acknowledged
 *
 * Return: 0, -ENOTSUP if a needed feature is not offered, -ETIMEDOUT, -EPROTO if the session is
 * over (the log says why), or another -errno. So do all functions below.
 */
int rf_vu_front_negotiate(struct rf_vu_front *front, uint64_t want, uint64_t need,
			  uint64_t want_protocol, uint64_t *ret_features, uint64_t *ret_protocol);

/* GET_QUEUE_NUM; needs RF_VU_PF_MQ. */
int rf_vu_front_get_queue_num(struct rf_vu_front *front, uint64_t *ret_num);

/* GET_CONFIG: @len bytes of the configuration space from @offset. */
int rf_vu_front_get_config(struct rf_vu_front *front, uint32_t offset, void *buf, uint32_t len);

/* SET_FEATURES, bit 30 added as negotiated. */
int rf_vu_front_set_features(struct rf_vu_front *front, uint64_t features);

/**
 * rf_vu_front_set_mem() - Share memory: SET_MEM_TABLE, or ADD_MEM_REG each
 * @regions:	Regions
 * @fds:	The file behind each; borrowed
 * @n:		Their number, 1 to RF_VU_MAX_TABLE_REGIONS
 */
int rf_vu_front_set_mem(struct rf_vu_front *front, const struct rf_mem_region *regions,
			const int *fds, unsigned n);

/**
 * rf_vu_front_start_ring() - NUM, BASE, ADDR, CALL, ERR, KICK, and ENABLE if bit 30 was negotiated
 */
int rf_vu_front_start_ring(struct rf_vu_front *front, unsigned index,
			   const struct rf_vhost_vring *ring);

#endif
