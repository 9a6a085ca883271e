/* SPDX-License-Identifier: Apache-2.0 */
/* A model's engine does what the scheduler decides, and the scheduler is told when it is done. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "worker/accounting/account.h"
#include "worker/cluster/cluster_contents.h"
#include "worker/core/adopt.h"
#include "worker/core/shared_backbone.h"
#include "worker/core/sharers.h"
#include "worker/core/worker.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

static void post(struct md_model *model, enum medusa_sched_event_type type, uint64_t *transfer)
{
	struct medusa_sched_event event = {
	    .type = type, .transfer = *transfer, .function = model->function, .gpu = model->gpu};
	if (!*transfer)
		return; /* it was to be done at once, and has no end that the scheduler waits for */
	*transfer = 0;
	md_decisions_post(model->worker, event);
}

static void post_failed(struct md_model *model)
{
	bool backbone = model->backbone != MEDUSA_SCHED_NONE;
	md_decisions_post(model->worker,
			  (struct medusa_sched_event){.type = backbone ? MEDUSA_SCHED_EVENT_BACKBONE_FAILED
								       : MEDUSA_SCHED_EVENT_FUNCTION_FAILED,
						      .gpu = model->gpu,
						      .backbone = model->backbone,
						      .function = model->function});
}

enum md_engine_state md_model_state(const struct md_model *model)
{
	if (!model->base)
		return md_engine_state(model->engine);
	if (model->adapter.call.http)
		return model->adapter.loading ? MD_ENGINE_STARTING : MD_ENGINE_STOPPING;
	return model->adapter.has ? md_engine_state(model->base->engine) : MD_ENGINE_STOPPED;
}

uint32_t md_model_all_unfinished(const struct md_model *model)
{
	uint32_t unfinished = model->unfinished;
	for (const struct md_model *adapter = model->host.first; adapter; adapter = adapter->adapter.next)
		unfinished += adapter->unfinished;
	return unfinished;
}

struct md_model *md_model_newest(struct md_model *model)
{
	while (model->successor)
		model = model->successor;
	return model;
}

/* ---- what the scheduler wants ---- */

/*
 * An engine of an earlier configuration, or of an earlier daemon, has the port, and what else a model has one of; or the
 * model's own, which a user has told to end.
 */
static bool is_occupied(const struct md_model *model)
{
	if (model->coming || model->adopting || md_adopt_has_strays(model->worker) ||
	    md_engine_state(model->engine) == MD_ENGINE_STOPPING)
		return true;
	for (const struct md_model *old = NULL; (old = md_models_next(model->worker, old)) && old < model;)
		if (old->retired && (old->load_waits || md_engine_state(old->engine) != MD_ENGINE_STOPPED) &&
		    !strcmp(old->id, model->id))
			return true;
	return false;
}

/* A process that runs has them. Of files that will not come the load fails in a later turn (look_at). */
static bool lacks_files(struct md_model *model)
{
	if (md_engine_state(model->engine) != MD_ENGINE_STOPPED)
		return false;
	enum md_contents_state state = md_contents_want(model);
	if (state == MD_CONTENTS_LACKS)
		event_active(model->worker->look, EV_TIMEOUT, 0);
	return state != MD_CONTENTS_HERE;
}

static void start(struct md_model *model)
{
	model->pretended = false;
	model->load_waits = is_occupied(model) || lacks_files(model);
	if (model->load_waits || md_engine_state(model->engine) == MD_ENGINE_READY)
		return;
	md_model_newest(model)->starts++;
	model->load_began = md_clock_ns();
	model->load_swaps = md_engine_state(model->engine) == MD_ENGINE_SWAPPED;
	model->lives += !model->load_swaps;
	md_engine_start(model->engine);
	model->load_crowd = md_crowd_begin(model->worker);
}

static void name_gpu(struct md_model *model)
{
	const char *name = md_gpus_visible(model->worker->gpus, model->gpu);
	if (name)
		snprintf(model->visible, sizeof(model->visible), "CUDA_VISIBLE_DEVICES=%s", name);
}

static void begin_load(struct md_model *model, uint32_t gpu, uint64_t transfer)
{
	model->gpu = gpu;
	model->transfer_in = transfer;
	name_gpu(model);
	if (md_engine_state(model->engine) == MD_ENGINE_READY)
		post(model, MEDUSA_SCHED_EVENT_TRANSFER_DONE, &model->transfer_in);
	else
		start(model);
}

