/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/crowd.h"

#include <math.h>

#include "base/clock.h"
#include "worker/core/worker.h"

#define WEIGHT 0.25 /* of a further measurement */
#define ALONE 0.1   /* others, in the mean, that count as none */
#define CROWDED 0.5 /* of which something is learned */

static uint32_t count_starting(const struct md_worker *worker)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < worker->config->model_count; i++) {
		const struct md_model *model = worker->current[i];
		count += model->engine && !model->base && md_engine_state(model->engine) == MD_ENGINE_STARTING;
	}
	return count;
}

/* The number was the same since the last look, because starts begin and end with one; of those that fail it is known soon. */
void md_crowd_look(struct md_worker *worker)
{
	struct md_crowd *crowd = &worker->crowd;
	uint64_t now = md_clock_ns();
	if (crowd->since)
		crowd->sum += (double)crowd->starting * (double)(now - crowd->since);
	crowd->since = now;
	crowd->starting = count_starting(worker);
}

static double slows(const struct md_crowd *crowd)
{
	return crowd->learned ? crowd->slows : MD_LOADS_SLOW;
}

struct md_loads md_crowd_now(const struct md_worker *worker)
{
	return (struct md_loads){.count = worker->crowd.starting, .slows = slows(&worker->crowd)};
}

double md_crowd_begin(struct md_worker *worker)
{
	md_crowd_look(worker);
	return worker->crowd.sum;
}

uint64_t md_crowd_alone_ns(struct md_model *model, uint64_t took)
{
	struct md_crowd *crowd = &model->worker->crowd;
	uint64_t known = model->learned.ns[MD_LEARNED_START];
	md_crowd_look(model->worker);
	double others = took ? (crowd->sum - model->load_crowd) / (double)took - 1 : 0;
	if (!(others > ALONE))
		return took;
	if (known && others >= CROWDED) {
		double found = ((double)took / (double)known - 1) / others;
		found = fmin(fmax(found, 0), 1);
		crowd->slows = crowd->learned ? crowd->slows + WEIGHT * (found - crowd->slows) : found;
		crowd->learned = true;
	}
	return (uint64_t)((double)took / (1 + slows(crowd) * others));
}
