/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "base/util.h"

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __real_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct fake_kernel kernel;
static int device_fd = -1;

void fake_kernel_reset(const struct fake_kernel *start)
{
	pthread_mutex_lock(&mutex);
	kernel = start ? *start : (struct fake_kernel){ 0 };
	if (!kernel.offered)
		kernel.offered = FAKE_KERNEL_FEATURES;
	pthread_mutex_unlock(&mutex);
}

struct fake_kernel fake_kernel_state(void)
{
	struct fake_kernel copy;

	pthread_mutex_lock(&mutex);
	copy = kernel;
	pthread_mutex_unlock(&mutex);
	return copy;
}

void fake_kernel_refuse(unsigned at, int error)
{
	pthread_mutex_lock(&mutex);
	kernel.fail_at = at ? kernel.n_calls + at : 0;
	kernel.fail_errno = error;
	pthread_mutex_unlock(&mutex);
}

/* Remember a call. Return: 0, or the error to refuse it with. */
static int note(unsigned long request)
{
	if (kernel.n_calls < FAKE_KERNEL_CALLS)
		kernel.calls[kernel.n_calls] = request;
	if (++kernel.n_calls != kernel.fail_at)
		return 0;
	return kernel.fail_errno ? kernel.fail_errno : EIO;
}

/* The device begins anew with each open(). */
static void forget(void)
{
	kernel.owned = kernel.running = false;
	kernel.features = kernel.cid = 0;
	memset(&kernel.region, 0, sizeof(kernel.region));
	memset(kernel.rings, 0, sizeof(kernel.rings));
	for (unsigned i = 0; i < FAKE_KERNEL_RINGS; i++)
		kernel.rings[i].kick_fd = kernel.rings[i].call_fd = kernel.rings[i].err_fd = -1;
	kernel.opened++;
}

int __wrap_open64(const char *path, int flags, ...)
{
	int error;

	if (strcmp(path, FAKE_KERNEL_PATH) != 0) {
		va_list args;
		mode_t mode;

		va_start(args, flags);
		mode = va_arg(args, mode_t);
		va_end(args);
		return __real_open64(path, flags, mode);
	}
	pthread_mutex_lock(&mutex);
	error = note(FAKE_KERNEL_OPEN);
	if (!error && flags != (O_RDWR | O_CLOEXEC))
		error = EINVAL;
	if (!error) {
		device_fd = memfd_create("fake-vhost-vsock", MFD_CLOEXEC);
		forget();
	}
	pthread_mutex_unlock(&mutex);
	if (!error)
		return device_fd;
	errno = error;
	return -1;
}

static int set_features(uint64_t features)
{
	if (features & ~kernel.offered)
		return EOPNOTSUPP;
	kernel.features = features;
	return 0;
}

static int set_cid(uint64_t cid)
{
	if (cid <= 2 || cid >= UINT32_MAX)
		return EINVAL;
	if (cid == FAKE_KERNEL_TAKEN_CID)
		return EADDRINUSE;
	kernel.cid = cid;
	return 0;
}

static int set_mem(const struct vhost_memory *mem)
{
	if (mem->padding || mem->regions[0].flags_padding)
		return EOPNOTSUPP;
	if (mem->nregions != 1)
		return E2BIG;
	kernel.region = mem->regions[0];
	return 0;
}

static int set_running(int running)
{
	for (unsigned i = 0; running && i < FAKE_KERNEL_RINGS; i++)
		if (!kernel.rings[i].num || !kernel.rings[i].addr.desc_user_addr ||
		    !kernel.region.memory_size)
			return EFAULT;
	kernel.running = running;
	return 0;
}

/* A ring's number or index; both begin with the ring's index, as all that concerns a ring. */
static int set_ring(unsigned long request, const void *arg)
{
	const struct vhost_vring_state *state = arg;
	const struct vhost_vring_file *file = arg;
	const struct vhost_vring_addr *addr = arg;

	if (state->index >= FAKE_KERNEL_RINGS)
		return ENOBUFS;
	if (kernel.running)
		return EBUSY;
	switch (request) {
	case VHOST_SET_VRING_NUM:
		kernel.rings[state->index].num = state->num;
		return rf_is_power_of_2(state->num) && state->num <= 0xffff ? 0 : EINVAL;
	case VHOST_SET_VRING_BASE:
		kernel.rings[state->index].base = state->num;
		return 0;
	case VHOST_SET_VRING_ADDR:
		kernel.rings[state->index].addr = *addr;
		return addr->flags ? EOPNOTSUPP : 0;
	case VHOST_SET_VRING_KICK:
		kernel.rings[state->index].kick_fd = file->fd;
		return 0;
	case VHOST_SET_VRING_CALL:
		kernel.rings[state->index].call_fd = file->fd;
		return 0;
	case VHOST_SET_VRING_ERR:
		kernel.rings[state->index].err_fd = file->fd;
		return 0;
	default:
		return ENOTTY;
	}
}

static int serve(unsigned long request, void *arg)
{
	if (request == VHOST_SET_OWNER) {
		if (kernel.owned)
			return EBUSY;
		kernel.owned = true;
		return 0;
	}
	if (request == VHOST_GET_FEATURES) {
		*(uint64_t *)arg = kernel.offered;
		return 0;
	}
	if (!kernel.owned)
		return EPERM;
	switch (request) {
	case VHOST_SET_FEATURES:
		return set_features(*(const uint64_t *)arg);
	case VHOST_VSOCK_SET_GUEST_CID:
		return set_cid(*(const uint64_t *)arg);
	case VHOST_SET_MEM_TABLE:
		return set_mem(arg);
	case VHOST_VSOCK_SET_RUNNING:
		return set_running(*(const int *)arg);
	default:
		return set_ring(request, arg);
	}
}

int __wrap_ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	void *arg;
	int error;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	pthread_mutex_lock(&mutex);
	error = fd == device_fd ? note(request) : ENOTTY;
	if (!error)
		error = serve(request, arg);
	pthread_mutex_unlock(&mutex);
	errno = error;
	return error ? -1 : 0;
}