/* As far as it can now: an engine that serves ends when the scheduler wants its memory there. */
static void move_on(struct md_model *model)
{
	enum md_engine_state state = md_engine_state(model->engine);
	if (!model->moves || model->transfer_in || model->transfer_out || model->worker->ending)
		return;
	if (state == MD_ENGINE_SWAPPED)
		md_engine_stop(model->engine);
	if (state != MD_ENGINE_STOPPED)
		return;
	model->moves = false;
	begin_load(model, model->next_gpu, model->next_transfer);
}

/* A process has its GPU for life: on another one, the model needs another process, after this one has ended. */
void md_model_load(struct md_model *model, uint32_t gpu, uint64_t transfer)
{
	enum md_engine_state state = md_engine_state(model->engine);
	if (model->worker->ending)
		return;
	if (gpu == model->gpu || (state == MD_ENGINE_STOPPED && !model->transfer_in && !model->transfer_out)) {
		begin_load(model, gpu, transfer);
		return;
	}
	model->moves = true;
	model->next_gpu = gpu;
	model->next_transfer = transfer;
	move_on(model);
}

/* The GPU keeps room for the model, and gives it to others at once. */
void md_model_preload(struct md_model *model, uint32_t gpu, uint64_t transfer)
{
	if (!model->unwanted || model->worker->ending || md_engine_state(model->engine) != MD_ENGINE_STOPPED) {
		md_model_load(model, gpu, transfer);
		return;
	}
	model->gpu = gpu;
	model->pretended = true;
	post(model, MEDUSA_SCHED_EVENT_TRANSFER_DONE, &transfer);
}

void md_model_want(struct md_model *model)
{
	if (model->base) {
		md_adapter_want(model);
		model = model->base;
	}
	if (!model->pretended || model->worker->ending || md_engine_state(model->engine) != MD_ENGINE_STOPPED)
		return;
	name_gpu(model);
	start(model);
}

void md_model_forget(struct md_model *model, uint64_t transfer)
{
	if (transfer)
		post(model, MEDUSA_SCHED_EVENT_EVICTED, &transfer);
}

/* A call for an adapter ends before, which its engine could not answer while its memory is away. */
void md_model_leave(struct md_model *model)
{
	if (md_adapter_engine_is_busy(model)) {
		model->host.leaves = true;
		return;
	}
	model->leave_began = md_clock_ns();
	md_engine_leave(model->engine);
}

void md_model_unload(struct md_model *model, uint64_t transfer, bool whole)
{
	enum md_engine_state state = model->engine ? md_engine_state(model->engine) : MD_ENGINE_STOPPED;
	/* adopted, it went out unasked, which for the scheduler is the end of its process: that is well */
	bool is_well = model->adopts_memory && state == MD_ENGINE_SWAPPED;
	model->adopts_memory = false;
	whole = (whole && !is_well) || model->gone || md_gpus_is_drained(model->worker->gpus, model->gpu);
	model->transfer_out = transfer;
	model->out_whole = whole;
	model->pretended = false;
	if (model->load_waits && model->transfer_in)
		post(model, MEDUSA_SCHED_EVENT_TRANSFER_FAILED, &model->transfer_in);
	model->load_waits = false;
	if (state == MD_ENGINE_STOPPED || (state == MD_ENGINE_SWAPPED && !whole))
		post(model, MEDUSA_SCHED_EVENT_EVICTED, &model->transfer_out);
	else if (model->adopting && !whole)
		return; /* once it is known to be well, it leaves */
	else if (whole || state != MD_ENGINE_READY)
		md_engine_stop(model->engine);
	else
		md_model_leave(model);
}

/* ---- what the engine has done ---- */

void md_model_forward_granted(struct md_model *model)
{
	struct md_worker_job *job, **at = &model->granted;
	if (model->base && !md_adapter_is_ready(model))
		return;
	while ((job = *at)) {
		if (job->gpu != md_model_with_engine(model)->gpu) { /* for the engine that comes after this one */
			at = &job->next;
			continue;
		}
		*at = job->next;
		md_job_forward(job);
	}
}

