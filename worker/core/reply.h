/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that the worker gives by itself: texts, JSON, errors in OpenAI's form. */
#ifndef MD_WORKER_CORE_REPLY_H
#define MD_WORKER_CORE_REPLY_H

#include <jansson.h>

#include "http/front.h"

/* Each ends the exchange. */
void md_reply_text(struct md_http_exchange *exchange, unsigned status, const char *type, const char *text);
void md_reply_json(struct md_http_exchange *exchange, unsigned status, json_t *value); /* takes the reference */

enum md_reply_error {
	MD_REPLY_BAD_REQUEST,
	MD_REPLY_UNAUTHORIZED,
	MD_REPLY_FORBIDDEN, /* the key, if there is one, is right: 403 */
	MD_REPLY_NOT_FOUND,
	MD_REPLY_METHOD, /* wrong method */
	MD_REPLY_CONFLICT,
	MD_REPLY_BUSY, /* limits: 429, with Retry-After */
	MD_REPLY_INTERNAL,
	MD_REPLY_UPSTREAM,    /* the engine failed: 502 */
	MD_REPLY_RESTING,     /* the engine has failed, and is not started now: 502, with Retry-After */
	MD_REPLY_UNAVAILABLE, /* 503, with Retry-After */
	MD_REPLY_TIMEOUT,     /* 504 */
	MD_REPLY_LOOP,        /* the request has come from here: 508 */
};

#define MD_REPLY_CODE_HEADER "X-Medusa-Code" /* the code once more, for nodes that pass requests on */

/* {"src": "medusa-worker", "error": {"message", "type", "param": null, "code"}} */
void md_reply_error(struct md_http_exchange *exchange, enum md_reply_error error, const char *code, const char *format,
		    ...) __attribute__((format(printf, 4, 5)));

/* A request that was refused before it was whole, in the same form; why: a sentence without its end. */
void md_reply_refused(struct md_http_exchange *exchange, unsigned status, const char *why);

#endif
