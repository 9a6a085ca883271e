/* SPDX-License-Identifier: Apache-2.0 */
/* Reads YAML into a tree: the events of libyaml, with anchors, aliases and "<<" carried out. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/map.h"
#include "worker/config/tree.h"

struct source {
	struct md_forest *forest;
	yaml_parser_t parser;
	yaml_event_t event;
	bool held;             /* event must be deleted */
	struct md_map anchors; /* hash of the name to struct md_tree * */
	const char *name;
	struct md_error *err;
};

static uint32_t line_of(const struct source *source)
{
	return (uint32_t)source->event.start_mark.line + 1;
}

static enum md_status refuse(const struct source *source, const char *what)
{
	return md_error_set(source->err, MD_ERR_CORRUPT, "%s:%" PRIu32 ": %s", source->name, line_of(source), what);
}

static enum md_status read_event(struct source *source)
{
	const yaml_parser_t *parser = &source->parser;
	const char *problem;
	if (source->held)
		yaml_event_delete(&source->event);
	source->held = false;
	if (yaml_parser_parse(&source->parser, &source->event)) {
		source->held = true;
		return MD_OK;
	}
	problem = parser->problem ? parser->problem : "not YAML";
	if (parser->error == YAML_MEMORY_ERROR)
		return md_tree_memory(source->name, source->err);
	/* for bytes that are not text, libyaml reports an offset and no line */
	if (parser->error == YAML_READER_ERROR)
		return md_error_set(source->err, MD_ERR_CORRUPT, "%s: byte %zu: %s", source->name,
				    parser->problem_offset, problem);
	return md_error_set(source->err, MD_ERR_CORRUPT, "%s:%zu: %s", source->name, parser->problem_mark.line + 1,
			    problem);
}

static struct md_tree *make(const struct source *source, enum md_tree_kind kind)
{
	return md_tree_make(source->forest, kind, source->name, line_of(source), source->err);
}

static enum md_status made(const struct source *source)
{
	return source->err->status;
}

/* ---- scalars ---- */

static enum md_status keep_text(const struct source *source, const char **text)
{
	const char *value = (const char *)source->event.data.scalar.value;
	size_t length = source->event.data.scalar.length;
	const struct md_tree at = {.file = source->name, .line = line_of(source)};
	if (length > MD_TREE_SCALAR_MAX)
		return refuse(source, "a text of over 256 KiB");
	if (memchr(value, 0, length))
		return refuse(source, "a text with a zero byte in it");
	*text = md_arena_copy(&source->forest->arena, value, length);
	if (!*text)
		return md_tree_memory(source->name, source->err);
	return md_tree_environment(source->forest, &at, text, source->err);
}

/* Tags of YAML's own; those of applications mean nothing here. */
static bool has_tag(const yaml_event_t *event, const char *tag)
{
	const char *given = (const char *)event->data.scalar.tag;
	return given && !strcmp(given, tag);
}

static enum md_status read_scalar(struct source *source, struct md_tree **out)
{
	const yaml_event_t *event = &source->event;
	struct md_tree *node = make(source, MD_TREE_TEXT);
	if (!node)
		return made(source);
	MD_FORWARD(keep_text(source, &node->text));
	node->plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && !event->data.scalar.tag;
	if (node->plain || has_tag(event, YAML_INT_TAG) || has_tag(event, YAML_FLOAT_TAG) ||
	    has_tag(event, YAML_BOOL_TAG) || has_tag(event, YAML_NULL_TAG))
		md_tree_resolve(node);
	*out = node;
	return MD_OK;
}

/* ---- anchors and aliases ---- */

static const char *anchor_of(const yaml_event_t *event)
{
	switch (event->type) {
	case YAML_SCALAR_EVENT:
		return (const char *)event->data.scalar.anchor;
	case YAML_SEQUENCE_START_EVENT:
		return (const char *)event->data.sequence_start.anchor;
	case YAML_MAPPING_START_EVENT:
		return (const char *)event->data.mapping_start.anchor;
	default:
		return NULL;
	}
}

/* A name is known once its value is complete, so that no value can hold itself. */
static enum md_status keep_anchor(struct source *source, uint64_t name, struct md_tree *node)
{
	return md_map_put(&source->anchors, name, (uint64_t)(uintptr_t)node)
		   ? MD_OK
		   : md_tree_memory(source->name, source->err);
}

static enum md_status read_alias(struct source *source, uint32_t depth, struct md_tree **out)
{
	const char *name = (const char *)source->event.data.alias.anchor;
	uint64_t node;
	if (!md_map_get(&source->anchors, md_hash_checksum(name, strlen(name)), &node))
		return md_error_set(source->err, MD_ERR_CORRUPT,
				    "%s:%" PRIu32 ": *%.60s: no value before this one has the anchor &%.60s",
				    source->name, line_of(source), name, name);
	return md_tree_copy(source->forest, (const struct md_tree *)(uintptr_t)node, depth, out, source->err);
}