static void note_load(struct md_model *model)
{
	uint64_t now = md_clock_ns(), took = now - model->load_began;
	model->last_load.began = model->load_began;
	model->last_load.ended = now;
	md_metrics_note(&md_model_newest(model)->histograms[MD_MODEL_LOADS], took);
	if (model->load_swaps)
		md_learned_note(model, MD_LEARNED_SWAP_IN, took);
	else
		md_learned_note(model, MD_LEARNED_START, md_crowd_alone_ns(model, took));
	model->load_began = 0;
}

static void is_ready(struct md_model *model, bool adopted)
{
	if (model->load_began) /* else it is adopted */
		note_load(model);
	md_model_keep_ready(model);
	if (model->transfer_in)
		post(model, MEDUSA_SCHED_EVENT_TRANSFER_DONE, &model->transfer_in);
	md_sharers_are_there(model);
	md_account_load(model);
	md_model_forward_granted(model);
	md_adapter_engine_ready(model, adopted);
}

/* The engine was told to leave, or to end while it was on its way in. */
static void is_away(struct md_model *model)
{
	bool told = model->transfer_in || model->transfer_out;
	md_sharers_are_gone(model);
	if (model->leave_began)
		md_learned_note(model, MD_LEARNED_LEAVE, md_clock_ns() - model->leave_began);
	model->leave_began = 0;
	if (md_engine_state(model->engine) == MD_ENGINE_STOPPED) {
		if (model->load_waits) { /* for this end */
			event_active(model->worker->look, EV_TIMEOUT, 0);
			return;
		}
		snprintf(model->last_failure, sizeof(model->last_failure), "was unloaded");
		md_model_return_jobs(model);
	}
	if (model->transfer_out)
		post(model, MEDUSA_SCHED_EVENT_EVICTED, &model->transfer_out);
	if (model->transfer_in)
		post(model, MEDUSA_SCHED_EVENT_TRANSFER_FAILED, &model->transfer_in);
	if (!told) /* also of one that is gone: its requests may wait to be tried again */
		post_failed(model);
	if (md_engine_state(model->engine) == MD_ENGINE_STOPPED)
		md_adapter_engine_gone(model, false);
	move_on(model);
}

static void on_settled(void *context)
{
	struct md_model *model = context;
	enum md_engine_state state = md_engine_state(model->engine);
	bool adopted = model->adopting;
	model->adopting = false;
	if (adopted && model->load_waits)
		event_active(model->worker->look, EV_TIMEOUT, 0);
	if (state == MD_ENGINE_READY && adopted && model->transfer_out)
		md_model_leave(model);
	else if (state == MD_ENGINE_READY)
		is_ready(model, adopted);
	else if (!adopted || state != MD_ENGINE_SWAPPED || model->transfer_out || model->adopts_memory)
		is_away(model);
	/* else it is where the scheduler believes it to be */
}

/* Requests that were granted to this engine, or run, end here, or wait for what the scheduler makes of them. */
void md_model_return_jobs(struct md_model *model)
{
	size_t count;
	struct md_worker_job **jobs = md_job_list(model->worker, &count);
	for (size_t i = 0; i < count; i++)
		if ((jobs[i]->model == model || jobs[i]->model->base == model) && jobs[i]->stage != MD_JOB_WAITING &&
		    jobs[i]->gpu == md_model_with_engine(model)->gpu)
			md_job_return(jobs[i], model);
	free(jobs);
}

static void on_failed(void *context, const char *why)
{
	struct md_model *model = context;
	snprintf(model->last_failure, sizeof(model->last_failure), "%s", why);
	md_model_newest(model)->failures++;
	md_warn("model %s: its engine %s (state: %s; its output: %s)", model->id, why,
		md_engine_state_name(md_engine_state(model->engine)), md_log_file_path(model->log));
	if (model->transfer_out && md_engine_state(model->engine) == MD_ENGINE_READY) {
		md_engine_stop(model->engine); /* its memory must go all the same */
		return;
	}
	bool adopted = model->adopting;
	model->adopting = false;
	if (adopted && model->load_waits) { /* nothing was lost: what was to be swapped in starts */
		event_active(model->worker->look, EV_TIMEOUT, 0);
		return;
	}
	model->leave_began = 0;
	model->load_waits = false;
	md_sharers_are_gone(model);
	md_model_keep_failed(model);
	model->hopeless = model->load_began && md_engine_was_overdue(model->engine);
	model->fails = true;
	md_model_return_jobs(model);
	model->fails = model->hopeless = false;
	model->load_began = 0;
	if (model->transfer_out)
		post(model, MEDUSA_SCHED_EVENT_EVICTED, &model->transfer_out);
	if (model->transfer_in)
		post(model, MEDUSA_SCHED_EVENT_TRANSFER_FAILED, &model->transfer_in);
	else if (!model->transfer_out)
		post_failed(model);
	md_adapter_engine_gone(model, true);
	move_on(model);
}

