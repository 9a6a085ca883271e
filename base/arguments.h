/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of a program, and whether those of another start are the same but for what may vary. */
#ifndef MD_BASE_ARGUMENTS_H
#define MD_BASE_ARGUMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define MD_ARGUMENTS_MAX 4096          /* texts in a list */
#define MD_ARGUMENTS_BYTES (96u << 10) /* of all texts of a list, with their NULs; the kernel passes on 128 KiB */

struct md_text {
	char *text; /* owned, unless a function says otherwise */
};

struct md_argument_list {
	struct md_text *items; /* owned */
	uint32_t count;
};

/* Keeps a copy. False: out of memory. */
bool md_arguments_add(struct md_argument_list *arguments, const char *text);
bool md_arguments_copy(const struct md_argument_list *from, struct md_argument_list *out);
void md_arguments_finish(struct md_argument_list *arguments);

/* The argument that names the script of an interpreter; 0: none. */
uint32_t md_arguments_script(const struct md_argument_list *arguments);

/*
 * The last text of a list may begin like this; it says what the files of the program and of its script hold. It is
 * compared like an argument; the pattern "program" lets it vary.
 */
#define MD_ARGUMENTS_PROGRAM "(program: "

/*
 * Compares two lists, and returns MD_ERR_MISMATCH at the first argument that differs, named by its position in `now`.
 * The message names the two sides by the texts stored and now ("the artifact was captured with"). The program may have
 * another path as long as its file name is the same, and so may the script of an interpreter. vary: patterns of
 * fnmatch(3). An argument that matches a pattern is not compared, nor is an option with the argument behind it that
 * match as "OPTION=VALUE".
 */
enum md_status md_arguments_compare(const struct md_argument_list *stored, const struct md_argument_list *now,
				    const struct md_argument_list *vary, const char *stored_name, struct md_error *err);

/* One line of text, without a NUL, and back: for an environment variable. NULL: out of memory. */
char *md_arguments_join(const struct md_argument_list *arguments);
bool md_arguments_split(const char *line, struct md_argument_list *out);

#endif
