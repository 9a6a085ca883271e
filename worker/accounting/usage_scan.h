/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the token counts in an engine's answer while it is passed on, streamed or whole. */
#ifndef MD_WORKER_ACCOUNTING_USAGE_SCAN_H
#define MD_WORKER_ACCOUNTING_USAGE_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/accounting/usage_text.h"
#include "worker/core/answer_kind.h"
#include "worker/core/event_lines.h"

/*
 * Looks for "usage": {...} with prompt_tokens and completion_tokens, or input_tokens and output_tokens, where APIs have it:
 * in the object that is the answer, or an event's data, and in "message" (Anthropic) or "response" (OpenAI) there. Counts
 * of a stream grow, so the last ones are the answer's. What is no JSON, or not whole, has none.
 */
struct md_usage_scan {
	enum md_answer_kind kind; /* of which there are no counts in MD_ANSWER_OPAQUE */
	struct md_event_lines lines;
	unsigned field; /* bytes of "data:" with which the line of a stream begins; more: none of it */
	struct md_usage_text text;
	unsigned done; /* bytes of "[DONE]" that the event's data is so far; more: it is something else */
	bool ended;    /* the last event was that one, by which OpenAI's streams end */
	bool told;     /* counts were found */
	bool wrong[2]; /* of the prompt, of the completion: what was told last can't be, so it is not known */
	uint64_t prompt, completion;
	bool told_cached;    /* it was told how much of the prompt the engine's cache had: */
	uint64_t cached, of; /* tokens, and those of the whole prompt */
};

void md_usage_scan(struct md_usage_scan *scan, const char *bytes,
		   size_t size); /* scan begins as zeros, but for its kind */
/* The answer says itself that all of it has come: it is one JSON object that is whole, or a stream with its last event. */
bool md_usage_scan_is_whole(const struct md_usage_scan *scan);
/* The answer says itself that some of it is lacking: it is JSON, right so far, within an object or list. */
bool md_usage_scan_is_half(const struct md_usage_scan *scan);
void md_usage_scan_end(struct md_usage_scan *scan); /* the answer is whole: what is no stream may have counts now */

#endif
