/* SPDX-License-Identifier: Apache-2.0 */
/* Learned times of engines, for the scheduler's estimates. */
#include "worker/core/learned.h"

#include "worker/core/worker.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define MS UINT64_C(1000000)
#define START_GUESS (5000 * MS)
#define SWAP_GUESS (500 * MS)
#define ADAPTER_GUESS (100 * MS)
#define FIRST_TOKEN_GUESS (50 * MS)
#define WEIGHT 4   /* a further measurement counts this part */
#define NOTABLE 16 /* changes below this part are not told */

/* ---- what is known ---- */

const char *md_learned_name(enum md_learned_kind kind)
{
	static const char *const names[MD_LEARNED_KINDS] = {
	    [MD_LEARNED_START] = "start",
	    [MD_LEARNED_SWAP_IN] = "swap_in",
	    [MD_LEARNED_LEAVE] = "leave",
	    [MD_LEARNED_FIRST_TOKEN] = "first_token",
	};
	return names[kind];
}

void md_learned_count(struct md_learned *learned, enum md_learned_kind kind, uint64_t ns)
{
	uint64_t known = learned->ns[kind];
	uint64_t estimate = known ? known - known / WEIGHT + ns / WEIGHT : ns;
	learned->ns[kind] = estimate ? estimate : 1;
}

static uint64_t first_of(uint64_t measured, uint64_t stated, uint64_t guess)
{
	return measured ? measured : stated ? stated : guess;
}

void md_learned_times(const struct md_learned *learned, const struct md_config_own *own, bool resting,
		      struct medusa_sched_function *function)
{
	const uint64_t *ns = learned->ns;
	uint64_t load = resting ? first_of(ns[MD_LEARNED_SWAP_IN], own->swap_ns, SWAP_GUESS)
				: first_of(ns[MD_LEARNED_START], own->start_ns, START_GUESS);
	function->t0_ns = first_of(ns[MD_LEARNED_FIRST_TOKEN], 0, FIRST_TOKEN_GUESS);
	function->swap_ns = load + function->t0_ns; /* the first token of a request that loads it */
	function->evict_ns = first_of(ns[MD_LEARNED_LEAVE], own->swap_ns, SWAP_GUESS);
}

/* An engine's times are those of its backbone; of its function nothing is loaded. An adapter leaves at once. */
void md_learned_split(const struct md_learned *learned, bool adapter, struct medusa_sched_function *function,
		      struct medusa_sched_backbone *backbone)
{
	if (backbone) {
		backbone->load_ns = function->swap_ns - function->t0_ns;
		backbone->evict_ns = function->evict_ns;
		function->swap_ns = 0;
	}
	if (adapter)
		function->swap_ns = first_of(learned->ns[MD_LEARNED_START], 0, ADAPTER_GUESS) + function->t0_ns;
	if (backbone || adapter)
		function->evict_ns = 0;
}

/* ---- telling ---- */

void md_learned_note(struct md_model *model, enum md_learned_kind kind, uint64_t ns)
{
	md_learned_count(&model->learned, kind, ns);
	md_learned_changed(model);
}

void md_learned_changed(struct md_model *model)
{
	struct md_worker *worker = model->worker;
	if (model->relearned)
		return;
	model->relearned = true;
	model->next_relearned = worker->relearned;
	worker->relearned = model;
}

static bool differs(uint64_t told, uint64_t now)
{
	return (told > now ? told - now : now - told) > told / NOTABLE;
}

static bool is_resting(const struct md_model *model)
{
	enum md_engine_state state = md_engine_state(model->engine);
	return model->settings.swapping != MD_ENGINE_SWAP_NEVER && state != MD_ENGINE_STOPPED &&
	       state != MD_ENGINE_STARTING && state != MD_ENGINE_STOPPING;
}

static void tell_backbone(struct md_model *model, const struct medusa_sched_backbone *backbone)
{
	const struct medusa_sched_backbone *told = &model->told_backbone;
	if (!differs(told->load_ns, backbone->load_ns) && !differs(told->evict_ns, backbone->evict_ns))
		return;
	if (medusa_sched_change_backbone(model->worker->sched, model->backbone, backbone))
		md_warn("model %s: the scheduler does not take what has changed of its engine: %s", model->id,
			medusa_sched_error(model->worker->sched));
	else
		model->told_backbone = *backbone;
}

static void tell(struct md_model *model)
{
	bool engine = model->backbone != MEDUSA_SCHED_NONE && !model->base;
	struct medusa_sched_function function = model->told;
	struct medusa_sched_backbone backbone = model->told_backbone;
	md_learned_times(&model->learned, &model->config->own, is_resting(model), &function);
	md_learned_split(&model->learned, model->base != NULL, &function, engine ? &backbone : NULL);
	if (engine)
		tell_backbone(model, &backbone);
	md_model_keep_promise(model, &model->config->own, &function);
	if (!differs(model->told.t0_ns, function.t0_ns) && !differs(model->told.swap_ns, function.swap_ns) &&
	    !differs(model->told.evict_ns, function.evict_ns) && model->told.pinned == function.pinned &&
	    model->told.min_replicas == function.min_replicas)
		return;
	if (medusa_sched_change_function(model->worker->sched, model->function, &function)) {
		md_warn("model %s: the scheduler does not take what has changed of it: %s", model->id,
			medusa_sched_error(model->worker->sched));
		return;
	}
	model->told = function;
	md_debug("model %s: the scheduler counts on %.3f s to a first token, %.3f s with a load, %.3f s to leave",
		 model->id, (double)function.t0_ns * 1e-9, (double)function.swap_ns * 1e-9,
		 (double)function.evict_ns * 1e-9);
}

void md_learned_tell(struct md_worker *worker)
{
	for (struct md_model *model; (model = worker->relearned);) {
		worker->relearned = model->next_relearned;
		model->relearned = false;
		if (model->engine && !model->gone)
			tell(model);
	}
}
