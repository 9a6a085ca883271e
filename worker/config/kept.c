/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory that the configuration states: what can't be is refused, and what min_replicas makes useless is noted. */
#include <stdlib.h>

#include "worker/config/parts.h"

static enum md_status note_model(struct md_config_build *build, const struct md_tree *node,
				 const struct md_config_model *model)
{
	const struct md_config_own *own = &model->own;
	const struct md_tree *medusa = model->base == MD_CONFIG_NONE ? md_tree_find(node, "medusa") : node,
			     *ttl = md_tree_find(node, "ttl");
	if (own->min_replicas > 1)
		MD_FORWARD(md_config_note(build, md_tree_find(medusa, "min_replicas"),
					  "a model is one engine, so one is kept loaded"));
	if (model->ttl_ns && model->base == MD_CONFIG_NONE && (own->min_replicas || own->pin))
		return md_config_note(build, ttl ? ttl : node,
				      "ttl has no effect on a model with medusa.min_replicas or medusa.pin");
	return MD_OK;
}

/* Of all GPUs; 0: somebody has to find out. */
static uint64_t stated_memory(const struct md_config_node *node)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < node->gpu_count; i++) {
		if (!node->gpus[i].memory_bytes)
			return 0;
		bytes += node->gpus[i].memory_bytes;
	}
	return bytes;
}

/* Of its backbone; 0: it has none. */
static uint64_t backbone_bytes(const struct md_worker_config *config, const struct md_config_own *own)
{
	return own->backbone == MD_CONFIG_NONE ? 0 : config->node.backbones[own->backbone].bytes;
}

/* Whether a model before this one is kept loaded with the same backbone. */
static bool has_kept(const struct md_worker_config *config, uint32_t before, uint32_t backbone)
{
	for (uint32_t i = 0; i < before; i++)
		if (config->models[i].own.min_replicas && config->models[i].own.backbone == backbone)
			return true;
	return false;
}

/* What is kept loaded has its memory, and once that of each backbone. */
static uint64_t kept_memory(const struct md_worker_config *config)
{
	uint64_t kept = 0;
	for (uint32_t i = 0; i < config->model_count; i++) {
		const struct md_config_own *own = &config->models[i].own;
		if (!own->min_replicas)
			continue;
		kept += own->memory_bytes;
		kept += has_kept(config, i, own->backbone) ? 0 : backbone_bytes(config, own);
	}
	return kept;
}

/* That it takes beside what is kept. */
static uint64_t more_memory(const struct md_worker_config *config, const struct md_config_own *own)
{
	bool there = has_kept(config, config->model_count, own->backbone);
	return own->memory_bytes + (there ? 0 : backbone_bytes(config, own));
}

/* What is kept takes its memory from all others, for ever. */
static enum md_status note_memory(struct md_config_build *build, const struct md_config_sections *sections)
{
	const struct md_worker_config *config = build->config;
	uint64_t all = stated_memory(&config->node), kept = kept_memory(config);
	for (uint32_t i = 0; all && kept && i < config->model_count; i++) {
		const struct md_config_own *own = &config->models[i].own;
		if (own->min_replicas && kept > all)
			MD_FORWARD(md_config_note(build, sections->model_nodes[i],
						  "the models with medusa.min_replicas need more memory together than "
						  "medusa.gpus have: not all of them stay loaded"));
		else if (!own->min_replicas && kept <= all && more_memory(config, own) > all - kept)
			MD_FORWARD(md_config_note(build, sections->model_nodes[i],
						  "it does not fit beside the models with medusa.min_replicas, so its "
						  "requests wait in vain"));
	}
	return MD_OK;
}

/* A model whose start would end the one that is kept; MD_CONFIG_NONE: there is none. */
static uint32_t find_rival(const struct md_worker_config *config, uint32_t kept, const bool *running, bool *ends)
{
	for (uint32_t i = 0; i < config->model_count; i++) {
		const uint32_t both[] = {i, kept};
		if (i == kept)
			continue;
		if (!config->matrix)
			md_config_evict(config, i, running, ends);
		if (config->matrix ? !md_config_together(config, both, 2) : ends[kept])
			return i;
	}
	return MD_CONFIG_NONE;
}

/* What is kept ends for nobody, whatever groups and matrix say. */
static enum md_status note_rivals(struct md_config_build *build, const struct md_config_sections *sections)
{
	const struct md_worker_config *config = build->config;
	bool *running = md_config_take(build, config->model_count, sizeof(*running));
	bool *ends = md_config_take(build, config->model_count, sizeof(*ends));
	if (!running || !ends)
		return MD_ERR_NO_MEMORY;
	for (uint32_t i = 0; i < config->model_count; i++)
		running[i] = true;
	for (uint32_t i = 0; md_config_is_ruled(config) && i < config->model_count; i++) {
		const struct md_config_own *own = &config->models[i].own;
		uint32_t rival = own->min_replicas || own->pin ? find_rival(config, i, running, ends) : MD_CONFIG_NONE;
		if (rival != MD_CONFIG_NONE)
			MD_FORWARD(
			    md_config_note(build, sections->model_nodes[i],
					   "%s would end it for the model %.100s; it stays all the same, because of "
					   "medusa.min_replicas or medusa.pin",
					   config->matrix ? "the matrix" : "its group", config->models[rival].id));
	}
	return MD_OK;
}

enum md_status md_config_check_memory(struct md_config_build *build, const struct md_config_sections *sections)
{
	const struct md_worker_config *config = build->config;
	uint64_t most = 0;
	if (!stated_memory(&config->node))
		return MD_OK;
	for (uint32_t i = 0; i < config->node.gpu_count; i++)
		most = config->node.gpus[i].memory_bytes > most ? config->node.gpus[i].memory_bytes : most;
	for (uint32_t i = 0; i < config->model_count; i++) {
		const struct md_config_own *own = &config->models[i].own;
		const struct md_tree *medusa = md_tree_find(sections->model_nodes[i], "medusa");
		uint64_t backbone = backbone_bytes(config, own);
		if (backbone > most || own->memory_bytes > most - backbone)
			return md_tree_refuse(md_tree_find(medusa, "memory"), build->err,
					      "no GPU of medusa.gpus has so much memory%s",
					      backbone ? " beside the model's backbone" : "");
		if (own->memory_bytes && own->kv_request_bytes > most - backbone - own->memory_bytes)
			return md_tree_refuse(md_tree_find(medusa, "kv_per_request"), build->err,
					      "no GPU of medusa.gpus has so much memory beside the model's own");
	}
	return MD_OK;
}

enum md_status md_config_note_kept(struct md_config_build *build, const struct md_config_sections *sections)
{
	for (uint32_t i = 0; i < build->config->model_count; i++)
		MD_FORWARD(note_model(build, sections->model_nodes[i], &build->config->models[i]));
	MD_FORWARD(note_rivals(build, sections));
	return note_memory(build, sections);
}
