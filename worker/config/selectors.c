/* SPDX-License-Identifier: Apache-2.0 */
/* selectors: names that stand for one of several models, chosen for each request. */
#include <string.h>

#include "worker/config/parts.h"

#define SELECTORS_MAX 10000u
#define TARGETS_MAX 1000u

struct selector_source {
	struct md_config_selector selector;
	const char *strategy;
	struct md_tree *targets, *settings;
};

#define SOURCE(member) offsetof(struct selector_source, member)
#define SELECTOR(member) offsetof(struct selector_source, selector.member)

static const struct md_config_key selector_keys[] = {
    MD_KEY("strategy", MD_KEY_TEXT, SOURCE(strategy), NULL),
    MD_KEY("targets", MD_KEY_NODE, SOURCE(targets), NULL),
    MD_KEY("settings", MD_KEY_NODE, SOURCE(settings), NULL),
    MD_KEY("name", MD_KEY_TEXT, SELECTOR(name), NULL),
    MD_KEY("description", MD_KEY_TEXT, SELECTOR(description), NULL),
    MD_KEY("unlisted", MD_KEY_FLAG, SELECTOR(unlisted), "false"),
    MD_KEY("metadata", MD_KEY_JSON, SELECTOR(metadata), NULL),
};
const struct md_config_keys md_config_selector_keys = MD_KEYS("selectors.*.", selector_keys);

static const struct md_config_key spillover_keys[] = {
    MD_KEY("spillover", MD_KEY_COUNT, 0, "1", .low = 1, .wanted = "at least 1 is wanted (requests)"),
};
const struct md_config_keys md_config_spillover_keys = MD_KEYS("selectors.*.settings.", spillover_keys);

static enum md_status read_strategy(struct md_config_build *build, const struct md_tree *node, const char *text,
				    enum md_config_strategy *strategy)
{
	static const char *const words[] = {"warm", "pin", "spillover"};
	const struct md_tree *at = md_tree_find(node, "strategy");
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (!strcmp(words[i], text)) {
			*strategy = (enum md_config_strategy)i;
			return MD_OK;
		}
	if (!at || !*text)
		return md_tree_refuse_place(node, build->err, "strategy is missing: warm, pin or spillover");
	return md_tree_refuse(at, build->err, "warm, pin or spillover is wanted");
}

static enum md_status read_target(struct md_config_build *build, const struct md_tree *at, const struct md_tree *all,
				  enum md_config_strategy strategy, struct md_config_target *target)
{
	const char *name;
	MD_FORWARD(md_keys_text(build, at, &name));
	*target = md_config_find(build->config, name);
	if (target->kind == MD_CONFIG_MODEL)
		target->name = name;
	if (md_tree_find(all, name))
		return md_tree_refuse(at, build->err, "this is a selector; models are wanted");
	if (target->kind == MD_CONFIG_NOTHING)
		return md_tree_refuse(at, build->err, "there is no model of this name");
	if (strategy == MD_CONFIG_WARM && target->kind != MD_CONFIG_MODEL)
		return md_tree_refuse(at, build->err,
				      "warm takes models of this node only: whether others are loaded is not known");
	return MD_OK;
}

/* Local targets of spillover must be able to run at once, or one would evict the other. */
static enum md_status check_together(struct md_config_build *build, const struct md_tree *list,
				     const struct md_config_selector *selector)
{
	uint32_t *local = md_config_take(build, selector->target_count, sizeof(*local)), count = 0;
	if (!local)
		return MD_ERR_NO_MEMORY;
	for (uint32_t i = 0; i < selector->target_count; i++) {
		if (selector->targets[i].kind != MD_CONFIG_MODEL)
			continue;
		for (uint32_t j = 0; j < count; j++)
			if (local[j] == selector->targets[i].index)
				return md_tree_refuse_place(list, build->err, "%.60s is there twice",
							    build->config->models[local[j]].id);
		local[count++] = selector->targets[i].index;
	}
	if (md_config_together(build->config, local, count))
		return MD_OK;
	return md_tree_refuse_place(
	    list, build->err,
	    "the models cannot run at once: put them into one group with swap: false, or into one "
	    "set of the matrix");
}

static enum md_status read_targets(struct md_config_build *build, const struct md_tree *node,
				   const struct selector_source *source, const struct md_tree *all,
				   struct md_config_selector *selector)
{
	const struct md_tree *list = source->targets;
	struct md_config_target *targets;
	if (!list || list->kind != MD_TREE_LIST || !list->count)
		return md_tree_refuse_place(list ? list : node, build->err, "targets has at least one model");
	if (list->count > TARGETS_MAX)
		return md_tree_refuse_place(list, build->err, "there are more than %u", TARGETS_MAX);
	targets = md_config_take(build, list->count, sizeof(*targets));
	if (!targets)
		return MD_ERR_NO_MEMORY;
	selector->targets = targets;
	for (const struct md_tree *at = list->first; at; at = at->next)
		MD_FORWARD(read_target(build, at, all, selector->strategy, &targets[selector->target_count++]));
	return selector->strategy == MD_CONFIG_SPILLOVER ? check_together(build, list, selector) : MD_OK;
}

static enum md_status read_selector(struct md_config_build *build, struct md_tree *node, const struct md_tree *all,
				    struct md_config_selector *out)
{
	struct selector_source source = {.selector.id = node->key};
	struct md_config_target same = md_config_find(build->config, node->key);
	if (!*node->key)
		return md_tree_refuse_place(node, build->err, "the selector has no name");
	/* a peer's model has its full name as well */
	if (same.kind == MD_CONFIG_MODEL || (same.kind == MD_CONFIG_PEER && strcmp(same.name, node->key)))
		return md_tree_refuse_place(node, build->err, "a model has this name, too");
	MD_FORWARD(md_keys_read(build, &md_config_selector_keys, node, &source));
	MD_FORWARD(md_keys_read(build, &md_config_spillover_keys, source.settings, &source.selector.spillover));
	MD_FORWARD(read_strategy(build, node, source.strategy, &source.selector.strategy));
	MD_FORWARD(read_targets(build, node, &source, all, &source.selector));
	*out = source.selector;
	return MD_OK;
}

enum md_status md_config_read_selectors(struct md_config_build *build, struct md_config_sections *sections)
{
	struct md_tree *mapping = sections->selectors;
	struct md_config_selector *selectors;
	MD_FORWARD(md_keys_mapping(build, mapping));
	if (!mapping)
		return MD_OK;
	if (mapping->count > SELECTORS_MAX)
		return md_tree_refuse_place(mapping, build->err, "there are more than %u", SELECTORS_MAX);
	selectors = md_config_take(build, mapping->count, sizeof(*selectors));
	if (!selectors)
		return MD_ERR_NO_MEMORY;
	build->config->selectors = selectors;
	for (struct md_tree *at = mapping->first; at; at = at->next) {
		MD_FORWARD(read_selector(build, at, mapping, &selectors[build->config->selector_count]));
		build->config->selector_count++;
	}
	return MD_OK;
}
