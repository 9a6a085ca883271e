/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the GPUs have in use in truth, as NVML says, once a second: memory of engines that have more than their models
 * state, and of other programs. The scheduler is told, and gives models so much less.
 */
#ifndef MD_WORKER_CORE_GPU_MEMORY_H
#define MD_WORKER_CORE_GPU_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct md_gpu_memory;
struct md_model;
struct md_worker;

/*
 * Only GPUs whose memory is stated (medusa.gpus) are measured, of which NVML knows which they are: by uuid, or if the
 * machine has one. *measured is NULL where there is none, or medusa.measure_memory is false.
 */
enum md_status md_gpu_memory_begin(struct md_worker *worker, struct md_gpu_memory **measured, struct md_error *err);
/* What NVML has said last. */
struct md_gpu_measured {
	uint64_t used, total;       /* bytes; used: by anybody, with what the driver keeps */
	const char *product, *uuid; /* borrowed; "": not known */
};
/* False: it was not measured yet, or is not. measured may be NULL. */
bool md_gpu_memory_get(struct md_gpu_memory *measured, uint32_t index, struct md_gpu_measured *found);
/*
 * Whether others have so much of each GPU that the model would have no room even if all models left; why: the GPU that has most
 * room for it, as a clause without its end.
 */
bool md_gpu_memory_lacks(const struct md_worker *worker, const struct md_model *model, char *why, size_t size);
void md_gpu_memory_look(struct md_gpu_memory *measured); /* now and then: tells the scheduler; NULL is fine */
void md_gpu_memory_end(struct md_gpu_memory *measured);  /* NULL is fine */

#endif
