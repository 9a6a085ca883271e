/* SPDX-License-Identifier: Apache-2.0 */
/* What the scheduler is told of models: their functions, and the backbones that engines with adapters are. */
#include <string.h>

#include "base/array.h"
#include "worker/core/shared_backbone.h"
#include "worker/core/worker.h"

#define MS 1000000u
#define SLO_MS 30000u

/*
 * Device memory of a model that states none: groups and matrix tell which models run together, so one that runs alone takes
 * a whole GPU, and those that run together share one.
 */
static uint64_t guess_memory(const struct md_worker_config *config, const struct md_config_model *model, uint64_t gpu)
{
	uint32_t most = md_config_most_together(config, (uint32_t)(model - config->models));
	return most ? gpu / most : gpu;
}

/* Requests that its engine is given at one time. */
static uint32_t most_requests(const struct md_config_model *config)
{
	uint32_t stated = config->own.max_batch;
	return stated && stated < config->concurrency ? stated : config->concurrency;
}

uint64_t md_models_memory(const struct md_worker *worker, const struct md_worker_config *all,
			  const struct md_config_model *config)
{
	if (config->base != MD_CONFIG_NONE)
		return config->bytes;
	return config->own.memory_bytes ? config->own.memory_bytes
					: guess_memory(all, config, md_gpus_bytes(worker->gpus));
}

/* All but its times. */
static struct medusa_sched_function describe_function(const struct md_worker *worker,
						      const struct md_worker_config *all,
						      const struct md_config_model *config)
{
	const struct md_config_own *own = &config->own;
	return (struct medusa_sched_function){
	    .size = sizeof(struct medusa_sched_function),
	    .backbone = MEDUSA_SCHED_NONE,
	    .weight_bytes = md_models_memory(worker, all, config),
	    .in_host = 1,
	    .kv_bytes = own->kv_request_bytes,
	    .keep_alive_ns = config->ttl_ns,
	    .abortable = 1, /* the connection to the engine is closed */
	    .continuous = 1,
	    .max_batch = most_requests(config),
	    .max_parallel = 1,
	    .max_replicas = 1, /* a model is one engine */
	    .slo_ns = own->slo_ns ? own->slo_ns : SLO_MS * (uint64_t)MS,
	    .slo_goal = own->goal,
	    .leave_cost =
		all->matrix ? all->matrix->costs[md_config_engine_of(all, (uint32_t)(config - all->models))] : 0,
	};
}

/* All but its times. */
static struct medusa_sched_backbone describe_backbone(const struct md_worker *worker,
						      const struct md_worker_config *all,
						      const struct md_config_model *config)
{
	return (struct medusa_sched_backbone){.size = sizeof(struct medusa_sched_backbone),
					      .bytes = md_models_memory(worker, all, config),
					      .in_host = 1,
					      .max_replicas = 1,
					      .adapter_slots = config->own.adapter_slots,
					      .max_batch = most_requests(config),
					      .keep_alive_ns = config->ttl_ns};
}

/* As the scheduler is told, with the times that are known. */
static struct medusa_sched_function describe(const struct md_model *model, const struct md_worker_config *all,
					     const struct md_config_model *config,
					     struct medusa_sched_backbone *backbone)
{
	struct medusa_sched_function function = describe_function(model->worker, all, config);
	function.backbone = model->shared_backbone != MEDUSA_SCHED_NONE ? model->shared_backbone : model->backbone;
	if (config->own.adapted)
		function.weight_bytes = 0;
	md_learned_times(&model->learned, &config->own, false, &function);
	*backbone = describe_backbone(model->worker, all, config);
	md_learned_split(&model->learned, model->base != NULL, &function, config->own.adapted ? backbone : NULL);
	md_model_keep_promise(model, &config->own, &function);
	return function;
}

/* The scheduler knows the daemon's GPUs, which are not those of the configuration after a reload: the memory does not fit. */
static enum md_status refused(const struct md_model *model, const struct md_config_model *config, struct md_error *err)
{
	return md_error_set(err, MD_ERR_INVALID, "%s:%u: models.%.100s.medusa.memory: %s", config->memory_place.file,
			    config->memory_place.line, config->id, medusa_sched_error(model->worker->sched));
}

static enum md_status add_backbone(struct md_model *model, const struct medusa_sched_backbone *backbone,
				   struct md_error *err)
{
	struct md_worker *worker = model->worker;
	if (!MD_ARRAY_GROW(worker->backbones, worker->backbone_count, worker->backbone_room))
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for model %s", model->id);
	if (medusa_sched_add_backbone(worker->sched, backbone, &model->backbone))
		return refused(model, model->config, err);
	worker->backbones[worker->backbone_count++] = model;
	model->told_backbone = *backbone;
	return MD_OK;
}

enum md_status md_models_add_function(struct md_model *model, struct md_error *err)
{
	struct medusa_sched *sched = model->worker->sched;
	struct medusa_sched_backbone backbone;
	model->weight_bytes = md_models_memory(model->worker, model->made_from, model->config);
	if (model->config->own.backbone != MD_CONFIG_NONE)
		MD_FORWARD(md_shared_backbone_find(model->worker, model->made_from, model->config->own.backbone,
						   &model->shared_backbone, err));
	struct medusa_sched_function function = describe(model, model->made_from, model->config, &backbone);
	if (model->config->own.adapted) {
		MD_FORWARD(add_backbone(model, &backbone, err));
		function.backbone = model->backbone;
	}
	if (medusa_sched_add_function(sched, &function, &model->function))
		return refused(model, model->config, err);
	model->told = function;
	return MD_OK;
}

enum md_status md_models_promise(struct md_model *model, const struct md_worker_config *config, uint32_t index,
				 struct md_error *err)
{
	struct medusa_sched *sched = model->worker->sched;
	struct medusa_sched_backbone backbone;
	struct medusa_sched_function function = describe(model, config, &config->models[index], &backbone);
	function.t0_ns = model->told.t0_ns;
	function.swap_ns = model->told.swap_ns;
	function.evict_ns = model->told.evict_ns;
	backbone.load_ns = model->told_backbone.load_ns;
	backbone.evict_ns = model->told_backbone.evict_ns;
	if (medusa_sched_change_function(sched, model->function, &function))
		return refused(model, &config->models[index], err);
	model->told = function;
	if (config->models[index].own.adapted) {
		if (medusa_sched_change_backbone(sched, model->backbone, &backbone))
			return refused(model, &config->models[index], err);
		model->told_backbone = backbone;
	}
	md_learned_changed(model); /* what the configuration states of times may be different now */
	return MD_OK;
}
