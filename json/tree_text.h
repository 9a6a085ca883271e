/* SPDX-License-Identifier: Apache-2.0 */
/* Trees of jansson, from texts and to texts: whole ones, or none where memory fails. Nothing else calls its own functions for that. */
#ifndef MD_JSON_TREE_TEXT_H
#define MD_JSON_TREE_TEXT_H

#include <jansson.h>
#include <stddef.h>

/*
 * What json_loadb makes of the size bytes of text, with its flags; the caller has the reference. NULL: error, if it is
 * not NULL, says why, and json_error_code of it is json_error_out_of_memory where memory has failed.
 */
json_t *md_jansson_parse(const char *text, size_t size, size_t flags, json_error_t *error);

/*
 * What json_dumps makes of value, for free(). NULL: out of memory, value is NULL, or no text can be made of it. So it is
 * when memory has failed for anything that this thread has built of jansson's since it printed last: a value may lack that.
 */
char *md_jansson_print(const json_t *value, size_t flags);

/* A string of a text that may have any bytes, or be cut within a character: what is not UTF-8 is shown as \xHH then. NULL: out of memory. */
json_t *md_jansson_text(const char *text);

#endif
