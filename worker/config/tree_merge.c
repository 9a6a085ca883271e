/* SPDX-License-Identifier: Apache-2.0 */
/* Unites the trees of several files (-config-dir). */
#include <inttypes.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/map.h"
#include "worker/config/tree.h"

/* Mappings whose entries are whole things: two files that describe the same one would each be read as half of it. */
static const char *const wholes[] = {
    "models",
    "groups",
    "profiles",
    "selectors",
    "peers",
    "matrix",
    "matrix.vars",
    "matrix.evict_costs",
    "matrix.sets",
    "routing.router.settings.groups",
    "routing.router.settings.matrix",
    "routing.router.settings.matrix.vars",
    "routing.router.settings.matrix.evict_costs",
    "routing.router.settings.matrix.sets",
};

static bool is_whole(const struct md_tree *mapping)
{
	char path[MD_TREE_PATH_MAX];
	md_tree_path(mapping, path);
	for (size_t i = 0; i < sizeof(wholes) / sizeof(wholes[0]); i++)
		if (!strcmp(path, wholes[i]))
			return true;
	return false;
}

static bool scalars_equal(const struct md_tree *a, const struct md_tree *b)
{
	return a->kind == b->kind && (a->kind == MD_TREE_NULL || !strcmp(a->text, b->text));
}

static enum md_status refuse(const struct md_tree *there, const struct md_tree *again, struct md_error *err,
			     const char *what)
{
	return md_tree_refuse_place(again, err, "%s:%" PRIu32 " has it already, %s", there->file, there->line, what);
}

static enum md_status merge_value(struct md_forest *forest, struct md_tree *there, struct md_tree *again,
				  struct md_error *err)
{
	struct md_tree *next;
	if (there->kind == MD_TREE_NULL && again->kind != MD_TREE_NULL)
		return refuse(there, again, err, "with nothing in it");
	if (there->kind != again->kind)
		return refuse(there, again, err, "and it is of another kind there");
	if (there->kind == MD_TREE_MAPPING)
		return md_tree_merge(forest, there, again, err);
	if (there->kind != MD_TREE_LIST)
		return scalars_equal(there, again) ? MD_OK : refuse(there, again, err, "with another value");
	for (struct md_tree *at = again->first; at; at = next) {
		next = at->next;
		md_tree_append(there, at);
	}
	return MD_OK;
}

static enum md_status index_children(const struct md_tree *mapping, struct md_map *index, struct md_error *err)
{
	for (struct md_tree *at = mapping->first; at; at = at->next)
		if (!md_map_put(index, md_hash_checksum(at->key, strlen(at->key)), (uint64_t)(uintptr_t)at))
			return md_tree_memory(at->file, err);
	return MD_OK;
}

static enum md_status merge_children(struct md_forest *forest, struct md_tree *into, struct md_tree *from, bool whole,
				     const struct md_map *index, struct md_error *err)
{
	struct md_tree *next;
	uint64_t found;
	for (struct md_tree *at = from->first; at; at = next) {
		next = at->next;
		if (!md_map_get(index, md_hash_checksum(at->key, strlen(at->key)), &found)) {
			md_tree_append(into, at);
			continue;
		}
		struct md_tree *there = (struct md_tree *)(uintptr_t)found;
		if (whole && (there->kind != MD_TREE_MAPPING || !is_whole(there)))
			return refuse(there, at, err, "and it may be there once");
		MD_FORWARD(merge_value(forest, there, at, err));
	}
	return MD_OK;
}

enum md_status md_tree_merge(struct md_forest *forest, struct md_tree *into, struct md_tree *from, struct md_error *err)
{
	struct md_map index;
	enum md_status status;
	md_map_init(&index);
	status = index_children(into, &index, err);
	if (status == MD_OK)
		status = merge_children(forest, into, from, into->parent && is_whole(into), &index, err);
	md_map_finish(&index);
	return status;
}
