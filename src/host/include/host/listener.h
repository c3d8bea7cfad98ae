/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A unix stream socket that listens at a path, and the file behind it.
 *
 * Context: the loop thread.
 */
#ifndef RF_HOST_LISTENER_H
#define RF_HOST_LISTENER_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/log.h"
#include "base/loop.h"

/**
 * struct rf_listener - A listening socket; embedded
 * @accepted:	Called with each new connection (non-blocking, close-on-exec), which it takes over
 * @loop, @log, @watch, @retry, @limit, @fd, @path, @dev, @ino: the listener's
 */
struct rf_listener {
	void (*accepted)(struct rf_listener *listener, int fd);
	struct rf_loop *loop;
	const struct rf_log *log;
	struct rf_watch watch;
	struct rf_timer retry;
	struct rf_log_limit limit;
	int fd;
	char *path;
	dev_t dev;
	ino_t ino;
};

/**
 * struct rf_listener_access - Who may use the socket file
 * @mode:	Its permissions, or RF_LISTENER_MODE_DEFAULT: what the umask leaves
 * @uid:	Its owner, or RF_LISTENER_OWNER_DEFAULT: who runs the program
 * @gid:	Its group, or RF_LISTENER_GROUP_DEFAULT
 */
struct rf_listener_access {
	int mode;
	uid_t uid;
	gid_t gid;
};

#define RF_LISTENER_MODE_DEFAULT  (-1)
#define RF_LISTENER_OWNER_DEFAULT ((uid_t)-1)
#define RF_LISTENER_GROUP_DEFAULT ((gid_t)-1)

/**
 * rf_listener_open() - Bind a path and listen there
 * @listener:	Listener with @accepted set; accepting begins with rf_listener_resume()
 * @loop:	Loop
 * @log:	Where a failure is told, in one line that names the path; may be NULL
 * @path:	Path; copied. A socket file that nobody listens on is replaced, a live one and any
 *		other kind of file are not.
 * @access:	Who may use the socket file
 *
 * Return: 0; -EADDRINUSE if somebody listens there; -EEXIST if it is no socket; -ENAMETOOLONG;
 * -EPERM if the owner may not be set; or another -errno.
 */
int rf_listener_open(struct rf_listener *listener, struct rf_loop *loop, const struct rf_log *log,
		     const char *path, const struct rf_listener_access *access);

/**
 * rf_listener_adopt() - Use a socket that listens already
 * @fd:	Listening socket; taken over. Its file, if any, is not ours and is left alone.
 * Return: 0, or -errno.
 */
int rf_listener_adopt(struct rf_listener *listener, struct rf_loop *loop, const struct rf_log *log,
		      int fd);

/* Accept connections, or leave them waiting in the backlog. Return: 0, or -errno: it is tried again
 * by itself until rf_listener_pause() or rf_listener_close(). */
int rf_listener_resume(struct rf_listener *listener);
void rf_listener_pause(struct rf_listener *listener);

/* Close it and unlink its file if that is still ours. One that was never opened may be given. */
void rf_listener_close(struct rf_listener *listener);

/**
 * rf_unix_path_fits() - Does a path with a suffix of so many bytes fit a unix socket address?
 */
bool rf_unix_path_fits(const char *path, size_t suffix_bytes);

#endif
