/* SPDX-License-Identifier: Apache-2.0 */
/* What is said to engines about adapters, and what they answer: JSON as vLLM has it. */
#ifndef MD_WORKER_CORE_ADAPTER_WORDS_H
#define MD_WORKER_CORE_ADAPTER_WORDS_H

#include <stdbool.h>
#include <stddef.h>

#include "worker/core/adapter_call.h"

enum md_adapter_listed { MD_ADAPTER_MISSING, MD_ADAPTER_LISTED, MD_ADAPTER_OTHER };

/* Of an order to load it, or without a path to unload it; the caller frees it. NULL: out of memory. */
char *md_adapter_order(const char *name, const char *path);
/*
 * Whether the answer to GET /v1/models has it; MD_ADAPTER_OTHER: by its name, another one. An engine that says no `root` is
 * believed to have the right one.
 */
enum md_adapter_listed md_adapter_find(const char *answer, size_t size, const char *name, const char *path);
/* Each adapter of that answer: what says whose it is (`parent`), with its `root` ("": it says none). */
void md_adapter_each(const char *answer, size_t size, void (*visit)(void *context, const char *name, const char *path),
		     void *context);
/* "did not load the adapter: 404: no such file", in plain text. */
void md_adapter_words(const char *what, const struct md_adapter_answer *answer, char *out, size_t room);
/* Whether an engine's command (argv) names this adapter, so that the engine has it from its start: NAME=PATH, or PATH. */
bool md_adapter_is_in_command(const char *const *argv, const char *name, const char *path);

#endif
