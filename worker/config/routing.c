/* SPDX-License-Identifier: Apache-2.0 */
/* groups, routing and hooks: which models run together, in which order requests are served, what is loaded first. */
#include <stdlib.h>
#include <string.h>

#include "worker/config/parts.h"

#define GROUPS_MAX 10000u

struct router {
	const char *use;
	struct md_tree *settings, *groups, *matrix;
};

struct fifo {
	const char *use;
	struct md_tree *settings, *fifo, *priority;
};

static const struct md_config_key routing_keys[] = {
    MD_KEY("router", MD_KEY_NODE, 0, NULL),
    MD_KEY("scheduler", MD_KEY_NODE, sizeof(void *), NULL),
};
const struct md_config_keys md_config_routing_keys = MD_KEYS("routing.", routing_keys);

static const struct md_config_key router_keys[] = {
    MD_KEY("use", MD_KEY_TEXT, offsetof(struct router, use), NULL),
    MD_KEY("settings", MD_KEY_NODE, offsetof(struct router, settings), NULL),
};
const struct md_config_keys md_config_router_keys = MD_KEYS("routing.router.", router_keys);

static const struct md_config_key router_setting_keys[] = {
    MD_KEY("groups", MD_KEY_NODE, offsetof(struct router, groups), NULL),
    MD_KEY("matrix", MD_KEY_NODE, offsetof(struct router, matrix), NULL),
};
const struct md_config_keys md_config_router_setting_keys = MD_KEYS("routing.router.settings.", router_setting_keys);

static const struct md_config_key scheduler_keys[] = {
    MD_KEY("use", MD_KEY_TEXT, offsetof(struct fifo, use), "fifo"),
    MD_KEY("settings", MD_KEY_NODE, offsetof(struct fifo, settings), NULL),
};
const struct md_config_keys md_config_scheduler_keys = MD_KEYS("routing.scheduler.", scheduler_keys);

static const struct md_config_key scheduler_setting_keys[] = {
    MD_KEY("fifo", MD_KEY_NODE, offsetof(struct fifo, fifo), NULL),
};
const struct md_config_keys md_config_scheduler_setting_keys =
    MD_KEYS("routing.scheduler.settings.", scheduler_setting_keys);

static const struct md_config_key fifo_keys[] = {
    MD_KEY("priority", MD_KEY_NODE, offsetof(struct fifo, priority), NULL),
};
const struct md_config_keys md_config_fifo_keys = MD_KEYS("routing.scheduler.settings.fifo.", fifo_keys);

struct group_source {
	struct md_config_group group;
	struct md_tree *members;
};

static const struct md_config_key group_keys[] = {
    MD_KEY("swap", MD_KEY_FLAG, offsetof(struct group_source, group.swap), "true"),
    MD_KEY("exclusive", MD_KEY_FLAG, offsetof(struct group_source, group.exclusive), "true"),
    MD_KEY("persistent", MD_KEY_FLAG, offsetof(struct group_source, group.persistent), "false"),
    MD_KEY("members", MD_KEY_NODE, offsetof(struct group_source, members), NULL),
};
const struct md_config_keys md_config_group_keys = MD_KEYS("groups.*.", group_keys);

static const struct md_config_key hook_keys[] = {MD_KEY("on_startup", MD_KEY_NODE, 0, NULL)};
const struct md_config_keys md_config_hook_keys = MD_KEYS("hooks.", hook_keys);
static const struct md_config_key startup_keys[] = {MD_KEY("preload", MD_KEY_TEXTS, 0, NULL)};
const struct md_config_keys md_config_startup_keys = MD_KEYS("hooks.on_startup.", startup_keys);

static struct md_config_model *models_of(struct md_config_build *build)
{
	return (struct md_config_model *)build->config->models;
}

/* ---- groups ---- */

static int compare_indexes(const void *a, const void *b)
{
	const uint32_t *left = a, *right = b;
	return (*left > *right) - (*left < *right);
}

static enum md_status read_members(struct md_config_build *build, const struct md_tree *list,
				   const struct md_config_group *groups, uint32_t index,
				   struct md_config_members *members)
{
	uint32_t *items = md_config_take(build, list->count, sizeof(*items));
	if (!items)
		return MD_ERR_NO_MEMORY;
	for (const struct md_tree *at = list->first; at; at = at->next) {
		const char *id;
		MD_FORWARD(md_keys_text(build, at, &id));
		uint32_t model = md_config_find_id(build->config, id);
		if (model == MD_CONFIG_NONE)
			return md_tree_refuse(at, build->err, "there is no model with this ID");
		MD_FORWARD(md_config_want_engine(build, at, model));
		struct md_config_model *member = &models_of(build)[model];
		if (member->group != MD_CONFIG_NONE)
			return md_tree_refuse(at, build->err, "the model is in the group %.60s already",
					      groups[member->group].name);
		member->group = index;
		items[members->count++] = model;
	}
	qsort(items, members->count, sizeof(*items), compare_indexes);
	members->items = items;
	return MD_OK;
}

