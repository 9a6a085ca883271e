/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/control/state_report.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "json/tree_text.h"
#include "worker/cluster/cluster_report.h"

/* ---- models ---- */

static json_t *bytes_or_null(uint64_t bytes, bool known)
{
	return known ? json_integer((json_int_t)bytes) : json_null();
}

static json_t *seconds_or_null(uint64_t ns)
{
	return ns == UINT64_MAX ? json_null() : json_real((double)ns * 1e-9);
}

static json_t *describe_latency(const struct md_row_latency *latency)
{
	return json_pack("{s:I, s:o, s:o, s:o}", "count", (json_int_t)latency->count, "p50",
			 seconds_or_null(latency->p50), "p90", seconds_or_null(latency->p90), "p99",
			 seconds_or_null(latency->p99));
}

/* How requests have ended: each is in one of these. *object gets them. */
static void put_ends(json_t *object, const struct md_metrics_requests *requests)
{
	json_object_set_new(object, "served", json_integer((json_int_t)md_metrics_served(requests)));
	json_object_set_new(object, "refused", json_integer((json_int_t)md_metrics_refused(requests)));
	json_object_set_new(object, "failed", json_integer((json_int_t)md_metrics_failed(requests)));
	json_object_set_new(object, "cancelled", json_integer((json_int_t)md_metrics_cancelled(requests)));
}

/* Of a model that nothing has happened to. */
static const struct md_row_used unused = {.first_token = {0, UINT64_MAX, UINT64_MAX, UINT64_MAX},
					  .completion = {0, UINT64_MAX, UINT64_MAX, UINT64_MAX}};

static json_t *describe(const struct md_model_row *row)
{
	const struct md_config_model *config = row->config;
	const struct md_row_used *used = row->used ? row->used : &unused;
	bool away = row->state == MD_ENGINE_STOPPED || row->state == MD_ENGINE_SWAPPED;
	const char *base = md_model_row_base(row);
	uint64_t memory = base ? config->bytes : config->own.memory_bytes;
	json_t *made = json_pack(
	    "{s:s, s:s, s:o, s:o, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "model", config->id, "state",
	    md_engine_state_name(row->state), "gpu", bytes_or_null(used->gpu, !away), "memory_bytes",
	    bytes_or_null(memory, memory != 0), "waiting", (json_int_t)used->waiting, "running",
	    (json_int_t)used->running, "failures", (json_int_t)used->failures, "loads", (json_int_t)used->starts,
	    "first_token_s", describe_latency(&used->first_token), "completion_s", describe_latency(&used->completion),
	    "last_failure", *used->last_failure ? md_jansson_text(used->last_failure) : json_null());
	json_object_set_new(made, "host_memory_bytes", bytes_or_null(used->memory, used->counted));
	json_object_set_new(made, "base", base ? json_string(base) : json_null());
	put_ends(made, &used->requests);
	return made;
}

/* The adapters of each model, in their order: first[i] is the first one of model i, next[a] the one after a. */
static bool list_adapters(const struct md_model_rows *rows, uint32_t **first, uint32_t **next)
{
	*first = malloc((rows->count + 1u) * sizeof(**first));
	*next = malloc((rows->count + 1u) * sizeof(**next));
	for (uint32_t i = 0; *first && *next && i < rows->count; i++)
		(*first)[i] = MD_CONFIG_NONE;
	for (uint32_t i = rows->count; *first && *next && i-- > 0;) {
		uint32_t base = rows->rows[i].config->base;
		if (base == MD_CONFIG_NONE)
			continue;
		(*next)[i] = (*first)[base];
		(*first)[base] = i;
	}
	return *first && *next;
}

json_t *md_report_models(const struct md_model_rows *rows)
{
	MD_AUTO_FREE uint32_t *first = NULL, *next = NULL;
	json_t *models = list_adapters(rows, &first, &next) ? json_array() : NULL;
	for (uint32_t i = 0; models && i < rows->count; i++) {
		if (rows->rows[i].config->base != MD_CONFIG_NONE)
			continue;
		json_array_append_new(models, describe(&rows->rows[i]));
		for (uint32_t a = first[i]; a != MD_CONFIG_NONE; a = next[a])
			json_array_append_new(models, describe(&rows->rows[a]));
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
		uint64_t used = state.artifact_bytes + state.residue_bytes + state.kv_bytes - state.shared_bytes;
		json_array_append_new(
		    gpus, json_pack("{s:I, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:b, s:b}", "gpu", (json_int_t)i,
				    "limit_bytes", bytes_or_null(state.limit_bytes, stated), "used_bytes",
				    bytes_or_null(used, stated), "shared_bytes", (json_int_t)state.shared_bytes,
				    "foreign_bytes", (json_int_t)state.foreign_bytes, "kv_bytes",
				    (json_int_t)state.kv_bytes, "running", (json_int_t)state.running, "waiting",
				    (json_int_t)state.waiting, "present", state.present, "draining", state.draining));
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
		    "weight", entry ? entry->stated.weight : 1.0, "max_waiting",
		    (json_int_t)(entry ? entry->stated.max_waiting : 0), "max_running",
		    (json_int_t)(entry ? entry->stated.max_running : 0), "waiting", (json_int_t)state.waiting,
		    "running", (json_int_t)state.running, "gpu_seconds", (double)state.gpu_ns * 1e-9);
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

char *md_report_node(const struct md_worker *worker)
{
	json_t *made = json_pack(
	    "{s:i, s:s, s:I, s:i, s:b, s:I, s:o, s:o, s:o, s:o, s:o}", "pid", (int)getpid(), "version", MD_VERSION,
	    "uptime_s", (json_int_t)((md_clock_ns() - worker->began_ns) / 1000000000u), "port", (int)worker->port,
	    "draining", md_drain_is_on(worker->drain), "models", (json_int_t)worker->config->model_count, "gpus",
	    describe_gpus(worker), "tenants", describe_tenants(worker), "pool", describe_pool(worker), "cluster",
	    md_cluster_report(worker->cluster), "cluster_nodes", md_cluster_report_nodes(worker->cluster));
	char *text = made ? md_jansson_print(made, JSON_COMPACT) : NULL;
	json_decref(made);
	return text;
}

json_t *md_report_status(const struct md_model_rows *rows, const char *node)
{
	json_error_t error;
	json_int_t loaded = 0, waiting = 0, running = 0;
	struct md_metrics_requests sum = {0};
	for (uint32_t i = 0; i < rows->count; i++) {
		const struct md_row_used *used = rows->rows[i].used ? rows->rows[i].used : &unused;
		loaded += rows->rows[i].state == MD_ENGINE_READY;
		waiting += (json_int_t)used->waiting;
		running += (json_int_t)used->running;
		sum.served += md_metrics_served(&used->requests);
		sum.refused += md_metrics_refused(&used->requests);
		sum.failed += md_metrics_failed(&used->requests);
		sum.left_running += md_metrics_cancelled(&used->requests);
	}
	json_t *made = md_jansson_parse(node, strlen(node), 0, &error);
	json_object_set_new(made, "loaded", json_integer(loaded));
	json_object_set_new(made, "waiting", json_integer(waiting));
	json_object_set_new(made, "running", json_integer(running));
	put_ends(made, &sum);
	return made;
}
