/* SPDX-License-Identifier: Apache-2.0 */
/* Batches: what they wait for, when their requests end, which function is billed. */
#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "simulator/model/model_state.h"

static uint32_t batch_new(struct md_sim_model *model)
{
	uint32_t index = model->free_batch;
	if (index != NONE) {
		model->free_batch = model->batches[index].next_free;
		return index;
	}
	if (!MD_ARRAY_GROW(model->batches, model->batch_count, model->batch_capacity)) {
		model->failed = true;
		return NONE;
	}
	index = model->batch_count++;
	model->batches[index] = (struct batch){0};
	return index;
}

/* Each of the engines on a GPU is billed its part of the time. */
static void bill(struct md_sim_model *model, uint32_t gpu)
{
	struct gpu *place = &model->gpus[gpu];
	double past = (double)(model->now - place->since);
	if (place->count) {
		place->busy += past;
		place->share += past / place->engines;
	}
	place->since = model->now;
}

static bool join_gpu(struct md_sim_model *model, uint32_t gpu, uint32_t index)
{
	struct gpu *place = &model->gpus[gpu];
	if (!MD_ARRAY_GROW(place->batches, place->count, place->capacity))
		return false;
	bill(model, gpu);
	place->batches[place->count++] = index;
	return true;
}

static uint32_t tokens_of(const struct md_sim_model *model, uint64_t request)
{
	const struct md_sim_workload *workload = model->options.workload;
	if (!workload || request >= workload->count || !workload->requests[request].generated_tokens)
		return 1;
	return workload->requests[request].generated_tokens;
}

uint64_t md_sim_model_kv_bytes(const struct md_sim_function *function, const struct md_sim_request *request)
{
	uint64_t bytes =
	    request ? function->kv_bytes_per_token * ((uint64_t)request->context_tokens + request->generated_tokens)
		    : 0;
	return bytes ? bytes : function->spec.kv_bytes;
}

static uint64_t kv_of(const struct md_sim_model *model, const struct batch *batch, uint64_t request)
{
	const struct md_sim_workload *workload = model->options.workload;
	const struct md_sim_function *function = &model->functions->functions[batch->function];
	/* with early binding, a process has its artifacts from the start */
	if (model->options.bound)
		return 0;
	return md_sim_model_kv_bytes(function,
				     workload && request < workload->count ? &workload->requests[request] : NULL);
}

static bool take_requests(struct md_sim_model *model, struct batch *batch, const struct medusa_sched_action *action)
{
	uint32_t room = batch->capacity, token_room = room;
	if (!MD_ARRAY_RESERVE(batch->requests, action->request_count, room) ||
	    !MD_ARRAY_RESERVE(batch->tokens, room, token_room))
		return false;
	batch->capacity = room;
	/* by tokens, and in the given order among equals, because they end in this order */
	for (uint32_t i = 0; i < action->request_count; i++) {
		uint32_t tokens = tokens_of(model, action->requests[i]), at = i;
		for (; at && batch->tokens[at - 1] > tokens; at--) {
			batch->tokens[at] = batch->tokens[at - 1];
			batch->requests[at] = batch->requests[at - 1];
		}
		batch->tokens[at] = tokens;
		batch->requests[at] = action->requests[i];
	}
	batch->count = action->request_count;
	batch->kv_bytes = 0;
	for (uint32_t i = 0; i < batch->count; i++)
		batch->kv_bytes += kv_of(model, batch, batch->requests[i]);
	md_sim_model_use(model, batch->gpu, batch->kv_bytes);
	return true;
}

/* True if nothing is missing but copies, which overlap with execution as node_model.h says. */
static bool copies_missing(const struct batch *batch)
{
	return batch->coming[MEDUSA_SCHED_CLASS_BACKBONE] || batch->coming[MEDUSA_SCHED_CLASS_WEIGHTS];
}

static bool gated(const struct batch *batch)
{
	return batch->coming[MEDUSA_SCHED_CLASS_CONTEXT] || batch->coming[MEDUSA_SCHED_CLASS_LIBRARY];
}

void md_sim_model_begin(struct md_sim_model *model, uint32_t index)
{
	struct batch *batch = &model->batches[index];
	if (gated(batch) || batch->phase != PHASE_GATED)
		return;
	if (batch->ready_at > model->now) {
		md_sim_model_plan(model, batch->ready_at, AGENDA_BEGIN, index, ++batch->generation);
		return;
	}
	struct medusa_sched_event *event = batch->joins ? NULL : md_sim_model_emit(model, MEDUSA_SCHED_EVENT_STARTED);
	if (event)
		event->batch = batch->id;
	batch->phase = PHASE_FIRST;
	batch->since = model->now;
	batch->rate = 1;
	batch->hold = copies_missing(batch) ? batch->tail : 0;
	md_sim_model_share(model, batch->gpu, index);
}

