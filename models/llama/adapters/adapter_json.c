/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jansson leaves characters of a text out, or reads on behind it, when it gets no memory for that text. So it gets one
 * block beforehand, from which all is taken in turn; the block goes when the tree does.
 */
#include "models/llama/adapters/adapter_json.h"

#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 16u
#define FEWEST_BYTES (64u << 10)
#define BYTES_FOR_ONE 100u /* of a text: a list of empty objects takes 77, other texts take less */

static _Thread_local struct adapter_json *current; /* while a thread parses a text, or lets its tree go */

static void *take(size_t size)
{
	struct adapter_json *json = current;
	size_t rounded = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	if (!json || rounded < size || rounded > json->size - json->used)
		return malloc(size);
	void *taken = json->memory + json->used;
	json->used += rounded;
	return taken;
}

static void give_back(void *pointer)
{
	uintptr_t at = (uintptr_t)pointer, first = current ? (uintptr_t)current->memory : 0;
	if (!current || at < first || at >= first + current->size)
		free(pointer);
}

/* Before there is a second thread, because jansson's users elsewhere in the process take these two as well. */
static void __attribute__((constructor)) give_jansson_memory(void)
{
	json_set_alloc_funcs(take, give_back);
}

/* Jansson says what is wrong, then shows what stands there. The file may be any, so what it holds is not shown. */
static int words_without_text(const char *words)
{
	static const char *const begins[] = {" near ", " byte 0x"};
	size_t size = strlen(words);
	for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++) {
		const char *found = strstr(words, begins[i]);
		if (found && (size_t)(found - words) < size)
			size = (size_t)(found - words);
	}
	return (int)size;
}

enum md_status adapter_json_parse(struct adapter_json *json, const char *text, size_t size, struct md_error *err)
{
	json_error_t error;
	*json = (struct adapter_json){.size = FEWEST_BYTES + size * BYTES_FOR_ONE};
	json->memory = malloc(json->size);
	if (!json->memory)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for %zu bytes of JSON", size);
	current = json;
	json->root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
	current = NULL;
	enum md_status status = MD_OK;
	if (!json->root)
		status = md_error_set(err, MD_ERR_CORRUPT, "line %d, byte %d: %.*s", error.line, error.position,
				      words_without_text(error.text), error.text);
	else if (!json_is_object(json->root))
		status = md_error_set(err, MD_ERR_CORRUPT, "no JSON object");
	if (status != MD_OK)
		adapter_json_finish(json);
	return status;
}

void adapter_json_finish(struct adapter_json *json)
{
	current = json;
	json_decref(json->root);
	current = NULL;
	free(json->memory);
	memset(json, 0, sizeof(*json));
}
