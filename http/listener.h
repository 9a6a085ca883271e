/* SPDX-License-Identifier: Apache-2.0 */
/* A socket that listens. When there are no descriptors left, it rests for a second instead of failing without end. */
#ifndef MD_HTTP_LISTENER_H
#define MD_HTTP_LISTENER_H

#include <event2/event.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/status.h"

struct md_http_listener;

/* listen: as of md_http_front_create. `accepted` gets the descriptors of connections, which it closes. */
enum md_status md_http_listener_create(struct event_base *base, const char *listen,
				       void (*accepted)(void *context, int fd, const struct sockaddr *address),
				       void *context, struct md_http_listener **listener, struct md_error *err);
/* The socket is closed, so that who connects is refused at once; a path is removed. NULL is fine. */
void md_http_listener_destroy(struct md_http_listener *listener);
unsigned md_http_listener_port(const struct md_http_listener *listener);  /* 0: a Unix socket */
uint64_t md_http_listener_inode(const struct md_http_listener *listener); /* of the socket; 0: unknown */

#endif