static bool absent(struct md_sim_model *model, struct batch *batch, int kind, uint64_t bytes)
{
	uint32_t place = kind == MEDUSA_SCHED_CLASS_LIBRARY ? model->node->gpu_count : batch->gpu;
	struct copy *copy = md_sim_model_copy(model, place, batch->needs[kind]);
	if (copy->state == COPY_COMING) {
		const struct transfer *transfer = &model->transfers[copy->transfer];
		batch->coming[kind] = true;
		if (transfer->ready_at > batch->ready_at)
			batch->ready_at = transfer->ready_at;
	}
	copy->pins++;
	return bytes && copy->state != COPY_COMING && copy->state != COPY_THERE;
}

static void bind_needs(struct md_sim_model *model, struct batch *batch)
{
	const struct medusa_sched_function *spec = &model->functions->functions[batch->function].spec;
	const uint64_t bytes[BATCH_NEEDS] = {[MEDUSA_SCHED_CLASS_BACKBONE] = spec->backbone == NONE ? 0 : 1,
					     [MEDUSA_SCHED_CLASS_WEIGHTS] = spec->weight_bytes,
					     [MEDUSA_SCHED_CLASS_CONTEXT] = spec->context_bytes,
					     [MEDUSA_SCHED_CLASS_LIBRARY] = spec->library_bytes};
	for (int kind = 0; kind < BATCH_NEEDS; kind++) {
		batch->coming[kind] = false;
		batch->needs[kind] = NONE;
		if (model->options.bound || (kind == MEDUSA_SCHED_CLASS_BACKBONE && spec->backbone == NONE))
			continue;
		batch->needs[kind] = md_sim_model_artifact(model, kind, batch->function, spec->backbone);
		if (absent(model, batch, kind, bytes[kind]))
			md_sim_model_complain(model, "batch %llu runs on GPU %u without an artifact of class %d",
					      (unsigned long long)batch->id, batch->gpu, kind);
	}
}

static void check_run(struct md_sim_model *model, const struct medusa_sched_action *action)
{
	const struct gpu *gpu = &model->gpus[action->gpu];
	uint32_t slots = model->node->gpus[action->gpu].slots ? model->node->gpus[action->gpu].slots : 1;
	if (!gpu->present)
		md_sim_model_complain(model, "batch %llu runs on GPU %u, which is lost",
				      (unsigned long long)action->batch, action->gpu);
	if (gpu->engines > slots && !model->options.bound)
		md_sim_model_complain(model, "batch %llu runs on GPU %u beside %u others",
				      (unsigned long long)action->batch, action->gpu, gpu->engines - 1);
	if (action->type == MEDUSA_SCHED_ACTION_JOIN && !model->functions->functions[action->function].spec.continuous)
		md_sim_model_complain(model, "requests join batch %llu of function %u, which is not continuous",
				      (unsigned long long)action->batch, action->function);
}

void md_sim_model_run(struct md_sim_model *model, const struct medusa_sched_action *action)
{
	const struct medusa_sched_function *spec = &model->functions->functions[action->function].spec;
	uint32_t index = batch_new(model);
	if (index == NONE || !join_gpu(model, action->gpu, index)) {
		model->failed = true;
		return;
	}
	struct batch *batch = &model->batches[index];
	batch->id = action->batch;
	batch->order = model->orders++;
	batch->function = action->function;
	batch->gpu = action->gpu;
	batch->joins = action->type == MEDUSA_SCHED_ACTION_JOIN;
	batch->billed_from = model->gpus[action->gpu].share;
	md_sim_model_engine_join(model, index);
	check_run(model, action);
	if (!take_requests(model, batch, action)) {
		model->failed = true;
		return;
	}
	batch->phase = PHASE_GATED;
	batch->live = true;
	batch->left = (double)spec->t0_ns + (double)spec->alpha_ns * (action->request_count - 1.0);
	batch->tail = round(model->timings[action->function].tail * batch->left);
	batch->hold = 0;
	batch->ended = 0;
	batch->tokens_done = 0;
	batch->ready_at = model->now;
	bind_needs(model, batch);
	md_sim_model_begin(model, index);
}

void md_sim_model_arrived(struct md_sim_model *model, uint32_t place, uint32_t artifact)
{
	bool host = place == model->node->gpu_count;
	uint32_t from = host ? 0 : place, to = host ? place : place + 1;
	for (uint32_t gpu = from; gpu < to; gpu++) {
		for (uint32_t i = 0; i < model->gpus[gpu].count; i++) {
			uint32_t index = model->gpus[gpu].batches[i];
			struct batch *batch = &model->batches[index];
			bool waited = copies_missing(batch);
			for (int kind = 0; kind < BATCH_NEEDS; kind++) {
				if (batch->needs[kind] == artifact && host == (kind == MEDUSA_SCHED_CLASS_LIBRARY))
					batch->coming[kind] = false;
			}
			if (batch->phase == PHASE_GATED) {
				md_sim_model_begin(model, index);
			} else if (waited && !copies_missing(batch)) {
				/* whether STALLED or not: everything that remains can be computed now */
				md_sim_model_settle(model, batch);
				batch->hold = 0;
				batch->phase = PHASE_FIRST;
				md_sim_model_share(model, gpu, index);
			}
		}
	}
}

