/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler of a node, as a policy sets it. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "simulator/run/run_state.h"

static struct medusa_sched_options options_of(const struct md_sim_policy *policy, uint64_t seed)
{
	return (struct medusa_sched_options){
	    .size = sizeof(struct medusa_sched_options),
	    .seed = seed,
	    .queueing = policy->queueing,
	    .placement = policy->placement,
	    .eviction = policy->eviction,
	    .batching = policy->batching,
	    .preloading = policy->preloading,
	    .fixed_batch = policy->fixed_batch,
	    .fixed_delay_ns = policy->fixed_delay_ns,
	    .max_wait_ns = policy->max_wait_ns,
	    .max_queue = policy->max_queue,
	    .retries = policy->retries,
	    .preload_period_ns = policy->preload_period_ns,
	    .residency_per_switch = policy->residency_per_switch,
	    .transfer_timeout_ns = policy->transfer_timeout_ns,
	    .run_timeout_ns = policy->run_timeout_ns,
	};
}

/* The node's GPUs, with no more slots than the policy uses; freed by the caller. NULL: out of memory. */
static struct medusa_sched_gpu *gpus_of(const struct md_sim_node *node, const struct md_sim_policy *policy)
{
	uint32_t count = node->gpu_count, most = policy->slots;
	struct medusa_sched_gpu *gpus = malloc((count + 1) * sizeof(*gpus));
	if (!gpus)
		return NULL;
	memcpy(gpus, node->gpus, count * sizeof(*gpus));
	for (uint32_t gpu = 0; most && gpu < count; gpu++)
		gpus[gpu].slots = gpus[gpu].slots > most ? most : gpus[gpu].slots;
	return gpus;
}

enum md_status md_sim_run_scheduler(const struct md_sim_node *node, const struct md_sim_policy *policy, uint64_t seed,
				    struct medusa_sched **sched, struct md_error *err)
{
	MD_AUTO_FREE struct medusa_sched_gpu *gpus = gpus_of(node, policy);
	const struct medusa_sched_node of = {
	    .size = sizeof(of),
	    .gpus = gpus,
	    .gpu_count = node->gpu_count,
	    .host_bytes = node->host_bytes,
	    .host_bytes_per_s = node->host_bytes_per_s,
	    .cold_bytes_per_s = node->cold_bytes_per_s,
	    .peer_bytes_per_s = policy->no_peers ? NULL : node->peer_bytes_per_s,
	};
	const struct medusa_sched_options options = options_of(policy, seed);
	if (!gpus)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the simulation");
	if (medusa_sched_create(&of, &options, sched))
		return md_error_set(err, MD_ERR_INVALID, "policy %s: %s", policy->name, medusa_sched_error(NULL));
	return MD_OK;
}
