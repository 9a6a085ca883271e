/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/model_rows.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"

#define LOOK_ROWS 32u /* rows from one look at the clock to the next */

/* ---- one model ---- */

/* The upper bound of the bucket in which the part of all requests in percent has been. */
static uint64_t percentile(const struct medusa_sched_histogram *histogram, unsigned percent)
{
	uint64_t below = 0;
	for (uint32_t i = 0; histogram->count && i < MEDUSA_SCHED_BUCKETS; i++) {
		below += histogram->buckets[i];
		if (below * 100 >= percent * histogram->count)
			return medusa_sched_bucket_ns(i);
	}
	return UINT64_MAX;
}

static struct md_row_latency copy_latency(const struct md_model *model, enum medusa_sched_latency which)
{
	struct medusa_sched_histogram histogram = {.size = sizeof(histogram)};
	medusa_sched_latency_get(model->worker->sched, model->function, which, &histogram);
	return (struct md_row_latency){.count = histogram.count,
				       .p50 = percentile(&histogram, 50),
				       .p90 = percentile(&histogram, 90),
				       .p99 = percentile(&histogram, 99)};
}

static bool was_used(const struct md_model *model, enum md_engine_state state)
{
	return model->requests.taken || model->starts || model->failures || model->unfinished ||
	       state != MD_ENGINE_STOPPED || *model->last_failure;
}

static void copy_used(const struct md_model *model, struct md_row_used *used)
{
	struct medusa_sched_function_state state = {.size = sizeof(state)};
	if (medusa_sched_function_get(model->worker->sched, model->function, &state))
		state.running = 0;
	*used =
	    (struct md_row_used){.gpu = model->base ? model->base->gpu : model->gpu,
				 .running = state.running,
				 /* those that a limit of their tenant holds back are no function's for the scheduler */
				 .waiting = model->unfinished > state.running ? model->unfinished - state.running : 0,
				 .starts = model->starts,
				 .failures = model->failures,
				 .usage = model->usage,
				 .requests = model->requests,
				 .learned = model->learned,
				 .first_token = copy_latency(model, MEDUSA_SCHED_LATENCY_FIRST_TOKEN),
				 .completion = copy_latency(model, MEDUSA_SCHED_LATENCY_COMPLETION)};
	memcpy(used->histograms, model->histograms, sizeof(used->histograms));
	memcpy(used->last_failure, model->last_failure, sizeof(used->last_failure));
	used->counted = !model->base && md_engine_memory(model->engine, &used->memory);
}

/* False: out of memory. */
static bool copy_row(struct md_reload *holder, const struct md_model *model, struct md_model_row *row)
{
	enum md_engine_state state = md_model_state(model);
	bool is_used = was_used(model, state);
	struct md_row_used *used = is_used ? malloc(sizeof(*used)) : NULL;
	if (is_used && !used)
		return false;
	md_reload_hold(holder, model->from);
	if (used)
		copy_used(model, used);
	*row = (struct md_model_row){.from = model->from, .config = model->config, .state = state, .used = used};
	return true;
}

static void free_row(struct md_reload *holder, const struct md_model_row *row)
{
	md_reload_let_go(holder, row->from);
	free(row->used);
}

const char *md_model_row_base(const struct md_model_row *row)
{
	uint32_t base = row->config->base;
	return base == MD_CONFIG_NONE ? NULL : row->from->models[base].id;
}

/* ---- all of them ---- */

static void forget(struct md_model_rows *rows)
{
	for (uint32_t i = 0; i < rows->count; i++)
		free_row(rows->holder, &rows->rows[i]);
	for (uint32_t i = 0; i < rows->left_count; i++)
		free_row(rows->holder, &rows->left[i]);
	free(rows->rows);
	free(rows->left);
	free(rows->elsewhere.bytes);
	if (rows->config)
		md_reload_let_go(rows->holder, rows->config);
	*rows = (struct md_model_rows){0};
}

static bool begin(struct md_worker *worker, struct md_model_rows *rows)
{
	rows->rows = malloc((worker->config->model_count + 1) * sizeof(*rows->rows));
	if (!rows->rows)
		return false;
	md_reload_hold(worker->reload, worker->config);
	rows->holder = worker->reload;
	rows->config = worker->config;
	return true;
}

/* A model whose engine a later one replaces is not shown beside that one. */
static bool copy_left(const struct md_worker *worker, struct md_model_rows *rows)
{
	for (const struct md_model *model = NULL; (model = md_models_each(worker, model));) {
		if (!model->retired || model->successor || md_model_state(model) == MD_ENGINE_STOPPED)
			continue;
		if (!MD_ARRAY_GROW(rows->left, rows->left_count, rows->left_room) ||
		    !copy_row(rows->holder, model, &rows->left[rows->left_count]))
			return false;
		rows->left_count++;
	}
	return true;
}

enum md_printer_step md_model_rows_copy(struct md_worker *worker, struct md_model_rows **rows)
{
	uint64_t until = md_clock_ns() + MD_WORKER_TURN_NS;
	if (md_reload_changes(worker->reload))
		return MD_PRINTER_LATER;
	struct md_model_rows *made = *rows ? *rows : calloc(1, sizeof(*made));
	*rows = made;
	if (made && made->config != worker->config)
		forget(made);
	if (!made || (!made->config && !begin(worker, made)))
		return MD_PRINTER_NO_MEMORY;
	while (made->count < made->config->model_count) {
		if (!copy_row(made->holder, worker->current[made->count], &made->rows[made->count]))
			return MD_PRINTER_NO_MEMORY;
		if (++made->count % LOOK_ROWS == 0 && md_clock_ns() > until)
			return MD_PRINTER_MORE;
	}
	bool copied = copy_left(worker, made) &&
		      md_cluster_list_names(worker->cluster, made->config->include_aliases, &made->elsewhere);
	return copied ? MD_PRINTER_DONE : MD_PRINTER_NO_MEMORY;
}

void md_model_rows_free(struct md_model_rows *rows)
{
	if (rows)
		forget(rows);
	free(rows);
}
