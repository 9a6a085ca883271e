/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the token counts in an engine's answer while it is passed on, streamed or whole. */
#ifndef MD_WORKER_ACCOUNTING_USAGE_SCAN_H
#define MD_WORKER_ACCOUNTING_USAGE_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/core/answer_kind.h"
#include "worker/core/event_lines.h"

#define MD_USAGE_OBJECT_MAX 2048u                 /* bytes of an object that is understood */
#define MD_USAGE_COUNT_MAX INT64_C(1000000000000) /* tokens; a larger count is none, and sums stay far below 2^63 */
#define MD_USAGE_NAME_MAX 8u                      /* the longest name that is looked for */

/* A place in a JSON text. Names are read where "usage" may be one; of all else only strings and brackets are followed. */
struct md_usage_text {
	enum { MD_TEXT_BEGIN, MD_TEXT_NAME, MD_TEXT_COLON, MD_TEXT_VALUE, MD_TEXT_NEXT, MD_TEXT_OVER } expect;
	uint64_t depth; /* objects and lists that are open: no text has more bytes than it can count */
	unsigned level; /* of them, those whose names are read: 1, or 2 within "message" and "response" */
	bool in_name, in_string;
	bool escaped;  /* the byte before was a backslash */
	bool collects; /* the object of "usage" is open */
	unsigned hex;  /* digits of \uXXXX that are missing */
	unsigned code; /* what those that came say */
	unsigned size; /* of the name; more than MD_USAGE_NAME_MAX: it is none that is looked for */
	char name[MD_USAGE_NAME_MAX];
};

/*
 * Looks for "usage": {...} with prompt_tokens and completion_tokens, or input_tokens and output_tokens, where APIs have it:
 * in the object that is the answer, or an event's data, and in "message" (Anthropic) or "response" (OpenAI) there. Counts
 * of a stream grow, so the last ones are the answer's.
 */
struct md_usage_scan {
	enum md_answer_kind kind; /* of which there are no counts in MD_ANSWER_OPAQUE */
	struct md_event_lines lines;
	unsigned field; /* bytes of "data:" with which the line of a stream begins; more: none of it */
	struct md_usage_text text;
	size_t size;
	char object[MD_USAGE_OBJECT_MAX];
	bool told; /* counts were found */
	uint64_t prompt, completion;
};

void md_usage_scan(struct md_usage_scan *scan, const char *bytes,
		   size_t size); /* scan begins as zeros, but for its kind */

#endif
