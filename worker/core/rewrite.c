/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/rewrite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool md_rewrite_read(const char *body, size_t size, struct md_rewrite_body *read)
{
	*read = (struct md_rewrite_body){.json = json_loadb(body, size, JSON_DISABLE_EOF_CHECK, NULL)};
	const char *model = json_string_value(json_object_get(read->json, "model"));
	read->stream = json_is_true(json_object_get(read->json, "stream"));
	if (!model || !*model || strlen(model) >= sizeof(read->model))
		return false;
	snprintf(read->model, sizeof(read->model), "%s", model);
	return true;
}

void md_rewrite_finish(struct md_rewrite_body *read)
{
	json_decref(read->json);
	read->json = NULL;
}

/* ---- paths of keys: "a.b" is the key b of the object a ---- */

/* The object that holds the last key of the path; `make`: objects on the way are made, or take the place of others. */
static json_t *find_holder(json_t *object, const char *path, bool make, char key[256])
{
	for (;;) {
		size_t size = strcspn(path, ".");
		if (size >= 256)
			return NULL;
		memcpy(key, path, size);
		key[size] = '\0';
		if (!path[size])
			return object;
		json_t *next = json_object_get(object, key);
		if (!json_is_object(next)) {
			if (!make || json_object_set_new(object, key, json_object()))
				return NULL;
			next = json_object_get(object, key);
		}
		object = next;
		path += size + 1;
	}
}

static bool strip(json_t *object, const char *path)
{
	char key[256];
	json_t *holder = find_holder(object, path, false, key);
	return holder && !json_object_del(holder, key);
}

static bool set(json_t *object, const struct md_config_params *params)
{
	for (uint32_t i = 0; i < params->count; i++) {
		char key[256];
		json_t *holder = find_holder(object, params->items[i].path, true, key);
		if (!holder || json_object_set_new(holder, key, json_deep_copy(params->items[i].value)))
			return false;
	}
	return true;
}

/* ---- all that a model wants ---- */

static bool change(const struct md_config_model *model, json_t *object, const char *requested, bool *changed)
{
	const struct md_config_filters *filters = &model->filters;
	for (uint32_t i = 0; i < filters->strip.count; i++)
		*changed = strip(object, filters->strip.items[i]) || *changed;
	*changed = *changed || filters->set.count;
	if (!set(object, &filters->set))
		return false;
	for (uint32_t i = 0; i < filters->by_id_count; i++) {
		if (strcmp(filters->by_id[i].name, requested) != 0)
			continue;
		*changed = true;
		if (!set(object, &filters->by_id[i]))
			return false;
	}
	return true;
}

bool md_rewrite_apply(const struct md_config_model *model, struct md_rewrite_body *read, char **text, size_t *size)
{
	bool changed = *model->use_model_name != '\0';
	*text = NULL;
	*size = 0;
	if (!read->json)
		return true;
	if (changed && json_object_set_new(read->json, "model", json_string(model->use_model_name)))
		return false;
	if (!change(model, read->json, read->model, &changed))
		return false;
	if (!changed)
		return true;
	*text = json_dumps(read->json, JSON_COMPACT);
	*size = *text ? strlen(*text) : 0;
	return *text != NULL;
}
