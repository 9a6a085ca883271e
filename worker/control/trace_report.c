/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/control/trace_report.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "json/tree_text.h"
#include "worker/core/shared_backbone.h"
#include "worker/core/tenants.h"
#include "worker/core/worker.h"

#define LOOK_ROWS 32u /* rows from one look at the clock to the next */

/* Of a model, by its index in the configuration, which has its names. */
struct row {
	struct medusa_sched_function told;
	uint64_t memory, load_ns, start_ns, leave_ns, first_token_ns;
	bool swaps;
	bool is_host; /* its engine takes adapters: */
	uint32_t adapter_slots, backbone_batch;
	const char *shared; /* of the worker, as long as it is there; NULL: its weights are its own */
	uint64_t shared_bytes;
};

struct copy {
	const struct md_worker_config *config; /* held as long as the copy is there */
	struct md_reload *holder;
	struct row *rows;
	uint32_t count; /* that were copied */
	char *node;     /* what is not about models */
};

/* ---- copying ---- */

static void copy_row(const struct md_model *model, struct row *row)
{
	const struct md_config_own *own = &model->config->own;
	struct medusa_sched_function loads = model->told, starts = model->told;
	bool swaps = model->settings.swapping != MD_ENGINE_SWAP_NEVER;
	md_learned_times(&model->learned, own, swaps, &loads);
	md_learned_times(&model->learned, own, false, &starts);
	if (model->base) {
		md_learned_split(&model->learned, true, &loads, NULL);
		starts = loads;
	}
	*row = (struct row){.told = model->told,
			    .memory = model->weight_bytes,
			    .load_ns = loads.swap_ns - loads.t0_ns,
			    .start_ns = starts.swap_ns - starts.t0_ns,
			    .leave_ns = loads.evict_ns,
			    .first_token_ns = loads.t0_ns,
			    .swaps = swaps,
			    .is_host = !model->base && model->backbone != MEDUSA_SCHED_NONE,
			    .adapter_slots = model->told_backbone.adapter_slots,
			    .backbone_batch = model->told_backbone.max_batch};
	row->shared = md_shared_backbone_of(model, &row->shared_bytes);
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
								 entry->stated.weight, "max_waiting",
								 (json_int_t)entry->stated.max_waiting, "max_running",
								 (json_int_t)entry->stated.max_running));
	return tenants;
}

/* As a text, which is printed again with the rest. NULL: out of memory. */
static char *describe_node(const struct md_worker *worker)
{
	json_t *made = json_pack("{s:o, s:o}", "gpus", describe_gpus(worker), "tenants", describe_tenants(worker));
	char *text = made ? md_jansson_print(made, JSON_COMPACT) : NULL;
	json_decref(made);
	return text;
}

static void forget(struct copy *copy)
{
	if (copy->config)
		md_reload_let_go(copy->holder, copy->config);
	free(copy->rows);
	free(copy->node);
	*copy = (struct copy){0};
}

static bool begin(const struct md_worker *worker, struct copy *copy)
{
	copy->rows = malloc((worker->config->model_count + 1) * sizeof(*copy->rows));
	if (!copy->rows)
		return false;
	md_reload_hold(worker->reload, worker->config);
	copy->holder = worker->reload;
	copy->config = worker->config;
	return true;
}

/* The copy begins again where a reload has come in between. */
enum md_printer_step md_trace_copy(struct md_worker *worker, void **copy)
{
	uint64_t until = md_clock_ns() + MD_WORKER_TURN_NS;
	if (md_reload_changes(worker->reload))
		return MD_PRINTER_LATER;
	struct copy *made = *copy ? *copy : calloc(1, sizeof(*made));
	*copy = made;
	if (made && made->config != worker->config)
		forget(made);
	if (!made || (!made->config && !begin(worker, made)))
		return MD_PRINTER_NO_MEMORY;
	while (made->count < made->config->model_count) {
		copy_row(worker->current[made->count], &made->rows[made->count]);
		if (++made->count % LOOK_ROWS == 0 && md_clock_ns() > until)
			return MD_PRINTER_MORE;
	}
	made->node = describe_node(worker);
	return made->node ? MD_PRINTER_DONE : MD_PRINTER_NO_MEMORY;
}

void md_trace_free(void *copy)
{
	if (copy)
		forget(copy);
	free(copy);
}

/* ---- printing ---- */

static double seconds(uint64_t ns)
{
	return (double)ns * 1e-9;
}

static json_t *describe_model(const struct copy *copy, uint32_t index)
{
	const struct md_config_model *config = &copy->config->models[index];
	const struct row *row = &copy->rows[index];
	const struct medusa_sched_function *told = &row->told;
	json_t *made =
	    json_pack("{s:s, s:I, s:I, s:I, s:b, s:f, s:f, s:f, s:f, s:f, s:f, s:s, s:I, s:b}", "model", config->id,
		      "memory_bytes", (json_int_t)row->memory, "kv_bytes", (json_int_t)told->kv_bytes, "max_batch",
		      (json_int_t)told->max_batch, "swaps", row->swaps, "load_s", seconds(row->load_ns), "start_s",
		      seconds(row->start_ns), "leave_s", seconds(row->leave_ns), "first_token_s",
		      seconds(row->first_token_ns), "keep_alive_s", seconds(told->keep_alive_ns), "slo_s",
		      seconds(told->slo_ns), "goal", medusa_sched_goal_name(told->slo_goal), "min_replicas",
		      (json_int_t)told->min_replicas, "pinned", told->pinned != 0);
	if (row->shared)
		json_object_set_new(
		    made, "shared",
		    json_pack("{s:s, s:I}", "name", row->shared, "memory_bytes", (json_int_t)row->shared_bytes));
	if (config->base != MD_CONFIG_NONE)
		json_object_set_new(made, "base", json_string(copy->config->models[config->base].id));
	else if (row->is_host)
		json_object_set_new(made, "backbone",
				    json_pack("{s:I, s:I}", "adapter_slots", (json_int_t)row->adapter_slots,
					      "max_batch", (json_int_t)row->backbone_batch));
	return made;
}

static json_t *describe_policies(const struct md_config_policies *policies)
{
	const char *preloading = policies->preloading ? policies->preloading : "none";
	return json_pack("{s:s*, s:s*, s:s*, s:s*, s:s}", "queueing", policies->queueing, "placement",
			 policies->placement, "eviction", policies->eviction, "batching", policies->batching,
			 "preloading", preloading);
}

bool md_trace_print(const void *from, FILE *out)
{
	const struct copy *copy = from;
	const struct md_config_node *node = &copy->config->node;
	MD_AUTO_FREE char *path = realpath(node->state, NULL); /* whoever asks is in another folder */
	json_error_t error;
	json_t *made = md_jansson_parse(copy->node, strlen(copy->node), 0, &error), *models = json_array();
	for (uint32_t i = 0; i < copy->count; i++)
		json_array_append_new(models, describe_model(copy, i));
	json_object_set_new(made, "state", json_string(path ? path : node->state));
	json_object_set_new(made, "policies", describe_policies(&node->policies));
	json_object_set_new(made, "retries", json_integer((json_int_t)node->retries));
	json_object_set_new(made, "ruled", json_boolean(md_config_is_ruled(copy->config)));
	json_object_set_new(made, "models", models);
	MD_AUTO_FREE char *text = made ? md_jansson_print(made, JSON_COMPACT) : NULL;
	json_decref(made);
	return text && fputs(text, out) >= 0;
}
