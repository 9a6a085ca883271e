/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/adapter_words.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/plain.h"
#include "json/tree_text.h"

char *md_adapter_order(const char *name, const char *path)
{
	json_t *order = path ? json_pack("{s:s, s:s}", "lora_name", name, "lora_path", path)
			     : json_pack("{s:s}", "lora_name", name);
	char *text = order ? md_jansson_print(order, JSON_COMPACT) : NULL;
	json_decref(order);
	return text;
}

enum md_adapter_listed md_adapter_find(const char *answer, size_t size, const char *name, const char *path)
{
	json_t *list = md_jansson_parse(answer, size, JSON_REJECT_DUPLICATES, NULL);
	enum md_adapter_listed found = MD_ADAPTER_MISSING;
	json_t *data = json_object_get(list, "data"), *at;
	size_t i;
	json_array_foreach(data, i, at)
	{
		const char *id = json_string_value(json_object_get(at, "id"));
		const char *root = json_string_value(json_object_get(at, "root"));
		if (id && !strcmp(id, name))
			found = !root || !strcmp(root, path) ? MD_ADAPTER_LISTED : MD_ADAPTER_OTHER;
	}
	json_decref(list);
	return found;
}

/* {"error": {"message": ...}}, {"error": ...}, {"message": ...} and {"detail": ...} are what engines say; NULL: something else. */
static const char *message_of(const json_t *answer)
{
	const json_t *error = json_object_get(answer, "error");
	const json_t *inner = json_is_object(error) ? json_object_get(error, "message") : error;
	const char *said = json_string_value(inner);
	said = said ? said : json_string_value(json_object_get(answer, "message"));
	return said ? said : json_string_value(json_object_get(answer, "detail"));
}

void md_adapter_words(const char *what, unsigned status, const struct md_buf *answer, const char *why, char *out,
		      size_t room)
{
	char text[400], plain[160];
	json_t *parsed = answer->size ? md_jansson_parse((const char *)answer->data, answer->size, 0, NULL) : NULL;
	const char *said = message_of(parsed);
	snprintf(text, sizeof(text), "%.*s", said ? (int)strlen(said) : (int)(answer->size < 399 ? answer->size : 399),
		 said           ? said
		 : answer->size ? (const char *)answer->data
				: "");
	md_plain_copy(plain, sizeof(plain), why ? why : text);
	if (why)
		snprintf(out, room, "%s: %s", what, plain);
	else
		snprintf(out, room, "%s: %u%s%s", what, status, *plain ? ": " : "", plain);
	json_decref(parsed);
}
