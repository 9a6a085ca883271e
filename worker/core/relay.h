/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passes an engine's answer on to the client so that a failure in the middle of it can still be told: of a stream of
 * events whole events, of JSON that is not streamed at first nothing. What is encoded is passed on as it is.
 */
#ifndef MD_WORKER_CORE_RELAY_H
#define MD_WORKER_CORE_RELAY_H

#include "base/buf.h"
#include "worker/core/event_border.h"
#include "worker/core/reply.h"

struct md_relay {
	struct md_http_exchange *exchange; /* NULL: the client is gone, or has its answer */
	bool stream;                       /* the client wants a stream */
	bool head_made;                    /* the head of the answer is ours, and says 200 */
	bool head_sent;                    /* who answers has begun */
	bool events;                       /* the answer is a stream of events */
	bool torn;                         /* what was passed on of the stream ends within an event */
	struct md_event_border border;     /* of the stream */
	unsigned mark;      /* head_made: bytes of a byte order mark at its beginning, which are left out */
	struct md_buf held; /* of the stream: an event, until it is whole */
};

/* There is a client in all of these. */
void md_relay_head(struct md_relay *relay, const struct md_http_head *head);
/* The head that the client has is ours (head_made): whether what this one announces goes on with it; else why says why not. */
bool md_relay_continues(const struct md_http_head *head, char *why, size_t size);
size_t md_relay_body(struct md_relay *relay, const char *bytes, size_t size); /* bytes that wait to be sent */
void md_relay_end(struct md_relay *relay); /* all has come: md_http_answer_end is what is missing */
/*
 * The answer fails: as a status of its own if nothing was sent, as an event in a stream of events, else (also within an
 * event of which a part was sent) by the end of the connection. There is no client any more.
 */
void md_relay_fail(struct md_relay *relay, enum md_reply_error error, const char *code, const char *message);
void md_relay_finish(struct md_relay *relay);

#endif
