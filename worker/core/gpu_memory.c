/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/core/gpu_memory.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/nvml.h"
#include "base/thread.h"
#include "worker/core/worker.h"

#define MD_LOG_DOMAIN "medusa-worker"
#include "base/log.h"

#define PERIOD_MS 1000
#define NOTABLE_BYTES (UINT64_C(16) << 20) /* smaller changes are not said */

struct measured_gpu {
	char name[128]; /* its UUID; "": the only one of the machine */
	bool wanted;    /* its memory is stated */
	uint64_t told_at, said;
	/* of the thread: */
	void *device;                     /* NVML's; NULL: it is not measured */
	char product[96];                 /* written before `at` */
	_Atomic uint64_t used, total, at; /* bytes, bytes, md_clock_ns() before it was asked; at 0: not yet */
};

/* The thread may wait in NVML for ever when a GPU is lost, so nobody waits for it: the last of both frees this. */
struct md_gpu_memory {
	struct md_worker *worker; /* not for the thread */
	uint32_t count;
	atomic_bool ends;
	atomic_uint users;
	struct measured_gpu gpus[];
};

static void let_go(struct md_gpu_memory *measured)
{
	if (atomic_fetch_sub(&measured->users, 1) == 1)
		free(measured);
}

/* ---- the thread ---- */

/* Whichever number a GPU has among those that CUDA sees, NVML may have another one for it. */
static void *find_device(const struct md_nvml *nvml, const char *name)
{
	unsigned count = 0;
	void *device = NULL;
	if (!strncmp(name, "GPU-", 4) || !strncmp(name, "MIG-", 4))
		return nvml->by_uuid && !nvml->by_uuid(name, &device) ? device : NULL;
	if (nvml->count && nvml->by_index && !nvml->count(&count) && count == 1 && !nvml->by_index(0, &device))
		return device;
	return NULL;
}

static bool find_devices(struct md_gpu_memory *measured, const struct md_nvml *nvml)
{
	bool any = false;
	for (uint32_t i = 0; i < measured->count; i++) {
		struct measured_gpu *gpu = &measured->gpus[i];
		gpu->device = gpu->wanted ? find_device(nvml, gpu->name) : NULL;
		any = any || gpu->device;
		if (gpu->device && (!nvml->name || nvml->name(gpu->device, gpu->product, sizeof(gpu->product))))
			*gpu->product = '\0';
		if (gpu->wanted && !gpu->device)
			md_warn("GPU %u: what is in use there is not measured, because NVML does not know which one it "
				"is: state its uuid in medusa.gpus",
				i);
	}
	return any;
}

static void measure(const struct md_nvml *nvml, struct measured_gpu *gpu)
{
	struct md_nvml_memory memory;
	uint64_t now = md_clock_ns();
	if (!gpu->device || nvml->memory(gpu->device, &memory))
		return;
	atomic_store(&gpu->used, memory.used);
	atomic_store(&gpu->total, memory.total);
	atomic_store(&gpu->at, now);
}

/* NVML is started here, too: that may take long. */
static void *run(void *argument)
{
	struct md_gpu_memory *measured = argument;
	struct timespec period = {.tv_sec = PERIOD_MS / 1000, .tv_nsec = PERIOD_MS % 1000 * 1000000};
	const struct md_nvml *nvml = md_nvml();
	if (!nvml || !nvml->memory)
		md_info("what is in use on GPUs is not measured: NVML is not there");
	else if (find_devices(measured, nvml))
		while (!atomic_load(&measured->ends)) {
			for (uint32_t i = 0; i < measured->count; i++)
				measure(nvml, &measured->gpus[i]);
			nanosleep(&period, NULL);
		}
	let_go(measured);
	return NULL;
}

/* ---- telling the scheduler ---- */

static void say(struct measured_gpu *gpu, uint32_t index, uint64_t foreign)
{
	uint64_t change = foreign > gpu->said ? foreign - gpu->said : gpu->said - foreign;
	if (change < NOTABLE_BYTES && (foreign || !gpu->said))
		return;
	gpu->said = foreign;
	if (foreign)
		md_warn(
		    "GPU %u: %" PRIu64 " bytes are in use beyond what models have by medusa.memory, and beyond what "
		    "medusa.gpus leaves to others: an engine has more than its model states, or another program runs "
		    "there; models get so much less",
		    index, foreign);
	else
		md_warn("GPU %u: nothing is in use any more beyond what models have", index);
}

