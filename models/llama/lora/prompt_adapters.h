/* SPDX-License-Identifier: Apache-2.0 */
/* The adapters of a command line's prompts: each is loaded once, and stays in its slot. */
#ifndef LLAMA_LORA_PROMPT_ADAPTERS_H
#define LLAMA_LORA_PROMPT_ADAPTERS_H

#include "models/llama/engine.h"
#include "models/llama/options.h"

struct prompt_adapters {
	struct lora_adapter *slots; /* what lies in each; NULL: nothing was loaded */
	const char **names;         /* as --adapter said it */
	int count;
};

enum md_status prompt_adapters_load(struct prompt_adapters *adapters, struct llama_engine *engine,
				    const struct llama_options *options, struct md_error *err);
void prompt_adapters_finish(struct prompt_adapters *adapters); /* also on a zeroed one */

/* The slot of a prompt's adapter, -1: it has none. One --adapter holds for all prompts, more for one each. */
enum md_status prompt_adapters_slot(const struct prompt_adapters *adapters, const struct llama_options *options,
				    size_t prompt, size_t prompts, int *slot, struct md_error *err);

#endif
