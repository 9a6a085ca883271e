/* SPDX-License-Identifier: Apache-2.0 */
/* Engines: which batches are one engine's, and how fast all that compute on a GPU are beside each other. */
#include <math.h>

#include "simulator/model/model_state.h"

/* ---- which batches are one engine's ------------------------------------------------------------------------------ */

/* Perhaps all that it has run has just ended, and the scheduler has not been told of all: then it begins anew. */
void md_sim_model_engine_join(struct md_sim_model *model, uint32_t index)
{
	struct batch *batch = &model->batches[index];
	const struct gpu *gpu = &model->gpus[batch->gpu];
	batch->engine = index;
	for (uint32_t i = 0; batch->joins && i < gpu->count; i++)
		if (gpu->batches[i] != index && model->batches[gpu->batches[i]].id == batch->id)
			batch->engine = model->batches[gpu->batches[i]].engine;
	model->gpus[batch->gpu].engines += batch->engine == index;
}

void md_sim_model_engine_leave(struct md_sim_model *model, uint32_t index)
{
	struct batch *batch = &model->batches[index];
	struct gpu *gpu = &model->gpus[batch->gpu];
	uint32_t heir = NONE;
	if (batch->engine != index)
		return;
	for (uint32_t i = 0; i < gpu->count; i++) {
		struct batch *other = &model->batches[gpu->batches[i]];
		if (other->engine != index)
			continue;
		heir = heir == NONE ? gpu->batches[i] : heir;
		other->engine = heir;
	}
	if (heir == NONE)
		gpu->engines--;
	else
		model->batches[heir].billed_from = gpu->share;
}

/* ---- speeds ------------------------------------------------------------------------------------------------------ */

static bool computes(const struct batch *batch)
{
	return batch->live && (batch->phase == PHASE_FIRST || batch->phase == PHASE_FURTHER);
}

void md_sim_model_settle(struct md_sim_model *model, struct batch *batch)
{
	batch->left -= batch->rate * (double)(model->now - batch->since);
	if (batch->left < batch->hold)
		batch->left = batch->hold;
	batch->since = model->now;
}

static void set_rate(struct md_sim_model *model, uint32_t index, double rate, bool anew)
{
	struct batch *batch = &model->batches[index];
	if (rate == batch->rate && !anew)
		return;
	md_sim_model_settle(model, batch);
	batch->rate = rate;
	uint64_t at = model->now + (uint64_t)llround((batch->left - batch->hold) / rate);
	md_sim_model_plan(model, at, AGENDA_COMPUTED, index, ++batch->generation);
}

/* How many batches compute their first token there, and engines further ones. */
static void count_computing(struct md_sim_model *model, uint32_t gpu, uint32_t *first, uint32_t *further)
{
	const struct gpu *place = &model->gpus[gpu];
	*first = *further = 0;
	for (uint32_t i = 0; i < place->count; i++)
		model->batches[place->batches[i]].decoding = 0;
	for (uint32_t i = 0; i < place->count; i++) {
		const struct batch *batch = &model->batches[place->batches[i]];
		struct batch *engine = &model->batches[batch->engine];
		*first += batch->phase == PHASE_FIRST;
		if (batch->phase != PHASE_FURTHER)
			continue;
		*further += !engine->decoding;
		engine->decoding += batch->count - batch->ended;
	}
}

/* Further sequences make the steps of an engine that batches by itself longer. */
static double decode_rate(const struct md_sim_model *model, const struct batch *batch, uint32_t engines)
{
	const struct md_sim_function *function = &model->functions->functions[batch->function];
	double beside = 1 + model->node->decode_share * (engines - 1.0);
	if (function->spec.continuous)
		beside *= 1 + function->sequence_share * (model->batches[batch->engine].decoding - 1.0);
	return 1 / beside;
}

void md_sim_model_share(struct md_sim_model *model, uint32_t gpu, uint32_t changed)
{
	const struct gpu *place = &model->gpus[gpu];
	uint32_t first, further;
	count_computing(model, gpu, &first, &further);
	double first_rate = 1 / (1 + model->node->prefill_share * (first ? first - 1 : 0));
	for (uint32_t i = 0; i < place->count; i++) {
		uint32_t index = place->batches[i];
		const struct batch *batch = &model->batches[index];
		if (computes(batch))
			set_rate(model, index,
				 batch->phase == PHASE_FIRST ? first_rate : decode_rate(model, batch, further),
				 index == changed);
	}
}

/* ---- tenants ----------------------------------------------------------------------------------------------------- */

static void count_seats(struct md_sim_model *model, const struct gpu *gpu)
{
	for (uint32_t i = 0; i < gpu->count; i++)
		model->batches[gpu->batches[i]].seats = 0;
	for (uint32_t i = 0; i < gpu->count; i++) {
		const struct batch *batch = &model->batches[gpu->batches[i]];
		model->batches[batch->engine].seats += batch->count - batch->ended;
	}
}

void md_sim_model_tenants(struct md_sim_model *model, uint64_t *running, double *parts)
{
	const struct md_sim_request *requests = model->options.workload->requests;
	for (uint32_t g = 0; g < model->node->gpu_count; g++) {
		const struct gpu *gpu = &model->gpus[g];
		count_seats(model, gpu);
		for (uint32_t i = 0; i < gpu->count; i++) {
			const struct batch *batch = &model->batches[gpu->batches[i]];
			double part = 1.0 / gpu->engines / model->batches[batch->engine].seats;
			for (uint32_t r = batch->ended; r < batch->count; r++) {
				running[requests[batch->requests[r]].tenant]++;
				parts[requests[batch->requests[r]].tenant] += part;
			}
		}
	}
}
