/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/body_edit.h"

#include <stdlib.h>
#include <string.h>

#include "json/tree_text.h"
#include "worker/core/body_text.h"

/* ---- what is to be changed ---- */

void md_body_edit_finish(struct md_body_edit *edit)
{
	for (struct md_body_edit *next, *at = edit->first; at; at = next) {
		next = at->next;
		md_body_edit_finish(at);
		free(at);
	}
	free(edit->key);
	json_decref(edit->value);
	*edit = (struct md_body_edit){.next = edit->next};
}

/* The part of this name; it is made if it is not there. */
static struct md_body_edit *find_part(struct md_body_edit *edit, const char *key, size_t size)
{
	struct md_body_edit **at = &edit->first;
	while (*at && (strncmp((*at)->key, key, size) != 0 || (*at)->key[size]))
		at = &(*at)->next;
	if (*at)
		return *at;
	struct md_body_edit *made = calloc(1, sizeof(*made));
	if (!made || !(made->key = strndup(key, size))) {
		free(made);
		return NULL;
	}
	return *at = made;
}

/* Nothing that was to be changed before counts any more. */
static void replace(struct md_body_edit *edit, int what, json_t *value)
{
	char *key = edit->key;
	edit->key = NULL;
	md_body_edit_finish(edit);
	edit->key = key;
	edit->what = what;
	edit->value = value;
}

/* Within a value that is to be set: the same path there; value: NULL removes it. */
static bool change_value(json_t *object, const char *path, const json_t *value)
{
	for (;;) {
		size_t size = strcspn(path, ".");
		json_t *inner = json_object_getn(object, path, size);
		if (!path[size])
			return value ? !json_object_setn_new(object, path, size, json_deep_copy(value))
				     : !inner || !json_object_deln(object, path, size);
		if (!json_is_object(inner)) {
			if (!value)
				return true;
			if (json_object_setn_new(object, path, size, json_object()))
				return false;
			inner = json_object_getn(object, path, size);
		}
		object = inner;
		path += size + 1;
	}
}

static bool change(struct md_body_edit *edit, const char *path, const json_t *value)
{
	for (;;) {
		size_t size = strcspn(path, ".");
		edit = find_part(edit, path, size);
		if (!edit)
			return false;
		if (!path[size]) {
			json_t *copy = value ? json_deep_copy(value) : NULL;
			replace(edit, value ? MD_BODY_SET : MD_BODY_REMOVE, copy);
			return copy || !value;
		}
		path += size + 1;
		if (edit->what == MD_BODY_INSIDE)
			continue;
		if (!value && !json_is_object(edit->value))
			return true; /* nothing is left there that could be removed */
		if (!json_is_object(edit->value))
			replace(edit, MD_BODY_SET, json_object());
		return edit->value && change_value(edit->value, path, value);
	}
}

bool md_body_edit_remove(struct md_body_edit *edit, const char *path)
{
	return change(edit, path, NULL);
}

bool md_body_edit_set(struct md_body_edit *edit, const char *path, const json_t *value)
{
	return change(edit, path, value);
}

/* ---- writing ---- */

struct writer {
	struct md_buf *out;
	struct md_body_failure *failure;
};

static void put_json(struct writer *writer, const json_t *value)
{
	char *text = md_jansson_print(value, JSON_COMPACT | JSON_ENCODE_ANY);
	if (text)
		md_buf_put(writer->out, text, strlen(text));
	else
		writer->out->failed = true;
	free(text);
}

static void put_key(struct writer *writer, const char *key)
{
	json_t *text = json_string(key);
	put_json(writer, text);
	json_decref(text);
	md_buf_put(writer->out, ":", 1);
}

/* Whether something is set in it, so that it is made where it is not there. */
static bool is_made(const struct md_body_edit *edit)
{
	if (edit->what != MD_BODY_INSIDE)
		return edit->what == MD_BODY_SET;
	for (const struct md_body_edit *at = edit->first; at; at = at->next)
		if (is_made(at))
			return true;
	return false;
}

