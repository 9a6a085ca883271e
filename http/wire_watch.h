/* SPDX-License-Identifier: Apache-2.0 */
/* A connection in the loop: one that the system does not watch ends with an error. Libevent would never hear of it again. */
#ifndef MD_HTTP_WIRE_WATCH_H
#define MD_HTTP_WIRE_WATCH_H

#include <event2/bufferevent.h>

/*
 * Enables what (EV_READ, EV_WRITE), also where that was enabled and libevent could not begin it, as when output is added
 * or input is taken. If it can't be, the wire's event callback is called with BEV_EVENT_ERROR, outside of the caller's call.
 */
void md_http_wire_watch(struct bufferevent *wire, short what);

#endif