static void unpin(struct md_sim_model *model, struct batch *batch)
{
	for (int kind = 0; kind < BATCH_NEEDS; kind++) {
		if (batch->needs[kind] == NONE)
			continue;
		uint32_t place = kind == MEDUSA_SCHED_CLASS_LIBRARY ? model->node->gpu_count : batch->gpu;
		struct copy *copy = md_sim_model_copy(model, place, batch->needs[kind]);
		if (copy->pins)
			copy->pins--;
	}
}

void md_sim_model_batch_drop(struct md_sim_model *model, uint32_t index)
{
	struct batch *batch = &model->batches[index];
	struct gpu *gpu = &model->gpus[batch->gpu];
	uint32_t at = 0;
	bill(model, batch->gpu);
	if (batch->engine == index)
		model->billed[batch->function] += gpu->share - batch->billed_from;
	unpin(model, batch);
	md_sim_model_free(model, batch->gpu, batch->kv_bytes);
	while (gpu->batches[at] != index)
		at++;
	for (gpu->count--; at < gpu->count; at++)
		gpu->batches[at] = gpu->batches[at + 1];
	md_sim_model_engine_leave(model, index);
	batch->live = false;
	batch->generation++;
	batch->next_free = model->free_batch;
	model->free_batch = index;
	md_sim_model_share(model, batch->gpu, NONE);
}

static void emit_request(struct md_sim_model *model, enum medusa_sched_event_type type, const struct batch *batch,
			 uint32_t i)
{
	struct medusa_sched_event *event = md_sim_model_emit(model, type);
	if (!event)
		return;
	event->batch = batch->id;
	event->function = batch->function;
	event->gpu = batch->gpu;
	event->request = batch->requests[i];
}

void md_sim_model_request_stop(struct md_sim_model *model, uint32_t index, uint32_t request)
{
	struct batch *batch = &model->batches[index];
	uint64_t kv = kv_of(model, batch, batch->requests[request]);
	emit_request(model, MEDUSA_SCHED_EVENT_DONE, batch, request);
	batch->kv_bytes -= kv;
	md_sim_model_free(model, batch->gpu, kv);
	for (batch->count--; request < batch->count; request++) {
		batch->requests[request] = batch->requests[request + 1];
		batch->tokens[request] = batch->tokens[request + 1];
	}
	if (batch->ended == batch->count)
		md_sim_model_batch_drop(model, index);
	else
		md_sim_model_share(model, batch->gpu, NONE);
}

/* Ends requests that have all their tokens, and frees their KV cache. */
static void end_requests(struct md_sim_model *model, uint32_t index)
{
	struct batch *batch = &model->batches[index];
	while (batch->ended < batch->count && batch->tokens[batch->ended] <= batch->tokens_done) {
		uint64_t kv = kv_of(model, batch, batch->requests[batch->ended]);
		emit_request(model, MEDUSA_SCHED_EVENT_DONE, batch, batch->ended++);
		batch->kv_bytes -= kv;
		md_sim_model_free(model, batch->gpu, kv);
	}
	if (batch->ended == batch->count) {
		md_sim_model_batch_drop(model, index);
		return;
	}
	uint32_t further = batch->tokens[batch->ended] - batch->tokens_done;
	batch->tokens_done = batch->tokens[batch->ended];
	batch->phase = PHASE_FURTHER;
	batch->left = (double)further * (double)model->functions->functions[batch->function].spec.token_ns;
	batch->since = model->now;
	batch->rate = 1;
	md_sim_model_share(model, batch->gpu, index);
}

void md_sim_model_computed(struct md_sim_model *model, uint32_t index)
{
	struct batch *batch = &model->batches[index];
	md_sim_model_settle(model, batch);
	if (batch->phase == PHASE_FIRST && copies_missing(batch)) {
		batch->phase = PHASE_STALLED;
		batch->left = batch->hold;
		md_sim_model_share(model, batch->gpu, NONE);
		return;
	}
	if (batch->phase == PHASE_FIRST) {
		for (uint32_t i = 0; i < batch->count; i++)
			emit_request(model, MEDUSA_SCHED_EVENT_FIRST_TOKEN, batch, i);
		batch->tokens_done = 1;
	}
	end_requests(model, index);
}
