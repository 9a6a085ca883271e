/* SPDX-License-Identifier: Apache-2.0 */
/* The command that stops an engine, with the ID of the engine's process in the place of each "${PID}". */
#ifndef MD_WORKER_ENGINE_STOP_WORDS_H
#define MD_WORKER_ENGINE_STOP_WORDS_H

#include <sys/types.h>

/* At most 256 words. NULL, or an end before the last word: out of memory. */
char **md_stop_words_make(char *const *argv, pid_t pid);
void md_stop_words_free(char **words); /* NULL is fine */

#endif
