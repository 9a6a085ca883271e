/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces secrets in arguments and command lines (passwords, API keys, tokens) before anybody writes or shows them. */
#ifndef MD_BASE_SECRET_H
#define MD_BASE_SECRET_H

#include <stdbool.h>

#include "base/arguments.h"

#define MD_SECRET_SHOWN "REDACTED" /* in place of a secret; a shell, JSON and fnmatch(3) take it as it is */

/*
 * Secrets are the values of names that say so (base/secret_name.h), in the forms `--name value`, `--name=value`,
 * `NAME=value`, `name: value` and `"name": "value"`; user and password of a URL; what follows "Bearer"; and keys of
 * well-known forms. Where it is not certain how far a value goes, rather more than less is replaced. What has been
 * replaced is not replaced again: two texts that differ in their secrets alone become the same text.
 */

/* A copy of a line that may hold many words, as a shell, a log or a program's title has it. NULL: out of memory. */
char *md_secret_hide_line(const char *line);

/* The same for each argument of a list, in which the value of an option may be the next argument. False: out of memory. */
bool md_secret_hide_arguments(struct md_argument_list *arguments);
/* For a list of patterns that arguments are compared with: each alone. False: out of memory. */
bool md_secret_hide_patterns(struct md_argument_list *patterns);

#endif