/* All that is set in it and has not been met yet; any: members stand before. */
static void put_made(struct writer *writer, const struct md_body_edit *edit, bool any)
{
	for (const struct md_body_edit *at = edit->first; at; at = at->next) {
		if (at->met || !is_made(at))
			continue;
		if (any)
			md_buf_put(writer->out, ",", 1);
		any = true;
		put_key(writer, at->key);
		if (at->what == MD_BODY_SET) {
			put_json(writer, at->value);
			continue;
		}
		md_buf_put(writer->out, "{", 1);
		put_made(writer, at, false);
		md_buf_put(writer->out, "}", 1);
	}
}

static void forget_met(struct md_body_edit *edit)
{
	for (struct md_body_edit *at = edit->first; at; at = at->next) {
		at->met = false;
		forget_met(at);
	}
}

static struct md_body_edit *find(struct md_body_edit *edit, const char *text, const struct md_body_member *member)
{
	for (struct md_body_edit *at = edit->first; at; at = at->next)
		if (md_body_text_is(text + member->key, member->key_size, at->key))
			return at;
	return NULL;
}

static bool put_object(struct writer *writer, struct md_body_edit *edit, const char *text,
		       const struct md_body_object *object);

/* An object within the object: where its members are is found out now. */
static bool put_inner(struct writer *writer, struct md_body_edit *edit, const char *text, size_t size)
{
	struct md_body_object object;
	if (!md_body_scan(text, size, &object, writer->failure))
		return false;
	bool done = put_object(writer, edit, text, &object);
	md_body_object_finish(&object);
	return done;
}

static bool put_value(struct writer *writer, struct md_body_edit *edit, const char *text,
		      const struct md_body_member *member)
{
	const char *value = text + member->value;
	if (edit && edit->what == MD_BODY_SET) {
		put_json(writer, edit->value);
	} else if (edit && *value == '{') {
		return put_inner(writer, edit, value, member->value_size);
	} else if (edit && is_made(edit)) {
		forget_met(edit);
		md_buf_put(writer->out, "{", 1);
		put_made(writer, edit, false);
		md_buf_put(writer->out, "}", 1);
	} else {
		md_buf_put(writer->out, value, member->value_size);
	}
	return true;
}

/*
 * What stands before a member that stays, a comma among it, stays with it; before the first one that stays, it is what
 * stood before the first of all.
 */
static bool put_members(struct writer *writer, struct md_body_edit *edit, const char *text,
			const struct md_body_object *object, bool *any)
{
	size_t before = object->open + 1;
	for (uint32_t i = 0; i < object->count; i++) {
		const struct md_body_member *member = &object->members[i];
		struct md_body_edit *part = find(edit, text, member);
		size_t key = member->key - 1, from = *any ? before : object->open + 1;
		size_t gap = (*any ? key : object->members[0].key - 1) - from;
		before = member->value + member->value_size;
		if (part)
			part->met = true;
		if (part && part->what == MD_BODY_REMOVE)
			continue;
		md_buf_put(writer->out, text + from, gap);
		md_buf_put(writer->out, text + key, member->value - key);
		if (!put_value(writer, part, text, member))
			return false;
		*any = true;
	}
	return true;
}

static bool put_object(struct writer *writer, struct md_body_edit *edit, const char *text,
		       const struct md_body_object *object)
{
	bool any = false;
	forget_met(edit);
	md_buf_put(writer->out, "{", 1);
	if (!put_members(writer, edit, text, object, &any))
		return false;
	put_made(writer, edit, any);
	size_t end = object->count
			 ? object->members[object->count - 1].value + object->members[object->count - 1].value_size
			 : object->open + 1;
	md_buf_put(writer->out, text + end, object->close + 1 - end);
	return true;
}

bool md_body_edit_apply(struct md_body_edit *edit, const char *text, size_t size, const struct md_body_object *object,
			struct md_buf *out, struct md_body_failure *failure)
{
	struct writer writer = {.out = out, .failure = failure};
	*failure = (struct md_body_failure){.why = "out of memory for the changed body", .no_memory = true};
	md_buf_put(out, text, object->open);
	if (!put_object(&writer, edit, text, object))
		return false;
	md_buf_put(out, text + object->close + 1, size - object->close - 1);
	return !out->failed;
}
