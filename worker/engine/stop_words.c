/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/engine/stop_words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 256u

/* A copy in which each "${PID}" is the process's id; NULL: out of memory. */
static char *expand_word(const char *word, pid_t pid)
{
	char *made = NULL;
	size_t size;
	FILE *out = open_memstream(&made, &size);
	for (const char *at; out && (at = strstr(word, "${PID}")); word = at + strlen("${PID}"))
		fprintf(out, "%.*s%d", (int)(at - word), word, (int)pid);
	if (out)
		fputs(word, out);
	if (out && !fclose(out))
		return made;
	free(made);
	return NULL;
}

char **md_stop_words_make(char *const *argv, pid_t pid)
{
	char **made = calloc(WORDS_MAX + 1, sizeof(*made));
	for (size_t i = 0; made && argv[i] && i < WORDS_MAX; i++)
		made[i] = expand_word(argv[i], pid);
	return made;
}

void md_stop_words_free(char **words)
{
	for (size_t i = 0; words && words[i]; i++)
		free(words[i]);
	free(words);
}
