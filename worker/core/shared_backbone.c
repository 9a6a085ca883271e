/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/shared_backbone.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "worker/core/worker.h"

struct md_shared_backbone {
	char *name; /* owned */
	uint64_t bytes;
	uint32_t number; /* of the scheduler */
};

/* The memory of one is to be free on a GPU, and the scheduler waits for that. */
struct md_shared_leaving {
	uint32_t number, gpu;
	uint64_t transfer;
};

/* ---- the list ---- */

static const struct md_shared_backbone *find(const struct md_worker *worker, uint32_t number)
{
	for (size_t i = 0; i < worker->shared_count; i++)
		if (worker->shared[i].number == number)
			return &worker->shared[i];
	return NULL;
}

static bool is(const struct md_shared_backbone *shared, const struct md_config_backbone *backbone)
{
	return shared->bytes == backbone->bytes && !strcmp(shared->name, backbone->name);
}

/* An engine brings it while it starts, so loading it takes no time of its own; its room is free when its engines have ended. */
static enum md_status tell(struct md_worker *worker, const struct md_config_backbone *backbone, uint32_t *number,
			   struct md_error *err)
{
	struct medusa_sched_backbone told = {
	    .size = sizeof(told), .bytes = backbone->bytes, .in_host = 1, .load_ns = 1, .evict_ns = 1};
	if (!medusa_sched_add_backbone(worker->sched, &told, number))
		return MD_OK;
	return md_error_set(err, MD_ERR_INVALID, "medusa.backbones.%.100s.memory: %s", backbone->name,
			    medusa_sched_error(worker->sched));
}

enum md_status md_shared_backbone_find(struct md_worker *worker, const struct md_worker_config *config, uint32_t index,
				       uint32_t *backbone, struct md_error *err)
{
	const struct md_config_backbone *wanted = &config->node.backbones[index];
	for (size_t i = 0; i < worker->shared_count; i++)
		if (is(&worker->shared[i], wanted)) {
			*backbone = worker->shared[i].number;
			return MD_OK;
		}
	struct md_shared_backbone made = {.name = strdup(wanted->name), .bytes = wanted->bytes};
	uint32_t gpus;
	md_gpus_list(worker->gpus, &gpus);
	size_t most = (worker->shared_count + 1) * gpus; /* that can leave at one time */
	if (!made.name || !MD_ARRAY_GROW(worker->shared, worker->shared_count, worker->shared_room) ||
	    !MD_ARRAY_RESERVE(worker->leaving, most, worker->leaving_room) ||
	    !MD_ARRAY_GROW(worker->backbones, worker->backbone_count, worker->backbone_room)) {
		free(made.name);
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for backbone %s", wanted->name);
	}
	enum md_status status = tell(worker, wanted, &made.number, err);
	if (status != MD_OK) {
		free(made.name);
		return status;
	}
	worker->backbones[worker->backbone_count++] = NULL; /* no engine is it */
	worker->shared[worker->shared_count++] = made;
	*backbone = made.number;
	return MD_OK;
}

bool md_shared_backbone_is(const struct md_model *model, const struct md_worker_config *config, uint32_t index)
{
	const struct md_shared_backbone *shared = find(model->worker, model->shared_backbone);
	if (index == MD_CONFIG_NONE || !shared)
		return index == MD_CONFIG_NONE && !shared;
	return is(shared, &config->node.backbones[index]);
}

const char *md_shared_backbone_of(const struct md_model *model, uint64_t *bytes)
{
	const struct md_shared_backbone *shared = find(model->worker, model->shared_backbone);
	*bytes = shared ? shared->bytes : 0;
	return shared ? shared->name : NULL;
}

void md_shared_backbone_end(struct md_worker *worker)
{
	for (size_t i = 0; i < worker->shared_count; i++)
		free(worker->shared[i].name);
	free(worker->shared);
	free(worker->leaving);
}

/* ---- what the scheduler decides ---- */

/*
 * Whether an engine has it there, also one of an earlier configuration, or one that the scheduler takes for ended: its memory
 * counts until its process has ended. One that is swapped has it still, and has to end for it.
 */
static bool has_engine(const struct md_worker *worker, uint32_t number, uint32_t gpu)
{
	bool any = false;
	for (struct md_model *model = NULL; (model = md_models_next(worker, model));) {
		enum md_engine_state state = md_engine_state(model->engine);
		if (model->shared_backbone != number || model->gpu != gpu ||
		    (state == MD_ENGINE_STOPPED && !model->adopting))
			continue;
		any = true;
		if (state == MD_ENGINE_SWAPPED && !model->transfer_in && !model->adopting)
			md_engine_stop(model->engine);
	}
	return any;
}

static void post(struct md_worker *worker, enum medusa_sched_event_type type, const struct md_shared_leaving *moved)
{
	md_decisions_post(worker,
			  (struct medusa_sched_event){
			      .type = type, .transfer = moved->transfer, .backbone = moved->number, .gpu = moved->gpu});
}

static void leave(struct md_worker *worker, const struct md_shared_leaving *moved)
{
	if (has_engine(worker, moved->number, moved->gpu))
		worker->leaving[worker->leaving_count++] = *moved;
	else
		post(worker, MEDUSA_SCHED_EVENT_EVICTED, moved);
}

bool md_shared_backbone_move(struct md_worker *worker, const struct medusa_sched_action *action)
{
	struct md_shared_leaving moved = {action->backbone, action->gpu, action->transfer};
	if (action->backbone == MEDUSA_SCHED_NONE || !find(worker, action->backbone))
		return false;
	bool comes = action->type == MEDUSA_SCHED_ACTION_SWAP_IN || action->type == MEDUSA_SCHED_ACTION_PRELOAD;
	if (!action->transfer)
		return true;
	if (comes)
		post(worker, MEDUSA_SCHED_EVENT_TRANSFER_DONE, &moved);
	else if (action->gpu == MEDUSA_SCHED_NONE)
		post(worker, MEDUSA_SCHED_EVENT_EVICTED, &moved);
	else
		leave(worker, &moved);
	return true;
}

void md_shared_backbone_look(struct md_worker *worker)
{
	size_t kept = 0;
	for (size_t i = 0; i < worker->leaving_count; i++) {
		const struct md_shared_leaving *one = &worker->leaving[i];
		if (has_engine(worker, one->number, one->gpu))
			worker->leaving[kept++] = *one;
		else
			post(worker, MEDUSA_SCHED_EVENT_EVICTED, one);
	}
	worker->leaving_count = kept;
}
