/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP server: listens, reads requests within limits, and writes answers that may come piece by piece. */
#ifndef MD_HTTP_FRONT_H
#define MD_HTTP_FRONT_H

#include <event2/event.h>

#include "base/status.h"
#include "http/head.h"
#include "http/trust.h"

struct md_http_front;    /* listens */
struct md_http_exchange; /* a request, and its answer */

struct md_http_limits {
	uint32_t connections; /* more are told 503, and closed; 0: 4,096 */
	size_t body_bytes;    /* of a request; 0: 64 MiB */
	size_t bodies_bytes;  /* of all requests that are there; 0: 1 GiB, and at least body_bytes */
	unsigned head_s; /* from the first byte of a request (of a connection: from its beginning) to its head; 0: 15 */
	unsigned body_s; /* from the head to the end of the body; 0: 300 */
	unsigned idle_s; /* between two requests; 0: 75 */
	unsigned tls_s;  /* from the beginning of a connection to the end of its handshake; 0: 10 */
	unsigned write_s; /* a client that takes nothing of an answer for so long is gone; 0: 120 */
};

struct md_http_front_events {
	/* A request is whole. It lives until its answer has ended or `gone` was called. */
	void (*request)(void *context, struct md_http_exchange *exchange);
	/* Before anything of its body is read: 0, or the status with which it is refused, and *why. NULL: all may come. */
	unsigned (*admit)(void *context, const struct md_http_head *head, const char **why);
	/* Answers a request that was refused, which need not be whole. NULL: the answer is a text. */
	void (*refused)(void *context, struct md_http_exchange *exchange, unsigned status, const char *why);
	/* A connection by TLS has ended before its handshake did; why: a sentence without its end. NULL: not wanted. */
	void (*unproven)(void *context, const char *peer, const char *why);
};

/* Called for an exchange while its answer has not ended. */
struct md_http_exchange_events {
	void (*gone)(void *context);    /* the client is gone: the exchange ends with this call */
	void (*drained)(void *context); /* what was written has been sent; NULL: not wanted */
};

/* listen: ADDRESS:PORT, [ADDRESS]:PORT or unix:PATH; port 0: any free one. The context and events are borrowed. */
enum md_status md_http_front_create(struct event_base *base, const char *listen, const struct md_http_limits *limits,
				    const struct md_http_front_events *events, void *context,
				    struct md_http_front **front, struct md_error *err);
/*
 * Connections that begin from now on speak TLS, and show a certificate. trust: of md_http_trust_serve; taken over. ops: &md_http_trust_ops. Those that began with
 * another one end with the request that they have, or, if they have had none, with their first.
 */
void md_http_front_trust(struct md_http_front *front, struct md_http_trust *trust, const struct md_http_trust_ops *ops);
/* Connections are closed; `gone` is called for each exchange that has not ended. NULL is fine. */
void md_http_front_destroy(struct md_http_front *front);
/* The socket is closed: who connects is refused. Connections that are idle are closed, others when their answer has ended. */
void md_http_front_drain(struct md_http_front *front);
unsigned md_http_front_port(const struct md_http_front *front);  /* 0: a Unix socket */
uint64_t md_http_front_inode(const struct md_http_front *front); /* of the socket that listens; 0: none does any more */
unsigned md_http_front_connections(const struct md_http_front *front);

/* ---- a request ---- */

const struct md_http_head *md_http_exchange_head(const struct md_http_exchange *exchange);
const char *md_http_exchange_body(const struct md_http_exchange *exchange, size_t *size); /* a NUL follows */
const char *md_http_exchange_peer(const struct md_http_exchange *exchange); /* the client's address; "unix" */
uint64_t md_http_exchange_since(const struct md_http_exchange *exchange);   /* md_clock_ns() when it was whole */
void md_http_exchange_watch(struct md_http_exchange *exchange, const struct md_http_exchange_events *events,
			    void *context);

/* Pages of other origins may read the answer (CORS), if the request has come from one. */
void md_http_exchange_share(struct md_http_exchange *exchange);
bool md_http_exchange_is_shared(const struct md_http_exchange *exchange); /* the answer says so itself */
/* For how long the client has taken nothing of what waits for it; 0: nothing waits, or it goes on. */
unsigned md_http_exchange_stalled_s(const struct md_http_exchange *exchange);
/* The connection is closed as if the client had done so: `gone` is called. */
void md_http_exchange_drop(struct md_http_exchange *exchange);

/* ---- its answer ---- */

/*
 * Begins the answer. length: of its body; -1: not known, the body is sent in chunks (HTTP/1.0: up to the end of the
 * connection). Then any number of headers, then md_http_answer_body once. A name or a value with a control character is
 * left out.
 */
void md_http_answer_begin(struct md_http_exchange *exchange, unsigned status, int64_t length);
void md_http_answer_header(struct md_http_exchange *exchange, const char *name, const char *value);
void md_http_answer_body(struct md_http_exchange *exchange); /* headers are done */
/* Before md_http_answer_begin: nothing of the answer is sent before md_http_answer_release or its end. */
void md_http_answer_hold(struct md_http_exchange *exchange);
void md_http_answer_release(struct md_http_exchange *exchange);
/* False: it is not held. Else nothing of it is there any more, and another answer may begin. */
bool md_http_answer_retract(struct md_http_exchange *exchange);
/* Returns how many bytes wait to be sent: who sees many waits for `drained`. */
size_t md_http_answer_write(struct md_http_exchange *exchange, const void *bytes, size_t size);
/* The answer is whole; the exchange is no longer there. */
void md_http_answer_end(struct md_http_exchange *exchange);
/*
 * The answer can't be finished, and the client sees it: what was written is sent, then the connection is closed, and the end
 * that a length or chunks announce is missing. Where the end of the connection is that of the answer (HTTP/1.0), it is reset
 * at once, and what was not sent yet is lost; over a Unix socket the client sees nothing then. The exchange is no longer there.
 */
void md_http_answer_abort(struct md_http_exchange *exchange);

#endif
