/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a back end of good faith never does: behind the session's back.
 */
#include <linux/virtio_ring.h>
#include <unistd.h>

#include "fake_vsock_backend_priv.h"
#include "session_priv.h"

void fake_used_index_jump(struct rf_vu_session *session, unsigned ring)
{
	struct rf_uva device = session->rings[ring].areas.device;
	struct vring_used *used = rf_mem_from_uva(session->mem, device, sizeof(*used));

	used->idx = (uint16_t)(used->idx + 0x7000);
}

void fake_session_write(struct rf_vu_session *session, const void *bytes, size_t len)
{
	(void)!write(session->sock, bytes, len);
}