/* What medusa.gpus leaves of a GPU is for others, and for what the driver keeps. */
static void tell(struct md_gpu_memory *measured, uint32_t index)
{
	struct measured_gpu *gpu = &measured->gpus[index];
	struct medusa_sched_gpu_state state = {.size = sizeof(state)};
	uint64_t at = atomic_load(&gpu->at), used = atomic_load(&gpu->used), total = atomic_load(&gpu->total);
	if (!at || at == gpu->told_at || medusa_sched_gpu_get(measured->worker->sched, index, &state))
		return;
	gpu->told_at = at;
	say(gpu, index, state.foreign_bytes);
	uint64_t left = total > state.limit_bytes ? total - state.limit_bytes : 0;
	md_decisions_post(measured->worker, (struct medusa_sched_event){.type = MEDUSA_SCHED_EVENT_MEMORY_REPORT,
									.gpu = index,
									.bytes = used > left ? used - left : 0,
									.as_of = at});
}

bool md_gpu_memory_get(struct md_gpu_memory *measured, uint32_t index, struct md_gpu_measured *found)
{
	struct measured_gpu *gpu = measured && index < measured->count ? &measured->gpus[index] : NULL;
	if (!gpu || !atomic_load(&gpu->at))
		return false;
	*found = (struct md_gpu_measured){.used = atomic_load(&gpu->used),
					  .total = atomic_load(&gpu->total),
					  .product = gpu->product,
					  .uuid = gpu->name};
	return true;
}

void md_gpu_memory_look(struct md_gpu_memory *measured)
{
	for (uint32_t i = 0; measured && i < measured->count; i++)
		tell(measured, i);
}

/* ---- what it means for a model ---- */

bool md_gpu_memory_lacks(const struct md_worker *worker, const struct md_model *model, char *why, size_t size)
{
	const struct md_model *engine = model->base ? model->base : model;
	struct medusa_sched_gpu_state state = {.size = sizeof(state)}, best = {0};
	uint64_t most = 0;
	uint32_t gpu = MEDUSA_SCHED_NONE;
	for (uint32_t i = 0; !medusa_sched_gpu_get(worker->sched, i, &state); i++) {
		uint64_t room = state.limit_bytes > state.foreign_bytes ? state.limit_bytes - state.foreign_bytes : 0;
		if (!state.present || state.draining || (gpu != MEDUSA_SCHED_NONE && room <= most))
			continue;
		gpu = i;
		most = room;
		best = state;
	}
	if (gpu == MEDUSA_SCHED_NONE || !best.foreign_bytes || engine->weight_bytes <= most)
		return false;
	snprintf(why, size,
		 "others have %" PRIu64 " of the %" PRIu64 " bytes of GPU %u, and it needs %" PRIu64
		 " (medusa.measure_memory)",
		 best.foreign_bytes, best.limit_bytes, gpu, engine->weight_bytes);
	return true;
}

/* ---- beginning and end ---- */

/* Whether any is to be measured. */
static bool name_all(struct md_gpu_memory *measured)
{
	const struct md_worker *worker = measured->worker;
	const struct md_config_node *node = &worker->config->node;
	bool any = false;
	for (uint32_t i = 0; i < measured->count && i < node->gpu_count; i++) {
		struct measured_gpu *gpu = &measured->gpus[i];
		const char *visible = md_gpus_visible(worker->gpus, i);
		snprintf(gpu->name, sizeof(gpu->name), "%s", visible ? visible : "");
		gpu->wanted = node->gpus[i].memory_bytes != 0;
		any = any || gpu->wanted;
	}
	return any;
}

enum md_status md_gpu_memory_begin(struct md_worker *worker, struct md_gpu_memory **measured, struct md_error *err)
{
	uint32_t count;
	pthread_t thread;
	*measured = NULL;
	md_gpus_list(worker->gpus, &count);
	struct md_gpu_memory *made = calloc(1, sizeof(*made) + count * sizeof(*made->gpus));
	if (!made)
		return md_error_set(err, MD_ERR_NO_MEMORY, "out of memory for the memory of %u GPUs", count);
	made->worker = worker;
	made->count = count;
	atomic_store(&made->users, 2);
	if (!worker->config->node.measure_memory || !name_all(made)) {
		free(made);
		return MD_OK;
	}
	int failure = md_thread_start(&thread, run, made);
	if (failure) {
		free(made);
		return md_error_set(err, MD_ERR_NO_MEMORY, "a thread could not be started: %s", strerror(failure));
	}
	pthread_detach(thread);
	*measured = made;
	return MD_OK;
}

void md_gpu_memory_end(struct md_gpu_memory *measured)
{
	if (!measured)
		return;
	atomic_store(&measured->ends, true);
	let_go(measured);
}
