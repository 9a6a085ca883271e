/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/standing.h"

#include "worker/cluster/cluster_contents.h"
#include "worker/cluster/prefixes.h"
#include "worker/core/worker.h"

/* An adapter's engine may have to come first. */
static void time_starts(const struct md_model *model, const struct md_learned *learned,
			const struct md_learned *of_engine, double first_s[MD_STARTS])
{
	const struct md_model *host = model->base ? model->base : model;
	struct medusa_sched_function back = {0}, start = {0}, adapter = {0};
	md_learned_times(of_engine, &host->config->own, true, &back);
	md_learned_times(of_engine, &host->config->own, false, &start);
	first_s[MD_START_GPU] = (double)back.t0_ns * 1e-9;
	first_s[MD_START_HOST] = (double)back.swap_ns * 1e-9;
	first_s[MD_START_DISK] = (double)start.swap_ns * 1e-9;
	if (!model->base)
		return;
	md_learned_times(learned, &model->config->own, false, &adapter);
	md_learned_split(learned, true, &adapter, NULL);
	first_s[MD_START_GPU] = (double)adapter.t0_ns * 1e-9;
	first_s[MD_START_HOST] = (double)adapter.swap_ns * 1e-9;
	first_s[MD_START_DISK] += first_s[MD_START_HOST];
}

static enum md_place place_of(const struct md_model *model)
{
	const struct md_model *host = model->base ? model->base : model;
	bool stopped = md_engine_state(host->engine) == MD_ENGINE_STOPPED;
	if (md_model_keep_rest(host) || (stopped && md_contents_missing_s(host) >= MD_STANDING_NEVER))
		return MD_PLACE_NOWHERE;
	switch (md_model_state(model)) {
	case MD_ENGINE_READY:
		return MD_PLACE_GPU;
	case MD_ENGINE_STARTING:
		return MD_PLACE_LOADING;
	case MD_ENGINE_LEAVING:
	case MD_ENGINE_SWAPPED:
	case MD_ENGINE_RETURNING:
		return model->settings.swapping == MD_ENGINE_SWAP_NEVER && !model->base ? MD_PLACE_DISK : MD_PLACE_HOST;
	case MD_ENGINE_STOPPED:
	case MD_ENGINE_STOPPING:
		break;
	}
	return model->base && md_engine_state(host->engine) == MD_ENGINE_READY ? MD_PLACE_HOST : MD_PLACE_DISK;
}

void md_standing_of(const struct md_model *model, struct md_standing *standing)
{
	const struct md_learned *engine = model->base ? &model->base->learned : &model->learned;
	*standing = (struct md_standing){.place = place_of(model)};
	time_starts(model, &model->learned, engine, standing->first_s);
	double missing_s = md_contents_missing_s(model->base ? model->base : model);
	if (missing_s < MD_STANDING_NEVER)
		standing->first_s[MD_START_DISK] += missing_s;
	standing->lacks = missing_s > 0;
	md_prefixes_standing(model, standing);
	struct medusa_sched_function_state state = {.size = sizeof(state)};
	if (!model->unfinished || medusa_sched_function_get(model->worker->sched, model->function, &state))
		return;
	standing->running = state.running;
	standing->waiting = model->unfinished > state.running ? model->unfinished - state.running : 0;
}

void md_standing_unused(const struct md_model *model, struct md_standing *standing)
{
	static const struct md_learned nothing;
	*standing = (struct md_standing){.place = MD_PLACE_DISK};
	time_starts(model, &nothing, &nothing, standing->first_s);
}
