/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/naming.h"

#include <string.h>

/* ---- selectors ---- */

static struct md_model *model_of(const struct md_worker *worker, const struct md_config_target *target)
{
	return target->kind == MD_CONFIG_MODEL ? worker->current[target->index] : NULL;
}

static uint32_t unfinished_of(const struct md_worker *worker, const struct md_config_target *target)
{
	const struct md_model *model = model_of(worker, target);
	return model ? model->unfinished : md_peer_unfinished(worker->peers, target->index, target->name);
}

/* A peer's model may be loaded or not: nobody knows, and it costs nothing here. */
static bool is_active(const struct md_worker *worker, const struct md_config_target *target)
{
	const struct md_model *model = model_of(worker, target);
	enum md_engine_state state = model ? md_model_state(model) : MD_ENGINE_READY;
	return state == MD_ENGINE_READY || state == MD_ENGINE_STARTING;
}

/* Whether its engine fails, so that a request would only be told that. */
static bool rests(const struct md_worker *worker, const struct md_config_target *target)
{
	struct md_model *model = model_of(worker, target);
	return model && md_model_keep_rest(md_model_with_engine(model));
}

/* How good a target of warm is: the first of the best ones is taken. */
static unsigned warmth(const struct md_worker *worker, const struct md_config_target *target)
{
	const struct md_model *model = model_of(worker, target);
	if (rests(worker, target))
		return 0;
	enum md_engine_state state = model ? md_model_state(model) : MD_ENGINE_STOPPED;
	return state == MD_ENGINE_READY ? 3 : state == MD_ENGINE_STARTING ? 2 : 1;
}

static const struct md_config_target *choose_warm(const struct md_worker *worker,
						  const struct md_config_selector *selector)
{
	const struct md_config_target *best = &selector->targets[0];
	for (uint32_t i = 1; i < selector->target_count; i++)
		if (warmth(worker, &selector->targets[i]) > warmth(worker, best))
			best = &selector->targets[i];
	return best;
}

static const struct md_config_target *choose_spillover(const struct md_worker *worker,
						       const struct md_config_selector *selector)
{
	const struct md_config_target *active = NULL, *cold = NULL, *least = NULL;
	for (uint32_t i = 0; i < selector->target_count; i++) {
		const struct md_config_target *target = &selector->targets[i];
		if (rests(worker, target))
			continue;
		uint32_t busy = unfinished_of(worker, target);
		if (!least || busy < unfinished_of(worker, least))
			least = target;
		if (!is_active(worker, target))
			cold = cold ? cold : target;
		else if (busy < selector->spillover && (!active || busy < unfinished_of(worker, active)))
			active = target;
	}
	if (!least)
		return &selector->targets[0];
	return active ? active : cold ? cold : least;
}

static const struct md_config_target *choose(const struct md_worker *worker, const struct md_config_selector *selector)
{
	switch (selector->strategy) {
	case MD_CONFIG_WARM:
		return choose_warm(worker, selector);
	case MD_CONFIG_SPILLOVER:
		return choose_spillover(worker, selector);
	default:
		return &selector->targets[0];
	}
}

/* ---- names ---- */

static bool take(struct md_worker *worker, const struct md_config_target *target, struct md_named *named)
{
	if (target->kind == MD_CONFIG_MODEL) {
		named->model = worker->current[target->index];
	} else if (target->kind == MD_CONFIG_PEER) {
		named->peer = target->index;
		named->peer_model = target->name;
		named->name = target->name;
	} else {
		return false;
	}
	return true;
}

static enum md_naming find(struct md_worker *worker, const char *name, bool selects, struct md_named *named)
{
	const struct md_worker_config *config = worker->config;
	const struct md_config_profile *profile =
	    worker->profile ? md_config_find_profile(config, worker->profile) : NULL;
	const struct md_config_pin *pin = profile ? md_config_find_pin(profile, name) : NULL;
	*named = (struct md_named){.name = pin ? pin->target : NULL};
	if (pin && !pin->target)
		return MD_NAMING_DISABLED;
	struct md_config_target target = md_config_find(config, pin ? pin->target : name);
	if (target.kind == MD_CONFIG_SELECTOR && selects) {
		const struct md_config_target *chosen = choose(worker, &config->selectors[target.index]);
		named->name = chosen->name;
		target = *chosen;
	}
	return take(worker, &target, named) ? MD_NAMING_FOUND : MD_NAMING_UNKNOWN;
}

enum md_naming md_naming_find(struct md_worker *worker, const char *name, struct md_named *named)
{
	return find(worker, name, true, named);
}

enum md_naming md_naming_find_one(struct md_worker *worker, const char *name, struct md_named *named)
{
	return find(worker, name, false, named);
}
