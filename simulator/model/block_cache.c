/* SPDX-License-Identifier: Apache-2.0 */
/* GPU memory without block management (Torpor-Block, section 7.3): a cache of freed blocks, and the
 * driver behind it. */
#include <stdlib.h>

#include "simulator/model/model_state.h"

bool md_sim_model_blocks(struct md_sim_model *model)
{
	uint32_t models = model->functions->model_count ? model->functions->model_count : 1;
	if (!model->options.no_blocks || !model->node->allocation_block_bytes)
		return true;
	for (uint32_t gpu = 0; gpu < model->node->gpu_count; gpu++) {
		model->gpus[gpu].blocks = calloc(models, sizeof(uint32_t));
		if (!model->gpus[gpu].blocks)
			return false;
	}
	return true;
}

static uint32_t model_of(const struct md_sim_model *model, uint32_t function)
{
	uint32_t entry = model->functions->functions[function].model;
	return entry < model->functions->model_count ? entry : 0;
}

static uint64_t blocks_of(const struct md_sim_model *model, uint64_t bytes)
{
	uint64_t block = model->node->allocation_block_bytes;
	return (bytes + block - 1) / block;
}

/* Frees a cached block of the model that has the most; false: none is cached. */
static bool free_one(struct md_sim_model *model, struct gpu *gpu)
{
	uint32_t most = 0;
	for (uint32_t i = 1; i < model->functions->model_count; i++)
		if (gpu->blocks[i] > gpu->blocks[most])
			most = i;
	if (!gpu->blocks[most])
		return false;
	gpu->blocks[most]--;
	gpu->block_bytes -= model->node->allocation_block_bytes;
	return true;
}

uint64_t md_sim_model_allocate(struct md_sim_model *model, uint32_t index, uint32_t function, uint64_t bytes)
{
	struct gpu *gpu = &model->gpus[index];
	if (!gpu->blocks)
		return 0;
	uint32_t *cached = &gpu->blocks[model_of(model, function)];
	uint64_t block = model->node->allocation_block_bytes, needed = blocks_of(model, bytes);
	uint64_t reused = needed < *cached ? needed : *cached, calls = needed - reused;
	*cached -= (uint32_t)reused;
	gpu->block_bytes += (needed - reused) * block;
	while (gpu->block_bytes > gpu->limit && free_one(model, gpu))
		calls++;
	return calls * model->node->allocation_ns;
}

void md_sim_model_release(struct md_sim_model *model, uint32_t index, uint32_t function, uint64_t bytes)
{
	struct gpu *gpu = &model->gpus[index];
	if (gpu->blocks)
		gpu->blocks[model_of(model, function)] += (uint32_t)blocks_of(model, bytes);
}