/* ---- models that the configuration does not have any more ---- */

/* Without a successor its requests are served first; with one, only those that run are left to it. */
static void leave_scheduler(struct md_model *model)
{
	if (model->gone || (model->unfinished && !model->successor))
		return;
	model->gone = true;
	md_decisions_post(model->worker, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_GONE,
								     .function = model->function});
}

void md_model_retire(struct md_model *model, struct md_model *successor)
{
	model->retired = true;
	model->successor = successor;
	leave_scheduler(model);
}

/* An adapter's requests have ended: it leaves its engine, also if the scheduler does not know that it is there. */
static void end_retired_adapter(struct md_model *model)
{
	leave_scheduler(model);
	if (!model->gone || model->unfinished)
		return;
	if (md_adapter_is_gone(model))
		md_models_free(model);
	else if (model->adapter.wanted)
		md_adapter_unload(model, 0);
}

static void fail_load(struct md_model *model)
{
	char why[440];
	model->load_waits = false;
	snprintf(why, sizeof(why), "was not started: its files are not here: %.380s", md_contents_why(model));
	on_failed(model, why);
}

/* An engine ends when it has nothing to do, also if it has no memory that the scheduler could want. */
static void end_retired(struct md_model *model)
{
	enum md_engine_state state = md_engine_state(model->engine);
	leave_scheduler(model);
	if (!model->gone || md_model_all_unfinished(model))
		return;
	if (model->load_waits && model->transfer_in)
		post(model, MEDUSA_SCHED_EVENT_TRANSFER_FAILED, &model->transfer_in);
	model->load_waits = false;
	if (model->moves) {
		model->gpu = model->next_gpu;
		post(model, MEDUSA_SCHED_EVENT_TRANSFER_FAILED, &model->next_transfer);
	}
	model->moves = false;
	if (state != MD_ENGINE_STOPPED && state != MD_ENGINE_STOPPING)
		md_engine_stop(model->engine);
	else if (state == MD_ENGINE_STOPPED && !model->transfer_in && !model->transfer_out && !model->host.first)
		md_models_free(model);
}

static void look_at(struct md_model *model)
{
	if (model->load_waits && (md_model_all_unfinished(model) || !model->gone)) {
		if (is_occupied(model) || md_contents_want(model) != MD_CONTENTS_LACKS)
			start(model);
		else
			fail_load(model);
	}
	if (model->retired && model->base)
		end_retired_adapter(model);
	else if (model->retired)
		end_retired(model);
}

void md_model_look_on(struct md_worker *worker)
{
	uint64_t until = md_clock_ns() + MD_WORKER_TURN_NS;
	struct md_model *model = worker->looked;
	while ((model = md_models_each(worker, model))) {
		bool busy = model->load_waits || model->retired;
		worker->looked = model;
		look_at(model);
		if (busy && md_clock_ns() > until && !event_add(worker->look_on, &(struct timeval){.tv_usec = 0}))
			return;
	}
	worker->looked = NULL;
	if (worker->look_again)
		event_add(worker->look_on, &(struct timeval){.tv_usec = 0});
	worker->look_again = false;
}

void md_model_look(struct md_worker *worker)
{
	if (worker->looked) /* those that were looked at may be other than they were */
		worker->look_again = true;
	else
		md_model_look_on(worker);
}

static void on_changed(void *context)
{
	struct md_model *model = context;
	md_adopt_note(model);
	md_unload_look(model->worker);
	md_shared_backbone_look(model->worker);
	md_learned_changed(model);
	if (model->retired)
		event_active(model->worker->look, EV_TIMEOUT, 0);
	md_info("model %s: %s", model->id, md_engine_state_name(md_engine_state(model->engine)));
}

static void on_crowded(void *context)
{
	md_pool_is_full(context);
}

static int output(void *context)
{
	struct md_model *model = context;
	return md_log_file_output(model->log);
}

const struct md_engine_events md_model_events = {
    .settled = on_settled, .failed = on_failed, .changed = on_changed, .crowded = on_crowded, .output = output};
