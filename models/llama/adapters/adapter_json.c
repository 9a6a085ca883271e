/* SPDX-License-Identifier: Apache-2.0 */
#include "models/llama/adapters/adapter_json.h"

#include <string.h>

#include "json/tree_text.h"

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

enum md_status adapter_json_parse(const char *text, size_t size, json_t **root, struct md_error *err)
{
	json_error_t error;
	json_t *parsed = md_jansson_parse(text, size, JSON_REJECT_DUPLICATES, &error);
	if (!parsed && json_error_code(&error) == json_error_out_of_memory)
		return md_error_set(err, MD_ERR_NO_MEMORY, "%s", error.text);
	if (!parsed)
		return md_error_set(err, MD_ERR_CORRUPT, "line %d, byte %d: %.*s", error.line, error.position,
				    words_without_text(error.text), error.text);
	if (!json_is_object(parsed)) {
		json_decref(parsed);
		return md_error_set(err, MD_ERR_CORRUPT, "no JSON object");
	}
	*root = parsed;
	return MD_OK;
}
