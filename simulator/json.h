/* SPDX-License-Identifier: Apache-2.0 */
/* Writes JSON: commas, indentation and escapes are its business, keys and nesting the caller's. */
#ifndef MD_SIMULATOR_JSON_H
#define MD_SIMULATOR_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define MD_JSON_DEPTH_MAX 16

struct md_json {
	FILE *out;
	unsigned depth;
	bool filled[MD_JSON_DEPTH_MAX]; /* something stands in the container already */
	bool list[MD_JSON_DEPTH_MAX];   /* it is a list */
};

void md_json_init(struct md_json *json, FILE *out);
/* key is NULL inside lists and at the top. */
void md_json_object(struct md_json *json, const char *key);
void md_json_list(struct md_json *json, const char *key);
void md_json_end(struct md_json *json); /* closes the innermost; a newline follows the outermost */
/* value NULL is null. Bytes that are no UTF-8 come out as U+FFFD. */
void md_json_text(struct md_json *json, const char *key, const char *value);
void md_json_number(struct md_json *json, const char *key, uint64_t value);
void md_json_signed(struct md_json *json, const char *key, int64_t value);
void md_json_real(struct md_json *json, const char *key, double value); /* null if it is not finite */
/* A list of numbers in one line. */
void md_json_reals(struct md_json *json, const char *key, const double *values, size_t count);
void md_json_bool(struct md_json *json, const char *key, bool value);

/* Bytes of the valid UTF-8 sequence that text begins with; 0: it begins with none. */
int md_json_utf8_length(const char *text);

#endif
