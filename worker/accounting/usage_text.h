/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a JSON text that comes in pieces, strictly (RFC 8259), and finds the token counts in it. It keeps nothing else of it. */
#ifndef MD_WORKER_ACCOUNTING_USAGE_TEXT_H
#define MD_WORKER_ACCOUNTING_USAGE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MD_USAGE_COUNT_MAX UINT64_C(1000000000000) /* tokens; a larger count is none, and sums stay far below 2^63 */
#define MD_USAGE_LEVELS_MAX 1024u                  /* of objects and lists; a text with more has no counts */
#define MD_USAGE_NAME_MAX 23u                      /* the longest name that is looked for */

struct md_usage_counts {
	bool told[2];  /* prompt, completion */
	bool wrong[2]; /* the last one that is there can't be a count */
	uint64_t of[2];
	bool told_cached;
	uint64_t cached; /* tokens of the prompt that the engine's cache had */
	bool apart;      /* they are not among those of the prompt */
};

/* Begins as zeros. Its fields are usage_text.c's own, but for `counts` of a text that is whole, `expect` and `depth`. */
struct md_usage_text {
	enum {
		MD_TEXT_BEGIN,
		MD_TEXT_FIRST_NAME, /* or the end of the object */
		MD_TEXT_NAME,
		MD_TEXT_COLON,
		MD_TEXT_FIRST_VALUE, /* or the end of the list */
		MD_TEXT_VALUE,
		MD_TEXT_NEXT, /* a comma, or the end of what is open */
		MD_TEXT_END,  /* only white space may follow */
		MD_TEXT_BAD,
	} expect;
	enum { MD_TEXT_NO_TOKEN, MD_TEXT_STRING, MD_TEXT_NUMBER, MD_TEXT_WORD } token; /* that has begun */
	unsigned depth;                             /* objects and lists that are open */
	uint64_t objects[MD_USAGE_LEVELS_MAX / 64]; /* a bit for each of them: it is an object */
	unsigned watched;                           /* the outermost of them, in which counts may be */
	bool in_usage;                              /* one with counts is among those */
	bool in_details;                            /* the last of those is in it, and has details of the prompt */
	/* a string */
	bool is_name, escaped;
	unsigned hex, code;            /* digits of \uXXXX that are missing, and what the others say */
	unsigned char more, low, high; /* bytes of a character that are missing; of the next one, least and most */
	unsigned size;                 /* of a name; more than MD_USAGE_NAME_MAX: it is none that is looked for */
	char name[MD_USAGE_NAME_MAX];
	/* a number, or a word */
	enum {
		MD_NUMBER_SIGN,
		MD_NUMBER_ZERO,
		MD_NUMBER_DIGITS,
		MD_NUMBER_DOT,
		MD_NUMBER_FRACTION,
		MD_NUMBER_E,
		MD_NUMBER_E_SIGN,
		MD_NUMBER_E_DIGITS
	} number;
	bool negative;
	uint64_t value; /* of an integer; at most MD_USAGE_COUNT_MAX + 1 */
	const char *word;
	/* the object with counts that is open, by the names in usage_text.c */
	enum {
		MD_COUNT_NONE,
		MD_COUNT_NULL,
		MD_COUNT_BAD,
		MD_COUNT_GOOD
	} found[6]; /* null: it is there, and says nothing */
	uint64_t values[6];
	struct md_usage_counts counts;
};

void md_usage_text_read(struct md_usage_text *text, const char *at, const char *end);
/* All of the text has come. NULL: it is no JSON object. */
const struct md_usage_counts *md_usage_text_counts(const struct md_usage_text *text);

#endif
