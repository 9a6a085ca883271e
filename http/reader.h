/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads HTTP/1 messages from bytes as they come: heads with libhttp_parser, bodies with http/framing.c. What the peer
 * sends is bounded and checked; of requests, all that others could read in another way is refused (RFC 9112, section 11.2).
 */
#ifndef MD_HTTP_READER_H
#define MD_HTTP_READER_H

#include <http_parser.h>

#include "http/framing.h"
#include "http/head.h"

struct md_http_reader;

struct md_http_reader_events {
	/* The head is whole. False: stop, md_http_reader_refuse was called. */
	bool (*head)(void *context, const struct md_http_head *head);
	/* A piece of the body, chunk framing removed. False as above. */
	bool (*body)(void *context, const char *bytes, size_t size);
	/* The message has ended; nothing of the next one is read before md_http_reader_next. */
	void (*end)(void *context);
};

struct md_http_reader {
	http_parser parser;
	struct md_http_head head;
	const struct md_http_reader_events *events;
	void *context;
	struct md_http_framing framing; /* of the body */
	uint64_t body_most;             /* bytes of a body; more are refused with 413; 0: any number */
	uint64_t body_size;             /* bytes of the body that have come */
	uint32_t lines, blank_lines;    /* of the head; blank ones stand before it */
	uint32_t line_size;             /* bytes of the line that is coming, without its end */
	char last;                      /* byte of the head */
	bool in_value;                  /* the last piece of a header belonged to its value */
	bool whole;                     /* the head is whole */
	bool no_body;                   /* of a response to HEAD */
	bool ended;                     /* a message has ended, and md_http_reader_next was not called */
	bool began;                     /* bytes of a message have come */
	unsigned status;                /* not 0: reading has failed; for a request, the answer's status */
	char why[128];
};

void md_http_reader_init(struct md_http_reader *reader, enum http_parser_type type,
			 const struct md_http_reader_events *events, void *context);
void md_http_reader_finish(struct md_http_reader *reader);

/* Takes bytes and returns how many it has used: less than `size` after the end of a message, or after a failure. */
size_t md_http_reader_feed(struct md_http_reader *reader, const char *bytes, size_t size);
/* The peer sends no more. A response that ends with its connection ends here; anything else that began has failed. */
void md_http_reader_close(struct md_http_reader *reader);
/* Of a head that is not whole: it is empty now, and what asks for its headers finds none. */
void md_http_reader_drop_head(struct md_http_reader *reader);
/* Goes on to the next message. */
void md_http_reader_next(struct md_http_reader *reader);
/* Called in events: reading has failed with this status and reason. Returns false. */
bool md_http_reader_refuse(struct md_http_reader *reader, unsigned status, const char *why);

#endif