static enum md_status read_group(struct md_config_build *build, struct md_tree *node, struct md_config_group *groups,
				 uint32_t index)
{
	struct group_source source = {.group.name = node->key};
	MD_FORWARD(md_keys_read(build, &md_config_group_keys, node, &source));
	groups[index] = source.group;
	if (!source.members)
		return md_config_note(build, node, "the group has no members");
	if (source.members->kind != MD_TREE_LIST)
		return md_tree_refuse(source.members, build->err, "a list of models is wanted");
	return read_members(build, source.members, groups, index, &groups[index].members);
}

/* All models that are in no other group. */
static enum md_status add_default_group(struct md_config_build *build, struct md_config_group *groups, uint32_t *count)
{
	struct md_config_group *group = &groups[*count];
	uint32_t *items = md_config_take(build, build->config->model_count, sizeof(*items));
	if (!items)
		return MD_ERR_NO_MEMORY;
	*group = (struct md_config_group){.name = MD_CONFIG_DEFAULT_GROUP, .swap = true, .exclusive = true};
	for (uint32_t i = 0; i < build->config->model_count; i++) {
		if (models_of(build)[i].group != MD_CONFIG_NONE || models_of(build)[i].base != MD_CONFIG_NONE)
			continue;
		models_of(build)[i].group = *count;
		items[group->members.count++] = i;
	}
	group->members.items = items;
	*count += group->members.count != 0;
	for (uint32_t i = 0; i < build->config->model_count; i++)
		models_of(build)[i].group = models_of(build)[md_config_engine_of(build->config, i)].group;
	return MD_OK;
}

static enum md_status read_groups(struct md_config_build *build, struct md_tree *mapping)
{
	uint32_t most = mapping ? mapping->count : 0;
	struct md_config_group *groups;
	MD_FORWARD(md_keys_mapping(build, mapping));
	if (most > GROUPS_MAX)
		return md_tree_refuse_place(mapping, build->err, "there are more than %u groups", GROUPS_MAX);
	groups = md_config_take(build, most + 1u, sizeof(*groups));
	if (!groups)
		return MD_ERR_NO_MEMORY;
	for (struct md_tree *at = mapping ? mapping->first : NULL; at; at = at->next) {
		if (!strcmp(at->key, MD_CONFIG_DEFAULT_GROUP))
			MD_FORWARD(md_config_note(build, at,
						  "(default) is the group of all models that are in no other; "
						  "this one has no effect"));
		else
			MD_FORWARD(read_group(build, at, groups, build->config->group_count++));
	}
	build->config->groups = groups;
	return add_default_group(build, groups, &build->config->group_count);
}

/* ---- routing ---- */

static enum md_status read_router(struct md_config_build *build, struct md_tree *node, struct router *router)
{
	MD_FORWARD(md_keys_read(build, &md_config_router_keys, node, router));
	MD_FORWARD(md_keys_read(build, &md_config_router_setting_keys, router->settings, router));
	if (*router->use && strcmp(router->use, "group") && strcmp(router->use, "matrix"))
		return md_tree_refuse(md_tree_find(node, "use"), build->err, "group or matrix is wanted");
	if (!strcmp(router->use, "matrix") && !router->matrix)
		return md_tree_refuse_place(node, build->err, "use is matrix, and settings.matrix is not there");
	return MD_OK;
}

static enum md_status read_priority(struct md_config_build *build, const struct md_tree *at)
{
	struct md_config_target target = md_config_find(build->config, at->key);
	struct md_config_model *model;
	if (target.kind != MD_CONFIG_MODEL)
		return md_tree_refuse_place(at, build->err, "there is no model of this name");
	if (at->kind != MD_TREE_INTEGER || at->integer < -1000000 || at->integer > 1000000)
		return md_tree_refuse(at, build->err, "a whole number from -1000000 to 1000000 is wanted");
	model = &models_of(build)[target.index];
	if (strcmp(model->id, at->key))
		MD_FORWARD(md_config_note(
		    build, at, "the name is an alias of %.60s, and counts for it; llama-swap ignores it", model->id));
	if (model->own.priority)
		return md_config_note(build, at, "models.%.60s.medusa.priority is given, and counts instead",
				      model->id);
	model->own.priority = at->integer;
	return MD_OK;
}

