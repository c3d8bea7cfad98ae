/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * /dev/vhost-vsock as the back end. It serves two rings and has no configuration space: the CID is
 * what it is told.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "transport.h"
#include "vhost/kernel.h"

struct kernel_transport {
	struct rf_transport base;
	struct rf_vhost_kernel *kernel;
	uint32_t cid;
};

static struct kernel_transport *of(struct rf_transport *transport)
{
	return RF_CONTAINER_OF(transport, struct kernel_transport, base);
}

static int kernel_negotiate(struct rf_transport *transport, struct rf_transport_terms *ret_terms)
{
	const struct kernel_transport *t = of(transport);
	uint64_t features;
	int r = rf_vhost_kernel_negotiate(t->kernel, RF_TRANSPORT_WANT, RF_TRANSPORT_NEED,
					  &features);

	if (r == 0)
		r = rf_vhost_kernel_set_cid(t->kernel, t->cid);
	if (r == 0)
		*ret_terms = (struct rf_transport_terms){
			.features = features,
			.n_rings = RF_VHOST_KERNEL_RINGS,
			.cid = t->cid,
		};
	return r;
}

static int kernel_get_cid(struct rf_transport *transport, uint64_t *ret_cid)
{
	*ret_cid = of(transport)->cid;
	return 0;
}

static int kernel_start(struct rf_transport *transport, const struct rf_mem_region *region,
			int mem_fd RF_UNUSED, const struct rf_vhost_vring *rings, unsigned n_rings)
{
	struct rf_vhost_kernel *kernel = of(transport)->kernel;
	int r = rf_vhost_kernel_set_mem(kernel, region);

	assert(n_rings == RF_VHOST_KERNEL_RINGS);
	for (unsigned i = 0; r == 0 && i < n_rings; i++)
		r = rf_vhost_kernel_set_ring(kernel, i, &rings[i]);
	return r < 0 ? r : rf_vhost_kernel_run(kernel);
}

static void kernel_free(struct rf_transport *transport)
{
	struct kernel_transport *t = of(transport);

	rf_vhost_kernel_close(t->kernel);
	free(t);
}

static const struct rf_transport_ops kernel_ops = {
	.negotiate = kernel_negotiate,
	.get_cid = kernel_get_cid,
	.start = kernel_start,
	.free = kernel_free,
	/* Linux before 49d8c5ffad07 (5.16, and stable kernels of that time). */
	.any_tx_len = true,
};

int rf_transport_kernel_new(const char *path, uint32_t cid, const struct rf_log *log,
			    struct rf_transport **ret_transport)
{
	struct kernel_transport *t = calloc(1, sizeof(*t));
	int r = t ? rf_vhost_kernel_open(path, log, &t->kernel) : -ENOMEM;

	if (r < 0) {
		free(t);
		return r;
	}
	t->base = (struct rf_transport){ .ops = &kernel_ops, .fd = -1 };
	t->cid = cid;
	*ret_transport = &t->base;
	return 0;
}
