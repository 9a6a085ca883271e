/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/control/trace_report.h"

#include <limits.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "worker/core/shared_backbone.h"
#include "worker/core/tenants.h"

static double seconds(uint64_t ns)
{
	return (double)ns * 1e-9;
}

static json_t *describe_model(const struct md_model *model)
{
	const struct medusa_sched_function *told = &model->told;
	const struct md_config_own *own = &model->config->own;
	struct medusa_sched_function loads = *told, starts = *told;
	bool swaps = model->settings.swapping != MD_ENGINE_SWAP_NEVER;
	md_learned_times(&model->learned, own, swaps, &loads);
	md_learned_times(&model->learned, own, false, &starts);
	if (model->base) {
		md_learned_split(&model->learned, true, &loads, NULL);
		starts = loads;
	}
	json_t *made = json_pack("{s:s, s:I, s:I, s:I, s:b, s:f, s:f, s:f, s:f, s:f, s:f, s:s, s:I, s:b}", "model",
				 model->id, "memory_bytes", (json_int_t)model->weight_bytes, "kv_bytes",
				 (json_int_t)told->kv_bytes, "max_batch", (json_int_t)told->max_batch, "swaps", swaps,
				 "load_s", seconds(loads.swap_ns - loads.t0_ns), "start_s",
				 seconds(starts.swap_ns - starts.t0_ns), "leave_s", seconds(loads.evict_ns),
				 "first_token_s", seconds(loads.t0_ns), "keep_alive_s", seconds(told->keep_alive_ns),
				 "slo_s", seconds(told->slo_ns), "goal", medusa_sched_goal_name(told->slo_goal),
				 "min_replicas", (json_int_t)told->min_replicas, "pinned", told->pinned != 0);
	uint64_t bytes;
	const char *shared = md_shared_backbone_of(model, &bytes);
	if (shared)
		json_object_set_new(made, "shared",
				    json_pack("{s:s, s:I}", "name", shared, "memory_bytes", (json_int_t)bytes));
	if (model->base)
		json_object_set_new(made, "base", json_string(model->base->id));
	else if (model->backbone != MEDUSA_SCHED_NONE)
		json_object_set_new(made, "backbone",
				    json_pack("{s:I, s:I}", "adapter_slots",
					      (json_int_t)model->told_backbone.adapter_slots, "max_batch",
					      (json_int_t)model->told_backbone.max_batch));
	return made;
}

static json_t *describe_gpus(const struct md_worker *worker)
{
	struct medusa_sched_gpu_state state = {.size = sizeof(state)};
	json_t *gpus = json_array();
	for (uint32_t i = 0; !medusa_sched_gpu_get(worker->sched, i, &state); i++)
		json_array_append_new(gpus, json_pack("{s:I}", "memory_bytes", (json_int_t)state.limit_bytes));
	return gpus;
}

static json_t *describe_tenants(const struct md_worker *worker)
{
	const struct md_tenant_entry *entry;
	struct medusa_sched_tenant_state state;
	json_t *tenants = json_array();
	for (uint32_t i = 0; md_tenants_get(worker, i, &entry, &state); i++)
		if (entry)
			json_array_append_new(tenants, json_pack("{s:s, s:f, s:I, s:I}", "name", entry->name, "weight",
								 entry->told.weight, "max_waiting",
								 (json_int_t)entry->told.max_waiting, "max_running",
								 (json_int_t)entry->told.max_running));
	return tenants;
}

static json_t *describe_policies(const struct md_config_policies *policies)
{
	const char *preloading = policies->preloading ? policies->preloading : "none";
	return json_pack("{s:s*, s:s*, s:s*, s:s*, s:s}", "queueing", policies->queueing, "placement",
			 policies->placement, "eviction", policies->eviction, "batching", policies->batching,
			 "preloading", preloading);
}

json_t *md_trace_report(const struct md_worker *worker)
{
	const struct md_config_node *node = &worker->config->node;
	MD_AUTO_FREE char *path = realpath(node->state, NULL); /* whoever asks is in another folder */
	json_t *models = json_array();
	for (uint32_t i = 0; i < worker->config->model_count; i++)
		json_array_append_new(models, describe_model(worker->current[i]));
	return json_pack("{s:s, s:o, s:o, s:I, s:b, s:o, s:o}", "state", path ? path : node->state, "gpus",
			 describe_gpus(worker), "policies", describe_policies(&node->policies), "retries",
			 (json_int_t)node->retries, "ruled", md_config_is_ruled(worker->config), "tenants",
			 describe_tenants(worker), "models", models);
}
