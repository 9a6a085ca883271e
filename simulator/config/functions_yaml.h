/* SPDX-License-Identifier: Apache-2.0 */
/* What the two parts that read functions.yaml share: models and functions. */
#ifndef MD_SIMULATOR_CONFIG_FUNCTIONS_YAML_H
#define MD_SIMULATOR_CONFIG_FUNCTIONS_YAML_H

#include "simulator/config/fields.h"
#include "simulator/simulator.h"

#define MD_SIM_MODELS_MAX 4096u
#define MD_SIM_FUNCTIONS_MAX 100000u
#define MD_SIM_TENANTS_MAX 1000u
#define MD_SIM_BYTES_MOST 1e15
#define MD_SIM_TIME_MOST (3600 * 1e9)

/* An entry of models:, before it becomes a template. Defaults are copied by value, except for texts. */
struct md_sim_model_entry {
	struct md_sim_function function;
	char *name, *backbone, *artifact, *tenant;
	uint64_t adapter_bytes;
	uint32_t kv_block_tokens, count;
	struct md_sim_counts prompt, generated;
	struct md_units_range rate;
	int goal;
};

/* An entry of backbones:, which may stand for several that are alike. */
struct md_sim_backbone_group {
	char *name;
	uint32_t first, count; /* in out.backbones */
};

struct md_sim_functions_config {
	const struct md_sim_yaml *yaml;
	struct md_sim_functions out;
	uint32_t backbones, tenants, defaults, models, functions; /* indices of their YAML nodes */
	struct md_sim_model_entry shared;                         /* defaults: */
	uint64_t shared_seen;
	uint32_t *counts; /* by model */
	struct md_sim_backbone_group *groups;
	uint32_t group_count, backbone_capacity;
};

/* Names must be unique, in a trace and in a table. */
struct md_sim_named {
	const char *name;
	uint32_t at;
};
/* The second one of two equal names, or NULL. Sorts the list. */
const struct md_sim_named *md_sim_config_double(struct md_sim_named *names, uint32_t count);

/* Checks that the YAML node is a list of 1 to `most` items. */
enum md_status md_sim_config_list(const struct md_sim_yaml *yaml, uint32_t list, const char *name, uint32_t most,
				  struct md_error *err);
/* fails with "out of memory" */
enum md_status md_sim_config_memory(const struct md_sim_yaml *yaml, struct md_error *err);

/* Fill out.tenants, out.backbones, out.templates, out.models and counts. */
enum md_status md_sim_config_tenants(struct md_sim_functions_config *config, struct md_error *err);
enum md_status md_sim_config_backbones(struct md_sim_functions_config *config, struct md_error *err);
enum md_status md_sim_config_models(struct md_sim_functions_config *config, struct md_error *err);
/* A group of backbones, or one of them; false: there is none of that name. */
bool md_sim_config_find_backbone(const struct md_sim_functions_config *config, const char *name, uint32_t *first,
				 uint32_t *count);
/* The tenant of a field `tenant`; NULL: the default one. Errors name file, line and field. */
enum md_status md_sim_config_tenant(const struct md_sim_functions_config *config, uint32_t at, const char *path,
				    const char *name, uint32_t *tenant, struct md_error *err);
void md_sim_config_model_finish(struct md_sim_model_entry *model);
void md_sim_config_backbones_finish(struct md_sim_functions_config *config); /* the groups */
/* Frees functions and their names; NULL is fine. */
void md_sim_config_free_functions(struct md_sim_function *functions, uint32_t count);
/* Adds function number `ordinal` (from 0) of a model; takes the name, NULL: out of memory. false: out of memory. */
bool md_sim_config_add_function(struct md_sim_functions *out, uint32_t model, uint32_t ordinal, char *name);
/* The backbone of a model's function number `ordinal` (from 0). */
uint32_t md_sim_config_backbone_of(const struct md_sim_function *model, uint32_t ordinal);

#endif
