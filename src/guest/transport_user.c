/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A vhost-user socket as the way to the back end.
 */
#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/fd.h"
#include "transport.h"
#include "vhost/front.h"

/* How long a back end may take for one answer. */
#define ANSWER_NS (5 * RF_NS_PER_SEC)

#define BIT(n) (UINT64_C(1) << (n))
#define WANT_PROTOCOL                                                        \
	(BIT(RF_VU_PF_MQ) | BIT(RF_VU_PF_REPLY_ACK) | BIT(RF_VU_PF_CONFIG) | \
	 BIT(RF_VU_PF_CONFIGURE_MEM_SLOTS))

struct user_transport {
	struct rf_transport base;
	struct rf_vu_front *front;
};

static struct rf_vu_front *front_of(struct rf_transport *transport)
{
	return RF_CONTAINER_OF(transport, struct user_transport, base)->front;
}

static int user_get_cid(struct rf_transport *transport, uint64_t *ret_cid)
{
	uint64_t cid;
	int r = rf_vu_front_get_config(front_of(transport), 0, &cid, sizeof(cid));

	if (r == 0)
		*ret_cid = le64toh(cid);
	return r;
}

static int user_negotiate(struct rf_transport *transport, struct rf_transport_terms *ret_terms)
{
	struct rf_vu_front *front = front_of(transport);
	uint64_t protocol, features, n_rings = RF_TRANSPORT_MIN_RINGS;
	int r = rf_vu_front_negotiate(front, RF_TRANSPORT_WANT, RF_TRANSPORT_NEED, WANT_PROTOCOL,
				      &features, &protocol);

	if (r < 0)
		return r;
	if (!(protocol & BIT(RF_VU_PF_CONFIG)))
		return -ENOTSUP;
	if (protocol & BIT(RF_VU_PF_MQ))
		r = rf_vu_front_get_queue_num(front, &n_rings);
	if (r < 0)
		return r;
	if (n_rings < RF_TRANSPORT_MIN_RINGS)
		return -ENOTSUP;
	r = user_get_cid(transport, &ret_terms->cid);
	if (r < 0)
		return r;
	ret_terms->features = features;
	ret_terms->n_rings = (unsigned)rf_min_u64(n_rings, UINT_MAX);
	return rf_vu_front_set_features(front, features);
}

static int user_start(struct rf_transport *transport, const struct rf_mem_region *region,
		      int mem_fd, const struct rf_vhost_vring *rings, unsigned n_rings)
{
	struct rf_vu_front *front = front_of(transport);
	int r = rf_vu_front_set_mem(front, region, &mem_fd, 1);

	for (unsigned i = 0; r == 0 && i < n_rings; i++)
		r = rf_vu_front_start_ring(front, i, &rings[i]);
	return r;
}

static void user_free(struct rf_transport *transport)
{
	struct user_transport *t = RF_CONTAINER_OF(transport, struct user_transport, base);

	rf_vu_front_free(t->front);
	free(t);
}

static const struct rf_transport_ops user_ops = {
	.negotiate = user_negotiate,
	.get_cid = user_get_cid,
	.start = user_start,
	.free = user_free,
};

int rf_transport_user_new(int fd, const struct rf_log *log, struct rf_transport **ret_transport)
{
	struct user_transport *t = calloc(1, sizeof(*t));
	int r;

	if (!t) {
		rf_fd_close(fd);
		return -ENOMEM;
	}
	r = rf_vu_front_new(fd, ANSWER_NS, log, &t->front);
	if (r < 0) {
		free(t);
		return r;
	}
	t->base = (struct rf_transport){ .ops = &user_ops, .fd = rf_vu_front_fd(t->front) };
	*ret_transport = &t->base;
	return 0;
}
