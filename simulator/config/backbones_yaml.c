/* SPDX-License-Identifier: Apache-2.0 */
/* functions.yaml: backbones, one by one or as groups of equal ones, and which function lies on which. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "simulator/config/functions_yaml.h"

#define GOLDEN_PART 0.61803398874989484820 /* its multiples spread evenly over 0..1 */

struct entry {
	char *name;
	struct medusa_sched_backbone spec;
	uint32_t count;
};

static const struct md_sim_field backbone_fields[] = {
    MD_SIM_FIELD("name", MD_SIM_TEXT, offsetof(struct entry, name), .required = true),
    MD_SIM_FIELD("weights", MD_SIM_BYTES, offsetof(struct entry, spec.bytes), .required = true, .low = 1,
		 .high = MD_SIM_BYTES_MOST),
    MD_SIM_FIELD("cold_time", MD_SIM_TIME, offsetof(struct entry, spec.cold_ns), .high = MD_SIM_TIME_MOST),
    MD_SIM_FIELD("load_time", MD_SIM_TIME, offsetof(struct entry, spec.load_ns), .high = MD_SIM_TIME_MOST),
    MD_SIM_FIELD("evict_time", MD_SIM_TIME, offsetof(struct entry, spec.evict_ns), .high = MD_SIM_TIME_MOST),
    MD_SIM_FIELD("keep_alive", MD_SIM_TIME, offsetof(struct entry, spec.keep_alive_ns), .high = MD_SIM_TIME_MOST),
    MD_SIM_FIELD("max_replicas", MD_SIM_COUNT, offsetof(struct entry, spec.max_replicas), .high = UINT32_MAX),
    MD_SIM_FIELD("adapter_slots", MD_SIM_COUNT, offsetof(struct entry, spec.adapter_slots), .high = UINT32_MAX),
    MD_SIM_FIELD("max_batch", MD_SIM_COUNT, offsetof(struct entry, spec.max_batch), .high = UINT32_MAX),
    MD_SIM_FIELD("in_host", MD_SIM_FLAG, offsetof(struct entry, spec.in_host)),
    MD_SIM_FIELD("count", MD_SIM_COUNT, offsetof(struct entry, count), .low = 1, .high = MD_SIM_MODELS_MAX),
};

/* Adds the backbones of an entry: "sdxl", or "sdxl-0", "sdxl-1" ... if it has a count. */
static enum md_status add_backbones(struct md_sim_functions_config *config, const struct entry *entry,
				    struct md_error *err)
{
	struct md_sim_functions *out = &config->out;
	uint32_t count = entry->count ? entry->count : 1;
	for (uint32_t i = 0; i < count; i++) {
		if (!MD_ARRAY_GROW(out->backbones, out->backbone_count, config->backbone_capacity))
			return md_sim_config_memory(config->yaml, err);
		struct md_sim_backbone *backbone = &out->backbones[out->backbone_count];
		backbone->spec = entry->spec;
		if ((entry->count ? asprintf(&backbone->name, "%s-%" PRIu32, entry->name, i)
				  : asprintf(&backbone->name, "%s", entry->name)) < 0)
			return md_sim_config_memory(config->yaml, err);
		out->backbone_count++;
	}
	return MD_OK;
}

static enum md_status read_entry(struct md_sim_functions_config *config, uint32_t at, struct entry *entry,
				 struct md_error *err)
{
	struct md_sim_fields fields = MD_SIM_FIELDS(config->yaml, backbone_fields);
	struct md_sim_backbone_group *group = &config->groups[config->group_count];
	uint32_t first, count;
	char path[32];
	uint64_t seen = 0;
	snprintf(path, sizeof(path), "backbones[%" PRIu32 "]", config->group_count);
	MD_FORWARD(md_sim_fields_read(&fields, at, path, entry, &seen, err));
	MD_FORWARD(md_sim_fields_require(&fields, at, path, seen, err));
	if (md_sim_config_find_backbone(config, entry->name, &first, &count))
		return md_sim_fields_refuse(config->yaml, at, path, "name", err, "'%.60s' is there already",
					    entry->name);
	if (config->out.backbone_count + (entry->count ? entry->count : 1) > MD_SIM_MODELS_MAX)
		return md_sim_fields_refuse(config->yaml, at, path, entry->count ? "count" : NULL, err,
					    "more than %u backbones in all", MD_SIM_MODELS_MAX);
	*group = (struct md_sim_backbone_group){.first = config->out.backbone_count,
						.count = entry->count ? entry->count : 1};
	MD_FORWARD(add_backbones(config, entry, err));
	group->name = md_steal_ptr(&entry->name);
	config->group_count++;
	return MD_OK;
}

enum md_status md_sim_config_backbones(struct md_sim_functions_config *config, struct md_error *err)
{
	const struct md_sim_yaml *yaml = config->yaml;
	if (!config->backbones)
		return MD_OK;
	MD_FORWARD(md_sim_config_list(yaml, config->backbones, "backbones", MD_SIM_MODELS_MAX, err));
	config->groups = calloc(yaml->nodes[config->backbones].count, sizeof(*config->groups));
	if (!config->groups)
		return md_sim_config_memory(yaml, err);
	for (uint32_t at = yaml->nodes[config->backbones].first; at; at = yaml->nodes[at].next) {
		struct entry entry = {.spec = {.size = sizeof(entry.spec)}};
		enum md_status status = read_entry(config, at, &entry, err);
		free(entry.name);
		MD_FORWARD(status);
	}
	return MD_OK;
}

void md_sim_config_backbones_finish(struct md_sim_functions_config *config)
{
	for (uint32_t i = 0; i < config->group_count; i++)
		free(config->groups[i].name);
	free(config->groups);
}

bool md_sim_config_find_backbone(const struct md_sim_functions_config *config, const char *name, uint32_t *first,
				 uint32_t *count)
{
	const struct md_sim_functions *out = &config->out;
	*count = 1;
	for (uint32_t i = 0; i < config->group_count; i++) {
		if (strcmp(config->groups[i].name, name))
			continue;
		*first = config->groups[i].first;
		*count = config->groups[i].count;
		return true;
	}
	for (*first = 0; *first < out->backbone_count; ++*first)
		if (strcmp(out->backbones[*first].name, name) == 0)
			return true;
	return false;
}

/*
 * Each backbone has a function before one has two. Further ones go to the first backbones more often (half of them to
 * the first quarter), as the adapters of public models do.
 */
uint32_t md_sim_config_backbone_of(const struct md_sim_function *model, uint32_t ordinal)
{
	uint32_t count = model->backbone_count;
	double part;
	if (count <= 1 || model->spec.backbone == MEDUSA_SCHED_NONE)
		return model->spec.backbone;
	if (ordinal < count)
		return model->spec.backbone + ordinal;
	part = (ordinal - count + 1) * GOLDEN_PART;
	part -= (double)(uint64_t)part;
	return model->spec.backbone + (uint32_t)(part * part * count);
}
