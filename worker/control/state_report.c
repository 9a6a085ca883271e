/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/control/state_report.h"

#include <time.h>
#include <unistd.h>

/* ---- latencies ---- */

/* The upper bound of the bucket in which the part `part` of all requests has been; null: there is none. */
static json_t *percentile(const struct medusa_sched_histogram *histogram, double part)
{
	uint64_t below = 0;
	if (!histogram->count)
		return json_null();
	for (uint32_t i = 0; i < MEDUSA_SCHED_BUCKETS; i++) {
		below += histogram->buckets[i];
		uint64_t bound = medusa_sched_bucket_ns(i);
		if ((double)below >= part * (double)histogram->count)
			return bound == UINT64_MAX ? json_null() : json_real((double)bound * 1e-9);
	}
	return json_null();
}

static json_t *latencies(const struct md_model *model, enum medusa_sched_latency which)
{
	struct medusa_sched_histogram histogram = {.size = sizeof(histogram)};
	medusa_sched_latency_get(model->worker->sched, model->function, which, &histogram);
	return json_pack("{s:I, s:o, s:o, s:o}", "count", (json_int_t)histogram.count, "p50",
			 percentile(&histogram, 0.5), "p90", percentile(&histogram, 0.9), "p99",
			 percentile(&histogram, 0.99));
}

/* ---- models ---- */

static json_t *bytes_or_null(uint64_t bytes, bool known)
{
	return known ? json_integer((json_int_t)bytes) : json_null();
}

/* Requests that a limit of their tenant holds back wait for it as well, and the scheduler does not count them as the model's. */
static json_int_t waiting_of(const struct md_model *model, const struct medusa_sched_function_state *state)
{
	return model->unfinished > state->running ? (json_int_t)(model->unfinished - state->running) : 0;
}

/* How requests have ended: each is in one of these. *object gets them. */
static void put_ends(json_t *object, const struct md_metrics_requests *requests)
{
	json_object_set_new(object, "served", json_integer((json_int_t)md_metrics_served(requests)));
	json_object_set_new(object, "refused", json_integer((json_int_t)md_metrics_refused(requests)));
	json_object_set_new(object, "failed", json_integer((json_int_t)md_metrics_failed(requests)));
	json_object_set_new(object, "cancelled", json_integer((json_int_t)md_metrics_cancelled(requests)));
}

static json_t *describe(const struct md_model *model)
{
	struct medusa_sched_function_state state = {.size = sizeof(state)};
	enum md_engine_state engine = md_model_state(model);
	bool away = engine == MD_ENGINE_STOPPED || engine == MD_ENGINE_SWAPPED;
	uint64_t memory = model->base ? model->config->bytes : model->config->own.memory_bytes, host = 0;
	bool counted = !model->base && md_engine_memory(model->engine, &host);
	uint32_t gpu = model->base ? model->base->gpu : model->gpu;
	medusa_sched_function_get(model->worker->sched, model->function, &state);
	json_t *made =
	    json_pack("{s:s, s:s, s:o, s:o, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "model", model->id, "state",
		      md_engine_state_name(engine), "gpu", bytes_or_null(gpu, !away), "memory_bytes",
		      bytes_or_null(memory, memory != 0), "waiting", waiting_of(model, &state), "running",
		      (json_int_t)state.running, "failures", (json_int_t)model->failures, "loads",
		      (json_int_t)model->starts, "first_token_s", latencies(model, MEDUSA_SCHED_LATENCY_FIRST_TOKEN),
		      "completion_s", latencies(model, MEDUSA_SCHED_LATENCY_COMPLETION), "last_failure",
		      *model->last_failure ? json_string(model->last_failure) : json_null());
	json_object_set_new(made, "host_memory_bytes", bytes_or_null(host, counted));
	json_object_set_new(made, "base", model->base ? json_string(model->base->id) : json_null());
	put_ends(made, &model->requests);
	return made;
}

json_t *md_report_models(const struct md_worker *worker)
{
	const struct md_config_model *all = worker->config->models;
	json_t *models = json_array();
	for (uint32_t i = 0; i < worker->config->model_count; i++) {
		if (all[i].base == MD_CONFIG_NONE)
			json_array_append_new(models, describe(worker->current[i]));
		for (uint32_t a = 0; all[i].own.adapted && a < worker->config->model_count; a++)
			if (all[a].base == i)
				json_array_append_new(models, describe(worker->current[a]));
	}
	return models;
}

