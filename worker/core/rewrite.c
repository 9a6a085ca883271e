/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/rewrite.h"

#include <stdio.h>
#include <string.h>

#include "worker/core/body_edit.h"
#include "worker/core/body_text.h"

/* ---- reading ---- */

/*
 * The member of this name; NULL: there is none. False: there are two, of which the engine might take another one than
 * the worker.
 */
static bool find(struct md_rewrite_body *read, const char *name, const struct md_body_member **found)
{
	*found = NULL;
	for (uint32_t i = 0; i < read->object.count; i++) {
		const struct md_body_member *member = &read->object.members[i];
		if (!md_body_text_is(read->text + member->key, member->key_size, name))
			continue;
		if (*found) {
			snprintf(read->why, sizeof(read->why), "\"%s\" stands there twice: at byte %zu and at byte %zu",
				 name, (*found)->key - 1, member->key - 1);
			return false;
		}
		*found = member;
	}
	return true;
}

static bool read_model(struct md_rewrite_body *read, const struct md_body_member *member)
{
	const char *text = read->text + member->value;
	if (*text == '"' && md_body_text_copy(text + 1, member->value_size - 2, read->model, sizeof(read->model)))
		return true;
	snprintf(read->why, sizeof(read->why), "\"model\" at byte %zu is no text with at most %zu bytes", member->value,
		 sizeof(read->model) - 1);
	return false;
}

static bool read_members(struct md_rewrite_body *read)
{
	const struct md_body_member *model, *stream;
	if (!find(read, "model", &model) || !find(read, "stream", &stream) || (model && !read_model(read, model)))
		return false;
	read->stream = stream && stream->value_size == 4 && !memcmp(read->text + stream->value, "true", 4);
	return true;
}

bool md_rewrite_read(const char *body, size_t size, struct md_rewrite_body *read)
{
	struct md_body_failure failure;
	*read = (struct md_rewrite_body){.text = body, .size = size};
	if (!md_body_scan(body, size, &read->object, &failure)) {
		snprintf(read->why, sizeof(read->why), "byte %zu: %s", failure.at, failure.why);
		read->no_memory = failure.no_memory;
		return false;
	}
	bool good = read_members(read);
	if (!good)
		md_rewrite_finish(read);
	return good;
}

void md_rewrite_finish(struct md_rewrite_body *read)
{
	md_body_object_finish(&read->object);
}

/* ---- all that is wished ---- */

static bool set(struct md_body_edit *edit, const struct md_config_params *params)
{
	for (uint32_t i = 0; i < params->count; i++)
		if (!md_body_edit_set(edit, params->items[i].path, params->items[i].value))
			return false;
	return true;
}

static bool collect(const struct md_rewrite_wish *wish, struct md_body_edit *edit)
{
	const struct md_config_filters *filters = wish->filters;
	for (uint32_t i = 0; i < filters->strip.count; i++)
		if (!md_body_edit_remove(edit, filters->strip.items[i]))
			return false;
	if (!set(edit, &filters->set))
		return false;
	for (uint32_t i = 0; i < filters->by_id_count; i++)
		if (!strcmp(filters->by_id[i].name, wish->asked) && !set(edit, &filters->by_id[i]))
			return false;
	if (!wish->name || !*wish->name)
		return true;
	json_t *name = json_string(wish->name);
	bool done = name && md_body_edit_set(edit, "model", name);
	json_decref(name);
	return done;
}

bool md_rewrite_apply(const struct md_rewrite_wish *wish, struct md_rewrite_body *read, char **text, size_t *size)
{
	struct md_body_edit edit = {0};
	struct md_body_failure failure = {.why = "out of memory for what is to be changed", .no_memory = true};
	struct md_buf out;
	*text = NULL;
	*size = 0;
	md_buf_init(&out);
	bool good = collect(wish, &edit);
	if (good && edit.first) {
		good = md_body_edit_apply(&edit, read->text, read->size, &read->object, &out, &failure);
		md_buf_put_u8(&out, 0);
		good = good && !out.failed;
	}
	md_body_edit_finish(&edit);
	if (!good) {
		snprintf(read->why, sizeof(read->why), "a parameter that is to be changed: %s", failure.why);
		read->no_memory = failure.no_memory;
		md_buf_finish(&out);
	} else if (out.size) {
		*text = (char *)out.data;
		*size = out.size - 1;
	}
	return good;
}
