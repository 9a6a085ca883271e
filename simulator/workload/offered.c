/* SPDX-License-Identifier: Apache-2.0 */
/* The load that requests offer to a node: GPU seconds of computing for each second of a GPU. */
#include "simulator/workload/builder.h"

/* further: tokens after the first one; those of an engine that batches by itself slow its other sequences alone */
static double seconds(const struct md_sim_node *node, const struct md_sim_function *function, double further)
{
	bool alone = true;
	for (uint32_t i = 0; i < node->gpu_count; i++)
		alone &= node->gpus[i].slots <= 1;
	double first = (double)function->spec.t0_ns, token = (double)function->spec.token_ns;
	if (function->spec.continuous)
		return ((alone ? 1 : node->prefill_share) * first + function->sequence_share * token * further) / 1e9;
	return ((alone ? 1 : node->prefill_share) * first + (alone ? 1 : node->decode_share) * token * further) / 1e9;
}

double md_sim_offered_mean_s(const struct md_sim_node *node, const struct md_sim_function *function)
{
	double tokens = ((double)function->generated_low + (double)function->generated_high) / 2;
	return seconds(node, function, tokens > 1 ? tokens - 1 : 0);
}

double md_sim_offered_load(const struct md_sim_builder *builder)
{
	const struct md_sim_workload *out = &builder->out;
	const struct md_sim_node *node = builder->options->node;
	double sum = 0;
	if (!node || !out->end)
		return 0;
	for (size_t i = 0; i < out->count; i++) {
		uint32_t tokens = out->requests[i].generated_tokens;
		sum +=
		    seconds(node, &builder->functions->functions[out->requests[i].function], tokens ? tokens - 1 : 0);
	}
	return sum / ((double)out->end / 1e9 * node->gpu_count);
}
