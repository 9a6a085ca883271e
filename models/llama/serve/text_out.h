/* SPDX-License-Identifier: Apache-2.0 */
/* The text that a model makes, as it can be sent: whole characters alone, and nothing of a stop text. */
#ifndef LLAMA_SERVE_TEXT_OUT_H
#define LLAMA_SERVE_TEXT_OUT_H

#include <stdbool.h>

#include "base/buf.h"

struct text_out {
	struct md_buf text; /* valid UTF-8: bytes that are none have become U+FFFD */
	struct md_buf raw;  /* bytes that came and are not judged yet */
	size_t sent;        /* bytes of `text` that were handed out */
	char *const *stops; /* borrowed; none is empty */
	size_t stop_count;
	bool stopped; /* a stop text was found: `text` ends before it */
};

void text_out_init(struct text_out *out, char *const *stops, size_t stop_count);
void text_out_finish(struct text_out *out);

/* Judges what was appended to `raw`. last: nothing follows. Returns false when out of memory. */
bool text_out_judge(struct text_out *out, bool last);
/* The bytes that can be sent now, and counts them as sent. Never NULL. */
const char *text_out_ready(struct text_out *out, bool last, size_t *size);

#endif
