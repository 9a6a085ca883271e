/* SPDX-License-Identifier: Apache-2.0 */
#include "models/llama/lora/prompt_adapters.h"

#include <stdlib.h>
#include <string.h>

/* NAME=PATH: a length of 0 if there is no name, or no path. */
static size_t lora_name_length(const char *pair)
{
	const char *equals = strchr(pair, '=');
	return equals && equals[1] ? (size_t)(equals - pair) : 0;
}

/* The path of a --lora of this name, or else the text itself. */
static const char *path_of(const struct llama_options *options, const char *text)
{
	for (size_t i = 0; i < options->loras.count; i++) {
		const char *pair = options->loras.all[i];
		size_t length = lora_name_length(pair);
		if (length && length == strlen(text) && !memcmp(pair, text, length))
			return pair + length + 1;
	}
	return text;
}

static int find(const struct prompt_adapters *adapters, const char *name)
{
	for (int slot = 0; slot < adapters->count; slot++)
		if (!strcmp(adapters->names[slot], name))
			return slot;
	return -1;
}

static enum md_status load(struct prompt_adapters *adapters, struct llama_engine *engine,
			   const struct llama_options *options, const char *name, struct md_error *err)
{
	struct lora_adapter *adapter = &adapters->slots[adapters->count];
	if (!strcmp(name, "-") || find(adapters, name) >= 0)
		return MD_OK;
	if (adapters->count == engine->lora.slots)
		return md_error_set(err, MD_ERR_INVALID, "--adapter %s: all of --lora-slots %d are used", name,
				    engine->lora.slots);
	MD_FORWARD(lora_adapter_load(adapter, path_of(options, name), &engine->model->shape, engine->lora.max_rank,
				     options->lora_bytes, err));
	adapters->names[adapters->count] = name;
	return lora_pool_put(&engine->lora, engine->stream, adapters->count++, adapter, err);
}

enum md_status prompt_adapters_load(struct prompt_adapters *adapters, struct llama_engine *engine,
				    const struct llama_options *options, struct md_error *err)
{
	size_t slots = (size_t)engine->lora.slots;
	if (!slots || !options->adapters.count)
		return MD_OK;
	adapters->slots = calloc(slots + 1, sizeof(*adapters->slots));
	adapters->names = calloc(slots + 1, sizeof(*adapters->names));
	if (!adapters->slots || !adapters->names)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %zu adapters", slots);
	for (size_t i = 0; i < options->adapters.count; i++)
		MD_FORWARD(load(adapters, engine, options, options->adapters.all[i], err));
	return MD_OK;
}

void prompt_adapters_finish(struct prompt_adapters *adapters)
{
	for (int slot = 0; slot < adapters->count; slot++)
		lora_adapter_finish(&adapters->slots[slot]);
	free(adapters->slots);
	free(adapters->names);
	memset(adapters, 0, sizeof(*adapters));
}

enum md_status prompt_adapters_slot(const struct prompt_adapters *adapters, const struct llama_options *options,
				    size_t prompt, size_t prompts, int *slot, struct md_error *err)
{
	size_t count = options->adapters.count;
	*slot = -1;
	if (!count)
		return MD_OK;
	if (count != 1 && count != prompts)
		return md_error_set(err, MD_ERR_INVALID, "--adapter: %zu of them for %zu prompts; one, or one for each",
				    count, prompts);
	*slot = find(adapters, options->adapters.all[count == 1 ? 0 : prompt]);
	return MD_OK;
}
