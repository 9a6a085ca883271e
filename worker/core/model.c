/* SPDX-License-Identifier: Apache-2.0 */
/* A model's engine does what the scheduler decides, and the scheduler is told when it is done. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "worker/core/worker.h"

#define MD_LOG_DOMAIN "worker"
#include "base/log.h"

static void post(struct md_model *model, enum medusa_sched_event_type type, uint64_t *transfer)
{
	struct medusa_sched_event event = {.type = type, .transfer = *transfer};
	*transfer = 0;
	md_decisions_post(model->worker, event);
}

/* ---- what the scheduler wants ---- */

void md_model_load(struct md_model *model, uint32_t gpu, uint64_t transfer)
{
	const struct md_config_node *node = &model->worker->config->node;
	model->gpu = gpu;
	model->transfer_in = transfer;
	if (gpu < node->gpu_count && node->gpus[gpu].uuid)
		snprintf(model->visible, sizeof(model->visible), "CUDA_VISIBLE_DEVICES=%.100s", node->gpus[gpu].uuid);
	if (md_engine_state(model->engine) == MD_ENGINE_READY) {
		post(model, MEDUSA_SCHED_EVENT_TRANSFER_DONE, &model->transfer_in);
		return;
	}
	model->starts++;
	model->load_began = md_clock_ns();
	md_engine_start(model->engine);
}

void md_model_unload(struct md_model *model, uint64_t transfer, bool whole)
{
	enum md_engine_state state = md_engine_state(model->engine);
	model->transfer_out = transfer;
	model->out_whole = whole;
	if (state == MD_ENGINE_STOPPED || (state == MD_ENGINE_SWAPPED && !whole))
		post(model, MEDUSA_SCHED_EVENT_EVICTED, &model->transfer_out);
	else if (whole || state != MD_ENGINE_READY)
		md_engine_stop(model->engine);
	else
		md_engine_leave(model->engine);
}

/* ---- what the engine has done ---- */

static void forward_granted(struct md_model *model)
{
	while (model->granted) {
		struct md_worker_job *job = model->granted;
		model->granted = job->next;
		md_job_forward(job);
	}
}

static void is_ready(struct md_model *model)
{
	md_metrics_note(&model->loads, md_clock_ns() - model->load_began);
	if (model->transfer_in)
		post(model, MEDUSA_SCHED_EVENT_TRANSFER_DONE, &model->transfer_in);
	forward_granted(model);
}

static void return_jobs(struct md_model *model);

/* The engine was told to leave, or to end while it was on its way in. */
static void is_away(struct md_model *model)
{
	bool told = model->transfer_in || model->transfer_out;
	if (md_engine_state(model->engine) == MD_ENGINE_STOPPED) {
		snprintf(model->last_failure, sizeof(model->last_failure), "was unloaded");
		return_jobs(model);
	}
	if (model->transfer_out)
		post(model, MEDUSA_SCHED_EVENT_EVICTED, &model->transfer_out);
	if (model->transfer_in)
		post(model, MEDUSA_SCHED_EVENT_TRANSFER_FAILED, &model->transfer_in);
	if (!told)
		md_decisions_post(model->worker, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_FAILED,
									     .gpu = model->gpu,
									     .function = model->function});
}

static void on_settled(void *context)
{
	struct md_model *model = context;
	if (md_engine_state(model->engine) == MD_ENGINE_READY)
		is_ready(model);
	else
		is_away(model);
}

/* Requests that were granted or run end here, or wait for what the scheduler makes of them. */
static void return_jobs(struct md_model *model)
{
	size_t count;
	struct md_worker_job **jobs = md_job_list(model->worker, &count);
	for (size_t i = 0; i < count; i++)
		if (jobs[i]->model == model && jobs[i]->stage != MD_JOB_WAITING)
			md_job_return(jobs[i]);
	free(jobs);
}

static void on_failed(void *context, const char *why)
{
	struct md_model *model = context;
	snprintf(model->last_failure, sizeof(model->last_failure), "%s", why);
	model->failures++;
	md_warn("model %s: its engine %s (state: %s; its output: %s)", model->id, why,
		md_engine_state_name(md_engine_state(model->engine)), md_log_file_path(model->log));
	if (model->transfer_out && md_engine_state(model->engine) == MD_ENGINE_READY) {
		md_engine_stop(model->engine); /* its memory must go all the same */
		return;
	}
	return_jobs(model);
	if (model->transfer_out)
		post(model, MEDUSA_SCHED_EVENT_EVICTED, &model->transfer_out);
	if (model->transfer_in)
		post(model, MEDUSA_SCHED_EVENT_TRANSFER_FAILED, &model->transfer_in);
	else if (!model->transfer_out)
		md_decisions_post(model->worker, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_FAILED,
									     .gpu = model->gpu,
									     .function = model->function});
}

static void on_changed(void *context)
{
	struct md_model *model = context;
	md_unload_look(model->worker);
	md_info("model %s: %s", model->id, md_engine_state_name(md_engine_state(model->engine)));
}

const struct md_engine_events md_model_events = {.settled = on_settled, .failed = on_failed, .changed = on_changed};