/* ---- mappings ---- */

static int compare_keys(const void *a, const void *b)
{
	const struct md_tree *const *left = a, *const *right = b;
	int order = strcmp((*left)->key, (*right)->key);
	return order ? order : ((*left)->line > (*right)->line) - ((*left)->line < (*right)->line);
}

/* The children by key; malloc'd. */
static struct md_tree **sort_children(const struct md_tree *mapping)
{
	struct md_tree **sorted = calloc(mapping->count + 1u, sizeof(*sorted));
	size_t count = 0;
	for (struct md_tree *at = mapping->first; at && sorted; at = at->next)
		sorted[count++] = at;
	if (sorted)
		qsort(sorted, count, sizeof(*sorted), compare_keys);
	return sorted;
}

static enum md_status check_keys(const struct source *source, const struct md_tree *mapping)
{
	MD_AUTO_FREE struct md_tree **sorted = sort_children(mapping);
	if (!sorted)
		return md_tree_memory(source->name, source->err);
	for (uint32_t i = 1; i < mapping->count; i++)
		if (!strcmp(sorted[i - 1]->key, sorted[i]->key))
			return md_error_set(source->err, MD_ERR_CORRUPT,
					    "%s:%" PRIu32 ": the key \"%.60s\" is there already, in line %" PRIu32,
					    source->name, sorted[i]->line, sorted[i]->key, sorted[i - 1]->line);
	return MD_OK;
}

