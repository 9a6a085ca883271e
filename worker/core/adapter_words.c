/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/adapter_words.h"

#include <ctype.h>
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

void md_adapter_each(const char *answer, size_t size, void (*visit)(void *context, const char *name, const char *path),
		     void *context)
{
	json_t *list = md_jansson_parse(answer, size, JSON_REJECT_DUPLICATES, NULL);
	json_t *data = json_object_get(list, "data"), *at;
	size_t i;
	json_array_foreach(data, i, at)
	{
		const char *id = json_string_value(json_object_get(at, "id"));
		const char *root = json_string_value(json_object_get(at, "root"));
		if (id && json_is_string(json_object_get(at, "parent")))
			visit(context, id, root ? root : "");
	}
	json_decref(list);
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

void md_adapter_words(const char *what, const struct md_adapter_answer *answer, char *out, size_t room)
{
	const struct md_buf *body = answer->body;
	char text[400], plain[160];
	json_t *parsed = body->size ? md_jansson_parse((const char *)body->data, body->size, 0, NULL) : NULL;
	const char *said = message_of(parsed);
	snprintf(text, sizeof(text), "%.*s", said ? (int)strlen(said) : (int)(body->size < 399 ? body->size : 399),
		 said         ? said
		 : body->size ? (const char *)body->data
			      : "");
	md_plain_copy(plain, sizeof(plain), answer->why ? answer->why : text);
	if (answer->why)
		snprintf(out, room, "%s: %s", what, plain);
	else
		snprintf(out, room, "%s: %u%s%s", what, answer->status, *plain ? ": " : "", plain);
	json_decref(parsed);
}

/* ---- commands ---- */

static bool is_of_path(char c)
{
	return isalnum((unsigned char)c) || c == '/' || c == '.' || c == '-' || c == '_' || (unsigned char)c >= 0x80;
}

/* NAME=PATH is another adapter's if it has another name; --option=PATH says nothing of names. */
static bool is_of_name(const char *word, const char *at, const char *name)
{
	const char *from = at > word && at[-1] == '=' ? at - 1 : NULL, *begin = from;
	while (begin && begin > word && !strchr(" \t,;", begin[-1]))
		begin--;
	return !begin || *begin == '-' ||
	       ((size_t)(from - begin) == strlen(name) && !memcmp(begin, name, strlen(name)));
}

static bool word_has(const char *word, const char *name, const char *path)
{
	size_t size = strlen(path);
	for (const char *at = word; size && (at = strstr(at, path)); at++) {
		const char *end = at + size;
		end += *end == '/' && path[size - 1] != '/';
		if ((at == word || !is_of_path(at[-1])) && !is_of_path(*end) && is_of_name(word, at, name))
			return true;
	}
	return false;
}

bool md_adapter_is_in_command(const char *const *argv, const char *name, const char *path)
{
	for (; argv && *argv; argv++)
		if (word_has(*argv, name, path))
			return true;
	return false;
}
