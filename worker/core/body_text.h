/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of a scanned JSON object: what stands between quotation marks, without its escapes. */
#ifndef MD_WORKER_CORE_BODY_TEXT_H
#define MD_WORKER_CORE_BODY_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* All take what md_body_scan has accepted, without the quotation marks. */

/* Whether it means this name, with escapes or without. */
bool md_body_text_is(const char *text, size_t size, const char *name);
/* False: it has no room with its NUL, holds U+0000, or half of a surrogate pair. */
bool md_body_text_copy(const char *text, size_t size, char *out, size_t room);
/* The next character's bytes, behind which *at stands then; 0: it is U+0000, or half of a surrogate pair. */
size_t md_body_text_take(const char **at, const char *end, char out[4]);

#endif
