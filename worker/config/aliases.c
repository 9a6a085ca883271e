/* SPDX-License-Identifier: Apache-2.0 */
/* Names by which requests ask for models: IDs, aliases, selectors and models of peers. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "worker/config/parts.h"

#define ALIASES_MAX 1000u

static int compare_names(const void *a, const void *b)
{
	const struct md_config_name *left = a, *right = b;
	int order = strcmp(left->name, right->name);
	if (order)
		return order;
	if (left->rank != right->rank)
		return left->rank < right->rank ? -1 : 1;
	return (left->target.index > right->target.index) - (left->target.index < right->target.index);
}

/* ---- looking up ---- */

static const struct md_config_name *find(const struct md_worker_config *config, const char *name)
{
	const struct md_config_inner *inner = config->inner;
	uint32_t low = 0, high = inner->name_count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		int order = strcmp(inner->names[middle].name, name);
		if (order == 0)
			return &inner->names[middle];
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}

struct md_config_target md_config_find(const struct md_worker_config *config, const char *name)
{
	const struct md_config_name *found = find(config, name);
	return found ? found->target : (struct md_config_target){.index = MD_CONFIG_NONE};
}

const struct md_config_model *md_config_find_model(const struct md_worker_config *config, const char *name)
{
	struct md_config_target target = md_config_find(config, name);
	return target.kind == MD_CONFIG_MODEL ? &config->models[target.index] : NULL;
}

uint32_t md_config_find_id(const struct md_worker_config *config, const char *id)
{
	const struct md_config_name *found = find(config, id);
	return found && found->rank == MD_NAME_ID ? found->target.index : MD_CONFIG_NONE;
}

/* ---- making names known ---- */

/* Takes over names: an array with room for `count` more behind those that are there. */
static struct md_config_name *enlarge(struct md_config_build *build, size_t count)
{
	struct md_config_inner *inner = build->inner;
	struct md_config_name *names = md_config_take(build, inner->name_count + count, sizeof(*names));
	if (names && inner->name_count)
		memcpy(names, inner->names, inner->name_count * sizeof(*names));
	return names;
}

/* Of equal names, the first one stays. */
static void settle(struct md_config_inner *inner, struct md_config_name *names, uint32_t count)
{
	uint32_t kept = 0;
	qsort(names, count, sizeof(*names), compare_names);
	for (uint32_t i = 0; i < count; i++)
		if (kept == 0 || strcmp(names[kept - 1].name, names[i].name))
			names[kept++] = names[i];
	inner->names = names;
	inner->name_count = kept;
}

/* ---- aliases ---- */

static bool has_text(const struct md_config_texts *texts, const char *text)
{
	for (uint32_t i = 0; i < texts->count; i++)
		if (!strcmp(texts->items[i], text))
			return true;
	return false;
}

/* The names of setParamsByID are aliases, too. */
static enum md_status complete_aliases(struct md_config_build *build, const struct md_tree *node,
				       struct md_config_model *model)
{
	const struct md_config_filters *filters = &model->filters;
	uint32_t own = model->aliases.count;
	const char **items = md_config_take(build, own + filters->by_id_count, sizeof(*items));
	if (!items)
		return MD_ERR_NO_MEMORY;
	if (own > ALIASES_MAX || filters->by_id_count > ALIASES_MAX)
		return md_tree_refuse_place(node, build->err, "the model has more than %u aliases", ALIASES_MAX);
	if (own)
		memcpy(items, model->aliases.items, own * sizeof(*items));
	for (uint32_t i = 0; i < filters->by_id_count; i++) {
		const char *name = filters->by_id[i].name;
		if (!strcmp(name, model->id) || has_text(&model->aliases, name))
			continue;
		if (md_config_find_id(build->config, name) != MD_CONFIG_NONE)
			return md_tree_refuse_place(
			    node, build->err, "filters.setParamsByID has \"%.60s\", which is another model's ID", name);
		items[own++] = name;
	}
	model->aliases = (struct md_config_texts){items, own};
	return MD_OK;
}

static enum md_status name_ids(struct md_config_build *build)
{
	const struct md_worker_config *config = build->config;
	struct md_config_name *names = enlarge(build, config->model_count);
	if (!names)
		return MD_ERR_NO_MEMORY;
	for (uint32_t i = 0; i < config->model_count; i++)
		names[i] = (struct md_config_name){config->models[i].id, {MD_CONFIG_MODEL, i, NULL}, MD_NAME_ID};
	settle(build->inner, names, config->model_count);
	return MD_OK;
}

/* Where an alias stands, or the model if a parameter's name is the alias. */
static const struct md_tree *place_of(const struct md_config_sections *sections, const struct md_config_name *name)
{
	const struct md_tree *model = sections->model_nodes[name->target.index];
	const struct md_tree *list = md_tree_find(model, "aliases"), *found = NULL;
	for (const struct md_tree *at = list ? list->first : NULL; at; at = at->next)
		if (at->text && !strcmp(at->text, name->name))
			found = at;
	return found ? found : model;
}

static bool is_adapter(const struct md_config_build *build, const struct md_config_name *name)
{
	return build->config->models[name->target.index].base != MD_CONFIG_NONE;
}

