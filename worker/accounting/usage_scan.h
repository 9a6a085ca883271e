/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the token counts in an engine's answer while it is passed on, streamed or whole. */
#ifndef MD_WORKER_ACCOUNTING_USAGE_SCAN_H
#define MD_WORKER_ACCOUNTING_USAGE_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MD_USAGE_OBJECT_MAX 2048u /* bytes of an object that is understood */

/*
 * Looks for "usage": {...} with prompt_tokens and completion_tokens, or input_tokens and output_tokens. Counts of a
 * stream grow, so the last ones are the answer's. In a JSON text, which may hold the same words, quotation marks have
 * backslashes.
 */
struct md_usage_scan {
	unsigned matched; /* bytes of the key, with its quotation marks */
	enum { MD_SCAN_KEY, MD_SCAN_COLON, MD_SCAN_OBJECT } state;
	bool escaped; /* the byte before was a backslash */
	bool in_text, text_escaped;
	unsigned depth;
	size_t size;
	char object[MD_USAGE_OBJECT_MAX];
	bool told; /* counts were found */
	uint64_t prompt, completion;
};

void md_usage_scan(struct md_usage_scan *scan, const char *bytes, size_t size); /* scan begins as zeros */

#endif
