/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cluster/standing.h"

#include <math.h>
#include <string.h>

#include "worker/cluster/cluster_contents.h"
#include "worker/core/worker.h"

#define STEP 1.25 /* from one number of seconds that is told to the next */
#define MEMORY_S 120.0
#define LEAST (1.0 / 1024) /* what is less is told as 0 */

static const char *const names[MD_PLACES] = {"gpu", "host", "loading", "disk", "nowhere"};

const char *md_place_name(enum md_place place)
{
	return names[place];
}

bool md_place_find(const char *name, enum md_place *place)
{
	for (unsigned i = 0; name && i < MD_PLACES; i++)
		if (!strcmp(names[i], name)) {
			*place = (enum md_place)i;
			return true;
		}
	return false;
}

/* ---- of a model of this node ---- */

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

/* ---- for others ---- */

static uint32_t floor_of(uint32_t count)
{
	uint32_t power = 1;
	while (power <= count / 2)
		power *= 2;
	return count ? power : 0;
}

void md_standing_round(struct md_standing *standing)
{
	standing->waiting = floor_of(standing->waiting);
	standing->running = floor_of(standing->running);
	for (unsigned i = 0; i < MD_STARTS; i++)
		if (standing->first_s[i] > 0)
			standing->first_s[i] = pow(STEP, round(log(standing->first_s[i]) / log(STEP)));
}

bool md_standing_equal(const struct md_standing *a, const struct md_standing *b)
{
	bool equal = a->place == b->place && a->waiting == b->waiting && a->running == b->running &&
		     !(a->rate < b->rate) && !(a->rate > b->rate) && !(a->busy < b->busy) && !(a->busy > b->busy);
	for (unsigned i = 0; i < MD_STARTS; i++)
		equal = equal && fabs(a->first_s[i] - b->first_s[i]) <= 1e-3 * b->first_s[i];
	return equal;
}

/* What is told changes only when it is off by a factor of two, so that what moves slowly is not told over and over. */
static double tell(double now, double told)
{
	if (told > 0 && now >= told / 2 && now < told * 2)
		return told;
	return now < LEAST ? 0 : exp2(floor(log2(now)));
}

void md_demand_note(struct md_demand *demand, uint64_t taken, uint32_t there, double seconds)
{
	uint64_t come = taken - demand->taken;
	if (!(seconds > 0) || (!come && !there && !(demand->rate > 0) && !(demand->busy > 0)))
		return;
	double part = 1 - exp(-seconds / MEMORY_S);
	demand->taken = taken;
	demand->rate += part * ((double)come / seconds - demand->rate);
	demand->busy += part * (there - demand->busy);
	demand->told_rate = tell(demand->rate, demand->told_rate);
	demand->told_busy = tell(demand->busy, demand->told_busy);
	if (demand->rate < LEAST / 1024 && demand->busy < LEAST / 1024)
		demand->rate = demand->busy = 0;
}

/* Of a load that is under way, half of it is still to come, as far as anybody knows. */
double md_standing_expected_s(const struct md_standing *standing)
{
	const double *first = standing->first_s;
	double wait = standing->waiting * first[MD_START_GPU];
	switch (standing->place) {
	case MD_PLACE_GPU:
		return first[MD_START_GPU] + wait;
	case MD_PLACE_HOST:
		return first[MD_START_HOST] + wait;
	case MD_PLACE_LOADING:
		return first[MD_START_DISK] / 2 + wait;
	case MD_PLACE_DISK:
		return first[MD_START_DISK] + wait;
	case MD_PLACE_NOWHERE:
		break;
	}
	return MD_STANDING_NEVER;
}
