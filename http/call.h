/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP client: one request to an engine on a connection of its own, and its answer as it comes. */
#ifndef MD_HTTP_CALL_H
#define MD_HTTP_CALL_H

#include <event2/bufferevent.h>
#include <event2/event.h>

#include "http/address.h"
#include "http/head.h"

struct md_http_call;

/*
 * After `end` or `failed` the call is no longer there. A call must not be cancelled in `head` or `body`; pausing it is
 * fine.
 */
struct md_http_call_events {
	void (*head)(void *context, const struct md_http_head *head);
	void (*body)(void *context, const char *bytes, size_t size);
	void (*end)(void *context);
	/* The engine could not be reached, broke off, or sent no HTTP. `why` is a sentence without its end. */
	void (*failed)(void *context, const char *why);
	/*
	 * This process had no memory or no descriptor for the request, of which nothing was sent: nobody else is to blame.
	 * NULL: `failed` is called.
	 */
	void (*lacking)(void *context, const char *why);
};

/* How a call reaches whoever answers, if that is not a socket's address. */
struct md_http_way {
	const char *whom; /* stands in messages, behind "the": "engine" */
	struct bufferevent *(*open)(void *context, struct event_base *base); /* NULL: out of memory */
	/* Begins to connect; BEV_EVENT_CONNECTED or an error follows. Not 0: it can't. */
	int (*connect)(void *context, struct bufferevent *wire);
	/* Why the wire has failed, a sentence without its end; "": as the system says it. */
	void (*explain)(void *context, struct bufferevent *wire, char *why, size_t size);
	/* Reads what is there without waiting, from a wire that has failed, too: as recv(2). NULL: it is a socket's. */
	ssize_t (*read)(void *context, struct bufferevent *wire, char *bytes, size_t size);
	void *context; /* borrowed: it lives as long as the call */
};

/*
 * Begins a request: then md_http_call_header any number of times, then md_http_call_send. NULL: out of memory. The
 * address is copied; events and context are borrowed.
 */
struct md_http_call *md_http_call_begin(struct event_base *base, const struct md_http_address *address,
					const char *method, const char *target,
					const struct md_http_call_events *events, void *context);
/* The same by another way, which is copied. */
struct md_http_call *md_http_call_begin_by(struct event_base *base, const struct md_http_way *way, const char *method,
					   const char *target, const struct md_http_call_events *events, void *context);
/* A name or a value with a control character is left out. */
void md_http_call_header(struct md_http_call *call, const char *name, const char *value);
/*
 * The body is copied. Events come later, never from within this call. connect_s: 0: 30 s; answer_s: at most so long from
 * the connection to the head of the answer, however it drips; 0: any time.
 */
void md_http_call_send(struct md_http_call *call, const void *body, size_t size, unsigned connect_s, unsigned answer_s);

/* The call fails unless its answer ends within this time, however much of it comes. 0, or no memory for that: any time. */
void md_http_call_bound(struct md_http_call *call, unsigned seconds);
void md_http_call_pause(struct md_http_call *call, bool paused); /* no more of the answer is read meanwhile */
/*
 * The engine's process has ended: what its system still has of the answer is read at once, also if the call is paused. True:
 * the answer is whole, `end` was called, and the call is no longer there. False: it is not, or only the end of its connection
 * could say so (until_close), and nobody was told.
 */
bool md_http_call_take_rest(struct md_http_call *call);
/* Closes the connection, by which the engine sees that nobody waits any more. No event follows. NULL is fine. */
void md_http_call_cancel(struct md_http_call *call);

#endif