static enum md_status check_aliases(struct md_config_build *build, const struct md_config_sections *sections,
				    const struct md_config_name *names, uint32_t count)
{
	for (uint32_t i = 1; i < count; i++) {
		if (names[i].rank != MD_NAME_ALIAS || strcmp(names[i - 1].name, names[i].name))
			continue;
		const char *other = build->config->models[names[i - 1].target.index].id;
		const struct md_tree *at = place_of(sections, &names[i]);
		if (names[i - 1].rank == MD_NAME_ALIAS)
			return md_tree_refuse(at, build->err, "\"%.60s\" is an alias of %.60s already", names[i].name,
					      other);
		if (is_adapter(build, &names[i]) || is_adapter(build, &names[i - 1]))
			return md_tree_refuse(at, build->err, "\"%.60s\" is the ID of %s already", names[i].name,
					      is_adapter(build, &names[i - 1]) ? "an adapter" : "a model");
		MD_FORWARD(md_config_note(build, at, "the alias is a model's ID, too, and means that model"));
	}
	return MD_OK;
}

enum md_status md_config_name_models(struct md_config_build *build, const struct md_config_sections *sections)
{
	struct md_config_model *models = (struct md_config_model *)build->config->models;
	struct md_config_name *names;
	size_t more = 0;
	uint32_t count;
	MD_FORWARD(name_ids(build));
	for (uint32_t i = 0; i < build->config->model_count; i++) {
		MD_FORWARD(complete_aliases(build, sections->model_nodes[i], &models[i]));
		more += models[i].aliases.count;
	}
	names = enlarge(build, more);
	if (!names)
		return MD_ERR_NO_MEMORY;
	count = build->inner->name_count;
	for (uint32_t i = 0; i < build->config->model_count; i++)
		for (uint32_t j = 0; j < models[i].aliases.count; j++) {
			const char *alias = models[i].aliases.items[j];
			if (!*alias)
				return md_tree_refuse_place(sections->model_nodes[i], build->err, "an alias is empty");
			if (strlen(alias) > MD_CONFIG_NAME_MAX)
				return md_tree_refuse_place(sections->model_nodes[i], build->err,
							    "an alias has at most %u bytes, and \"%.60s...\" has %zu",
							    MD_CONFIG_NAME_MAX, alias, strlen(alias));
			names[count++] = (struct md_config_name){alias, {MD_CONFIG_MODEL, i, NULL}, MD_NAME_ALIAS};
		}
	qsort(names, count, sizeof(*names), compare_names);
	MD_FORWARD(check_aliases(build, sections, names, count));
	settle(build->inner, names, count);
	return MD_OK;
}

/* ---- peers and selectors ---- */

static enum md_status check_free(struct md_config_build *build, const struct md_config_name *name)
{
	const struct md_config_name *found = find(build->config, name->name);
	if (!found)
		return MD_OK;
	return md_error_set(build->err, MD_ERR_CORRUPT, "peers.%.60s: \"%.100s\" is the name of a model here, too",
			    build->config->peers[name->target.index].id, name->name);
}

/* A model's own name is enough if one peer alone has it. */
static void drop_ambiguous(struct md_config_name *names, uint32_t *count)
{
	uint32_t kept = 0, end;
	qsort(names, *count, sizeof(*names), compare_names);
	for (uint32_t i = 0; i < *count; i = end) {
		for (end = i + 1; end < *count && !strcmp(names[i].name, names[end].name); end++)
			;
		if (end == i + 1)
			names[kept++] = names[i];
	}
	*count = kept;
}

static enum md_status name_peer(struct md_config_build *build, uint32_t index, struct md_config_name *full,
				struct md_config_name *bare)
{
	const struct md_config_peer *peer = &build->config->peers[index];
	size_t prefix = strlen(peer->id);
	for (uint32_t i = 0; i < peer->models.count; i++) {
		const char *model = peer->models.items[i];
		size_t bytes = prefix + 1 + strlen(model);
		char *name = md_config_take(build, bytes + 1, 1);
		if (!name)
			return MD_ERR_NO_MEMORY;
		memcpy(name, peer->id, prefix);
		name[prefix] = '/';
		memcpy(name + prefix + 1, model, bytes - prefix);
		full[i] = (struct md_config_name){name, {MD_CONFIG_PEER, index, model}, MD_NAME_PEER};
		bare[i] = (struct md_config_name){model, {MD_CONFIG_PEER, index, model}, MD_NAME_BARE};
		MD_FORWARD(check_free(build, &full[i]));
	}
	return MD_OK;
}

enum md_status md_config_name_peers(struct md_config_build *build)
{
	const struct md_worker_config *config = build->config;
	struct md_config_inner *inner = build->inner;
	struct md_config_name *names, *bare;
	uint32_t more = 0, done = 0;
	for (uint32_t i = 0; i < config->peer_count; i++)
		more += config->peers[i].models.count;
	names = enlarge(build, 2 * (size_t)more);
	bare = md_config_take(build, more, sizeof(*bare));
	if (!names || !bare)
		return MD_ERR_NO_MEMORY;
	for (uint32_t i = 0; i < config->peer_count; i++) {
		MD_FORWARD(name_peer(build, i, names + inner->name_count + done, bare + done));
		done += config->peers[i].models.count;
	}
	drop_ambiguous(bare, &more);
	if (more)
		memcpy(names + inner->name_count + done, bare, more * sizeof(*bare));
	settle(inner, names, inner->name_count + done + more);
	return MD_OK;
}

enum md_status md_config_name_selectors(struct md_config_build *build)
{
	const struct md_worker_config *config = build->config;
	struct md_config_name *names = enlarge(build, config->selector_count);
	uint32_t count = build->inner->name_count;
	if (!names)
		return MD_ERR_NO_MEMORY;
	for (uint32_t i = 0; i < config->selector_count; i++)
		names[count++] =
		    (struct md_config_name){config->selectors[i].id, {MD_CONFIG_SELECTOR, i, NULL}, MD_NAME_SELECTOR};
	settle(build->inner, names, count);
	return MD_OK;
}
