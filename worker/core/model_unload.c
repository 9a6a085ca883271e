/* SPDX-License-Identifier: Apache-2.0 */
/* Unloading that a user asks for: requests that run may end, then the engine is stopped, then the user is told. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "worker/core/worker.h"

struct md_unload {
	struct md_unload *next;
	struct md_worker *worker;
	struct md_model *model; /* NULL: all */
	void (*done)(void *context);
	void *context;
};

/*
 * Nobody can use it where it is, and the engine unloads it as soon as it is back, unless somebody asks for it. Also one who has gone again
 * meanwhile: the engine may not come back for long.
 */
static bool is_out(const struct md_model *adapter)
{
	return md_engine_state(adapter->base->engine) == MD_ENGINE_SWAPPED && !adapter->adapter.wanted;
}

static bool is_stopped(const struct md_model *model)
{
	if (model->base)
		return md_engine_state(model->base->engine) == MD_ENGINE_STOPPED || md_adapter_is_gone(model) ||
		       is_out(model);
	return !model->engine || md_engine_state(model->engine) == MD_ENGINE_STOPPED;
}

static bool is_done(const struct md_unload *unload)
{
	const struct md_worker *worker = unload->worker;
	if (unload->model)
		return is_stopped(unload->model);
	for (const struct md_model *model = NULL; (model = md_models_each(worker, model));)
		if (model->unload_at && !is_stopped(model))
			return false;
	return true;
}

void md_unload_forget(void *context)
{
	struct md_unload *unload = context, **at = &unload->worker->unloads;
	while (*at != unload)
		at = &(*at)->next;
	*at = unload->next;
	free(unload);
}

static void tell_done(struct md_worker *worker)
{
	for (struct md_unload *unload, **at = &worker->unloads; (unload = *at);) {
		if (!is_done(unload)) {
			at = &unload->next;
			continue;
		}
		*at = unload->next;
		unload->done(unload->context);
		free(unload);
	}
}

/* The scheduler learns that the adapter is not there any more, and has it leave the engine. With an engine that is out it has gone already. */
static void unload_adapter(struct md_model *adapter)
{
	enum md_engine_state state = md_engine_state(adapter->base->engine);
	if (!adapter->adapter.wanted && (state == MD_ENGINE_LEAVING || state == MD_ENGINE_SWAPPED))
		return;
	snprintf(adapter->last_failure, sizeof(adapter->last_failure), "was told to unload the adapter");
	md_model_return_jobs(adapter);
	md_decisions_post(adapter->worker, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_FUNCTION_FAILED,
								       .gpu = adapter->base->gpu,
								       .function = adapter->function});
	adapter->adapter.sent_away = true;
}

static void stop_due(struct md_worker *worker)
{
	uint64_t now = md_clock_ns();
	for (struct md_model *model = NULL; (model = md_models_each(worker, model));) {
		enum md_engine_state state = md_model_state(model);
		bool due = model->unload_at && (!md_model_all_unfinished(model) || now >= model->unload_at);
		if (!due || state == MD_ENGINE_STOPPED || state == MD_ENGINE_STOPPING || model->adapter.sent_away)
			continue;
		if (model->base)
			unload_adapter(model);
		else
			md_engine_stop(model->engine);
	}
}

void md_unload_look(struct md_worker *worker)
{
	stop_due(worker);
	tell_done(worker);
	for (struct md_model *model = NULL; (model = md_models_each(worker, model));)
		if (is_stopped(model))
			model->unload_at = 0;
}

struct md_unload *md_unload_begin(struct md_worker *worker, struct md_model *model, void (*done)(void *context),
				  void *context)
{
	struct md_unload *unload = calloc(1, sizeof(*unload));
	if (!unload)
		return NULL;
	*unload = (struct md_unload){
	    .next = worker->unloads, .worker = worker, .model = model, .done = done, .context = context};
	worker->unloads = unload;
	for (struct md_model *at = NULL; (at = md_models_each(worker, at));)
		if (!model || model == at || at->base == model) {
			at->unwanted = true;
			md_model_keep_changed(at);
			at->unload_at = md_clock_ns() + at->config->unload_ns;
		}
	return unload;
}
