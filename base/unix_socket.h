/* SPDX-License-Identifier: Apache-2.0 */
/* A Unix socket that listens at a path. */
#ifndef MD_BASE_UNIX_SOCKET_H
#define MD_BASE_UNIX_SOCKET_H

#include <sys/types.h>

#include "base/status.h"

/*
 * Replaces a socket that is there, whoever has it: the caller knows that nobody serves there. denied: permissions that
 * nobody has, as of umask. The descriptor is non-blocking and not inherited; the caller closes it. MD_ERR_INVALID: the
 * path is too long.
 */
enum md_status md_unix_socket_listen(const char *path, mode_t denied, int *fd, struct md_error *err);

#endif