static bool has_key(struct md_tree **sorted, uint32_t count, const char *key)
{
	uint32_t low = 0, high = count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		int order = strcmp(sorted[middle]->key, key);
		if (order == 0)
			return true;
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

/* Puts in what `mapping` has not: copies, because an anchor may name what stands at "<<". */
static enum md_status merge_one(struct source *source, struct md_tree *mapping, const struct md_tree *from,
				uint32_t depth)
{
	MD_AUTO_FREE struct md_tree **sorted = sort_children(mapping);
	uint32_t count = mapping->count;
	struct md_tree *copy;
	if (!sorted)
		return md_tree_memory(source->name, source->err);
	if (from->kind != MD_TREE_MAPPING)
		return md_error_set(source->err, MD_ERR_CORRUPT,
				    "%s:%" PRIu32 ": << takes a mapping or a list of mappings", source->name,
				    from->line);
	for (const struct md_tree *at = from->first; at; at = at->next) {
		if (has_key(sorted, count, at->key))
			continue;
		MD_FORWARD(md_tree_copy(source->forest, at, depth + 1, &copy, source->err));
		copy->key = at->key;
		md_tree_append(mapping, copy);
	}
	return MD_OK;
}

static enum md_status merge(struct source *source, struct md_tree *mapping, const struct md_tree *from, uint32_t depth)
{
	if (from->kind != MD_TREE_LIST)
		return merge_one(source, mapping, from, depth);
	if (from->count > 64)
		return md_error_set(source->err, MD_ERR_TOO_LARGE, "%s:%" PRIu32 ": << takes at most 64 mappings",
				    source->name, from->line);
	for (const struct md_tree *at = from->first; at; at = at->next)
		MD_FORWARD(merge_one(source, mapping, at, depth));
	return MD_OK;
}

static enum md_status read_node(struct source *source, uint32_t depth, struct md_tree **out);

/* Reads "key: value"; the current event is the key. *merged is set for "<<". */
static enum md_status read_pair(struct source *source, uint32_t depth, struct md_tree **child, bool *merged)
{
	const char *key = NULL;
	uint32_t line = line_of(source);
	struct md_tree *alias;
	if (source->event.type == YAML_ALIAS_EVENT) {
		MD_FORWARD(read_alias(source, depth, &alias));
		key = alias->text;
	} else if (source->event.type == YAML_SCALAR_EVENT) {
		const char *anchor = anchor_of(&source->event);
		MD_FORWARD(keep_text(source, &key));
		if (anchor) {
			alias = make(source, MD_TREE_TEXT);
			if (!alias)
				return made(source);
			alias->text = key;
			MD_FORWARD(keep_anchor(source, md_hash_checksum(anchor, strlen(anchor)), alias));
		}
	}
	if (!key)
		return refuse(source, "a key that is not a single value");
	*merged = !strcmp(key, "<<") && source->event.type == YAML_SCALAR_EVENT &&
		  source->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
	MD_FORWARD(read_event(source));
	MD_FORWARD(read_node(source, depth, child));
	(*child)->key = key;
	(*child)->line = line;
	return MD_OK;
}

static enum md_status read_mapping(struct source *source, uint32_t depth, struct md_tree *mapping)
{
	struct md_tree *child, *from = NULL;
	bool merged = false;
	for (;;) {
		MD_FORWARD(read_event(source));
		if (source->event.type == YAML_MAPPING_END_EVENT)
			break;
		MD_FORWARD(read_pair(source, depth + 1, &child, &merged));
		if (merged && from)
			return md_error_set(source->err, MD_ERR_CORRUPT,
					    "%s:%" PRIu32 ": << is there twice; give it a list", source->name,
					    child->line);
		if (merged)
			from = child;
		else
			md_tree_append(mapping, child);
	}
	MD_FORWARD(check_keys(source, mapping));
	return from ? merge(source, mapping, from, depth) : MD_OK;
}

static enum md_status read_list(struct source *source, uint32_t depth, struct md_tree *list)
{
	struct md_tree *child;
	for (;;) {
		MD_FORWARD(read_event(source));
		if (source->event.type == YAML_SEQUENCE_END_EVENT)
			return MD_OK;
		MD_FORWARD(read_node(source, depth + 1, &child));
		md_tree_append(list, child);
	}
}

static enum md_status read_value(struct source *source, uint32_t depth, struct md_tree **out)
{
	bool mapping = source->event.type == YAML_MAPPING_START_EVENT;
	if (depth > MD_TREE_DEPTH_MAX)
		return refuse(source, "values nested more than 32 deep");
	if (source->event.type == YAML_SCALAR_EVENT)
		return read_scalar(source, out);
	if (!mapping && source->event.type != YAML_SEQUENCE_START_EVENT)
		return refuse(source, "a value is missing");
	*out = make(source, mapping ? MD_TREE_MAPPING : MD_TREE_LIST);
	if (!*out)
		return made(source);
	return mapping ? read_mapping(source, depth, *out) : read_list(source, depth, *out);
}

/* Reads a node from the current event to the event that ends it. */
static enum md_status read_node(struct source *source, uint32_t depth, struct md_tree **out)
{
	const char *anchor = anchor_of(&source->event);
	uint64_t name = anchor ? md_hash_checksum(anchor, strlen(anchor)) : 0;
	bool anchored = anchor != NULL;
	if (source->event.type == YAML_ALIAS_EVENT)
		return read_alias(source, depth, out);
	MD_FORWARD(read_value(source, depth, out));
	return anchored ? keep_anchor(source, name, *out) : MD_OK;
}

/* ---- documents ---- */

static enum md_status read_root(struct source *source, struct md_tree **root)
{
	MD_FORWARD(read_node(source, 0, root));
	if ((*root)->kind == MD_TREE_NULL)
		(*root)->kind = MD_TREE_MAPPING;
	if ((*root)->kind != MD_TREE_MAPPING)
		return md_error_set(source->err, MD_ERR_CORRUPT, "%s:%" PRIu32 ": keys are wanted, \"name: value\"",
				    source->name, (*root)->line);
	do
		MD_FORWARD(read_event(source));
	while (source->event.type == YAML_DOCUMENT_END_EVENT);
	return source->event.type == YAML_STREAM_END_EVENT ? MD_OK : refuse(source, "a second document begins here");
}

static enum md_status read_document(struct source *source, struct md_tree **root)
{
	do
		MD_FORWARD(read_event(source));
	while (source->event.type == YAML_STREAM_START_EVENT);
	if (source->event.type == YAML_STREAM_END_EVENT) {
		*root = make(source, MD_TREE_MAPPING);
		return *root ? MD_OK : made(source);
	}
	MD_FORWARD(read_event(source));
	return read_root(source, root);
}

static enum md_status parse(struct source *source, const char *text, size_t bytes, struct md_tree **root)
{
	MD_AUTO_FREE char *hidden = NULL;
	size_t size;
	enum md_status status;
	if (md_tree_hide_environment(text, bytes, &hidden, &size) != MD_OK || !yaml_parser_initialize(&source->parser))
		return md_tree_memory(source->name, source->err);
	yaml_parser_set_input_string(&source->parser, (const unsigned char *)hidden, size);
	yaml_parser_set_encoding(&source->parser, YAML_UTF8_ENCODING);
	md_map_init(&source->anchors);
	status = read_document(source, root);
	md_map_finish(&source->anchors);
	if (source->held)
		yaml_event_delete(&source->event);
	yaml_parser_delete(&source->parser);
	return status;
}

enum md_status md_tree_parse(struct md_forest *forest, const char *name, const char *text, size_t bytes,
			     struct md_tree **root, struct md_error *err)
{
	struct md_error inner = {0};
	struct source source = {.forest = forest, .name = name, .err = &inner};
	struct md_tree *read = NULL;
	enum md_status status;
	if (bytes > MD_TREE_FILE_MAX)
		return md_error_set(err, MD_ERR_TOO_LARGE, "%s: %zu bytes, over 4 MiB", name, bytes);
	status = parse(&source, text, bytes, &read);
	if (status == MD_OK)
		*root = read;
	else
		md_error_set(err, status, "%s", inner.message);
	return status;
}
