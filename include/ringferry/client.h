/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * DOC: ringferry/client.h - the host side of hybrid vsock sockets, spoken right
 *
 * A hybrid vsock back end (ringferry vsock, vhost-device-vsock, Firecracker, cloud-hypervisor)
 * offers a guest's stream ports through one unix socket: a host program connects to it, sends
 * "CONNECT <port>\n" and reads "OK <port>\n" when the guest has accepted. The other way round, a
 * host program listens on "<uds>_<port>" for the guest's connections to that port of the host.
 *
 * Everyone writes this exchange again, and several lose the bytes that follow the OK line. Here no
 * byte is read beyond that line, whichever port it names.
 *
 * Functions return -errno on failure and never touch errno's meaning; descriptors they return are
 * close-on-exec, blocking, and the caller's. Any thread may call them.
 */
#ifndef RINGFERRY_CLIENT_H
#define RINGFERRY_CLIENT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define RF_API __attribute__((visibility("default")))
#else
#define RF_API
#endif

/**
 * rf_client_connect() - Connect to a port of the guest
 * @uds_path:	The back end's unix socket
 * @port:	The guest's port
 * @wait_ms:	How long to go on trying while the socket is missing, refuses, or closes before the
 *		OK line (no back end yet, no guest yet, no listener yet): milliseconds, 0 for one
 *		try, -1 for ever. One try by itself lasts at most 15 seconds.
 *
 * Return: a connected stream socket; -ECONNREFUSED if the guest does not accept (the back end
 * closed before its OK line); -ENOENT if there is no socket; -ENAMETOOLONG; -EPROTO for an answer
 * that is not "OK <port>"; -ETIMEDOUT; or another -errno of socket(2), connect(2), send(2) or
 * recv(2).
 */
RF_API int rf_client_connect(const char *uds_path, uint32_t port, int wait_ms);

/**
 * rf_client_listen() - Listen for the guest's connections to a port of the host
 * @uds_path:	The back end's unix socket: the listener is "<uds_path>_<port>"
 * @port:	The host's port
 * @backlog:	As for listen(2)
 *
 * A socket file that nobody listens on any more is replaced; a live one is not.
 *
 * Return: a listening socket to accept4(2) on; -EADDRINUSE if somebody listens there;
 * -ENAMETOOLONG; or another -errno.
 */
RF_API int rf_client_listen(const char *uds_path, uint32_t port, int backlog);

/**
 * rf_client_unlisten() - Close a listener and remove its socket file, if it still is ours
 * @fd:		From rf_client_listen()
 * @uds_path:	As given there
 * @port:	As given there
 */
RF_API void rf_client_unlisten(int fd, const char *uds_path, uint32_t port);

#ifdef __cplusplus
}
#endif

#endif
