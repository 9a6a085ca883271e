/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes JSON: commas, indentation and escapes are done here, keys and nesting are the caller's. Reads lines of JSON.
 */
#ifndef MD_BASE_JSON_H
#define MD_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

#define MD_JSON_DEPTH_MAX 16

struct md_json {
	FILE *out;
	bool one_line;
	unsigned depth;
	bool filled[MD_JSON_DEPTH_MAX]; /* the container has an item already */
	bool list[MD_JSON_DEPTH_MAX];   /* the container is a list */
};

void md_json_init(struct md_json *json, FILE *out);
void md_json_init_line(struct md_json *json, FILE *out); /* without line breaks, except at the end */
/* key is NULL inside lists and at the top level; keys are literals of the caller and are not escaped. */
void md_json_object(struct md_json *json, const char *key);
void md_json_list(struct md_json *json, const char *key);
void md_json_end(struct md_json *json); /* closes the innermost container; a newline follows the outermost */
/*
 * A NULL value is written as null. Bytes that are not UTF-8 become U+FFFD, and an additional key, KEY_hex, holds all
 * bytes of the value as hexadecimal digits (not in lists).
 */
void md_json_text(struct md_json *json, const char *key, const char *value);
void md_json_number(struct md_json *json, const char *key, uint64_t value);
void md_json_signed(struct md_json *json, const char *key, int64_t value);
void md_json_real(struct md_json *json, const char *key, double value); /* null if it is not finite */
/* Lists of numbers in one line. */
void md_json_numbers(struct md_json *json, const char *key, const uint64_t *values, size_t count);
void md_json_reals(struct md_json *json, const char *key, const double *values, size_t count);
void md_json_bool(struct md_json *json, const char *key, bool value);

/* ---- reading ---- */

enum md_json_kind { MD_JSON_TEXT, MD_JSON_NUMBER, MD_JSON_BOOL };

struct md_json_field {
	const char *key;
	enum md_json_kind kind;
	const char *text; /* of MD_JSON_TEXT; others: NULL */
	uint64_t number;  /* of MD_JSON_NUMBER, and 0 or 1 of MD_JSON_BOOL */
	bool exact;       /* the text came from KEY_hex */
};

/*
 * Reads one object from a line without its line break (a NUL follows its size bytes). Values are texts, whole numbers
 * from 0, true and false. Everything else is refused: other values, a key twice, a text that is not UTF-8 or holds
 * U+0000, anything behind the object. Fields point into line, which is changed. A value that was written with KEY_hex
 * comes back under KEY alone, with its exact bytes. MD_ERR_CORRUPT names the byte; MD_ERR_TOO_LARGE: more than room
 * fields.
 */
enum md_status md_json_read_line(char *line, size_t size, struct md_json_field *fields, size_t room, size_t *count,
				 struct md_error *err);

#endif