static enum md_status read_scheduler(struct md_config_build *build, struct md_tree *node)
{
	struct fifo fifo = {0};
	MD_FORWARD(md_keys_read(build, &md_config_scheduler_keys, node, &fifo));
	if (strcmp(fifo.use, "fifo"))
		return md_tree_refuse(md_tree_find(node, "use"), build->err,
				      "fifo is wanted; our own policies are chosen by medusa.policies");
	MD_FORWARD(md_keys_read(build, &md_config_scheduler_setting_keys, fifo.settings, &fifo));
	MD_FORWARD(md_keys_read(build, &md_config_fifo_keys, fifo.fifo, &fifo));
	MD_FORWARD(md_keys_mapping(build, fifo.priority));
	for (const struct md_tree *at = fifo.priority ? fifo.priority->first : NULL; at; at = at->next)
		MD_FORWARD(read_priority(build, at));
	return MD_OK;
}

/* The keys at the top are older than routing.router, and stay; one way or the other. */
static enum md_status choose_router(struct md_config_build *build, const struct md_config_sections *sections,
				    const struct md_tree *node, struct router *router)
{
	bool groups = sections->groups && sections->groups->count, older = groups || sections->matrix;
	if (groups && sections->matrix)
		return md_tree_refuse_place(sections->matrix, build->err, "groups are given as well; one of them");
	if (older && (router->matrix || (router->groups && router->groups->count) || *router->use))
		return md_tree_refuse_place(node, build->err,
					    "groups or matrix at the top are given as well; one of them");
	if (older) {
		router->groups = sections->groups;
		router->matrix = sections->matrix;
	} else if (!strcmp(router->use, "matrix")) {
		if (router->groups)
			MD_FORWARD(md_config_note(build, router->groups,
						  "routing.router.use is matrix, so groups have no effect"));
	} else {
		if (router->matrix)
			MD_FORWARD(md_config_note(build, router->matrix,
						  "routing.router.use is not matrix, so it has no effect"));
		router->matrix = NULL;
	}
	return MD_OK;
}

enum md_status md_config_read_routing(struct md_config_build *build, struct md_config_sections *sections)
{
	struct md_tree *nodes[2] = {NULL, NULL};
	struct router router = {.use = ""};
	MD_FORWARD(md_keys_read(build, &md_config_routing_keys, sections->routing, nodes));
	MD_FORWARD(read_router(build, nodes[0], &router));
	MD_FORWARD(read_scheduler(build, nodes[1]));
	MD_FORWARD(choose_router(build, sections, nodes[0], &router));
	return router.matrix ? md_config_read_matrix(build, router.matrix) : read_groups(build, router.groups);
}

/* ---- hooks ---- */

/* Spaces around a name do not count. */
static enum md_status find_trimmed(struct md_config_build *build, const char *text, uint32_t *model)
{
	size_t length = strlen(text += strspn(text, " \t\r\n"));
	const char *name;
	struct md_config_target target;
	while (length && strchr(" \t\r\n", text[length - 1]))
		length--;
	name = md_arena_copy(&build->forest->arena, text, length);
	if (!name)
		return md_error_set(build->err, MD_ERR_NO_MEMORY, "out of memory for the models of hooks");
	target = md_config_find(build->config, name);
	*model = target.kind == MD_CONFIG_MODEL ? target.index : MD_CONFIG_NONE;
	return MD_OK;
}

enum md_status md_config_read_hooks(struct md_config_build *build, struct md_config_sections *sections)
{
	struct md_tree *startup = NULL;
	struct md_config_texts names = {0};
	struct md_config_members *preload = &build->config->preload;
	MD_FORWARD(md_keys_read(build, &md_config_hook_keys, sections->hooks, &startup));
	MD_FORWARD(md_keys_read(build, &md_config_startup_keys, startup, &names));
	uint32_t *items = md_config_take(build, names.count, sizeof(*items));
	if (!items)
		return MD_ERR_NO_MEMORY;
	const struct md_tree *at = names.count ? md_tree_find(startup, "preload")->first : NULL;
	for (uint32_t i = 0; i < names.count; i++, at = at->next) {
		uint32_t model = MD_CONFIG_NONE;
		MD_FORWARD(find_trimmed(build, names.items[i], &model));
		if (model == MD_CONFIG_NONE)
			MD_FORWARD(
			    md_config_note(build, at, "there is no such model here, so it is not loaded at the start"));
		else
			items[preload->count++] = model;
	}
	preload->items = items;
	return MD_OK;
}
