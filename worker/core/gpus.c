/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/gpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/core/worker.h"

#define NAME_BYTES 128
#define SLOTS 1024u /* of a GPU whose number of engines nobody has limited */

struct md_gpus {
	uint32_t count;
	bool named;
	struct medusa_sched_gpu *list;
	char (*names)[NAME_BYTES];
	bool *drained;
};

/* ---- names ---- */

/* The nth of a list with commas; false: there are fewer. */
static bool nth_of(const char *list, uint32_t n, char name[NAME_BYTES])
{
	for (; n; n--) {
		const char *comma = strchr(list, ',');
		if (!comma)
			return false;
		list = comma + 1;
	}
	list += strspn(list, " ");
	snprintf(name, NAME_BYTES, "%.*s", (int)strcspn(list, ", "), list);
	return *name != '\0';
}

static enum md_status name_all(struct md_gpus *gpus, const struct md_config_node *config, struct md_error *err)
{
	const char *visible = secure_getenv("CUDA_VISIBLE_DEVICES");
	uint32_t next = 0;
	for (uint32_t i = 0; i < config->gpu_count; i++)
		gpus->named = gpus->named || config->gpus[i].uuid || config->gpu_count > 1;
	for (uint32_t i = 0; gpus->named && i < config->gpu_count; i++) {
		char *name = gpus->names[i];
		if (config->gpus[i].uuid) {
			snprintf(name, NAME_BYTES, "%s", config->gpus[i].uuid);
		} else if (!visible) {
			snprintf(name, NAME_BYTES, "%u", next++);
		} else if (!nth_of(visible, next++, name)) {
			return md_error_set(err, MD_ERR_INVALID,
					    "medusa.gpus: GPU %u has no uuid, and CUDA_VISIBLE_DEVICES of the daemon, "
					    "\"%.100s\", names fewer than %u",
					    i, visible, next);
		}
	}
	return MD_OK;
}

/* ---- beginning and end ---- */

static void describe(struct md_gpus *gpus, const struct md_config_node *config)
{
	for (uint32_t i = 0; i < gpus->count; i++) {
		const struct md_config_gpu *gpu = config->gpu_count ? &config->gpus[i] : &(struct md_config_gpu){0};
		gpus->list[i] = (struct medusa_sched_gpu){
		    .size = sizeof(gpus->list[i]),
		    .memory_bytes = gpu->memory_bytes ? gpu->memory_bytes : MD_WORKER_GPU_BYTES,
		    .pcie_switch = i,
		    .slots = gpu->slots ? gpu->slots : SLOTS,
		};
	}
}

enum md_status md_gpus_create(const struct md_config_node *config, struct md_gpus **out, struct md_error *err)
{
	uint32_t count = config->gpu_count ? config->gpu_count : 1;
	struct md_gpus *gpus = calloc(1, sizeof(*gpus));
	enum md_status status = MD_OK;
	*out = gpus;
	if (gpus) {
		gpus->count = count;
		gpus->list = calloc(count, sizeof(*gpus->list));
		gpus->names = calloc(count, sizeof(*gpus->names));
		gpus->drained = calloc(count, sizeof(*gpus->drained));
	}
	if (!gpus || !gpus->list || !gpus->names || !gpus->drained)
		status = md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the list of GPUs");
	else
		status = name_all(gpus, config, err);
	if (status == MD_OK)
		describe(gpus, config);
	return status;
}

void md_gpus_destroy(struct md_gpus *gpus)
{
	if (!gpus)
		return;
	free(gpus->list);
	free(gpus->names);
	free(gpus->drained);
	free(gpus);
}

const struct medusa_sched_gpu *md_gpus_list(const struct md_gpus *gpus, uint32_t *count)
{
	*count = gpus->count;
	return gpus->list;
}

uint64_t md_gpus_bytes(const struct md_gpus *gpus)
{
	uint64_t most = 0;
	for (uint32_t i = 0; i < gpus->count; i++)
		most = gpus->list[i].memory_bytes > most ? gpus->list[i].memory_bytes : most;
	return most;
}

const char *md_gpus_visible(const struct md_gpus *gpus, uint32_t gpu)
{
	return gpus->named && gpu < gpus->count ? gpus->names[gpu] : NULL;
}

/* ---- draining ---- */

/* Engines that are swapped out have no memory that the scheduler could want back, but their processes hold the GPU. */
static void end_swapped(struct md_worker *worker, uint32_t gpu)
{
	for (struct md_model *model = NULL; (model = md_models_next(worker, model));)
		if (model->gpu == gpu && md_engine_state(model->engine) == MD_ENGINE_SWAPPED && !model->transfer_in)
			md_engine_stop(model->engine);
}

void md_gpus_drain(struct md_worker *worker, uint32_t gpu)
{
	worker->gpus->drained[gpu] = true;
	md_decisions_post(worker, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_GPU_DRAIN, .gpu = gpu});
	end_swapped(worker, gpu);
}

void md_gpus_resume(struct md_worker *worker, uint32_t gpu)
{
	worker->gpus->drained[gpu] = false;
	md_decisions_post(worker, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_GPU_BACK, .gpu = gpu});
}

bool md_gpus_is_empty(const struct md_worker *worker, uint32_t gpu)
{
	struct medusa_sched_gpu_state state = {.size = sizeof(state)};
	for (const struct md_model *model = NULL; (model = md_models_next(worker, model));)
		if (model->gpu == gpu && md_engine_state(model->engine) != MD_ENGINE_STOPPED)
			return false;
	return !medusa_sched_gpu_get(worker->sched, gpu, &state) && !state.running && !state.artifact_bytes;
}

bool md_gpus_is_drained(const struct md_gpus *gpus, uint32_t gpu)
{
	return gpu < gpus->count && gpus->drained[gpu];
}

/* Some were on their way out when the drain began. */
void md_gpus_look(struct md_worker *worker)
{
	for (uint32_t gpu = 0; gpu < worker->gpus->count; gpu++)
		if (worker->gpus->drained[gpu])
			end_swapped(worker, gpu);
}
