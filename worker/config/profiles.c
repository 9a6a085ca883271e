/* SPDX-License-Identifier: Apache-2.0 */
/* profiles: sets of pins, of which one can be chosen while the daemon runs; a pin makes a name mean another one. */
#include <stdlib.h>
#include <string.h>

#include "worker/config/parts.h"

#define PROFILES_MAX 1000u
#define PINS_MAX 10000u

struct profile_source {
	const char *description;
	struct md_tree *pins;
};

static const struct md_config_key profile_keys[] = {
    MD_KEY("description", MD_KEY_TEXT, offsetof(struct profile_source, description), NULL),
    MD_KEY("pins", MD_KEY_NODE, offsetof(struct profile_source, pins), NULL),
};
const struct md_config_keys md_config_profile_keys = MD_KEYS("profiles.*.", profile_keys);

const struct md_config_profile *md_config_find_profile(const struct md_worker_config *config, const char *id)
{
	for (uint32_t i = 0; i < config->profile_count; i++)
		if (!strcmp(config->profiles[i].id, id))
			return &config->profiles[i];
	return NULL;
}

/* Pins are sorted by their names. */
const struct md_config_pin *md_config_find_pin(const struct md_config_profile *profile, const char *name)
{
	uint32_t low = 0, high = profile->pin_count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		int order = strcmp(profile->pins[middle].name, name);
		if (order == 0)
			return &profile->pins[middle];
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}

static int compare_pins(const void *a, const void *b)
{
	const struct md_config_pin *left = a, *right = b;
	return strcmp(left->name, right->name);
}

static enum md_status read_pin(struct md_config_build *build, const struct md_tree *at, struct md_config_pin *pin)
{
	struct md_config_target own = md_config_find(build->config, at->key);
	const char *target;
	MD_FORWARD(md_keys_text(build, at, &target));
	if (!*at->key)
		return md_tree_refuse_place(at, build->err, "the pin has no name");
	if (own.kind == MD_CONFIG_PEER && strcmp(own.name, at->key))
		return md_tree_refuse_place(at, build->err,
					    "this is the full name of a peer's model, which stays what it is");
	*pin = (struct md_config_pin){at->key, *target ? target : NULL};
	if (*target && md_config_find(build->config, target).kind == MD_CONFIG_NOTHING)
		return md_tree_refuse(at, build->err, "there is no model and no selector of this name");
	return MD_OK;
}

static enum md_status check_chains(struct md_config_build *build, const struct md_tree *pins,
				   const struct md_config_profile *profile)
{
	for (const struct md_tree *at = pins->first; at; at = at->next) {
		const char *target = at->kind == MD_TREE_NULL ? "" : at->text;
		if (*target && md_config_find_pin(profile, target))
			return md_tree_refuse(at, build->err,
					      "this name is pinned, too; give the name that it is to mean");
	}
	return MD_OK;
}

static enum md_status read_profile(struct md_config_build *build, struct md_tree *node,
				   struct md_config_profile *profile)
{
	struct profile_source source = {0};
	struct md_config_pin *pins;
	if (!*node->key)
		return md_tree_refuse_place(node, build->err, "the profile has no name");
	if (node->kind == MD_TREE_LIST)
		return md_tree_refuse(node, build->err,
				      "that was the form of older versions; pins are wanted, \"pins: {name: model}\"");
	MD_FORWARD(md_keys_read(build, &md_config_profile_keys, node, &source));
	MD_FORWARD(md_keys_mapping(build, source.pins));
	if (!source.pins || !source.pins->count)
		return md_tree_refuse_place(node, build->err, "pins has at least one name");
	if (source.pins->count > PINS_MAX)
		return md_tree_refuse_place(source.pins, build->err, "there are more than %u", PINS_MAX);
	pins = md_config_take(build, source.pins->count, sizeof(*pins));
	if (!pins)
		return MD_ERR_NO_MEMORY;
	*profile = (struct md_config_profile){.id = node->key, .description = source.description, .pins = pins};
	for (const struct md_tree *at = source.pins->first; at; at = at->next)
		MD_FORWARD(read_pin(build, at, &pins[profile->pin_count++]));
	qsort(pins, profile->pin_count, sizeof(*pins), compare_pins);
	return check_chains(build, source.pins, profile);
}

enum md_status md_config_read_profiles(struct md_config_build *build, struct md_config_sections *sections)
{
	struct md_tree *mapping = sections->profiles;
	struct md_config_profile *profiles;
	MD_FORWARD(md_keys_mapping(build, mapping));
	if (!mapping)
		return MD_OK;
	if (mapping->count > PROFILES_MAX)
		return md_tree_refuse_place(mapping, build->err, "there are more than %u", PROFILES_MAX);
	profiles = md_config_take(build, mapping->count, sizeof(*profiles));
	if (!profiles)
		return MD_ERR_NO_MEMORY;
	build->config->profiles = profiles;
	for (struct md_tree *at = mapping->first; at; at = at->next) {
		MD_FORWARD(read_profile(build, at, &profiles[build->config->profile_count]));
		build->config->profile_count++;
	}
	return MD_OK;
}