/* ---- the daemon ---- */

static json_t *describe_gpus(const struct md_worker *worker)
{
	struct medusa_sched_gpu_state state = {.size = sizeof(state)};
	json_t *gpus = json_array();
	for (uint32_t i = 0; !medusa_sched_gpu_get(worker->sched, i, &state); i++) {
		bool stated = state.limit_bytes != MD_WORKER_GPU_BYTES;
		uint64_t used = state.artifact_bytes + state.residue_bytes + state.kv_bytes;
		json_array_append_new(
		    gpus,
		    json_pack("{s:I, s:o, s:o, s:I, s:I, s:I, s:I, s:b, s:b}", "gpu", (json_int_t)i, "limit_bytes",
			      bytes_or_null(state.limit_bytes, stated), "used_bytes", bytes_or_null(used, stated),
			      "foreign_bytes", (json_int_t)state.foreign_bytes, "kv_bytes", (json_int_t)state.kv_bytes,
			      "running", (json_int_t)state.running, "waiting", (json_int_t)state.waiting, "present",
			      state.present, "draining", state.draining));
	}
	return gpus;
}

/* The configuration's tenants, and behind them, without a name, requests that are no tenant's; empty without tenants. */
static json_t *describe_tenants(const struct md_worker *worker)
{
	const struct md_tenant_entry *entry;
	struct medusa_sched_tenant_state state;
	json_t *tenants = json_array();
	for (uint32_t i = 0; md_tenants_get(worker, i, &entry, &state); i++) {
		json_t *made = json_pack(
		    "{s:o, s:f, s:I, s:I, s:I, s:I, s:f}", "tenant", entry ? json_string(entry->name) : json_null(),
		    "weight", entry ? entry->told.weight : 1.0, "max_waiting",
		    (json_int_t)(entry ? entry->told.max_waiting : 0), "max_running",
		    (json_int_t)(entry ? entry->told.max_running : 0), "waiting", (json_int_t)state.waiting, "running",
		    (json_int_t)state.running, "gpu_seconds", (double)state.gpu_ns * 1e-9);
		put_ends(made, md_tenants_requests(worker, entry));
		json_array_append_new(tenants, made);
	}
	return tenants;
}

/* null: each engine has a pool of its own. */
static json_t *describe_pool(const struct md_worker *worker)
{
	struct md_worker_pool_sizes sizes;
	if (!md_pool_sizes(worker, &sizes))
		return json_null();
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "bytes", (json_int_t)sizes.bytes,
			 "held_bytes", (json_int_t)sizes.held, "cached_bytes", (json_int_t)sizes.cached, "free_bytes",
			 (json_int_t)sizes.free, "full", (json_int_t)worker->pool.full, "spill_bytes",
			 (json_int_t)sizes.spill_bytes, "spill_held_bytes", (json_int_t)sizes.spill_held,
			 "spill_cached_bytes", (json_int_t)sizes.spill_cached, "spill_free_bytes",
			 (json_int_t)sizes.spill_free);
}

json_t *md_report_status(const struct md_worker *worker)
{
	json_int_t loaded = 0, waiting = 0, running = 0;
	struct md_metrics_requests sum = {0};
	for (uint32_t i = 0; i < worker->config->model_count; i++) {
		const struct md_model *model = worker->current[i];
		struct medusa_sched_function_state state = {.size = sizeof(state)};
		medusa_sched_function_get(worker->sched, model->function, &state);
		loaded += md_model_state(model) == MD_ENGINE_READY;
		waiting += waiting_of(model, &state);
		running += state.running;
		sum.served += md_metrics_served(&model->requests);
		sum.refused += md_metrics_refused(&model->requests);
		sum.failed += md_metrics_failed(&model->requests);
		sum.left_running += md_metrics_cancelled(&model->requests);
	}
	json_t *made =
	    json_pack("{s:i, s:s, s:I, s:i, s:b, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "pid", (int)getpid(), "version",
		      MD_VERSION, "uptime_s", (json_int_t)(time(NULL) - worker->began), "port", (int)worker->port,
		      "draining", md_drain_is_on(worker->drain), "models", (json_int_t)worker->config->model_count,
		      "loaded", loaded, "waiting", waiting, "running", running, "gpus", describe_gpus(worker),
		      "tenants", describe_tenants(worker), "pool", describe_pool(worker));
	put_ends(made, &sum);
	return made;
}
