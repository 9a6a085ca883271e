/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the server (front.c, connection.c, answer.c): a connection, the request that it has, and its answer. */
#ifndef MD_HTTP_CONNECTION_H
#define MD_HTTP_CONNECTION_H

#include <event2/bufferevent.h>
#include <netinet/in.h>

#include "http/front.h"
#include "http/listener.h"
#include "http/reader.h"

#define MD_HTTP_AHEAD 65536u /* bytes of a next request that are read while an answer is under way */

enum md_http_state {
	MD_HTTP_WAITING,   /* for a request */
	MD_HTTP_READING,   /* a request */
	MD_HTTP_ANSWERING, /* the request is whole or refused, its answer has not ended */
	MD_HTTP_CLOSING,   /* the last answer is being sent */
	MD_HTTP_LINGERING, /* it was sent; what still comes is dropped, so that the client gets to read the answer */
};

struct md_http_exchange {
	struct md_http_front *front;
	struct md_http_exchange *older, *newer; /* connections of the front */
	struct bufferevent *wire;
	struct md_http_reader reader;
	struct md_buf body;
	enum md_http_state state;
	uint64_t since; /* of this state; ns */
	const struct md_http_exchange_events *events;
	void *context;
	char peer[INET6_ADDRSTRLEN];
	bool head_read;
	const struct md_http_trust_ops *tls; /* NULL: it is not spoken */
	bool proven;                         /* its handshake, if it has one, has ended */
	bool served;                         /* it has had a request */
	bool outdated;                       /* the front trusts by other files meanwhile */
	bool half_closed;                    /* the client sends no more, and may be gone */
	bool shared;                         /* with pages of other origins */
	bool taken;                          /* the client has taken bytes since the last tick */
	unsigned stalled_s;
	/* the answer */
	bool held, held_keep_alive; /* keep_alive before it began */
	size_t before;              /* bytes of earlier answers that waited when it was held */
	bool begun, chunked, no_body, keep_alive;
	bool until_close; /* the end of the connection is the answer's: until all was sent, it would be a reset */
	int64_t left;     /* bytes of the body that were announced and are to come; -1: not announced */
};

struct md_http_front {
	struct event_base *base;
	struct md_http_listener *listener; /* NULL: it is drained */
	struct event *tick;
	struct md_http_trust *trust; /* NULL: TLS is not spoken */
	const struct md_http_trust_ops *tls;
	struct md_http_limits limits;
	const struct md_http_front_events *events;
	void *context;
	struct md_http_exchange *oldest, *newest;
	unsigned count, port;
	size_t bodies; /* bytes of all bodies */
	bool draining;
};

/* What the listener calls; the context is the front. */
void md_http_front_accept(void *context, int fd, const struct sockaddr *address);
/* A connection that was accepted; the descriptor is taken over, also on failure. NULL: out of memory. */
struct md_http_exchange *md_http_connection_create(struct md_http_front *front, int fd, const struct sockaddr *address,
						   bufferevent_data_cb on_read);
void md_http_connection_close(struct md_http_exchange *x); /* at once; `gone` is called if an answer is awaited */
void md_http_connection_tell_unproven(struct md_http_exchange *x, const char *why); /* and closes it */
void md_http_connection_close_when_sent(struct md_http_exchange *x);
void md_http_connection_leave(
    struct md_http_exchange *x); /* no answer is awaited; what is unsent of earlier ones is sent */
/*
 * While an answer is under way whose end is that of the connection, the system resets that, whoever closes it and why, also
 * if the process is killed: the client sees that the answer is not whole. A Unix socket has no such thing.
 */
void md_http_connection_end_is_reset(struct md_http_exchange *x, bool reset);
void md_http_connection_enter(struct md_http_exchange *x, enum md_http_state state);
void md_http_connection_next(struct md_http_exchange *x); /* its answer has ended: another request may come */
void md_http_connection_drop_body(struct md_http_exchange *x);
size_t md_http_connection_unsent(const struct md_http_exchange *x); /* bytes */
/* True: the system knows that nobody takes what is sent. TCP learns it only after something was sent. */
bool md_http_connection_is_gone(const struct md_http_exchange *x);

#endif
