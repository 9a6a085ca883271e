/* SPDX-License-Identifier: Apache-2.0 */
/* Commands as llama-swap's configuration writes them: comments, continued lines and quotes, and no shell. */
#ifndef MD_WORKER_CONFIG_COMMAND_H
#define MD_WORKER_CONFIG_COMMAND_H

#include "worker/config/tree.h"

/* The text without the lines whose first character is "#"; NULL: out of memory. */
const char *md_command_uncomment(struct md_arena *arena, const char *text);
/*
 * The words of a command, with a NULL behind them, in the arena; *open: its last quote is not closed. A backslash at the
 * end of a line joins it with the next. Words end at blanks and line breaks; '...' is literal; within "..." a backslash
 * takes effect before $ ` " and itself; elsewhere, it makes the next character literal. NULL: out of memory.
 */
const char *const *md_command_split(struct md_arena *arena, const char *text, bool *open);

#endif
